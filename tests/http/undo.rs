//! Settling, plans and rollbacks over HTTP. What an undo does is tested where it lives.
use serde_json::json;

use crate::harness::{Daemon, create, read};

#[tokio::test]
async fn an_operator_settles_a_step_of_unknown_outcome() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    let uncertain = json!({"status": "uncertain", "error": "timed out"});
    let answer = daemon.post(&format!("{steps}/1/complete"), &daemon.agent, &uncertain).await.json(200);
    assert_eq!(answer["status"], "uncertain");
    let plan = daemon.get("/v1/runs/r/plan", &daemon.operator).await.json(200);
    assert_eq!(plan["steps"][0]["action"], "unresolved");
    let settle = json!({"target": "step", "status": "succeeded", "note": "seen in the shop", "result": {"id": 4}});
    let settled = daemon.post(&format!("{steps}/1/resolve"), &daemon.operator, &settle).await.json(200);
    assert_eq!(settled, json!({"step": 1, "status": "succeeded", "recoverable": true, "missing": []}));
    let late = json!({"status": "failed"});
    daemon.post(&format!("{steps}/1/complete"), &daemon.agent, &late).await.problem(409, "step.disputed");
    daemon.stop().await;
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_a_rollback_reports() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    let done = json!({"status": "succeeded", "result": {"id": 4}});
    daemon.post(&format!("{steps}/1/complete"), &daemon.agent, &done).await.json(200);
    let rollback = "/v1/runs/r/rollback";
    let plan = daemon.post(rollback, &daemon.operator, &json!({"dry_run": true})).await.json(200);
    assert_eq!(plan, daemon.get("/v1/runs/r/plan", &daemon.operator).await.json(200));
    assert_eq!((&plan["verdict"], &plan["steps"][0]["undo_tool"]), (&json!("partly_undoable"), &json!("crm.delete")));
    assert_eq!(daemon.get("/v1/runs/r", &daemon.agent).await.json(200)["status"], "active");
    for body in [json!({"dry_run": true, "steps": [1]}), json!({"tool": "crm.create"})] {
        daemon.post(rollback, &daemon.operator, &body).await.problem(422, "request.invalid");
    }
    daemon.post(rollback, &daemon.operator, &json!({"force": true})).await.problem(400, "request.malformed");
    let report = daemon.post_text(rollback, &daemon.operator, "").await.json(202);
    assert!(report["rollback_id"].as_str().unwrap().starts_with("rbk_"), "{report}");
    assert_eq!(daemon.get(rollback, &daemon.operator).await.json(200)["rollback_id"], report["rollback_id"]);
    daemon.post(&steps, &daemon.agent, &read()).await.problem(409, "run.not_active");
    daemon.stop().await;
}
