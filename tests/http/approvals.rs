//! Approvals over HTTP as somebody meets them who wants one without being entitled to it.
use serde_json::{Value, json};

use super::harness::{Daemon, MARK, PERMISSIONS};

/// A key with all that can be said of one.
async fn key(daemon: &Daemon, actor: &str, role: &str, more: &Value) -> (String, String) {
    let mut body = json!({"actor": actor, "roles": [role]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let made = daemon.post("/v1/keys", &daemon.admin, &body).await.json(201);
    (made["key_id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

fn mail(args: &Value) -> Value {
    json!({"tool": "mail.send", "reason": "a test", "args": args})
}

/// Asks for an approval, and gives its id.
async fn asked(daemon: &Daemon, steps: &str, call: &Value) -> String {
    let blocked = daemon.post(steps, &daemon.agent, call).await.json(200);
    assert_eq!(blocked["codes"], json!(["approval.required"]), "{blocked}");
    blocked["approval_id"].as_str().unwrap().to_owned()
}

async fn approve(daemon: &Daemon, id: &str, key: &str) -> super::harness::Reply {
    daemon.post(&format!("/v1/approvals/{id}/approve"), key, &json!({})).await
}

#[tokio::test]
async fn keys_that_are_no_keys_all_get_the_same_answer() {
    let daemon = Daemon::start().await;
    let (id, revoked) = key(&daemon, "rita", "approver", &json!({})).await;
    let gone = daemon.request("DELETE", &format!("/v1/keys/{id}"), &daemon.admin).send().await.unwrap();
    assert_eq!(gone.status().as_u16(), 200);
    let (_, expired) = key(&daemon, "eve", "approver", &json!({"expires_at": "2001-01-01T00:00:00Z"})).await;
    let mut told = Vec::new();
    for key in ["rvk_junk", &revoked, &expired, &format!("{}x", daemon.operator)] {
        let mut problem = daemon.get("/v1/approvals", key).await.problem(401, "key.invalid");
        problem["request_id"] = Value::Null;
        told.push(problem);
    }
    assert!(told.iter().all(|problem| *problem == told[0]), "{told:#?}");
    daemon.stop().await;
}

#[tokio::test]
async fn nobody_behind_the_call_can_approve_it() {
    let daemon = Daemon::start().await;
    // The person behind the agent's key is bot-1 (see the harness); here is that person's second key.
    let (_, own) = key(&daemon, "second", "approver", &json!({"person": "bot-1"})).await;
    let (_, anna) = key(&daemon, "anna", "approver", &json!({})).await;
    let steps = daemon.new_run("r").await;
    let id = asked(&daemon, &steps, &mail(&json!({}))).await;
    approve(&daemon, &id, &own).await.problem(403, "approval.own_request");
    approve(&daemon, &id, &daemon.agent).await.problem(403, "role.missing");
    approve(&daemon, &id, &daemon.operator).await.problem(403, "role.missing");
    // What a body claims about its sender is refused, not ignored.
    for spoofed in ["person", "actor", "requester", "on_behalf_of"] {
        let body = json!({spoofed: "anna"});
        daemon.post(&format!("/v1/approvals/{id}/approve"), &own, &body).await.problem(400, "request.malformed");
    }
    assert_eq!(approve(&daemon, &id, &anna).await.json(200)["status"], "approved");
    daemon.stop().await;
}

#[tokio::test]
async fn two_keys_of_one_person_are_one_vote() {
    let daemon = Daemon::start().await;
    let manifest =
        "{ tool: bank.pay, effect: irreversible, permission: crm:write, approval: { roles: [finance], quorum: 2 } }";
    std::fs::write(daemon.manifests_dir().join("bank.yaml"), manifest).unwrap();
    daemon.post("/v1/reload", &daemon.admin, &json!({})).await.json(200);
    let more = json!({"person": "fred", "groups": ["finance"]});
    let (_, first) = key(&daemon, "fred-laptop", "approver", &more).await;
    let (_, second) = key(&daemon, "fred-phone", "approver", &more).await;
    let steps = daemon.new_run("r").await;
    let call = json!({"tool": "bank.pay", "reason": "a test", "args": {}});
    let alone = daemon.post(&steps, &daemon.agent, &call).await.json(200);
    assert_eq!(alone["codes"], json!(["approval.unreachable"]), "one person can't be two");
    let (_, fiona) = key(&daemon, "fiona", "approver", &json!({})).await;
    let group = json!({"group": "finance", "members": ["fiona"]});
    daemon.post("/v1/groups", &daemon.admin, &group).await.json(200);
    let id = asked(&daemon, &steps, &call).await;
    for key in [&first, &second] {
        let view = approve(&daemon, &id, key).await.json(200);
        assert_eq!((&view["status"], view["votes"].as_array().unwrap().len()), (&json!("pending"), 1));
    }
    assert_eq!(approve(&daemon, &id, &fiona).await.json(200)["status"], "approved");
    // Whoever has lost the role since has not approved it: the grant is taken away, and nobody could give another.
    let gone = daemon.request("DELETE", "/v1/groups/finance", &daemon.admin).send().await.unwrap();
    assert_eq!(gone.status().as_u16(), 200);
    let late = daemon.post(&steps, &daemon.agent, &call).await.json(200);
    assert_eq!((&late["decision"], &late["codes"]), (&json!("block"), &json!(["approval.unreachable"])), "{late}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_grant_is_for_exactly_these_arguments() {
    let daemon = Daemon::start().await;
    let (_, anna) = key(&daemon, "anna", "approver", &json!({})).await;
    let steps = daemon.new_run("r").await;
    let granted = r#"{"to":"caf\u00e9@example.com","n":1,"card":"m4rked-value"}"#;
    let text =
        |args: &str, approval: &str| format!(r#"{{"tool":"mail.send","reason":"a test","args":{args}{approval}}}"#);
    let id = asked(&daemon, &steps, &serde_json::from_str(&text(granted, "")).unwrap()).await;
    approve(&daemon, &id, &anna).await.json(200);
    let named = format!(r#","approval_id":"{id}""#);
    for (other, code) in [
        (r#"{"to":"caf\u00e9@example.con","n":1,"card":"m4rked-value"}"#, "approval.wrong_arguments"),
        (r#"{"to":"cafe\u0301@example.com","n":1,"card":"m4rked-value"}"#, "approval.wrong_arguments"),
        (r#"{"to":"caf\u00e9@example.com","n":1,"card":"m4rked-valu3"}"#, "approval.wrong_arguments"),
        (r#"{"to":"caf\u00e9@example.com","n":"1","card":"m4rked-value"}"#, "approval.wrong_arguments"),
    ] {
        let blocked = daemon.post_text(&steps, &daemon.agent, text(other, &named)).await.json(200);
        assert_eq!((&blocked["decision"], &blocked["codes"]), (&json!("block"), &json!([code])), "{other}");
    }
    let twice = r#"{"to":"x","to":"caf\u00e9@example.com"}"#;
    daemon.post_text(&steps, &daemon.agent, text(twice, &named)).await.problem(422, "args.not_canonical");
    // Another order of the keys and 1.0 for 1 are the same arguments.
    let same = r#"{"n":1.0,"card":"m4rked-value","to":"café@example.com"}"#;
    let allowed = daemon.post_text(&steps, &daemon.agent, text(same, &named)).await.json(200);
    assert_eq!(allowed["decision"], "allow", "{allowed}");
    let again = daemon.post_text(&steps, &daemon.agent, text(same, &named)).await.json(200);
    assert_eq!(again["codes"], json!(["approval.used"]));
    daemon.stop().await;
}

#[tokio::test]
async fn a_grant_stays_in_its_run_and_ends_with_its_manifest() {
    let daemon = Daemon::start().await;
    let (_, anna) = key(&daemon, "anna", "approver", &json!({})).await;
    let (first, second) = (daemon.new_run("first").await, daemon.new_run("second").await);
    let id = asked(&daemon, &first, &mail(&json!({}))).await;
    approve(&daemon, &id, &anna).await.json(200);
    let mut named = mail(&json!({}));
    named["approval_id"] = json!(id);
    let elsewhere = daemon.post(&second, &daemon.agent, &named).await.json(200);
    assert_eq!(elsewhere["codes"], json!(["approval.wrong_run"]));
    let changed = std::fs::read_to_string(daemon.manifests_dir().join("tools.yaml")).unwrap();
    let changed = changed.replace("description: Send.", "description: Send it.");
    std::fs::write(daemon.manifests_dir().join("tools.yaml"), changed).unwrap();
    daemon.post("/v1/reload", &daemon.admin, &json!({})).await.json(200);
    let late = daemon.post(&first, &daemon.agent, &named).await.json(200);
    assert_eq!(late["codes"], json!(["approval.manifest_changed"]));
    let stranger = daemon.new_key("bot-2", "agent").await;
    daemon.get(&format!("/v1/approvals/{id}"), &stranger).await.problem(404, "approval.not_found");
    let own = daemon.get(&format!("/v1/approvals/{id}?wait=10ms"), &daemon.agent).await.json(200);
    assert_eq!(own.as_object().unwrap().keys().collect::<Vec<_>>(), ["approval_id", "deadline", "status"]);
    daemon.get("/v1/approvals", &daemon.agent).await.problem(403, "role.missing");
    let observe = json!({"permissions": PERMISSIONS, "mode": "observe"});
    daemon.post("/v1/runs", &daemon.agent, &observe).await.problem(403, "mode.not_allowed");
    daemon.stop().await;
}

#[tokio::test]
async fn of_32_racing_calls_one_uses_the_grant() {
    let daemon = Daemon::start().await;
    let (_, anna) = key(&daemon, "anna", "approver", &json!({})).await;
    let steps = daemon.new_run("r").await;
    let call = mail(&json!({"n": 1}));
    let id = asked(&daemon, &steps, &call).await;
    approve(&daemon, &id, &anna).await.json(200);
    let mut named = call.clone();
    named["approval_id"] = json!(id);
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..32 {
        racing.spawn(daemon.request("POST", &steps, &daemon.agent).json(&named).send());
    }
    let mut decisions = Vec::new();
    while let Some(answer) = racing.join_next().await {
        let answer: Value = answer.unwrap().unwrap().json().await.unwrap();
        decisions.push((answer["decision"].clone(), answer["codes"].clone()));
    }
    let allowed = decisions.iter().filter(|(decision, _)| decision == "allow").count();
    let used = decisions.iter().filter(|(_, codes)| *codes == json!(["approval.used"])).count();
    assert_eq!((allowed, used), (1, 31), "{decisions:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_halt_is_told_to_whoever_is_blocked() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    daemon.post("/v1/halt", &daemon.operator, &json!({"reason": "no"})).await.problem(403, "role.missing");
    daemon.post("/v1/halt", &daemon.admin, &json!({"reason": " "})).await.problem(422, "request.invalid");
    let halted = daemon.post("/v1/halt", &daemon.admin, &json!({"reason": "a leak"})).await.json(200);
    assert_eq!((&halted["halted"], &halted["items"][0]["scope"]), (&json!(true), &json!("all")));
    let call = json!({"tool": "crm.read", "reason": "a test", "args": {"body": MARK}});
    let blocked = daemon.post(&steps, &daemon.agent, &call).await.json(200);
    assert_eq!((&blocked["decision"], &blocked["codes"]), (&json!("block"), &json!(["halt.active"])));
    assert!(blocked["reasons"][0].as_str().unwrap().contains("a leak"));
    let daemon = daemon.restart().await;
    assert_eq!(daemon.get("/v1/status", &daemon.operator).await.json(200)["halts"][0]["reason"], "a leak");
    let metrics = daemon.get("/metrics", "").await.text;
    assert!(metrics.contains("\nreversi_halts 1\n"), "{metrics}");
    let resumed = daemon.post("/v1/resume", &daemon.admin, &json!({})).await.json(200);
    assert_eq!(resumed["halted"], false);
    assert_eq!(daemon.post(&steps, &daemon.agent, &call).await.json(200)["decision"], "allow");
    daemon.stop().await;
}
