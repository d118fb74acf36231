//! Votes on a request, told in stories: who may, how many, until when, and what ends it. What a grant is good for has a
//! file of its own.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::approval::{
    ApprovalCommand, ApprovalReject, ApprovalStatus, Glass, REVIEW_WITHIN_MS, USE_WITHIN_MS,
};
use reversi_proto::event::v1::{Mode, Role};
use reversi_proto::ids::ApprovalId;
use reversi_proto::run::{DecisionWord, RunCommand};
use reversi_proto::testing::{World, codes, principal, say};

const WIRE: &str = r#"{"amount":100,"to":"DE02"}"#;
const MINUTE: u64 = 60_000;

use ApprovalStatus::{Approved, Cancelled, Consumed, Denied, Expired, Open, Revoked};

fn world() -> World {
    World::asking(Mode::Enforce)
}

/// A request that needs two of finance, and the world in which it was made.
fn wire() -> (World, ApprovalId) {
    let mut world = world();
    let id = world.asked("money.wire", WIRE);
    (world, id)
}

/// The same, with both votes.
fn granted() -> (World, ApprovalId) {
    let (mut world, id) = wire();
    world.approve(&id, "fred").unwrap();
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.standing(&id), Approved);
    (world, id)
}

fn voters(world: &World, id: &ApprovalId) -> Vec<String> {
    world.approval(id).votes().iter().map(|vote| vote.person.clone()).collect()
}

#[allow(clippy::needless_pass_by_value)] // reads better where it is asked
fn not_eligible(refused: Result<(), ApprovalReject>) -> bool {
    matches!(refused, Err(ApprovalReject::NotEligible { .. }))
}

// --- quorum

// G3
#[test]
fn two_distinct_persons_make_a_quorum_of_two() {
    let (mut world, id) = wire();
    world.approve(&id, "fred").unwrap();
    assert_eq!(world.standing(&id), Open);
    let skip = world.log.len();
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.kinds_after(skip), ["approval.voted", "approval.granted"], "in one append");
    assert_eq!((world.standing(&id), voters(&world, &id)), (Approved, vec!["fred".to_owned(), "fiona".to_owned()]));
    let granted_at = world.now;
    assert_eq!(world.approval(&id).use_by(), Some(granted_at.plus_ms(USE_WITHIN_MS)));
}

// G3
#[test]
fn two_keys_of_one_person_are_one_vote() {
    let (mut world, id) = wire();
    let second = world.give_key("fred-phone", "fred", &[Role::Approver], &["finance"]);
    world.approve(&id, "fred").unwrap();
    let skip = world.log.len();
    let mut again = say("fred");
    again.who = second;
    world.say(&id, &ApprovalCommand::Approve(again)).unwrap();
    assert_eq!((world.kinds_after(skip), world.standing(&id)), (vec![], Open));
    world.approve(&id, "fiona").unwrap();
    let before = world.log.len();
    world.approve(&id, "fred").unwrap();
    assert_eq!(world.log.len(), before, "a retried vote on what is granted adds nothing");
}

#[test]
fn one_yes_is_enough_where_one_is_asked_for() {
    let mut world = world();
    let id = world.asked("money.tip", WIRE);
    world.approve(&id, "fred").unwrap();
    assert_eq!(world.standing(&id), Approved);
}

// --- who may

// G2
#[test]
fn a_voter_holds_one_of_the_roles_or_groups_now() {
    let (mut world, id) = wire();
    for person in ["carl", "anna", "olga", "greta", "ada"] {
        assert!(not_eligible(world.approve(&id, person)), "{person}");
        assert!(not_eligible(world.deny(&id, person)), "{person} can't say no either");
    }
    world.set_group("finance", &["carl"]);
    world.approve(&id, "carl").unwrap();
    world.set_group("finance", &[]);
    world.approve(&id, "fred").unwrap();
    assert_eq!((world.standing(&id), voters(&world, &id).len()), (Open, 2), "carl is of finance no more");
    world.set_group("finance", &["carl"]);
    world.approve(&id, "carl").unwrap();
    assert_eq!(world.standing(&id), Approved, "and is again");
}

// G2
#[test]
fn a_role_by_its_name_will_do_and_no_list_means_any_approver() {
    let mut world = world();
    world.redeclare(
        "approval: { roles: [finance], timeout: 10m }\n- {tool: book",
        "approval: { roles: [auditor] }\n- {tool: book",
    );
    let id = world.asked("money.tip", WIRE);
    assert!(not_eligible(world.approve(&id, "fred")));
    world.approve(&id, "anna").unwrap();
    let anybody = world.asked("mail.send", "{}");
    assert!(not_eligible(world.approve(&anybody, "olga")), "an operator is no approver");
    world.approve(&anybody, "carl").unwrap();
    assert_eq!(world.standing(&anybody), Approved);
}

#[test]
fn whoever_asks_has_no_vote_by_any_key() {
    let (mut world, id) = wire();
    let own = |refused: Result<(), ApprovalReject>| matches!(refused, Err(ApprovalReject::OwnRequest { .. }));
    assert!(own(world.approve(&id, "owner")));
    assert!(own(world.deny(&id, "owner")));
    let mut second = say("fred");
    second.who = world.give_key("owner-phone", "owner", &[Role::Approver], &["finance"]);
    assert!(own(world.say(&id, &ApprovalCommand::Approve(second))), "another key of the same person");
    let mut actor = say("fred");
    actor.who = world.give_key("bot-1", "bert", &[Role::Approver], &["finance"]);
    actor.who.actor.kind = reversi_proto::ids::ActorKind::Human;
    assert!(own(world.say(&id, &ApprovalCommand::Approve(actor))), "the actor itself");
}

#[test]
fn agents_never_decide() {
    let (mut world, id) = wire();
    let mut bot = say("fred");
    bot.who = world.give_key("bot-9", "fred", &[Role::Agent], &["finance"]);
    let who = bot.who.clone();
    assert_eq!(world.say(&id, &ApprovalCommand::Approve(bot.clone())), Err(ApprovalReject::Agent));
    assert_eq!(world.say(&id, &ApprovalCommand::Deny(bot)), Err(ApprovalReject::Agent));
    let reason = "the plant is on fire and nobody answers".to_owned();
    assert!(world.say(&id, &ApprovalCommand::BreakGlass(who.clone(), reason)).is_err());
    world.approve(&id, "fred").unwrap();
    assert_eq!(world.say(&id, &ApprovalCommand::Withdraw(who.clone())), Err(ApprovalReject::Agent));
    assert_eq!(world.say(&id, &ApprovalCommand::Revoke(who, "no".to_owned())), Err(ApprovalReject::Agent));
}

#[test]
fn another_key_of_an_approver_lends_nothing() {
    let (mut world, id) = wire();
    let mut reader = say("fred");
    reader.who = world.give_key("fred-reads", "fred", &[Role::Auditor], &["finance"]);
    assert!(not_eligible(world.say(&id, &ApprovalCommand::Approve(reader))));
}

#[test]
fn who_lost_their_key_meanwhile_does_not_count_at_the_quorum() {
    let (mut world, id) = wire();
    world.approve(&id, "fred").unwrap();
    world.revoke_key("fred");
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.standing(&id), Open, "fred is no approver any more");
    world.give_key("frida", "frida", &[Role::Approver], &["finance"]);
    let mut frida = say("fred");
    frida.who = world.give_key("frida2", "frida", &[Role::Approver], &["finance"]);
    world.say(&id, &ApprovalCommand::Approve(frida)).unwrap();
    assert_eq!(world.standing(&id), Approved);
}

#[test]
fn a_vote_on_something_else_than_what_was_seen_is_refused() {
    let (mut world, id) = wire();
    let mut seen = say("fred");
    seen.fingerprint = Some("000000000000".to_owned());
    let expected = world.approval(&id).fingerprint().unwrap();
    let refused = world.say(&id, &ApprovalCommand::Approve(seen.clone())).unwrap_err();
    let got = "000000000000".to_owned();
    assert_eq!(refused, ApprovalReject::Fingerprint { approval: id.clone(), expected: expected.clone(), got });
    assert!(world.say(&id, &ApprovalCommand::Deny(seen.clone())).is_err());
    seen.fingerprint = Some(expected);
    world.say(&id, &ApprovalCommand::Approve(seen)).unwrap();
    assert_eq!(voters(&world, &id), ["fred"]);
}

#[test]
fn what_nobody_asked_for_does_not_exist() {
    let mut world = world();
    let id = reversi_proto::testing::approval_id(99);
    assert_eq!(world.approve(&id, "fred"), Err(ApprovalReject::Absent(id)));
}

// --- deadlines

#[test]
fn it_escalates_level_by_level_and_expires_never_early() {
    let (mut world, id) = wire();
    world.approve(&id, "fred").unwrap();
    world.wait(10 * MINUTE - 1);
    assert_eq!((world.fire(&id), world.approval(&id).level()), (0, 0), "never early");
    world.wait(1);
    assert_eq!((world.fire(&id), world.approval(&id).level()), (1, 1));
    assert_eq!(world.fire(&id), 0, "the timer starts afresh");
    assert_eq!(voters(&world, &id), ["fred"], "votes are kept");
    world.wait(10 * MINUTE);
    world.fire(&id);
    assert_eq!((world.approval(&id).level(), world.standing(&id)), (2, Open));
    world.wait(10 * MINUTE - 1);
    assert_eq!(world.fire(&id), 0);
    world.wait(1);
    world.fire(&id);
    assert_eq!((world.standing(&id), world.fire(&id)), (Expired, 0), "and that is the end");
    assert!(world.approve(&id, "fiona").is_err());
    assert_ne!(world.asked("money.wire", WIRE), id, "it may be asked anew");
}

#[test]
fn each_level_widens_who_may() {
    let (mut world, id) = wire();
    assert!(not_eligible(world.approve(&id, "carl")), "not yet");
    world.wait(10 * MINUTE);
    world.fire(&id);
    world.approve(&id, "carl").unwrap();
    assert_eq!(world.standing(&id), Open);
    world.approve(&id, "fred").unwrap();
    assert_eq!(world.standing(&id), Approved, "finance may still, too");
}

#[test]
fn after_hours_of_downtime_it_climbs_one_level_per_firing() {
    let (mut world, id) = wire();
    world.wait(5 * 60 * MINUTE);
    world.fire(&id);
    assert_eq!(world.approval(&id).level(), 1);
    assert_eq!(world.fire(&id), 0, "the next level has its whole time");
}

#[test]
fn a_vote_at_the_last_deadline_or_later_is_too_late_even_before_the_timer_fires() {
    let mut world = world();
    let id = world.asked("money.tip", WIRE);
    let other = world.asked("money.tip", "{}");
    world.wait(10 * MINUTE - 1);
    world.approve(&other, "fred").unwrap();
    world.wait(1);
    let late = "approval apr_00000000000000000000000000000001 is expired and takes no vote";
    assert_eq!(world.approve(&id, "fred").unwrap_err().to_string(), late);
    assert!(world.deny(&id, "fred").is_err());
    assert!(world.break_glass(&id, "greta").is_err());
    world.fire(&id);
    assert_eq!((world.standing(&id), world.standing(&other)), (Expired, Approved));
}

#[test]
fn without_a_timeout_it_waits() {
    let mut world = world();
    let id = world.asked("mail.send", "{}");
    world.wait(365 * 24 * 60 * MINUTE);
    assert_eq!((world.fire(&id), world.standing(&id)), (0, Open));
    world.approve(&id, "anna").unwrap();
}

#[test]
fn a_grant_that_nobody_uses_is_void_after_a_quarter_of_an_hour() {
    let (mut world, id) = granted();
    world.wait(USE_WITHIN_MS - 1);
    assert_eq!(world.fire(&id), 0, "never early");
    let mut in_time = world.clone();
    assert_eq!(in_time.begin("money.wire", WIRE).decision, DecisionWord::Allow);
    world.wait(1);
    let mut unfired = world.clone();
    assert_eq!(unfired.begin("money.wire", WIRE).decision, DecisionWord::Block, "whether its timer fired or not");
    world.fire(&id);
    assert_eq!(world.standing(&id), Expired);
    assert_eq!(world.approval(&id).end().unwrap().1, "not used in time");
}

// --- what ends it

#[test]
fn one_no_wins_and_stays_for_that_call_in_that_run() {
    let (mut world, id) = granted();
    world.deny(&id, "fred").unwrap();
    assert_eq!((world.standing(&id), world.approval(&id).end().unwrap().0), (Denied, "fred"));
    let before = world.log.len();
    world.deny(&id, "fred").unwrap();
    assert_eq!(world.log.len(), before, "said twice");
    let late = "approval apr_00000000000000000000000000000001 is denied and takes no vote";
    assert_eq!(world.approve(&id, "fiona").unwrap_err().to_string(), late);
    assert!(world.deny(&id, "fiona").is_err());
    assert!(world.break_glass(&id, "greta").is_err(), "never against a no");
    let answer = world.begin("money.wire", WIRE);
    assert_eq!((codes(&answer.findings), answer.approval), (vec!["approval.denied"], None));
    world.wait(24 * 60 * MINUTE);
    assert_eq!(codes(&world.begin("money.wire", WIRE).findings), ["approval.denied"]);
    assert_ne!(world.asked("money.wire", "{}"), id, "another call is another matter");
}

#[test]
fn a_yes_is_taken_back_before_it_is_used() {
    let (mut world, id) = granted();
    world.withdraw(&id, "fred").unwrap();
    assert_eq!((world.standing(&id), voters(&world, &id)), (Open, vec!["fiona".to_owned()]));
    assert_eq!(world.begin("money.wire", WIRE).decision, DecisionWord::Block);
    assert!(matches!(world.withdraw(&id, "fred"), Err(ApprovalReject::NoVote { .. })));
    assert!(matches!(world.withdraw(&id, "carl"), Err(ApprovalReject::NoVote { .. })));
    world.approve(&id, "fred").unwrap();
    world.withdraw(&id, "fiona").unwrap();
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.begin("money.wire", WIRE).decision, DecisionWord::Allow);
    let late = "approval apr_00000000000000000000000000000001 is consumed and takes no withdrawal";
    assert_eq!(world.withdraw(&id, "fred").unwrap_err().to_string(), late);
    assert!(world.revoke(&id, "ada").is_err());
    world.approve(&id, "fred").unwrap();
    assert_eq!(world.standing(&id), Consumed, "a late retry of a vote changes nothing");
}

#[test]
fn a_grant_that_was_withdrawn_keeps_its_first_deadline() {
    let (mut world, id) = granted();
    world.wait(10 * MINUTE);
    world.withdraw(&id, "fred").unwrap();
    assert_eq!((world.fire(&id), world.approval(&id).level()), (1, 1));
}

#[test]
fn a_voter_or_an_admin_revokes() {
    let (world, id) = granted();
    for person in ["fred", "fiona", "ada"] {
        let mut world = world.clone();
        world.revoke(&id, person).unwrap();
        assert_eq!((world.standing(&id), world.approval(&id).end()), (Revoked, Some((person, "a mistake"))));
        assert_ne!(world.asked("money.wire", WIRE), id, "it may be asked anew");
    }
    for person in ["carl", "olga", "owner"] {
        let refused = world.clone().revoke(&id, person).unwrap_err();
        assert_eq!(refused, ApprovalReject::NotRevoker { approval: id.clone() }, "{person}");
    }
    let (mut world, id) = wire();
    world.revoke(&id, "ada").unwrap();
    assert_eq!(world.standing(&id), Revoked, "also while it is open");
}

#[test]
fn a_seal_and_a_rollback_end_what_is_pending_or_granted() {
    let (mut world, id) = granted();
    let open = world.asked("money.tip", WIRE);
    let mut sealed = world.clone();
    sealed.command(&RunCommand::Seal).unwrap();
    assert_eq!((sealed.standing(&id), sealed.standing(&open)), (Cancelled, Cancelled));
    assert_eq!(
        sealed.approve(&open, "fred").unwrap_err().to_string().split(" is ").nth(1),
        Some("cancelled and takes no vote")
    );
    let skip = world.log.len();
    world.rollback(1).unwrap();
    assert_eq!(world.kinds_after(skip), ["approval.cancelled", "approval.cancelled", "rollback.started"]);
    assert_eq!((world.standing(&id), world.standing(&open)), (Cancelled, Cancelled));
}

// --- emergencies

#[test]
fn in_an_emergency_one_person_grants_and_another_reviews() {
    let (mut world, id) = wire();
    world.approve(&id, "fred").unwrap();
    let short = ApprovalCommand::BreakGlass(principal("greta"), "  nobody answers me  ".to_owned());
    assert_eq!(world.say(&id, &short), Err(ApprovalReject::ReasonTooShort { got: 17 }));
    world.break_glass(&id, "greta").unwrap();
    assert_eq!((world.standing(&id), world.approval(&id).use_by()), (Approved, Some(world.now.plus_ms(USE_WITHIN_MS))));
    let owed: Vec<_> = world.access.reviews().cloned().collect();
    assert_eq!(
        (owed.len(), owed[0].person.as_str(), owed[0].review_by),
        (1, "greta", world.now.plus_ms(REVIEW_WITHIN_MS))
    );
    assert_eq!(world.begin("money.wire", WIRE).decision, DecisionWord::Allow);
    let own = Err(ApprovalReject::OwnRequest { person: "greta".to_owned() });
    assert_eq!(world.review(&id, "greta"), own, "another person");
    let own = Err(ApprovalReject::OwnRequest { person: "owner".to_owned() });
    assert_eq!(world.review(&id, "owner"), own, "and not who asked");
    world.review(&id, "anna").unwrap();
    assert!(matches!(world.approval(&id).glass(), Glass::Reviewed { by, .. } if by == "anna"));
    assert_eq!(world.access.reviews().count(), 0);
    assert!(matches!(world.review(&id, "anna"), Err(ApprovalReject::NoReview { .. })));
    world.wait(REVIEW_WITHIN_MS);
    assert_eq!(world.fire(&id), 0, "nothing is owed");
}

#[test]
fn the_glass_is_not_broken_for_oneself_nor_against_a_halt() {
    let (mut world, id) = wire();
    let reason = "the plant is on fire and nobody answers".to_owned();
    let own = world.give_key("owner-glass", "owner", &[Role::Breakglass], &[]);
    let refused = world.say(&id, &ApprovalCommand::BreakGlass(own, reason));
    assert_eq!(refused, Err(ApprovalReject::OwnRequest { person: "owner".to_owned() }));
    for scope in ["all", "tool:money.wire", "run:support:4821"] {
        world.halt(scope);
        let reason = "something is wrong".to_owned();
        assert_eq!(world.break_glass(&id, "greta"), Err(ApprovalReject::Halted { reason }), "{scope}");
        world.resume(scope);
    }
    world.break_glass(&id, "greta").unwrap();
    let again = world.break_glass(&id, "greta").unwrap_err().to_string();
    assert!(again.ends_with("is approved and takes no emergency grant"), "{again}");
}

#[test]
fn only_the_role_breaks_the_glass() {
    let (mut world, id) = wire();
    for person in ["fred", "ada", "olga", "anna"] {
        assert!(world.break_glass(&id, person).is_err(), "{person}");
    }
    assert_eq!(world.standing(&id), Open);
}

#[test]
fn a_broken_glass_stays_broken_whatever_the_voters_do() {
    let (mut world, id) = wire();
    world.approve(&id, "fred").unwrap();
    world.break_glass(&id, "greta").unwrap();
    world.withdraw(&id, "fred").unwrap();
    assert_eq!(world.standing(&id), Approved);
    let mut denied = world.clone();
    denied.deny(&id, "fiona").unwrap();
    assert_eq!(denied.begin("money.wire", WIRE).decision, DecisionWord::Block, "a no wins all the same");
    let mut revoked = world.clone();
    revoked.revoke(&id, "greta").unwrap();
    assert_eq!(revoked.begin("money.wire", WIRE).decision, DecisionWord::Block);
    assert_eq!(world.begin("money.wire", WIRE).decision, DecisionWord::Allow);
}

/// Reviewed before it was used, and a voter goes: still granted.
#[test]
fn a_reviewed_glass_still_grants() {
    let (mut world, id) = wire();
    world.approve(&id, "fred").unwrap();
    world.break_glass(&id, "greta").unwrap();
    world.review(&id, "anna").unwrap();
    world.withdraw(&id, "fred").unwrap();
    assert_eq!(world.begin("money.wire", WIRE).decision, DecisionWord::Allow);
}

#[test]
fn who_owes_a_review_that_is_overdue_breaks_no_other_glass() {
    let (mut world, id) = wire();
    world.break_glass(&id, "greta").unwrap();
    world.begin("money.wire", WIRE);
    let second = world.asked("mail.send", r#"{"n":2}"#);
    let third = world.asked("mail.send", r#"{"n":3}"#);
    world.wait(REVIEW_WITHIN_MS - 1);
    assert_eq!(world.fire(&id), 0, "never early");
    world.break_glass(&second, "greta").unwrap();
    world.wait(1);
    let blocked = Err(ApprovalReject::ReviewOverdue { person: "greta".to_owned() });
    assert_eq!(world.break_glass(&third, "greta"), blocked, "whether its timer fired or not");
    assert_eq!(world.fire(&id), 1);
    assert!(world.access.reviews().any(|review| review.overdue));
    assert_eq!((world.fire(&id), world.break_glass(&third, "greta")), (0, blocked));
    world.review(&id, "fred").unwrap();
    world.break_glass(&third, "greta").unwrap();
}

// --- delegation

const DAY: u64 = 24 * 60 * MINUTE;

#[test]
fn a_delegation_lends_a_vote_in_its_window() {
    let (mut world, id) = wire();
    world.delegate(1, ("fred", "anna"), &["finance"], (MINUTE, 2 * MINUTE));
    assert!(not_eligible(world.approve(&id, "anna")), "not yet");
    world.wait(MINUTE);
    world.approve(&id, "anna").unwrap();
    assert_eq!(world.approval(&id).votes()[0].on_behalf_of.as_deref(), Some("fred"));
    let other = world.asked("money.wire", "{}");
    world.wait(MINUTE);
    assert!(not_eligible(world.approve(&other, "anna")), "no more");
    world.delegate(2, ("fred", "anna"), &["finance"], (0, DAY));
    world.end_delegation(2);
    assert!(not_eligible(world.approve(&other, "anna")), "it was ended");
}

#[test]
fn a_delegation_lends_what_its_lender_holds_and_what_it_names() {
    let (mut world, id) = wire();
    world.delegate(1, ("carl", "anna"), &["finance"], (0, DAY));
    assert!(not_eligible(world.approve(&id, "anna")), "carl is not of finance");
    world.delegate(1, ("fred", "anna"), &["cfo"], (0, DAY));
    assert!(not_eligible(world.approve(&id, "anna")), "it names something else");
    world.delegate(1, ("owner", "anna"), &["finance"], (0, DAY));
    assert!(not_eligible(world.approve(&id, "anna")), "who asks can't lend their vote either");
    world.delegate(1, ("fred", "olga"), &["finance"], (0, DAY));
    assert!(not_eligible(world.approve(&id, "olga")), "who borrows is an approver");
    world.delegate(1, ("fred", "anna"), &["finance"], (0, DAY));
    world.revoke_key("fred");
    assert!(not_eligible(world.approve(&id, "anna")), "fred holds nothing any more");
}

#[test]
fn what_was_borrowed_is_not_lent_on() {
    let (mut world, id) = wire();
    world.delegate(1, ("fred", "carl"), &["finance"], (0, DAY));
    world.delegate(2, ("carl", "anna"), &["finance"], (0, DAY));
    assert!(not_eligible(world.approve(&id, "anna")));
    world.approve(&id, "carl").unwrap();
}

#[test]
fn lender_and_borrower_count_once() {
    let (mut world, id) = wire();
    world.delegate(1, ("fred", "fiona"), &["finance"], (0, 5 * MINUTE));
    world.approve(&id, "fred").unwrap();
    world.approve(&id, "fiona").unwrap();
    assert_eq!((world.standing(&id), voters(&world, &id).len()), (Open, 2), "two votes, one word");
    world.wait(5 * MINUTE);
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.standing(&id), Approved, "each speaks for themself again");
}

/// A further yes can't make less of what is there.
#[test]
fn a_vote_that_links_two_others_does_not_take_one_away() {
    let (mut world, id) = wire();
    world.set_group("finance", &["carl"]);
    world.delegate(1, ("fred", "fiona"), &["finance"], (0, DAY));
    world.delegate(2, ("fiona", "carl"), &["finance"], (0, DAY));
    world.approve(&id, "fred").unwrap();
    world.approve(&id, "fiona").unwrap();
    assert_eq!(world.standing(&id), Open);
    world.approve(&id, "carl").unwrap();
    assert_eq!(world.standing(&id), Approved, "fred and carl have nothing to do with each other");
}

// --- nobody can

#[test]
fn what_nobody_could_let_through_is_blocked_at_once() {
    let mut world = world();
    let unreachable = |world: &mut World| {
        let answer = world.begin("money.wire", WIRE);
        (codes(&answer.findings) == ["approval.unreachable"], answer.approval)
    };
    world.revoke_key("fiona");
    assert!(world.begin("money.wire", WIRE).approval.is_some(), "carl may decide on a further level");
    let mut world = self::world();
    world.revoke_key("fiona");
    world.revoke_key("carl");
    assert_eq!(unreachable(&mut world), (true, None), "fred alone is not two, and the owner asks");
    assert_eq!(world.run.approvals().count(), 0);
    world.set_group("board", &["anna"]);
    assert!(!unreachable(&mut world).0);
}

#[test]
fn two_who_count_once_are_not_two() {
    let mut world = world();
    world.revoke_key("carl");
    world.delegate(1, ("fred", "fiona"), &["finance"], (0, DAY));
    assert_eq!(codes(&world.begin("money.wire", WIRE).findings), ["approval.unreachable"]);
    world.wait(DAY);
    world.asked("money.wire", WIRE);
}
