//! Every way of asking wrongly gives a problem that says what is wrong and repeats no value.
use serde_json::{Value, json};

use crate::harness::{Daemon, MARK, Reply, create};

#[tokio::test]
async fn routes_methods_and_bodies() {
    let daemon = Daemon::start().await;
    daemon.get("/v1/nothing", &daemon.agent).await.problem(404, "route.not_found");
    daemon.get("/", "").await.problem(404, "route.not_found");
    let method = Reply::of(daemon.request("DELETE", "/v1/runs", &daemon.agent).send().await.unwrap()).await;
    method.problem(405, "method.not_allowed");
    let mut allow: Vec<&str> = method.header("allow").unwrap().split(',').collect();
    allow.sort_unstable();
    assert_eq!(allow, ["GET", "HEAD", "POST"]);
    let request = daemon.request("POST", "/v1/runs", &daemon.agent).body(r#"{"permissions":[]}"#);
    Reply::of(request.send().await.unwrap()).await.problem(415, "body.not_json");
    let text = daemon.request("POST", "/v1/runs", &daemon.agent).header("content-type", "text/json").body("{}");
    Reply::of(text.send().await.unwrap()).await.problem(415, "body.not_json");
    let charset = daemon.request("POST", "/v1/runs", &daemon.agent);
    let charset = charset.header("content-type", "Application/JSON; charset=utf-8").body(r#"{"permissions":[]}"#);
    Reply::of(charset.send().await.unwrap()).await.json(201);
    daemon.stop().await;
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    let filled = |bytes: usize| format!(r#"{{"tool":"crm.read","reason":"","args":{{"x":"{}"}}}}"#, "x".repeat(bytes));
    daemon.post_text(&steps, &daemon.agent, filled((1 << 20) - 100)).await.json(200);
    daemon.post_text(&steps, &daemon.agent, filled(1 << 20)).await.problem(413, "body.too_large");
    let complete = format!("{steps}/1/complete");
    let result = |bytes: usize| format!(r#"{{"status":"succeeded","result":"{}"}}"#, "x".repeat(bytes));
    daemon.post_text(&complete, &daemon.agent, result(16 << 20)).await.problem(413, "body.too_large");
    daemon.post_text(&complete, &daemon.agent, result((16 << 20) - 100)).await.json(200);
    daemon.stop().await;
}

#[tokio::test]
async fn bodies_that_are_no_such_request() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (body, says) in [
        (r#"{"tool":"crm.read","reason":"","args":{},"argz":1}"#.to_owned(), "unknown field `argz`"),
        (r#"{"tool":"crm.read","args":{}}"#.to_owned(), "missing field `reason`"),
        (r#"{"tool":"crm.read","tool":"crm.read","reason":"","args":{}}"#.to_owned(), "duplicate field `tool`"),
        (format!(r#"{{"tool":"crm.read","reason":{{"{MARK}":1}},"args":{{}}}}"#), "expected a string"),
        (format!(r#"{{"tool":"{MARK} ","reason":"","args":{{}}}}"#), "tool: expected 1 to 128"),
        (
            format!(r#"{{"tool":"crm.read","reason":"","args":{{}},"approval_id":"{MARK}"}}"#),
            "approval_id: expected apr_",
        ),
        (format!(r#"{{"tool":"crm.read","reason":"","args":"{MARK}"}}"#), "args: expected an object"),
        (format!(r#"{{"tool":"crm.read","reason":"","args":{{"a":{MARK}}}}}"#), "not valid JSON"),
        (format!(r#"{{"tool":"crm.read","reason":{deep},"args":{{}}}}"#), "expected a string"),
        (deep.clone(), "expected"),
        (String::new(), "not valid JSON"),
        ("[]".to_owned(), "expected"),
    ] {
        let problem = daemon.post_text(&steps, &daemon.agent, body.clone()).await.problem(400, "request.malformed");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{body}: {problem}");
        assert!(problem["errors"][0]["detail"].is_string(), "{problem}");
    }
    daemon.post_text(&steps, &daemon.agent, b"{\"tool\":\"\xff\"}".to_vec()).await.problem(400, "request.malformed");
    let line = daemon.post_text(&steps, &daemon.agent, "{\n  \"x\": 1}").await.problem(400, "request.malformed");
    assert_eq!((&line["errors"][0]["line"], &line["errors"][0]["column"]), (&json!(2), &json!(5)), "{line}");
    daemon.stop().await;
}

#[tokio::test]
async fn arguments_without_a_canonical_form() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let twice = format!(r#"{{"a":"{MARK}","\u0061":2}}"#);
    for args in [&*twice, r#"{"a":"\ud800"}"#, r#"{"a":1e400}"#, r#"{"a":9007199254740993}"#, &deep] {
        let body = format!(r#"{{"tool":"crm.read","reason":"","args":{args}}}"#);
        daemon.post_text(&steps, &daemon.agent, body).await.problem(422, "args.not_canonical");
    }
    // Nothing was journaled: the next step is the first.
    assert_eq!(daemon.post(&steps, &daemon.agent, &create("1")).await.json(200)["step"], 1);
    daemon.stop().await;
}

#[tokio::test]
async fn completions_that_contradict_themselves() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    let complete = format!("{steps}/1/complete");
    for body in [
        json!({"status": "succeeded", "result": MARK, "result_omitted": true}),
        json!({"status": "succeeded", "result_values": {"$result.id": MARK}}),
        json!({"status": MARK}),
        json!({"status": "succeeded", "result_omitted": MARK}),
    ] {
        daemon.post(&complete, &daemon.agent, &body).await.problem(400, "request.malformed");
    }
    let twice = r#"{"status":"succeeded","result_omitted":true,"result_values":{"$result.id":1,"$result.id":2}}"#;
    daemon.post_text(&complete, &daemon.agent, twice).await.problem(400, "request.malformed");
    daemon.post(&complete, &daemon.agent, &json!({"status": "succeeded", "result": {"id": 1}})).await.json(200);
    let other = json!({"status": "failed"});
    daemon.post(&complete, &daemon.agent, &other).await.problem(409, "step.status");
    daemon.stop().await;
}

#[tokio::test]
async fn ids_that_name_nothing() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    let done = json!({"status": "succeeded"});
    for path in ["/v1/runs/none", "/v1/runs/no%20run", "/v1/runs/%ff"] {
        daemon.get(path, &daemon.agent).await.problem(404, "run.not_found");
        daemon.get(path, &daemon.operator).await.problem(404, "run.not_found");
    }
    daemon.post("/v1/runs/none/steps", &daemon.agent, &create("1")).await.problem(404, "run.not_found");
    for step in ["1", "0", "x", "99999999999"] {
        let path = format!("{steps}/{step}/complete");
        daemon.post(&path, &daemon.agent, &done).await.problem(404, "step.not_found");
    }
    let again = json!({"run_id": "r", "permissions": []});
    daemon.post("/v1/runs", &daemon.agent, &again).await.problem(409, "run.exists");
    daemon
        .post("/v1/runs", &daemon.agent, &json!({"run_id": "a b", "permissions": []}))
        .await
        .problem(400, "request.malformed");
    daemon.stop().await;
}

#[tokio::test]
async fn keys_that_open_nothing() {
    let daemon = Daemon::start().await;
    let mut wrong = daemon.agent.clone();
    let last = if wrong.pop() == Some('0') { '1' } else { '0' };
    wrong.push(last);
    for key in ["", "rvk_x", &wrong] {
        let reply = daemon.get("/v1/me", key).await;
        reply.problem(401, "key.invalid");
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"));
        assert!(!reply.text.contains(&wrong));
    }
    let basic = daemon.request("GET", "/v1/me", "").header("authorization", "Basic eDp5").send().await.unwrap();
    Reply::of(basic).await.problem(401, "key.invalid");
    // Whoever has no key learns nothing about the body.
    daemon.post("/v1/runs", "", &Value::Null).await.problem(401, "key.invalid");
    daemon.stop().await;
}

#[tokio::test]
async fn keys_that_can_not_be_made() {
    let daemon = Daemon::start().await;
    for (body, status, code) in [
        (json!({"actor": "x", "roles": []}), 422, "request.invalid"),
        (json!({"actor": "x", "roles": ["agent", "admin"]}), 422, "request.invalid"),
        (json!({"actor": "x y", "roles": ["agent"]}), 400, "request.malformed"),
        (json!({"actor": "x", "roles": ["root"]}), 400, "request.malformed"),
        (json!({"actor": "x", "roles": ["agent"], "expires_at": "soon"}), 400, "request.malformed"),
    ] {
        daemon.post("/v1/keys", &daemon.admin, &body).await.problem(status, code);
    }
    let expired = json!({"actor": "x", "roles": ["agent"], "expires_at": "2001-01-01T00:00:00Z"});
    let made = daemon.post("/v1/keys", &daemon.admin, &expired).await.json(201);
    daemon.get("/v1/me", made["key"].as_str().unwrap()).await.problem(401, "key.invalid");
    daemon.stop().await;
}
