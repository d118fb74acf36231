//! Plays one case against a daemon of its own and tells what happened. Must not know what the case expects to see, only
//! how far it has to be played.
use std::sync::Arc;

use reversi_proto::access::Principal;
use reversi_proto::canonical::{Canonical, CanonicalError};
use reversi_proto::contract::{Before, Case, Difference, Ending, Observed, SeenPlan, SeenUndo};
use reversi_proto::event::v1::{Finding, Mode, Outcome, Role};
use reversi_proto::ids::{Actor, ActorKind, KeyId, LedgerId, RunId, StepNo, ToolName};
use reversi_proto::manifest::{Manifest, ManifestSet, Mismatch, Verification};
use reversi_proto::run::{DecisionWord, PlanAction, Report, ReportEntry};
use reversi_proto::time::Timestamp;
use serde_json::{Map, Value};

use super::tools::{Nobody, Script};
use super::{grant, prepare};
use crate::clock::SimClock;
use crate::codec::CodecError;
use crate::error::ServiceError;
use crate::ids::SeededIds;
use crate::journal::MemoryJournal;
use crate::service::{NewRollback, NewRun, NewStep, Retry, Service, StepOutcome};
use crate::system::{Parts, StartError, System, genesis};

/// When every case begins: 2026-01-01, in microseconds.
const BEGIN: i64 = 1_767_225_600_000_000;
/// Turns that other tasks get before it is asked whether the rollback is over.
const TURNS: usize = 64;
/// First and longest jump of the clock while a rollback waits, in milliseconds: a second, and a little over a year.
const JUMP_MS: (u64, u64) = (1_000, 1 << 35);
/// Jumps after which a rollback counts as stuck; the longest backoffs that manifests can ask for need fewer.
const JUMPS_MAX: usize = 6_000;

/// Why a case could not be played.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlayError {
    /// The daemon does not start.
    #[error("the daemon does not start: {0}")]
    Start(#[from] StartError),
    /// Its first record can't be made.
    #[error("the ledger can't be opened: {0}")]
    Genesis(#[from] CodecError),
    /// The daemon does not answer.
    #[error("{0}")]
    Service(#[from] ServiceError),
    /// A value of the case has no canonical form.
    #[error("a value has no canonical form: {0}")]
    Canonical(#[from] CanonicalError),
    /// A defect of the harness.
    #[error("{0}; this is a defect")]
    Defect(&'static str),
}

type Result<T> = std::result::Result<T, PlayError>;

/// A daemon with one run.
pub(super) struct Table {
    pub(super) service: Service,
    pub(super) agent: Principal,
    pub(super) run: RunId,
    pub(super) approvers: Vec<Principal>,
    operator: Principal,
    clock: Arc<SimClock>,
    tools: Arc<Script>,
}

/// The decision on a call.
struct Begun {
    step: StepNo,
    /// Why it was refused; empty: it was allowed.
    refused: Vec<Finding>,
}

/// Plays a case.
pub(super) async fn play(manifests: &ManifestSet, case: &Case) -> Result<Observed> {
    let touched = prepare::touched(manifests, case);
    let clock = Arc::new(SimClock::at(Timestamp::from_micros(BEGIN)));
    let tools = Arc::new(Script::new(touched.iter().map(|manifest| manifest.tool.clone()), answer(manifests, case)?));
    let ledger = LedgerId([1; 16]);
    let journal = MemoryJournal::open(ledger, Arc::clone(&clock) as _, genesis(ledger, "", &SeededIds::new(0))?);
    let parts = Parts {
        journal: Arc::new(journal),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(SeededIds::new(1)),
        tools: Arc::clone(&tools) as _,
        notifier: Arc::new(Nobody),
        manifests: ManifestSet::restore(touched.iter().map(|manifest| Manifest::clone(manifest)).collect()),
    };
    let system = System::start(parts, |_| Ok(())).await?;
    let service = system.service();
    let before = prepare::before(manifests, case);
    let scope = scope(manifests, case, &before);
    let table = Table::set(service, (clock, tools), &touched, scope).await;
    let seen = match table {
        Ok(table) => table.play(case, before).await,
        Err(error) => Err(error),
    };
    // A daemon that does not stop well leaves nothing behind: all of it is memory.
    let _ = system.stop().await;
    seen.map(|seen| explained(seen, manifests, case))
}

fn verification<'m>(manifests: &'m ManifestSet, case: &Case) -> Option<&'m Verification> {
    manifests.get(&case.tool)?.compensation.as_ref()?.verification.as_ref()
}

/// With both values where a read-back differed: the daemon's report has only the place, because values are private.
fn explained(mut seen: Observed, manifests: &ManifestSet, case: &Case) -> Observed {
    if let (Observed::Allowed { undo: Some(undo), .. }, Some((answer, _)), Some(verification)) =
        (&mut seen, &case.expect.verified, verification(manifests, case))
    {
        let mismatch = verification.expect.first_mismatch(answer);
        undo.mismatch =
            mismatch.map(|Mismatch { path, expected, got }| Difference { path, expected: Some(expected), got });
    }
    seen
}

/// What a read-back is answered: what the case says, else what the manifest expects.
fn answer(manifests: &ManifestSet, case: &Case) -> Result<Option<Canonical>> {
    let answer = match (&case.expect.verified, verification(manifests, case)) {
        (Some((answer, _)), _) => Some(answer.clone()),
        (None, Some(verification)) => Some(prepare::satisfying(&verification.expect)),
        (None, None) => None,
    };
    Ok(answer.as_ref().map(Canonical::of).transpose()?)
}

/// The permissions of all tools that are called: cases test tools, not scopes.
fn scope(manifests: &ManifestSet, case: &Case, before: &[Before]) -> Vec<String> {
    let tools = before.iter().map(|before| &before.tool).chain([&case.tool]);
    let mut scope: Vec<String> =
        tools.filter_map(|tool| manifests.get(tool)).map(|manifest| manifest.permission.clone()).collect();
    scope.sort();
    scope.dedup();
    scope
}

pub(super) fn principal(name: &str, kind: ActorKind, role: Role) -> Result<Principal> {
    let defect = || PlayError::Defect("the harness's own names are no names");
    let id = name.parse().map_err(|_| defect())?;
    let key: KeyId = "000000000000".parse().map_err(|_| defect())?;
    let actor = Actor { id, kind };
    Ok(Principal { key, actor, person: None, roles: vec![role], groups: Vec::new(), allow_observe: true })
}

impl Table {
    async fn set(
        service: Service,
        (clock, tools): (Arc<SimClock>, Arc<Script>),
        manifests: &[&Arc<Manifest>],
        permissions: Vec<String>,
    ) -> Result<Self> {
        let agent = principal("contract-test", ActorKind::Agent, Role::Agent)?;
        let operator = principal("operator", ActorKind::Human, Role::Operator)?;
        let approvers = grant::approvers(&service, manifests).await?;
        let new = NewRun { run_id: None, permissions, mode: Mode::Enforce, reason: None };
        let run = service.start_run(&agent, new, Retry::default()).await?.0.run_id;
        Ok(Self { service, agent, run, approvers, operator, clock, tools })
    }

    async fn play(&self, case: &Case, before: Vec<Before>) -> Result<Observed> {
        for Before { tool, args, result } in before {
            let begun = self.begin(&tool, &args.unwrap_or_default(), true).await?;
            if !begun.refused.is_empty() {
                return Ok(Observed::Unprepared { tool, findings: begun.refused });
            }
            self.complete(begun.step, &Ending::Succeeds(result)).await?;
        }
        let begun = self.begin(&case.tool, &case.args, case.expect.blocked.is_none()).await?;
        let step = begun.step;
        if !begun.refused.is_empty() {
            let (plan, _) = self.plan(step).await?;
            return Ok(Observed::Refused { findings: begun.refused, plan });
        }
        self.complete(step, &case.ending).await?;
        let again = if case.expect.duplicate.is_some() { Some(self.again(case).await?) } else { None };
        let (plan, is_verified) = self.plan(step).await?;
        let runs = case.expect.needs_rollback() && plan.action == PlanAction::Compensate;
        let undo = if runs { Some(Box::new(self.undo(step, is_verified).await?)) } else { None };
        Ok(Observed::Allowed { plan, again, undo })
    }

    /// With `approved`, people say yes where they are asked, and the call is made again.
    async fn begin(&self, tool: &ToolName, args: &Map<String, Value>, approved: bool) -> Result<Begun> {
        let args = Canonical::of(args)?.as_str().to_owned();
        let (tool, reason) = (tool.clone(), "a contract test".to_owned());
        let call = NewStep { tool, reason, args, approval_id: None };
        let mut answer = self.service.begin(&self.agent, &self.run, call.clone(), Retry::default()).await?;
        if let (true, Some(approval), DecisionWord::Block) = (approved, &answer.approval, answer.decision) {
            self.grant(approval).await?;
            answer = self.service.begin(&self.agent, &self.run, call, Retry::default()).await?;
        }
        let findings = if approved { grant::beside_approval(answer.findings) } else { answer.findings };
        match answer.decision {
            DecisionWord::Allow => Ok(Begun { step: answer.step, refused: Vec::new() }),
            DecisionWord::Block if findings.is_empty() => Err(PlayError::Defect("a grant that was given is not used")),
            DecisionWord::Block => Ok(Begun { step: answer.step, refused: findings }),
        }
    }

    async fn complete(&self, step: StepNo, ending: &Ending) -> Result<()> {
        let (status, result, error) = match ending {
            Ending::Succeeds(result) => (Outcome::Succeeded, result.as_ref(), None),
            Ending::Fails(message) => (Outcome::Failed, None, Some(message.clone())),
        };
        let result = result.map(Canonical::of).transpose()?.map(|result| result.as_str().to_owned());
        let outcome = StepOutcome { status, result, error, result_values: None };
        self.service.complete(&self.agent, &self.run, step, outcome).await?;
        Ok(())
    }

    /// The same call once more. If it is allowed it fails, so that it has no part in the plan.
    async fn again(&self, case: &Case) -> Result<Vec<Finding>> {
        let begun = self.begin(&case.tool, &case.args, true).await?;
        if begun.refused.is_empty() {
            self.complete(begun.step, &Ending::Fails("called twice".to_owned())).await?;
        }
        Ok(begun.refused)
    }

    /// (what a rollback would do for the step, whether it would be read back)
    async fn plan(&self, step: StepNo) -> Result<(SeenPlan, bool)> {
        let plan = self.service.plan(&self.operator, &self.run).await?;
        let line = plan.steps.into_iter().find(|line| line.step == step);
        let line = line.ok_or(PlayError::Defect("the plan lacks the step"))?;
        Ok((SeenPlan { action: line.action, reason: line.reason }, line.will_be_verified))
    }

    /// Undoes the step alone.
    async fn undo(&self, step: StepNo, is_verified: bool) -> Result<SeenUndo> {
        let rollback = NewRollback { steps: Some(vec![step]), ..NewRollback::default() };
        self.service.rollback(&self.operator, &self.run, rollback, Retry::default()).await?;
        let mut report = self.settled().await?;
        // Each undo is asked for when its turn comes.
        while !report.awaiting_approval.is_empty() && self.grant_undos().await? {
            report = self.settled().await?;
        }
        let seen = self.tools.seen();
        let entry = entry_of(&report, step).ok_or(PlayError::Defect("the report lacks the step"))?;
        let reason =
            if is_verified { entry.reason.clone() } else { "the manifest declares no verification".to_owned() };
        let verified = is_verified.then_some(entry.verified == Some(true));
        Ok(SeenUndo { inverse: seen.inverse, read_back: seen.read_back, verified, mismatch: None, reason })
    }

    /// The report once nothing moves any more. Nobody sleeps: the clock jumps, further and further.
    async fn settled(&self) -> Result<Report> {
        let mut jump_ms = JUMP_MS.0;
        for _ in 0..JUMPS_MAX {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            let report = self.service.report(&self.operator, &self.run).await?;
            if report.status != "rolling_back" {
                return Ok(report);
            }
            self.clock.advance_ms(jump_ms);
            jump_ms = (jump_ms * 2).min(JUMP_MS.1);
        }
        Err(PlayError::Defect("the rollback never ends"))
    }
}

fn entry_of(report: &Report, step: StepNo) -> Option<&ReportEntry> {
    let lists = [
        &report.compensated,
        &report.failed,
        &report.undo_uncertain,
        &report.deferred,
        &report.awaiting_approval,
        &report.unrecoverable,
        &report.unresolved,
        &report.conflict,
        &report.skipped,
        &report.not_undoable,
    ];
    lists.into_iter().flatten().find(|entry| entry.step == step)
}
