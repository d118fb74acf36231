//! What the undo of a step has to do with approvals. Votes are the approval's own affair; how an inverse is called, the
//! undo's. Must not know who is told.
use super::approve::rules_of;
use super::{Run, RunAnswer, RunFacts, RunReject, Step};
use crate::access::Access;
use crate::aggregate::Decision;
use crate::approval::{Approval, ApprovalStatus, Rules};
use crate::canonical::Canonical;
use crate::commit;
use crate::event::ApprovalEvent;
use crate::event::v1::{ApprovalRequested, FullArguments, Target};
use crate::hash::Hash;
use crate::ids::{ApprovalId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::Manifest;
use crate::time::Timestamp;
use crate::undo::{Grant, NotReady, UndoTurn};

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
        if self.pre_approval_of_undo(step).is_some() {
            return Some(UndoApproval::Granted);
        }
        let asked = self.undo_approvals.get(&step.no).and_then(|id| self.approvals.get(id));
        Some(match asked.map(Approval::status) {
            None | Some(ApprovalStatus::Absent) => UndoApproval::ToAsk,
            Some(ApprovalStatus::Open) => UndoApproval::Pending,
            Some(ApprovalStatus::Approved) => UndoApproval::Granted,
            Some(ApprovalStatus::Consumed) => return None,
            Some(ApprovalStatus::Denied) => UndoApproval::Ended("the approval of its undo was denied"),
            Some(ApprovalStatus::Expired) => UndoApproval::Ended("the approval of its undo expired"),
            Some(ApprovalStatus::Revoked) => UndoApproval::Ended("the approval of its undo was revoked"),
            Some(ApprovalStatus::Cancelled) => UndoApproval::Ended("the approval of its undo was cancelled"),
        })
    }

    pub(super) fn why_not_approved(&self, step: &Step) -> &'static str {
        match self.undo_approval(step) {
            Some(UndoApproval::Ended(why)) => why,
            Some(UndoApproval::ToAsk | UndoApproval::Pending | UndoApproval::Granted) | None => "the undo failed",
        }
    }

    /// By the state alone; whether it is enough is looked at when it is used.
    fn pre_approval_of_undo(&self, step: &Step) -> Option<&Approval> {
        let tool = &step.undo_pin.as_ref()?.tool;
        let starter = self.rollback.as_ref().map(|rollback| (&rollback.by, rollback.person.as_deref()));
        self.approvals.values().find(|approval| {
            let fits = approval.ask().is_some_and(|ask| ask.fingerprint.is_none() && ask.tool == *tool);
            let own = |person: &str| starter.is_some_and(|(by, p)| by.as_str() == person || p == Some(person));
            let foreign = approval.votes().iter().all(|vote| !own(&vote.person));
            fits && foreign && approval.status() == ApprovalStatus::Approved
        })
    }

    /// Has this step's turn come, with everything that it needs? A grant whose time is over, or whose voters are not
    /// entitled any more, is none.
    pub fn undo_turn(
        &self,
        no: StepNo,
        rules: &Rules,
        (access, access_version): (&Access, Option<Seq>),
        now: Timestamp,
    ) -> Result<UndoTurn, NotReady> {
        let rollback = self.turn_of(no)?;
        let grant = self.undo_grant(no, rules, (access, now))?;
        let grant = grant.map(|approval| Grant {
            approval: approval.id().clone(),
            wake: approval.wake_once_used(),
            access_version,
        });
        Ok(UndoTurn { rollback, grant })
    }

    /// None where none is needed (any more).
    fn undo_grant(
        &self,
        no: StepNo,
        rules: &Rules,
        (access, now): (&Access, Timestamp),
    ) -> Result<Option<&Approval>, NotReady> {
        let Some(step) = self.step(no) else { return Ok(None) };
        match self.undo_approval(step) {
            None => Ok(None),
            Some(UndoApproval::Granted) => {
                let barred: Vec<String> = self.rollback_people();
                let tool = step.undo_pin.as_ref().map(|pin| &pin.tool);
                let pre = tool.and_then(|tool| self.pre_approved(now, tool, rules, (access, &barred)));
                let asked = self.undo_approvals.get(&no).and_then(|id| self.approvals.get(id));
                let asked = asked.filter(|approval| approval.is_usable(access, now));
                pre.or(asked).map(Some).ok_or(NotReady::AwaitingApproval)
            }
            Some(UndoApproval::ToAsk | UndoApproval::Pending | UndoApproval::Ended(_)) => {
                Err(NotReady::AwaitingApproval)
            }
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
        let wanted = self.rollback_effects().contains(&super::RunEffect::RequestApproval(no));
        let (Some(rollback), true) = (&self.rollback, wanted) else { return Ok(Decision::already(RunAnswer::Done)) };
        let checksum = ask.manifest.map(|hash| hash.to_string()).unwrap_or_default();
        let (step, run) = (no.to_string(), self.id.as_str());
        let parts = [ask.tool.as_str(), &checksum, ask.args.as_str(), &step, run];
        let rules = ask.rules.clone();
        let body = ApprovalRequested {
            approval: ask.approval.clone(),
            args: self.commit_args(&ask.args, self.chain.next_run_seq(), facts),
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
        let mut decision = self.append(vec![event], RunAnswer::Done);
        decision.records.iter_mut().for_each(|(_, streams)| streams.push(StreamId::Approval(ask.approval.clone())));
        Ok(decision)
    }
}
