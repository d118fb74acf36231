//! What a request may leave out, and what is meant then.
use serde_json::{Value, json};

use crate::harness::Daemon;

// B12
#[tokio::test]
async fn a_run_is_enforced_and_named_by_the_daemon_unless_it_says_otherwise() {
    let daemon = Daemon::start().await;
    let run = daemon.post("/v1/runs", &daemon.agent, &json!({"permissions": []})).await.json(201);
    assert_eq!(run["mode"], "enforce");
    assert_eq!(run.get("reason").unwrap_or(&Value::Null), &Value::Null);
    let name = run["run_id"].as_str().unwrap().to_owned();
    assert!(name.starts_with("run_"), "{name}");
    let other = daemon.post("/v1/runs", &daemon.agent, &json!({"permissions": []})).await.json(201);
    assert_ne!(other["run_id"], name.as_str(), "another run, another name");
    daemon.stop().await;
}
