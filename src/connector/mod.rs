//! Reversi's own connector: an MCP server over stdio that changes files below one root and can take every change
//! back. A program of its own that happens to share the binary: it must not know the daemon.
mod engine;
mod error;
mod failpoint;
mod reads;
mod root;
mod rpc;
mod state;
mod tools;
pub mod tree;
mod writes;

use std::path::{Path, PathBuf};

use anyhow::Context;
use reversi_proto::hash::Hash;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use engine::{Call, Done, Engine};
use error::ToolError;
use root::Root;
use state::State;
pub use state::{CallRecord, Outcome, read_calls};
use tools::Request;

/// Serves files below one directory over MCP, with an undo token for every change.
#[derive(Debug, Clone, clap::Args)]
pub struct FsArgs {
    /// The directory whose files the tools see and change. Nothing outside it can be reached.
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// Where undo data and the record of calls are kept, outside the root [default: the root's name with `.reversi-fs`
    /// added, beside it].
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// For tests: execute and record calls of this tool, but never answer them.
    #[arg(long, value_name = "TOOL")]
    pub hold_after: Option<String>,
    /// For tests: also serve a pair of counter tools whose inverse is not idempotent.
    #[arg(long, alias = "non-idempotent")]
    pub test_tools: bool,
}

/// How a file connector runs.
#[derive(Debug, Clone)]
pub struct FsOptions {
    /// The governed directory.
    pub root: PathBuf,
    /// The state directory; beside the root if not given.
    pub state: Option<PathBuf>,
    /// A tool whose executed calls are never answered.
    pub hold_after: Option<String>,
    /// Whether the counter tools are served.
    pub test_tools: bool,
}

impl From<FsArgs> for FsOptions {
    fn from(args: FsArgs) -> Self {
        let FsArgs { root, state, hold_after, test_tools } = args;
        Self { root, state, hold_after, test_tools }
    }
}

/// Serves on stdin and stdout until stdin is closed.
pub fn run(options: FsOptions) -> anyhow::Result<()> {
    let mut server = Server::open(options)?;
    rpc::serve(std::io::stdin().lock(), std::io::stdout().lock(), &mut server)
}

/// The default place of a root's state: beside it, so that it is on the same filesystem and not in the tree.
pub fn default_state_dir(root: &Path) -> anyhow::Result<PathBuf> {
    let mut name = root.file_name().context("this root has no directory beside it; give --state")?.to_owned();
    name.push(".reversi-fs");
    Ok(root.with_file_name(name))
}

struct Server {
    engine: Engine,
    hold_after: Option<String>,
    test_tools: bool,
}

impl Server {
    fn open(options: FsOptions) -> anyhow::Result<Self> {
        let FsOptions { root, state, hold_after, test_tools } = options;
        let root = root.canonicalize().with_context(|| format!("could not find the root {}", root.display()))?;
        let state = state.map_or_else(|| default_state_dir(&root), Ok)?;
        let opened = Root::open(&root).with_context(|| format!("could not open the root {}", root.display()))?;
        let engine = Engine { root: opened, state: State::open(&state, &root)? };
        let lock = engine.state.lock().context("could not lock the state directory")?;
        engine.recover().context("could not recover the change that was under way at the last end")?;
        engine.state.sweep_tokens().context("could not sweep the state directory")?;
        drop(lock);
        Ok(Self { engine, hold_after, test_tools })
    }

    fn execute(&self, call: &Call, request: Request) -> Result<Done, ToolError> {
        let read = |answer: Result<Value, ToolError>| Ok(Done { answer: answer?, outcome: Outcome::Read });
        match request {
            Request::ReadFile { path, offset, max, base64 } => read(self.engine.read_file(&path, offset, max, base64)),
            Request::ListDir { path, max } => read(self.engine.list_dir(&path, max)),
            Request::Stat { path, token } => read(self.engine.stat(path.as_ref(), token.as_deref())),
            Request::Write { path, content } => self.engine.write(call, &path, &content),
            Request::Move { from, to } => self.engine.rename(call, &from, &to),
            Request::MakeDir { path } => self.engine.make_dir(call, &path),
            Request::Delete { path, recursive } => self.engine.delete(call, &path, recursive),
            Request::Restore { token } => self.engine.restore(call, &token),
            Request::Count { name, by } => self.engine.count(call, &name, by),
        }
    }

    /// The remembered answer for a key, if the same call was answered under it.
    fn answered(&self, call: &Call) -> Result<Option<(Done, Option<String>)>, ToolError> {
        let (true, Some(key)) = (call.deduplicates, &call.key) else { return Ok(None) };
        match self.engine.state.answered(key).map_err(ToolError::Fatal)? {
            None => Ok(None),
            Some(known) if known.fingerprint == call.fingerprint => {
                Ok(Some((Done { answer: known.answer, outcome: Outcome::Deduplicated }, known.token)))
            }
            Some(_) => Err(ToolError::Refused(
                "The idempotency key was used for another call; a new call needs a new key. Nothing was changed."
                    .to_owned(),
            )),
        }
    }

    fn record(&self, call: &Call, outcome: Outcome, token: Option<String>) -> Result<(), ToolError> {
        let state = &self.engine.state;
        let record = |n: u64| CallRecord { n: n + 1, tool: call.tool.clone(), key: call.key.clone(), outcome, token };
        state.last_call().and_then(|n| state.append_call(&record(n))).map_err(ToolError::Fatal)
    }
}

impl rpc::Tools for Server {
    fn list(&self) -> Value {
        tools::list(self.test_tools)
    }

    fn call(&mut self, tool: &str, args: Value, key: Option<String>) -> Result<Option<Value>, ToolError> {
        let fingerprint = fingerprint(tool, &args);
        let used = args.get("undo_token").and_then(Value::as_str).map(str::to_owned);
        let request = Request::parse(tool, args, self.test_tools)?;
        let reads = matches!(request, Request::ReadFile { .. } | Request::ListDir { .. } | Request::Stat { .. });
        let deduplicates = !reads && !matches!(request, Request::Count { .. });
        let call = Call { tool: tool.to_owned(), key, fingerprint, deduplicates };
        let lock = self.engine.state.lock().map_err(ToolError::Fatal)?;
        self.engine.recover().map_err(ToolError::Fatal)?;
        let done = match self.answered(&call) {
            Ok(Some((done, token))) => {
                self.record(&call, Outcome::Deduplicated, token)?;
                return Ok(Some(done.answer));
            }
            Ok(None) => self.execute(&call, request),
            Err(e) => Err(e),
        };
        match &done {
            // An executed change is put on record together with its commit.
            Ok(Done { outcome: Outcome::Executed, .. }) | Err(ToolError::Fatal(_)) => {}
            Ok(Done { outcome, .. }) => self.record(&call, *outcome, used)?,
            Err(ToolError::Refused(_) | ToolError::Params(_)) => self.record(&call, Outcome::Refused, used)?,
        }
        drop(lock);
        let done = done?;
        let held = done.outcome == Outcome::Executed && self.hold_after.as_deref() == Some(tool);
        Ok((!held).then_some(done.answer))
    }
}

/// Tells a repeated call from another one under the same key.
fn fingerprint(tool: &str, args: &Value) -> Hash {
    let hash = Sha256::new().chain_update(tool.as_bytes()).chain_update([0]).chain_update(args.to_string().as_bytes());
    Hash(hash.finalize().into())
}
