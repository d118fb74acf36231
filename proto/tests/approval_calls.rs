//! What a grant is good for, told in stories: exactly one call, in its run, in time; and what is said where it is not.
//! Halts and modes belong here because they decide whether a grant is looked at.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::approval::{ApprovalStatus, USE_WITHIN_MS};
use reversi_proto::event::v1::{Mode, Outcome, Role};
use reversi_proto::ids::{ApprovalId, StreamId};
use reversi_proto::run::{BeginAnswer, DecisionWord, RunAnswer, RunCommand, RunReject};
use reversi_proto::testing::{World, approval_id, codes, json, principal};
use reversi_proto::undo::{CallEnd, ReadEnd};
use reversi_proto::wake::Wake;

use ApprovalStatus::{Approved, Cancelled, Consumed, Open, Revoked};

const WIRE: &str = r#"{"amount":1,"card":{"token":"tok_1"},"to":"café"}"#;
const MINUTE: u64 = 60_000;

/// What happens between the grant and its use.
type Change<'c> = &'c dyn Fn(&mut World);

fn world() -> World {
    World::asking(Mode::Enforce)
}

fn granted() -> (World, ApprovalId) {
    let mut world = world();
    let id = world.asked("money.wire", WIRE);
    world.approve(&id, "fred").unwrap();
    world.approve(&id, "fiona").unwrap();
    (world, id)
}

/// The call with these arguments, naming the grant or not.
fn call(world: &mut World, args: &str, named: Option<&ApprovalId>) -> BeginAnswer {
    let mut call = world.call("money.wire", args);
    call.approval = named.cloned();
    world.begin_call(call).unwrap()
}

fn operator_of_finance(world: &mut World) -> reversi_proto::access::Principal {
    world.give_key("otto", "otto", &[Role::Operator], &["finance"])
}

// --- used once

// G7
#[test]
fn the_call_is_retried_and_uses_the_grant_in_the_same_append() {
    for named in [false, true] {
        let (mut world, id) = granted();
        let mut retry = world.call("money.wire", WIRE);
        retry.approval = named.then(|| id.clone());
        let decision = world.decide(&RunCommand::Begin(retry.clone())).unwrap();
        let of_approval = StreamId::Approval(id.clone());
        let streams: Vec<_> = decision.records.iter().map(|(_, streams)| streams.clone()).collect();
        assert_eq!(streams, [vec![world.run.stream(), of_approval.clone()]], "one record for both");
        assert_eq!(decision.wakes.get(&of_approval), Some(&Wake::None), "its timer is of no use any more");
        let answer = world.begin_call(retry).unwrap();
        assert_eq!((answer.decision, answer.approval.as_ref()), (DecisionWord::Allow, Some(&id)));
        assert_eq!(world.run.step(answer.step).unwrap().approval.as_ref(), Some(&id));
        assert_eq!(world.standing(&id), Consumed);
    }
}

// G7
#[test]
fn a_grant_is_good_for_one_call() {
    let (mut world, id) = granted();
    call(&mut world, WIRE, None);
    let second = call(&mut world, WIRE, Some(&id));
    assert_eq!((codes(&second.findings), second.approval), (vec!["approval.used"], None));
    let unnamed = call(&mut world, WIRE, None);
    assert_eq!(codes(&unnamed.findings), ["approval.required"]);
    assert_ne!(unnamed.approval, Some(id), "a new request");
}

#[test]
fn a_grant_in_an_emergency_leaves_the_review_to_be_woken_for() {
    let mut world = world();
    let id = world.asked("money.wire", WIRE);
    world.break_glass(&id, "greta").unwrap();
    let retry = RunCommand::Begin(world.call("money.wire", WIRE));
    let decision = world.decide(&retry).unwrap();
    let due = world.access.reviews().next().unwrap().review_by;
    assert_eq!(decision.wakes.get(&StreamId::Approval(id)), Some(&Wake::At(due)));
}

#[test]
fn asking_again_while_it_is_pending_gives_the_same_request() {
    let mut world = world();
    let id = world.asked("money.wire", WIRE);
    for named in [None, Some(&id)] {
        let again = call(&mut world, WIRE, named);
        assert_eq!((codes(&again.findings), again.approval.as_ref()), (vec!["approval.required"], Some(&id)));
    }
    assert_eq!(world.run.approvals().count(), 1);
}

// --- bound to the exact arguments

// G7
#[test]
fn other_arguments_are_another_call() {
    let others = [
        ("one byte", WIRE.replace(":1,", ":2,")),
        ("another field", WIRE.replace("{\"amount\"", "{\"a\":null,\"amount\"")),
        ("NFD instead of NFC", WIRE.replace('é', "e\u{301}")),
        ("a field that people see redacted", WIRE.replace("tok_1", "tok_2")),
        ("a string for a number", WIRE.replace(":1,", ":\"1\",")),
    ];
    for (what, args) in others {
        let (mut world, id) = granted();
        assert_ne!(args, WIRE, "{what}");
        let named = call(&mut world, &args, Some(&id));
        assert_eq!((codes(&named.findings), named.approval), (vec!["approval.wrong_arguments"], None), "{what}");
        let unnamed = call(&mut world, &args, None);
        assert_eq!(codes(&unnamed.findings), ["approval.required"], "{what}");
        assert_ne!(unnamed.approval, Some(id.clone()), "{what}");
        assert_eq!(world.standing(&id), Approved, "the grant is still there for its call");
    }
}

// G7
#[test]
fn the_same_arguments_in_another_spelling_are_the_same_call() {
    let same = [
        ("key order", r#"{"to":"café","card":{"token":"tok_1"},"amount":1}"#),
        ("blanks", r#"{ "amount": 1, "card": { "token": "tok_1" }, "to": "café" }"#),
        ("1.0", r#"{"amount":1.0,"card":{"token":"tok_1"},"to":"café"}"#),
        ("an escape", r#"{"amount":1,"card":{"token":"tok_1"},"to":"caf\u00e9"}"#),
    ];
    for (what, args) in same {
        let (mut world, id) = granted();
        assert_eq!(json(args), json(WIRE), "{what}");
        assert_eq!(call(&mut world, args, Some(&id)).decision, DecisionWord::Allow, "{what}");
    }
}

/// Each wrong use of a grant has a code of its own, and takes nothing from the grant.
#[test]
fn each_wrong_use_has_its_own_code() {
    let refused = |world: &mut World, change: &dyn Fn(&mut reversi_proto::run::BeginCall)| {
        let mut call = world.call("money.wire", WIRE);
        change(&mut call);
        let answer = world.begin_call(call).unwrap();
        assert_eq!((answer.decision, answer.approval), (DecisionWord::Block, None));
        answer.findings[0].code.clone()
    };
    let (mut world, id) = granted();
    let nobodys = approval_id(99);
    assert_eq!(refused(&mut world, &|call| call.approval = Some(nobodys.clone())), "approval.wrong_run");
    let naming = |world: &mut World, change: &dyn Fn(&mut reversi_proto::run::BeginCall)| {
        refused(world, &|call| {
            call.approval = Some(id.clone());
            change(call);
        })
    };
    assert_eq!(naming(&mut world, &|call| call.tool = "money.tip".parse().unwrap()), "approval.wrong_tool");
    assert_eq!(naming(&mut world, &|call| call.actor.id = "bot-2".parse().unwrap()), "approval.wrong_actor");
    assert_eq!(naming(&mut world, &|call| call.args = json("{}")), "approval.wrong_arguments");
    assert_eq!(world.standing(&id), Approved);
    let ends: [(&str, Change); 5] = [
        ("approval.expired", &|world| {
            world.wait(USE_WITHIN_MS);
            world.fire(&id);
        }),
        ("approval.expired", &|world| {
            world.wait(USE_WITHIN_MS);
        }),
        ("approval.revoked", &|world| world.revoke(&id, "ada").unwrap()),
        ("approval.denied", &|world| world.deny(&id, "fred").unwrap()),
        ("approval.used", &|world| drop(call(world, WIRE, None))),
    ];
    for (code, end) in ends {
        let mut world = world.clone();
        end(&mut world);
        assert_eq!(naming(&mut world, &|_| {}), code);
    }
}

#[test]
fn a_request_that_another_grant_made_needless_is_cancelled() {
    let mut world = world();
    let id = world.asked("money.tip", "{}");
    let otto = operator_of_finance(&mut world);
    let pre = world.pre_approve(90, "money.tip", otto).unwrap();
    let skip = world.log.len();
    let answer = world.begin("money.tip", "{}");
    assert_eq!((answer.decision, answer.approval), (DecisionWord::Allow, Some(pre)));
    assert_eq!(world.kinds_after(skip), ["approval.cancelled", "step.begun"], "in one append");
    assert_eq!(world.standing(&id), Cancelled);
    let mut named = world.call("money.tip", "{}");
    named.approval = Some(id);
    assert_eq!(codes(&world.begin_call(named).unwrap().findings), ["approval.cancelled"]);
}

#[test]
fn a_changed_manifest_makes_it_another_call() {
    let (mut world, id) = granted();
    world.redeclare("Wire money.", "Wire a lot of money.");
    let named = call(&mut world, WIRE, Some(&id));
    assert_eq!(codes(&named.findings), ["approval.manifest_changed"]);
    let unnamed = call(&mut world, WIRE, None);
    assert_eq!(codes(&unnamed.findings), ["approval.required"]);
    assert_ne!(unnamed.approval, Some(id));
}

// G2
#[test]
fn a_role_that_was_lost_after_the_vote_voids_the_grant_and_it_is_asked_anew() {
    for named in [false, true] {
        let (mut world, id) = granted();
        world.revoke_key("fred");
        let skip = world.log.len();
        let answer = call(&mut world, WIRE, named.then_some(&id));
        assert_eq!(codes(&answer.findings), ["approval.required"]);
        assert_eq!(world.kinds_after(skip), ["approval.revoked", "approval.requested", "step.blocked"]);
        assert_eq!((world.standing(&id), world.standing(answer.approval.as_ref().unwrap())), (Revoked, Open));
    }
}

// G2
#[test]
fn a_group_that_is_deleted_entitles_nobody() {
    for named in [false, true] {
        let mut world = world();
        world.set_group("finance", &["carl", "anna"]);
        let id = world.asked("money.wire", WIRE);
        world.approve(&id, "carl").unwrap();
        world.approve(&id, "anna").unwrap();
        for key in ["fred", "fiona"] {
            world.revoke_key(key);
        }
        assert_eq!(world.standing(&id), Approved);
        world.delete_group("finance");
        let answer = call(&mut world, WIRE, named.then_some(&id));
        assert_eq!((codes(&answer.findings), answer.approval), (vec!["approval.unreachable"], None));
    }
}

// --- which tools ask

// D6
#[test]
fn asking_is_apart_from_the_effect_but_irreversible_always_asks() {
    let mut world = world();
    world.asked("book.read", "{}");
    world.asked("seat.take", r#"{"seat":"1"}"#);
    world.asked("mail.send", "{}");
    assert_eq!(world.begin("fs.write_file", "{}").decision, DecisionWord::Allow);
}

// H2 H4 H5
#[test]
fn nobody_is_asked_for_what_is_refused_anyway() {
    let mut world = world();
    let seat = r#"{"seat":"12a"}"#;
    let id = world.asked("seat.take", seat);
    world.approve(&id, "fred").unwrap();
    let first = world.begin("seat.take", seat);
    assert_eq!(first.decision, DecisionWord::Allow);
    let asked = world.run.approvals().count();
    for (args, code) in
        [(seat, "duplicate.call"), ("{}", "duplicate.key_unusable"), (r#"{"seat":["12a"]}"#, "duplicate.key_unusable")]
    {
        let answer = world.begin("seat.take", args);
        assert_eq!((codes(&answer.findings), answer.approval), (vec![code, "approval.required"], None), "{args}");
    }
    assert_eq!(world.run.approvals().count(), asked);
    world.complete(first.step, Outcome::Failed, "").unwrap();
    assert_ne!(world.asked("seat.take", seat), id, "the key is free again, the grant is used");
}

// H3
#[test]
fn two_grants_for_one_key_let_one_call_through() {
    let mut world = world();
    let [a, b] = [r#"{"seat":"1","row":1}"#, r#"{"seat":"1","row":2}"#];
    for args in [a, b] {
        let id = world.asked("seat.take", args);
        world.approve(&id, "fred").unwrap();
    }
    assert_eq!(world.begin("seat.take", a).decision, DecisionWord::Allow);
    let second = world.begin("seat.take", b);
    assert_eq!((second.decision, codes(&second.findings)), (DecisionWord::Block, vec!["duplicate.call"]));
    let left = world.run.approvals().filter(|approval| approval.status() == Approved).count();
    assert_eq!(left, 1, "a refused call uses nothing up");
}

// --- in advance

#[test]
fn a_yes_in_advance_is_for_the_first_call_of_the_tool() {
    let mut world = world();
    let pre = world.pre_approve(90, "mail.send", principal("olga")).unwrap();
    world.asked("book.read", "{}");
    let answer = world.begin("mail.send", r#"{"to":"anybody"}"#);
    assert_eq!((answer.decision, answer.approval.as_ref()), (DecisionWord::Allow, Some(&pre)));
    assert_eq!(world.standing(&pre), Consumed);
    world.asked("mail.send", r#"{"to":"anybody"}"#);
}

#[test]
fn a_yes_in_advance_is_enough_only_where_one_operators_word_is() {
    let mut world = world();
    let quorum = world.pre_approve(90, "money.wire", principal("olga")).unwrap_err();
    assert!(matches!(quorum, RunReject::NeedsQuorum { quorum: 2, .. }), "{quorum}");
    let role = world.pre_approve(90, "money.tip", principal("olga")).unwrap_err();
    assert!(matches!(role, RunReject::NeedsQuorum { quorum: 1, .. }), "{role}");
    let unknown = world.pre_approve(90, "un.heard", principal("olga")).unwrap_err();
    assert!(matches!(unknown, RunReject::NoManifest { .. }), "{unknown}");
    let otto = operator_of_finance(&mut world);
    world.pre_approve(90, "money.tip", otto).unwrap();
    let own = world.give_key("owner-ops", "owner", &[Role::Operator], &["finance"]);
    assert!(matches!(world.pre_approve(91, "mail.send", own), Err(RunReject::OwnApproval { .. })), "the run's owner");
}

#[test]
fn a_yes_in_advance_is_void_after_a_quarter_of_an_hour() {
    let mut world = world();
    let pre = world.pre_approve(90, "mail.send", principal("olga")).unwrap();
    world.wait(USE_WITHIN_MS - 1);
    assert_eq!(world.fire(&pre), 0);
    assert_eq!(world.clone().begin("mail.send", "{}").decision, DecisionWord::Allow);
    world.wait(1);
    assert_eq!(world.clone().begin("mail.send", "{}").decision, DecisionWord::Block, "whether its timer fired or not");
    assert_eq!(world.fire(&pre), 1);
}

#[test]
fn what_a_yes_in_advance_rests_on_is_looked_at_when_it_is_used() {
    let setup = |world: &mut World| {
        let otto = operator_of_finance(world);
        world.pre_approve(90, "money.tip", otto).unwrap()
    };
    let voids: [(&str, Change); 3] = [
        ("the operator's key", &|world| world.revoke_key("otto")),
        ("the quorum", &|world| {
            world.redeclare(
                "roles: [finance], timeout: 10m }\n- {tool: book",
                "roles: [finance], quorum: 2, timeout: 10m }\n- {tool: book",
            );
        }),
        ("the roles", &|world| {
            world.redeclare(
                "roles: [finance], timeout: 10m }\n- {tool: book",
                "roles: [cfo], timeout: 10m }\n- {tool: book",
            );
        }),
    ];
    for (what, void) in voids {
        let mut world = world();
        let pre = setup(&mut world);
        void(&mut world);
        let mut named = world.call("money.tip", "{}");
        named.approval = Some(pre.clone());
        let answer = world.begin_call(named).unwrap();
        assert_eq!(codes(&answer.findings), ["approval.not_enough"], "{what}");
        let answer = world.begin("money.tip", "{}");
        assert_eq!(answer.decision, DecisionWord::Block, "{what}");
        assert_eq!(world.standing(&pre), Approved, "{what}");
    }
}

#[test]
fn an_operator_who_left_can_not_let_through_what_anybody_might() {
    let mut world = world();
    world.pre_approve(90, "mail.send", principal("olga")).unwrap();
    world.revoke_key("olga");
    assert_eq!(world.begin("mail.send", "{}").decision, DecisionWord::Block);
}

#[test]
fn the_yes_in_advance_that_is_named_is_the_one_that_is_used() {
    let mut world = world();
    let [low, high] = [approval_id(90), approval_id(91)];
    world.pre_approve(90, "mail.send", principal("olga")).unwrap();
    world.pre_approve(91, "mail.send", principal("olga")).unwrap();
    let mut named = world.call("mail.send", "{}");
    named.approval = Some(high.clone());
    assert_eq!(world.begin_call(named).unwrap().approval, Some(high.clone()));
    assert_eq!((world.standing(&low), world.standing(&high)), (Approved, Consumed));
}

#[test]
fn a_yes_in_advance_does_not_lift_a_no() {
    let mut world = world();
    let id = world.asked("mail.send", "{}");
    world.deny(&id, "anna").unwrap();
    let pre = world.pre_approve(90, "mail.send", principal("olga")).unwrap();
    assert_eq!(codes(&world.begin("mail.send", "{}").findings), ["approval.denied"]);
    let mut named = world.call("mail.send", "{}");
    named.approval = Some(pre.clone());
    assert_eq!(codes(&world.begin_call(named).unwrap().findings), ["approval.denied"]);
    assert_eq!(world.begin("mail.send", r#"{"n":2}"#).approval, Some(pre), "another call is another matter");
}

#[test]
fn a_yes_in_advance_can_be_taken_away() {
    let mut world = world();
    let pre = world.pre_approve(90, "mail.send", principal("olga")).unwrap();
    world.revoke(&pre, "olga").unwrap();
    assert_eq!(world.standing(&pre), Revoked);
    world.asked("mail.send", "{}");
}

// --- modes and halts

#[test]
fn other_modes_ask_nobody() {
    for mode in [Mode::Observe, Mode::Advise] {
        let mut world = World::asking(mode);
        let answer = world.begin("money.wire", WIRE);
        assert_eq!((answer.decision, answer.approval), (DecisionWord::Allow, None));
        assert_eq!(codes(&world.run.step(answer.step).unwrap().findings), ["approval.required"], "it is written down");
        assert_eq!(answer.notes.len(), usize::from(mode == Mode::Advise), "and told where that is wanted");
        assert_eq!(world.run.approvals().count(), 0);
    }
}

// I1
#[test]
fn drafts_are_blocked_in_every_mode() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Advise] {
        let mut world = World::asking(mode);
        let answer = world.begin("draft.tool", "{}");
        assert_eq!((answer.decision, codes(&answer.findings)), (DecisionWord::Block, vec!["manifest.draft"]));
        assert_eq!(answer.findings[0].text, "the manifest of draft.tool is a draft");
    }
}

#[test]
fn a_halt_blocks_in_every_mode_and_what_runs_goes_on() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Advise] {
        for scope in ["all", "run:support:4821", "actor:bot-1", "tool:fs.write_file"] {
            let mut world = World::asking(mode);
            let open = world.begin("fs.write_file", "{}").step;
            world.halt(scope);
            let answer = world.begin("fs.write_file", "{}");
            assert_eq!(
                (answer.decision, codes(&answer.findings)),
                (DecisionWord::Block, vec!["halt.active"]),
                "{scope}"
            );
            assert!(answer.findings[0].text.contains("something is wrong"), "{scope}");
            world.complete(open, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
            let mut resumed = world.clone();
            resumed.resume(scope);
            assert_eq!(resumed.begin("fs.write_file", "{}").decision, DecisionWord::Allow, "{scope}");
            world.rollback(1).unwrap();
            world.attempt(open, CallEnd::Success);
            world.read(open, ReadEnd::Match);
            world.settle();
            assert!(world.run.report(&world.archive).complete, "operators undo while agents are stopped");
        }
    }
    let mut world = world();
    for scope in ["run:another", "actor:bot-2", "tool:mail.send"] {
        world.halt(scope);
    }
    assert_eq!(world.begin("fs.write_file", "{}").decision, DecisionWord::Allow);
}

#[test]
fn a_halted_call_asks_nobody_and_uses_no_grant() {
    let (mut world, id) = granted();
    world.halt("all");
    assert_eq!(codes(&call(&mut world, WIRE, Some(&id)).findings), ["halt.active"]);
    let other = call(&mut world, "{}", None);
    assert_eq!((codes(&other.findings), other.approval), (vec!["halt.active", "approval.required"], None));
    assert_eq!((world.standing(&id), world.run.approvals().count()), (Approved, 1));
    world.wait(MINUTE).resume("all");
    assert_eq!(call(&mut world, WIRE, Some(&id)).decision, DecisionWord::Allow);
}

#[test]
fn a_sealed_run_takes_no_call_by_any_grant() {
    let (mut world, id) = granted();
    while world.command(&RunCommand::Seal).unwrap() == RunAnswer::Again {}
    let mut named = world.call("money.wire", WIRE);
    named.approval = Some(id);
    assert!(matches!(world.begin_call(named), Err(RunReject::NotActive { .. })));
}
