//! Approvals of undos, told in stories: who is asked and when, what goes on by itself, and that no inverse is ever
//! called without a grant that is good at that moment.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::aggregate::Aggregate as _;
use reversi_proto::approval::{ApprovalCommand, ApprovalReject, ApprovalStatus, USE_WITHIN_MS};
use reversi_proto::event::v1::{Mode, Role, Target};
use reversi_proto::event::{Event, UndoEvent};
use reversi_proto::ids::{ApprovalId, StepNo, StreamId};
use reversi_proto::run::{Report, RunCommand, RunEffect, RunReject, RunStatus};
use reversi_proto::testing::{World, principal, say};
use reversi_proto::undo::{CallEnd, Phase, UndoCommand};

use ApprovalStatus::{Approved, Cancelled, Consumed, Denied, Expired, Open, Revoked};

const MINUTE: u64 = 60_000;

type Change<'c> = &'c dyn Fn(&mut World);
type End<'e> = &'e dyn Fn(&mut World, &ApprovalId);

/// A thing in the safe, whose undo two of finance must approve; and the request of the rollback that began.
fn safe() -> (World, StepNo, ApprovalId) {
    let mut world = World::asking(Mode::Enforce);
    let step = world.done("safe.put", r#"{"key":"k"}"#, "{}");
    world.rollback(1).unwrap();
    world.settle();
    let id = asked(&world, step).unwrap();
    (world, step, id)
}

/// The same with both votes.
fn granted() -> (World, StepNo, ApprovalId) {
    let (mut world, step, id) = safe();
    world.approve(&id, "fred").unwrap();
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.standing(&id), Approved);
    (world, step, id)
}

/// The request that was made last for the undo of a step.
fn asked(world: &World, step: StepNo) -> Option<ApprovalId> {
    let requested = |approval: &&reversi_proto::approval::Approval| {
        approval.ask().is_some_and(|ask| ask.target == Target::Undo && ask.step == step)
    };
    world.run.approvals().filter(requested).last().map(|approval| approval.id().clone())
}

fn report(world: &World) -> Report {
    world.run.report(&world.archive)
}

/// The approvals that the attempts of undos used up.
fn attempts(world: &World) -> Vec<Option<ApprovalId>> {
    let of = |event: &Event| {
        if let Event::Undo(UndoEvent::Attempted(body, ())) = event { Some(body.approval.clone()) } else { None }
    };
    world.log.iter().filter_map(|logged| of(&logged.event)).collect()
}

#[test]
fn it_is_asked_for_once_its_turn_has_come_and_only_once() {
    let mut world = World::asking(Mode::Enforce);
    let below = world.done("safe.put", r#"{"key":"a"}"#, "{}");
    let above = world.done("safe.put", r#"{"key":"b"}"#, "{}");
    let note = world.done("note.add", r#"{"name":"n"}"#, "{}");
    world.rollback(1).unwrap();
    assert_eq!(world.run.effects(), [RunEffect::DriveUndo(note), RunEffect::RequestApproval(above)]);
    world.command(&RunCommand::RequestUndoApproval(below)).unwrap();
    assert_eq!(asked(&world, below), None, "it is not its turn");
    world.command(&RunCommand::RequestUndoApproval(above)).unwrap();
    let before = world.log.len();
    world.command(&RunCommand::RequestUndoApproval(above)).unwrap();
    assert_eq!(world.log.len(), before, "said twice");
    world.undo_all();
    let seen = report(&world);
    assert_eq!((seen.awaiting_approval[0].step, seen.deferred[0].step), (above, below));
    assert_eq!((world.run.status(), seen.complete), (RunStatus::PartlyRolledBack, false));
    let first = asked(&world, above).unwrap();
    let ask = world.approval(&first).ask().unwrap();
    assert_eq!((ask.tool.as_str(), ask.args.as_ref().unwrap().as_str()), ("safe.clear", r#"{"key":"b"}"#));
    for person in ["fred", "fiona"] {
        world.approve(&first, person).unwrap();
    }
    world.attempt(above, CallEnd::Success);
    world.settle();
    assert!(asked(&world, below).is_some(), "now it is its turn");
}

#[test]
fn it_goes_on_by_itself_once_it_is_granted() {
    let (mut world, step, id) = safe();
    assert_eq!(world.run.status(), RunStatus::PartlyRolledBack);
    world.approve(&id, "fred").unwrap();
    assert_eq!((world.run.status(), world.ready()), (RunStatus::PartlyRolledBack, vec![]));
    world.approve(&id, "fiona").unwrap();
    assert_eq!((world.run.status(), world.ready()), (RunStatus::RollingBack, vec![step]));
    world.undo_all();
    assert!(report(&world).complete);
    assert_eq!(world.run.status(), RunStatus::RolledBack);
}

#[test]
fn the_first_attempt_uses_the_grant_in_one_append_and_it_is_good_for_all_attempts() {
    let (mut world, step, id) = granted();
    let skip = world.log.len();
    world.undo(step, &UndoCommand::Attempt).unwrap();
    assert_eq!(world.kinds_after(skip), ["undo.attempted"]);
    assert!(world.log[skip].streams.contains(&StreamId::Approval(id.clone())));
    assert_eq!(world.standing(&id), Consumed);
    world.call_ended(step, CallEnd::KnownFailure("refused".to_owned()));
    let Phase::Waiting { at } = world.phase(step) else { panic!("{:?}", world.phase(step)) };
    world.now = at;
    for key in ["fred", "fiona", "carl"] {
        world.revoke_key(key);
    }
    world.attempt(step, CallEnd::Success);
    world.settle();
    assert_eq!(attempts(&world), [Some(id), None]);
    assert!(report(&world).complete);
}

#[test]
fn a_no_or_silence_is_reported_as_failed_with_its_reason_and_a_new_rollback_asks_anew() {
    let ends: [(&str, ApprovalStatus, End); 4] = [
        ("the approval of its undo was denied", Denied, &|world, id| world.deny(id, "fred").unwrap()),
        ("the approval of its undo was revoked", Revoked, &|world, id| world.revoke(id, "ada").unwrap()),
        ("the approval of its undo expired", Expired, &|world, id| {
            world.wait(10 * MINUTE);
            assert_eq!(world.fire(id), 1);
        }),
        ("the approval of its undo expired", Expired, &|world, id| {
            world.approve(id, "fred").unwrap();
            world.approve(id, "fiona").unwrap();
            world.wait(USE_WITHIN_MS);
            assert_eq!(world.fire(id), 1);
        }),
    ];
    for (reason, status, end) in ends {
        let (mut world, step, id) = safe();
        end(&mut world, &id);
        world.settle();
        let seen = report(&world);
        assert_eq!((seen.failed.len(), seen.failed[0].reason.as_str()), (1, reason));
        assert_eq!((seen.awaiting_approval.len(), seen.complete, world.standing(&id)), (0, false, status));
        assert_eq!((world.ready(), attempts(&world)), (vec![], vec![]), "{reason}");
        world.rollback(2).unwrap();
        world.settle();
        let again = asked(&world, step).unwrap();
        assert_ne!(again, id, "{reason}");
        assert_eq!((world.standing(&again), report(&world).failed.len()), (Open, 0), "{reason}");
    }
}

#[test]
fn a_new_rollback_cancels_what_the_one_before_asked_for() {
    for with_votes in [false, true] {
        let (mut world, step, id) = safe();
        if with_votes {
            world.approve(&id, "fred").unwrap();
        }
        world.rollback(2).unwrap();
        world.settle();
        assert_eq!(world.standing(&id), Cancelled);
        let again = asked(&world, step).unwrap();
        assert_eq!((again != id, world.approval(&again).votes().len()), (true, 0), "votes are not carried over");
    }
}

#[test]
fn who_starts_the_rollback_has_no_vote_and_the_runs_owner_has() {
    let (mut world, _, id) = safe();
    let mut starter = say("fred");
    starter.who = world.give_key("olga-votes", "olga", &[Role::Approver], &["finance"]);
    let own = Err(ApprovalReject::OwnRequest { person: "olga".to_owned() });
    assert_eq!(world.say(&id, &ApprovalCommand::Approve(starter)), own);
    world.approve(&id, "owner").unwrap();
    world.approve(&id, "fred").unwrap();
    assert_eq!(world.standing(&id), Approved);
}

#[test]
fn the_rules_are_those_of_the_inverse_else_of_the_tool_else_any_approver() {
    let (world, _, id) = safe();
    let rules = &world.approval(&id).ask().unwrap().rules;
    assert_eq!(
        (rules.quorum, rules.roles.as_slice(), rules.timeout_ms),
        (2, &["finance".to_owned()][..], Some(10 * MINUTE))
    );
    let mut world = World::asking(Mode::Enforce);
    let step = world.done("vault.put", r#"{"key":"k"}"#, "{}");
    world.rollback(1).unwrap();
    world.settle();
    let id = asked(&world, step).unwrap();
    world.approve(&id, "anna").unwrap();
    assert_eq!(world.ready(), [step]);
}

#[test]
fn the_rules_of_the_tool_stand_in_for_an_inverse_that_asks_nobody() {
    let mut world = World::asking(Mode::Enforce);
    world.redeclare(
        "argument_map: { seat: $args.seat } }",
        "argument_map: { seat: $args.seat }, requires_approval: true }",
    );
    let call = world.asked("seat.take", r#"{"seat":"1"}"#);
    world.approve(&call, "fred").unwrap();
    let step = world.done("seat.take", r#"{"seat":"1"}"#, "{}");
    world.rollback(1).unwrap();
    world.settle();
    let id = asked(&world, step).unwrap();
    assert_eq!(world.approval(&id).ask().unwrap().rules.roles, ["finance"]);
}

/// Whatever happens between the grant and the attempt: without a good grant nothing is called.
#[test]
fn nothing_is_called_by_a_grant_that_is_good_no_more() {
    let voids: [(&str, Change); 3] = [
        ("a voter's key is revoked", &|world| world.revoke_key("fred")),
        ("the voters are linked now", &|world| {
            world.delegate(1, ("fred", "fiona"), &["finance"], (0, 24 * 60 * MINUTE));
        }),
        ("its time is over and the timer late", &|world| {
            world.wait(USE_WITHIN_MS);
        }),
    ];
    for (what, void) in voids {
        let (mut world, step, id) = granted();
        void(&mut world);
        assert!(world.undo(step, &UndoCommand::Attempt).is_err(), "{what}");
        assert_eq!((attempts(&world), world.ready()), (vec![], vec![]), "{what}");
        world.settle();
        assert_ne!(world.standing(&id), Approved, "{what}: it does not lie about");
        assert_eq!(attempts(&world), [], "{what}");
        let seen = report(&world);
        assert_eq!(seen.awaiting_approval.len() + seen.failed.len(), 1, "{what}: and the report says so");
    }
}

#[test]
fn who_lost_their_role_is_replaced_and_the_rollback_goes_on() {
    let (mut world, step, id) = granted();
    world.revoke_key("fred");
    world.give_key("frida", "frida", &[Role::Approver], &["finance"]);
    world.settle();
    let again = asked(&world, step).unwrap();
    assert_ne!(again, id, "asked anew");
    let mut frida = say("fred");
    frida.who = world.give_key("frida2", "frida", &[Role::Approver], &["finance"]);
    world.approve(&again, "fiona").unwrap();
    world.say(&again, &ApprovalCommand::Approve(frida)).unwrap();
    world.undo_all();
    assert_eq!(attempts(&world), [Some(again)]);
    assert!(report(&world).complete);
}

#[test]
fn a_withdrawn_vote_stops_it_before_the_first_attempt() {
    let (mut world, step, id) = granted();
    world.withdraw(&id, "fred").unwrap();
    assert_eq!(world.ready(), Vec::<StepNo>::new());
    assert!(world.undo(step, &UndoCommand::Attempt).is_err());
    world.settle();
    assert_eq!(report(&world).awaiting_approval.len(), 1);
    world.approve(&id, "fred").unwrap();
    world.undo_all();
    assert_eq!(attempts(&world), [Some(id)]);
}

#[test]
fn an_undo_can_be_approved_in_advance_but_not_by_who_starts_the_rollback() {
    let mut world = World::asking(Mode::Enforce);
    let step = world.done("vault.put", r#"{"key":"k"}"#, "{}");
    let otto = world.give_key("otto", "otto", &[Role::Operator], &[]);
    let own = world.pre_approve(90, "vault.remove", principal("olga")).unwrap();
    let mut alone = world.clone();
    alone.rollback(1).unwrap();
    alone.settle();
    assert_eq!((alone.ready(), alone.standing(&own)), (vec![], Approved), "olga starts it");
    assert!(asked(&alone, step).is_some());
    let pre = world.pre_approve(91, "vault.remove", otto).unwrap();
    world.rollback(1).unwrap();
    world.undo_all();
    assert_eq!(attempts(&world), [Some(pre)]);
    let refused = world.pre_approve(92, "vault.remove", principal("olga")).unwrap_err();
    assert!(matches!(refused, RunReject::NotActive { .. }), "nothing is left to undo: {refused}");
}

#[test]
fn a_yes_in_advance_that_is_not_enough_for_what_was_pinned_is_not_used() {
    let mut world = World::asking(Mode::Enforce);
    let step = world.done("safe.put", r#"{"key":"k"}"#, "{}");
    world.redeclare(
        "approval: { roles: [finance], quorum: 2, timeout: 10m }\n",
        "approval: { roles: [finance], timeout: 10m }\n",
    );
    let otto = world.give_key("otto", "otto", &[Role::Operator], &["finance"]);
    let pre = world.pre_approve(90, "safe.clear", otto).unwrap();
    world.rollback(1).unwrap();
    assert!(world.undo(step, &UndoCommand::Attempt).is_err());
    world.settle();
    assert_eq!(attempts(&world), []);
    assert_eq!(world.standing(&asked(&world, step).unwrap()), Open, "two of finance are asked");
    assert_ne!(world.standing(&pre), Consumed);
}

#[test]
fn a_halt_does_not_hold_up_an_undo() {
    let (mut world, _, id) = granted();
    world.halt("all");
    world.undo_all();
    assert_eq!((attempts(&world), report(&world).complete), (vec![Some(id)], true));
}

#[test]
fn an_undo_that_nobody_can_approve_does_not_wait_for_ever() {
    let mut world = World::asking(Mode::Enforce);
    let step = world.done("vault.put", r#"{"key":"k"}"#, "{}");
    for key in ["fred", "fiona", "carl", "anna", "owner"] {
        world.revoke_key(key);
    }
    world.rollback(1).unwrap();
    world.settle();
    let seen = report(&world);
    assert_eq!((seen.complete, world.run.status()), (false, RunStatus::PartlyRolledBack), "it comes to rest");
    assert_eq!(seen.awaiting_approval.len() + seen.failed.len(), 1);
    // People may be given keys at any time; until then the report keeps it in sight.
    world.give_key("new", "new", &[Role::Approver], &[]);
    let id = asked(&world, step).unwrap();
    let mut new = say("fred");
    new.who = world.give_key("new2", "new", &[Role::Approver], &[]);
    world.say(&id, &ApprovalCommand::Approve(new)).unwrap();
    world.undo_all();
    assert!(report(&world).complete);
}
