//! An agent and an operator that do not give up: a daemon that dies is started again, and the request is sent again with
//! the same Idempotency-Key and the same attempt.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use reversi::adapters::upstreams::{UpstreamConfig, Upstreams};
use reversi::connector::tree::tree_hash;
use reversi::connector::{Outcome, read_calls};
use reversi::demo::api::Api;
use reversi::demo::daemon::{Daemon, Setting, Stage};
use reversi_actors::ports::{CallOutcome, ToolCall, ToolCaller as _};
use reversi_proto::canonical::Canonical;
use reversi_proto::hash::Hash;
use serde_json::{Value, json};

/// A pair of tools whose inverse may not be called twice.
const COUNTER: &str = r"
- tool: fs.counter_add
  effect: compensable
  permission: fs:write
  compensation:
    tool: fs.counter_sub
    argument_map: { name: $args.name, by: $args.by }
    timeout_ms: 5s
- tool: fs.counter_sub
  effect: compensable
  permission: fs:write
  compensation:
    tool: fs.counter_add
    argument_map: { name: $args.name, by: $args.by }
";

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Everything of one story.
pub(crate) struct Driver {
    pub(crate) stage: Stage,
    plans: Vec<String>,
    starts: usize,
    daemon: Option<Daemon>,
    api: Option<Api>,
    agent_key: Option<String>,
    operator_key: Option<String>,
    agent_tools: Upstreams,
    pub(crate) deaths: usize,
    requests: u64,
    pub(crate) before: Hash,
    /// Reads before the session's own calls, to fill segments.
    pub(crate) reads: usize,
    _dir: tempfile::TempDir,
}

#[derive(Clone, Copy)]
enum Who {
    Agent,
    Operator,
}

impl Driver {
    /// `plans`: what kills the first daemon, the second, and so on; later ones live.
    pub(crate) async fn new(plans: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_reversi"));
        let manifests = [("fs.yaml", include_str!("../../manifests/demo/fs.yaml")), ("counter.yaml", COUNTER)];
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let stage = Stage::new(&root, binary, &manifests).unwrap();
        std::fs::write(stage.sandbox().join("a.txt"), "one\n").unwrap();
        std::fs::write(stage.sandbox().join("b.txt"), "two\n").unwrap();
        std::fs::create_dir(stage.sandbox().join("dir")).unwrap();
        let own = Setting { test_tools: true, ..Setting::default() };
        let upstream: UpstreamConfig = serde_json::from_value(stage.fs_upstream(&own)).unwrap();
        std::fs::create_dir(root.join("agent")).unwrap();
        let agent_tools = Upstreams::start(vec![upstream], &root.join("agent")).await.unwrap();
        assert!(agent_tools.settled(PATIENCE).await);
        // The counter's file is part of the tree.
        let args = Canonical::of(&json!({ "name": "visits", "by": 1 })).unwrap();
        let call =
            ToolCall { tool: "fs.counter_add".parse().unwrap(), args, idempotency_key: None, timeout_ms: 30_000 };
        assert!(matches!(agent_tools.call(call).await, CallOutcome::Success { .. }));
        let before = tree_hash(&stage.sandbox()).unwrap();
        Self {
            stage,
            plans: plans.iter().map(ToString::to_string).collect(),
            starts: 0,
            daemon: None,
            api: None,
            agent_key: None,
            operator_key: None,
            agent_tools,
            deaths: 0,
            requests: 0,
            before,
            reads: 0,
            _dir: dir,
        }
    }

    /// A daemon that answers; those that die at boot are counted and started again.
    pub(crate) async fn up(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            if !daemon.has_ended() {
                return;
            }
            self.deaths += 1;
            self.daemon = None;
        }
        loop {
            let plan = self.plans.get(self.starts).cloned();
            self.starts += 1;
            let kill = plan.into_iter().map(|plan| ("REVERSI_KILL_AT".to_owned(), plan));
            // Small segments, so that they roll within a short story.
            let small = ("REVERSI_SEGMENT_BYTES".to_owned(), "65536".to_owned());
            let setting = Setting { test_tools: true, env: kill.chain([small]).collect(), ..Setting::default() };
            match self.stage.start(&setting) {
                Ok(daemon) => {
                    self.daemon = Some(daemon);
                    break;
                }
                Err(error) => {
                    assert!(self.starts <= self.plans.len(), "{error:#}\n{}", self.log());
                    self.deaths += 1;
                }
            }
        }
        self.keys().await;
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.stage.log()).unwrap_or_default()
    }

    /// The keys of agent and operator, made once; a daemon that dies meanwhile is noticed by the next request.
    async fn keys(&mut self) {
        let daemon = self.daemon.as_ref().unwrap();
        let Ok(admin) = self.stage.admin(daemon) else { return };
        if self.agent_key.is_none() {
            self.agent_key = admin.with_role("bot-1", "agent").await.ok().map(|api| api.key().to_owned());
        }
        if self.operator_key.is_none() {
            self.operator_key = admin.with_role("olga", "operator").await.ok().map(|api| api.key().to_owned());
        }
        self.api = Some(admin);
    }

    /// Sends until it is answered. The Idempotency-Key and the attempt are those of the first try.
    async fn send(&mut self, who: Who, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.requests += 1;
        let (key, since) = (format!("request-{}", self.requests), Instant::now());
        loop {
            self.up().await;
            let url = self.daemon.as_ref().unwrap().url.clone();
            let shown = match who {
                Who::Agent => self.agent_key.clone(),
                Who::Operator => self.operator_key.clone(),
            };
            if let Some(shown) = shown {
                let api = Api::new(&url, &shown).unwrap();
                let headers = [("Idempotency-Key", key.as_str()), ("Reversi-Attempt", key.as_str())];
                let answer = match body {
                    Some(body) => api.post(path, body, &headers).await,
                    None => api.get(path).await,
                };
                match answer {
                    Ok((503, _)) | Err(_) => {}
                    Ok(answer) => return answer,
                }
            }
            assert!(since.elapsed() < PATIENCE, "{path} is never answered\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    async fn post(&mut self, who: Who, path: &str, body: Value) -> Value {
        let (status, answer) = self.send(who, path, Some(&body)).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}\n{}", self.log());
        answer
    }

    /// A session of six calls, each asked, made and told.
    pub(crate) async fn session(&mut self) -> String {
        let permissions = json!({ "permissions": ["fs:read", "fs:write"] });
        let run = self.post(Who::Agent, "/v1/runs", permissions).await;
        self.calls(run["run_id"].as_str().unwrap().to_owned()).await
    }

    /// A further run under a name of its own, with one call.
    pub(crate) async fn short_session(&mut self, name: &str) -> String {
        let run = self.post(Who::Agent, "/v1/runs", json!({ "run_id": name, "permissions": ["fs:read"] })).await;
        let run = run["run_id"].as_str().unwrap().to_owned();
        let body = json!({ "tool": "fs.read_file", "reason": "a test", "args": { "path": "b.txt" } });
        self.post(Who::Agent, &format!("/v1/runs/{run}/steps"), body).await;
        run
    }

    /// Ends the daemon: cleanly, or as a crash would.
    pub(crate) fn end(&mut self, clean: bool) {
        let daemon = self.daemon.take().unwrap();
        if clean {
            assert!(daemon.stop().unwrap().success(), "{}", self.log());
        } else {
            daemon.kill().unwrap();
        }
    }

    /// How the daemon says that it is doing.
    pub(crate) async fn status(&mut self) -> Value {
        self.send(Who::Operator, "/v1/status", None).await.1
    }

    /// Has everything that is durable now signed and written outside the data directory.
    pub(crate) async fn sign_checkpoint(&mut self) {
        let (status, note) = self.send(Who::Operator, "/v1/ledger/checkpoint?fresh=true", None).await;
        assert_eq!(status, 200, "{note}");
    }

    /// The report of a rollback, from a daemon that is started if need be.
    pub(crate) async fn report(&mut self, run: &str) -> Value {
        self.send(Who::Operator, &format!("/v1/runs/{run}/rollback"), None).await.1
    }

    async fn calls(&mut self, run: String) -> String {
        for _ in 0..self.reads {
            let body = json!({ "tool": "fs.read_file", "reason": "a test", "args": { "path": "b.txt" } });
            let begun = self.post(Who::Agent, &format!("/v1/runs/{run}/steps"), body).await;
            let path = format!("/v1/runs/{run}/steps/{}/complete", begun["step"]);
            self.post(Who::Agent, &path, json!({ "status": "succeeded" })).await;
        }
        let calls = [
            ("fs.write_file", json!({ "path": "new.txt", "content": "new\n" })),
            ("fs.write_file", json!({ "path": "a.txt", "content": "changed\n" })),
            ("fs.counter_add", json!({ "name": "visits", "by": 3 })),
            ("fs.move", json!({ "from": "b.txt", "to": "dir/b.txt" })),
            ("fs.append_file", json!({ "path": "dir/b.txt", "content": "three\n" })),
            ("fs.delete", json!({ "path": "a.txt" })),
        ];
        for (tool, args) in calls {
            let body = json!({ "tool": tool, "reason": "a test", "args": args });
            let begun = self.post(Who::Agent, &format!("/v1/runs/{run}/steps"), body).await;
            assert_eq!(begun["decision"], "allow", "{begun}");
            let result = self.execute(tool, &args).await;
            let path = format!("/v1/runs/{run}/steps/{}/complete", begun["step"]);
            self.post(Who::Agent, &path, json!({ "status": "succeeded", "result": result })).await;
        }
        self.post(Who::Agent, &format!("/v1/runs/{run}/seal"), json!({})).await;
        run
    }

    async fn execute(&self, tool: &str, args: &Value) -> Value {
        let (tool, args) = (tool.parse().unwrap(), Canonical::of(args).unwrap());
        let call = ToolCall { tool, args, idempotency_key: None, timeout_ms: 30_000 };
        match self.agent_tools.call(call).await {
            CallOutcome::Success { result } => result.map_or(Value::Null, |result| result.value()),
            CallOutcome::KnownFailure { error } | CallOutcome::Unknown { error } => panic!("{error}"),
        }
    }

    /// Starts a rollback and does not wait for it.
    pub(crate) async fn ask_for_rollback(&mut self, run: &str) {
        self.post(Who::Operator, &format!("/v1/runs/{run}/rollback"), json!({})).await;
    }

    /// Rolls back, settling as an operator who looks at the world, until the report says complete.
    pub(crate) async fn roll_back(&mut self, run: &str) -> Value {
        let path = format!("/v1/runs/{run}/rollback");
        self.post(Who::Operator, &path, json!({})).await;
        let since = Instant::now();
        loop {
            let (_, report) = self.send(Who::Operator, &path, None).await;
            assert!(since.elapsed() < PATIENCE, "never settles: {report}\n{}", self.log());
            if report["status"] == "rolling_back" {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            if report["complete"] == true {
                return report;
            }
            let uncertain = report["undo_uncertain"].as_array().unwrap();
            assert_eq!(uncertain.len(), 1, "{report}\n{}", self.log());
            assert_eq!(uncertain[0]["tool"], "fs.counter_add", "only the inverse that can't be repeated: {report}");
            let happened = self.executions("fs.counter_sub") == 1;
            let status = if happened { "succeeded" } else { "failed" };
            let word = json!({ "target": "undo", "status": status, "note": "looked at the counter" });
            let resolve = format!("/v1/runs/{run}/steps/{}/resolve", uncertain[0]["step"]);
            let _ = self.send(Who::Operator, &resolve, Some(&word)).await;
            if !happened {
                let _ = self.send(Who::Operator, &path, Some(&json!({}))).await;
            }
        }
    }

    /// How often the connector executed a tool, by its own record.
    pub(crate) fn executions(&self, tool: &str) -> usize {
        let calls = read_calls(&self.stage.connector_state().unwrap()).unwrap();
        calls.iter().filter(|call| call.tool == tool && call.outcome == Outcome::Executed).count()
    }

    /// As if nothing had happened: the tree, each inverse, the ledger, the invariants.
    pub(crate) fn assert_nothing_happened(mut self, report: &Value) {
        let log = self.log();
        assert_eq!(tree_hash(&self.stage.sandbox()).unwrap(), self.before, "{report}\n{log}");
        assert_eq!(report["compensated"].as_array().unwrap().len(), 6, "{report}");
        let mut restores: BTreeMap<String, usize> = BTreeMap::new();
        for call in read_calls(&self.stage.connector_state().unwrap()).unwrap() {
            if call.tool == "fs.restore" && call.outcome == Outcome::Executed {
                *restores.entry(call.key.unwrap()).or_default() += 1;
            }
        }
        assert_eq!(restores.len(), 5, "{restores:?}");
        assert!(restores.values().all(|times| *times == 1), "an inverse was executed twice: {restores:?}\n{log}");
        assert_eq!(self.executions("fs.counter_sub"), 1, "an inverse that can't be repeated was called again\n{log}");
        self.end(true);
        let (data, notes) = (self.stage.data(), self.stage.checkpoints());
        let (data, notes) = (data.display().to_string(), notes.display().to_string());
        let verify = ["verify", &data, "--checkpoint", &notes, "--require-checkpoint"];
        for args in [&verify[..], &["doctor", &data]] {
            let (code, out, err) = self.stage.reversi(args).unwrap();
            assert_eq!(code, 0, "{args:?}\n{out}{err}\n{log}");
        }
    }
}
