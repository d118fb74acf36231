//! What edges hand to the Service and get from it. Plain values; must not know any protocol.
use std::collections::BTreeMap;

use reversi_proto::event::v1::{Executor, Mode, Outcome, Role};
use reversi_proto::halt::HaltInForce;
use reversi_proto::ids::{ActorId, ApprovalId, RunId, Seq, StepNo, ToolName};
use reversi_proto::run::StepView;
use reversi_proto::time::Timestamp;
use serde::Serialize;

/// A retried request's headers and body, as they came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retry<'a> {
    /// `Idempotency-Key`: names the logical request.
    pub key: Option<&'a str>,
    /// `Reversi-Attempt`: names the execution that asks.
    pub attempt: Option<&'a str>,
    /// The request's body.
    pub body: &'a str,
}

/// A new run.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Chosen by the caller, or minted.
    pub run_id: Option<RunId>,
    /// Scope.
    pub permissions: Vec<String>,
    /// How violations are treated.
    pub mode: Mode,
    /// Public by contract.
    pub reason: Option<String>,
}

/// A call that an agent wants to make.
#[derive(Debug, Clone)]
pub struct NewStep {
    /// Which tool.
    pub tool: ToolName,
    /// Public by contract.
    pub reason: String,
    /// The full arguments, as JSON text.
    pub args: String,
    /// The request that was granted.
    pub approval_id: Option<ApprovalId>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub struct StepOutcome {
    /// How.
    pub status: Outcome,
    /// What the tool returned, as JSON text.
    pub result: Option<String>,
    /// Sealed.
    pub error: Option<String>,
    /// The result is too large: only these values, by reference.
    pub result_values: Option<BTreeMap<String, String>>,
}

/// A run's head line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    /// Its id.
    pub run_id: RunId,
    /// Its status.
    pub status: &'static str,
    /// How violations are treated.
    pub mode: Mode,
    /// Its scope.
    pub permissions: Vec<String>,
    /// Who started it.
    pub actor: ActorId,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub started_at: Timestamp,
    /// How many steps.
    pub steps: usize,
    /// Steps whose outcome nobody knows.
    pub unresolved: usize,
}

/// A run with its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunState {
    /// Its head line.
    pub summary: RunSummary,
    /// Oldest first.
    pub step_views: Vec<StepView>,
}

/// How the daemon is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The ledger's id.
    pub ledger: String,
    /// Durable records.
    pub head: Seq,
    /// Records that the event store lacks.
    pub lag: u64,
    /// Records that the newest checkpoint covers.
    pub checkpoint: u64,
    /// Live actors of runs.
    pub runs_live: usize,
    /// Live actors of undos.
    pub undos_live: usize,
    /// Entities that failed too often.
    pub quarantined: Vec<String>,
    /// Tools with their upstreams.
    pub tools: BTreeMap<ToolName, String>,
    /// Checksum of the manifests in force.
    pub manifests: Option<String>,
    /// When this daemon came up.
    pub started_at: Timestamp,
    /// The disk is nearly full: new work is refused.
    pub disk_low: bool,
    /// Checkpoints that could not be written outside.
    pub sink_errors: u64,
    /// The ledger is a restored copy: no rollback goes on.
    pub rollbacks_parked: bool,
    /// Approvals that are pending, or granted and not used.
    pub approvals_open: usize,
    /// What may not begin.
    pub halts: Vec<HaltInForce>,
    /// Reviews that are owed because a glass was broken.
    pub reviews_owed: usize,
}

/// A key to make.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// For whom.
    pub actor: ActorId,
    /// What it may do.
    pub roles: Vec<Role>,
    /// The person behind it.
    pub person: Option<String>,
    /// Groups of the person.
    pub groups: Vec<String>,
    /// May start runs in observe or advise mode.
    pub allow_observe: bool,
    /// Not valid from then on.
    pub expires_at: Option<Timestamp>,
}

/// What waits for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeopleFigures {
    /// Approvals that are pending, or granted and not used.
    pub approvals_open: u64,
    /// Scopes that are halted.
    pub halts: u64,
    /// Reviews that are owed after an emergency.
    pub reviews_owed: u64,
    /// Those of them that are overdue.
    pub reviews_overdue: u64,
}

/// A delegation to make.
#[derive(Debug, Clone)]
pub struct NewDelegation {
    /// Who lends; the asker if it is left out.
    pub from: Option<String>,
    /// Who may vote in their place.
    pub to: String,
    /// Which roles or groups are lent.
    pub roles: Vec<String>,
    /// From then on; from now on if it is left out.
    pub start: Option<Timestamp>,
    /// Until then.
    pub end: Timestamp,
}

/// A rollback to start.
#[derive(Debug, Clone, Default)]
pub struct NewRollback {
    /// Who runs the inverses.
    pub executor: Executor,
    /// Only these steps.
    pub steps: Option<Vec<StepNo>>,
    /// Only steps from this number on.
    pub to_step: Option<StepNo>,
}
