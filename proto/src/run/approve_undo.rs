//! What the undo of a step has to do with approvals. Votes are the approval's own affair; how an inverse is called, the
//! undo's. Must not know who is told.
use std::sync::Arc;

use super::approve::{revoked, rules_of};
use super::{Run, RunAnswer, RunFacts, RunReject, Step};
use crate::access::Access;
use crate::aggregate::Decision;
use crate::approval::{Approval, ApprovalStatus, Rules};
use crate::canonical::Canonical;
use crate::commit;
use crate::event::{ApprovalEvent, Event};
use crate::event::v1::{ApprovalRequested, FullArguments, Target};
use crate::hash::Hash;
use crate::ids::{ApprovalId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::Manifest;
use crate::time::Timestamp;
use crate::undo::NoGrant;

/// What the request for an undo's approval must know of the world.
#[derive(Debug, Clone)]
pub struct UndoAsk {
    /// The id that it gets.
    pub approval: ApprovalId,
    /// The inverse.
    pub tool: ToolName,
    /// Its arguments.
    pub args: Canonical,
    /// Checksum of its manifest.
    pub manifest: Option<Hash>,
    /// seq of the `manifests.loaded` that the step pinned.
    pub config: Seq,
    /// Who must say yes.
    pub rules: Rules,
    /// Who may.
    pub access: Arc<Access>,
    /// Version of the `access` stream.
    pub access_version: Option<Seq>,
}

/// Where the approval of an undo stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoApproval {
    /// Nobody was asked yet.
    ToAsk,
    /// Asked, and not answered.
    Pending,
    /// Granted, and not used yet.
    Granted,
    /// Not granted, and never will be.
    Ended(&'static str),
}

/// The rules of an undo: the inverse's own, else those of the tool that is undone, else any approver.
pub fn undo_rules(undo: Option<&Manifest>, tool: Option<&Manifest>) -> Rules {
    undo.and_then(rules_of).or_else(|| tool.and_then(rules_of)).unwrap_or_default()
}

/// One grant is good for all attempts of a step.
fn was_approved(step: &Step) -> bool {
    step.undo.as_deref().is_some_and(|undo| undo.approval().is_some())
}

impl Run {
    /// Where the approval of a step's undo stands; None where none is needed or it was used already.
    pub(super) fn undo_approval(&self, step: &Step) -> Option<UndoApproval> {
        if !step.undo_pin.as_ref()?.approval || was_approved(step) {
            return None;
        }
        let asked = self.undo_approvals.get(&step.no).and_then(|id| self.approvals.get(id)).map(Approval::status);
        // A no stands, whoever says yes in another way.
        if asked != Some(ApprovalStatus::Denied) && self.pre_approvals_of_undo(step).next().is_some() {
            return Some(UndoApproval::Granted);
        }
        Some(match asked {
            // Within a rollback only the daemon cancels one: it was for an undo that is another one now.
            None | Some(ApprovalStatus::Absent | ApprovalStatus::Cancelled) => UndoApproval::ToAsk,
            Some(ApprovalStatus::Open) => UndoApproval::Pending,
            Some(ApprovalStatus::Approved) => UndoApproval::Granted,
            Some(ApprovalStatus::Consumed) => return None,
            Some(ApprovalStatus::Denied) => UndoApproval::Ended("the approval of its undo was denied"),
            Some(ApprovalStatus::Expired) => UndoApproval::Ended("the approval of its undo expired"),
            Some(ApprovalStatus::Revoked) => UndoApproval::Ended("the approval of its undo was revoked"),
        })
    }

    pub(super) fn why_not_approved(&self, step: &Step) -> &'static str {
        match self.undo_approval(step) {
            Some(UndoApproval::Ended(why)) => why,
            Some(UndoApproval::ToAsk | UndoApproval::Pending | UndoApproval::Granted) | None => "the undo failed",
        }
    }

    /// By the state alone; whether it is enough is looked at when it is used.
    fn pre_approvals_of_undo(&self, step: &Step) -> impl Iterator<Item = &Approval> {
        let tool = step.undo_pin.as_ref().map(|pin| &pin.tool);
        let starter = self.rollback.as_ref().map(|rollback| (&rollback.by, rollback.person.as_deref()));
        self.approvals.values().filter(move |approval| {
            let fits = approval.ask().is_some_and(|ask| ask.fingerprint.is_none() && Some(&ask.tool) == tool);
            let own = |person: &str| starter.is_some_and(|(by, p)| by.as_str() == person || p == Some(person));
            let foreign = approval.votes().iter().all(|vote| !own(&vote.person));
            fits && foreign && approval.status() == ApprovalStatus::Approved
        })
    }

    /// The grant that the first attempt of a step's undo uses up: None where none is needed.
    pub fn undo_grant(
        &self,
        no: StepNo,
        rules: &Rules,
        (access, now): (&Access, Timestamp),
    ) -> Result<Option<&Approval>, NoGrant> {
        let Some(step) = self.step(no) else { return Ok(None) };
        match self.undo_approval(step) {
            None => Ok(None),
            Some(UndoApproval::Granted) => {
                let barred: Vec<String> = self.rollback_people();
                let tool = step.undo_pin.as_ref().map(|pin| &pin.tool);
                let pre = tool.and_then(|tool| self.pre_approved(now, tool, rules, (access, &barred)).next());
                let asked = self.undo_approvals.get(&no).and_then(|id| self.approvals.get(id));
                let asked = asked.filter(|approval| approval.is_usable(access, now));
                pre.or(asked).map(Some).ok_or(NoGrant)
            }
            Some(UndoApproval::ToAsk | UndoApproval::Pending | UndoApproval::Ended(_)) => Err(NoGrant),
        }
    }

    fn rollback_people(&self) -> Vec<String> {
        let rollback = self.rollback.iter();
        rollback.flat_map(|r| [Some(r.by.as_str().to_owned()), r.person.clone()]).flatten().collect()
    }

    /// Asks for a step's undo, once its turn has come.
    pub(super) fn decide_request_undo(
        &self,
        now: Timestamp,
        no: StepNo,
        facts: &RunFacts,
    ) -> Result<Decision<RunAnswer>, RunReject> {
        let Some(ask) = &facts.undo else { return Err(RunReject::Invalid("the request needs its facts")) };
        let effects = self.rollback_effects();
        let to_ask = effects.contains(&super::RunEffect::RequestApproval(no));
        let stale = if effects.contains(&super::RunEffect::DriveUndo(no)) { self.stale(now, no, ask) } else { vec![] };
        let (Some(rollback), true) = (&self.rollback, to_ask || !stale.is_empty()) else {
            return Ok(Decision::already(RunAnswer::Done));
        };
        let why = "it is not, or not any more, enough for this undo";
        let mut records: Vec<_> = stale.iter().map(|id| (revoked(id, why), self.with_approval(id))).collect();
        // What was asked stays asked where only a pre-approval beside it is of no use.
        let asked = self.undo_approvals.get(&no).filter(|id| !stale.contains(*id)).and_then(|id| self.approval(id));
        if asked.is_some_and(|approval| approval.status() != ApprovalStatus::Cancelled) {
            return Ok(self.by_access(records, ask));
        }
        let checksum = ask.manifest.map(|hash| hash.to_string()).unwrap_or_default();
        let (step, run) = (no.to_string(), self.id.as_str());
        let parts = [ask.tool.as_str(), &checksum, ask.args.as_str(), &step, run];
        let rules = ask.rules.clone();
        let body = ApprovalRequested {
            approval: ask.approval.clone(),
            args: self.commit_args(&ask.args, self.chain.next_run_seq() + records.len() as u64, facts),
            config: ask.config,
            deadline: rules.timeout_ms.map(|ms| now.plus_ms(ms)),
            escalate_to: rules.escalate_to,
            fingerprint: commit::keyed(&facts.payload_key, "reversi.dev/undo-approval/v1", &parts),
            manifest: ask.manifest,
            quorum: rules.quorum,
            reason: String::new(),
            requester: Some(rollback.person.clone().unwrap_or_else(|| rollback.by.as_str().to_owned())),
            roles: rules.roles,
            step: no,
            target: Target::Undo,
            timeout_ms: rules.timeout_ms,
            tool: ask.tool.clone(),
        };
        let event = ApprovalEvent::Requested(body, FullArguments { args: Some(ask.args.clone()) }).into();
        records.push((event, self.with_approval(&ask.approval)));
        Ok(self.by_access(records, ask))
    }

    /// Grants of a step's undo by their state, where none of them may be used now.
    fn stale(&self, now: Timestamp, no: StepNo, ask: &UndoAsk) -> Vec<ApprovalId> {
        if self.undo_grant(no, &ask.rules, (&ask.access, now)).is_ok() {
            return Vec::new();
        }
        let pre = self.step(no).into_iter().flat_map(|step| self.pre_approvals_of_undo(step));
        let asked = self.undo_approvals.get(&no).and_then(|id| self.approval(id));
        let asked = asked.filter(|approval| approval.status() == ApprovalStatus::Approved);
        pre.chain(asked).map(|approval| approval.id().clone()).collect()
    }

    fn by_access(&self, records: Vec<(Event, Vec<StreamId>)>, ask: &UndoAsk) -> Decision<RunAnswer> {
        let mut decision = Decision { records, ..self.append(Vec::new(), RunAnswer::Done) };
        decision.expect.push((StreamId::Access, ask.access_version));
        decision
    }
}
