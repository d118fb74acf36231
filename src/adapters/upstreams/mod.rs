//! MCP servers that the daemon calls, behind the port `ToolCaller`. Translates and supervises; must not know runs,
//! the ledger, or when a call is allowed.
mod config;
mod http;
mod outcome;
mod process;
mod supervisor;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reversi_actors::ports::{CallOutcome, ToolCall, ToolCaller};
use reversi_proto::ids::ToolName;

pub use config::{UpstreamConfig, UpstreamError};
use supervisor::Upstream;

/// Where the idempotency key travels in an MCP request.
const KEY_META: &str = "reversi/idempotency-key";

/// All configured MCP servers, each supervised by a task of its own.
pub struct Upstreams {
    all: Vec<Arc<Upstream>>,
}

impl Upstreams {
    /// Checks the configuration as far as that is possible without connecting.
    pub fn check(configs: &[UpstreamConfig]) -> Result<(), UpstreamError> {
        config::check(configs)
    }

    /// Checks the configuration and starts connecting in the background. `state_dir` must exist; what is kept there
    /// (which processes run, which tools were served last) belongs to this machine and to one daemon.
    pub async fn start(configs: Vec<UpstreamConfig>, state_dir: &Path) -> Result<Self, UpstreamError> {
        Self::check(&configs)?;
        let all: Vec<Arc<Upstream>> =
            configs.into_iter().map(|config| Arc::new(Upstream::new(config, state_dir))).collect();
        end_strangers(&all, state_dir).await;
        for upstream in &all {
            // Before anything is called: a child of a killed daemon may still be executing a call.
            upstream.end_leftover().await;
            upstream.clone().supervise();
        }
        Ok(Self { all })
    }

    /// Waits until every upstream has connected or failed to once; false if that takes longer.
    pub async fn settled(&self, within: Duration) -> bool {
        let all = async {
            for upstream in &self.all {
                upstream.settled().await;
            }
        };
        tokio::time::timeout(within, all).await.is_ok()
    }

    /// Each upstream's name and whether it is connected.
    pub fn connected(&self) -> BTreeMap<String, bool> {
        self.all.iter().map(|upstream| (upstream.name().to_owned(), upstream.is_up())).collect()
    }

    /// The upstream that serves a tool, and the server's own name for it. The first one configured wins.
    fn find(&self, tool: &ToolName) -> Option<(&Arc<Upstream>, String)> {
        self.all.iter().find_map(|upstream| Some((upstream, upstream.serves(tool.as_str())?)))
    }
}

/// Ends children of an upstream that had another name, or a command and not a URL, when an earlier daemon ran: they may
/// still be executing a call of a tool that another upstream serves now.
async fn end_strangers(all: &[Arc<Upstream>], state_dir: &Path) {
    for entry in std::fs::read_dir(state_dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_pid_file = path.extension().is_some_and(|extension| extension == "pid");
        if is_pid_file
            && !all.iter().any(|upstream| upstream.keeps(&path))
            && let Err(error) = process::end_leftover(&path).await
        {
            tracing::warn!(%error, "a child of an upstream that is not configured any more can't be ended");
        }
    }
}

#[async_trait]
impl ToolCaller for Upstreams {
    fn upstream_of(&self, tool: &ToolName) -> Option<String> {
        self.find(tool).map(|(upstream, _)| upstream.name().to_owned())
    }

    fn tools(&self) -> BTreeMap<ToolName, String> {
        let mut tools = BTreeMap::new();
        for upstream in &self.all {
            for tool in upstream.tools() {
                tools.entry(tool).or_insert_with(|| upstream.name().to_owned());
            }
        }
        tools
    }

    async fn call(&self, call: ToolCall) -> CallOutcome {
        let Some((upstream, server_tool)) = self.find(&call.tool) else {
            return outcome::known(&format!("no upstream serves the tool {}", call.tool));
        };
        let upstream = Arc::clone(upstream);
        // A task of its own: a caller that stops waiting must not keep a timed-out child from being killed.
        let task = tokio::spawn(async move { upstream.call(server_tool, call).await });
        task.await.unwrap_or_else(|_| outcome::unknown("the call ended without an outcome"))
    }

    fn earlier_calls_are_over(&self, tool: &ToolName) -> bool {
        self.find(tool).is_some_and(|(upstream, _)| upstream.earlier_calls_are_over())
    }

    async fn shutdown(&self) {
        for upstream in &self.all {
            upstream.stop();
        }
        for upstream in &self.all {
            upstream.stopped().await;
        }
    }
}

/// Waits for a while between two attempts.
#[allow(
    clippy::disallowed_methods,
    reason = "a pause between two looks at another process; no timer of the domain, and nothing depends on its length"
)]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_of_an_upstream_that_was_renamed_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("0123456789abcdef.pid");
        let (mut child, group) = process::spawn("/bin/sleep", &["1000".to_owned()], &BTreeMap::new()).unwrap();
        process::remember(&file, &group).unwrap();
        Upstreams::start(Vec::new(), dir.path()).await.unwrap();
        assert!(!file.exists());
        assert!(!child.wait().await.unwrap().success());
    }
}
