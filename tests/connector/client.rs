//! The MCP client behind its port, against the connector as a child process.
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reversi::adapters::upstreams::{UpstreamConfig, Upstreams};
use reversi_actors::ports::{CallOutcome, ToolCall, ToolCaller};
use reversi_proto::canonical::Canonical;
use reversi_proto::ids::ToolName;
use serde_json::{Value, json};

use super::harness::{BINARY, Sandbox, token};

/// Long enough for any machine; nothing waits for it to pass.
const LONG: u64 = 30_000;

fn stdio(command: &str, args: Vec<String>) -> UpstreamConfig {
    let (name, command) = ("files".to_owned(), Some(command.to_owned()));
    UpstreamConfig { name, command, args, env: BTreeMap::new(), url: None, prefix: None }
}

async fn started(configs: Vec<UpstreamConfig>, state: &Path) -> Upstreams {
    let upstreams = Upstreams::start(configs, state).await.unwrap();
    assert!(upstreams.settled(Duration::from_secs(30)).await);
    upstreams
}

async fn serving(sandbox: &Sandbox, more: &[&str], state: &Path) -> Upstreams {
    started(vec![stdio(BINARY, sandbox.args(more))], state).await
}

fn tool(name: &str) -> ToolName {
    name.parse().unwrap()
}

pub(crate) fn call(name: &str, args: &Value, key: Option<&str>, timeout_ms: u64) -> ToolCall {
    let args = Canonical::of(args).unwrap();
    ToolCall { tool: tool(name), args, idempotency_key: key.map(str::to_owned), timeout_ms }
}

pub(crate) fn success(outcome: CallOutcome) -> Value {
    match outcome {
        CallOutcome::Success { result } => result.expect("nothing resolves").value(),
        CallOutcome::KnownFailure { error } => panic!("known failure: {error}"),
        CallOutcome::Unknown { error } => panic!("unknown: {error}"),
    }
}

pub(crate) fn known(outcome: CallOutcome) -> String {
    match outcome {
        CallOutcome::KnownFailure { error } => error,
        CallOutcome::Success { .. } => panic!("success"),
        CallOutcome::Unknown { error } => panic!("unknown: {error}"),
    }
}

pub(crate) fn unknown(outcome: CallOutcome) -> String {
    match outcome {
        CallOutcome::Unknown { error } => error,
        CallOutcome::Success { .. } => panic!("success"),
        CallOutcome::KnownFailure { error } => panic!("known failure: {error}"),
    }
}

/// The child that the client wrote down.
fn child_pid(state: &Path) -> i32 {
    let files = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path());
    let file = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "pid")).expect("no pid file");
    let group: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    i32::try_from(group["pid"].as_i64().unwrap()).unwrap()
}

fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Waits for something that another process does.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} did not happen");
        tokio::task::yield_now().await;
    }
}

/// Calls until the upstream is connected again.
async fn until_called(upstreams: &Upstreams, name: &str, args: &Value, key: &str) -> Value {
    let start = Instant::now();
    loop {
        match upstreams.call(call(name, args, Some(key), LONG)).await {
            CallOutcome::KnownFailure { .. } if start.elapsed() < Duration::from_secs(30) => {
                tokio::task::yield_now().await;
            }
            other => return success(other),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_and_its_undo_through_the_port() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let before = sandbox.hash();
    let upstreams = serving(&sandbox, &[], state.path()).await;
    assert_eq!(upstreams.upstream_of(&tool("fs.restore")).as_deref(), Some("files"));
    assert_eq!(upstreams.upstream_of(&tool("fs.chmod")), None);
    assert_eq!(upstreams.tools().len(), 9);
    assert!(upstreams.earlier_calls_are_over(&tool("fs.restore")));

    let args = json!({ "path": "x", "content": "1" });
    let made = token(&success(upstreams.call(call("fs.write_file", &args, Some("do"), LONG)).await));
    assert_ne!(sandbox.hash(), before);
    let undo = json!({ "undo_token": made });
    let restored = success(upstreams.call(call("fs.restore", &undo, Some("undo:1"), LONG)).await);
    assert_eq!(restored["already"], json!(false));
    let stat = success(upstreams.call(call("fs.stat", &undo, None, LONG)).await);
    assert_eq!(stat["matches_before"], json!(true));
    assert_eq!((sandbox.hash(), sandbox.executed("do"), sandbox.executed("undo:1")), (before, 1, 1));

    let pid = child_pid(state.path());
    upstreams.shutdown().await;
    assert!(!runs(pid));
    assert!(!upstreams.connected()["files"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failure_proves() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let upstreams = serving(&sandbox, &[], state.path()).await;
    let before = sandbox.hash();
    assert!(known(upstreams.call(call("fs.chmod", &json!({}), None, LONG)).await).contains("no upstream serves"));
    let wrong = json!({ "path": "x", "surprise": 1 });
    assert!(known(upstreams.call(call("fs.make_dir", &wrong, None, LONG)).await).contains("-32602"));
    let missing = json!({ "path": "none" });
    assert!(unknown(upstreams.call(call("fs.delete", &missing, None, LONG)).await).contains("nothing at `none`"));
    assert_eq!(sandbox.hash(), before);
    upstreams.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_answer_ends_with_its_child() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let upstreams = serving(&sandbox, &["--hold-after", "fs.make_dir"], state.path()).await;
    let pid = child_pid(state.path());
    let args = json!({ "path": "d" });
    let why = unknown(upstreams.call(call("fs.make_dir", &args, Some("k"), 500)).await);
    assert!(why.contains("500 ms"), "{why}");
    assert!(!runs(pid), "the child still runs after its call is said to be over");
    assert_eq!(sandbox.executed("k"), 1);
    until_called(&upstreams, "fs.make_dir", &args, "k").await;
    assert_eq!(sandbox.executed("k"), 1, "the repeated call executed again");
    assert_ne!(child_pid(state.path()), pid);
    upstreams.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_killed_in_the_middle_of_a_call_leaves_it_unknown() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let upstreams = std::sync::Arc::new(serving(&sandbox, &["--hold-after", "fs.make_dir"], state.path()).await);
    let caller = upstreams.clone();
    let args = json!({ "path": "d" });
    let request = call("fs.make_dir", &args, Some("k"), LONG);
    let running = tokio::spawn(async move { caller.call(request).await });
    until("the call", || sandbox.executed("k") == 1).await;
    kill(child_pid(state.path()));
    unknown(running.await.unwrap());
    until_called(&upstreams, "fs.make_dir", &args, "k").await;
    assert_eq!(sandbox.executed("k"), 1);
    upstreams.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_child_is_replaced() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let upstreams = serving(&sandbox, &[], state.path()).await;
    for key in ["a", "b"] {
        kill(child_pid(state.path()));
        until("the end of the connection", || !upstreams.connected()["files"]).await;
        assert_eq!(upstreams.upstream_of(&tool("fs.make_dir")).as_deref(), Some("files"), "still its tool");
        until_called(&upstreams, "fs.make_dir", &json!({ "path": key }), key).await;
        assert_eq!(sandbox.executed(key), 1);
    }
    upstreams.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_started_has_called_nothing() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    // A first daemon learns which tools there are; in the second one's time the program is gone.
    serving(&sandbox, &[], state.path()).await.shutdown().await;
    let upstreams = started(vec![stdio("/no/such/program", Vec::new())], state.path()).await;
    assert_eq!(upstreams.upstream_of(&tool("fs.make_dir")).as_deref(), Some("files"));
    let why = known(upstreams.call(call("fs.make_dir", &json!({ "path": "d" }), None, LONG)).await);
    assert!(why.contains("/no/such/program"), "{why}");
    upstreams.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_none_is_a_known_failure_and_leaves_no_process() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    serving(&sandbox, &[], state.path()).await.shutdown().await;
    let script = "echo hello; exit 3".to_owned();
    let upstreams = started(vec![stdio("/bin/sh", vec!["-c".to_owned(), script])], state.path()).await;
    known(upstreams.call(call("fs.make_dir", &json!({ "path": "d" }), None, LONG)).await);
    upstreams.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_names_the_tools_of_a_server() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    let config = UpstreamConfig { prefix: Some("disk.".to_owned()), ..stdio(BINARY, sandbox.args(&[])) };
    let upstreams = started(vec![config], state.path()).await;
    assert_eq!(upstreams.upstream_of(&tool("fs.make_dir")), None);
    success(upstreams.call(call("disk.fs.make_dir", &json!({ "path": "d" }), None, LONG)).await);
    assert!(sandbox.root().join("d").is_dir());
    upstreams.shutdown().await;
}

/// Not a test of its own: the daemon that `a_leftover_child_is_ended_first` kills.
#[tokio::test(flavor = "multi_thread")]
async fn daemon_to_be_killed() {
    let Ok(config) = std::env::var("REVERSI_TEST_UPSTREAM") else { return };
    let state = std::env::var("REVERSI_TEST_STATE").unwrap();
    let upstreams = started(vec![serde_json::from_str(&config).unwrap()], Path::new(&state)).await;
    upstreams.call(call("fs.make_dir", &json!({ "path": "d" }), Some("k"), 3_600_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leftover_child_is_ended_first() {
    let (sandbox, state) = (Sandbox::new(), tempfile::tempdir().unwrap());
    // A server that goes on when its input is closed, with a descendant that does the work.
    let args = sandbox.args(&["--hold-after", "fs.make_dir"]).join(" ");
    let config = stdio("/bin/sh", vec!["-c".to_owned(), format!("{BINARY} {args}; sleep 1000 & wait")]);
    let mut daemon = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "client::daemon_to_be_killed"])
        .env("REVERSI_TEST_UPSTREAM", serde_json::to_string(&config).unwrap())
        .env("REVERSI_TEST_STATE", state.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the call", || sandbox.state().join("calls.jsonl").exists() && sandbox.executed("k") == 1).await;
    let leftover = child_pid(state.path());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(runs(leftover), "the test's server should outlive its daemon");

    let upstreams = Upstreams::start(vec![config], state.path()).await.unwrap();
    assert!(!runs(leftover));
    assert!(upstreams.earlier_calls_are_over(&tool("fs.make_dir")), "known at once, from the last daemon's tool list");
    until_called(&upstreams, "fs.make_dir", &json!({ "path": "d" }), "k").await;
    assert_eq!(sandbox.executed("k"), 1);
    upstreams.shutdown().await;
}
