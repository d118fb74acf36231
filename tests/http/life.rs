//! The life of a run, its exports, and what the daemon says about itself.
use std::os::unix::fs::PermissionsExt as _;

use reversi::http::Limits;
use serde_json::{Value, json};

use crate::harness::{Daemon, MARK, PERMISSIONS, Reply, create, read};

fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.header("content-type"), Some("application/jsonl"));
    assert!(reply.text.ends_with('\n'));
    reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_run_from_start_to_seal() {
    let daemon = Daemon::start().await;
    let body = json!({"run_id": "r:1", "permissions": PERMISSIONS, "reason": "order 7"});
    let run = daemon.post("/v1/runs", &daemon.agent, &body).await.json(201);
    assert_eq!((&run["run_id"], &run["mode"], &run["status"]), (&json!("r:1"), &json!("enforce"), &json!("active")));
    assert_eq!((&run["permissions"], &run["actor"]), (&json!(PERMISSIONS), &json!("bot-1")));
    let steps = "/v1/runs/r:1/steps";
    let begun = daemon.post(steps, &daemon.agent, &create(MARK)).await.json(200);
    let wanted = json!({"decision": "allow", "step": 1, "reasons": [], "codes": [], "notes": [],
        "result_paths": ["$result.id"]});
    assert_eq!(begun, wanted);
    let done = json!({"status": "succeeded", "result": {"id": MARK}});
    let completed = daemon.post(&format!("{steps}/1/complete"), &daemon.agent, &done).await.json(200);
    assert_eq!(completed, json!({"step": 1, "status": "succeeded", "recoverable": true, "missing": []}));
    let shown = daemon.get("/v1/runs/r:1", &daemon.agent).await.json(200);
    assert_eq!(shown["steps"][0]["tool"], "crm.create");
    assert_eq!(shown["step_count"], 1);
    let sealed = daemon.post_text("/v1/runs/r:1/seal", &daemon.agent, "").await.json(200);
    assert_eq!(sealed["status"], "sealed");
    daemon.post(steps, &daemon.agent, &read()).await.problem(409, "run.not_active");
    exports_hold_everything_but_values(&daemon).await;
    daemon.stop().await;
}

async fn exports_hold_everything_but_values(daemon: &Daemon) {
    let of_run = daemon.get("/v1/runs/r:1/records", &daemon.operator).await;
    let kinds: Vec<Value> = lines(&of_run).iter().map(|line| line["type"].clone()).collect();
    assert_eq!(kinds, ["run.started", "step.begun", "step.succeeded", "run.sealed"]);
    let all = daemon.get("/v1/ledger/records", &daemon.operator).await;
    let seqs: Vec<u64> = lines(&all).iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    let head = daemon.get("/v1/ledger", &daemon.operator).await.json(200)["head"].as_u64().unwrap();
    assert_eq!(seqs, (0..head).collect::<Vec<_>>());
    let tail = daemon.get(&format!("/v1/ledger/records?from={}", head - 1), &daemon.operator).await;
    assert_eq!(lines(&tail).len(), 1);
    assert_eq!(daemon.get(&format!("/v1/ledger/records?from={head}"), &daemon.operator).await.text, "");
    let note = daemon.get("/v1/ledger/checkpoint?fresh=true", &daemon.operator).await;
    assert!(note.header("content-type").unwrap().starts_with("text/plain"));
    assert_eq!(note.text.lines().nth(1), Some(&*head.to_string()), "{}", note.text);
    assert!(note.text.contains("\n\n\u{2014} "), "{}", note.text);
    let metrics = daemon.get("/metrics", "").await;
    for text in [of_run.text, all.text, note.text, metrics.text] {
        assert!(!text.contains(MARK));
    }
}

#[tokio::test]
async fn the_export_comes_in_pages() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    let body = json!({"tool": "crm.read", "reason": "x".repeat(2000), "args": {}});
    for _ in 0..200 {
        daemon.post(&steps, &daemon.agent, &body).await.json(200);
    }
    let all = daemon.get("/v1/ledger/records", &daemon.operator).await;
    assert!(all.text.len() > 400_000, "more than one page");
    assert_eq!(lines(&all).last().unwrap()["seq"], lines(&all).len() - 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_block_is_a_decision_with_reasons() {
    let daemon = Daemon::start().await;
    let body = json!({"run_id": "r", "permissions": ["mail:send"]});
    daemon.post("/v1/runs", &daemon.agent, &body).await.json(201);
    let blocked = daemon.post("/v1/runs/r/steps", &daemon.agent, &create("1")).await.json(200);
    assert_eq!((&blocked["decision"], &blocked["codes"]), (&json!("block"), &json!(["scope.missing_permission"])));
    assert!(blocked["reasons"][0].as_str().unwrap().contains("crm:write"));
    assert_eq!(blocked.get("approval_id"), None);
    let send = json!({"tool": "mail.send", "reason": "a test", "args": {"body": MARK}});
    let nobody = daemon.post("/v1/runs/r/steps", &daemon.agent, &send).await.json(200);
    assert_eq!(nobody["codes"], json!(["approval.unreachable"]), "there is no approver yet");
    daemon.new_key("anna", "approver").await;
    let asks = daemon.post("/v1/runs/r/steps", &daemon.agent, &send).await.json(200);
    assert_eq!((&asks["decision"], &asks["codes"]), (&json!("block"), &json!(["approval.required"])));
    assert!(asks["approval_id"].as_str().unwrap().starts_with("apr_"));
    let complete = json!({"status": "succeeded"});
    daemon.post("/v1/runs/r/steps/2/complete", &daemon.agent, &complete).await.problem(409, "step.status");
    daemon.stop().await;
}

#[tokio::test]
async fn a_large_result_is_left_out_and_a_strange_one_is_taken() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    for order in ["1", "2", "3"] {
        daemon.post(&steps, &daemon.agent, &create(order)).await.json(200);
    }
    let complete = |step| format!("{steps}/{step}/complete");
    let values = json!({"status": "succeeded", "result_omitted": true, "result_values": {"$result.id": 7}});
    let answer = daemon.post(&complete(1), &daemon.agent, &values).await.json(200);
    assert_eq!(answer["recoverable"], true, "{answer}");
    let large = json!({"status": "succeeded", "result": {"id": 8, "text": "x".repeat(2 << 20)}});
    assert_eq!(daemon.post(&complete(2), &daemon.agent, &large).await.json(200)["recoverable"], true);
    let twice = r#"{"status": "succeeded", "result": {"id": 1, "id": 2}}"#;
    let strange = daemon.post_text(&complete(3), &daemon.agent, twice).await.json(200);
    assert_eq!((&strange["recoverable"], &strange["missing"]), (&json!(false), &json!(["$result.id"])));
    daemon.stop().await;
}

#[tokio::test]
async fn lists_are_paged() {
    let daemon = Daemon::start().await;
    for run in ["a", "b", "c"] {
        daemon.new_run(run).await;
    }
    let ids =
        |page: &Value| page["items"].as_array().unwrap().iter().map(|run| run["run_id"].clone()).collect::<Vec<_>>();
    let first = daemon.get("/v1/runs?limit=2", &daemon.agent).await.json(200);
    assert_eq!((ids(&first), &first["next_cursor"]), (vec![json!("a"), json!("b")], &json!("b")));
    let second = daemon.get("/v1/runs?limit=2&cursor=b", &daemon.agent).await.json(200);
    assert_eq!((ids(&second), &second["next_cursor"]), (vec![json!("c")], &Value::Null));
    let other = daemon.new_key("bot-2", "agent").await;
    assert_eq!(daemon.get("/v1/runs", &other).await.json(200)["items"], json!([]));
    daemon.get("/v1/runs?limit=0", &daemon.agent).await.problem(400, "request.malformed");
    daemon.get("/v1/runs?limit=2&page=1", &daemon.agent).await.problem(400, "request.malformed");
    daemon.stop().await;
}

#[tokio::test]
async fn what_the_daemon_says_about_itself() {
    let daemon = Daemon::start().await;
    let file = daemon.data_dir().join("admin.key");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let me = daemon.get("/v1/me", &daemon.agent).await.json(200);
    assert_eq!((&me["actor"], &me["kind"], &me["roles"]), (&json!("bot-1"), &json!("agent"), &json!(["agent"])));
    assert_eq!(daemon.get("/healthz", "").await.text, "ok\n");
    assert_eq!(daemon.get("/readyz", "").await.text, "ready\n");
    let status = daemon.get("/v1/status", &daemon.operator).await.json(200);
    assert_eq!(status["quarantined"], json!([]));
    assert_eq!(status["ledger"].as_str().unwrap().len(), 32);
    let metrics = daemon.get("/metrics", "").await.text;
    assert!(metrics.contains("\nreversi_http_requests_total{class=\"2xx\"} "), "{metrics}");
    daemon.stop().await;
}

#[tokio::test]
async fn the_metrics_can_have_an_address_of_their_own() {
    // A free port, found by binding it once.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let daemon = Daemon::start_with(Limits::default(), |config| config.metrics_listen = Some(port)).await;
    daemon.get("/metrics", "").await.problem(404, "route.not_found");
    let fetch = |path: &str| daemon.client.get(format!("http://{port}{path}")).send();
    assert!(fetch("/metrics").await.unwrap().text().await.unwrap().contains("reversi_ledger_records "));
    assert_eq!(fetch("/v1/me").await.unwrap().status().as_u16(), 404);
    daemon.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_everything() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    let daemon = daemon.restart().await;
    let run = daemon.get("/v1/runs/r", &daemon.agent).await.json(200);
    assert_eq!((&run["steps"][0]["status"], &run["steps"][0]["unresolved"]), (&json!("in_flight"), &json!(true)));
    let again = daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    assert_eq!(again["codes"], json!(["duplicate.call"]));
    daemon.stop().await;
}
