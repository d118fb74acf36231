//! Undoing a run, told in stories: the plan, the order, what is deferred and released, the report, the seal.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::aggregate::Aggregate as _;
use reversi_proto::event::v1::{Executor, Mode, Outcome, RollbackFinished, Target};
use reversi_proto::event::{Event, RollbackEvent, RunEvent};
use reversi_proto::manifest::CompensationKind;
use reversi_proto::run::{
    PlanAction, Report, ReportEntry, RunCommand, RunEffect, RunReject, RunStatus, StartRollback, Verdict,
};
use reversi_proto::testing::{World, request, rollback_id};
use reversi_proto::undo::{CallEnd, NotReady, Phase, ReadEnd, UndoCommand, UndoReject};

const TOKEN: &str = r#"{"undo_token":"u"}"#;
const ORDER: &str = r#"{"id":"o1"}"#;

fn world() -> World {
    World::new(Mode::Observe)
}

fn known() -> CallEnd {
    CallEnd::KnownFailure("connection refused".to_owned())
}

fn unknown() -> CallEnd {
    CallEnd::Unknown("timeout".to_owned())
}

fn steps(entries: &[ReportEntry]) -> Vec<u32> {
    entries.iter().map(|entry| entry.step).collect()
}

fn report(world: &World) -> Report {
    world.run.report(&world.archive)
}

/// Known failures until the rollback gives up on the step.
fn fail(world: &mut World, step: u32) {
    world.attempt(step, known());
    while let Phase::Waiting { at } = world.phase(step) {
        world.now = world.now.max(at);
        world.attempt(step, known());
    }
    assert_eq!(world.phase(step), Phase::Failed);
}

fn finished(world: &World) -> RollbackFinished {
    let last = world.log.iter().rev().find_map(|logged| match &logged.event {
        Event::Rollback(RollbackEvent::Finished(body, ())) => Some(body.clone()),
        _ => None,
    });
    last.unwrap()
}

// --- plan

// D1 D2 D4 E9
#[test]
fn the_plan_is_honest_step_by_step_and_newest_first() {
    let mut world = world();
    let charge = r#"{"order_id":"o","amount":5}"#;
    world.done("stripe.get_charge", "{}", "{}"); // 1
    world.done("stripe.create_charge", charge, r#"{"id":"ch_1"}"#); // 2
    world.done("stripe.refund", "{}", "{}"); // 3
    world.done("fs.write_file", "{}", TOKEN); // 4
    world.done("fs.write_file", "{}", "{}"); // 5: no token
    world.done("mail.send", "{}", "{}"); // 6
    world.begin("draft.tool", "{}"); // 7
    let failed = world.begin("fs.write_file", "{}").step; // 8
    world.complete(failed, Outcome::Failed, "").unwrap();
    world.begin("fs.write_file", "{}"); // 9: in flight
    let uncertain = world.begin("order.create", "{}").step; // 10
    world.complete(uncertain, Outcome::Uncertain, "").unwrap();
    world.done("vault.put", r#"{"key":"k"}"#, "{}"); // 11
    world.done("unheard.of", "{}", "{}"); // 12
    world.begin("stripe.get_charge", "{}"); // 13: in flight and harmless
    let before = world.clone();
    let plan = world.run.plan(&world.archive);
    let seen: Vec<_> = plan.steps.iter().map(|step| (step.step, step.action, step.reason.clone())).collect();
    let because = |text: &str| Some(text.to_owned());
    let expected = [
        (13, PlanAction::Skip, because("read_only")),
        (12, PlanAction::NotUndoable, None),
        (11, PlanAction::Compensate, None),
        (10, PlanAction::Unresolved, because("uncertain: settle it first")),
        (9, PlanAction::Unresolved, because("in_flight: settle it first")),
        (8, PlanAction::Skip, because("failed")),
        (7, PlanAction::Skip, because("blocked")),
        (6, PlanAction::NotUndoable, None),
        (5, PlanAction::Unrecoverable, because("missing $result.undo_token")),
        (4, PlanAction::Compensate, None),
        (3, PlanAction::Skip, because("idempotent")),
        (2, PlanAction::Compensate, None),
        (1, PlanAction::Skip, because("read_only")),
    ];
    assert_eq!(seen, expected);
    let charge = &plan.steps[11];
    assert_eq!(charge.undo_tool.as_ref().unwrap().as_str(), "stripe.refund");
    assert_eq!((charge.kind, charge.will_be_verified), (Some(CompensationKind::Compensation), true));
    assert_eq!(charge.residue, ["the charge still appears on the customer's statement"]);
    assert_eq!((plan.steps[9].kind, plan.steps[9].will_be_verified), (Some(CompensationKind::Inverse), true));
    assert_eq!((plan.steps[2].requires_approval, plan.steps[2].will_be_verified), (true, false));
    assert_eq!(plan.verdict, Verdict::PartlyUndoable);
    assert_eq!(world.run, before.run, "a dry run changes nothing");
}

// D3 D4 D5
#[test]
fn the_verdict_says_what_stays() {
    let verdict = |calls: &[(&str, &str, &str)]| {
        let mut world = world();
        for (tool, args, result) in calls {
            world.done(tool, args, result);
        }
        world.run.plan(&world.archive).verdict
    };
    let (file, mail, read) = (("fs.write_file", "{}", TOKEN), ("mail.send", "{}", "{}"), ("fs.stat", "{}", "{}"));
    let charge = ("stripe.create_charge", r#"{"order_id":"o","amount":5}"#, r#"{"id":"c"}"#);
    assert_eq!(verdict(&[]), Verdict::FullyUndoable);
    assert_eq!(verdict(&[file, read]), Verdict::FullyUndoable);
    assert_eq!(verdict(&[charge]), Verdict::PartlyUndoable, "residue stays");
    assert_eq!(verdict(&[file, mail]), Verdict::PartlyUndoable);
    assert_eq!(verdict(&[mail, read]), Verdict::NotUndoable);
}

#[test]
fn the_plan_does_not_promise_what_a_rollback_would_not_do() {
    let mut world = world();
    let again = world.done("note.add", r#"{"name":"n"}"#, "{}");
    let checked = world.done("fs.write_file", "{}", TOKEN);
    let order = world.done("order.create", "{}", ORDER);
    world.rollback(1).unwrap();
    world.attempt(order, unknown());
    world.attempt(checked, CallEnd::Success);
    for _ in 0..3 {
        world.read(checked, mismatch());
    }
    fail(&mut world, again);
    world.settle();
    let plan = world.run.plan(&world.archive);
    let actions: Vec<_> = plan.steps.iter().map(|step| step.action).collect();
    assert_eq!(actions, [PlanAction::Unresolved, PlanAction::Unresolved, PlanAction::Compensate]);
    assert_eq!(plan.steps[0].reason.as_deref(), Some("undo_uncertain: settle it first"));
}

fn mismatch() -> ReadEnd {
    ReadEnd::Mismatch {
        path: "matches_before".to_owned(),
        expected: reversi_proto::testing::json("true"),
        got: Some(reversi_proto::testing::json("false")),
    }
}

// --- order

#[test]
fn one_upstream_is_undone_newest_first_and_others_go_on() {
    let mut world = world();
    let (file1, note1) = (world.done("fs.write_file", "{}", TOKEN), world.done("note.add", r#"{"name":"a"}"#, "{}"));
    let (file2, note2) = (world.done("fs.write_file", "{}", TOKEN), world.done("note.add", r#"{"name":"b"}"#, "{}"));
    world.rollback(1).unwrap();
    assert_eq!(world.ready(), [note2, file2], "the newest of each upstream");
    assert_eq!(world.run.turn_of(file1), Err(NotReady::Deferred));
    let refused = world.undo(file1, &UndoCommand::Attempt).unwrap_err();
    assert_eq!(refused, UndoReject::NotReady { step: file1, why: NotReady::Deferred });
    world.attempt(note2, CallEnd::Success);
    assert_eq!(world.ready(), [file2, note1]);
    fail(&mut world, file2);
    assert_eq!(world.run.turn_of(file1), Err(NotReady::Deferred), "a failed step holds back what is below it");
    world.attempt(note1, CallEnd::Success);
    world.settle();
    let report = report(&world);
    assert_eq!(
        (steps(&report.compensated), steps(&report.failed), steps(&report.deferred)),
        (vec![note2, note1], vec![file2], vec![file1])
    );
    assert_eq!((report.complete, report.verified, report.status), (false, false, "partly_rolled_back"));
}

#[test]
fn an_undo_waits_while_another_one_is_moving() {
    let mut world = world();
    let (first, second) = (world.done("fs.write_file", "{}", TOKEN), world.done("fs.write_file", "{}", TOKEN));
    world.rollback(1).unwrap();
    world.undo(second, &UndoCommand::Attempt).unwrap();
    assert_eq!(world.run.turn_of(first), Err(NotReady::Deferred), "while it is called");
    world.call_ended(second, CallEnd::Success);
    assert_eq!(world.run.turn_of(first), Err(NotReady::Deferred), "while it is read back");
    world.read(second, ReadEnd::Match);
    assert_eq!(world.ready(), [first]);
}

// A11
#[test]
fn requires_orders_across_upstreams_and_through_skipped_steps() {
    let mut world = world();
    let open = world.done("first.open", "{}", "{}");
    world.done("second.check", "{}", "{}"); // read-only: nothing to undo, but it needed the first
    let used = world.done("third.use", "{}", "{}");
    world.rollback(1).unwrap();
    assert_eq!(world.ready(), [used]);
    assert_eq!(world.run.turn_of(open), Err(NotReady::Deferred));
    world.attempt(used, CallEnd::Success);
    assert_eq!(world.ready(), [open]);
    world.undo_all();
    assert_eq!(world.run.status(), RunStatus::RolledBack);
}

#[test]
fn a_failed_call_needs_nothing_to_be_held_back() {
    let mut world = world();
    let open = world.done("first.open", "{}", "{}");
    world.done("second.check", "{}", "{}");
    let used = world.begin("third.use", "{}").step;
    world.complete(used, Outcome::Failed, "").unwrap();
    world.rollback(1).unwrap();
    assert_eq!(world.ready(), [open]);
}

#[test]
fn an_unresolved_step_defers_and_its_resolution_releases() {
    for late in [Outcome::Succeeded, Outcome::Failed] {
        let mut world = world();
        let below = world.done("fs.write_file", "{}", TOKEN);
        let open = world.begin("fs.write_file", "{}").step;
        world.rollback(1).unwrap();
        assert_eq!(world.run.effects(), [RunEffect::FinishRollback], "nothing can be done without a person");
        world.settle();
        let seen = report(&world);
        assert_eq!((steps(&seen.unresolved), steps(&seen.deferred)), (vec![open], vec![below]));
        assert!(!seen.complete && !seen.verified, "a declared read-back never matched");
        // A late outcome joins the plan.
        world.complete(open, late, TOKEN).unwrap();
        let expected = if late == Outcome::Succeeded { open } else { below };
        assert_eq!(world.ready(), [expected]);
        world.undo_all();
        assert_eq!(world.run.status(), RunStatus::RolledBack);
        assert!(report(&world).complete && report(&world).verified);
    }
}

#[test]
fn a_resolution_of_an_undo_goes_on_with_the_rollback() {
    for (status, word, released) in
        [(Outcome::Succeeded, "compensated", true), (Outcome::Failed, "compensation_failed", false)]
    {
        let mut world = world();
        let (below, order) = (world.done("order.create", "{}", ORDER), world.done("order.create", "{}", ORDER));
        world.rollback(1).unwrap();
        world.attempt(order, unknown());
        world.settle();
        assert_eq!(
            (world.run.status(), steps(&report(&world).undo_uncertain)),
            (RunStatus::PartlyRolledBack, vec![order])
        );
        let answer = world.resolve(Target::Undo, order, status, "").unwrap();
        assert_eq!(answer.status, word);
        let before = world.log.len();
        assert_eq!(world.resolve(Target::Undo, order, status, "").unwrap().status, word, "a retry");
        assert_eq!(world.log.len(), before);
        assert_eq!(world.run.turn_of(below).is_ok(), released);
        world.settle();
        let seen = report(&world);
        assert_eq!(steps(&seen.failed), if released { vec![] } else { vec![order] });
        assert_eq!(seen.compensated.first().map(|entry| entry.verified), released.then_some(None), "none is declared");
    }
}

#[test]
fn a_later_rollback_retries_only_what_cannot_have_happened() {
    let mut world = world();
    let note = world.done("note.add", r#"{"name":"n"}"#, "{}");
    let checked = world.done("fs.write_file", "{}", TOKEN);
    let order = world.done("order.create", "{}", ORDER);
    world.rollback(1).unwrap();
    fail(&mut world, note);
    world.attempt(checked, CallEnd::Success);
    for _ in 0..3 {
        world.read(checked, mismatch());
    }
    world.attempt(order, unknown());
    world.settle();
    world.rollback(2).unwrap();
    assert_eq!(world.ready(), [note], "success with a mismatch and unknown outcomes may have happened");
    fail(&mut world, note);
    world.settle();
    world.resolve(Target::Undo, order, Outcome::Failed, "").unwrap();
    assert_eq!(world.ready(), [order], "this rollback has not tried it yet, and now it is known not to have happened");
    world.attempt(order, CallEnd::Success);
    world.settle();
    world.rollback(3).unwrap();
    assert_eq!(world.ready(), [note]);
    world.attempt(note, CallEnd::Success);
    world.settle();
    assert_eq!(world.run.step(order).unwrap().undo.as_ref().unwrap().attempts(), 2);
    let seen = report(&world);
    assert_eq!((steps(&seen.compensated), steps(&seen.failed)), (vec![order, note], vec![checked]));
}

#[test]
fn another_attempt_needs_its_turn_as_the_first_one_did() {
    let mut world = world();
    let below = world.done("fs.write_file", "{}", TOKEN);
    let above = world.begin("fs.write_file", "{}").step;
    world.resolve(Target::Step, above, Outcome::Failed, "").unwrap();
    world.rollback(1).unwrap();
    world.random = 150;
    world.attempt(below, known());
    let Phase::Waiting { at } = world.phase(below) else { panic!() };
    // The step above did happen after all: its undo comes first.
    assert!(world.complete(above, Outcome::Succeeded, TOKEN).unwrap().disputed);
    assert_eq!(world.run.turn_of(below), Err(NotReady::Deferred));
    world.settle();
    world.now = at;
    world.undo(below, &UndoCommand::Attempt).unwrap();
    assert_eq!((world.log.last().unwrap().event.kind(), world.phase(below)), ("undo.deferred", Phase::Idle));
    world.resolve(Target::Step, above, Outcome::Succeeded, TOKEN).unwrap();
    assert_eq!(world.ready(), [above]);
    world.undo_all();
    assert_eq!(steps(&report(&world).compensated), [above, below]);
    assert_eq!(world.run.step(below).unwrap().undo.as_ref().unwrap().attempts(), 2);
}

// --- starting

#[test]
fn a_rollback_is_started_once_per_request() {
    let mut world = world();
    world.done("note.add", r#"{"name":"n"}"#, "{}");
    let first = world.rollback_command(1, None);
    world.rollback(1).unwrap();
    let before = world.log.len();
    world.command(&RunCommand::StartRollback(first.clone())).unwrap();
    assert_eq!(
        world.rollback(2).unwrap_err().to_string(),
        "run support:4821 is being rolled back already; see its report"
    );
    let mut other = first.clone();
    other.request = Some(request(1, 9));
    assert_eq!(world.command(&RunCommand::StartRollback(other)).unwrap_err(), RunReject::KeyReused);
    assert_eq!(world.log.len(), before);
    fail(&mut world, 1);
    world.settle();
    world.rollback(2).unwrap();
    fail(&mut world, 1);
    world.settle();
    // A late retry of the first request starts nothing.
    let before = world.log.len();
    world.command(&RunCommand::StartRollback(first)).unwrap();
    assert_eq!(world.log.len(), before);
    assert_eq!(world.run.rollback().unwrap().id, rollback_id(2));
}

#[test]
fn what_cannot_be_started_is_refused() {
    let mut world = world();
    world.done("note.add", r#"{"name":"n"}"#, "{}");
    let refused = world.rollback_of(1, Some(vec![7])).unwrap_err();
    assert_eq!(refused.to_string(), "run support:4821 has no step 7");
    assert!(matches!(world.rollback_of(1, Some(vec![])), Err(RunReject::Invalid(_))));
    let beyond = StartRollback { to_step: Some(2), ..world.rollback_command(1, None) };
    assert!(matches!(world.command(&RunCommand::StartRollback(beyond)), Err(RunReject::Invalid(_))));
    let worker = StartRollback { executor: Executor::Worker, ..world.rollback_command(1, None) };
    assert!(matches!(world.command(&RunCommand::StartRollback(worker)), Err(RunReject::Invalid(_))));
    world.rollback(1).unwrap();
    world.undo_all();
    let refused = world.rollback(2).unwrap_err();
    assert_eq!(refused.to_string(), "run support:4821 is rolled_back and takes no further rollback");
}

// --- selection

#[test]
fn a_selection_leaves_the_rest_for_another_rollback() {
    let mut world = world();
    let (first, second) = (world.done("note.add", r#"{"name":"a"}"#, "{}"), world.done("mail.send", "{}", "{}"));
    let third = world.done("note.add", r#"{"name":"b"}"#, "{}");
    let beyond = StartRollback { to_step: Some(third), ..world.rollback_command(1, None) };
    world.command(&RunCommand::StartRollback(beyond)).unwrap();
    assert_eq!(world.ready(), [third]);
    world.undo_all();
    let seen = report(&world);
    assert_eq!((steps(&seen.compensated), steps(&seen.skipped)), (vec![third], vec![second, first]));
    assert!(seen.skipped.iter().all(|entry| entry.reason == "not selected"));
    assert!(seen.complete, "what was asked for is done");
    assert_eq!(world.run.status(), RunStatus::PartlyRolledBack, "and the rest can still be undone");
    world.rollback(2).unwrap();
    world.undo_all();
    let seen = report(&world);
    assert_eq!((steps(&seen.compensated), steps(&seen.not_undoable)), (vec![third, first], vec![second]));
    assert!(!seen.complete && seen.verified);
    assert_eq!(world.run.status(), RunStatus::PartlyRolledBack);
}

#[test]
fn a_selection_does_not_hide_what_an_earlier_rollback_left_behind() {
    let mut world = world();
    let (below, above) = (world.done("order.create", "{}", ORDER), world.done("order.create", "{}", ORDER));
    let done = world.done("note.add", r#"{"name":"n"}"#, "{}");
    world.rollback_of(1, Some(vec![above, done])).unwrap();
    world.attempt(done, CallEnd::Success);
    world.attempt(above, unknown());
    world.settle();
    world.rollback_of(2, Some(vec![below])).unwrap();
    world.settle();
    let seen = report(&world);
    assert_eq!((steps(&seen.undo_uncertain), steps(&seen.deferred)), (vec![above], vec![below]));
    assert_eq!(steps(&seen.compensated), [done]);
    assert!(!seen.complete);
    // Nor is a failed step tried again that this rollback left out.
    world.resolve(Target::Undo, above, Outcome::Failed, "").unwrap();
    world.settle();
    world.rollback_of(3, Some(vec![below])).unwrap();
    assert!(world.ready().is_empty());
    world.settle();
    assert_eq!(steps(&report(&world).failed), [above]);
}

// --- approvals of undos

// E4
#[test]
fn an_undo_that_needs_approval_is_listed_and_does_not_keep_the_rollback_open() {
    let mut world = world();
    let below = world.done("vault.put", r#"{"key":"a"}"#, "{}");
    let above = world.done("vault.put", r#"{"key":"b"}"#, "{}");
    let note = world.done("note.add", r#"{"name":"n"}"#, "{}");
    world.rollback(1).unwrap();
    assert_eq!((world.ready(), world.run.turn_of(above)), (vec![note], Err(NotReady::AwaitingApproval)));
    assert!(world.undo(above, &UndoCommand::Attempt).is_err());
    world.undo_all();
    let seen = report(&world);
    assert_eq!((steps(&seen.awaiting_approval), steps(&seen.deferred)), (vec![above], vec![below]));
    assert!(!seen.complete && !finished(&world).complete);
    assert_eq!(world.run.status(), RunStatus::PartlyRolledBack);
}

// --- report

#[test]
fn the_report_is_true_before_during_and_after() {
    let mut world = world();
    let file = world.done("fs.write_file", "{}", TOKEN);
    let before = report(&world);
    assert_eq!((before.complete, before.verified, before.rollback_id, before.status), (false, false, None, "active"));
    world.rollback(1).unwrap();
    let seen = report(&world);
    assert_eq!((steps(&seen.in_progress), seen.complete, seen.status), (vec![file], false, "rolling_back"));
    world.undo_all();
    let seen = report(&world);
    assert_eq!((steps(&seen.compensated), seen.complete, seen.verified), (vec![file], true, true));
    assert_eq!((seen.compensated[0].attempts, seen.compensated[0].verified), (1, Some(true)));
    let done = finished(&world);
    assert!(done.complete && done.verified);
}

// F6
#[test]
fn an_unverified_compensation_is_complete_and_not_verified() {
    let mut world = world();
    let file = world.done("fs.write_file", "{}", TOKEN);
    world.unserved.insert(reversi_proto::testing::tool("fs.stat"));
    world.rollback(1).unwrap();
    world.attempt(file, CallEnd::Success);
    world.settle();
    let seen = report(&world);
    assert_eq!((seen.complete, seen.verified, seen.compensated[0].verified), (true, false, Some(false)));
    assert_eq!(world.run.status(), RunStatus::RolledBack);
}

#[test]
fn a_declared_read_back_that_never_ran_is_not_verified() {
    let mut world = world();
    let below = world.done("order.create_checked", "{}", ORDER);
    world.begin("order.create", "{}"); // in flight, and no read-back is declared for it
    world.rollback(1).unwrap();
    world.settle();
    let seen = report(&world);
    assert_eq!((steps(&seen.deferred), seen.verified, finished(&world).verified), (vec![below], false, false));
}

// D1 D5 E8
#[test]
fn what_can_never_be_undone_is_listed() {
    let mut world = world();
    let (mail, lost) = (world.done("mail.send", "{}", "{}"), world.done("fs.write_file", "{}", "{}"));
    let read = world.done("fs.stat", "{}", "{}");
    world.rollback(1).unwrap();
    world.settle();
    let seen = report(&world);
    assert_eq!(
        (steps(&seen.not_undoable), steps(&seen.unrecoverable), steps(&seen.skipped)),
        (vec![mail], vec![lost], vec![read])
    );
    assert!(!seen.complete && !seen.verified, "a declared read-back never ran");
    assert_eq!(world.run.status(), RunStatus::PartlyRolledBack);
}

// --- disputes

#[test]
fn a_dispute_of_an_undone_step_stays_in_the_report_until_it_is_noted() {
    let mut world = world();
    let note = world.begin("note.add", r#"{"name":"n"}"#).step;
    world.resolve(Target::Step, note, Outcome::Succeeded, "").unwrap();
    world.rollback(1).unwrap();
    world.undo_all();
    assert!(report(&world).complete);
    let answer = world.complete(note, Outcome::Failed, "").unwrap();
    assert_eq!((answer.status, answer.disputed), ("compensated", true));
    world.settle();
    let seen = report(&world);
    assert_eq!((steps(&seen.disputed), steps(&seen.compensated), seen.complete), (vec![note], vec![note], false));
    assert_eq!((world.run.status(), finished(&world).complete), (RunStatus::PartlyRolledBack, false));
    let refused = world.resolve(Target::Step, note, Outcome::Failed, "").unwrap_err();
    assert!(refused.to_string().contains("note the dispute"), "{refused}");
    assert_eq!(world.resolve(Target::Step, note, Outcome::Succeeded, "").unwrap().status, "compensated");
    world.settle();
    let seen = report(&world);
    assert_eq!((steps(&seen.disputed), seen.complete, seen.status), (vec![], true, "rolled_back"));
    assert!(world.complete(note, Outcome::Failed, "").unwrap().disputed, "a retry of the same word");
    assert!(report(&world).complete);
}

#[test]
fn a_note_on_a_dispute_changes_nothing_else() {
    let mut world = world();
    let file = world.begin("fs.write_file", "{}").step;
    world.resolve(Target::Step, file, Outcome::Succeeded, TOKEN).unwrap();
    world.rollback(1).unwrap();
    world.attempt(file, CallEnd::Success);
    world.complete(file, Outcome::Failed, "").unwrap();
    let before = world.run.step(file).unwrap().clone();
    world.resolve(Target::Step, file, Outcome::Succeeded, "").unwrap();
    let after = world.run.step(file).unwrap().clone();
    assert_eq!(after, reversi_proto::run::Step { disputed: false, ..before });
    assert_eq!(world.spec(file).args.as_str(), TOKEN, "the undo that goes on still has what it needs");
}

#[test]
fn a_dispute_after_a_complete_rollback_opens_it_again() {
    let mut world = world();
    let file = world.begin("fs.write_file", "{}").step;
    world.resolve(Target::Step, file, Outcome::Failed, "").unwrap();
    world.rollback(1).unwrap();
    world.settle();
    assert_eq!(world.run.status(), RunStatus::RolledBack);
    world.complete(file, Outcome::Succeeded, TOKEN).unwrap();
    world.settle();
    assert_eq!((world.run.status(), steps(&report(&world).unresolved)), (RunStatus::PartlyRolledBack, vec![file]));
    world.resolve(Target::Step, file, Outcome::Succeeded, TOKEN).unwrap();
    assert_eq!(world.ready(), [file], "and the step is undone after all");
    world.undo_all();
    assert_eq!(world.run.status(), RunStatus::RolledBack);
}

// --- the seal

#[test]
fn a_sealed_run_is_rolled_back_and_sealed_again() {
    let mut world = world();
    let file = world.done("fs.write_file", "{}", TOKEN);
    world.command(&RunCommand::Seal).unwrap();
    world.rollback(1).unwrap();
    let refused = world.command(&RunCommand::Seal).unwrap_err();
    assert_eq!(refused.to_string(), "run support:4821 is rolling_back and takes no seal");
    let before = world.log.len();
    world.attempt(file, CallEnd::Success);
    world.read(file, ReadEnd::Match);
    world.settle();
    let expected = ["undo.attempted", "undo.succeeded", "undo.verified", "rollback.finished", "run.sealed"];
    assert_eq!(world.kinds_after(before), expected);
    let Event::Run(RunEvent::Sealed(body, ())) = &world.log.last().unwrap().event else { panic!() };
    assert_eq!(body.records, 9, "everything before it, the first seal included");
    assert_eq!(world.run.status(), RunStatus::RolledBack);
    assert_eq!(world.run.effects(), []);
}

#[test]
fn a_run_that_was_never_sealed_is_not_sealed_by_a_rollback() {
    let mut world = world();
    world.done("note.add", r#"{"name":"n"}"#, "{}");
    world.begin("fs.write_file", "{}");
    world.rollback(1).unwrap();
    world.undo_all();
    assert_eq!(world.log.last().unwrap().event.kind(), "rollback.finished");
    assert_eq!(world.command(&RunCommand::Seal).unwrap_err(), RunReject::StepOpen { step: 2 });
    world.complete(2, Outcome::Failed, "").unwrap();
    world.settle();
    world.command(&RunCommand::Seal).unwrap();
    assert_eq!(world.run.status(), RunStatus::RolledBack, "its status stays");
}

#[test]
fn settling_after_a_seal_seals_again() {
    let mut world = world();
    let order = world.done("order.create", "{}", ORDER);
    world.command(&RunCommand::Seal).unwrap();
    world.rollback(1).unwrap();
    world.attempt(order, unknown());
    world.settle();
    assert_eq!(world.log.last().unwrap().event.kind(), "run.sealed", "sealed with what is left");
    world.resolve(Target::Undo, order, Outcome::Succeeded, "").unwrap();
    let before = world.log.len();
    world.settle();
    assert_eq!(world.kinds_after(before), ["rollback.finished", "run.sealed"]);
    assert!(report(&world).complete);
}
