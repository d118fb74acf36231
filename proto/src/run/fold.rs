//! Folding a run's events: what each of them changes. Must not refuse anything.
use std::collections::BTreeMap;

use super::{RollbackState, Run, RunStatus, Step, StepStatus};
use crate::aggregate::Aggregate as _;
use crate::canonical::Canonical;
use crate::event::v1::{Outcome, RollbackStarted, RunStarted, StepBegun, StepBlocked, StepResolved, Target};
use crate::event::{Event, Meta, RollbackEvent, RunEvent, StepEvent, UndoEvent};
use crate::ids::StepNo;
use crate::undo::{Phase, Undo};

impl Run {
    pub(super) fn evolve_run(&mut self, meta: &Meta, event: &RunEvent) {
        match event {
            RunEvent::Started(body, ()) => {
                let RunStarted { mode, permissions, person, reason, request } = body.clone();
                self.status = RunStatus::Active;
                (self.mode, self.permissions, self.reason, self.started_by) = (mode, permissions, reason, request);
                (self.owner, self.owner_person) = (meta.actor.id.clone(), person);
                self.started_at = meta.ts;
            }
            RunEvent::Sealed(_, ()) => {
                (self.sealed, self.sealed_before) = (true, true);
                if self.status == RunStatus::Active {
                    self.status = RunStatus::Sealed;
                }
            }
        }
    }

    pub(super) fn evolve_step(&mut self, meta: &Meta, event: &StepEvent) {
        let run_seq = self.chain.next_run_seq();
        match event {
            StepEvent::Begun(body, private) => {
                self.push_begun(meta, body, &private.values);
                self.consume(meta, body.approval.as_ref(), &Event::Step(event.clone()));
            }
            StepEvent::Blocked(body, ()) => self.push_blocked(meta, body),
            StepEvent::Succeeded(body, private) => {
                if let Some(step) = self.step_mut(body.step) {
                    step.status = StepStatus::Succeeded;
                    step.missing.clone_from(&body.missing);
                    step.result = body.result.map(|commitment| (run_seq, commitment));
                    step.values.extend(private.values.clone());
                }
                self.reopen();
            }
            StepEvent::Failed(body, _) => {
                self.set_status(body.step, StepStatus::Failed);
                self.free_claim(body.step);
                self.reopen();
            }
            StepEvent::Uncertain(body, _) => self.set_status(body.step, StepStatus::Uncertain),
            StepEvent::Resolved(body, private) => {
                self.resolve(meta, event, body, &private.values, run_seq);
                self.reopen();
            }
            StepEvent::Disputed(body, ()) => {
                if let Some(step) = self.step_mut(body.step) {
                    (step.disputed, step.late) = (true, Some(body.status));
                    step.claim_held |= body.claim.is_some();
                    if step.undo.is_none() {
                        step.status = StepStatus::Uncertain;
                        step.resolved = None;
                    }
                }
                self.reopen();
            }
        }
    }

    fn set_status(&mut self, no: StepNo, status: StepStatus) {
        if let Some(step) = self.step_mut(no) {
            step.status = status;
        }
    }

    fn free_claim(&mut self, no: StepNo) {
        if let Some(step) = self.step_mut(no) {
            step.claim_held = false;
        }
    }

    /// Something was settled or unsettled: what it deferred may go on, and what was finished may not be, so a rollback
    /// that had nothing left to do looks again.
    pub(super) fn reopen(&mut self) {
        match self.status {
            RunStatus::PartlyRolledBack | RunStatus::RolledBack => self.status = RunStatus::RollingBack,
            RunStatus::Absent | RunStatus::Active | RunStatus::Sealed | RunStatus::RollingBack => {}
        }
    }

    fn push_begun(&mut self, meta: &Meta, body: &StepBegun, values: &BTreeMap<String, Canonical>) {
        let body = body.clone();
        if let Some(request) = body.request {
            self.by_request.insert(request.key, body.step);
        }
        self.steps.push(Step {
            no: body.step,
            tool: body.tool,
            reason: body.reason,
            status: StepStatus::InFlight,
            begun_at: meta.ts,
            effect: body.effect,
            manifest: body.manifest,
            config: body.config,
            undo_pin: body.undo,
            requires: body.requires,
            claim: body.claim,
            claim_held: body.claim.is_some(),
            request: body.request,
            attempt: body.attempt,
            timeout_ms: body.timeout_ms,
            findings: body.violations,
            approval: body.approval,
            values: values.clone(),
            missing: Vec::new(),
            result: None,
            resolved: None,
            disputed: false,
            late: None,
            undo: None,
        });
    }

    fn push_blocked(&mut self, meta: &Meta, body: &StepBlocked) {
        let body = body.clone();
        self.steps.push(Step {
            no: body.step,
            tool: body.tool,
            reason: body.reason,
            status: StepStatus::Blocked,
            begun_at: meta.ts,
            effect: None,
            manifest: None,
            config: 0,
            undo_pin: None,
            requires: Vec::new(),
            claim: None,
            claim_held: false,
            request: None,
            attempt: None,
            timeout_ms: None,
            findings: body.findings,
            approval: body.approval,
            values: BTreeMap::new(),
            missing: Vec::new(),
            result: None,
            resolved: None,
            disputed: false,
            late: None,
            undo: None,
        });
    }

    fn resolve(
        &mut self,
        meta: &Meta,
        event: &StepEvent,
        body: &StepResolved,
        values: &BTreeMap<String, Canonical>,
        run_seq: u64,
    ) {
        let run = self.id.clone();
        let Some(step) = self.step_mut(body.step) else { return };
        match body.target {
            // A note on a disputed step: its undo was attempted, so nothing else may change.
            Target::Step if step.undo.is_some() => step.disputed = false,
            Target::Step => {
                step.disputed = false;
                step.claim_held &= body.status != Outcome::Failed;
                step.status = match body.status {
                    Outcome::Succeeded => StepStatus::Succeeded,
                    Outcome::Failed => StepStatus::Failed,
                    Outcome::Uncertain => StepStatus::Uncertain,
                };
                step.resolved = Some(body.status);
                step.missing.clone_from(&body.missing);
                step.result = body.result.map(|commitment| (run_seq, commitment));
                step.values.extend(values.clone());
            }
            Target::Undo => {
                let undo = step.undo.get_or_insert_with(|| Box::new(Undo::new(run, body.step)));
                undo.evolve(meta, &Event::Step(event.clone()));
                step.claim_held &= body.status != Outcome::Succeeded;
            }
        }
    }

    pub(super) fn evolve_rollback(&mut self, meta: &Meta, event: &RollbackEvent) {
        match event {
            RollbackEvent::Started(body, ()) => {
                let RollbackStarted { executor, person, request, rollback, steps, upstreams } = body.clone();
                let by = meta.actor.id.clone();
                self.rollback_requests.extend(request.map(|request| (request.key, request)));
                self.rollback =
                    Some(RollbackState { id: rollback, executor, selection: steps, upstreams, request, by, person });
                // Each rollback asks anew for what was not granted to the one before.
                self.undo_approvals.clear();
                self.status = RunStatus::RollingBack;
            }
            RollbackEvent::Finished(body, ()) => {
                // A rollback of selected steps can be complete while others can still be undone.
                let all = body.complete && self.all_undone();
                self.status = if all { RunStatus::RolledBack } else { RunStatus::PartlyRolledBack };
            }
        }
    }

    pub(super) fn evolve_undo(&mut self, meta: &Meta, event: &UndoEvent) {
        let no = match event {
            UndoEvent::Attempted(body, ()) => body.step,
            UndoEvent::Succeeded(body, ()) => body.step,
            UndoEvent::Failed(body, _) => body.step,
            UndoEvent::Uncertain(body, _) => body.step,
            UndoEvent::Mismatched(body, _) => body.step,
            UndoEvent::Verified(body, ()) => body.step,
            UndoEvent::Deferred(body, ()) => body.step,
        };
        let run = self.id.clone();
        if let UndoEvent::Attempted(body, ()) = event {
            self.consume(meta, body.approval.as_ref(), &Event::Undo(event.clone()));
        }
        if let Some(step) = self.step_mut(no) {
            let undo = step.undo.get_or_insert_with(|| Box::new(Undo::new(run, no)));
            undo.evolve(meta, &Event::Undo(event.clone()));
            step.claim_held &= !matches!(undo.phase(), Phase::Compensated(_));
        }
    }
}
