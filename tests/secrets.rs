//! A marked value in every argument, result and error text of a run is found nowhere in clear: not in a public line, an
//! export, a log, a metric, a problem, nor in any file of the data directory.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::fs;
use std::path::Path;

use reversi::demo::agent::Agent;
use reversi::demo::daemon::{Setting, Stage};
use reversi::demo::settled;
use serde_json::json;

const MARK: &str = "xq7marked7qx";

fn files_with_mark(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_with_mark(&path, found);
        } else {
            let bytes = fs::read(&path).unwrap();
            if bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
}

// E7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_value_leaks() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let keyed = include_str!("../manifests/demo/fs.yaml").replace(
        "- tool: fs.write_file\n",
        "- tool: fs.write_file\n  idempotency: { key: \"{{args.path}}\", scope: global }\n",
    );
    let manifests = [("fs.yaml", keyed.as_str()), ("mail.yaml", include_str!("../manifests/demo/mail.yaml"))];
    let stage = Stage::new(&root, Path::new(env!("CARGO_BIN_EXE_reversi")), &manifests).unwrap();
    let setting = Setting { env: vec![("RUST_LOG".to_owned(), "trace".to_owned())], ..Setting::default() };
    let daemon = stage.start(&setting).unwrap();
    let admin = stage.admin(&daemon).unwrap();
    let operator = admin.with_role("olga", "operator").await.unwrap();
    let bot = admin.with_role("bot-1", "agent").await.unwrap();
    let upstream = stage.fs_upstream(&Setting::default());
    let scope = ["fs:read", "fs:write", "mail:send"];
    let agent = Agent::start(bot.clone(), vec![upstream], &root.join("agent"), &scope).await.unwrap();
    let run = agent.run().to_owned();
    let mut shown = String::new();

    let path = format!("{MARK}.txt");
    agent.call("fs.write_file", json!({ "path": path, "content": MARK })).await.unwrap();
    agent.call("fs.read_file", json!({ "path": path })).await.unwrap();
    shown += &agent.begin("mail.send", &json!({ "to": MARK, "text": MARK })).await.unwrap().to_string();
    // A duplicate by the same key, whose rendered form holds the mark.
    shown += &agent.begin("fs.write_file", &json!({ "path": path, "content": "again" })).await.unwrap().to_string();
    // An outcome whose error text holds it, and arguments that have no canonical form.
    let failed = agent.begin("fs.append_file", &json!({ "path": MARK, "content": MARK })).await.unwrap();
    let complete = format!("/v1/runs/{run}/steps/{}/complete", failed["step"]);
    let body = json!({ "status": "failed", "error": format!("could not write {MARK}") });
    shown += &bot.must(&complete, &body).await.unwrap().to_string();
    let body = json!({ "tool": "fs.read_file", "reason": "a test", "args": { "n": 1.0e300, "mark": MARK } });
    let (status, problem) = bot.post(&format!("/v1/runs/{run}/steps"), &body, &[]).await.unwrap();
    assert_eq!(status, 422, "{problem}");
    shown += &problem.to_string();
    agent.leave().await;
    // The undo fails the first time: somebody put another file there, so the upstream answers with an error text.
    fs::write(stage.sandbox().join(&path), format!("changed {MARK}")).unwrap();
    operator.must(&format!("/v1/runs/{run}/rollback"), &json!({})).await.unwrap();
    shown += &settled(&operator, &run).await.unwrap().to_string();

    shown += &operator.text(&format!("/v1/runs/{run}/records")).await.unwrap();
    shown += &operator.text("/v1/ledger/records?from=0").await.unwrap();
    shown += &operator.text(&format!("/v1/runs/{run}")).await.unwrap();
    shown += &operator.text(&format!("/v1/runs/{run}/plan")).await.unwrap();
    shown += &operator.text("/metrics").await.unwrap();
    shown += &operator.text("/v1/status").await.unwrap();
    assert!(shown.contains("step.begun"), "the export is there");
    assert!(!shown.contains(MARK), "{shown}");

    // While the daemon runs, and after it was killed and stopped.
    daemon.kill().unwrap();
    let daemon = stage.start(&setting).unwrap();
    assert!(daemon.stop().unwrap().success());
    let log = fs::read_to_string(stage.log()).unwrap();
    assert!(!log.is_empty(), "there is a log to look at");
    assert!(!log.contains(MARK), "{}", log.lines().find(|line| line.contains(MARK)).unwrap());
    let mut found = Vec::new();
    files_with_mark(&stage.data(), &mut found);
    assert!(found.is_empty(), "in clear in {found:?}");
    let mut control = Vec::new();
    files_with_mark(&root.join("sandbox"), &mut control);
    assert!(!control.is_empty(), "the search finds what is there");
}
