//! A whole daemon without disk and network: memory journal, simulated clock, scripted upstreams.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reversi_actors::clock::SimClock;
use reversi_actors::error::ServiceError;
use reversi_actors::ids::SeededIds;
use reversi_actors::journal::MemoryJournal;
use reversi_actors::ports::{CallOutcome, Notice, Notifier, ToolCall, ToolCaller};
use reversi_actors::service::{NewKey, NewRollback, NewRun, NewStep, Retry, Service, StepOutcome};
use reversi_actors::system::{Parts, System, genesis};
use reversi_proto::access::Principal;
use reversi_proto::canonical::Canonical;
use reversi_proto::event::v1::{Mode, Outcome, Role};
use reversi_proto::ids::{ApprovalId, LedgerId, RunId, ToolName};
use reversi_proto::manifest::{ManifestSet, load};
use reversi_proto::run::{DecisionWord, Report};
use reversi_proto::time::Timestamp;

pub const MANIFESTS: &str = r#"
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
- tool: big.pay
  effect: compensable
  permission: docs:write
  idempotency: { key: "{{args.order}}", scope: global }
  audit: { redaction: [$args.card] }
  approval: { roles: [finance], quorum: 2, timeout: 15m, on_timeout: escalate, escalate_to: [cfo, ceo] }
  compensation:
    tool: big.refund
    argument_map: { id: $result.id }
    requires_approval: true
- tool: big.refund
  effect: idempotent
  permission: docs:write
  approval: { roles: [finance], timeout: 10m }
"#;

/// Answers from a script, by tool; by default with success. Keeps what it was asked.
#[derive(Default)]
pub struct Script {
    pub answers: Mutex<BTreeMap<String, VecDeque<CallOutcome>>>,
    pub calls: Mutex<Vec<ToolCall>>,
    pub notices: Mutex<Vec<Notice>>,
    /// This many questions about earlier calls end in a panic of whoever asks: a run's actor.
    pub panics: AtomicU32,
    /// The next call sets `panics` to this.
    pub panics_after_call: AtomicU32,
    /// Calls are never answered.
    pub hangs: AtomicBool,
}

impl Notifier for Script {
    fn notify(&self, notice: Notice) {
        self.notices.lock().unwrap().push(notice);
    }
}

impl Script {
    pub fn then(&self, tool: &str, outcome: CallOutcome) {
        self.answers.lock().unwrap().entry(tool.to_owned()).or_default().push_back(outcome);
    }
    pub fn calls_of(&self, tool: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| call.tool.as_str() == tool).count()
    }
}

#[async_trait]
impl ToolCaller for Script {
    fn upstream_of(&self, tool: &ToolName) -> Option<String> {
        self.tools().get(tool).cloned()
    }
    fn tools(&self) -> BTreeMap<ToolName, String> {
        let tools = ["doc.read", "doc.restore", "pay.refund", "big.refund"];
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

pub fn success(json: &str) -> CallOutcome {
    CallOutcome::Success { result: Some(Canonical::parse(json.as_bytes()).unwrap()) }
}
pub fn unknown() -> CallOutcome {
    CallOutcome::Unknown { error: "reset".to_owned() }
}
pub fn refused() -> CallOutcome {
    CallOutcome::KnownFailure { error: "refused".to_owned() }
}

pub struct Daemon {
    pub clock: Arc<SimClock>,
    pub journal: Arc<MemoryJournal>,
    pub tools: Arc<Script>,
    pub system: System,
    pub service: Service,
    pub admin: Principal,
    pub agent: Principal,
    pub operator: Principal,
}

pub async fn boot(
    clock: &Arc<SimClock>,
    journal: &Arc<MemoryJournal>,
    tools: &Arc<Script>,
) -> (System, Option<String>) {
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

pub fn journal_seed(journal: &MemoryJournal) -> u64 {
    use reversi_actors::journal::Journal as _;
    journal.head() + 7
}

impl Daemon {
    pub async fn start() -> Self {
        let clock = Arc::new(SimClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        let ledger = LedgerId([7; 16]);
        let first = genesis(ledger, "vkey", &SeededIds::new(1)).unwrap();
        let journal = Arc::new(MemoryJournal::open(ledger, Arc::clone(&clock) as _, first));
        let tools = Arc::new(Script::default());
        let (system, admin) = boot(&clock, &journal, &tools).await;
        let service = system.service();
        let admin = service.authenticate(&admin.unwrap()).unwrap();
        let agent = Self::key(&service, &admin, "bot-1", &[Role::Agent], &[]).await;
        let operator = Self::key(&service, &admin, "olga", &[Role::Operator], &[]).await;
        Self { clock, journal, tools, system, service, admin, agent, operator }
    }

    /// A person with roles and groups, by a key of their own.
    pub async fn person(&self, name: &str, roles: &[Role], groups: &[&str]) -> Principal {
        Self::key(&self.service, &self.admin, name, roles, groups).await
    }

    async fn key(service: &Service, admin: &Principal, actor: &str, roles: &[Role], groups: &[&str]) -> Principal {
        let key = NewKey {
            actor: actor.parse().unwrap(),
            roles: roles.to_vec(),
            person: None,
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            allow_observe: false,
            expires_at: None,
        };
        let (_, text) = service.create_key(admin, key).await.unwrap();
        service.authenticate(&text).unwrap()
    }

    /// The process dies: actors are dropped, the journal stays.
    pub async fn restart(&mut self) {
        let (system, admin) = boot(&self.clock, &self.journal, &self.tools).await;
        assert_eq!(admin, None, "a ledger gets one first admin key");
        self.service = system.service();
        // The old tree is left to itself, as a killed process would be: it is not asked again.
        let old = std::mem::replace(&mut self.system, system);
        drop(old);
    }

    pub async fn run(&self) -> RunId {
        let run = NewRun {
            run_id: None,
            permissions: vec!["docs:write".to_owned(), "docs:read".to_owned()],
            mode: Mode::Enforce,
            reason: None,
        };
        self.service.start_run(&self.agent, run, Retry::default()).await.unwrap().0.run_id
    }

    pub async fn step(&self, run: &RunId, tool: &str, args: &str, result: &str) -> u32 {
        let answer = self.begin(run, tool, args, Retry::default()).await;
        assert_eq!(answer.decision, DecisionWord::Allow, "{:?}", answer.findings);
        self.done(run, answer.step, result).await;
        answer.step
    }

    pub async fn begin(
        &self,
        run: &RunId,
        tool: &str,
        args: &str,
        retry: Retry<'_>,
    ) -> reversi_proto::run::BeginAnswer {
        self.begin_with(run, tool, args, (None, retry)).await.unwrap()
    }

    /// A begin that names its approval.
    pub async fn begin_with(
        &self,
        run: &RunId,
        tool: &str,
        args: &str,
        (approval_id, retry): (Option<ApprovalId>, Retry<'_>),
    ) -> Result<reversi_proto::run::BeginAnswer, ServiceError> {
        let (tool, reason, args) = (tool.parse().unwrap(), "because".to_owned(), args.to_owned());
        let step = NewStep { tool, reason, args, approval_id };
        self.service.begin(&self.agent, run, step, retry).await
    }

    pub async fn done(&self, run: &RunId, step: u32, result: &str) {
        let outcome = StepOutcome {
            status: Outcome::Succeeded,
            result: Some(result.to_owned()),
            error: None,
            result_values: None,
        };
        self.service.complete(&self.agent, run, step, outcome).await.unwrap();
    }

    /// Time passes until the rollback needs a person or is over.
    pub async fn rollback(&self, run: &RunId) -> Report {
        self.service.rollback(&self.operator, run, NewRollback::default(), Retry::default()).await.unwrap();
        self.settled(run).await
    }

    pub fn clock_now(&self) -> Timestamp {
        use reversi_actors::clock::Clock as _;
        self.clock.now()
    }

    pub async fn settled(&self, run: &RunId) -> Report {
        self.settled_when(run, |_| true).await
    }

    /// Time passes until the rollback is over and looks so.
    pub async fn settled_when(&self, run: &RunId, wanted: impl Fn(&Report) -> bool) -> Report {
        for _ in 0..20_000 {
            // A run whose actor is being started again gives no report.
            if let Ok(report) = self.service.report(&self.operator, run).await
                && report.status != "rolling_back"
                && wanted(&report)
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
