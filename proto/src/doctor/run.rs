//! One run's records, held against the states that its events are documented to be accepted in. Must not know other
//! runs: claims and approvals, which runs share, come in.
use std::collections::BTreeMap;

use super::order::Order;
use super::undo::{State, UndoCheck};
use super::{Counts, Invariant, Violations};
use crate::aggregate::Aggregate;
use crate::approval::subject;
use crate::event::v1::{Outcome, RollbackFinished, StepResolved, Target, UndoAttempted};
use crate::event::{Event, Meta, RollbackEvent, RunEvent, StepEvent, UndoEvent};
use crate::hash::{Hash, hex};
use crate::ids::{ApprovalId, RunId, Seq, StepNo, ToolName};
use crate::manifest::Effect;
use crate::run::{Run, RunStatus, Step, StepStatus};
use crate::undo::{Phase, Undo};

/// A run so far.
#[derive(Debug, Clone)]
pub(super) struct RunCheck {
    fold: Run,
    undos: BTreeMap<StepNo, UndoCheck>,
    order: Order,
}

impl RunCheck {
    pub(super) fn new(id: RunId) -> Self {
        Self { fold: Run::new(id), undos: BTreeMap::new(), order: Order::default() }
    }

    pub(super) fn last_seq(&self) -> Seq {
        self.fold.chain().version.unwrap_or(0)
    }

    /// Follows the event, after the checks.
    pub(super) fn evolve(&mut self, meta: &Meta, event: &Event) {
        self.fold.evolve(meta, event);
        match event {
            Event::Step(event) => {
                if let StepEvent::Begun(body, _) = event {
                    self.order.begin_step(body);
                }
                self.refresh(step_of(event));
            }
            Event::Rollback(RollbackEvent::Started(body, ())) => {
                self.order.start(body);
                for no in 1..=StepNo::try_from(self.fold.steps().len()).unwrap_or(StepNo::MAX) {
                    self.refresh(no);
                }
            }
            Event::Undo(event) => self.refresh(undo_step_of(event)),
            Event::Rollback(RollbackEvent::Finished(..))
            | Event::Run(_)
            | Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Halt(_)
            | Event::Approval(_) => {}
        }
    }

    fn refresh(&mut self, no: StepNo) {
        if let Some(step) = self.fold.step(no) {
            // A selection can't hide what an earlier rollback left behind.
            let open = match self.state_of(no) {
                State::Undone => false,
                State::Idle => self.order.selects(no) && (is_unresolved(step) || is_undoable(step)),
                State::Open | State::Pause(_) | State::ReadBack { .. } | State::GivenUp | State::Unknown => true,
            };
            self.order.set_open(no, step.undo_pin.as_ref().map(|pin| &pin.tool), open);
        }
    }

    fn state_of(&self, no: StepNo) -> State {
        self.undos.get(&no).map_or(State::Idle, |undo| undo.state)
    }

    /// Holds an event against the state it meets.
    pub(super) fn check(&mut self, meta: &Meta, event: &Event, out: &mut Violations) {
        let begins = matches!(event, Event::Run(RunEvent::Started(..)));
        if begins != (self.fold.status() == RunStatus::Absent) {
            let (run, kind) = (self.fold.id(), event.kind());
            out.push(
                Invariant::Fold,
                format!("the first record of run {run}, and no other, is run.started; found {kind}"),
            );
        }
        match event {
            Event::Run(RunEvent::Started(..)) | Event::Approval(_) => {}
            Event::Run(RunEvent::Sealed(..)) => self.check_seal(out),
            Event::Step(event) => self.check_step(event, out),
            Event::Rollback(RollbackEvent::Started(..)) => match self.fold.status() {
                RunStatus::Active | RunStatus::Sealed | RunStatus::PartlyRolledBack => {}
                RunStatus::Absent | RunStatus::RollingBack | RunStatus::RolledBack => {
                    out.push(Invariant::Fold, format!("a rollback starts in a run that is {}", self.word()));
                }
            },
            Event::Rollback(RollbackEvent::Finished(body, ())) => self.check_finish(body, out),
            Event::Undo(event) => self.check_undo(meta, event, out),
            Event::System(_) | Event::Access(_) | Event::Config(_) | Event::Halt(_) => {
                out.push(Invariant::Fold, format!("a {} record stands in run {}", event.kind(), self.fold.id()));
            }
        }
    }

    fn word(&self) -> &'static str {
        self.fold.status().as_str()
    }

    fn check_seal(&self, out: &mut Violations) {
        if let Some(step) = self.fold.steps().iter().find(|step| step.is_open()) {
            let detail = format!("the run is sealed while step {} is {}", step.no, step.status.as_str());
            out.push(Invariant::Fold, detail);
        }
        if self.fold.status() == RunStatus::RollingBack {
            out.push(Invariant::Fold, "the run is sealed while it is rolling back".to_owned());
        }
    }

    fn check_step(&mut self, event: &StepEvent, out: &mut Violations) {
        let no = step_of(event);
        if matches!(event, StepEvent::Begun(..) | StepEvent::Blocked(..)) {
            let expected = self.fold.steps().len() + 1;
            if usize::try_from(no) != Ok(expected) {
                out.push(Invariant::Fold, format!("step {no} begins, expected step {expected}"));
            }
            if self.fold.status() != RunStatus::Active {
                out.push(Invariant::Fold, format!("step {no} begins in a run that is {}", self.word()));
            }
            return;
        }
        let Some(step) = self.fold.step(no) else {
            return out.push(Invariant::Fold, format!("step {no} has an outcome, but never began"));
        };
        let (status, word) = (step.status, step.status.as_str());
        match event {
            StepEvent::Begun(..) | StepEvent::Blocked(..) => {}
            StepEvent::Succeeded(..) | StepEvent::Failed(..) | StepEvent::Uncertain(..) => {
                if status != StepStatus::InFlight {
                    out.push(Invariant::I3, format!("step {no} ends a second time: it was {word} already"));
                }
            }
            StepEvent::Resolved(body, _) => {
                let open = step.is_open() || is_note(step, body);
                self.check_resolution(body, open, word, out);
            }
            StepEvent::Disputed(..) => {
                if step.resolved.is_none() {
                    out.push(Invariant::I3, format!("step {no} is disputed, but nobody had resolved it"));
                }
            }
        }
    }

    fn check_resolution(&mut self, body: &StepResolved, open: bool, word: &str, out: &mut Violations) {
        let no = body.step;
        if body.status == Outcome::Uncertain {
            out.push(Invariant::I3, format!("step {no} is resolved as uncertain, which settles nothing"));
        }
        match body.target {
            Target::Step if !open => {
                out.push(Invariant::I3, format!("step {no} is resolved, though it was {word} already"));
            }
            Target::Step => {}
            Target::Undo => self.undos.entry(no).or_default().resolve(no, body.status, out),
        }
    }

    fn check_finish(&self, body: &RollbackFinished, out: &mut Violations) {
        if self.fold.status() != RunStatus::RollingBack || self.order.rollback.as_ref() != Some(&body.rollback) {
            let detail = format!("rollback {} finishes in a run that is {}", body.rollback, self.word());
            out.push(Invariant::Fold, detail);
        }
        if let Some((no, undo)) = self.undos.iter().find(|(no, undo)| self.goes_on(**no, undo.state)) {
            let detail = format!("the rollback finishes while the undo of step {no} is {}", undo.state.word());
            out.push(Invariant::I3, detail);
        }
        let left = |step: &&Step| {
            let undone = self.state_of(step.no) == State::Undone;
            self.order.selects(step.no) && !undone && ran(step) && !is_harmless(step)
        };
        if let (true, Some(step)) = (body.complete, self.fold.steps().iter().find(left)) {
            out.push(Invariant::Fold, format!("the rollback says it is complete, but step {} is not undone", step.no));
        }
    }

    fn check_undo(&mut self, meta: &Meta, event: &UndoEvent, out: &mut Violations) {
        let no = undo_step_of(event);
        if self.fold.step(no).is_none() {
            return out.push(Invariant::Fold, format!("step {no} is undone, but never began"));
        }
        if let UndoEvent::Attempted(body, ()) = event {
            self.check_attempt(body, out);
        }
        self.undos.entry(no).or_default().take(no, meta.ts, event, out);
    }

    /// An inverse is about to be called: it must be the right one, asked for, and its turn.
    fn check_attempt(&self, body: &UndoAttempted, out: &mut Violations) {
        let no = body.step;
        let Some(step) = self.fold.step(no) else { return };
        if self.fold.status() != RunStatus::RollingBack || self.order.rollback.as_ref() != Some(&body.rollback) {
            let detail =
                format!("step {no}: an inverse for rollback {} in a run that is {}", body.rollback, self.word());
            out.push(Invariant::I4, detail);
        }
        let undo_tool = step.undo_pin.as_ref().map(|pin| &pin.tool);
        if undo_tool != Some(&body.tool) {
            let declared = undo_tool.map_or("nothing", ToolName::as_str);
            out.push(Invariant::I4, format!("step {no}: {} is called, {declared} is declared to undo it", body.tool));
        }
        if !is_undoable(step) || !self.order.selects(no) {
            let word = step.status.as_str();
            out.push(
                Invariant::I4,
                format!("step {no} ({word}) is undone, though there is nothing to undo or it is not selected"),
            );
        }
        let needs_approval = step.undo_pin.as_ref().is_some_and(|pin| pin.approval);
        let had_one = step.undo.as_deref().is_some_and(|undo| undo.approval().is_some());
        if needs_approval && !had_one && body.approval.is_none() {
            out.push(Invariant::I9, format!("step {no} is undone without the approval that its undo needs"));
        }
        if let Some(later) = self.holder(step) {
            let detail = format!("step {no} is undone before step {later}, which must be undone or settled first");
            out.push(Invariant::I4, detail);
        }
    }

    /// A later step that must be undone or settled before this one.
    fn holder(&self, step: &Step) -> Option<StepNo> {
        let ran_tool = |no| self.fold.step(no).filter(|step| ran(step)).map(|step| &step.tool);
        self.order.holder(step.no, (&step.tool, step.undo_pin.as_ref().map(|pin| &pin.tool)), ran_tool)
    }

    /// An undo that goes on without a person. One that waits for its next attempt doesn't while something holds it back.
    fn goes_on(&self, no: StepNo, state: State) -> bool {
        match state {
            State::Open | State::ReadBack { .. } => true,
            State::Pause(_) => self.fold.step(no).is_some_and(|step| self.holder(step).is_none()),
            State::Idle | State::Undone | State::GivenUp | State::Unknown => false,
        }
    }

    /// Who holds a claim: the step that began with it, until a record that frees it.
    pub(super) fn check_claim(
        &self,
        event: &Event,
        claims: &mut BTreeMap<Hash, (RunId, StepNo)>,
        out: &mut Violations,
    ) {
        if let Some((claim, step)) = taken_claim(event) {
            let taken = claims.insert(claim, (self.fold.id().clone(), step));
            if let Some((run, by)) = taken {
                let detail = format!("step {step} takes a claim that step {by} of run {run} holds");
                out.push(Invariant::I8, detail);
            }
        }
        if let Some((claim, step)) = self.freed_claim(event)
            && claims.get(&claim) == Some(&(self.fold.id().clone(), step))
        {
            claims.remove(&claim);
        }
    }

    /// The held claim that ends with this record: its step had no effect, or its effect is taken back.
    fn freed_claim(&self, event: &Event) -> Option<(Hash, StepNo)> {
        let no = match event {
            Event::Step(StepEvent::Failed(body, _)) => body.step,
            Event::Step(StepEvent::Resolved(body, _)) => match (body.target, body.status) {
                (Target::Step, _) if self.fold.step(body.step).is_some_and(|step| is_note(step, body)) => return None,
                (Target::Step, Outcome::Failed) | (Target::Undo, Outcome::Succeeded) => body.step,
                (Target::Step, Outcome::Succeeded | Outcome::Uncertain)
                | (Target::Undo, Outcome::Failed | Outcome::Uncertain) => return None,
            },
            Event::Undo(UndoEvent::Succeeded(body, ())) if body.read_at.is_none() => body.step,
            Event::Undo(UndoEvent::Verified(body, ())) => body.step,
            Event::Step(_)
            | Event::Undo(_)
            | Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Halt(_)
            | Event::Run(_)
            | Event::Approval(_)
            | Event::Rollback(_) => return None,
        };
        let step = self.fold.step(no).filter(|step| step.claim_held)?;
        Some((step.claim?, no))
    }

    /// The streams that a record advances are those that guard it.
    pub(super) fn check_streams(&self, event: &Event, streams: &[&str], out: &mut Violations) {
        let run = self.fold.id();
        let mut needed = vec![format!("run/{run}")];
        match event {
            Event::Undo(event) => needed.push(format!("undo/{run}/{}", undo_step_of(event))),
            Event::Step(StepEvent::Resolved(body, _)) if body.target == Target::Undo => {
                needed.push(format!("undo/{run}/{}", body.step));
            }
            Event::Approval(event) => needed.push(format!("approval/{}", subject(event))),
            Event::Step(_)
            | Event::Run(_)
            | Event::Rollback(_)
            | Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Halt(_) => {}
        }
        needed.extend(used_grant(event).map(|approval| format!("approval/{approval}")));
        let claim = taken_claim(event).or_else(|| self.freed_claim(event));
        needed.extend(claim.map(|(claim, _)| format!("claim/{}", hex(&claim.0))));
        for stream in needed.iter().filter(|stream| !streams.contains(&stream.as_str())) {
            out.push(Invariant::I6, format!("a {} record does not advance the stream {stream}", event.kind()));
        }
    }

    /// The aggregates' own fold must have come to the same end.
    pub(super) fn compare_with_fold(&self, out: &mut Violations) {
        for (no, undo) in &self.undos {
            let folded = self.fold.step(*no).and_then(|step| step.undo.as_deref());
            let same = match folded.map(Undo::phase) {
                None | Some(Phase::Idle) => undo.state == State::Idle,
                Some(Phase::Calling { .. }) => undo.state == State::Open,
                Some(Phase::Waiting { at }) => undo.state == State::Pause(*at),
                Some(Phase::Reading { .. }) => matches!(undo.state, State::ReadBack { .. }),
                Some(Phase::Compensated(_)) => undo.state == State::Undone,
                Some(Phase::Failed) => undo.state == State::GivenUp,
                Some(Phase::Uncertain) => undo.state == State::Unknown,
            };
            if !same {
                let (run, word) = (self.fold.id(), undo.state.word());
                out.push(Invariant::I6, format!("run {run}: the undo of step {no} is {word}, its fold says otherwise"));
            }
        }
    }

    pub(super) fn count(&self, counts: &mut Counts) {
        let in_flight = self.fold.steps().iter().filter(|step| step.status == StepStatus::InFlight).count();
        let open = self.undos.values().filter(|undo| undo.state == State::Open).count();
        counts.steps += self.fold.steps().len() as u64;
        counts.undo_attempts += self.undos.values().map(|undo| u64::from(undo.attempts)).sum::<u64>();
        counts.open_intents += (in_flight + open) as u64;
    }
}

/// The claim that a record takes, or takes back.
fn taken_claim(event: &Event) -> Option<(Hash, StepNo)> {
    match event {
        Event::Step(StepEvent::Begun(body, _)) => Some((body.claim?, body.step)),
        Event::Step(StepEvent::Disputed(body, ())) => Some((body.claim?, body.step)),
        Event::Step(_)
        | Event::Undo(_)
        | Event::System(_)
        | Event::Access(_)
        | Event::Config(_)
        | Event::Halt(_)
        | Event::Run(_)
        | Event::Approval(_)
        | Event::Rollback(_) => None,
    }
}

/// The grant that a record uses up.
fn used_grant(event: &Event) -> Option<&ApprovalId> {
    match event {
        Event::Step(StepEvent::Begun(body, _)) => body.approval.as_ref(),
        Event::Undo(UndoEvent::Attempted(body, ())) => body.approval.as_ref(),
        Event::Step(_)
        | Event::Undo(_)
        | Event::System(_)
        | Event::Access(_)
        | Event::Config(_)
        | Event::Halt(_)
        | Event::Run(_)
        | Event::Approval(_)
        | Event::Rollback(_) => None,
    }
}

/// The step's undo was attempted, so this resolution only says that its dispute was looked at.
fn is_note(step: &Step, body: &StepResolved) -> bool {
    step.disputed && step.undo.is_some() && step.resolved == Some(body.status)
}

fn ran(step: &Step) -> bool {
    matches!(step.status, StepStatus::Succeeded | StepStatus::InFlight | StepStatus::Uncertain)
}

fn is_harmless(step: &Step) -> bool {
    matches!(step.effect, Some(Effect::ReadOnly | Effect::Idempotent))
}

/// Nobody knows whether it happened.
fn is_unresolved(step: &Step) -> bool {
    matches!(step.status, StepStatus::InFlight | StepStatus::Uncertain) && !is_harmless(step)
}

/// There is an inverse and everything it needs.
fn is_undoable(step: &Step) -> bool {
    step.status == StepStatus::Succeeded && !is_harmless(step) && step.undo_pin.is_some() && step.missing.is_empty()
}

fn step_of(event: &StepEvent) -> StepNo {
    match event {
        StepEvent::Begun(body, _) => body.step,
        StepEvent::Blocked(body, ()) => body.step,
        StepEvent::Succeeded(body, _) => body.step,
        StepEvent::Failed(body, _) => body.step,
        StepEvent::Uncertain(body, _) => body.step,
        StepEvent::Resolved(body, _) => body.step,
        StepEvent::Disputed(body, ()) => body.step,
    }
}

fn undo_step_of(event: &UndoEvent) -> StepNo {
    match event {
        UndoEvent::Attempted(body, ()) => body.step,
        UndoEvent::Succeeded(body, ()) => body.step,
        UndoEvent::Failed(body, _) => body.step,
        UndoEvent::Uncertain(body, _) => body.step,
        UndoEvent::Mismatched(body, _) => body.step,
        UndoEvent::Verified(body, ()) => body.step,
        UndoEvent::Deferred(body, ()) => body.step,
    }
}
