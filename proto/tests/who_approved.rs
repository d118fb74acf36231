//! Who approved what and when: the step views and the report tell it, for calls and for undos.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::approval::{ApprovalCommand, Approver};
use reversi_proto::event::v1::{Mode, Outcome};
use reversi_proto::ids::ApprovalId;
use reversi_proto::run::{DecisionWord, StepView};
use reversi_proto::testing::{World, principal};
use reversi_proto::time::Timestamp;

const CHARGE: &str = r#"{"order_id":"o1","amount":5,"card_token":"tok"}"#;

fn views(world: &World) -> Vec<StepView> {
    world.run.step_views(world.now, Timestamp::default())
}

fn approver(person: &str, at: Timestamp) -> Approver {
    Approver { person: person.to_owned(), at, on_behalf_of: None, break_glass: false }
}

/// A charge that was asked for, and the request.
fn asked(world: &mut World) -> ApprovalId {
    let blocked = world.begin("stripe.create_charge", CHARGE);
    assert_eq!(blocked.decision, DecisionWord::Block);
    blocked.approval.unwrap()
}

#[test]
fn a_call_tells_whose_yes_let_it_happen_once_it_did() {
    let mut world = World::new(Mode::Enforce);
    let approval = asked(&mut world);
    world.wait(1000).approve(&approval, "fred").unwrap();
    let first = world.now;
    world.wait(1000).approve(&approval, "fiona").unwrap();
    let second = world.now;
    assert_eq!(views(&world)[0].approved_by, [], "the call is still blocked");
    world.wait(1000);
    world.done("stripe.create_charge", CHARGE, r#"{"id":"ch_1"}"#);
    let views = views(&world);
    assert_eq!(views[0].approved_by, [], "what was refused stays refused");
    assert_eq!(views[1].approval_id.as_ref(), Some(&approval));
    assert_eq!(views[1].approved_by, [approver("fred", first), approver("fiona", second)]);
}

#[test]
fn a_broken_glass_is_told_with_its_time_before_and_after_the_review() {
    let mut world = World::new(Mode::Enforce);
    let approval = asked(&mut world);
    let reason = "production is down and nobody answers".to_owned();
    world.wait(1000).say(&approval, &ApprovalCommand::BreakGlass(principal("greta"), reason)).unwrap();
    let expected = [Approver { break_glass: true, ..approver("greta", world.now) }];
    let begun = world.begin("stripe.create_charge", CHARGE).step;
    world.complete(begun, Outcome::Succeeded, r#"{"id":"ch_1"}"#).unwrap();
    assert_eq!(views(&world)[1].approved_by, expected);
    world.wait(1000).say(&approval, &ApprovalCommand::Review(principal("anna"), "it was".to_owned())).unwrap();
    assert_eq!(views(&world)[1].approved_by, expected);
}

#[test]
fn a_call_that_asks_nobody_names_nobody() {
    let mut world = World::new(Mode::Enforce);
    world.done("order.create", "{}", r#"{"id":"o1"}"#);
    let view = &views(&world)[0];
    assert_eq!((view.approval_id.as_ref(), view.approved_by.as_slice()), (None, &[][..]));
}

#[test]
fn the_report_names_the_request_that_an_undo_waits_for_and_then_who_granted_it() {
    let mut world = World::new(Mode::Enforce);
    world.done("vault.put", r#"{"key":"k"}"#, "{}");
    world.rollback(1).unwrap();
    world.settle();
    let waiting = world.run.report(&world.archive).awaiting_approval;
    let approval = waiting[0].approval.clone().unwrap();
    assert_eq!(waiting[0].approved_by, []);
    world.wait(1000).approve(&approval, "anna").unwrap();
    let at = world.now;
    world.undo_all();
    let done = world.run.report(&world.archive).compensated;
    assert_eq!(done[0].approval.as_ref(), Some(&approval));
    assert_eq!(done[0].approved_by, [approver("anna", at)]);
    assert_eq!(views(&world)[0].approved_by, [], "the call itself asked nobody");
}
