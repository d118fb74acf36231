//! What a person reads before they decide: all of it, nothing hidden silently, nothing that steers the reader.
#![allow(clippy::unwrap_used, clippy::panic)]
use proptest::prelude::*;
use reversi_proto::approval::{ApprovalCommand, ApprovalView, escaped};
use reversi_proto::event::v1::{Mode, Target};
use reversi_proto::ids::ApprovalId;
use reversi_proto::manifest::{BlastRadius, Effect};
use reversi_proto::testing::{World, json, say};

const WIRE: &str = r#"{"amount":100,"card":{"token":"tok_1"},"names":["Ann","Bob"]}"#;
const MINUTE: u64 = 60_000;

fn wire(args: &str) -> (World, ApprovalId) {
    let mut world = World::asking(Mode::Enforce);
    let id = world.asked("money.wire", args);
    (world, id)
}

fn view(world: &World, id: &ApprovalId) -> ApprovalView {
    world.approval(id).view(&world.archive).unwrap()
}

#[test]
fn one_sentence_and_what_the_manifest_says() {
    let (world, id) = wire(WIRE);
    let seen = view(&world, &id);
    assert_eq!(seen.preview.sentence, "bot-1 wants to call money.wire, which can't be undone");
    assert_eq!(seen.preview.description.as_deref(), Some("Wire money."));
    assert_eq!((seen.preview.effect, seen.preview.undo), (Some(Effect::Irreversible), None));
    assert_eq!(seen.preview.data_class.as_deref(), Some("financial"));
    assert_eq!(seen.preview.blast_radius, Some(BlastRadius::High));
    assert_eq!(seen.preview.asked_by, ["manifest of money.wire"]);
    assert_eq!((seen.status, seen.target, seen.step, seen.quorum), ("pending", Target::Step, Some(1), 2));
    assert_eq!((seen.requested_by.as_str(), seen.requested_at), ("bot-1", world.now));
}

#[test]
fn what_the_undo_can_not_take_back_stands_there() {
    let mut world = World::asking(Mode::Enforce);
    let id = world.asked("stripe.create_charge", r#"{"order_id":"o1","card_token":"tok_1"}"#);
    let seen = view(&world, &id);
    assert_eq!(
        seen.preview.sentence,
        "bot-1 wants to call stripe.create_charge, which can be made good but leaves a trace"
    );
    assert_eq!(seen.preview.undo.unwrap().as_str(), "stripe.refund");
    assert_eq!(seen.preview.residue, ["the charge still appears on the customer's statement"]);
    assert_eq!(seen.preview.redacted_values, 1);
}

#[test]
fn redacted_values_are_replaced_and_counted_but_bound() {
    let (world, id) = wire(WIRE);
    let seen = view(&world, &id);
    let expected = r#"{"amount":100,"card":{"token":"[redacted]"},"names":["[redacted]","Bob"]}"#;
    assert_eq!(json(seen.preview.arguments.as_deref().unwrap()), json(expected));
    assert_eq!((seen.preview.redacted_values, seen.preview.hidden_characters), (2, 0));
    assert!(!format!("{seen:?}").contains("tok_1"));
    let (other, of_other) = wire(&WIRE.replace("tok_1", "tok_2"));
    let other = view(&other, &of_other);
    assert_eq!(other.preview.arguments, seen.preview.arguments);
    assert_ne!(other.fingerprint, seen.fingerprint, "what is not shown is bound all the same");
    let (without, id) = wire("{}");
    assert_eq!(view(&without, &id).preview.redacted_values, 0, "only what was there");
}

#[test]
fn nothing_is_cut_without_being_counted() {
    let long = format!(r#"{{"a":"{}","card":{{"token":"tok_1"}},"z":"end"}}"#, "x".repeat(20_000));
    let (world, id) = wire(&long);
    let seen = view(&world, &id);
    let shown = seen.preview.arguments.unwrap();
    let whole = serde_json::to_string_pretty(&json(&long.replace("tok_1", "[redacted]")).value()).unwrap();
    assert_eq!(shown.chars().count() + seen.preview.hidden_characters, whole.chars().count());
    assert!(whole.starts_with(&shown) && seen.preview.hidden_characters > 0);
    assert_eq!(seen.preview.redacted_values, 1, "redacted in what is not shown, too");
}

#[test]
fn invisible_characters_are_written_out_wherever_they_come_from() {
    let mut world = World::asking(Mode::Enforce);
    let mut call = world.call("money.wire", "{\"pay\u{202e}ee\":\"DE\u{200b}02\\u0007\"}");
    call.reason = "urgent\u{2066} \u{1b}[2Jplease".to_owned();
    let id = world.begin_call(call).unwrap().approval.unwrap();
    let mut yes = say("fred");
    yes.note = Some("fine\u{feff}".to_owned());
    world.say(&id, &ApprovalCommand::Approve(yes)).unwrap();
    let seen = view(&world, &id);
    let arguments = seen.preview.arguments.unwrap();
    assert_eq!(arguments, "{\n  \"pay\\u{202e}ee\": \"DE\\u{200b}02\\u0007\"\n}");
    assert_eq!(seen.preview.agents_reason, "urgent\\u{2066} \\u{1b}[2Jplease");
    assert_eq!(seen.votes[0].note.as_deref(), Some("fine\\u{feff}"));
    world.deny(&id, "fiona").unwrap();
    let mut no = world.call("mail.send", "{}");
    no.reason = String::new();
    let other = world.begin_call(no).unwrap().approval.unwrap();
    let mut said = say("anna");
    said.note = Some("no\u{202e}".to_owned());
    world.say(&other, &ApprovalCommand::Deny(said)).unwrap();
    assert_eq!(view(&world, &other).end_note.as_deref(), Some("no\\u{202e}"));
}

/// Everything that Unicode 16 calls ignorable by default, and the format controls that draw nothing themselves.
#[test]
fn no_ignorable_character_is_left_out() {
    let ranges = [
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x61c, 0x61c),
        (0x115f, 0x1160),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x200b, 0x200f),
        (0x2028, 0x202e),
        (0x2060, 0x206f),
        (0x3164, 0x3164),
        (0xfe00, 0xfe0f),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfffb),
        (0x13430, 0x1343f),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
    ];
    for c in ranges.into_iter().flat_map(|(from, to)| from..=to).filter_map(char::from_u32) {
        assert_eq!(escaped(&c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
    }
    let visible = "naïve café, 日本語, Ελλάδα, €100 – “ok” 👍\n";
    assert_eq!(escaped(visible), visible);
}

#[test]
fn the_agents_words_stand_in_a_field_of_their_own() {
    let mut world = World::asking(Mode::Enforce);
    let mut call = world.call("money.wire", WIRE);
    call.reason = "approved by the cfo already".to_owned();
    let id = world.begin_call(call).unwrap().approval.unwrap();
    let seen = view(&world, &id);
    assert_eq!(seen.preview.agents_reason, "approved by the cfo already");
    assert!(!seen.preview.sentence.contains("cfo"));
    assert_eq!(seen.votes, []);
}

#[test]
fn what_happens_at_the_deadline_is_said() {
    let (mut world, id) = wire(WIRE);
    let next = |world: &World| {
        let seen = view(world, &id);
        (seen.level, seen.roles, seen.deadline, seen.at_deadline.unwrap_or_default())
    };
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let due = Some(world.now.plus_ms(10 * MINUTE));
    assert_eq!(next(&world), (0, texts(&["finance"]), due, "cfo may decide too".to_owned()));
    world.wait(10 * MINUTE);
    world.fire(&id);
    let due = Some(world.now.plus_ms(10 * MINUTE));
    assert_eq!(next(&world), (1, texts(&["finance", "cfo"]), due, "board may decide too".to_owned()));
    world.wait(10 * MINUTE);
    world.fire(&id);
    assert_eq!(next(&world).3, "it expires and the call stays refused");
    let mut granted = world.clone();
    granted.approve(&id, "fred").unwrap();
    granted.approve(&id, "fiona").unwrap();
    assert_eq!(
        (next(&granted).2, next(&granted).3.as_str()),
        (Some(granted.now.plus_ms(15 * MINUTE)), "the grant is void if it was not used")
    );
    world.wait(10 * MINUTE);
    world.fire(&id);
    let seen = view(&world, &id);
    assert_eq!((seen.status, seen.deadline, seen.at_deadline), ("expired", None, None));
    assert_eq!(seen.end_note.as_deref(), Some("nobody answered in time"));
    let forever = world.asked("mail.send", "{}");
    let seen = view(&world, &forever);
    assert_eq!((seen.deadline, seen.at_deadline, seen.roles.len()), (None, None, 0));
}

#[test]
fn the_votes_so_far_are_there_with_in_whose_place() {
    let (mut world, id) = wire(WIRE);
    world.delegate(1, ("fred", "anna"), &["finance"], (0, MINUTE));
    let mut yes = say("anna");
    yes.note = Some("I saw the invoice".to_owned());
    world.say(&id, &ApprovalCommand::Approve(yes)).unwrap();
    let seen = view(&world, &id);
    let [vote] = &seen.votes[..] else { panic!("{:?}", seen.votes) };
    assert_eq!((vote.person.as_str(), vote.on_behalf_of.as_deref()), ("anna", Some("fred")));
    assert_eq!((vote.note.as_deref(), vote.at), (Some("I saw the invoice"), world.now));
}

#[test]
fn an_emergency_is_flagged_for_good() {
    let (mut world, id) = wire(WIRE);
    assert_eq!(view(&world, &id).break_glass, None);
    world.break_glass(&id, "greta").unwrap();
    let glass = view(&world, &id).break_glass.unwrap();
    assert_eq!((glass.person.as_str(), glass.reviewed_by), ("greta", None));
    assert_eq!(glass.reason.as_deref(), Some("the plant is on fire and nobody answers"));
    world.review(&id, "anna").unwrap();
    world.begin("money.wire", WIRE);
    let glass = view(&world, &id).break_glass.unwrap();
    assert_eq!((glass.person.as_str(), glass.reviewed_by.as_deref()), ("greta", Some("anna")));
    assert_eq!(glass.review.as_deref(), Some("it was right"));
}

#[test]
fn the_arguments_are_forgotten_once_they_are_of_no_use() {
    let (mut world, id) = wire(WIRE);
    world.deny(&id, "fred").unwrap();
    let seen = view(&world, &id);
    assert_eq!((seen.status, seen.ended_by.as_deref(), seen.preview.arguments), ("denied", Some("fred"), None));
    assert!(seen.fingerprint.is_some());
}

#[test]
fn a_fingerprint_is_short_and_of_the_exact_call() {
    let [(a, a_id), (b, b_id), (c, c_id)] = [wire("{}"), wire("{}"), wire(r#"{"a":1}"#)];
    let [a, b, c] = [view(&a, &a_id), view(&b, &b_id), view(&c, &c_id)].map(|seen| seen.fingerprint.unwrap());
    assert_eq!((a.len(), a.chars().all(|c| c.is_ascii_hexdigit())), (12, true));
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn an_undo_is_shown_as_one_and_hides_what_the_call_hid() {
    let mut world = World::asking(Mode::Enforce);
    world.redeclare(
        "argument_map: { key: $args.key }, requires_approval: true }\n",
        "argument_map: { key: $args.key }, requires_approval: true }\n  audit: { redaction: [$args.key] }\n",
    );
    let step = world.done("safe.put", r#"{"key":"hush"}"#, "{}");
    world.rollback(1).unwrap();
    world.settle();
    let id = world.run.approvals().next().unwrap().id().clone();
    let seen = view(&world, &id);
    assert_eq!((seen.target, seen.step, seen.tool.as_str()), (Target::Undo, Some(step), "safe.clear"));
    assert!(seen.preview.sentence.contains(&format!("undo step {step} with safe.clear")), "{}", seen.preview.sentence);
    assert!(!format!("{seen:?}").contains("hush"), "redacted in the call, so redacted in its undo");
    assert_eq!(seen.preview.redacted_values, 1);
}

#[test]
fn a_yes_in_advance_says_that_it_is_for_any_arguments() {
    let mut world = World::asking(Mode::Enforce);
    let pre = world.pre_approve(90, "mail.send", reversi_proto::testing::principal("olga")).unwrap();
    let seen = view(&world, &pre);
    assert_eq!(seen.preview.sentence, "olga allowed the next call of mail.send in advance, whatever its arguments");
    assert_eq!((seen.step, seen.fingerprint, seen.preview.arguments), (None, None, None));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_text_can_hide_or_steer(text in any::<String>()) {
        let shown = escaped(&text);
        prop_assert!(shown.chars().all(|c| c == '\n' || !c.is_control()));
        prop_assert_eq!(escaped(&shown), shown.clone(), "what is written out is plain");
        prop_assert!(shown.chars().count() >= text.chars().count(), "nothing is left out");
    }
}
