//! The daemon's core without disk and network: an agent's run, its rollback, and what upstreams can do to it.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod daemon;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use daemon::{Daemon, refused, unknown};
use reversi_actors::error::Code;
use reversi_actors::ports::Notice;
use reversi_actors::service::{NewRollback, Retry};
use reversi_proto::event::v1::{Outcome, Role, Target};
use reversi_proto::run::DecisionWord;

// F1
#[tokio::test]
async fn a_run_is_undone_newest_first_and_verified() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    daemon.step(&run, "doc.write", r#"{"name":"a"}"#, r#"{"token":"t1"}"#).await;
    daemon.step(&run, "doc.write", r#"{"name":"b"}"#, r#"{"token":"t2"}"#).await;
    let report = daemon.rollback(&run).await;
    assert!(report.complete && report.verified, "{report:?}");
    assert_eq!(report.compensated.len(), 2);
    let calls = daemon.tools.calls.lock().unwrap();
    let order: Vec<_> = calls.iter().map(|call| (call.tool.as_str(), call.args.as_str())).collect();
    assert_eq!(
        order,
        [
            ("doc.restore", r#"{"token":"t2"}"#),
            ("doc.read", r#"{"token":"t2"}"#),
            ("doc.restore", r#"{"token":"t1"}"#),
            ("doc.read", r#"{"token":"t1"}"#),
        ]
    );
    assert!(calls[0].idempotency_key.as_deref().unwrap().ends_with(&format!(":{run}:2")));
}

#[tokio::test]
async fn an_irreversible_call_is_blocked_and_one_request_is_opened() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    let nobody = daemon.begin(&run, "mail.send", r#"{"to":"x"}"#, Retry::default()).await;
    assert_eq!((&*nobody.findings[0].code, nobody.approval), ("approval.unreachable", None), "nobody could answer");
    daemon.person("anna", &[Role::Approver], &[]).await;
    let first = daemon.begin(&run, "mail.send", r#"{"to":"x"}"#, Retry::default()).await;
    let again = daemon.begin(&run, "mail.send", r#"{"to":"x"}"#, Retry::default()).await;
    let other = daemon.begin(&run, "mail.send", r#"{"to":"y"}"#, Retry::default()).await;
    assert_eq!(first.decision, DecisionWord::Block);
    assert_eq!(first.findings[0].code, "approval.required");
    assert!(first.approval.is_some());
    assert_eq!(first.approval, again.approval);
    assert_ne!(first.approval, other.approval);
}

#[tokio::test]
async fn an_unknown_outcome_is_read_back_before_anything_else() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    daemon.step(&run, "doc.write", r#"{"name":"a"}"#, r#"{"token":"t1"}"#).await;
    daemon.tools.then("doc.restore", unknown());
    let report = daemon.rollback(&run).await;
    assert!(report.complete && report.verified, "{report:?}");
    assert_eq!(daemon.tools.calls_of("doc.restore"), 1, "the read-back matched, so nothing is called again");
}

#[tokio::test]
async fn a_non_idempotent_inverse_of_unknown_outcome_waits_for_an_operator() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    daemon.step(&run, "doc.write", r#"{"name":"a"}"#, r#"{"token":"t1"}"#).await;
    let paid = daemon.step(&run, "pay.charge", "{}", r#"{"id":"c1"}"#).await;
    daemon.tools.then("pay.refund", unknown());
    let report = daemon.rollback(&run).await;
    assert_eq!((report.status, report.complete), ("partly_rolled_back", false));
    assert_eq!(report.undo_uncertain[0].step, paid);
    assert_eq!(report.compensated.len(), 1, "another upstream goes on");
    assert_eq!(daemon.tools.calls_of("pay.refund"), 1);
    let told = [
        Notice::UndoUncertain { run: run.clone(), step: paid },
        Notice::RollbackFinished { run: run.clone(), complete: false },
    ];
    assert_eq!(*daemon.tools.notices.lock().unwrap(), told);
    let word = (Outcome::Succeeded, "seen in the ledger of the bank".to_owned(), None);
    daemon.service.resolve(&daemon.operator, &run, (paid, Target::Undo), word).await.unwrap();
    let report = daemon.settled(&run).await;
    assert!(report.complete, "{report:?}");
    assert_eq!(daemon.tools.calls_of("pay.refund"), 1);
}

// B13
#[tokio::test]
async fn known_failures_are_retried_and_then_reported() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    let paid = daemon.step(&run, "pay.charge", "{}", r#"{"id":"c1"}"#).await;
    for _ in 0..3 {
        daemon.tools.then("pay.refund", refused());
    }
    let report = daemon.rollback(&run).await;
    assert_eq!(report.failed[0].step, paid);
    assert_eq!(report.failed[0].attempts, 3);
    let report = daemon.rollback(&run).await;
    assert!(report.complete, "a new rollback tries again what can't have happened: {report:?}");
    assert_eq!(daemon.tools.calls_of("pay.refund"), 4);
}

#[tokio::test]
async fn a_step_without_an_outcome_defers_its_upstream_until_it_is_settled() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    daemon.step(&run, "doc.write", r#"{"name":"a"}"#, r#"{"token":"t1"}"#).await;
    let open = daemon.begin(&run, "doc.write", r#"{"name":"b"}"#, Retry::default()).await.step;
    let report = daemon.rollback(&run).await;
    assert_eq!(report.unresolved[0].step, open);
    assert_eq!(report.deferred.len(), 1);
    assert_eq!(daemon.tools.calls_of("doc.restore"), 0);
    let word = (Outcome::Succeeded, "the file is there".to_owned(), Some(r#"{"token":"t2"}"#.to_owned()));
    daemon.service.resolve(&daemon.operator, &run, (open, Target::Step), word).await.unwrap();
    let report = daemon.settled(&run).await;
    assert!(report.complete, "{report:?}");
    assert_eq!(daemon.tools.calls_of("doc.restore"), 2);
}

#[tokio::test]
async fn of_two_runs_racing_with_one_global_key_one_is_allowed() {
    let daemon = Daemon::start().await;
    let (one, two) = (daemon.run().await, daemon.run().await);
    for round in 0..32 {
        let args = format!(r#"{{"name":"race-{round}"}}"#);
        let (a, b) = tokio::join!(
            daemon.begin(&one, "doc.write", &args, Retry::default()),
            daemon.begin(&two, "doc.write", &args, Retry::default())
        );
        let allowed = [&a, &b].iter().filter(|answer| answer.decision == DecisionWord::Allow).count();
        assert_eq!(allowed, 1, "{a:?} {b:?}");
        let blocked = if a.decision == DecisionWord::Block { a } else { b };
        assert_eq!(blocked.findings[0].code, "duplicate.call");
    }
}

#[tokio::test]
async fn a_retried_begin_belongs_to_its_attempt() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    let retry = |attempt| Retry { key: Some("k1"), attempt, body: "{}" };
    let first = daemon.begin(&run, "doc.read", "{}", retry(Some("a"))).await;
    let same = daemon.begin(&run, "doc.read", "{}", retry(Some("a"))).await;
    let other = daemon.begin(&run, "doc.read", "{}", retry(Some("b"))).await;
    let none = daemon.begin(&run, "doc.read", "{}", retry(None)).await;
    assert_eq!((first.decision, same.decision), (DecisionWord::Allow, DecisionWord::Allow));
    assert_eq!((first.step, same.replayed), (same.step, true));
    for answer in [other, none] {
        assert_eq!(answer.decision, DecisionWord::Block);
        assert_eq!(answer.findings[0].code, "step.already_begun");
    }
}

#[tokio::test]
async fn others_runs_look_absent_and_roles_hold() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    let stranger = daemon.person("bot-2", &[Role::Agent], &[]).await;
    let code = |error: reversi_actors::error::ServiceError| error.code;
    assert_eq!(daemon.service.run(&stranger, &run).await.map_err(code).unwrap_err(), Code::RunNotFound);
    assert_eq!(daemon.service.plan(&daemon.agent, &run).await.map_err(code).unwrap_err(), Code::RoleMissing);
    assert_eq!(daemon.service.run(&daemon.operator, &run).await.unwrap().summary.run_id, run);
}

#[tokio::test]
async fn a_new_daemon_on_the_same_journal_goes_on() {
    let mut daemon = Daemon::start().await;
    let run = daemon.run().await;
    daemon.step(&run, "doc.write", r#"{"name":"a"}"#, r#"{"token":"t1"}"#).await;
    daemon.restart().await;
    daemon.step(&run, "doc.write", r#"{"name":"b"}"#, r#"{"token":"t2"}"#).await;
    let report = daemon.rollback(&run).await;
    assert!(report.complete, "{report:?}");
    assert_eq!(report.compensated.len(), 2);
}

#[tokio::test]
async fn an_outcome_that_could_not_be_recorded_at_once_is_no_reason_to_call_again() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    daemon.step(&run, "pay.charge", "{}", r#"{"id":"c1"}"#).await;
    // The run's actor dies when the undo's asks it where the outcome goes.
    daemon.tools.panics_after_call.store(1, Ordering::SeqCst);
    let report = daemon.rollback(&run).await;
    assert_eq!(daemon.tools.panics.load(Ordering::SeqCst), 0, "the run's actor did fail");
    assert_eq!(daemon.tools.calls_of("pay.refund"), 1, "the inverse was called twice");
    assert!(report.complete, "{report:?}");
}

#[tokio::test]
async fn an_intent_that_could_not_be_given_up_at_once_is_no_reason_to_call_again() {
    let mut daemon = Daemon::start().await;
    let run = daemon.run().await;
    let paid = daemon.step(&run, "pay.charge", "{}", r#"{"id":"c1"}"#).await;
    daemon.tools.hangs.store(true, Ordering::SeqCst);
    let start = NewRollback::default();
    daemon.service.rollback(&daemon.operator, &run, start, Retry::default()).await.unwrap();
    while daemon.tools.calls_of("pay.refund") == 0 {
        tokio::task::yield_now().await;
    }
    daemon.tools.hangs.store(false, Ordering::SeqCst);
    daemon.tools.panics.store(1, Ordering::SeqCst);
    daemon.restart().await;
    let report = daemon.settled(&run).await;
    assert_eq!(daemon.tools.panics.load(Ordering::SeqCst), 0, "the run's actor did fail");
    assert_eq!(daemon.tools.calls_of("pay.refund"), 1, "the inverse was called twice");
    assert_eq!(report.undo_uncertain[0].step, paid);
}

#[tokio::test]
async fn a_step_of_the_wall_clock_is_journaled_and_not_followed() {
    use reversi_actors::clock::Clock as _;
    use reversi_actors::journal::Journal as _;
    let daemon = Daemon::start().await;
    let before = daemon.clock.now();
    daemon.clock.step_wall(-3_600_000_000);
    let stepped = |line: &Arc<[u8]>| String::from_utf8_lossy(line).contains(r#"{"by_ms":-3600000}"#);
    for _ in 0..1_000 {
        if daemon.journal.lines(0, usize::MAX).unwrap().iter().any(stepped) {
            assert!(daemon.clock.now().ms_since(before) < 60_000);
            return;
        }
        tokio::task::yield_now().await;
        if let Some(next) = daemon.clock.next_sleeper() {
            daemon.clock.advance_to(next);
        }
    }
    panic!("the step was never journaled");
}
