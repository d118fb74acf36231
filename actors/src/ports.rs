//! What the actors need from the outside world, as traits. Knows no protocol and no transport; implementations live
//! in the binary's `adapters`.
use std::collections::BTreeMap;

use async_trait::async_trait;
use reversi_proto::canonical::Canonical;
use reversi_proto::ids::{ApprovalId, RunId, StepNo, StreamId, ToolName};

/// What a tool call must carry.
pub struct ToolCall {
    /// The tool, by the name that manifests use.
    pub tool: ToolName,
    /// Its arguments, an object.
    pub args: Canonical,
    /// Stable over attempts and restarts, so that a tool can recognise a repeated call.
    pub idempotency_key: Option<String>,
    /// How long to wait for the answer.
    pub timeout_ms: u64,
}

/// What is known after it.
pub enum CallOutcome {
    /// The tool answered with success.
    Success {
        /// The canonical JSON value that `$result` and `expect` paths see (domain.md); None when nothing resolves.
        result: Option<Canonical>,
    },
    /// Provably not executed: connection refused, spawn failed, JSON-RPC -32601/-32602, HTTP 401/403/404/405/429.
    KnownFailure {
        /// What the tool or the system said. May hold argument values: never log it.
        error: String,
    },
    /// Anything else: it may have happened.
    Unknown {
        /// What the tool or the system said. May hold argument values: never log it.
        error: String,
    },
}

/// Calls tools, through whatever serves them.
#[async_trait]
pub trait ToolCaller: Send + Sync + 'static {
    /// Name of the upstream that serves this tool, if one does.
    fn upstream_of(&self, tool: &ToolName) -> Option<String>;
    /// Every served tool with its upstream.
    fn tools(&self) -> BTreeMap<ToolName, String>;
    /// Calls it; never returns before the call is over or its timeout has passed.
    async fn call(&self, call: ToolCall) -> CallOutcome;
    /// True when a call begun by an earlier incarnation of the daemon can't be running any more (its child process is
    /// dead).
    fn earlier_calls_are_over(&self, tool: &ToolName) -> bool;
    /// Stops child processes.
    async fn shutdown(&self);
}

/// No upstreams: whatever needs one is a known failure.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTools;

#[async_trait]
impl ToolCaller for NoTools {
    fn upstream_of(&self, _: &ToolName) -> Option<String> {
        None
    }
    fn tools(&self) -> BTreeMap<ToolName, String> {
        BTreeMap::new()
    }
    async fn call(&self, call: ToolCall) -> CallOutcome {
        CallOutcome::KnownFailure { error: format!("no upstream serves the tool {}", call.tool) }
    }
    fn earlier_calls_are_over(&self, _: &ToolName) -> bool {
        true
    }
    async fn shutdown(&self) {}
}

/// Something that a person should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A call waits for a person's approval.
    ApprovalRequested {
        /// Whose call.
        run: RunId,
        /// The request.
        approval: ApprovalId,
    },
    /// Nobody answered it, so more people may.
    ApprovalEscalated {
        /// Whose call.
        run: RunId,
        /// The request.
        approval: ApprovalId,
        /// How many levels it has climbed.
        level: u32,
    },
    /// One person granted it in an emergency; another owes a review.
    GlassBroken {
        /// Whose call.
        run: RunId,
        /// The grant.
        approval: ApprovalId,
    },
    /// That review was not done in time.
    ReviewOverdue {
        /// Whose call.
        run: RunId,
        /// The grant.
        approval: ApprovalId,
    },
    /// A rollback has done what can be done without a person.
    RollbackFinished {
        /// Which run.
        run: RunId,
        /// Nothing was left undone.
        complete: bool,
    },
    /// Nobody knows whether an undo happened.
    UndoUncertain {
        /// Which run.
        run: RunId,
        /// Which step.
        step: StepNo,
    },
    /// An entity failed too often and is left alone.
    Quarantined {
        /// Which.
        entity: StreamId,
    },
}

/// Tells people. Told once the event is durable, by the process that appended it: a crash in between loses the notice
/// but not the event, which every list shows.
pub trait Notifier: Send + Sync + 'static {
    /// Must not block.
    fn notify(&self, notice: Notice);
}
