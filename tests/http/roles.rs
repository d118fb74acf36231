//! Who may ask what: every endpoint with a key of every role, and without one.
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Daemon, Reply, create, read};

const AGENT: &[&str] = &["agent"];
const READERS: &[&str] = &["auditor", "operator", "admin"];
const OPERATORS: &[&str] = &["operator", "admin"];
const ADMIN: &[&str] = &["admin"];
const APPROVERS: &[&str] = &["approver"];
/// Who reads approvals as a whole; an agent only those that it asked for.
const LOOKERS: &[&str] = &["approver", "auditor", "operator", "admin", "breakglass"];
const PEOPLE: &[&str] = &["approver", "auditor", "operator", "admin"];
/// Of no approval.
const APR: &str = "/v1/approvals/apr_00000000000000000000000000000009";

/// Each is refused for a reason of its own once the role is right, so that no request changes what the next one sees.
fn endpoints() -> Vec<(&'static str, &'static str, Value, &'static [&'static str])> {
    vec![
        ("POST", "/v1/runs", json!({"run_id": "r", "permissions": []}), AGENT),
        ("POST", "/v1/runs/r/steps", read(), AGENT),
        ("POST", "/v1/runs/r/steps/1/complete", json!({"status": "uncertain"}), AGENT),
        ("POST", "/v1/runs/r/seal", json!({}), AGENT),
        ("POST", "/v1/runs/r/steps/9/resolve", json!({"target": "step", "status": "failed", "note": "x"}), OPERATORS),
        ("GET", "/v1/runs/r/plan", Value::Null, OPERATORS),
        ("POST", "/v1/runs/r/rollback", json!({"dry_run": true}), OPERATORS),
        ("POST", "/v1/runs/r/rollback", json!({"steps": [99]}), OPERATORS),
        ("GET", "/v1/runs/r/rollback", Value::Null, READERS),
        ("GET", "/v1/runs/r/records", Value::Null, READERS),
        ("GET", "/v1/ledger", Value::Null, READERS),
        ("GET", "/v1/ledger/records", Value::Null, READERS),
        ("GET", "/v1/ledger/checkpoint", Value::Null, READERS),
        ("GET", "/v1/status", Value::Null, READERS),
        ("GET", "/v1/runs", Value::Null, &["agent", "auditor", "operator", "admin"]),
        ("GET", "/v1/me", Value::Null, &["agent", "approver", "auditor", "operator", "admin", "breakglass"]),
        ("POST", "/v1/reload", json!({}), ADMIN),
        ("POST", "/v1/keys", json!({"actor": "new", "roles": ["auditor"]}), ADMIN),
        ("GET", "/v1/keys", Value::Null, ADMIN),
        ("DELETE", "/v1/keys/k00000000000", Value::Null, ADMIN),
        ("POST", "/v1/keys/k00000000000/rotate", json!({}), ADMIN),
        ("GET", "/v1/groups", Value::Null, &["approver", "auditor", "operator", "admin"]),
        ("POST", "/v1/groups", json!({"group": "g", "members": []}), ADMIN),
        ("DELETE", "/v1/groups/none", Value::Null, ADMIN),
        ("GET", "/v1/halt", Value::Null, PEOPLE),
        ("POST", "/v1/halt", json!({"reason": "x", "scope": "run:none"}), ADMIN),
        ("POST", "/v1/resume", json!({"scope": "run:none"}), ADMIN),
        ("GET", "/v1/delegations", Value::Null, PEOPLE),
        (
            "POST",
            "/v1/delegations",
            json!({"to": "x", "roles": [], "end": "2030-01-01T00:00:00Z"}),
            &["approver", "admin"],
        ),
        ("DELETE", "/v1/delegations/dlg_00000000000000000000000000000009", Value::Null, &["approver", "admin"]),
        ("GET", "/v1/reviews", Value::Null, PEOPLE),
        ("GET", "/v1/approvals", Value::Null, LOOKERS),
        ("POST", "/v1/runs/r/approvals", json!({"tool": "no.tool"}), OPERATORS),
    ]
}

/// What is said to an approval, by path.
fn words() -> Vec<(String, &'static [&'static str])> {
    let word = |name: &str, roles| (format!("{APR}/{name}"), roles);
    vec![
        word("approve", APPROVERS),
        word("deny", APPROVERS),
        word("withdraw", APPROVERS),
        word("revoke", &["approver", "operator", "admin"]),
        word("break-glass", &["breakglass"]),
        word("review", PEOPLE),
    ]
}

async fn ask(daemon: &Daemon, (method, path, body): (&str, &str, &Value), key: &str) -> Reply {
    let request = daemon.request(method, path, key);
    let request = if body.is_null() { request } else { request.json(body) };
    Reply::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn each_endpoint_refuses_each_other_role() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    let mut keys = BTreeMap::from([("agent", daemon.agent.clone()), ("admin", daemon.admin.clone())]);
    for role in ["approver", "auditor", "operator", "breakglass"] {
        keys.insert(role, daemon.new_key(&format!("a-{role}"), role).await);
    }
    let said = words();
    let said = said.iter().map(|(path, allowed)| ("POST", path.as_str(), json!({"reason": "x"}), *allowed));
    for (method, path, body, allowed) in endpoints().into_iter().chain(said) {
        ask(&daemon, (method, path, &body), "").await.problem(401, "key.invalid");
        for (role, key) in &keys {
            let reply = ask(&daemon, (method, path, &body), key).await;
            if allowed.contains(role) {
                assert!(![401, 403].contains(&reply.status.as_u16()), "{method} {path} as {role}: {}", reply.text);
                assert!(reply.status.as_u16() < 500, "{method} {path} as {role}: {}", reply.text);
            } else {
                reply.problem(403, "role.missing");
            }
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn another_agents_run_does_not_exist() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    daemon.post(&steps, &daemon.agent, &create("1")).await.json(200);
    let other = daemon.new_key("bot-2", "agent").await;
    let absent = daemon.get("/v1/runs/absent", &other).await.problem(404, "run.not_found");
    let hidden = daemon.get("/v1/runs/r", &other).await.problem(404, "run.not_found");
    let text = |problem: &Value| problem["detail"].as_str().unwrap().replace("absent", "r");
    assert_eq!(text(&absent), text(&hidden), "the two can't be told apart");
    daemon.post(&steps, &other, &read()).await.problem(404, "run.not_found");
    let done = json!({"status": "succeeded"});
    daemon.post(&format!("{steps}/1/complete"), &other, &done).await.problem(404, "run.not_found");
    daemon.post("/v1/runs/r/seal", &other, &json!({})).await.problem(404, "run.not_found");
    // A second key of the same actor is the same owner.
    let same = daemon.new_key("bot-1", "agent").await;
    daemon.get("/v1/runs/r", &same).await.json(200);
    daemon.stop().await;
}

#[tokio::test]
async fn softer_modes_need_a_key_that_may() {
    let daemon = Daemon::start().await;
    let body = json!({"permissions": [], "mode": "observe"});
    daemon.post("/v1/runs", &daemon.agent, &body).await.problem(403, "mode.not_allowed");
    let key = json!({"actor": "bot-3", "roles": ["agent"], "allow_observe": true});
    let key = daemon.post("/v1/keys", &daemon.admin, &key).await.json(201)["key"].as_str().unwrap().to_owned();
    assert_eq!(daemon.post("/v1/runs", &key, &body).await.json(201)["mode"], "observe");
    daemon.stop().await;
}
