//! What a rollback would do and what it did, for people and scripts. Must not know HTTP.
use serde::Serialize;

use super::rollback::{Disposition, Turn};
use super::{Run, RunStatus, Step, StepStatus};
use crate::approval::{Approval, Approver};
use crate::config::Archive;
use crate::event::v1::Finding;
use crate::ids::{ApprovalId, RollbackId, RunId, StepNo, ToolName};
use crate::manifest::{CompensationKind, Effect};
use crate::time::Timestamp;
use crate::undo::{Phase, Undo, Verified};

/// A step past its manifest's timeout by this much is shown as unresolved, in milliseconds.
const GRACE_MS: u64 = 60_000;
/// A step without a declared timeout is shown as unresolved after this time, in milliseconds.
const OPEN_MS_DEFAULT: u64 = 600_000;

/// What a rollback would do for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanAction {
    /// Call its inverse.
    Compensate,
    /// Nothing to undo.
    Skip,
    /// No inverse exists.
    NotUndoable,
    /// A value that the inverse needs was never seen.
    Unrecoverable,
    /// Settle it first.
    Unresolved,
}

impl PlanAction {
    /// Every word with its value.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("compensate", Self::Compensate),
        ("skip", Self::Skip),
        ("not_undoable", Self::NotUndoable),
        ("unrecoverable", Self::Unrecoverable),
        ("unresolved", Self::Unresolved),
    ];

    /// The word that stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compensate => "compensate",
            Self::Skip => "skip",
            Self::NotUndoable => "not_undoable",
            Self::Unrecoverable => "unrecoverable",
            Self::Unresolved => "unresolved",
        }
    }
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    /// Number.
    pub step: StepNo,
    /// What was called.
    pub tool: ToolName,
    /// What would be done.
    pub action: PlanAction,
    /// The inverse.
    pub undo_tool: Option<ToolName>,
    /// Amends or exact inverse.
    pub kind: Option<CompensationKind>,
    /// What the undo can't take back.
    pub residue: Vec<String>,
    /// A person must approve the undo.
    pub requires_approval: bool,
    /// The undo will be read back.
    pub will_be_verified: bool,
    /// Why it is skipped, or what is missing.
    pub reason: Option<String>,
}

/// How much of a run can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything, without residue.
    FullyUndoable,
    /// Something stays.
    PartlyUndoable,
    /// Nothing can be undone.
    NotUndoable,
}

/// A dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Which run.
    pub run_id: RunId,
    /// Newest first.
    pub steps: Vec<PlanStep>,
    /// In one word.
    pub verdict: Verdict,
}

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportEntry {
    /// Number.
    pub step: StepNo,
    /// What was called.
    pub tool: ToolName,
    /// Calls of the inverse that were begun.
    pub attempts: u32,
    /// What the undo can't take back.
    pub residue: Vec<String>,
    /// Why it stands in this list.
    pub reason: String,
    /// For compensated steps: the read-back matched; null where none is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// The request for the undo, the one that was used or else the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
    /// Whose yes let the undo happen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approved_by: Vec<Approver>,
}

/// What a rollback did so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Which run.
    pub run_id: RunId,
    /// Which rollback; null before the first.
    pub rollback_id: Option<RollbackId>,
    /// The run's status.
    pub status: &'static str,
    /// Nothing was left undone.
    pub complete: bool,
    /// Every declared read-back matched.
    pub verified: bool,
    /// Undone.
    pub compensated: Vec<ReportEntry>,
    /// On their way: a call, a read-back or a timer is due.
    pub in_progress: Vec<ReportEntry>,
    /// Known not to be undone.
    pub failed: Vec<ReportEntry>,
    /// Held back by something above them.
    pub deferred: Vec<ReportEntry>,
    /// Held back by a person's decision.
    pub awaiting_approval: Vec<ReportEntry>,
    /// No inverse exists.
    pub not_undoable: Vec<ReportEntry>,
    /// A value that the inverse needs was never seen.
    pub unrecoverable: Vec<ReportEntry>,
    /// Nobody knows whether the step happened.
    pub unresolved: Vec<ReportEntry>,
    /// Nobody knows whether the undo happened.
    pub undo_uncertain: Vec<ReportEntry>,
    /// The world changed since.
    pub conflict: Vec<ReportEntry>,
    /// A late outcome contradicts a resolution.
    pub disputed: Vec<ReportEntry>,
    /// Given up by an operator.
    pub abandoned: Vec<ReportEntry>,
    /// Nothing to undo.
    pub skipped: Vec<ReportEntry>,
}

/// A step as shown to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepView {
    /// Number.
    pub step: StepNo,
    /// What was called.
    pub tool: ToolName,
    /// Its status, its undo included.
    pub status: &'static str,
    /// In flight for too long, or begun before this boot.
    pub unresolved: bool,
    /// The agent's words.
    pub reason: String,
    /// When it began.
    pub begun_at: Timestamp,
    /// What the manifest says about it.
    pub effect: Option<Effect>,
    /// Everything that its undo needs was found.
    pub recoverable: bool,
    /// What was not.
    pub missing: Vec<String>,
    /// Why it was blocked.
    pub findings: Vec<Finding>,
    /// The request that it opened, or used.
    pub approval_id: Option<ApprovalId>,
    /// Whose yes let it happen; empty where nobody was asked, and while it is blocked.
    pub approved_by: Vec<Approver>,
    /// A late outcome contradicts the resolution.
    pub disputed: bool,
    /// Calls of the inverse that were begun.
    pub undo_attempts: u32,
}

impl Run {
    /// The dry run: what a rollback of everything would do, newest first.
    pub fn plan(&self, archive: &Archive) -> Plan {
        let steps: Vec<PlanStep> = self.steps.iter().rev().map(|step| plan_step(step, archive)).collect();
        let stays = |step: &PlanStep| match step.action {
            PlanAction::Compensate => !step.residue.is_empty(),
            PlanAction::Skip => false,
            PlanAction::NotUndoable | PlanAction::Unrecoverable | PlanAction::Unresolved => true,
        };
        let undoes = steps.iter().any(|step| step.action == PlanAction::Compensate);
        let verdict = match (steps.iter().any(stays), undoes) {
            (false, _) => Verdict::FullyUndoable,
            (true, true) => Verdict::PartlyUndoable,
            (true, false) => Verdict::NotUndoable,
        };
        Plan { run_id: self.id.clone(), steps, verdict }
    }

    /// What was undone, what was not, and why.
    pub fn report(&self, archive: &Archive) -> Report {
        let (complete, verified) = self.verdict();
        let over = matches!(self.status, RunStatus::RolledBack | RunStatus::PartlyRolledBack);
        let mut report = Report {
            run_id: self.id.clone(),
            rollback_id: self.rollback.as_ref().map(|rollback| rollback.id.clone()),
            status: self.status.as_str(),
            complete: over && complete,
            verified: over && verified,
            compensated: Vec::new(),
            in_progress: Vec::new(),
            failed: Vec::new(),
            deferred: Vec::new(),
            awaiting_approval: Vec::new(),
            not_undoable: Vec::new(),
            unrecoverable: Vec::new(),
            unresolved: Vec::new(),
            undo_uncertain: Vec::new(),
            conflict: Vec::new(),
            disputed: Vec::new(),
            abandoned: Vec::new(),
            skipped: Vec::new(),
        };
        for (step, turn) in self.turns() {
            let entry = |reason: &str| self.report_entry(step, reason, archive);
            if step.disputed {
                report.disputed.push(entry("a late outcome contradicts the operator's resolution"));
            }
            match turn {
                Turn::Done => report.compensated.push(entry("undone")),
                Turn::Ready | Turn::Moving => report.in_progress.push(entry("its turn has come")),
                Turn::ToAsk | Turn::AwaitingApproval => {
                    report.awaiting_approval.push(entry("a person must approve this undo"));
                }
                Turn::Deferred => report.deferred.push(entry("a later step must be undone or settled first")),
                Turn::Stuck => match step.undo.as_deref().map(Undo::phase) {
                    None | Some(Phase::Idle) if step.disposition() == Disposition::Compensate => {
                        report.failed.push(entry(self.why_not_approved(step)));
                    }
                    Some(Phase::Uncertain) => {
                        report
                            .undo_uncertain
                            .push(entry("nobody knows whether the undo happened: check, then resolve"));
                    }
                    Some(Phase::Failed) => report.failed.push(entry("the undo failed")),
                    _ => report.unresolved.push(entry("nobody knows whether the step happened: check, then resolve")),
                },
                Turn::NotSelected => report.skipped.push(entry(match step.disposition() {
                    Disposition::Skip(why) => why,
                    Disposition::NotUndoable
                    | Disposition::Unrecoverable
                    | Disposition::Compensate
                    | Disposition::Unresolved => "not selected",
                })),
                Turn::Nothing => match step.disposition() {
                    Disposition::Skip(why) => report.skipped.push(entry(why)),
                    Disposition::NotUndoable => report.not_undoable.push(entry("no inverse is declared")),
                    Disposition::Unrecoverable => {
                        report.unrecoverable.push(entry("a value that the undo needs is missing"));
                    }
                    // These two always have a turn.
                    Disposition::Compensate | Disposition::Unresolved => {}
                },
            }
        }
        report
    }

    /// Its steps as shown to people; `boot` is when this daemon came up.
    pub fn step_views(&self, now: Timestamp, boot: Timestamp) -> Vec<StepView> {
        self.steps.iter().map(|step| self.step_view(step, now, boot)).collect()
    }

    fn step_view(&self, step: &Step, now: Timestamp, boot: Timestamp) -> StepView {
        let open_ms = step.timeout_ms.map_or(OPEN_MS_DEFAULT, |ms| ms.saturating_add(GRACE_MS));
        let overdue = now > step.begun_at.plus_ms(open_ms) || step.begun_at < boot;
        StepView {
            step: step.no,
            tool: step.tool.clone(),
            status: step.word(),
            unresolved: step.status == StepStatus::Uncertain || step.status == StepStatus::InFlight && overdue,
            reason: step.reason.clone(),
            begun_at: step.begun_at,
            effect: step.effect,
            recoverable: step.recoverable(),
            missing: step.missing.clone(),
            findings: step.findings.clone(),
            approval_id: step.approval.clone(),
            approved_by: self.approvers(step.approval.as_ref().filter(|_| step.status != StepStatus::Blocked)),
            disputed: step.disputed,
            undo_attempts: step.undo.as_deref().map_or(0, Undo::attempts),
        }
    }

    fn report_entry(&self, step: &Step, reason: &str, archive: &Archive) -> ReportEntry {
        let undo = step.undo.as_deref();
        let used = undo.and_then(Undo::approval);
        let mismatch = undo.and_then(Undo::first_mismatch);
        ReportEntry {
            step: step.no,
            tool: step.tool.clone(),
            attempts: undo.map_or(0, Undo::attempts),
            residue: residue(step, archive),
            reason: mismatch.map_or(reason.to_owned(), |path| format!("{reason}; read-back differed first at {path}")),
            verified: match undo.map(Undo::phase) {
                Some(Phase::Compensated(verified))
                    if step.undo_pin.as_ref().is_some_and(|pin| pin.verify.is_some()) =>
                {
                    Some(*verified == Verified::Matched)
                }
                _ => None,
            },
            approval: used.or_else(|| self.undo_approvals.get(&step.no)).cloned(),
            approved_by: self.approvers(used),
        }
    }

    /// Whose yes stands behind an approval that was used.
    fn approvers(&self, used: Option<&ApprovalId>) -> Vec<Approver> {
        used.and_then(|id| self.approval(id)).map(Approval::approvers).unwrap_or_default()
    }
}

fn plan_step(step: &Step, archive: &Archive) -> PlanStep {
    let (action, reason) = match step.disposition() {
        Disposition::Skip(why) => (PlanAction::Skip, Some(why.to_owned())),
        Disposition::NotUndoable => (PlanAction::NotUndoable, None),
        Disposition::Unrecoverable => (PlanAction::Unrecoverable, Some(format!("missing {}", step.missing.join(", ")))),
        Disposition::Unresolved => (PlanAction::Unresolved, Some(format!("{}: settle it first", step.word()))),
        Disposition::Compensate => match step.undo.as_deref().map(Undo::phase) {
            Some(Phase::Compensated(_)) => (PlanAction::Skip, Some("already compensated".to_owned())),
            Some(Phase::Uncertain) => (PlanAction::Unresolved, Some("undo_uncertain: settle it first".to_owned())),
            Some(Phase::Failed) if !step.undo.as_deref().is_some_and(Undo::may_be_retried) => {
                let why = "compensation_failed: the inverse may have happened, so it is not called again";
                (PlanAction::Unresolved, Some(why.to_owned()))
            }
            Some(
                Phase::Idle | Phase::Calling { .. } | Phase::Waiting { .. } | Phase::Reading { .. } | Phase::Failed,
            )
            | None => (PlanAction::Compensate, None),
        },
    };
    let pin = step.undo_pin.as_ref();
    PlanStep {
        step: step.no,
        tool: step.tool.clone(),
        action,
        undo_tool: pin.map(|pin| pin.tool.clone()),
        kind: pin.map(|pin| pin.kind),
        residue: residue(step, archive),
        requires_approval: pin.is_some_and(|pin| pin.approval),
        will_be_verified: pin.is_some_and(|pin| pin.verify.is_some()),
        reason,
    }
}

fn residue(step: &Step, archive: &Archive) -> Vec<String> {
    let manifest = archive.get(step.config, &step.tool);
    let residue = manifest.and_then(|manifest| Some(manifest.compensation.as_ref()?.residue.clone()));
    residue.unwrap_or_default()
}
