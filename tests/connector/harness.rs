//! A connector process, a client for it that is as simple as can be, and the directories around it.
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use reversi::connector::tree::tree_hash;
use reversi::connector::{CallRecord, Outcome, read_calls};
use reversi_proto::hash::Hash;
use serde_json::{Value, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_reversi");

/// A governed tree with some content, a state directory beside it, and a place outside.
pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
    state: PathBuf,
    _far: Option<tempfile::TempDir>,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::in_dir(tempfile::tempdir().unwrap())
    }

    /// In memory where there is such a place: a kill needs no disk, and every change waits for one.
    #[cfg(feature = "failpoints")]
    pub(crate) fn in_memory() -> Self {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Self::new(), Self::in_dir)
    }

    fn in_dir(dir: tempfile::TempDir) -> Self {
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("docs/deep")).unwrap();
        fs::write(root.join("docs/a.txt"), "alpha").unwrap();
        fs::write(root.join("docs/deep/b.txt"), "beta").unwrap();
        symlink("a.txt", root.join("docs/link")).unwrap();
        fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "s3cret words").unwrap();
        let state = dir.path().join("root.reversi-fs");
        Self { dir, state, _far: None }
    }

    /// The same with the state on another filesystem, where nothing can be renamed to; None if there is no other one.
    pub(crate) fn across_filesystems() -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let near = Self::new();
        let far = tempfile::tempdir_in("/dev/shm").ok()?;
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        if device(far.path()) == device(near.dir.path()) {
            return None;
        }
        Some(Self { state: far.path().join("state"), _far: Some(far), ..near })
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn hash(&self) -> Hash {
        tree_hash(&self.root()).unwrap()
    }

    pub(crate) fn outside_hash(&self) -> Hash {
        tree_hash(&self.outside()).unwrap()
    }

    pub(crate) fn calls(&self) -> Vec<CallRecord> {
        read_calls(&self.state).unwrap()
    }

    /// How often calls with this key were executed.
    pub(crate) fn executed(&self, key: &str) -> usize {
        let executed = |call: &&CallRecord| call.key.as_deref() == Some(key) && call.outcome == Outcome::Executed;
        self.calls().iter().filter(executed).count()
    }

    /// The arguments of a connector for this sandbox.
    pub(crate) fn args(&self, more: &[&str]) -> Vec<String> {
        let (root, state) = (self.root(), self.state().to_owned());
        let paths = ["--root", root.to_str().unwrap(), "--state", state.to_str().unwrap()];
        ["connector", "fs"].iter().chain(&paths).chain(more).map(|arg| (*arg).to_owned()).collect()
    }

    pub(crate) fn connector(&self) -> Connector {
        Connector::start(&self.args(&[]), None)
    }

    pub(crate) fn connector_with(&self, more: &[&str]) -> Connector {
        Connector::start(&self.args(more), None)
    }

    /// A connector that kills itself at the named point.
    #[cfg(feature = "failpoints")]
    pub(crate) fn dying_connector(&self, point: &str) -> Connector {
        Connector::start(&self.args(&[]), Some(point))
    }
}

pub(crate) struct Connector {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    id: u64,
}

impl Connector {
    pub(crate) fn start(args: &[String], kill_at: Option<&str>) -> Self {
        let mut command = Command::new(BINARY);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .env_remove("REVERSI_FS_KILL_AT");
        if let Some(point) = kill_at {
            command.env("REVERSI_FS_KILL_AT", point);
        }
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, id: 0 }
    }

    /// Sends a request; false when the process is gone.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> bool {
        self.id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params });
        self.send_line(&request.to_string())
    }

    pub(crate) fn send_line(&mut self, line: &str) -> bool {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).is_ok()
    }

    /// The next answer; None when the process has ended.
    pub(crate) fn receive(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    pub(crate) fn send_call(&mut self, tool: &str, args: &Value, key: Option<&str>) -> bool {
        let mut params = json!({ "name": tool, "arguments": args });
        if let Some(key) = key {
            params["_meta"] = json!({ "reversi/idempotency-key": key });
        }
        self.send("tools/call", &params)
    }

    /// A whole call; None when the process died of it.
    pub(crate) fn try_call(&mut self, tool: &str, args: &Value, key: Option<&str>) -> Option<Value> {
        self.send_call(tool, args, key).then(|| self.receive()).flatten()
    }

    /// The result of a call that must succeed.
    pub(crate) fn ok(&mut self, tool: &str, args: &Value, key: Option<&str>) -> Value {
        let answer = self.try_call(tool, args, key).expect("the connector ended");
        assert_eq!(answer["result"]["isError"], json!(false), "{tool} {args}: {answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        let structured = answer["result"]["structuredContent"].clone();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), structured);
        structured
    }

    /// The sentence of a call that must be refused with a tool error.
    pub(crate) fn refused(&mut self, tool: &str, args: &Value, key: Option<&str>) -> String {
        let answer = self.try_call(tool, args, key).expect("the connector ended");
        assert_eq!(answer["result"]["isError"], json!(true), "{tool} {args}: {answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The code of a call that must be refused as a wrong call.
    pub(crate) fn error_code(&mut self, tool: &str, args: &Value) -> i64 {
        let answer = self.try_call(tool, args, None).expect("the connector ended");
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{tool} {args}: {answer}"))
    }

    pub(crate) fn restore(&mut self, token: &str, key: Option<&str>) -> Value {
        self.ok("fs.restore", &json!({ "undo_token": token }), key)
    }

    pub(crate) fn matches_before(&mut self, token: &str) -> bool {
        self.ok("fs.stat", &json!({ "undo_token": token }), None)["matches_before"].as_bool().unwrap()
    }

    /// Closes its input and waits for its end; true if it ended well.
    pub(crate) fn close(&mut self) -> bool {
        self.input = None;
        self.child.wait().unwrap().success()
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn token(answer: &Value) -> String {
    answer["undo_token"].as_str().expect("no undo token").to_owned()
}

/// One change of each kind that the sandbox's tree allows.
pub(crate) fn changes() -> Vec<(&'static str, Value)> {
    vec![
        ("fs.write_file", json!({ "path": "docs/new.txt", "content": "new" })),
        ("fs.write_file", json!({ "path": "docs/a.txt", "content": "other" })),
        ("fs.write_file", json!({ "path": "run.sh", "content": "#!/bin/sh\n", "executable": false })),
        ("fs.write_file", json!({ "path": "bin", "content": "AAH/", "encoding": "base64", "executable": true })),
        ("fs.append_file", json!({ "path": "docs/deep/b.txt", "content": " gamma" })),
        ("fs.append_file", json!({ "path": "log", "content": "first" })),
        ("fs.move", json!({ "from": "docs/a.txt", "to": "docs/deep/c.txt" })),
        ("fs.move", json!({ "from": "docs", "to": "papers" })),
        ("fs.make_dir", json!({ "path": "docs/empty" })),
        ("fs.delete", json!({ "path": "run.sh" })),
        ("fs.delete", json!({ "path": "docs/link" })),
        ("fs.delete", json!({ "path": "docs", "recursive": true })),
    ]
}
