//! A run: its scope, its steps, and whether it is being undone. Must not know how an inverse is called.
mod approve;
mod approve_undo;
mod begin;
mod fold;
mod outcome;
mod report;
mod rollback;
mod spec;

use std::collections::BTreeMap;

use crate::aggregate::{Aggregate, Decision};
use crate::approval::Approval;
use crate::canonical::Canonical;
use crate::event::v1::{Executor, Finding, Mode, Outcome, RequestKey, RunStarted, UndoPin};
use crate::event::{Event, Meta, RunEvent};
use crate::hash::Hash;
use crate::ids::{Actor, ActorId, ApprovalId, RollbackId, RunId, Seq, StepNo, StreamId, ToolName};
use crate::ledger::Frontier;
use crate::manifest::Effect;
use crate::time::Timestamp;
use crate::undo::{Phase, Undo};
use crate::wake::Wake;

pub use approve::{PreApprove, PreApproveFacts, rules_of};
pub use approve_undo::{UndoAsk, undo_rules};
pub use begin::{BeginAnswer, BeginCall, BeginFacts, ClaimFact, DecisionWord, claim_of};
pub use outcome::{CompleteAnswer, CompleteCall, ResolveCall, ResultPayload};
pub use report::{Plan, PlanAction, PlanStep, Report, ReportEntry, StepView, Verdict};
pub use rollback::StartRollback;
pub use spec::{CALL_TIMEOUT_MS, SpecError};

/// Steps that one run may have: a limit on everything that is kept in memory.
pub const STEPS_MAX: usize = 1_000_000;

/// A run's own state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    id: RunId,
    status: RunStatus,
    /// The chain ends in a seal.
    sealed: bool,
    /// Some record before is a seal: after a rollback the chain must end in one again.
    sealed_before: bool,
    mode: Mode,
    permissions: Vec<String>,
    owner: ActorId,
    owner_person: Option<String>,
    reason: Option<String>,
    started_at: Timestamp,
    started_by: Option<RequestKey>,
    steps: Vec<Step>,
    by_request: BTreeMap<Hash, StepNo>,
    approvals: BTreeMap<ApprovalId, Approval>,
    /// The request that was made last for a call, by its fingerprint.
    asked: BTreeMap<Hash, ApprovalId>,
    /// The request that was made last for the undo of a step.
    undo_approvals: BTreeMap<StepNo, ApprovalId>,
    rollback: Option<RollbackState>,
    /// Requests that started a rollback, by key: a late retry of an old one must not start another.
    rollback_requests: BTreeMap<Hash, RequestKey>,
    chain: Chain,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunStatus {
    /// No record yet.
    Absent,
    /// Takes calls.
    Active,
    /// Ended by its agent.
    Sealed,
    /// Being undone.
    RollingBack,
    /// Undone as far as it can be without a person; something is left.
    PartlyRolledBack,
    /// Undone.
    RolledBack,
}

impl RunStatus {
    /// The word that stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Active => "active",
            Self::Sealed => "sealed",
            Self::RollingBack => "rolling_back",
            Self::PartlyRolledBack => "partly_rolled_back",
            Self::RolledBack => "rolled_back",
        }
    }
}

/// The run's own chain: how many records, their leaves folded, and where the last one stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Over the leaves of the run's records.
    pub frontier: Frontier,
    /// seq of the last record.
    pub version: Option<Seq>,
    /// Leaf of the last record.
    pub last: Option<Hash>,
}

impl Chain {
    /// Position that the next record will have.
    pub fn next_run_seq(&self) -> u64 {
        self.frontier.size()
    }
}

/// The rollback that was asked for last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollbackState {
    /// Its id.
    pub id: RollbackId,
    /// Who runs the inverses.
    pub executor: Executor,
    /// Only these steps, where a selection was made.
    pub selection: Option<Vec<StepNo>>,
    /// Which upstream serves which undo tool.
    pub upstreams: BTreeMap<ToolName, String>,
    /// For retries.
    pub request: Option<RequestKey>,
    /// Who started it.
    pub by: ActorId,
    /// The person behind them.
    pub person: Option<String>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Number in the run, from 1.
    pub no: StepNo,
    /// What was called.
    pub tool: ToolName,
    /// The agent's words.
    pub reason: String,
    /// Where it stands.
    pub status: StepStatus,
    /// When it began or was blocked.
    pub begun_at: Timestamp,
    /// None: an unknown tool that observe or advise let through.
    pub effect: Option<Effect>,
    /// Checksum of its manifest.
    pub manifest: Option<Hash>,
    /// seq of the `manifests.loaded` that pins its manifests.
    pub config: Seq,
    /// How it is undone.
    pub undo_pin: Option<UndoPin>,
    /// Tools that it needed earlier.
    pub requires: Vec<ToolName>,
    /// The claim it holds or held.
    pub claim: Option<Hash>,
    /// It holds the claim now; what ends it frees the claim only then, because another step may hold it since.
    pub claim_held: bool,
    /// For retries.
    pub request: Option<RequestKey>,
    /// The execution that may run the tool.
    pub attempt: Option<Hash>,
    /// How long it may stay open, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Why it was blocked, or what observe and advise noted.
    pub findings: Vec<Finding>,
    /// The request that it opened.
    pub approval: Option<ApprovalId>,
    /// What its undo needs, by reference.
    pub values: BTreeMap<String, Canonical>,
    /// What its undo needs and what was not found.
    pub missing: Vec<String>,
    /// `run_seq` and commitment of the recorded result.
    pub result: Option<(u64, Hash)>,
    /// An operator settled it so.
    pub resolved: Option<Outcome>,
    /// A late outcome contradicts the resolution.
    pub disputed: bool,
    /// The late outcome that did: it is journaled once.
    pub late: Option<Outcome>,
    /// Its undo, once attempted or resolved.
    pub undo: Option<Box<Undo>>,
}

/// Where a step stands by its own outcome; its undo is beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStatus {
    /// Begun, no outcome yet.
    InFlight,
    /// Refused: the tool never ran.
    Blocked,
    /// It happened.
    Succeeded,
    /// KNOWN to have had no effect.
    Failed,
    /// Nobody knows.
    Uncertain,
}

impl StepStatus {
    /// The word that stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Blocked => "blocked",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Uncertain => "uncertain",
        }
    }
}

impl Step {
    /// Succeeded, and everything that its undo needs was found.
    pub fn recoverable(&self) -> bool {
        self.status == StepStatus::Succeeded && self.missing.is_empty()
    }

    /// The stream of the claim that it holds.
    pub fn claim_stream(&self) -> Option<StreamId> {
        self.claim.filter(|_| self.claim_held).map(|claim| StreamId::Claim(claim.0))
    }

    /// Begun, and not settled yet.
    pub fn is_open(&self) -> bool {
        match self.status {
            StepStatus::InFlight | StepStatus::Uncertain => true,
            StepStatus::Blocked | StepStatus::Succeeded | StepStatus::Failed => false,
        }
    }

    /// The word for its status that a person should see, its undo included.
    pub fn word(&self) -> &'static str {
        match self.undo.as_deref().map(Undo::phase) {
            None | Some(Phase::Idle) => self.status.as_str(),
            Some(Phase::Calling { .. } | Phase::Waiting { .. } | Phase::Reading { .. }) => "compensating",
            Some(Phase::Compensated(_)) => "compensated",
            Some(Phase::Failed) => "compensation_failed",
            Some(Phase::Uncertain) => "undo_uncertain",
        }
    }
}

/// What a run is asked to do.
#[derive(Debug, Clone)]
pub enum RunCommand {
    /// Exist.
    Start {
        /// Who owns it.
        owner: Actor,
        /// The person behind them.
        person: Option<String>,
        /// Scope.
        permissions: Vec<String>,
        /// How violations are treated.
        mode: Mode,
        /// Public by contract.
        reason: Option<String>,
        /// For retries.
        request: Option<RequestKey>,
    },
    /// May this call be made?
    Begin(BeginCall),
    /// This is how it ended.
    Complete(CompleteCall),
    /// An operator settles a step or an undo.
    Resolve(ResolveCall),
    /// End the run.
    Seal,
    /// Undo it.
    StartRollback(StartRollback),
    /// Nothing is left that can be done without a person.
    FinishRollback,
    /// The undo of this step needs a person's yes, and its turn has come.
    RequestUndoApproval(StepNo),
    /// An operator says yes in advance.
    PreApprove(PreApprove),
}

/// What a run must know of the world; each command reads its part.
#[derive(Debug, Clone)]
pub struct RunFacts {
    /// For commitments.
    pub payload_key: [u8; 32],
    /// For [`RunCommand::Begin`].
    pub begin: Option<BeginFacts>,
    /// The pinned manifest of the step that a Complete or Resolve speaks of.
    pub manifest: Option<std::sync::Arc<crate::manifest::Manifest>>,
    /// The claim that the step of a Complete took when it began, as it stands: a dispute takes it back if it is free.
    pub claim: Option<ClaimFact>,
    /// For [`RunCommand::RequestUndoApproval`].
    pub undo: Option<UndoAsk>,
    /// For [`RunCommand::PreApprove`].
    pub pre_approve: Option<PreApproveFacts>,
}

/// What the asker gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunAnswer {
    /// The run exists; true if it did before (a retry).
    Started {
        /// It is a retry.
        replayed: bool,
    },
    /// Decision on a call.
    Begin(BeginAnswer),
    /// An outcome was recorded (or contradicts a resolution).
    Complete(CompleteAnswer),
    /// Done.
    Done,
    /// What stood in the way was ended: ask once more.
    Again,
}

/// Why a command is refused. Policy blocks are answers, not refusals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunReject {
    /// 404.
    #[error("run {0} does not exist")]
    Absent(RunId),
    /// 409.
    #[error("run {0} exists already; choose another run_id or continue that run")]
    Exists(RunId),
    /// 409.
    #[error("run {run} is {status} and takes no {what}")]
    NotActive {
        /// Which.
        run: RunId,
        /// Its status.
        status: &'static str,
        /// What was wanted.
        what: &'static str,
    },
    /// 422.
    #[error("the Idempotency-Key was used for another request; send a new key with a new request")]
    KeyReused,
    /// 404.
    #[error("run {run} has no step {step}")]
    NoStep {
        /// Which run.
        run: RunId,
        /// Which step.
        step: StepNo,
    },
    /// 409.
    #[error("step {step} is {status}: {hint}")]
    StepStatus {
        /// Which.
        step: StepNo,
        /// Its status.
        status: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// 409.
    #[error("step {step} is still open; complete or resolve it before sealing the run")]
    StepOpen {
        /// Which.
        step: StepNo,
    },
    /// 409.
    #[error("run {run} is being rolled back already; see its report")]
    RollbackInProgress {
        /// Which.
        run: RunId,
    },
    /// 422.
    #[error("there is no manifest for {tool}, so nobody can approve it; declare the tool first")]
    NoManifest {
        /// Which.
        tool: ToolName,
    },
    /// 403.
    #[error("{person} is behind this run and can't approve its calls; another person must")]
    OwnApproval {
        /// Who.
        person: String,
    },
    /// 409.
    #[error("one operator's yes is not enough for {tool}: it needs {quorum} of {roles:?}; let the agent ask instead")]
    NeedsQuorum {
        /// Which tool.
        tool: ToolName,
        /// How many persons.
        quorum: u32,
        /// Who may.
        roles: Vec<String>,
    },
    /// 422.
    #[error("{0}")]
    Invalid(&'static str),
    /// 429-like limit.
    #[error("run {run} has {STEPS_MAX} steps, the most that a run may have; start another run")]
    TooManySteps {
        /// Which.
        run: RunId,
    },
}

/// What must be running for a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunEffect {
    /// The step's turn has come: wake its undo.
    DriveUndo(StepNo),
    /// The step's turn has come, and its undo needs a person's yes: ask for it.
    RequestApproval(StepNo),
    /// Close the rollback.
    FinishRollback,
    /// Seal again a chain that a rollback reopened.
    SealAgain,
}

impl Run {
    /// A run without records.
    pub fn new(id: RunId) -> Self {
        Self {
            id,
            status: RunStatus::Absent,
            sealed: false,
            sealed_before: false,
            mode: Mode::Enforce,
            permissions: Vec::new(),
            owner: Actor::system().id,
            owner_person: None,
            reason: None,
            started_at: Timestamp::default(),
            started_by: None,
            steps: Vec::new(),
            by_request: BTreeMap::new(),
            approvals: BTreeMap::new(),
            asked: BTreeMap::new(),
            undo_approvals: BTreeMap::new(),
            rollback: None,
            rollback_requests: BTreeMap::new(),
            chain: Chain::default(),
        }
    }

    /// Its id.
    pub fn id(&self) -> &RunId {
        &self.id
    }
    /// Where it stands.
    pub fn status(&self) -> RunStatus {
        self.status
    }
    /// How violations are treated.
    pub fn mode(&self) -> Mode {
        self.mode
    }
    /// Its scope.
    pub fn permissions(&self) -> &[String] {
        &self.permissions
    }
    /// The actor that started it.
    pub fn owner(&self) -> &ActorId {
        &self.owner
    }
    /// Why it was started.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
    /// When it was started.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }
    /// Its steps, oldest first.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
    /// Its chain.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }
    /// The rollback that was asked for last.
    pub fn rollback(&self) -> Option<&RollbackState> {
        self.rollback.as_ref()
    }

    /// One step.
    pub fn step(&self, no: StepNo) -> Option<&Step> {
        self.steps.get(usize::try_from(no).ok()?.checked_sub(1)?)
    }

    fn step_mut(&mut self, no: StepNo) -> Option<&mut Step> {
        self.steps.get_mut(usize::try_from(no).ok()?.checked_sub(1)?)
    }

    /// The stream that every record of the run advances.
    pub fn stream(&self) -> StreamId {
        StreamId::Run(self.id.clone())
    }

    fn next_step(&self) -> StepNo {
        StepNo::try_from(self.steps.len() + 1).unwrap_or(StepNo::MAX)
    }

    fn must_exist(&self) -> Result<(), RunReject> {
        if self.status == RunStatus::Absent { Err(RunReject::Absent(self.id.clone())) } else { Ok(()) }
    }

    /// Events that advance only the run.
    fn append<A>(&self, events: Vec<Event>, answer: A) -> Decision<A> {
        let records = events.into_iter().map(|event| (event, vec![self.stream()])).collect();
        let expect = vec![(self.stream(), self.chain.version)];
        Decision { records, expect, wakes: BTreeMap::new(), answer }
    }

    fn decide_start(&self, command: &RunCommand) -> Result<Decision<RunAnswer>, RunReject> {
        let RunCommand::Start { owner: _, person, permissions, mode, reason, request } = command else {
            return Err(RunReject::Invalid("not a start"));
        };
        if self.status != RunStatus::Absent {
            return match (request, &self.started_by) {
                (Some(asked), Some(known)) if asked == known => {
                    Ok(Decision::already(RunAnswer::Started { replayed: true }))
                }
                (Some(asked), Some(known)) if asked.key == known.key => Err(RunReject::KeyReused),
                _ => Err(RunReject::Exists(self.id.clone())),
            };
        }
        let body = RunStarted {
            mode: *mode,
            permissions: permissions.clone(),
            person: person.clone(),
            reason: reason.clone(),
            request: *request,
        };
        Ok(self.append(vec![RunEvent::Started(body, ()).into()], RunAnswer::Started { replayed: false }))
    }
}

impl Aggregate for Run {
    type Command = RunCommand;
    type Facts = RunFacts;
    type Answer = RunAnswer;
    type Reject = RunReject;
    type Effect = RunEffect;

    fn decide(&self, now: Timestamp, command: &RunCommand, facts: &RunFacts) -> Result<Decision<RunAnswer>, RunReject> {
        if let RunCommand::Start { .. } = command {
            return self.decide_start(command);
        }
        self.must_exist()?;
        let mut decision = match command {
            RunCommand::Start { .. } => self.decide_start(command),
            RunCommand::Begin(call) => self.decide_begin(now, call, facts),
            RunCommand::Complete(call) => self.decide_complete(call, facts),
            RunCommand::Resolve(call) => self.decide_resolve(call, facts),
            RunCommand::Seal => self.decide_seal(),
            RunCommand::StartRollback(start) => self.decide_rollback(start),
            RunCommand::FinishRollback => Ok(self.decide_finish()),
            RunCommand::RequestUndoApproval(step) => self.decide_request_undo(now, *step, facts),
            RunCommand::PreApprove(pre) => self.decide_pre_approve(now, pre, facts),
        }?;
        decision.wakes.extend(self.approval_wakes(now, &decision.records));
        Ok(decision)
    }

    fn evolve(&mut self, meta: &Meta, event: &Event) {
        // Any record after a seal reopens the chain; only a seal closes it.
        self.sealed = false;
        match event {
            Event::Run(event) => self.evolve_run(meta, event),
            Event::Step(event) => self.evolve_step(meta, event),
            Event::Rollback(event) => self.evolve_rollback(meta, event),
            Event::Undo(event) => self.evolve_undo(meta, event),
            Event::Approval(event) => self.evolve_approval(meta, event),
            Event::System(_) | Event::Access(_) | Event::Config(_) | Event::Halt(_) => {}
        }
        self.chain.frontier.append(meta.leaf);
        self.chain.version = Some(meta.seq);
        self.chain.last = Some(meta.leaf);
    }

    fn effects(&self) -> Vec<RunEffect> {
        self.rollback_effects()
    }

    fn deadline(&self) -> Option<(Timestamp, RunCommand)> {
        None
    }

    fn abandon_open_intent(&self) -> Option<RunCommand> {
        None
    }

    /// Only a run that is or was rolled back or sealed ever has something to do by itself; the others are spared the
    /// copy.
    fn wake_after(&self, now: Timestamp, events: &[Event]) -> Wake {
        if self.rollback.is_none()
            && !self.sealed_before
            && !events.iter().any(|event| matches!(event, Event::Rollback(_)))
        {
            return Wake::None;
        }
        let meta = Meta { seq: 0, ts: now, leaf: Hash::default(), actor: Actor::system() };
        let mut next = self.clone();
        for event in events {
            next.evolve(&meta, event);
        }
        if next.effects().is_empty() { Wake::None } else { Wake::Now }
    }
}
