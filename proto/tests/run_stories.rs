//! A run's life, told in stories: begin, complete, resolve, seal. Rollbacks have a file of their own.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::BTreeMap;

use reversi_proto::event::v1::{Mode, Outcome, RunStarted, StepBlocked, Target, Values};
use reversi_proto::event::{ApprovalEvent, Event, RunEvent, StepEvent};
use reversi_proto::ids::StreamId;
use reversi_proto::run::{
    BeginCall, CompleteAnswer, DecisionWord, ResultPayload, Run, RunAnswer, RunCommand, RunFacts, RunReject, RunStatus,
    StepStatus,
};
use reversi_proto::testing::{World, agent, at, codes, given, hash, json, request, run_id, tool};
use reversi_proto::undo::CallEnd;

const CHARGE: &str = r#"{"order_id":"o1","amount":2500,"card_token":"tok_secret"}"#;

fn no_facts() -> RunFacts {
    RunFacts { payload_key: [7; 32], begin: None, manifest: None, claim: None, undo: None, pre_approve: None }
}

fn start(key: u8, body: u8) -> RunCommand {
    let (permissions, reason) = (vec!["fs:write".to_owned()], Some("support chat 4821".to_owned()));
    let (mode, request) = (Mode::Enforce, Some(request(key, body)));
    RunCommand::Start { owner: agent(), person: None, permissions, mode, reason, request }
}

fn started() -> Event {
    let body = RunStarted {
        mode: Mode::Enforce,
        permissions: vec!["fs:write".to_owned()],
        person: None,
        reason: Some("support chat 4821".to_owned()),
        request: Some(request(1, 1)),
    };
    RunEvent::Started(body, ()).into()
}

fn run() -> Run {
    Run::new(run_id())
}

fn scope(permissions: &[&str]) -> Vec<String> {
    permissions.iter().map(|permission| (*permission).to_owned()).collect()
}

// --- start

#[test]
fn a_run_starts_once() {
    given(run(), []).when(&start(1, 1), at(0), &no_facts()).then(&[started()]);
    let retried = given(run(), [started()]).when(&start(1, 1), at(0), &no_facts());
    assert_eq!(retried.decided.as_ref().unwrap().answer, RunAnswer::Started { replayed: true });
    retried.then_nothing();
    given(run(), [started()]).when(&start(1, 2), at(0), &no_facts()).then_refused(&RunReject::KeyReused.to_string());
    given(run(), [started()])
        .when(&start(2, 1), at(0), &no_facts())
        .then_refused("run support:4821 exists already; choose another run_id or continue that run");
}

#[test]
fn a_run_that_does_not_exist_takes_nothing() {
    for command in [RunCommand::Seal, RunCommand::FinishRollback] {
        given(run(), []).when(&command, at(0), &no_facts()).then_refused("run support:4821 does not exist");
    }
}

#[test]
fn the_owner_is_whoever_started_it() {
    let given = given(run(), [started()]);
    assert_eq!((given.state.owner(), given.state.started_at()), (&agent().id, at(1000)));
    assert_eq!(given.state.status(), RunStatus::Active);
}

// --- begin: checks and modes

// E7 I2
#[test]
fn an_allowed_call_is_journaled_with_all_that_its_undo_needs() {
    let mut world = World::new(Mode::Enforce);
    let answer = world.begin("note.add", r#"{"name":"n1","text":"marked-secret"}"#);
    assert_eq!((answer.decision, answer.step, answer.replayed), (DecisionWord::Allow, 1, false));
    let step = world.run.step(1).unwrap();
    assert_eq!(step.values, BTreeMap::from([("$args.name".to_owned(), json(r#""n1""#))]));
    let encoded = world.log.last().unwrap().event.encode().unwrap();
    // The text is needed by nobody, the name only by the undo.
    assert!(!encoded.body.as_str().contains("marked-secret") && !encoded.body.as_str().contains("n1"));
    assert!(!String::from_utf8_lossy(&encoded.private).contains("marked-secret"));
    let written = world.begin("fs.write_file", r#"{"path":"a"}"#);
    assert_eq!(written.result_paths, ["$result.undo_token"]);
}

// A7 I2
#[test]
fn all_findings_are_reported_in_their_order() {
    let mut world = World::with_scope(Mode::Enforce, vec![]);
    let answer = world.begin("third.use", "{}");
    assert_eq!(
        (answer.decision, codes(&answer.findings)),
        (DecisionWord::Block, vec!["scope.missing_permission", "requires.missing"])
    );
    let answer = world.begin("stripe.create_charge", r#"{"amount":1}"#);
    let expected = ["scope.missing_permission", "duplicate.key_unusable", "approval.required"];
    assert_eq!(codes(&answer.findings), expected);
    // A person can't lift the other two, so nobody is asked.
    assert_eq!(answer.approval, None);
    let answer = world.begin("draft.tool", "{}");
    assert_eq!(codes(&answer.findings), ["manifest.draft", "scope.missing_permission"]);
    let answer = world.begin("unheard.of", "{}");
    assert_eq!(codes(&answer.findings), ["manifest.missing"]);
    assert_eq!(world.kinds_after(2), ["step.blocked"; 4]);
    assert_eq!(world.run.steps().iter().map(|step| step.no).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn observe_and_advise_let_through_what_enforce_blocks() {
    for mode in [Mode::Observe, Mode::Advise] {
        let mut world = World::with_scope(mode, vec![]);
        for (tool, found) in [
            ("third.use", vec!["scope.missing_permission", "requires.missing"]),
            ("mail.send", vec!["scope.missing_permission", "approval.required"]),
            ("unheard.of", vec!["manifest.missing"]),
        ] {
            let answer = world.begin(tool, "{}");
            assert_eq!(answer.decision, DecisionWord::Allow, "{tool} in {mode:?}");
            assert!(answer.findings.is_empty() && answer.approval.is_none());
            let step = world.run.step(answer.step).unwrap();
            assert_eq!(codes(&step.findings), found, "{tool} is journaled");
            let told = if mode == Mode::Advise { found.len() } else { 0 };
            assert_eq!(answer.notes.len(), told, "{tool} in {mode:?}");
        }
        assert_eq!(world.kinds_after(2), ["step.begun"; 3], "nobody is asked for an approval");
    }
}

// I1
#[test]
fn a_draft_blocks_in_every_mode() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Advise] {
        let mut world = World::new(mode);
        let answer = world.begin("draft.tool", "{}");
        assert_eq!((answer.decision, codes(&answer.findings)), (DecisionWord::Block, vec!["manifest.draft"]));
        assert_eq!(answer.findings[0].text, "the manifest of draft.tool is a draft");
    }
}

// I3
#[test]
fn a_deprecated_tool_runs_with_a_note() {
    let mut world = World::new(Mode::Enforce);
    let answer = world.begin("old.tool", "{}");
    assert_eq!(
        (answer.decision, answer.notes),
        (DecisionWord::Allow, vec!["manifest deprecated; use fs.stat".to_owned()])
    );
}

// A11
#[test]
fn requires_needs_an_earlier_success_in_this_run() {
    let mut world = World::new(Mode::Enforce);
    let blocked = |world: &mut World| codes(&world.begin("second.check", "{}").findings) == ["requires.missing"];
    assert!(blocked(&mut world));
    let open = world.begin("first.open", "{}").step;
    assert!(blocked(&mut world), "in flight is not enough");
    world.complete(open, Outcome::Uncertain, "").unwrap();
    assert!(blocked(&mut world), "uncertain is not enough");
    world.resolve(Target::Step, open, Outcome::Succeeded, "").unwrap();
    assert!(!blocked(&mut world), "a resolution counts");
    let mut world = World::new(Mode::Enforce);
    let open = world.begin("first.open", "{}").step;
    world.complete(open, Outcome::Failed, "").unwrap();
    assert!(blocked(&mut world), "failed is not enough");
}

#[test]
fn sealed_and_rolled_back_runs_refuse_new_calls() {
    let mut world = World::new(Mode::Enforce);
    world.done("note.add", r#"{"name":"n"}"#, "{}");
    world.command(&RunCommand::Seal).unwrap();
    let refused = world.begin_call(world.call("note.add", r#"{"name":"m"}"#)).unwrap_err();
    assert_eq!(refused.to_string(), "run support:4821 is sealed and takes no new call");
    world.rollback(1).unwrap();
    let refused = world.begin_call(world.call("note.add", r#"{"name":"m"}"#)).unwrap_err();
    assert_eq!(refused.to_string(), "run support:4821 is rolling_back and takes no new call");
    world.undo_all();
    assert!(world.begin_call(world.call("note.add", r#"{"name":"m"}"#)).is_err());
}

// --- begin: duplicates

fn claim_of_step(world: &World, step: u32) -> reversi_proto::hash::Hash {
    world.run.step(step).unwrap().claim.unwrap()
}

// H2
#[test]
fn a_duplicate_is_refused_while_the_first_call_stands() {
    let mut world = World::new(Mode::Enforce);
    let duplicate = |world: &mut World| {
        let answer = world.begin("job.start", r#"{"job":"j"}"#);
        answer.decision == DecisionWord::Block && codes(&answer.findings) == ["duplicate.call"]
    };
    let first = world.begin("job.start", r#"{"job":"j"}"#).step;
    assert!(world.log.last().unwrap().streams.contains(&StreamId::Claim(claim_of_step(&world, first).0)));
    assert!(duplicate(&mut world), "in flight");
    assert_eq!(world.begin("job.start", r#"{"job":"other"}"#).decision, DecisionWord::Allow);
    world.complete(first, Outcome::Uncertain, "").unwrap();
    assert!(duplicate(&mut world), "uncertain");
    world.resolve(Target::Step, first, Outcome::Succeeded, "").unwrap();
    assert!(duplicate(&mut world), "succeeded");
}

// H5
#[test]
fn a_claim_is_free_after_a_failure_or_a_resolution_as_failed() {
    let mut world = World::new(Mode::Enforce);
    for resolved in [false, true] {
        let step = world.begin("job.start", r#"{"job":"j"}"#).step;
        assert_eq!(world.run.step(step).unwrap().status, StepStatus::InFlight, "the key was free");
        if resolved {
            world.resolve(Target::Step, step, Outcome::Failed, "").unwrap();
        } else {
            world.complete(step, Outcome::Failed, "").unwrap();
        }
        assert_eq!(world.claim(claim_of_step(&world, step)).holder, None);
    }
}

// H2 H5
#[test]
fn a_compensation_frees_the_claim_with_its_final_record_only() {
    let mut world = World::new(Mode::Enforce);
    let step = world.done("job.start", r#"{"job":"j"}"#, "{}");
    let claim = claim_of_step(&world, step);
    world.rollback(1).unwrap();
    world.attempt(step, CallEnd::Success);
    assert!(world.claim(claim).holder.is_some(), "undo.succeeded with a read-back to come frees nothing");
    world.read(step, reversi_proto::undo::ReadEnd::Match);
    assert_eq!(world.claim(claim).holder, None);
    // Without a declared read-back the success is the final record.
    let mut world = World::new(Mode::Observe);
    let step = world.done("note.add", r#"{"name":"n"}"#, "{}");
    assert_eq!(world.run.step(step).unwrap().claim, None, "no idempotency, no claim");
}

#[test]
fn observe_lets_a_duplicate_run_without_a_claim() {
    let mut world = World::new(Mode::Observe);
    let first = world.begin("job.start", r#"{"job":"j"}"#).step;
    let second = world.begin("job.start", r#"{"job":"j"}"#);
    assert_eq!((second.decision, world.run.step(second.step).unwrap().claim), (DecisionWord::Allow, None));
    // What becomes of the second changes nothing for the first.
    world.complete(second.step, Outcome::Failed, "").unwrap();
    let holder = world.claim(claim_of_step(&world, first)).holder;
    assert_eq!(holder, Some((run_id(), first)));
}

// H4
#[test]
fn a_key_that_cannot_be_rendered_is_refused_rather_than_guessed() {
    let mut world = World::new(Mode::Enforce);
    for args in ["{}", r#"{"job":null}"#, r#"{"job":["marked-secret"]}"#] {
        let answer = world.begin("job.start", args);
        assert_eq!((answer.decision, codes(&answer.findings)), (DecisionWord::Block, vec!["duplicate.key_unusable"]));
        assert!(!answer.findings[0].text.contains("marked-secret"));
    }
}

#[test]
fn a_claim_that_another_run_holds_is_a_duplicate_without_its_name() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("job.start", r#"{"job":"j"}"#).step;
    world.complete(step, Outcome::Failed, "").unwrap();
    world.let_another_run_take(claim_of_step(&world, step));
    let answer = world.begin("job.start", r#"{"job":"j"}"#);
    assert_eq!(codes(&answer.findings), ["duplicate.call"]);
    assert!(answer.findings[0].text.contains("another run") && !answer.findings[0].text.contains("other:"));
}

// --- begin: approvals

// G7 - bound to the exact arguments
#[test]
fn one_request_per_fingerprint() {
    let mut world = World::new(Mode::Enforce);
    let first = world.begin("stripe.create_charge", CHARGE);
    assert_eq!((first.decision, codes(&first.findings)), (DecisionWord::Block, vec!["approval.required"]));
    let id = first.approval.clone().unwrap();
    assert_eq!(world.kinds_after(2), ["approval.requested", "step.blocked"]);
    assert!(world.log[2].streams.contains(&StreamId::Approval(id.clone())));
    let again = world.begin("stripe.create_charge", CHARGE);
    assert_eq!(again.approval, Some(id.clone()));
    assert_eq!(world.kinds_after(4), ["step.blocked"]);
    let other = world.begin("stripe.create_charge", &CHARGE.replace("2500", "2501"));
    assert_ne!(other.approval, Some(id), "other arguments, other request");
    // The spelling of the arguments is no difference.
    let spelled = r#"{ "card_token": "tok_secret", "amount": 2500.0, "order_id": "o1" }"#;
    assert_eq!(world.begin("stripe.create_charge", spelled).approval, first.approval);
    let Event::Approval(ApprovalEvent::Requested(body, private)) = &world.log[2].event else { panic!() };
    assert_eq!((body.quorum, body.roles.as_slice(), body.timeout_ms), (2, &["finance".to_owned()][..], Some(900_000)));
    assert_eq!(private.args, Some(json(CHARGE)));
    let lines: Vec<String> = world.log.iter().map(|r| r.event.encode().unwrap().body.as_str().to_owned()).collect();
    assert!(!lines.concat().contains("tok_secret"));
}

// D5 A9
#[test]
fn an_irreversible_tool_always_needs_approval() {
    let mut world = World::new(Mode::Enforce);
    let answer = world.begin("mail.send", "{}");
    assert_eq!((answer.decision, codes(&answer.findings)), (DecisionWord::Block, vec!["approval.required"]));
    assert!(answer.approval.is_some());
}

// --- begin: retries

#[test]
fn an_allow_is_given_again_to_the_same_attempt_only() {
    let mut world = World::new(Mode::Enforce);
    let call = world.call("fs.write_file", "{}");
    let first = world.begin_call(call.clone()).unwrap();
    let before = world.log.len();
    let again = world.begin_call(call.clone()).unwrap();
    assert!(again.replayed);
    assert_eq!(reversi_proto::run::BeginAnswer { replayed: false, ..again }, first, "the same answer");
    for attempt in [Some(hash(77)), None] {
        let other = world.begin_call(BeginCall { attempt, ..call.clone() }).unwrap();
        assert_eq!(
            (other.decision, other.step, codes(&other.findings)),
            (DecisionWord::Block, first.step, vec!["step.already_begun"])
        );
        assert!(other.findings[0].text.contains("in_flight"));
    }
    assert_eq!(world.log.len(), before, "a replay writes nothing");
    world.complete(first.step, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
    let late = world.begin_call(call).unwrap();
    assert_eq!((late.decision, codes(&late.findings)), (DecisionWord::Block, vec!["step.already_begun"]));
    assert!(late.findings[0].text.contains("succeeded"));
}

#[test]
fn a_stored_allow_without_an_attempt_is_never_given_again() {
    let mut world = World::new(Mode::Enforce);
    let call = BeginCall { attempt: None, ..world.call("fs.write_file", "{}") };
    world.begin_call(call.clone()).unwrap();
    assert_eq!(codes(&world.begin_call(call).unwrap().findings), ["step.already_begun"]);
}

#[test]
fn a_replayed_allow_repeats_its_notes() {
    let mut world = World::with_scope(Mode::Advise, vec![]);
    let call = world.call("old.tool", "{}");
    let first = world.begin_call(call.clone()).unwrap();
    assert_eq!(first.notes.len(), 2);
    assert_eq!(world.begin_call(call).unwrap().notes, first.notes);
}

#[test]
fn a_key_with_another_body_is_refused() {
    let mut world = World::new(Mode::Enforce);
    let call = world.call("fs.write_file", "{}");
    world.begin_call(call.clone()).unwrap();
    let mut other = call;
    other.request.as_mut().unwrap().body = hash(99);
    assert_eq!(world.begin_call(other).unwrap_err(), RunReject::KeyReused);
}

#[test]
fn a_block_is_decided_anew() {
    let mut world = World::new(Mode::Enforce);
    let call = world.call("second.check", "{}");
    assert_eq!(world.begin_call(call.clone()).unwrap().decision, DecisionWord::Block);
    world.done("first.open", "{}", "{}");
    let answer = world.begin_call(call).unwrap();
    assert_eq!((answer.decision, answer.step, answer.replayed), (DecisionWord::Allow, 3, false));
}

// --- complete

// E7 E8
#[test]
fn a_success_is_recoverable_where_everything_was_found() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("fs.write_file", "{}").step;
    let answer = world.complete(step, Outcome::Succeeded, r#"{"undo_token":"u1","text":"marked"}"#).unwrap();
    let expected = CompleteAnswer { step, status: "succeeded", recoverable: true, missing: vec![], disputed: false };
    assert_eq!(answer, expected);
    let lost = world.begin("fs.write_file", "{}").step;
    let answer = world.complete(lost, Outcome::Succeeded, r#"{"token":"u1"}"#).unwrap();
    assert_eq!((answer.recoverable, answer.missing), (false, vec!["$result.undo_token".to_owned()]));
    let null = world.begin("fs.write_file", "{}").step;
    let answer = world.complete(null, Outcome::Succeeded, r#"{"undo_token":null}"#).unwrap();
    assert!(answer.recoverable, "a null that is there is a value");
    let Event::Step(StepEvent::Succeeded(_, values)) = &world.log[3].event else { panic!() };
    let kept = BTreeMap::from([("$result.undo_token".to_owned(), json(r#""u1""#))]);
    assert_eq!(values, &Values { values: kept }, "only what the undo names is kept");
}

// E8
#[test]
fn a_missing_argument_makes_the_step_unrecoverable_too() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("note.add", "{}").step;
    let answer = world.complete(step, Outcome::Succeeded, "{}").unwrap();
    assert_eq!((answer.recoverable, answer.missing), (false, vec!["$args.name".to_owned()]));
}

#[test]
fn a_result_without_canonical_form_is_committed_to_by_its_bytes() {
    let mut world = World::new(Mode::Enforce);
    let raw = ResultPayload::Raw { bytes: b"{\"a\":1,\"a\":2}".to_vec(), error: "duplicate key".to_owned() };
    let step = world.begin("note.add", r#"{"name":"n"}"#).step;
    assert!(world.complete_with(step, Outcome::Succeeded, raw.clone()).unwrap().recoverable, "nothing of it is needed");
    let before = world.log.len();
    world.complete_with(step, Outcome::Succeeded, raw.clone()).unwrap();
    assert_eq!(world.log.len(), before, "a retry");
    let step = world.begin("fs.write_file", "{}").step;
    assert!(!world.complete_with(step, Outcome::Succeeded, raw).unwrap().recoverable);
    let Event::Step(StepEvent::Succeeded(body, _)) = &world.log.last().unwrap().event else { panic!() };
    assert_eq!(body.result_error.as_deref(), Some("duplicate key"));
    assert!(body.result.is_some());
}

#[test]
fn a_result_that_was_left_out_gives_only_the_named_values() {
    let mut world = World::new(Mode::Enforce);
    let given = |text: &str| {
        let values =
            BTreeMap::from([("$result.undo_token".to_owned(), json(text)), ("$result.x".to_owned(), json("1"))]);
        ResultPayload::Omitted(values)
    };
    let step = world.begin("fs.write_file", "{}").step;
    assert!(world.complete_with(step, Outcome::Succeeded, given("\"u\"")).unwrap().recoverable);
    assert_eq!(world.run.step(step).unwrap().values.len(), 1, "what nobody named is not kept");
    let before = world.log.len();
    world.complete_with(step, Outcome::Succeeded, given("\"u\"")).unwrap();
    assert!(world.complete_with(step, Outcome::Succeeded, given("\"v\"")).is_err(), "another value is a contradiction");
    assert!(world.complete(step, Outcome::Succeeded, "").is_err(), "and so is none");
    assert_eq!(world.log.len(), before);
}

#[test]
fn an_outcome_is_recorded_once() {
    let mut world = World::new(Mode::Enforce);
    let step = world.done("fs.write_file", "{}", r#"{"undo_token":"u1"}"#);
    let before = world.log.len();
    let again = world.complete(step, Outcome::Succeeded, r#"{ "undo_token": "u1" }"#).unwrap();
    assert_eq!((again.status, again.recoverable), ("succeeded", true));
    for (status, result) in
        [(Outcome::Failed, ""), (Outcome::Uncertain, ""), (Outcome::Succeeded, r#"{"undo_token":"u2"}"#)]
    {
        let refused = world.complete(step, status, result).unwrap_err();
        assert_eq!(refused.to_string(), "step 1 is succeeded: its outcome was recorded already and can't be changed");
    }
    assert_eq!(world.log.len(), before);
    let failed = world.begin("fs.write_file", "{}").step;
    world.complete(failed, Outcome::Failed, "").unwrap();
    assert_eq!(world.complete(failed, Outcome::Failed, "").unwrap().status, "failed");
    assert!(!world.run.step(failed).unwrap().recoverable());
    assert!(world.complete(failed, Outcome::Succeeded, "{}").is_err());
}

#[test]
fn what_never_ran_has_no_outcome() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("draft.tool", "{}").step;
    let refused = world.complete(step, Outcome::Succeeded, "{}").unwrap_err();
    assert_eq!(refused.to_string(), "step 1 is blocked: the call was refused, so it has no outcome");
    assert_eq!(world.complete(9, Outcome::Failed, "").unwrap_err().to_string(), "run support:4821 has no step 9");
    assert!(world.complete(0, Outcome::Failed, "").is_err());
    assert!(world.resolve(Target::Step, step, Outcome::Succeeded, "").is_err());
}

#[test]
fn an_unreadable_pinned_manifest_makes_the_step_unrecoverable() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("fs.write_file", "{}").step;
    world.archive = reversi_proto::config::Archive::default();
    let answer = world.complete(step, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
    assert!(!answer.recoverable, "nobody knows what the undo needs");
}

// --- resolve and disputes

#[test]
fn an_uncertain_step_is_settled_by_an_operator() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("fs.write_file", "{}").step;
    world.complete(step, Outcome::Uncertain, "").unwrap();
    let before = world.log.len();
    world.complete(step, Outcome::Uncertain, "").unwrap();
    assert_eq!(world.log.len(), before, "a retry");
    let refused = world.complete(step, Outcome::Succeeded, "{}").unwrap_err();
    assert_eq!(refused.to_string(), "step 1 is uncertain: an operator settles it with resolve");
    assert!(world.resolve(Target::Step, step, Outcome::Uncertain, "").is_err());
    assert!(world.resolve(Target::Undo, step, Outcome::Succeeded, "").is_err());
    let answer = world.resolve(Target::Step, step, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
    assert_eq!((answer.status, answer.recoverable), ("succeeded", true));
    let before = world.log.len();
    world.resolve(Target::Step, step, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
    assert_eq!(world.log.len(), before, "a retry");
    // A resolution that would give another result isn't swallowed as a retry.
    assert!(world.resolve(Target::Step, step, Outcome::Succeeded, r#"{"undo_token":"v"}"#).is_err());
    assert!(world.resolve(Target::Step, step, Outcome::Failed, "").is_err());
    world.complete(step, Outcome::Succeeded, "{}").unwrap();
    assert_eq!(world.log.len(), before, "a late outcome that agrees changes nothing");
}

#[test]
fn a_late_outcome_that_contradicts_makes_the_step_uncertain_again() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("job.start", r#"{"job":"j"}"#).step;
    let claim = claim_of_step(&world, step);
    world.resolve(Target::Step, step, Outcome::Failed, "").unwrap();
    assert_eq!(world.claim(claim).holder, None);
    let answer = world.complete(step, Outcome::Succeeded, "{}").unwrap();
    assert_eq!((answer.status, answer.disputed, answer.recoverable), ("uncertain", true, false));
    assert_eq!(world.claim(claim).holder, Some((run_id(), step)), "a free claim is taken back");
    assert_eq!(codes(&world.begin("job.start", r#"{"job":"j"}"#).findings), ["duplicate.call"]);
    let before = world.log.len();
    assert!(world.complete(step, Outcome::Succeeded, "{}").unwrap().disputed, "a retry hears the same");
    assert_eq!(world.log.len(), before);
    world.resolve(Target::Step, step, Outcome::Failed, "").unwrap();
    assert!(!world.run.step(step).unwrap().disputed, "the resolution ends the dispute");
    assert_eq!(world.claim(claim).holder, None);
    let before = world.log.len();
    assert!(world.complete(step, Outcome::Succeeded, "{}").unwrap().disputed);
    assert_eq!(world.log.len(), before, "the operator has heard that word already");
}

#[test]
fn a_claim_that_another_step_holds_is_neither_taken_back_nor_freed() {
    let mut world = World::new(Mode::Enforce);
    let first = world.begin("job.start", r#"{"job":"j"}"#).step;
    world.resolve(Target::Step, first, Outcome::Failed, "").unwrap();
    let second = world.begin("job.start", r#"{"job":"j"}"#).step;
    let claim = claim_of_step(&world, second);
    world.complete(first, Outcome::Succeeded, "{}").unwrap();
    assert_eq!(world.claim(claim).holder, Some((run_id(), second)));
    // Neither a failure nor a compensation of the first frees what the second holds.
    world.resolve(Target::Step, first, Outcome::Failed, "").unwrap();
    assert_eq!(world.claim(claim).holder, Some((run_id(), second)));
    world.complete(first, Outcome::Succeeded, "{}").unwrap();
    assert_eq!(world.claim(claim).holder, Some((run_id(), second)));
}

#[test]
fn a_resolution_after_a_dispute_can_say_succeeded() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("fs.write_file", "{}").step;
    world.resolve(Target::Step, step, Outcome::Failed, "").unwrap();
    world.complete(step, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
    let answer = world.resolve(Target::Step, step, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
    assert_eq!((answer.status, answer.recoverable), ("succeeded", true));
    let answer = world.complete(step, Outcome::Succeeded, r#"{"undo_token":"u"}"#).unwrap();
    assert!(!answer.disputed, "now they agree");
}

// --- seal

#[test]
fn a_run_is_sealed_when_no_step_is_open() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("fs.write_file", "{}").step;
    let refused = world.command(&RunCommand::Seal).unwrap_err();
    assert_eq!(refused.to_string(), "step 1 is still open; complete or resolve it before sealing the run");
    world.complete(step, Outcome::Uncertain, "").unwrap();
    assert!(world.command(&RunCommand::Seal).is_err(), "uncertain is open: somebody must settle it");
    world.resolve(Target::Step, step, Outcome::Failed, "").unwrap();
    world.command(&RunCommand::Seal).unwrap();
    assert_eq!(world.run.status(), RunStatus::Sealed);
    let Event::Run(RunEvent::Sealed(body, ())) = &world.log.last().unwrap().event else { panic!() };
    assert_eq!(body.records, 4, "the root is held to the ledger's Merkle tree by an invariant");
    let before = world.log.len();
    world.command(&RunCommand::Seal).unwrap();
    assert_eq!(world.log.len(), before, "a retry");
}

#[test]
fn a_dispute_after_the_seal_reopens_the_chain_until_it_is_settled() {
    let mut world = World::new(Mode::Enforce);
    let step = world.begin("fs.write_file", "{}").step;
    world.resolve(Target::Step, step, Outcome::Failed, "").unwrap();
    world.command(&RunCommand::Seal).unwrap();
    let before = world.log.len();
    world.complete(step, Outcome::Succeeded, "").unwrap();
    world.settle();
    assert!(world.command(&RunCommand::Seal).is_err(), "a step is open");
    world.resolve(Target::Step, step, Outcome::Failed, "").unwrap();
    world.settle();
    assert_eq!(world.kinds_after(before), ["step.disputed", "step.resolved", "run.sealed"]);
    assert_eq!(world.run.status(), RunStatus::Sealed);
}

// --- views

#[test]
fn a_step_that_is_open_for_too_long_is_unresolved() {
    let mut world = World::new(Mode::Enforce);
    world.begin("fs.write_file", "{}"); // 30 s
    world.begin("first.open", "{}"); // no timeout
    let unresolved = |world: &World, ms: u64, boot: u64| {
        world.run.step_views(at(ms), at(boot)).iter().map(|view| view.unresolved).collect::<Vec<_>>()
    };
    assert_eq!(unresolved(&world, 90_000, 0), [false, false]);
    assert_eq!(unresolved(&world, 90_001, 0), [true, false]);
    assert_eq!(unresolved(&world, 600_001, 0), [true, true]);
    assert_eq!(unresolved(&world, 1, 1), [true, true], "begun before this boot");
    world.complete(1, Outcome::Uncertain, "").unwrap();
    world.complete(2, Outcome::Failed, "").unwrap();
    assert_eq!(unresolved(&world, 1, 1), [true, false]);
}

#[test]
fn what_was_folded_twice_is_the_same() {
    let mut world = World::new(Mode::Enforce);
    world.done("fs.write_file", "{}", r#"{"undo_token":"u"}"#);
    world.done("job.start", r#"{"job":"j"}"#, "{}");
    world.rollback(1).unwrap();
    world.undo_all();
    assert_eq!(world.refold(), (world.run.clone(), world.undos.clone()));
}

#[test]
fn a_blocked_step_is_written_as_it_is_answered() {
    let mut world = World::with_scope(Mode::Enforce, scope(&["fs:read"]));
    let answer = world.begin("fs.write_file", "{}");
    let Event::Step(StepEvent::Blocked(body, ())) = &world.log.last().unwrap().event else { panic!() };
    let StepBlocked { approval, findings, reason, step, tool: called, args: _ } = body.clone();
    assert_eq!((approval, findings, reason), (None, answer.findings, "the customer asked".to_owned()));
    assert_eq!((step, called), (1, tool("fs.write_file")));
}
