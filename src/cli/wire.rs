//! The daemon's answers as far as they are shown. Members that a version lacks have their defaults, so that an older or
//! newer daemon can still be read. Must not know how they are shown.
use serde::Deserialize;
use serde_json::{Map, Value};

/// What a reload came to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reloaded {
    pub(super) changed: bool,
    pub(super) count: u64,
    pub(super) seq: Option<u64>,
    pub(super) added: Vec<String>,
    pub(super) removed: Vec<String>,
    pub(super) updated: Vec<String>,
}

/// A page of runs.
#[derive(Debug, Deserialize)]
pub(super) struct RunPage {
    pub(super) items: Vec<RunHead>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

/// A run without its steps.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunHead {
    pub(super) run_id: String,
    pub(super) status: String,
    pub(super) mode: String,
    pub(super) permissions: Vec<String>,
    pub(super) actor: String,
    pub(super) reason: Option<String>,
    pub(super) started_at: String,
    pub(super) step_count: u64,
    pub(super) unresolved: u64,
}

/// A run with its steps.
#[derive(Debug, Deserialize)]
pub(super) struct RunBody {
    #[serde(flatten)]
    pub(super) head: RunHead,
    pub(super) steps: Vec<StepView>,
}

/// One step.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StepView {
    pub(super) step: u32,
    pub(super) tool: String,
    pub(super) status: String,
    pub(super) unresolved: bool,
    pub(super) reason: String,
    pub(super) effect: Option<String>,
    pub(super) missing: Vec<String>,
    pub(super) findings: Vec<Finding>,
    pub(super) approval_id: Option<String>,
    pub(super) approved_by: Vec<Approver>,
    pub(super) disputed: bool,
    pub(super) undo_attempts: u32,
}

/// Whose yes let a call or an undo happen.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Approver {
    pub(super) person: String,
    pub(super) at: String,
    pub(super) on_behalf_of: Option<String>,
    pub(super) break_glass: bool,
}

/// Why a step was blocked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Finding {
    pub(super) code: String,
    pub(super) text: String,
}

/// A dry run.
#[derive(Debug, Deserialize)]
pub(super) struct Plan {
    pub(super) run_id: String,
    pub(super) steps: Vec<PlanStep>,
    pub(super) verdict: String,
}

/// One line of a plan.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlanStep {
    pub(super) step: u32,
    pub(super) tool: String,
    pub(super) action: String,
    pub(super) undo_tool: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) residue: Vec<String>,
    pub(super) requires_approval: bool,
    pub(super) will_be_verified: bool,
    pub(super) reason: Option<String>,
}

/// What a rollback did so far.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) run_id: String,
    #[serde(default)]
    pub(super) rollback_id: Option<String>,
    pub(super) status: String,
    pub(super) complete: bool,
    pub(super) verified: bool,
    /// The lists, by name.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// One line of a report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    pub(super) step: u32,
    pub(super) tool: String,
    pub(super) attempts: u32,
    pub(super) residue: Vec<String>,
    pub(super) reason: String,
    pub(super) verified: Option<bool>,
    pub(super) approval: Option<String>,
    pub(super) approved_by: Vec<Approver>,
}

impl Report {
    /// The entries of one list; none where there is no such list.
    pub(super) fn list(&self, name: &str) -> Vec<Entry> {
        self.rest.get(name).and_then(|list| Vec::deserialize(list).ok()).unwrap_or_default()
    }

    /// Lists that are not in `known`: a newer daemon's.
    pub(super) fn other_lists<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.rest
            .iter()
            .filter(|(_, list)| list.is_array())
            .map(|(name, _)| name.as_str())
            .filter(|n| !known.contains(n))
    }

    /// Something goes on by itself.
    pub(super) fn is_moving(&self) -> bool {
        self.status == "rolling_back" && !self.list("in_progress").is_empty()
    }
}

/// How the daemon is doing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) ledger: String,
    pub(super) head: u64,
    pub(super) lag: u64,
    pub(super) checkpoint: u64,
    pub(super) runs_live: u64,
    pub(super) undos_live: u64,
    pub(super) quarantined: Vec<String>,
    pub(super) tools: std::collections::BTreeMap<String, String>,
    pub(super) manifests: Option<String>,
    pub(super) started_at: String,
    pub(super) disk_low: bool,
    pub(super) sink_errors: u64,
    pub(super) rollbacks_parked: bool,
    pub(super) approvals_open: u64,
    pub(super) halts: Vec<super::wire_people::Halt>,
    pub(super) reviews_owed: u64,
}

/// The one answer that holds a key.
#[derive(Debug, Deserialize)]
pub(super) struct NewKey {
    pub(super) key_id: String,
    pub(super) key: String,
}

/// The answer to a resolution.
#[derive(Debug, Deserialize)]
pub(super) struct Settled {
    pub(super) step: u32,
    pub(super) status: String,
    #[serde(default)]
    pub(super) missing: Vec<String>,
}
