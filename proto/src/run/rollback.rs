//! The order of a rollback: by step number, newest first, along edges. Must not know how an inverse is called.
use std::collections::{BTreeMap, BTreeSet};

use super::approve_undo::UndoApproval;
use super::{Run, RunAnswer, RunEffect, RunReject, RunStatus, Step, StepStatus};
use crate::aggregate::Decision;
use crate::event::RollbackEvent;
use crate::event::v1::{Executor, RequestKey, RollbackFinished, RollbackStarted};
use crate::ids::{RollbackId, StepNo, ToolName};
use crate::manifest::Effect;
use crate::undo::{NotReady, Phase, Undo, Verified};

/// An operator's wish to undo a run.
#[derive(Debug, Clone)]
pub struct StartRollback {
    /// Minted by the caller.
    pub id: RollbackId,
    /// Who runs the inverses.
    pub executor: Executor,
    /// Only these steps; None: all.
    pub steps: Option<Vec<StepNo>>,
    /// Only steps from this number on.
    pub to_step: Option<StepNo>,
    /// Which upstream serves which undo tool, as the daemon sees it now.
    pub upstreams: BTreeMap<ToolName, String>,
    /// For retries.
    pub request: Option<RequestKey>,
    /// The person behind whoever starts it.
    pub person: Option<String>,
}

/// What a rollback has to do for a step, by the step alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// There is an inverse and everything it needs.
    Compensate,
    /// Nothing to undo.
    Skip(&'static str),
    /// No inverse exists.
    NotUndoable,
    /// A value that the inverse needs was never seen.
    Unrecoverable,
    /// Nobody knows whether it happened: settle it first.
    Unresolved,
}

/// Where a step stands in the rollback that is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing to do, or nothing that can be done.
    Nothing,
    /// The rollback leaves it out, and no rollback before has touched it.
    NotSelected,
    /// Undone.
    Done,
    /// To be attempted now.
    Ready,
    /// A call, a read-back or a timer is on its way.
    Moving,
    /// Ready but for a person's approval, who is to be asked.
    ToAsk,
    /// Ready but for a person's approval, who was asked.
    AwaitingApproval,
    /// Something above it along the edges isn't done.
    Deferred,
    /// Failed, uncertain or unresolved: a person must settle it.
    Stuck,
}

impl Step {
    pub(super) fn disposition(&self) -> Disposition {
        let harmless = match self.effect {
            Some(Effect::ReadOnly) => Some("read_only"),
            Some(Effect::Idempotent) => Some("idempotent"),
            Some(Effect::Reversible | Effect::Compensable | Effect::Irreversible) | None => None,
        };
        match (self.status, harmless) {
            (StepStatus::Blocked, _) => Disposition::Skip("blocked"),
            (StepStatus::Failed, _) => Disposition::Skip("failed"),
            (StepStatus::InFlight | StepStatus::Uncertain | StepStatus::Succeeded, Some(why)) => Disposition::Skip(why),
            (StepStatus::InFlight | StepStatus::Uncertain, None) => Disposition::Unresolved,
            (StepStatus::Succeeded, None) if self.undo_pin.is_none() => Disposition::NotUndoable,
            (StepStatus::Succeeded, None) if !self.recoverable() => Disposition::Unrecoverable,
            (StepStatus::Succeeded, None) => Disposition::Compensate,
        }
    }

    /// Where the undo stands by itself; None where it could be attempted. A selection can't hide what an earlier
    /// rollback left behind.
    fn turn_by_undo(&self, rollback: &RollbackId, selected: bool, held: bool) -> Option<Turn> {
        let undo = self.undo.as_deref()?;
        match undo.phase() {
            Phase::Compensated(_) => Some(Turn::Done),
            // Another attempt needs its turn as the first one did.
            Phase::Waiting { .. } if held => Some(Turn::Deferred),
            Phase::Calling { .. } | Phase::Waiting { .. } | Phase::Reading { .. } => Some(Turn::Moving),
            Phase::Uncertain => Some(Turn::Stuck),
            Phase::Failed if !selected || !undo.may_start(rollback) => Some(Turn::Stuck),
            Phase::Failed | Phase::Idle => None,
        }
    }

    /// Nothing of it is left in the world, as far as anybody knows.
    fn is_undone(&self) -> bool {
        let compensated = matches!(self.undo.as_deref().map(Undo::phase), Some(Phase::Compensated(_)));
        !self.disputed && (compensated || matches!(self.disposition(), Disposition::Skip(_)))
    }
}

impl Run {
    pub(super) fn decide_rollback(&self, start: &StartRollback) -> Result<Decision<RunAnswer>, RunReject> {
        if start.executor == Executor::Worker {
            return Err(RunReject::Invalid(
                "executor \"worker\" is not available in this version; leave executor out to let the daemon undo",
            ));
        }
        match start.request.map(|asked| (asked, self.rollback_requests.get(&asked.key))) {
            Some((asked, Some(known))) if asked == *known => return Ok(Decision::already(RunAnswer::Done)),
            Some((_, Some(_))) => return Err(RunReject::KeyReused),
            Some((_, None)) | None => {}
        }
        match self.status {
            RunStatus::RollingBack => return Err(RunReject::RollbackInProgress { run: self.id.clone() }),
            RunStatus::Active | RunStatus::Sealed | RunStatus::PartlyRolledBack => {}
            RunStatus::RolledBack | RunStatus::Absent => {
                let (run, status) = (self.id.clone(), self.status.as_str());
                return Err(RunReject::NotActive { run, status, what: "further rollback" });
            }
        }
        if let Some(step) = start.steps.iter().flatten().copied().find(|no| self.step(*no).is_none()) {
            return Err(RunReject::NoStep { run: self.id.clone(), step });
        }
        let steps: Option<Vec<StepNo>> = match (&start.steps, start.to_step) {
            (Some(steps), _) => Some(steps.clone()),
            (None, Some(from)) => Some(self.steps.iter().map(|step| step.no).filter(|no| *no >= from).collect()),
            (None, None) => None,
        };
        if steps.as_ref().is_some_and(Vec::is_empty) {
            return Err(RunReject::Invalid("the selection names no step of the run; leave it out to undo all of it"));
        }
        let body = RollbackStarted {
            executor: start.executor,
            person: start.person.clone(),
            request: start.request,
            rollback: start.id.clone(),
            steps,
            upstreams: self.upstreams_in_use(&start.upstreams),
        };
        // No call begins any more, and whoever starts this rollback may be another person than started the last one.
        let mut decision = self.append(vec![RollbackEvent::Started(body, ()).into()], RunAnswer::Done);
        let mut records = self.cancel(|ask| ask.fingerprint.is_some(), "the run is rolled back");
        records.append(&mut decision.records);
        Ok(Decision { records, ..decision })
    }

    fn upstreams_in_use(&self, all: &BTreeMap<ToolName, String>) -> BTreeMap<ToolName, String> {
        let used: BTreeSet<_> = self.steps.iter().filter_map(|step| Some(&step.undo_pin.as_ref()?.tool)).collect();
        all.iter().filter(|(tool, _)| used.contains(tool)).map(|(tool, name)| (tool.clone(), name.clone())).collect()
    }

    /// Every step's turn, newest first. A step that isn't done holds back all earlier steps of its upstream and of the
    /// tools that it required, through steps that have nothing to undo themselves.
    pub(super) fn turns(&self) -> Vec<(&Step, Turn)> {
        let Some(rollback) = &self.rollback else { return Vec::new() };
        let selection: Option<BTreeSet<StepNo>> = rollback.selection.as_ref().map(|s| s.iter().copied().collect());
        let mut held_upstreams: BTreeSet<&str> = BTreeSet::new();
        let mut held_tools: BTreeSet<&ToolName> = BTreeSet::new();
        let mut turns = Vec::with_capacity(self.steps.len());
        for step in self.steps.iter().rev() {
            let upstream = step.undo_pin.as_ref().and_then(|pin| rollback.upstreams.get(&pin.tool));
            let upstream = upstream.map_or("", String::as_str);
            let held = held_tools.contains(&step.tool);
            let selected = selection.as_ref().is_none_or(|selection| selection.contains(&step.no));
            let turn = self.turn(step, selected, held || held_upstreams.contains(upstream));
            let ran = matches!(step.status, StepStatus::Succeeded | StepStatus::InFlight | StepStatus::Uncertain);
            let open = match turn {
                Turn::Nothing | Turn::NotSelected | Turn::Done => false,
                Turn::Ready | Turn::Moving | Turn::ToAsk | Turn::AwaitingApproval | Turn::Deferred | Turn::Stuck => {
                    true
                }
            };
            if open {
                held_upstreams.insert(upstream);
            }
            if ran && (open || held) {
                held_tools.extend(&step.requires);
            }
            turns.push((step, turn));
        }
        turns
    }

    fn turn(&self, step: &Step, selected: bool, held: bool) -> Turn {
        let Some(rollback) = &self.rollback else { return Turn::Nothing };
        if let Some(turn) = step.turn_by_undo(&rollback.id, selected, held) {
            return turn;
        }
        if !selected {
            return Turn::NotSelected;
        }
        match step.disposition() {
            Disposition::Skip(_) | Disposition::NotUndoable | Disposition::Unrecoverable => Turn::Nothing,
            Disposition::Unresolved => Turn::Stuck,
            Disposition::Compensate if held => Turn::Deferred,
            Disposition::Compensate => match self.undo_approval(step) {
                None | Some(UndoApproval::Granted) => Turn::Ready,
                Some(UndoApproval::ToAsk) => Turn::ToAsk,
                Some(UndoApproval::Pending) => Turn::AwaitingApproval,
                Some(UndoApproval::Ended(_)) => Turn::Stuck,
            },
        }
    }

    /// Has this step's turn come? The rollback that may call its inverse now, or why not.
    pub fn turn_of(&self, no: StepNo) -> Result<RollbackId, NotReady> {
        let (Some(rollback), RunStatus::RollingBack) = (&self.rollback, self.status) else {
            return Err(NotReady::NotRollingBack);
        };
        let turn = self.turns().into_iter().find(|(step, _)| step.no == no).map_or(Turn::Nothing, |(_, turn)| turn);
        match turn {
            Turn::Ready | Turn::Moving => Ok(rollback.id.clone()),
            Turn::Deferred => Err(NotReady::Deferred),
            Turn::ToAsk | Turn::AwaitingApproval => Err(NotReady::AwaitingApproval),
            Turn::Nothing | Turn::NotSelected | Turn::Done | Turn::Stuck => Err(NotReady::NotPlanned),
        }
    }

    pub(super) fn rollback_effects(&self) -> Vec<RunEffect> {
        match self.status {
            RunStatus::RollingBack => {
                let turns = self.turns();
                let wanted = |(step, turn): &(&Step, Turn)| match turn {
                    Turn::Ready => Some(RunEffect::DriveUndo(step.no)),
                    Turn::ToAsk => Some(RunEffect::RequestApproval(step.no)),
                    Turn::Nothing
                    | Turn::NotSelected
                    | Turn::Done
                    | Turn::Moving
                    | Turn::AwaitingApproval
                    | Turn::Deferred
                    | Turn::Stuck => None,
                };
                let ready: Vec<_> = turns.iter().filter_map(wanted).collect();
                // What waits for a person ends the rollback for now; the person's word goes on with it.
                // A held undo whose timer runs is put back when it fires: no record of it may come after the end.
                let moves = |step: &Step| step.undo.as_deref().is_some_and(Undo::is_moving);
                let moving = turns.iter().any(|(step, turn)| *turn == Turn::Moving || moves(step));
                if ready.is_empty() && !moving { vec![RunEffect::FinishRollback] } else { ready }
            }
            RunStatus::Sealed | RunStatus::PartlyRolledBack | RunStatus::RolledBack
                if self.sealed_before && !self.sealed && !self.steps.iter().any(Step::is_open) =>
            {
                vec![RunEffect::SealAgain]
            }
            RunStatus::Absent
            | RunStatus::Active
            | RunStatus::Sealed
            | RunStatus::PartlyRolledBack
            | RunStatus::RolledBack => vec![],
        }
    }

    pub(super) fn decide_finish(&self) -> Decision<RunAnswer> {
        let (Some(rollback), true) = (&self.rollback, self.rollback_effects() == [RunEffect::FinishRollback]) else {
            return Decision::already(RunAnswer::Done);
        };
        let (complete, verified) = self.verdict();
        let body = RollbackFinished { complete, rollback: rollback.id.clone(), verified };
        self.append(vec![RollbackEvent::Finished(body, ()).into()], RunAnswer::Done)
    }

    /// (nothing was left undone, every declared read-back matched)
    pub(super) fn verdict(&self) -> (bool, bool) {
        let turns = self.turns();
        let left = turns.iter().any(|(step, turn)| match turn {
            Turn::Nothing => {
                step.disputed || matches!(step.disposition(), Disposition::NotUndoable | Disposition::Unrecoverable)
            }
            Turn::NotSelected | Turn::Done => step.disputed,
            Turn::Ready | Turn::Moving | Turn::ToAsk | Turn::AwaitingApproval | Turn::Deferred | Turn::Stuck => true,
        });
        let unverified = turns.iter().any(|(step, turn)| {
            let phase = step.undo.as_deref().map(Undo::phase);
            let declared = step.undo_pin.as_ref().is_some_and(|pin| pin.verify.is_some());
            match turn {
                Turn::NotSelected => false,
                Turn::Nothing => declared && step.disposition() == Disposition::Unrecoverable,
                Turn::Done => declared && phase != Some(&Phase::Compensated(Verified::Matched)),
                Turn::Stuck => declared || phase.is_some(),
                Turn::Ready | Turn::Moving | Turn::ToAsk | Turn::AwaitingApproval | Turn::Deferred => declared,
            }
        });
        (!left, !unverified)
    }

    /// No further rollback could find anything to do or to report.
    pub(super) fn all_undone(&self) -> bool {
        self.steps.iter().all(Step::is_undone)
    }
}
