//! The one typed handle that every edge calls: who may, then the entity that decides. Must not know any protocol.
mod approvals;
mod people;
mod reload;
mod types;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use reversi_proto::access::{PresentedKey, Principal};
use reversi_proto::canonical::Canonical;
use reversi_proto::commit;
use reversi_proto::event::v1::{Mode, Outcome, RequestKey, Role, Target};
use reversi_proto::ids::{ActorId, RunId, Seq, StepNo, StreamId};
use reversi_proto::run::{
    BeginAnswer, BeginCall, CompleteAnswer, CompleteCall, DecisionWord, Plan, Report, ResolveCall, ResultPayload, Run,
    RunAnswer, RunCommand, StartRollback,
};
use reversi_proto::time::Timestamp;

use crate::error::{Code, ServiceError};
use crate::ids::Mint as _;
use crate::journal::{SignedCheckpoint, Stats};
use crate::world::{Counters, World};

pub use approvals::{APPROVAL_WAIT_MS_MAX, ApprovalFilter, ApprovalShown, Word};
pub(crate) use reload::put_in_force;
pub use reload::{ReloadBy, Reloaded};
pub use types::{
    NewDelegation, NewKey, NewRollback, NewRun, NewStep, PeopleFigures, Retry, RunState, RunSummary, Status,
    StepOutcome,
};

type Result<T> = std::result::Result<T, ServiceError>;

/// Longest `reason` or `note`, in characters: they are public by contract.
pub const REASON_CHARS_MAX: usize = 2_000;
/// Most permissions of a run.
const PERMISSIONS_MAX: usize = 256;
/// Owners that are remembered; beyond it the memory starts anew.
const OWNERS_MAX: usize = 100_000;
/// Records that the event store may lack while the daemon counts as ready.
const LAG_MAX: u64 = 200_000;
/// How often a seal is tried again after it ended open approvals.
const SEAL_ROUNDS_MAX: u32 = 8;
/// Longest Idempotency-Key or Reversi-Attempt, in characters.
const HEADER_CHARS_MAX: usize = 255;

/// The typed handle.
#[derive(Clone)]
pub struct Service {
    world: Arc<World>,
    owners: Arc<RwLock<HashMap<RunId, ActorId>>>,
}

impl Service {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self { world, owners: Arc::default() }
    }

    /// Whoever holds this key.
    pub fn authenticate(&self, key: &str) -> Result<Principal> {
        let access = Arc::clone(&self.world.globals.read().unwrap_or_else(PoisonError::into_inner).access);
        PresentedKey::parse(key)
            .and_then(|key| access.authenticate(&key, self.world.clock.now()))
            .ok_or_else(|| ServiceError::new(Code::KeyInvalid, "the access key is missing, wrong, expired or revoked"))
    }

    /// A new run, or the one that the same request made before.
    pub async fn start_run(&self, who: &Principal, run: NewRun, retry: Retry<'_>) -> Result<(RunSummary, bool)> {
        need(who, Role::Agent)?;
        if run.mode != Mode::Enforce && !who.allow_observe {
            let detail = "modes observe and advise need a key that was created with allow_observe";
            return Err(ServiceError::new(Code::ObserveNotAllowed, detail));
        }
        check_text("reason", run.reason.as_deref().unwrap_or(""))?;
        if run.permissions.len() > PERMISSIONS_MAX {
            return Err(ServiceError::new(Code::RequestInvalid, format!("at most {PERMISSIONS_MAX} permissions")));
        }
        let request = self.request_key(who, "", "runs", retry)?;
        let run_id = match (run.run_id, request) {
            (Some(run_id), _) => run_id,
            // A retried request must find the run that the first one made.
            (None, Some(request)) => derived_run_id(request),
            (None, None) => self.world.ids.run_id(),
        };
        let command = RunCommand::Start {
            owner: who.actor.clone(),
            person: who.person.clone(),
            permissions: run.permissions,
            mode: run.mode,
            reason: run.reason,
            request,
        };
        let answer = self.world.ask::<Run>(&run_id, who.actor.clone(), command).await?;
        let replayed = matches!(answer, RunAnswer::Started { replayed: true });
        Ok((self.summary(&run_id).await?, replayed))
    }

    /// May this call be made?
    pub async fn begin(&self, who: &Principal, run: &RunId, step: NewStep, retry: Retry<'_>) -> Result<BeginAnswer> {
        need(who, Role::Agent)?;
        self.must_own(who, run).await?;
        check_text("reason", &step.reason)?;
        let args = Canonical::parse(step.args.as_bytes())
            .map_err(|error| ServiceError::new(Code::ArgsNotCanonical, format!("args: {error}")))?;
        let call = BeginCall {
            actor: who.actor.clone(),
            tool: step.tool,
            reason: step.reason,
            args,
            request: self.request_key(who, run.as_str(), "steps", retry)?,
            attempt: self.attempt(retry)?,
            person: who.person.clone(),
            approval: step.approval_id,
        };
        let answer = self.world.ask::<Run>(run, who.actor.clone(), RunCommand::Begin(call)).await?;
        let RunAnswer::Begin(answer) = answer else { return Err(unexpected()) };
        let counters = &self.world.counters;
        World::count(if answer.decision == DecisionWord::Allow { &counters.allowed } else { &counters.blocked });
        Ok(answer)
    }

    /// How a call ended.
    pub async fn complete(
        &self,
        who: &Principal,
        run: &RunId,
        step: StepNo,
        outcome: StepOutcome,
    ) -> Result<CompleteAnswer> {
        need(who, Role::Agent)?;
        self.must_own(who, run).await?;
        let result = payload(outcome.result.as_deref(), outcome.result_values)?;
        let call = CompleteCall { step, status: outcome.status, result, error: outcome.error };
        self.complete_answer(who, run, RunCommand::Complete(call)).await
    }

    /// An operator settles a step or an undo of unknown outcome.
    pub async fn resolve(
        &self,
        who: &Principal,
        run: &RunId,
        (step, target): (StepNo, Target),
        (status, note, result): (Outcome, String, Option<String>),
    ) -> Result<CompleteAnswer> {
        need(who, Role::Operator)?;
        self.must_exist(run)?;
        check_text("note", &note)?;
        let result = payload(result.as_deref(), None)?;
        let call = ResolveCall { target, step, status, note, result };
        self.complete_answer(who, run, RunCommand::Resolve(call)).await
    }

    async fn complete_answer(&self, who: &Principal, run: &RunId, command: RunCommand) -> Result<CompleteAnswer> {
        let RunAnswer::Complete(answer) = self.world.ask::<Run>(run, who.actor.clone(), command).await? else {
            return Err(unexpected());
        };
        if answer.disputed {
            let detail =
                format!("step {} was resolved otherwise by an operator; the contradiction is journaled", answer.step);
            return Err(ServiceError::new(Code::StepDisputed, detail));
        }
        Ok(answer)
    }

    /// Ends a run.
    pub async fn seal(&self, who: &Principal, run: &RunId) -> Result<RunSummary> {
        need(who, Role::Agent)?;
        self.must_own(who, run).await?;
        // Each round ends what stands in the way; more than a few mean that calls are still being made.
        let mut rounds = 0;
        while let RunAnswer::Again = self.world.ask::<Run>(run, who.actor.clone(), RunCommand::Seal).await? {
            rounds += 1;
            if rounds == SEAL_ROUNDS_MAX {
                return Err(ServiceError::new(
                    Code::Busy,
                    "calls of this run are still asking for approval; try again",
                ));
            }
        }
        // A seal is worth a signature; a sink that fails is counted and does not undo the seal.
        if let Err(error) = self.world.journal.sign_checkpoint().await {
            tracing::warn!(%error, "no checkpoint could be signed after a seal");
        }
        self.summary(run).await
    }

    /// A run with its steps.
    pub async fn run(&self, who: &Principal, run: &RunId) -> Result<RunState> {
        self.may_read(who, run).await?;
        let (now, boot) = (self.world.clock.now(), self.world.boot);
        let state =
            move |run: &Run| RunState { summary: summary(run, now, boot), step_views: run.step_views(now, boot) };
        Ok(self.world.query::<Run, _>(run, state).await?)
    }

    async fn summary(&self, run: &RunId) -> Result<RunSummary> {
        let (now, boot) = (self.world.clock.now(), self.world.boot);
        Ok(self.world.query::<Run, _>(run, move |run| summary(run, now, boot)).await?)
    }

    /// Runs in the order of their ids, after `after`; an agent sees its own.
    pub async fn runs(&self, who: &Principal, after: Option<RunId>, limit: usize) -> Result<Vec<RunSummary>> {
        let all = who.has(Role::Auditor);
        if !all {
            need(who, Role::Agent)?;
        }
        let mut found = Vec::new();
        let mut after = after.map(StreamId::Run);
        while found.len() < limit {
            let page = self.world.journal.streams("run/", after.as_ref(), limit)?;
            let Some(last) = page.last().cloned() else { break };
            for stream in page {
                let StreamId::Run(run) = stream else { continue };
                let summary = self.summary(&run).await?;
                if all || summary.actor == who.actor.id {
                    found.push(summary);
                }
            }
            after = Some(last);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// What a rollback would do.
    pub async fn plan(&self, who: &Principal, run: &RunId) -> Result<Plan> {
        need(who, Role::Operator)?;
        self.must_exist(run)?;
        let archive = self.world.globals().archive;
        Ok(self.world.query::<Run, _>(run, move |run| run.plan(&archive)).await?)
    }

    /// Starts a rollback; the report shows how far it got by the time of the answer.
    pub async fn rollback(
        &self,
        who: &Principal,
        run: &RunId,
        rollback: NewRollback,
        retry: Retry<'_>,
    ) -> Result<Report> {
        need(who, Role::Operator)?;
        self.must_exist(run)?;
        let start = StartRollback {
            id: self.world.ids.rollback_id(),
            executor: rollback.executor,
            steps: rollback.steps,
            to_step: rollback.to_step,
            upstreams: self.world.tools.tools(),
            request: self.request_key(who, run.as_str(), "rollback", retry)?,
            person: who.person.clone(),
        };
        self.world.ask::<Run>(run, who.actor.clone(), RunCommand::StartRollback(start)).await?;
        self.report(who, run).await
    }

    /// What was undone, what was not, and why.
    pub async fn report(&self, who: &Principal, run: &RunId) -> Result<Report> {
        need(who, Role::Auditor)?;
        self.must_exist(run)?;
        let archive = self.world.globals().archive;
        Ok(self.world.query::<Run, _>(run, move |run| run.report(&archive)).await?)
    }

    /// The run's own lines, in order.
    pub async fn records(&self, who: &Principal, run: &RunId) -> Result<Vec<Arc<[u8]>>> {
        need(who, Role::Auditor)?;
        self.must_exist(run)?;
        let (journal, stream) = (Arc::clone(&self.world.journal), StreamId::Run(run.clone()));
        let loaded = tokio::task::spawn_blocking(move || journal.load(&stream, 0)).await;
        let records = loaded.map_err(|error| ServiceError::internal(&error))??;
        Ok(records.into_iter().map(|record| record.line).collect())
    }

    /// Lines of the whole ledger from `from` on, about `bytes_max` bytes of them.
    pub async fn lines(&self, who: &Principal, from: Seq, bytes_max: usize) -> Result<Vec<Arc<[u8]>>> {
        need(who, Role::Auditor)?;
        let journal = Arc::clone(&self.world.journal);
        let lines = tokio::task::spawn_blocking(move || journal.lines(from, bytes_max)).await;
        Ok(lines.map_err(|error| ServiceError::internal(&error))??)
    }

    /// The newest signed checkpoint; `fresh` signs one over everything that is durable now.
    pub async fn checkpoint(&self, who: &Principal, fresh: bool) -> Result<SignedCheckpoint> {
        need(who, Role::Auditor)?;
        match self.world.journal.checkpoint() {
            Some(checkpoint) if !fresh => Ok(checkpoint),
            Some(_) | None => Ok(self.world.journal.sign_checkpoint().await?),
        }
    }

    /// How the daemon is doing.
    pub fn status(&self, who: &Principal) -> Result<Status> {
        need(who, Role::Auditor)?;
        let (world, stats) = (&self.world, self.stats());
        let approvals = world.approvals.quarantined().into_iter().map(|approval| format!("approval/{approval}"));
        let runs = world.runs.quarantined().into_iter().map(|run| format!("run/{run}"));
        let undos = world.undos.quarantined().into_iter().map(|undo| format!("undo/{undo}"));
        Ok(Status {
            ledger: world.journal.ledger().to_string(),
            head: stats.head,
            lag: stats.lag,
            checkpoint: stats.checkpoint,
            runs_live: world.runs.live(),
            undos_live: world.undos.live(),
            quarantined: runs.chain(undos).chain(approvals).collect(),
            tools: world.tools.tools(),
            manifests: world.globals().archive.checksum().map(|checksum| checksum.to_string()),
            started_at: world.boot,
            disk_low: stats.disk_low,
            sink_errors: stats.sink_errors,
            rollbacks_parked: world.parked,
            approvals_open: world.asked.count(),
            halts: world.globals().halt.iter().cloned().collect(),
            reviews_owed: world.globals().access.reviews().count(),
        })
    }

    /// Figures of the journal, for metrics and readiness.
    pub fn stats(&self) -> Stats {
        self.world.journal.stats()
    }

    /// Things counted since the daemon came up.
    pub fn counters(&self) -> &Counters {
        &self.world.counters
    }

    /// The journal answers a probe: not merely "the process is up".
    pub fn ready(&self) -> bool {
        let stats = self.stats();
        self.world.journal.version(&StreamId::Ledger).is_ok() && !stats.disk_low && stats.lag < LAG_MAX
    }

    fn must_exist(&self, run: &RunId) -> Result<()> {
        if self.world.run_exists(run)? { Ok(()) } else { Err(not_found(run)) }
    }

    /// Others' runs look like runs that don't exist.
    async fn must_own(&self, who: &Principal, run: &RunId) -> Result<()> {
        if self.owner(run).await? == who.actor.id { Ok(()) } else { Err(not_found(run)) }
    }

    async fn may_read(&self, who: &Principal, run: &RunId) -> Result<()> {
        if who.has(Role::Auditor) { self.must_exist(run) } else { self.must_own(who, run).await }
    }

    /// A run's owner never changes, so it is remembered.
    async fn owner(&self, run: &RunId) -> Result<ActorId> {
        if let Some(owner) = self.owners.read().unwrap_or_else(PoisonError::into_inner).get(run) {
            return Ok(owner.clone());
        }
        self.must_exist(run)?;
        let owner = self.world.query::<Run, _>(run, |run| run.owner().clone()).await?;
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        if owners.len() >= OWNERS_MAX {
            owners.clear();
        }
        owners.insert(run.clone(), owner.clone());
        Ok(owner)
    }

    /// HMACs under the ledger's key: neither the key nor the body is kept.
    fn request_key(&self, who: &Principal, run: &str, endpoint: &str, retry: Retry<'_>) -> Result<Option<RequestKey>> {
        let Some(key) = retry.key else { return Ok(None) };
        check_header("Idempotency-Key", key)?;
        let ledger_key = self.world.journal.ledger_keys().hmac;
        let scope = [who.actor.id.as_str(), run, endpoint, key];
        Ok(Some(RequestKey {
            body: commit::keyed(&ledger_key, "reversi.dev/request-body/v1", &[retry.body]),
            key: commit::keyed(&ledger_key, "reversi.dev/request-key/v1", &scope),
        }))
    }

    fn attempt(&self, retry: Retry<'_>) -> Result<Option<reversi_proto::hash::Hash>> {
        let Some(attempt) = retry.attempt else { return Ok(None) };
        check_header("Reversi-Attempt", attempt)?;
        let ledger_key = self.world.journal.ledger_keys().hmac;
        Ok(Some(commit::keyed(&ledger_key, "reversi.dev/attempt/v1", &[attempt])))
    }
}

fn need(who: &Principal, role: Role) -> Result<()> {
    if who.has(role) {
        return Ok(());
    }
    let word = role.as_str();
    Err(ServiceError::new(Code::RoleMissing, format!("this needs a key with the role {word}")))
}

fn not_found(run: &RunId) -> ServiceError {
    ServiceError::new(Code::RunNotFound, format!("run {run} does not exist"))
}

fn unexpected() -> ServiceError {
    ServiceError::new(Code::Internal, "the daemon gave an answer of another kind; this is a defect")
}

fn check_text(name: &str, text: &str) -> Result<()> {
    if text.chars().count() <= REASON_CHARS_MAX {
        return Ok(());
    }
    Err(ServiceError::new(Code::RequestInvalid, format!("{name}: at most {REASON_CHARS_MAX} characters")))
}

fn check_header(name: &str, value: &str) -> Result<()> {
    if (1..=HEADER_CHARS_MAX).contains(&value.len()) {
        return Ok(());
    }
    Err(ServiceError::new(Code::RequestInvalid, format!("{name}: 1 to {HEADER_CHARS_MAX} characters")))
}

fn derived_run_id(request: RequestKey) -> RunId {
    let text = format!("run_{}", request.key.short(32));
    // `run_` and hex digits are a run id.
    #[allow(clippy::expect_used)]
    text.parse().expect("a run id")
}

fn payload(result: Option<&str>, values: Option<std::collections::BTreeMap<String, String>>) -> Result<ResultPayload> {
    if let Some(values) = values {
        let parse = |(reference, text): (String, String)| match Canonical::parse(text.as_bytes()) {
            Ok(value) => Ok((reference, value)),
            Err(error) => Err(ServiceError::new(Code::RequestInvalid, format!("result_values: {reference}: {error}"))),
        };
        return Ok(ResultPayload::Omitted(values.into_iter().map(parse).collect::<Result<_>>()?));
    }
    Ok(match result {
        None => ResultPayload::None,
        Some(text) => match Canonical::parse(text.as_bytes()) {
            Ok(value) => ResultPayload::Canonical(value),
            // The call happened all the same: it is recorded, by its raw bytes.
            Err(error) => ResultPayload::Raw { bytes: text.as_bytes().to_vec(), error: error.code.as_str().to_owned() },
        },
    })
}

fn summary(run: &Run, now: Timestamp, boot: Timestamp) -> RunSummary {
    RunSummary {
        run_id: run.id().clone(),
        status: run.status().as_str(),
        mode: run.mode(),
        permissions: run.permissions().to_vec(),
        actor: run.owner().clone(),
        reason: run.reason().map(str::to_owned),
        started_at: run.started_at(),
        steps: run.steps().len(),
        unresolved: run.step_views(now, boot).iter().filter(|step| step.unresolved).count(),
    }
}
