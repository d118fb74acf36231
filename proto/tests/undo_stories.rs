//! The undo of one step, told in stories: known failures, unknown outcomes, read-backs, lost attempts, resolutions.
#![allow(clippy::unwrap_used, clippy::panic)]
use reversi_proto::aggregate::Aggregate as _;
use reversi_proto::event::v1::{
    AfterMismatch, AfterUnknown, ErrorText, Executor, Mode, Outcome, Target, UndoAttempted, UndoFailed, UndoSucceeded,
    UndoUncertain, UndoVerified,
};
use reversi_proto::event::{Event, UndoEvent};
use reversi_proto::ids::StreamId;
use reversi_proto::testing::{World, at, given, hash, json, rollback_id, run_id, tool};
use reversi_proto::undo::{
    After, CallEnd, NotReady, Phase, ReadBack, ReadEnd, Undo, UndoCommand, UndoEffect, UndoFacts, UndoReject, UndoSpec,
    Verified,
};

const ORDER: &str = r#"{"id":"o1"}"#;

fn known() -> CallEnd {
    CallEnd::KnownFailure("connection refused".to_owned())
}

fn unknown() -> CallEnd {
    CallEnd::Unknown("timeout".to_owned())
}

fn mismatch(path: &str) -> ReadEnd {
    ReadEnd::Mismatch { path: path.to_owned(), expected: json("true"), got: Some(json("\"marked-secret\"")) }
}

fn unavailable() -> ReadEnd {
    ReadEnd::Unavailable("no answer".to_owned())
}

/// A world whose first step, of that tool, is being undone: attempts 3 of an idempotent tool (job) with one read-back,
/// of one that isn't (order) with or without two, or of an idempotent one without (note, 2 attempts).
fn undoing(called: &str) -> World {
    let mut world = World::new(Mode::Observe);
    world.done(called, r#"{"name":"n","job":"j"}"#, ORDER);
    world.rollback(1).unwrap();
    world
}

fn last(world: &World) -> &UndoEvent {
    match &world.log.last().unwrap().event {
        Event::Undo(event) => event,
        other => panic!("not of an undo: {other:?}"),
    }
}

// --- the machine alone, event by event

fn undo() -> Undo {
    Undo::new(run_id(), 1)
}

fn facts() -> UndoFacts {
    let spec = UndoSpec {
        tool: tool("order.cancel"),
        args: json(r#"{"id":"o1"}"#),
        idempotent: false,
        timeout_ms: 10_000,
        attempts_max: 3,
        base_ms: 200,
        max_ms: 5000,
        read_back: None,
    };
    UndoFacts {
        turn: Ok(rollback_id(1)),
        spec,
        run_version: 9,
        run_seq: 4,
        payload_key: [7; 32],
        claim: Some(StreamId::Claim([6; 32])),
        calls_are_over: false,
        random: 1_000_000_007,
        grant: Ok(None),
        access_version: None,
    }
}

fn attempted(attempt: u32) -> Event {
    let body = UndoAttempted {
        approval: None,
        args: hash(1),
        attempt,
        executor: Executor::Daemon,
        over_by: at(10_000),
        rollback: rollback_id(1),
        step: 1,
        tool: tool("order.cancel"),
    };
    UndoEvent::Attempted(body, ()).into()
}

fn ended(attempt: u32, end: CallEnd) -> UndoCommand {
    UndoCommand::CallEnded { attempt, end }
}

#[test]
fn the_intent_is_durable_before_the_call() {
    let when = given(undo(), []).when(&UndoCommand::Attempt, at(0), &facts());
    let decision = when.decided.as_ref().unwrap();
    assert_eq!(decision.expect, [(StreamId::Run(run_id()), Some(9))], "the run as it was read");
    let Event::Undo(UndoEvent::Attempted(body, ())) = &decision.records[0].0 else { panic!() };
    assert_eq!((body.attempt, body.over_by, body.executor), (1, at(10_000), Executor::Daemon));
    assert_eq!((&body.rollback, body.tool.as_str()), (&rollback_id(1), "order.cancel"));
    assert_eq!(when.streams(), [vec![StreamId::Undo(run_id(), 1), StreamId::Run(run_id())]]);
    let calling = when.then_kinds(&["undo.attempted"]);
    assert_eq!(calling.state.effects(), [UndoEffect::Call { attempt: 1 }]);
    assert!(matches!(calling.state.abandon_open_intent(), Some(UndoCommand::LoseAttempt)));
    calling.when(&UndoCommand::Attempt, at(1), &facts()).then_nothing();
}

#[test]
fn success_without_a_declared_read_back_compensates_and_frees_the_claim() {
    let when = given(undo(), [attempted(1)]).when(&ended(1, CallEnd::Success), at(100), &facts());
    let all = vec![StreamId::Undo(run_id(), 1), StreamId::Run(run_id()), StreamId::Claim([6; 32])];
    assert_eq!(when.streams(), [all]);
    let body = UndoSucceeded { attempt: 1, read_at: None, step: 1 };
    let done = when.then(&[UndoEvent::Succeeded(body, ()).into()]);
    assert_eq!(done.state.phase(), &Phase::Compensated(Verified::NotDeclared));
    assert!(done.state.effects().is_empty() && done.state.deadline().is_none());
    done.when(&UndoCommand::Attempt, at(200), &facts()).then_nothing();
}

#[test]
fn a_known_failure_is_retried_after_a_backoff() {
    let when = given(undo(), [attempted(1)]).when(&ended(1, known()), at(100), &facts());
    // 1_000_000_007 % 201
    let body = UndoFailed { attempt: 1, retry_at: Some(at(100 + 1_000_000_007 % 201)), step: 1 };
    let private = ErrorText { error: Some("connection refused".to_owned()) };
    let waiting = when.then(&[UndoEvent::Failed(body, private).into()]);
    let (due, command) = waiting.state.deadline().unwrap();
    assert!(matches!(command, UndoCommand::Attempt) && due == at(100 + 1_000_000_007 % 201));
    waiting.clone().when(&command, at(100), &facts()).then_nothing();
    waiting.when(&command, due, &facts()).then_kinds(&["undo.attempted"]);
}

#[test]
fn an_old_attempt_is_over() {
    let events = || [attempted(1), attempted(2)];
    let words = "attempt 1 of step 1 is over: the undo stands at attempt 2";
    given(undo(), events()).when(&ended(1, CallEnd::Success), at(1), &facts()).then_refused(words);
    let read = UndoCommand::ReadEnded { attempt: 2, read: 1, end: ReadEnd::Match };
    let words = "attempt 2 of step 1 is over: the undo stands at attempt 2";
    given(undo(), events()).when(&read, at(1), &facts()).then_refused(words);
    given(undo(), [])
        .when(&UndoCommand::LoseAttempt, at(1), &facts())
        .then_refused("attempt 0 of step 1 is over: the undo stands at attempt 0");
}

#[test]
fn a_late_outcome_of_a_read_back_is_refused() {
    let mut facts = facts();
    facts.spec.read_back = Some(ReadBack {
        tool: tool("order.get"),
        args: json("{}"),
        expect: reversi_proto::testing::manifests()
            .get(&tool("order.create_checked"))
            .unwrap()
            .compensation
            .clone()
            .unwrap()
            .verification
            .unwrap()
            .expect,
        retries: 2,
        backoff_ms: 1000,
        timeout_ms: 60_000,
        possible: true,
    });
    let succeeded = UndoEvent::Succeeded(UndoSucceeded { attempt: 1, read_at: Some(at(50)), step: 1 }, ());
    let reading = given(undo(), [attempted(1), succeeded.into()]);
    let read = |read, end| UndoCommand::ReadEnded { attempt: 1, read, end };
    assert!(reading.clone().when(&read(2, ReadEnd::Match), at(60), &facts).decided.is_err());
    let again = reading.when(&read(1, mismatch("a")), at(60), &facts).then_kinds(&["undo.mismatched"]);
    assert_eq!(again.state.effects(), [UndoEffect::ReadBack { attempt: 1, read: 2, at: at(1060) }]);
    assert!(again.clone().when(&read(1, ReadEnd::Match), at(70), &facts).decided.is_err());
    let verified = UndoEvent::Verified(UndoVerified { attempt: 1, matched: true, step: 1 }, ());
    again.when(&read(2, ReadEnd::Match), at(1060), &facts).then(&[verified.into()]);
}

#[test]
fn nothing_is_attempted_before_its_turn() {
    for why in [NotReady::NotRollingBack, NotReady::NotPlanned, NotReady::Deferred, NotReady::AwaitingApproval] {
        let facts = UndoFacts { turn: Err(why), ..facts() };
        let refused = given(undo(), []).when(&UndoCommand::Attempt, at(0), &facts).decided.unwrap_err();
        assert_eq!(refused, UndoReject::NotReady { step: 1, why });
        // What was begun is always ended, whatever the run says by then.
        given(undo(), [attempted(1)]).when(&ended(1, CallEnd::Success), at(1), &facts).then_kinds(&["undo.succeeded"]);
    }
}

#[test]
fn without_a_read_back_an_unknown_outcome_of_a_plain_tool_is_for_an_operator() {
    let when = given(undo(), [attempted(1)]).when(&ended(1, unknown()), at(100), &facts());
    let body = UndoUncertain { attempt: 1, next: AfterUnknown::Operator, step: 1 };
    let private = ErrorText { error: Some("timeout".to_owned()) };
    let uncertain = when.then(&[UndoEvent::Uncertain(body, private).into()]);
    assert_eq!(uncertain.state.phase(), &Phase::Uncertain);
    let later = UndoFacts { turn: Ok(rollback_id(2)), ..facts() };
    uncertain.when(&UndoCommand::Attempt, at(999_999), &later).then_nothing();
}

// --- known failures

#[test]
fn known_failures_end_as_failed_after_the_declared_attempts() {
    let mut world = undoing("note.add"); // attempts: 2
    world.attempt(1, known());
    let Phase::Waiting { at } = world.phase(1) else { panic!() };
    world.now = at;
    world.attempt(1, known());
    assert_eq!(world.phase(1), Phase::Failed);
    let UndoEvent::Failed(body, _) = last(&world) else { panic!() };
    assert_eq!((body.attempt, body.retry_at), (2, None));
    assert_eq!(world.run.step(1).unwrap().word(), "compensation_failed");
}

#[test]
fn a_tool_that_cannot_be_repeated_is_called_again_after_a_known_failure() {
    let mut world = undoing("order.create");
    world.attempt(1, known());
    let Phase::Waiting { at } = world.phase(1) else { panic!() };
    world.now = at;
    world.attempt(1, CallEnd::Success);
    assert_eq!(world.phase(1), Phase::Compensated(Verified::NotDeclared));
}

#[test]
fn the_backoff_doubles_up_to_its_limit() {
    let mut world = undoing("job.start"); // 3 attempts, 200 ms up to 5 s
    world.random = u64::MAX;
    let mut ceilings = vec![];
    for _ in 0..2 {
        let begun = world.now;
        world.attempt(1, known());
        let Phase::Waiting { at } = world.phase(1) else { panic!() };
        ceilings.push(at.ms_since(begun));
        world.now = at;
    }
    let jitter = |ceiling: u64| u64::MAX % (ceiling + 1);
    assert_eq!(ceilings, [jitter(200), jitter(400)]);
}

// --- unknown outcomes with a read-back

#[test]
fn an_unknown_outcome_is_read_back_once_the_call_is_over() {
    let mut world = undoing("order.create_checked");
    world.undo(1, &UndoCommand::Attempt).unwrap();
    let over_by = world.now.plus_ms(10_000);
    world.wait(4000);
    world.call_ended(1, unknown());
    assert_eq!(
        world.phase(1),
        Phase::Reading { after: After::Unknown, read: 1, at: over_by },
        "it may still be running"
    );
    let mut killed = undoing("order.create_checked");
    killed.calls_are_over = true;
    killed.attempt(1, unknown());
    assert_eq!(killed.phase(1), Phase::Reading { after: After::Unknown, read: 1, at: killed.now });
}

#[test]
fn a_match_after_an_unknown_outcome_is_done() {
    let mut world = undoing("order.create_checked");
    world.attempt(1, unknown());
    world.read(1, ReadEnd::Match);
    assert_eq!(world.phase(1), Phase::Compensated(Verified::Matched));
}

#[test]
fn mismatches_after_an_unknown_outcome_prove_nothing() {
    // Not idempotent: an operator.
    let mut world = undoing("order.create_checked");
    world.attempt(1, unknown());
    world.read(1, mismatch("state"));
    let UndoEvent::Mismatched(body, _) = last(&world) else { panic!() };
    assert_eq!(body.next, AfterMismatch::Read { at: world.now.plus_ms(1000) });
    world.read(1, mismatch("state"));
    assert_eq!(world.phase(1), Phase::Uncertain);
    // Idempotent: again, with the same key.
    let mut world = undoing("job.start");
    world.attempt(1, unknown());
    world.read(1, mismatch("running"));
    let Phase::Waiting { at } = world.phase(1) else { panic!() };
    world.now = at;
    world.attempt(1, CallEnd::Success);
    world.read(1, ReadEnd::Match);
    assert_eq!(world.phase(1), Phase::Compensated(Verified::Matched));
}

#[test]
fn a_read_back_that_is_unavailable_counts_as_none_after_an_unknown_outcome() {
    let mut world = undoing("order.create_checked");
    world.attempt(1, unknown());
    world.read(1, unavailable());
    assert_eq!(world.phase(1), Phase::Uncertain);
    let mut world = undoing("job.start");
    world.attempt(1, unknown());
    world.read(1, unavailable());
    assert!(matches!(world.phase(1), Phase::Waiting { .. }));
    assert_eq!(
        last(&world),
        &UndoEvent::Uncertain(
            UndoUncertain { attempt: 1, next: AfterUnknown::Again { at: world.now }, step: 1 },
            ErrorText { error: Some("no answer".to_owned()) },
        )
    );
}

#[test]
fn a_read_back_that_nobody_serves_counts_as_none() {
    for (called, expected) in [("order.create_checked", "undo_uncertain"), ("job.start", "compensating")] {
        let mut world = undoing(called);
        world.unserved.extend([tool("order.get"), tool("job.get")]);
        world.attempt(1, unknown());
        assert_eq!(world.run.step(1).unwrap().word(), expected, "{called}");
        assert!(!matches!(world.phase(1), Phase::Reading { .. }));
    }
}

// --- success and its read-back

// F5
#[test]
fn success_is_read_back_and_a_mismatch_fails_it_with_the_first_path() {
    let mut world = undoing("order.create_checked");
    world.attempt(1, CallEnd::Success);
    world.read(1, mismatch("state"));
    world.read(1, mismatch("other"));
    assert_eq!(world.phase(1), Phase::Failed);
    let undo = &world.undos[&1];
    assert_eq!((undo.first_mismatch(), undo.attempts()), (Some("state"), 1), "the first one is kept");
    assert!(!undo.may_start(&rollback_id(2)), "it reported success, so it may have happened");
    let first = world.log.iter().find(|logged| logged.event.kind() == "undo.mismatched").unwrap();
    let encoded = first.event.encode().unwrap();
    assert!(!encoded.body.as_str().contains("marked-secret"), "values are sealed");
    let Event::Undo(UndoEvent::Mismatched(_, values)) = &first.event else { panic!() };
    assert_eq!(values.got, Some(json("\"marked-secret\"")));
    let report = world.run.report(&world.archive);
    assert_eq!(report.failed[0].reason, "the undo failed; read-back differed first at state");
}

// F4
#[test]
fn waits_between_read_backs_double() {
    let mut world = World::new(Mode::Observe);
    world.done("fs.write_file", "{}", r#"{"undo_token":"u"}"#); // 3 read-backs, 1 s
    world.rollback(1).unwrap();
    world.attempt(1, CallEnd::Success);
    let mut waits = vec![];
    for _ in 0..2 {
        world.read(1, mismatch("matches_before"));
        let Phase::Reading { at, .. } = world.phase(1) else { panic!() };
        waits.push(at.ms_since(world.now));
    }
    assert_eq!(waits, [1000, 2000]);
    world.read(1, mismatch("matches_before"));
    assert_eq!(world.phase(1), Phase::Failed);
}

// F6
#[test]
fn an_unavailable_read_back_after_success_is_no_mismatch() {
    let mut world = undoing("order.create_checked");
    world.attempt(1, CallEnd::Success);
    world.read(1, unavailable());
    assert_eq!(world.phase(1), Phase::Compensated(Verified::Unverified));
    let mut world = undoing("order.create_checked");
    world.unserved.insert(tool("order.get"));
    let before = world.log.len();
    world.attempt(1, CallEnd::Success);
    assert_eq!(world.kinds_after(before), ["undo.attempted", "undo.succeeded", "undo.verified"]);
    assert_eq!(world.phase(1), Phase::Compensated(Verified::Unverified));
}

// --- unknown once, never failed

#[test]
fn a_step_with_an_unknown_attempt_never_ends_as_failed() {
    // unknown, then known failures until the attempts are spent
    let mut world = undoing("note.add"); // 2 attempts, no read-back
    world.attempt(1, unknown());
    let Phase::Waiting { at } = world.phase(1) else { panic!() };
    world.now = at;
    world.attempt(1, known());
    assert_eq!(world.phase(1), Phase::Uncertain);
    // unknown, then success with mismatches
    let mut world = undoing("job.start");
    world.attempt(1, unknown());
    world.read(1, mismatch("running"));
    let Phase::Waiting { at } = world.phase(1) else { panic!() };
    world.now = at;
    world.attempt(1, CallEnd::Success);
    world.read(1, mismatch("running"));
    assert_eq!(world.phase(1), Phase::Uncertain);
    // unknown until the attempts are spent
    let mut world = undoing("note.add");
    world.attempt(1, unknown());
    let Phase::Waiting { at } = world.phase(1) else { panic!() };
    world.now = at;
    world.attempt(1, unknown());
    assert_eq!(world.phase(1), Phase::Uncertain);
    assert_eq!(world.run.step(1).unwrap().word(), "undo_uncertain");
}

#[test]
fn a_call_is_repeated_only_after_the_old_one_is_over() {
    let mut world = undoing("note.add"); // 5 s
    world.undo(1, &UndoCommand::Attempt).unwrap();
    let over_by = world.now.plus_ms(5000);
    world.wait(10);
    world.call_ended(1, unknown());
    let Phase::Waiting { at } = world.phase(1) else { panic!() };
    assert!(at >= over_by, "{at} is before {over_by}");
    world.undo(1, &UndoCommand::Attempt).unwrap();
    assert!(matches!(world.phase(1), Phase::Waiting { .. }), "not before then");
}

// --- lost attempts

#[test]
fn an_attempt_that_was_lost_is_of_unknown_outcome() {
    for (called, reading) in [("order.create_checked", true), ("order.create", false)] {
        let mut world = undoing(called);
        world.undo(1, &UndoCommand::Attempt).unwrap();
        let lost = world.undos[&1].abandon_open_intent().unwrap();
        assert!(matches!(lost, UndoCommand::LoseAttempt));
        let over_by = world.now.plus_ms(10_000);
        world.wait(2000);
        world.undo(1, &lost).unwrap();
        if reading {
            assert_eq!(world.phase(1), Phase::Reading { after: After::Unknown, read: 1, at: over_by });
        } else {
            assert_eq!(world.phase(1), Phase::Uncertain);
        }
        assert!(world.undos[&1].abandon_open_intent().is_none(), "only an open call is given up");
    }
}

#[test]
fn an_attempt_found_long_after_is_read_back_at_once() {
    let mut world = undoing("order.create_checked");
    world.undo(1, &UndoCommand::Attempt).unwrap();
    world.wait(3_600_000);
    world.undo(1, &UndoCommand::LoseAttempt).unwrap();
    assert_eq!(world.phase(1), Phase::Reading { after: After::Unknown, read: 1, at: world.now });
}

// --- resolutions

#[test]
fn an_operator_settles_an_uncertain_undo_both_ways() {
    let mut world = undoing("order.create_checked");
    world.attempt(1, unknown());
    world.read(1, unavailable());
    let settled = |status| {
        let mut world = world.clone();
        world.resolve(Target::Undo, 1, status, "").unwrap();
        let streams = &world.log.last().unwrap().streams;
        assert!(streams.contains(&StreamId::Undo(run_id(), 1)), "the undo must see it");
        world
    };
    let done = settled(Outcome::Succeeded);
    assert_eq!(done.phase(1), Phase::Compensated(Verified::Unverified));
    assert_eq!(done.run.report(&done.archive).compensated[0].verified, Some(false), "declared, and never matched");
    let failed = settled(Outcome::Failed);
    assert_eq!(failed.phase(1), Phase::Failed);
    assert!(failed.undos[&1].may_start(&rollback_id(2)) && !failed.undos[&1].may_start(&rollback_id(1)));
}

#[test]
fn a_resolution_as_undone_frees_the_claim() {
    let mut world = undoing("job.start");
    let claim = world.run.step(1).unwrap().claim.unwrap();
    for _ in 0..3 {
        if let Phase::Waiting { at } = world.phase(1) {
            world.now = at;
        }
        world.attempt(1, unknown());
        world.read(1, mismatch("running"));
    }
    assert_eq!(world.phase(1), Phase::Uncertain);
    let mut failed = world.clone();
    failed.resolve(Target::Undo, 1, Outcome::Failed, "").unwrap();
    assert!(failed.claim(claim).holder.is_some(), "what it did still stands");
    world.resolve(Target::Undo, 1, Outcome::Succeeded, "").unwrap();
    assert_eq!(world.claim(claim).holder, None);
}

#[test]
fn only_an_uncertain_undo_can_be_resolved() {
    let mut world = undoing("order.create_checked");
    let refused = world.resolve(Target::Undo, 1, Outcome::Succeeded, "").unwrap_err();
    assert!(refused.to_string().contains("only an undo of unknown outcome"), "{refused}");
    world.undo(1, &UndoCommand::Attempt).unwrap();
    assert!(world.resolve(Target::Undo, 1, Outcome::Succeeded, "").is_err(), "an open call ends first");
    world.call_ended(1, CallEnd::Success);
    world.read(1, mismatch("state"));
    world.read(1, mismatch("state"));
    assert!(world.resolve(Target::Undo, 1, Outcome::Succeeded, "").is_err());
}

#[test]
fn a_new_rollback_starts_its_own_count_of_attempts() {
    let mut world = undoing("note.add");
    for rollback in 2..4 {
        world.attempt(1, known());
        let Phase::Waiting { at } = world.phase(1) else { panic!("rollback {rollback} had no second attempt") };
        world.now = at;
        world.attempt(1, known());
        assert_eq!(world.phase(1), Phase::Failed);
        world.settle();
        world.rollback(rollback).unwrap();
    }
    assert_eq!(world.undos[&1].attempts(), 4, "attempts are numbered over all rollbacks");
}

// --- what is called

// E6 F2 B13
#[test]
fn the_undo_is_built_from_what_was_captured() {
    let mut world = World::new(Mode::Observe);
    let args = r#"{"order_id":"o","amount":2500,"card_token":"tok"}"#;
    world.done("stripe.create_charge", args, r#"{"id":"ch_1","status":"paid"}"#);
    let spec = world.spec(1);
    assert_eq!((spec.tool.as_str(), spec.args.as_str()), ("stripe.refund", r#"{"amount":2500,"charge_id":"ch_1"}"#));
    assert_eq!((spec.idempotent, spec.timeout_ms, spec.attempts_max), (true, 20_000, 3));
    assert_eq!((spec.base_ms, spec.max_ms), (200, 5000));
    let read = spec.read_back.unwrap();
    assert_eq!((read.tool.as_str(), read.args.as_str()), ("stripe.get_charge", r#"{"charge_id":"ch_1"}"#));
    assert_eq!((read.retries, read.backoff_ms, read.timeout_ms, read.possible), (3, 2000, 60_000, true));
    world.unserved.insert(tool("stripe.get_charge"));
    assert!(!world.spec(1).read_back.unwrap().possible);
}

#[test]
fn an_erased_value_is_never_sent_as_null() {
    let mut world = World::new(Mode::Observe);
    world.done("order.create", "{}", ORDER);
    let mut erased = world.run.step(1).unwrap().clone();
    erased.values.clear();
    let error = erased.undo_spec(&world.archive, &|_| true).unwrap_err();
    assert_eq!(error.to_string(), "the value of $result.id that the undo of step 1 needs is gone");
    let gone = erased.undo_spec(&reversi_proto::config::Archive::default(), &|_| true).unwrap_err();
    assert!(gone.to_string().contains("is not in the journal"));
}
