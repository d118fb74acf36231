//! What must hold after every append. Named, so that a failing test says which one broke.
use std::collections::BTreeMap;

use super::world::World;
use crate::aggregate::Aggregate;
use crate::event::v1::{Outcome, Target};
use crate::event::{Event, RunEvent, StepEvent, UndoEvent};
use crate::hash::Hash;
use crate::ids::{StepNo, StreamId, ToolName};
use crate::ledger::merkle;
use crate::manifest::Effect;
use crate::run::{Run, RunStatus, StepStatus};
use crate::time::Timestamp;
use crate::undo::{Phase, Undo};
use crate::wake::Wake;

impl World {
    /// All invariants that can be told from one append.
    pub(super) fn check(&self, before: &Self, events: &[Event]) {
        invariant_wakes_are_never_laxer(before, self, events);
        invariant_undos_of_the_run_are_the_undos(self);
        invariant_approvals_of_the_run_are_the_approvals(self);
        invariant_claims_are_held_once(self);
        invariant_effects_can_be_carried_out(self);
        for event in events {
            invariant_events_round_trip(event);
            match event {
                Event::Undo(UndoEvent::Attempted(body, ())) => {
                    invariant_one_attempt_at_a_time(before, body.step);
                    invariant_unknown_is_never_repeated_blindly(before, body.step);
                    invariant_order(before, body.step);
                }
                Event::Run(RunEvent::Sealed(body, ())) => {
                    invariant_the_seal_covers_the_run(before, body.records, body.run_root);
                }
                Event::System(_)
                | Event::Access(_)
                | Event::Config(_)
                | Event::Halt(_)
                | Event::Run(_)
                | Event::Step(_)
                | Event::Approval(_)
                | Event::Rollback(_)
                | Event::Undo(_) => {}
            }
        }
    }

    /// Everything folded again, from nothing.
    pub fn refold(&self) -> (Run, BTreeMap<StepNo, Undo>) {
        let mut run = Run::new(self.run.id().clone());
        let mut undos: BTreeMap<StepNo, Undo> = BTreeMap::new();
        for logged in &self.log {
            for stream in &logged.streams {
                match stream {
                    StreamId::Run(_) => run.evolve(&logged.meta, &logged.event),
                    StreamId::Undo(of, step) => {
                        let undo = undos.entry(*step).or_insert_with(|| Undo::new(of.clone(), *step));
                        undo.evolve(&logged.meta, &logged.event);
                    }
                    StreamId::Approval(_)
                    | StreamId::Claim(_)
                    | StreamId::Halt
                    | StreamId::Config
                    | StreamId::Access
                    | StreamId::Ledger => {}
                }
            }
        }
        (run, undos)
    }
}

/// A wake hint is earlier than or as early as what the state after the events asks for.
fn invariant_wakes_are_never_laxer(before: &World, after: &World, events: &[Event]) {
    let run = before.run.wake_after(before.now, events);
    assert_not_laxer(run, wanted_at(&after.run.effects(), after.run.deadline(), |_| before.now), before.now, "run");
    for (step, undo) in &after.undos {
        let fresh = Undo::new(after.run.id().clone(), *step);
        let known = before.undos.get(step).unwrap_or(&fresh);
        let own: Vec<Event> = events.iter().filter(|event| concerns(event, *step)).cloned().collect();
        let wake = known.wake_after(before.now, &own);
        let due = |effect: &crate::undo::UndoEffect| match effect {
            crate::undo::UndoEffect::Call { .. } => before.now,
            crate::undo::UndoEffect::ReadBack { at, .. } => *at,
        };
        assert_not_laxer(wake, wanted_at(&undo.effects(), undo.deadline(), due), before.now, "undo");
    }
}

/// What a run knows of its approvals is what they know of themselves, but for the arguments.
fn invariant_approvals_of_the_run_are_the_approvals(world: &World) {
    for (id, approval) in &world.approvals {
        let mut known = approval.clone();
        known.forget_arguments();
        assert_eq!(world.run.approval(id), Some(&known), "approval {id}");
    }
}

fn concerns(event: &Event, step: StepNo) -> bool {
    match event {
        Event::Undo(event) => step_of(event) == step,
        Event::Step(StepEvent::Resolved(body, _)) => body.step == step && body.target == Target::Undo,
        Event::System(_)
        | Event::Access(_)
        | Event::Config(_)
        | Event::Halt(_)
        | Event::Run(_)
        | Event::Step(_)
        | Event::Approval(_)
        | Event::Rollback(_) => false,
    }
}

fn step_of(event: &UndoEvent) -> StepNo {
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

fn wanted_at<E, C>(
    effects: &[E],
    deadline: Option<(Timestamp, C)>,
    due: impl Fn(&E) -> Timestamp,
) -> Option<Timestamp> {
    effects.iter().map(due).chain(deadline.map(|(at, _)| at)).min()
}

fn assert_not_laxer(wake: Wake, wanted: Option<Timestamp>, now: Timestamp, who: &str) {
    let Some(wanted) = wanted else { return };
    let fine = match wake {
        Wake::None => false,
        Wake::Now => true,
        Wake::At(at) => at <= wanted.max(now),
    };
    assert!(fine, "the {who} wants to be woken at {wanted}, the hint says {wake:?}");
}

/// The run's own view of an undo is what the undo's stream says.
fn invariant_undos_of_the_run_are_the_undos(world: &World) {
    for step in world.run.steps() {
        assert_eq!(step.undo.as_deref(), world.undos.get(&step.no), "step {}", step.no);
    }
}

/// The holder by the claim's stream is the step that says so; a step that is over holds none.
fn invariant_claims_are_held_once(world: &World) {
    for step in world.run.steps() {
        let Some(claim) = step.claim else { continue };
        let by_stream = world.holders.get(&claim).cloned().flatten();
        let holds = by_stream == Some((world.run.id().clone(), step.no));
        assert_eq!(step.claim_held, holds, "step {} and its claim, held by {by_stream:?}", step.no);
        let over = step.status == StepStatus::Failed
            || matches!(step.undo.as_deref().map(Undo::phase), Some(Phase::Compensated(_)));
        assert!(!(over && holds), "step {} is over and holds its claim", step.no);
        assert!(over || holds || step.late.is_some(), "step {} stands and does not hold its claim", step.no);
    }
}

/// What a state asks for must lead to a record, or it would be asked for again for ever.
fn invariant_effects_can_be_carried_out(world: &World) {
    for step in world.ready() {
        assert!(world.run.turn_of(step).is_ok(), "step {step} is to be driven and its turn has not come");
        assert!(matches!(world.phase(step), Phase::Idle | Phase::Failed), "step {step} can't begin an attempt");
    }
}

fn invariant_events_round_trip(event: &Event) {
    let encoded = event.encode().unwrap();
    let decoded = Event::decode(encoded.kind, encoded.body.as_str(), &encoded.private).unwrap();
    assert_eq!(decoded, *event);
}

fn invariant_one_attempt_at_a_time(before: &World, step: StepNo) {
    assert!(!matches!(before.phase(step), Phase::Calling { .. }), "step {step} has two attempts open");
}

/// After an attempt of unknown outcome of a tool that is not idempotent, only a resolution lets another one happen.
fn invariant_unknown_is_never_repeated_blindly(before: &World, step: StepNo) {
    let pin = before.run.step(step).unwrap().undo_pin.as_ref().unwrap();
    if effect_of(before, &pin.tool) == Effect::Idempotent {
        return;
    }
    let mut unknown = false;
    for logged in &before.log {
        match &logged.event {
            Event::Undo(UndoEvent::Uncertain(body, _)) if body.step == step => unknown = true,
            Event::Undo(UndoEvent::Succeeded(body, ())) if body.step == step => unknown = true,
            Event::Step(StepEvent::Resolved(body, _)) if concerns(&logged.event, step) => {
                assert_eq!(body.status, Outcome::Failed, "called again after it was resolved as done");
                unknown = false;
            }
            Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Halt(_)
            | Event::Run(_)
            | Event::Step(_)
            | Event::Approval(_)
            | Event::Rollback(_)
            | Event::Undo(_) => {}
        }
    }
    assert!(!unknown, "step {step}: {} may have happened and is called again", pin.tool);
}

fn effect_of(world: &World, tool: &ToolName) -> Effect {
    world.archive.current().unwrap().1.get(tool).unwrap().effect
}

/// Everything later on the same upstream, and everything that needed this step's tool, is undone first, unless the
/// operator's selection left it out.
fn invariant_order(before: &World, no: StepNo) {
    let rollback = before.run.rollback().unwrap();
    assert_eq!(before.run.status(), RunStatus::RollingBack);
    let upstream = |no: StepNo| {
        let pin = before.run.step(no)?.undo_pin.as_ref()?;
        rollback.upstreams.get(&pin.tool).cloned()
    };
    let mut needed: Vec<ToolName> = vec![];
    for later in before.run.steps().iter().rev().take_while(|step| step.no > no) {
        let happened = matches!(later.status, StepStatus::Succeeded | StepStatus::InFlight | StepStatus::Uncertain);
        let harmless = matches!(later.effect, Some(Effect::ReadOnly | Effect::Idempotent));
        let final_ = later.status == StepStatus::Succeeded && (later.undo_pin.is_none() || !later.recoverable());
        let left_out = rollback.selection.as_ref().is_some_and(|selection| !selection.contains(&later.no));
        let left_out = left_out && later.undo.as_deref().is_none_or(|undo| *undo.phase() == Phase::Idle);
        let undone = matches!(before.phase(later.no), Phase::Compensated(_));
        let open = happened && !harmless && !final_ && !left_out && !undone;
        let edge = needed.contains(&later.tool);
        if happened && (open || edge) {
            needed.extend(later.requires.iter().cloned());
        }
        let same_upstream = upstream(later.no).is_some() && upstream(later.no) == upstream(no);
        assert!(!(open && same_upstream), "step {no} is undone before step {} of its upstream", later.no);
    }
    let tool = &before.run.step(no).unwrap().tool;
    assert!(!needed.contains(tool), "step {no} is undone before what needed it");
}

fn invariant_the_seal_covers_the_run(before: &World, records: u64, root: Hash) {
    let of_run = |logged: &&super::world::Logged| logged.streams.contains(&before.run.stream());
    let leaves: Vec<Hash> = before.log.iter().filter(of_run).map(|logged| logged.meta.leaf).collect();
    assert_eq!((records, root), (leaves.len() as u64, merkle::root(leaves)));
}
