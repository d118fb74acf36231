//! Approvals as people and agents meet them: blocked, voted for, used once; across restarts; under a clock that only
//! tests move.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod daemon;

use std::sync::Arc;

use daemon::Daemon;
use reversi_actors::error::Code;
use reversi_actors::journal::Journal as _;
use reversi_actors::ports::Notice;
use reversi_actors::service::{ApprovalFilter, ApprovalShown, NewRollback, Retry, Word};
use reversi_proto::access::Principal;
use reversi_proto::approval::ApprovalView;
use reversi_proto::event::v1::{Role, Target};
use reversi_proto::halt::HaltScope;
use reversi_proto::ids::{ApprovalId, RunId};
use reversi_proto::run::{BeginAnswer, DecisionWord};

const PAY: &str = r#"{"order":"o1","amount":2500,"card":"tok_secret"}"#;
const MINUTE: u64 = 60_000;

/// Two of finance and a cfo.
struct People {
    fred: Principal,
    fiona: Principal,
    carl: Principal,
}

async fn people(daemon: &Daemon) -> People {
    People {
        fred: daemon.person("fred", &[Role::Approver], &["finance"]).await,
        fiona: daemon.person("fiona", &[Role::Approver], &["finance"]).await,
        carl: daemon.person("carl", &[Role::Approver], &["cfo"]).await,
    }
}

async fn pay(daemon: &Daemon, run: &RunId) -> BeginAnswer {
    daemon.begin(run, "big.pay", PAY, Retry::default()).await
}

async fn approve(daemon: &Daemon, who: &Principal, id: &ApprovalId) -> Result<ApprovalView, Code> {
    daemon.service.say(who, id, Word::Approve, (None, None)).await.map_err(|error| error.code)
}

async fn view(daemon: &Daemon, id: &ApprovalId) -> ApprovalView {
    let auditor = daemon.operator.clone();
    match daemon.service.approval(&auditor, id).await.unwrap() {
        ApprovalShown::Full(view) => *view,
        ApprovalShown::Own { .. } => panic!("an operator sees all of it"),
    }
}

/// Time passes in one go; everything that was due meanwhile fires late.
async fn pass(daemon: &Daemon, ms: u64) {
    daemon.clock.advance_to(daemon.clock_now().plus_ms(ms));
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

// G7 - used once, across a restart
#[tokio::test]
async fn two_votes_across_a_restart_let_one_call_through() {
    let mut daemon = Daemon::start().await;
    let people = people(&daemon).await;
    let run = daemon.run().await;
    let asked = pay(&daemon, &run).await;
    let id = asked.approval.clone().unwrap();
    assert_eq!((asked.decision, &*asked.findings[0].code), (DecisionWord::Block, "approval.required"));
    assert_eq!(approve(&daemon, &people.fred, &id).await.unwrap().status, "pending");
    daemon.restart().await;
    // What was said is still said.
    assert_eq!(approve(&daemon, &people.fred, &id).await.unwrap().votes.len(), 1, "a vote counts once");
    assert_eq!(pay(&daemon, &run).await.approval.as_ref(), Some(&id), "one vote is not enough");
    assert_eq!(approve(&daemon, &people.fiona, &id).await.unwrap().status, "approved");
    let allowed = pay(&daemon, &run).await;
    assert_eq!((allowed.decision, allowed.approval.as_ref()), (DecisionWord::Allow, Some(&id)));
    daemon.done(&run, allowed.step, r#"{"id":"c1"}"#).await;
    assert_eq!(view(&daemon, &id).await.status, "consumed");
    let named = daemon.begin_with(&run, "big.pay", PAY, (Some(id.clone()), Retry::default())).await.unwrap();
    let codes: Vec<&str> = named.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["duplicate.call", "approval.used"], "a grant is good for one call");
    assert_eq!(approve(&daemon, &people.carl, &id).await.unwrap_err(), Code::ApprovalClosed);
}

#[tokio::test]
async fn racing_calls_share_one_grant_and_one_wins() {
    let daemon = Daemon::start().await;
    let anna = daemon.person("anna", &[Role::Approver], &[]).await;
    let run = daemon.run().await;
    let mail = r#"{"to":"x"}"#;
    let id = daemon.begin(&run, "mail.send", mail, Retry::default()).await.approval.unwrap();
    approve(&daemon, &anna, &id).await.unwrap();
    let calls = (0..32).map(|_| daemon.begin(&run, "mail.send", mail, Retry::default()));
    let answers = futures_join(calls.collect()).await;
    let allowed = answers.iter().filter(|answer| answer.decision == DecisionWord::Allow).count();
    assert_eq!(allowed, 1);
    // The others asked anew, and all of them for one request.
    let asked: std::collections::BTreeSet<_> = answers.iter().filter_map(|answer| answer.approval.clone()).collect();
    assert_eq!(asked.len(), 2, "the grant that was used, and one new request");
}

/// All of them at once.
async fn futures_join<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut pinned: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, slot) in pinned.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

// G1 G2 - who holds none of the roles is refused until a level widens them
#[tokio::test]
async fn nobody_answers_so_it_escalates_level_by_level_and_expires() {
    let mut daemon = Daemon::start().await;
    let people = people(&daemon).await;
    let run = daemon.run().await;
    let id = pay(&daemon, &run).await.approval.unwrap();
    assert_eq!(approve(&daemon, &people.carl, &id).await.unwrap_err(), Code::ApprovalNotEligible, "not yet");
    pass(&daemon, 15 * MINUTE - 1).await;
    assert_eq!(view(&daemon, &id).await.level, 0, "never early");
    pass(&daemon, 1).await;
    assert_eq!(view(&daemon, &id).await.level, 1);
    assert_eq!(approve(&daemon, &people.carl, &id).await.unwrap().votes.len(), 1);
    // The daemon is down for hours: one level per late firing, and the votes are kept.
    daemon.clock.advance_to(daemon.clock_now().plus_ms(5 * 60 * MINUTE));
    daemon.restart().await;
    pass(&daemon, 1_000).await;
    let seen = view(&daemon, &id).await;
    assert_eq!((seen.level, seen.status, seen.votes.len()), (2, "pending", 1), "{seen:?}");
    pass(&daemon, 15 * MINUTE + 1_000).await;
    let seen = view(&daemon, &id).await;
    assert_eq!((seen.status, seen.end_note.as_deref()), ("expired", Some("nobody answered in time")));
    let again = pay(&daemon, &run).await.approval.unwrap();
    assert_ne!(again, id, "an expired request is not the end: it may be asked again");
    approve(&daemon, &people.fred, &again).await.unwrap();
    approve(&daemon, &people.fiona, &again).await.unwrap();
    pass(&daemon, 15 * MINUTE + 1_000).await;
    assert_eq!(view(&daemon, &again).await.end_note.as_deref(), Some("not used in time"));
    assert_eq!(pay(&daemon, &run).await.decision, DecisionWord::Block);
}

#[tokio::test]
async fn an_undo_waits_for_its_own_approval_and_goes_on_by_itself() {
    let daemon = Daemon::start().await;
    let people = people(&daemon).await;
    let run = daemon.run().await;
    let id = pay(&daemon, &run).await.approval.unwrap();
    approve(&daemon, &people.fred, &id).await.unwrap();
    approve(&daemon, &people.fiona, &id).await.unwrap();
    let step = daemon.step(&run, "big.pay", PAY, r#"{"id":"c1"}"#).await;
    let report = daemon.rollback(&run).await;
    assert_eq!((report.status, report.awaiting_approval.len()), ("partly_rolled_back", 1), "{report:?}");
    let pending = daemon.service.approvals(&people.fred, (ApprovalFilter::Pending, true), None, 10).await.unwrap();
    let [undo] = &pending[..] else { panic!("{pending:?}") };
    assert_eq!((undo.target, undo.step, undo.tool.as_str()), (Target::Undo, Some(step), "big.refund"));
    assert_eq!(undo.preview.arguments.as_deref(), Some("{\n  \"id\": \"c1\"\n}"));
    assert_eq!(daemon.tools.calls_of("big.refund"), 0);
    approve(&daemon, &people.fred, &undo.approval_id).await.unwrap();
    let report = daemon.settled_when(&run, |report| report.complete).await;
    assert_eq!((report.compensated.len(), daemon.tools.calls_of("big.refund")), (1, 1));
    assert_eq!(view(&daemon, &undo.approval_id).await.status, "consumed");
}

#[tokio::test]
async fn a_denied_undo_is_reported_as_failed_and_a_new_rollback_asks_anew() {
    let daemon = Daemon::start().await;
    let people = people(&daemon).await;
    let run = daemon.run().await;
    let id = pay(&daemon, &run).await.approval.unwrap();
    approve(&daemon, &people.fred, &id).await.unwrap();
    approve(&daemon, &people.fiona, &id).await.unwrap();
    daemon.step(&run, "big.pay", PAY, r#"{"id":"c1"}"#).await;
    daemon.rollback(&run).await;
    let pending = daemon.service.approvals(&people.fred, (ApprovalFilter::Pending, false), None, 10).await.unwrap();
    let first = pending[0].approval_id.clone();
    daemon.service.say(&people.fred, &first, Word::Deny, (Some("keep it".to_owned()), None)).await.unwrap();
    let report = daemon.settled(&run).await;
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert!(report.failed[0].reason.contains("denied"), "{:?}", report.failed[0].reason);
    daemon.service.rollback(&daemon.operator, &run, NewRollback::default(), Retry::default()).await.unwrap();
    daemon.settled(&run).await;
    let pending = daemon.service.approvals(&people.fred, (ApprovalFilter::Pending, false), None, 10).await.unwrap();
    assert_eq!(pending.len(), 1);
    assert_ne!(pending[0].approval_id, first);
    assert_eq!(daemon.tools.calls_of("big.refund"), 0);
}

#[tokio::test]
async fn a_halt_stops_what_begins_and_nothing_else() {
    let mut daemon = Daemon::start().await;
    let run = daemon.run().await;
    let open = daemon.begin(&run, "doc.write", r#"{"name":"a"}"#, Retry::default()).await;
    daemon.service.halt(&daemon.admin, HaltScope::All, "something is wrong".to_owned()).await.unwrap();
    daemon.restart().await;
    let blocked = daemon.begin(&run, "doc.read", "{}", Retry::default()).await;
    assert_eq!((blocked.decision, &*blocked.findings[0].code), (DecisionWord::Block, "halt.active"));
    assert!(blocked.findings[0].text.contains("something is wrong"));
    daemon.done(&run, open.step, r#"{"token":"t"}"#).await;
    assert!(daemon.rollback(&run).await.complete, "operators undo while agents are stopped");
    daemon.service.resume(&daemon.admin, HaltScope::All, None).await.unwrap();
    let other = daemon.run().await;
    let tool = "doc.read".parse().unwrap();
    daemon.service.halt(&daemon.admin, HaltScope::Tool(tool), "slow".to_owned()).await.unwrap();
    assert_eq!(daemon.begin(&other, "doc.read", "{}", Retry::default()).await.decision, DecisionWord::Block);
    let written = daemon.begin(&other, "doc.write", r#"{"name":"b"}"#, Retry::default()).await;
    assert_eq!(written.decision, DecisionWord::Allow);
    let refused = daemon.service.halt(&daemon.operator, HaltScope::All, "no".to_owned()).await.unwrap_err();
    assert_eq!(refused.code, Code::RoleMissing);
}

/// Whatever begins stands in the ledger before the halt, or is blocked.
#[tokio::test]
async fn a_begin_that_races_with_a_halt_is_before_it_or_blocked() {
    let daemon = Daemon::start().await;
    let run = daemon.run().await;
    let calls = (0..40).map(|n| {
        let (daemon, run) = (&daemon, &run);
        async move {
            if n == 20 {
                daemon.service.halt(&daemon.admin, HaltScope::All, "now".to_owned()).await.unwrap();
            }
            daemon.begin(run, "doc.read", "{}", Retry::default()).await
        }
    });
    let answers = futures_join(calls.collect()).await;
    assert!(answers.iter().any(|answer| answer.decision == DecisionWord::Block));
    let lines = daemon.journal.lines(0, usize::MAX).unwrap();
    let kinds: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
    let at = |kind: &str| kinds.iter().rposition(|line| line["type"] == kind);
    assert!(at("step.begun") < at("halt.set"), "nothing begins after the halt");
}

#[tokio::test]
async fn an_agent_sees_how_its_own_request_stands_and_no_more() {
    let daemon = Daemon::start().await;
    let people = people(&daemon).await;
    let run = daemon.run().await;
    let id = pay(&daemon, &run).await.approval.unwrap();
    let shown = daemon.service.approval(&daemon.agent, &id).await.unwrap();
    assert!(matches!(shown, ApprovalShown::Own { status: "pending", deadline: Some(_), .. }), "{shown:?}");
    let other = daemon.person("bot-2", &[Role::Agent], &[]).await;
    let refused = daemon.service.approval(&other, &id).await.unwrap_err();
    assert_eq!(refused.code, Code::ApprovalNotFound);
    let refused = daemon.service.say(&daemon.agent, &id, Word::Approve, (None, None)).await.unwrap_err();
    assert_eq!(refused.code, Code::RoleMissing);
    let seen = view(&daemon, &id).await;
    assert!(!format!("{seen:?}").contains("tok_secret"), "redacted");
    assert_eq!((seen.preview.redacted_values, seen.quorum, seen.roles), (1, 2, vec!["finance".to_owned()]));
    let told = Notice::ApprovalRequested { run: run.clone(), approval: id.clone() };
    assert!(daemon.tools.notices.lock().unwrap().contains(&told));
    let other_request = (None, Some("000000000000".to_owned()));
    let refused = daemon.service.say(&people.fred, &id, Word::Approve, other_request).await.unwrap_err();
    assert_eq!(refused.code, Code::ApprovalFingerprint);
}

#[tokio::test]
async fn waiting_ends_with_the_decision_or_the_time() {
    let daemon = Arc::new(Daemon::start().await);
    let anna = daemon.person("anna", &[Role::Approver], &[]).await;
    let run = daemon.run().await;
    let id = daemon.begin(&run, "mail.send", "{}", Retry::default()).await.approval.unwrap();
    let (waiting, of) = (Arc::clone(&daemon), id.clone());
    let waiter =
        tokio::spawn(async move { waiting.service.approval_once_decided(&waiting.agent, &of, 20_000).await.unwrap() });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!waiter.is_finished());
    approve(&daemon, &anna, &id).await.unwrap();
    assert!(matches!(waiter.await.unwrap(), ApprovalShown::Own { status: "approved", .. }));
    let other = daemon.begin(&run, "mail.send", r#"{"n":2}"#, Retry::default()).await.approval.unwrap();
    let waiting = Arc::clone(&daemon);
    let waiter =
        tokio::spawn(
            async move { waiting.service.approval_once_decided(&waiting.agent, &other, 20_000).await.unwrap() },
        );
    pass(&daemon, 0).await; // so that it waits before time passes
    pass(&daemon, 19_000).await;
    assert!(!waiter.is_finished());
    pass(&daemon, 1_000).await;
    assert!(matches!(waiter.await.unwrap(), ApprovalShown::Own { status: "pending", .. }));
}

#[tokio::test]
async fn in_an_emergency_one_person_grants_and_another_reviews() {
    let daemon = Daemon::start().await;
    let people = people(&daemon).await;
    let greta = daemon.person("greta", &[Role::Breakglass], &[]).await;
    let run = daemon.run().await;
    let id = pay(&daemon, &run).await.approval.unwrap();
    let short = daemon.service.say(&greta, &id, Word::BreakGlass, (Some("fire".to_owned()), None)).await.unwrap_err();
    assert_eq!(short.code, Code::ApprovalReasonTooShort);
    let reason = "the plant is on fire and nobody answers".to_owned();
    let broken = daemon.service.say(&greta, &id, Word::BreakGlass, (Some(reason), None)).await.unwrap();
    assert_eq!(broken.status, "approved");
    daemon.step(&run, "big.pay", PAY, r#"{"id":"c1"}"#).await;
    assert_eq!(daemon.service.reviews(&people.fred).unwrap().len(), 1);
    pass(&daemon, 72 * 60 * MINUTE).await;
    assert!(daemon.service.reviews(&people.fred).unwrap()[0].overdue, "used or not, the review is owed");
    assert!(
        daemon
            .tools
            .notices
            .lock()
            .unwrap()
            .contains(&Notice::ReviewOverdue { run: run.clone(), approval: id.clone() })
    );
    let note = (Some("it was right".to_owned()), None);
    daemon.service.say(&people.fred, &id, Word::Review, note).await.unwrap();
    assert!(daemon.service.reviews(&people.fred).unwrap().is_empty());
}

#[tokio::test]
async fn a_seal_ends_what_is_pending() {
    let daemon = Daemon::start().await;
    people(&daemon).await;
    let run = daemon.run().await;
    let id = pay(&daemon, &run).await.approval.unwrap();
    let sealed = daemon.service.seal(&daemon.agent, &run).await.unwrap();
    assert_eq!(sealed.status, "sealed");
    assert_eq!(view(&daemon, &id).await.status, "cancelled");
    let all = daemon.service.approvals(&daemon.operator, (ApprovalFilter::All, false), None, 10).await.unwrap();
    assert_eq!(all.len(), 1);
    let pending = daemon.service.approvals(&daemon.operator, (ApprovalFilter::Pending, false), None, 10).await.unwrap();
    assert!(pending.is_empty());
}

#[tokio::test]
async fn keys_are_void_at_once_and_the_last_admin_stays() {
    let daemon = Daemon::start().await;
    let people = people(&daemon).await;
    let run = daemon.run().await;
    let id = pay(&daemon, &run).await.approval.unwrap();
    approve(&daemon, &people.fred, &id).await.unwrap();
    daemon.service.revoke_key(&daemon.admin, &people.fred.key).await.unwrap();
    // Fred is no approver any more, so his vote counts for nothing when the quorum is counted.
    assert_eq!(approve(&daemon, &people.fiona, &id).await.unwrap().status, "pending");
    let refused = daemon.service.revoke_key(&daemon.admin, &daemon.admin.key).await.unwrap_err();
    assert_eq!(refused.code, Code::LastAdmin);
    let (_, text, _) = daemon.service.rotate_key(&daemon.admin, &people.fiona.key).await.unwrap();
    let rotated = daemon.service.authenticate(&text).unwrap();
    assert_eq!(
        (rotated.person(), &rotated.roles, &rotated.groups),
        ("fiona", &people.fiona.roles, &people.fiona.groups)
    );
    assert!(daemon.service.keys(&daemon.admin).unwrap().iter().any(|key| key.key == people.fiona.key && key.revoked));
}
