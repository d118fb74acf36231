//! The daemon's core without disk and network: an agent's run, its rollback, and what upstreams can do to it.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reversi_actors::clock::SimClock;
use reversi_actors::error::Code;
use reversi_actors::ids::SeededIds;
use reversi_actors::journal::MemoryJournal;
use reversi_actors::ports::{CallOutcome, Notice, Notifier, ToolCall, ToolCaller};
use reversi_actors::service::{NewKey, NewRollback, NewRun, NewStep, Retry, Service, StepOutcome};
use reversi_actors::system::{Parts, System, genesis};
use reversi_proto::access::Principal;
use reversi_proto::canonical::Canonical;
use reversi_proto::event::v1::{Mode, Outcome, Role, Target};
use reversi_proto::ids::{LedgerId, RunId, ToolName};
use reversi_proto::manifest::{ManifestSet, load};
use reversi_proto::run::{DecisionWord, Report};
use reversi_proto::time::Timestamp;

const MANIFESTS: &str = r#"
- tool: doc.read
  effect: read_only
  permission: docs:read
- tool: doc.write
  effect: reversible
  permission: docs:write
  idempotency: { key: "{{args.name}}", scope: global }
  compensation:
    tool: doc.restore
    kind: inverse
    argument_map: { token: $result.token }
    verification:
      tool: doc.read
      arguments: { token: $result.token }
      expect: { before: true }
      retries: 2
      backoff_ms: 100
- tool: doc.restore
  effect: idempotent
  permission: docs:write
- tool: pay.charge
  effect: compensable
  permission: docs:write
  compensation:
    tool: pay.refund
    argument_map: { id: $result.id }
- tool: pay.refund
  effect: compensable
  permission: docs:write
  compensation:
    tool: pay.charge
    argument_map: { id: $result.id }
- tool: mail.send
  effect: irreversible
  permission: docs:write
"#;

/// Answers from a script, by tool; by default with success. Keeps what it was asked.
#[derive(Default)]
struct Script {
    answers: Mutex<BTreeMap<String, VecDeque<CallOutcome>>>,
    calls: Mutex<Vec<ToolCall>>,
    notices: Mutex<Vec<Notice>>,
    /// This many questions about earlier calls end in a panic of whoever asks: a run's actor.
    panics: AtomicU32,
    /// The next call sets `panics` to this.
    panics_after_call: AtomicU32,
    /// Calls are never answered.
    hangs: AtomicBool,
}

impl Notifier for Script {
    fn notify(&self, notice: Notice) {
        self.notices.lock().unwrap().push(notice);
    }
}

impl Script {
    fn then(&self, tool: &str, outcome: CallOutcome) {
        self.answers.lock().unwrap().entry(tool.to_owned()).or_default().push_back(outcome);
    }
    fn calls_of(&self, tool: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| call.tool.as_str() == tool).count()
    }
}

#[async_trait]
impl ToolCaller for Script {
    fn upstream_of(&self, tool: &ToolName) -> Option<String> {
        self.tools().get(tool).cloned()
    }
    fn tools(&self) -> BTreeMap<ToolName, String> {
        let tools = ["doc.read", "doc.restore", "pay.refund"];
        tools.iter().map(|tool| (tool.parse().unwrap(), tool[..3].to_owned())).collect()
    }
    async fn call(&self, call: ToolCall) -> CallOutcome {
        let tool = call.tool.as_str().to_owned();
        self.calls.lock().unwrap().push(call);
        self.panics.fetch_add(self.panics_after_call.swap(0, Ordering::SeqCst), Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let scripted = self.answers.lock().unwrap().get_mut(&tool).and_then(VecDeque::pop_front);
        scripted.unwrap_or_else(|| success(r#"{"before":true}"#))
    }
    fn earlier_calls_are_over(&self, _tool: &ToolName) -> bool {
        let left = self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "on purpose");
        true
    }
    async fn shutdown(&self) {}
}

fn success(json: &str) -> CallOutcome {
    CallOutcome::Success { result: Some(Canonical::parse(json.as_bytes()).unwrap()) }
}
fn unknown() -> CallOutcome {
    CallOutcome::Unknown { error: "reset".to_owned() }
}
fn refused() -> CallOutcome {
    CallOutcome::KnownFailure { error: "refused".to_owned() }
}

struct Daemon {
    clock: Arc<SimClock>,
    journal: Arc<MemoryJournal>,
    tools: Arc<Script>,
    system: System,
    service: Service,
    admin: Principal,
    agent: Principal,
    operator: Principal,
}

async fn boot(clock: &Arc<SimClock>, journal: &Arc<MemoryJournal>, tools: &Arc<Script>) -> (System, Option<String>) {
    let manifests = load("manifests.yaml", MANIFESTS.as_bytes()).unwrap();
    let named = manifests.into_iter().map(|manifest| ("manifests.yaml".to_owned(), manifest)).collect();
    let parts = Parts {
        journal: Arc::clone(journal) as _,
        clock: Arc::clone(clock) as _,
        ids: Arc::new(SeededIds::new(journal_seed(journal))),
        tools: Arc::clone(tools) as _,
        notifier: Arc::clone(tools) as _,
        manifests: ManifestSet::new(named).unwrap(),
    };
    let mut admin = None;
    let system = System::start(parts, |key| {
        admin = Some(key.to_owned());
        Ok(())
    });
    (system.await.unwrap(), admin)
}

fn journal_seed(journal: &MemoryJournal) -> u64 {
    use reversi_actors::journal::Journal as _;
    journal.head() + 7
}

impl Daemon {
    async fn start() -> Self {
        let clock = Arc::new(SimClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        let ledger = LedgerId([7; 16]);
        let first = genesis(ledger, "vkey", &SeededIds::new(1)).unwrap();
        let journal = Arc::new(MemoryJournal::open(ledger, Arc::clone(&clock) as _, first));
        let tools = Arc::new(Script::default());
        let (system, admin) = boot(&clock, &journal, &tools).await;
        let service = system.service();
        let admin = service.authenticate(&admin.unwrap()).unwrap();
        let agent = Self::key(&service, &admin, "bot-1", Role::Agent).await;
        let operator = Self::key(&service, &admin, "olga", Role::Operator).await;
        Self { clock, journal, tools, system, service, admin, agent, operator }
    }

    async fn key(service: &Service, admin: &Principal, actor: &str, role: Role) -> Principal {
        let key = NewKey {
            actor: actor.parse().unwrap(),
            roles: vec![role],
            person: None,
            groups: vec![],
            allow_observe: false,
            expires_at: None,
        };
        let (_, text) = service.create_key(admin, key).await.unwrap();
        service.authenticate(&text).unwrap()
    }

    /// The process dies: actors are dropped, the journal stays.
    async fn restart(&mut self) {
        let (system, admin) = boot(&self.clock, &self.journal, &self.tools).await;
        assert_eq!(admin, None, "a ledger gets one first admin key");
        self.service = system.service();
        // The old tree is left to itself, as a killed process would be: it is not asked again.
        let old = std::mem::replace(&mut self.system, system);
        drop(old);
    }

    async fn run(&self) -> RunId {
        let run = NewRun {
            run_id: None,
            permissions: vec!["docs:write".to_owned(), "docs:read".to_owned()],
            mode: Mode::Enforce,
            reason: None,
        };
        self.service.start_run(&self.agent, run, Retry::default()).await.unwrap().0.run_id
    }

    async fn step(&self, run: &RunId, tool: &str, args: &str, result: &str) -> u32 {
        let answer = self.begin(run, tool, args, Retry::default()).await;
        assert_eq!(answer.decision, DecisionWord::Allow, "{:?}", answer.findings);
        self.done(run, answer.step, result).await;
        answer.step
    }

    async fn begin(&self, run: &RunId, tool: &str, args: &str, retry: Retry<'_>) -> reversi_proto::run::BeginAnswer {
        let step = NewStep {
            tool: tool.parse().unwrap(),
            reason: "because".to_owned(),
            args: args.to_owned(),
            approval_id: None,
        };
        self.service.begin(&self.agent, run, step, retry).await.unwrap()
    }

    async fn done(&self, run: &RunId, step: u32, result: &str) {
        let outcome = StepOutcome {
            status: Outcome::Succeeded,
            result: Some(result.to_owned()),
            error: None,
            result_values: None,
        };
        self.service.complete(&self.agent, run, step, outcome).await.unwrap();
    }

    /// Time passes until the rollback needs a person or is over.
    async fn rollback(&self, run: &RunId) -> Report {
        self.service.rollback(&self.operator, run, NewRollback::default(), Retry::default()).await.unwrap();
        self.settled(run).await
    }

    async fn settled(&self, run: &RunId) -> Report {
        for _ in 0..20_000 {
            // A run whose actor is being started again gives no report.
            if let Ok(report) = self.service.report(&self.operator, run).await
                && report.status != "rolling_back"
            {
                return report;
            }
            tokio::task::yield_now().await;
            if let Some(next) = self.clock.next_sleeper() {
                self.clock.advance_to(next);
            }
        }
        panic!("the rollback never settles: {:?}", self.service.report(&self.operator, run).await);
    }
}

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
    let stranger = Daemon::key(&daemon.service, &daemon.admin, "bot-2", Role::Agent).await;
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
