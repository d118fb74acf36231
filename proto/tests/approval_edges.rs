//! Grants that looked good and were not: what was asked about another undo, what one person lent twice, what came too
//! late, and what a preview must not show.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::approval::{ApprovalStatus, USE_WITHIN_MS};
use reversi_proto::event::v1::{Mode, Outcome, Role, Target};
use reversi_proto::ids::{ApprovalId, StepNo};
use reversi_proto::run::{BeginAnswer, DecisionWord};
use reversi_proto::testing::{World, at, codes};

use ApprovalStatus::{Approved, Cancelled, Denied, Open};

const WIRE: &str = r#"{"amount":5}"#;
const PLAIN: &str = "compensation: { tool: safe.clear, argument_map: { key: $args.key }, requires_approval: true }";
/// The undo takes over a value of the result, and two of the arguments that nobody may see.
const TAKES_OVER: &str = "audit: { redaction: [$args.pin, $args.owner.mail] }
  compensation:
    tool: safe.clear
    requires_approval: true
    argument_map: { key: $result.key, code: $args.pin, who: $args.owner }";

fn undo_request(world: &World, step: StepNo) -> ApprovalId {
    let of = world
        .run
        .approvals()
        .filter(|approval| approval.ask().is_some_and(|ask| (ask.target, ask.step) == (Target::Undo, step)));
    of.last().unwrap().id().clone()
}

fn named(world: &mut World, id: &ApprovalId) -> BeginAnswer {
    let mut call = world.call("money.wire", WIRE);
    call.approval = Some(id.clone());
    world.begin_call(call).unwrap()
}

fn taking_over() -> World {
    let mut world = World::asking(Mode::Enforce);
    world.redeclare(PLAIN, TAKES_OVER);
    world
}

#[test]
fn a_disputed_outcome_ends_what_was_asked_about_its_undo() {
    let mut world = taking_over();
    let args = r#"{"pin":"1234","owner":{"mail":"m@example.com","name":"Mia"}}"#;
    let step = world.begin("safe.put", args).step;
    world.resolve(Target::Step, step, Outcome::Succeeded, r#"{"key":"old"}"#).unwrap();
    world.rollback(1).unwrap();
    world.settle();
    let before = undo_request(&world, step);
    world.approve(&before, "fred").unwrap();
    world.complete(step, Outcome::Failed, "").unwrap();
    assert_eq!(world.standing(&before), Cancelled);
    // Settled otherwise, it is undone with another key than fred was shown: his yes is not taken over.
    world.resolve(Target::Step, step, Outcome::Succeeded, r#"{"key":"new"}"#).unwrap();
    world.settle();
    let after = undo_request(&world, step);
    assert!(after != before && world.approval(&after).votes().is_empty());
    assert_eq!(world.standing(&after), Open);
    let shown = world.approval(&after).view(&world.archive).unwrap().preview.arguments.unwrap();
    assert!(shown.contains("new") && !shown.contains("old"), "{shown}");
}

#[test]
fn the_preview_of_an_undo_hides_what_the_call_hid() {
    let mut world = taking_over();
    let args = r#"{"pin":"1234","owner":{"mail":"m@example.com","name":"Mia"}}"#;
    let step = world.done("safe.put", args, r#"{"key":"k"}"#);
    world.rollback(1).unwrap();
    world.settle();
    let id = undo_request(&world, step);
    let preview = world.approval(&id).view(&world.archive).unwrap().preview;
    let shown = preview.arguments.unwrap();
    assert!(shown.contains("Mia") && shown.contains("\"k\""), "{shown}");
    assert!(!shown.contains("1234") && !shown.contains("m@example.com"), "{shown}");
    assert_eq!(preview.redacted_values, 2);
}

#[test]
fn what_one_person_lent_twice_is_one_vote() {
    let mut world = World::asking(Mode::Enforce);
    let bea = world.give_key("bea", "bea", &[Role::Approver], &[]);
    world.delegate(1, ("fred", "anna"), &["finance"], (0, 3_600_000));
    world.delegate(2, ("fred", "bea"), &["finance"], (0, 3_600_000));
    let id = world.asked("money.wire", WIRE);
    world.approve(&id, "anna").unwrap();
    let mut say = reversi_proto::testing::say("anna");
    say.who = bea;
    world.say(&id, &reversi_proto::approval::ApprovalCommand::Approve(say)).unwrap();
    let lenders: Vec<_> = world.approval(&id).votes().iter().map(|vote| vote.on_behalf_of.as_deref()).collect();
    assert_eq!(lenders, [Some("fred"), Some("fred")]);
    assert_eq!(world.standing(&id), Open, "both speak with the one word of fred");
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.standing(&id), Approved);
}

#[test]
fn a_grant_that_is_named_too_late_is_expired_before_its_timer_says_so() {
    let mut world = World::asking(Mode::Enforce);
    let id = world.asked("money.wire", WIRE);
    world.approve(&id, "fred").unwrap();
    world.approve(&id, "fiona").unwrap();
    world.now = at(USE_WITHIN_MS);
    let answer = named(&mut world, &id);
    assert_eq!((codes(&answer.findings), answer.approval), (vec!["approval.expired"], None));
}

#[test]
fn naming_a_grant_that_is_stale_asks_nobody_where_too_few_are_left() {
    let mut world = World::asking(Mode::Enforce);
    let id = world.asked("money.wire", WIRE);
    world.approve(&id, "fred").unwrap();
    world.approve(&id, "fiona").unwrap();
    world.revoke_key("fred");
    world.revoke_key("carl");
    let answer = named(&mut world, &id);
    assert_eq!((answer.decision, codes(&answer.findings)), (DecisionWord::Block, vec!["approval.unreachable"]));
    assert_eq!(answer.approval, None, "it would wait for ever");
}

#[test]
fn a_yes_in_advance_does_not_lift_a_no_to_an_undo() {
    let mut world = World::asking(Mode::Enforce);
    let step = world.done("vault.put", r#"{"key":"k"}"#, "{}");
    world.rollback(1).unwrap();
    world.settle();
    let id = undo_request(&world, step);
    world.deny(&id, "anna").unwrap();
    let otto = world.give_key("otto", "otto", &[Role::Operator], &[]);
    world.pre_approve(90, "vault.remove", otto).unwrap();
    world.settle();
    assert_eq!((world.standing(&id), world.ready()), (Denied, vec![]));
    let report = world.run.report(&world.archive);
    assert_eq!(
        report.failed.iter().map(|entry| entry.reason.as_str()).collect::<Vec<_>>(),
        ["the approval of its undo was denied"]
    );
}
