//! An agent as it should be: it asks before it calls a tool and tells afterwards how the call ended.
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use reversi_actors::ports::{CallOutcome, ToolCall, ToolCaller as _};
use reversi_proto::canonical::Canonical;
use serde_json::{Value, json};

use super::api::Api;
use crate::adapters::upstreams::{UpstreamConfig, Upstreams};

/// An agent with its own connections to tool servers.
pub struct Agent {
    api: Api,
    tools: Upstreams,
    run: String,
}

/// What came of a call.
#[derive(Debug, Clone)]
pub struct Called {
    /// Number of the step.
    pub step: u64,
    /// What the tool returned; null where it was blocked.
    pub result: Value,
    /// The decision, as the daemon gave it.
    pub decision: Value,
}

impl Agent {
    /// Starts a run. `upstreams` are configurations as the daemon's; `state` is an empty folder of the agent's own.
    pub async fn start(api: Api, upstreams: Vec<Value>, state: &Path, permissions: &[&str]) -> anyhow::Result<Self> {
        std::fs::create_dir_all(state)?;
        let configs: Vec<UpstreamConfig> = serde_json::from_value(Value::Array(upstreams))?;
        let tools = Upstreams::start(configs, state).await?;
        tools.settled(Duration::from_secs(30)).await;
        let body = json!({ "permissions": permissions, "reason": "an agent's session" });
        let run = api.must("/v1/runs", &body).await?;
        let run = run["run_id"].as_str().context("the answer holds no run_id")?.to_owned();
        Ok(Self { api, tools, run })
    }

    /// The run's id.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Asks, and says what was decided.
    pub async fn begin(&self, tool: &str, args: &Value) -> anyhow::Result<Value> {
        let body = json!({ "tool": tool, "reason": "the user asked for it", "args": args });
        self.api.must(&format!("/v1/runs/{}/steps", self.run), &body).await
    }

    /// Calls the tool itself.
    pub async fn execute(&self, tool: &str, args: &Value) -> anyhow::Result<Value> {
        let call =
            ToolCall { tool: tool.parse()?, args: Canonical::of(args)?, idempotency_key: None, timeout_ms: 30_000 };
        match self.tools.call(call).await {
            CallOutcome::Success { result } => Ok(result.map_or(Value::Null, |result| result.value())),
            CallOutcome::KnownFailure { error } | CallOutcome::Unknown { error } => bail!("{tool}: {error}"),
        }
    }

    /// Tells how it ended.
    pub async fn succeeded(&self, step: u64, result: &Value) -> anyhow::Result<Value> {
        let body = json!({ "status": "succeeded", "result": result });
        self.api.must(&format!("/v1/runs/{}/steps/{step}/complete", self.run), &body).await
    }

    /// A whole governed call: ask, call, tell. A blocked call is not made.
    pub async fn call(&self, tool: &str, args: Value) -> anyhow::Result<Called> {
        let called = self.call_and_fall_silent(tool, args).await?;
        if called.decision["decision"] == "allow" {
            self.succeeded(called.step, &called.result).await?;
        }
        Ok(called)
    }

    /// The same, but the agent never tells how it ended.
    pub async fn call_and_fall_silent(&self, tool: &str, args: Value) -> anyhow::Result<Called> {
        let decision = self.begin(tool, &args).await?;
        let step = decision["step"].as_u64().context("the decision holds no step")?;
        let result = match decision["decision"].as_str() {
            Some("allow") => self.execute(tool, &args).await?,
            _ => Value::Null,
        };
        Ok(Called { step, result, decision })
    }

    /// Ends the agent's tool servers.
    pub async fn leave(&self) {
        self.tools.shutdown().await;
    }
}
