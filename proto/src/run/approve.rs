//! What a call or an undo has to do with approvals: is one needed, is one granted, must one be asked for. Votes are the
//! approval's own affair. Must not know who is told.
use std::sync::Arc;

use super::begin::{BeginCall, BeginFacts, finding};
use super::{Run, RunAnswer, RunFacts, RunReject, RunStatus};
use crate::access::{Access, Principal};
use crate::aggregate::{Aggregate as _, Decision};
use crate::approval::{Approval, ApprovalStatus, Ask, Rules, USE_WITHIN_MS, merge, subject};
use crate::canonical::Canonical;
use crate::commit;
use crate::event::v1::{
    ApprovalCancelled, ApprovalPreApproved, ApprovalRequested, ApprovalRevoked, Finding, FullArguments, Role, Target,
};
use crate::event::{ApprovalEvent, Event, Meta};
use crate::hash::Hash;
use crate::ids::{Actor, ApprovalId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::{self, Manifest};
use crate::time::Timestamp;
use crate::wake::Wake;

/// Where a call stands with its approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Approving {
    /// Nobody needs to be asked.
    NotNeeded,
    /// The grant is there; it is used up by the call.
    Granted(ApprovalId),
    /// Asked already, and not answered.
    Pending(ApprovalId),
    /// To be asked; a grant that is no good any more is taken away.
    Ask {
        /// That grant.
        stale: Option<ApprovalId>,
    },
    /// It is of no use to ask.
    Refused(Finding),
}

/// An operator's yes in advance.
#[derive(Debug, Clone)]
pub struct PreApprove {
    /// The id that it gets.
    pub approval: ApprovalId,
    /// The next call of this tool, or the next undo by it.
    pub tool: ToolName,
    /// Who says so.
    pub who: Principal,
    /// Their words.
    pub note: Option<String>,
}

/// What a pre-approval must know of the world.
#[derive(Debug, Clone)]
pub struct PreApproveFacts {
    /// The rules of the tool now; None: it has no manifest.
    pub rules: Option<Rules>,
    /// Who may.
    pub access: Arc<Access>,
    /// Version of the `access` stream.
    pub access_version: Option<Seq>,
}

/// The rules of a call by its manifest; None where it asks nobody.
pub fn rules_of(manifest: &Manifest) -> Option<Rules> {
    match &manifest.approval {
        manifest::Approval::Never => None,
        manifest::Approval::Always(rules) => Some(merge([rules])),
    }
}

impl Run {
    /// An approval of this run.
    pub fn approval(&self, id: &ApprovalId) -> Option<&Approval> {
        self.approvals.get(id)
    }

    /// All approvals of this run, by their ids.
    pub fn approvals(&self) -> impl Iterator<Item = &Approval> {
        self.approvals.values()
    }

    pub(super) fn evolve_approval(&mut self, meta: &Meta, event: &ApprovalEvent) {
        if let ApprovalEvent::Requested(body, _) = event {
            match body.target {
                Target::Step => drop(self.asked.insert(body.fingerprint, body.approval.clone())),
                Target::Undo => drop(self.undo_approvals.insert(body.step, body.approval.clone())),
            }
        }
        let (run, id) = (self.id.clone(), subject(event));
        let approval = self.approvals.entry(id.clone()).or_insert_with(|| Approval::new(run, id.clone()));
        approval.evolve(meta, &Event::Approval(event.clone()));
        // The request's own actor keeps them, for whoever decides.
        approval.forget_arguments();
        let of_undo = approval.ask().is_some_and(|ask| ask.target == Target::Undo || ask.fingerprint.is_none());
        if of_undo && approval.status() == ApprovalStatus::Approved {
            self.reopen();
        }
    }

    /// A call or an undo used a grant up.
    pub(super) fn consume(&mut self, meta: &Meta, id: Option<&ApprovalId>, event: &Event) {
        if let Some(approval) = id.and_then(|id| self.approvals.get_mut(id)) {
            approval.evolve(meta, event);
        }
    }

    /// When each approval that the records advance must be woken after them.
    pub(super) fn approval_wakes(&self, now: Timestamp, records: &[(Event, Vec<StreamId>)]) -> Vec<(StreamId, Wake)> {
        let meta = Meta { seq: 0, ts: now, leaf: Hash::default(), actor: Actor::system() };
        let mut touched: Vec<Approval> = Vec::new();
        for (event, streams) in records {
            for stream in streams {
                let StreamId::Approval(id) = stream else { continue };
                let at = touched.iter().position(|approval| approval.id() == id).unwrap_or_else(|| {
                    let known = self.approvals.get(id).cloned();
                    touched.push(known.unwrap_or_else(|| Approval::new(self.id.clone(), id.clone())));
                    touched.len() - 1
                });
                touched[at].evolve(&meta, event);
            }
        }
        touched.into_iter().map(|approval| (StreamId::Approval(approval.id().clone()), approval.wake())).collect()
    }

    /// Where a call stands with its approval: by the request that it names, else by one for the same call, else by a
    /// pre-approval.
    pub(super) fn approving(
        &self,
        now: Timestamp,
        call: &BeginCall,
        manifest: &Manifest,
        (facts, begin): (&RunFacts, &BeginFacts),
    ) -> Approving {
        let Some(rules) = rules_of(manifest) else { return Approving::NotNeeded };
        let fingerprint = self.fingerprint(call, manifest, facts);
        let known = self.asked.get(&fingerprint).and_then(|id| self.approvals.get(id));
        // A no stands for exactly this call in this run, whoever says yes to it in another way.
        if let Some(approval) = known.filter(|approval| approval.status() == ApprovalStatus::Denied) {
            return Approving::Refused(denied(approval));
        }
        if let Some(id) = &call.approval {
            return self.named(now, id, (call, manifest, fingerprint), begin);
        }
        let barred = self.people(call);
        let mut pre = self.pre_approved(now, &call.tool, &rules, (&begin.access, &barred));
        if let Some(approval) = pre.next() {
            return Approving::Granted(approval.id().clone());
        }
        let stale = match known.map(|approval| (approval, approval.status())) {
            Some((approval, ApprovalStatus::Open)) => return Approving::Pending(approval.id().clone()),
            Some((approval, ApprovalStatus::Approved)) if approval.is_usable(&begin.access, now) => {
                return Approving::Granted(approval.id().clone());
            }
            Some((approval, ApprovalStatus::Approved)) => Some(approval.id().clone()),
            Some((
                _,
                ApprovalStatus::Absent
                | ApprovalStatus::Denied
                | ApprovalStatus::Consumed
                | ApprovalStatus::Expired
                | ApprovalStatus::Revoked
                | ApprovalStatus::Cancelled,
            ))
            | None => None,
        };
        self.ask(now, stale, call, (&rules, begin))
    }

    /// It is of no use to ask where too few could answer.
    fn ask(
        &self,
        now: Timestamp,
        stale: Option<ApprovalId>,
        call: &BeginCall,
        (rules, begin): (&Rules, &BeginFacts),
    ) -> Approving {
        let barred = self.people(call);
        let barred: Vec<&str> = barred.iter().map(String::as_str).collect();
        let listed = rules.listed_at_last();
        if !begin.access.can_reach(rules.quorum, &listed, &barred, now) {
            let who = if listed.is_empty() { "the role approver".to_owned() } else { listed.join(", ") };
            let (tool, quorum) = (&call.tool, rules.quorum);
            let text = format!(
                "nobody could let this through: {tool} needs {quorum} approver(s) who hold {who}, and fewer than that \
                 hold a key, not counting whoever asks"
            );
            return Approving::Refused(finding("approval.unreachable", text));
        }
        Approving::Ask { stale }
    }

    /// The persons behind a call, who can't approve it.
    #[allow(clippy::unused_self)] // "whose call" reads better with the run in front
    fn people(&self, call: &BeginCall) -> Vec<String> {
        call.person.iter().cloned().chain([call.actor.id.as_str().to_owned()]).collect()
    }

    /// The call names its grant: it must be for exactly this call.
    fn named(
        &self,
        now: Timestamp,
        id: &ApprovalId,
        (call, manifest, fingerprint): (&BeginCall, &Manifest, Hash),
        begin: &BeginFacts,
    ) -> Approving {
        let refused = |code: &str, text: String| Approving::Refused(finding(code, text));
        let Some((approval, ask)) = self.approvals.get(id).and_then(|approval| Some((approval, approval.ask()?)))
        else {
            return refused("approval.wrong_run", format!("approval {id} was not asked for in this run"));
        };
        let differs = ask.fingerprint.is_some_and(|bound| bound != fingerprint);
        if ask.tool != call.tool {
            return refused("approval.wrong_tool", format!("approval {id} is for the tool {}", ask.tool));
        }
        if ask.target == Target::Undo {
            return refused("approval.wrong_tool", format!("approval {id} is for an undo and not for a call"));
        }
        if differs && ask.actor != call.actor.id {
            return refused("approval.wrong_actor", format!("approval {id} was asked for by another actor"));
        }
        if differs && ask.manifest != Some(manifest.checksum()) {
            let text = format!("the manifest of {} changed since approval {id} was asked for; ask again", call.tool);
            return refused("approval.manifest_changed", text);
        }
        if differs {
            return refused("approval.wrong_arguments", format!("approval {id} is for other arguments; ask again"));
        }
        let ended = |what: &str| format!("approval {id} {what}; ask again without naming it");
        let rules = rules_of(manifest).unwrap_or_default();
        // Whether its timer has recorded that already must make no difference.
        let late = approval.status() == ApprovalStatus::Approved && approval.use_by().is_some_and(|until| until <= now);
        match approval.status() {
            ApprovalStatus::Open => Approving::Pending(id.clone()),
            ApprovalStatus::Approved if late => refused("approval.expired", ended("was not used in time")),
            ApprovalStatus::Approved if ask.fingerprint.is_none() => {
                let barred = self.people(call);
                let mut pre = self.pre_approved(now, &call.tool, &rules, (&begin.access, &barred));
                if pre.any(|approval| approval.id() == id) {
                    return Approving::Granted(id.clone());
                }
                refused("approval.not_enough", format!("the pre-approval {id} is not enough for this call"))
            }
            ApprovalStatus::Approved if approval.is_usable(&begin.access, now) => Approving::Granted(id.clone()),
            ApprovalStatus::Approved => self.ask(now, Some(id.clone()), call, (&rules, begin)),
            ApprovalStatus::Denied => Approving::Refused(denied(approval)),
            ApprovalStatus::Consumed => refused("approval.used", ended("was used already, and is good for one call")),
            ApprovalStatus::Expired => refused("approval.expired", ended("expired")),
            ApprovalStatus::Revoked => refused("approval.revoked", ended("was revoked")),
            ApprovalStatus::Cancelled | ApprovalStatus::Absent => refused("approval.cancelled", ended("was cancelled")),
        }
    }

    /// Pre-approvals that would do for these rules: each is one vote of a person who is an operator still.
    pub(super) fn pre_approved(
        &self,
        now: Timestamp,
        tool: &ToolName,
        rules: &Rules,
        (access, barred): (&Access, &[String]),
    ) -> impl Iterator<Item = &Approval> {
        self.approvals.values().filter(move |approval| {
            let fits = approval.ask().is_some_and(|ask| ask.fingerprint.is_none() && ask.tool == *tool);
            let enough = |person: &str| {
                let entitled = access.has_role(person, Role::Operator, now) && access.holds(person, &rules.roles, now);
                rules.quorum == 1 && entitled && !barred.iter().any(|b| b == person)
            };
            let voters = approval.votes();
            let in_time = approval.use_by().is_some_and(|until| now < until);
            let usable = approval.status() == ApprovalStatus::Approved && in_time;
            fits && usable && voters.iter().all(|vote| enough(&vote.person)) && !voters.is_empty()
        })
    }

    pub(super) fn fingerprint(&self, call: &BeginCall, manifest: &Manifest, facts: &RunFacts) -> Hash {
        let checksum = manifest.checksum().to_string();
        let parts = [call.tool.as_str(), &checksum, call.args.as_str(), call.actor.id.as_str(), self.id.as_str()];
        commit::keyed(&facts.payload_key, "reversi.dev/approval/v1", &parts)
    }

    pub(super) fn request_approval(
        &self,
        now: Timestamp,
        call: &BeginCall,
        (manifest, rules): (&Manifest, Rules),
        (step, run_seq): (StepNo, u64),
        (facts, begin): (&RunFacts, &BeginFacts),
    ) -> Event {
        let body = ApprovalRequested {
            approval: begin.approval.clone(),
            args: self.commit_args(&call.args, run_seq, facts),
            config: begin.config.unwrap_or(0),
            deadline: rules.timeout_ms.map(|ms| now.plus_ms(ms)),
            escalate_to: rules.escalate_to,
            fingerprint: self.fingerprint(call, manifest, facts),
            manifest: Some(manifest.checksum()),
            quorum: rules.quorum,
            reason: call.reason.clone(),
            requester: call.person.clone(),
            roles: rules.roles,
            step,
            target: Target::Step,
            timeout_ms: rules.timeout_ms,
            tool: call.tool.clone(),
        };
        ApprovalEvent::Requested(body, FullArguments { args: Some(call.args.clone()) }).into()
    }

    pub(super) fn commit_args(&self, args: &Canonical, run_seq: u64, facts: &RunFacts) -> Hash {
        commit::commit(&commit::opening_key(&facts.payload_key, &self.id, run_seq, "args"), args)
    }

    /// The request of the same call that stays open beside the grant that is used.
    pub(super) fn left_over(&self, fingerprint: Hash, used: &ApprovalId) -> Option<ApprovalId> {
        let id = self.asked.get(&fingerprint).filter(|id| *id != used)?;
        self.approvals.get(id).filter(|approval| approval.status().is_alive()).map(|approval| approval.id().clone())
    }

    /// Ends requests and grants that nothing can use any more.
    pub(super) fn cancel(&self, which: impl Fn(&Ask) -> bool, why: &str) -> Vec<(Event, Vec<StreamId>)> {
        let alive = self.approvals.values().filter(|approval| approval.status().is_alive());
        let ended = alive.filter(|approval| approval.ask().is_some_and(&which));
        ended.map(|approval| (cancelled(approval.id(), why), self.with_approval(approval.id()))).collect()
    }

    pub(super) fn with_approval(&self, id: &ApprovalId) -> Vec<StreamId> {
        vec![self.stream(), StreamId::Approval(id.clone())]
    }

    /// One vote of the operator's person: enough only where no other role and no second person is asked for.
    pub(super) fn decide_pre_approve(
        &self,
        now: Timestamp,
        pre: &PreApprove,
        facts: &RunFacts,
    ) -> Result<Decision<RunAnswer>, RunReject> {
        let Some(known) = &facts.pre_approve else { return Err(RunReject::Invalid("a pre-approval needs its facts")) };
        let ended = match self.status {
            RunStatus::RolledBack => true,
            RunStatus::Absent
            | RunStatus::Active
            | RunStatus::Sealed
            | RunStatus::RollingBack
            | RunStatus::PartlyRolledBack => false,
        };
        if ended {
            let (run, status) = (self.id.clone(), self.status.as_str());
            return Err(RunReject::NotActive { run, status, what: "pre-approval" });
        }
        let Some(rules) = &known.rules else { return Err(RunReject::NoManifest { tool: pre.tool.clone() }) };
        let person = pre.who.person();
        if pre.who.actor.id == self.owner
            || person == self.owner.as_str()
            || self.owner_person.as_deref() == Some(person)
        {
            return Err(RunReject::OwnApproval { person: person.to_owned() });
        }
        if rules.quorum > 1 || !known.access.holds(person, &rules.roles, now) {
            let (tool, quorum) = (pre.tool.clone(), rules.quorum);
            return Err(RunReject::NeedsQuorum { tool, quorum, roles: rules.roles.clone() });
        }
        let body = ApprovalPreApproved {
            approval: pre.approval.clone(),
            key: pre.who.key.clone(),
            note: pre.note.clone(),
            person: person.to_owned(),
            tool: pre.tool.clone(),
            use_by: now.plus_ms(USE_WITHIN_MS),
        };
        let mut decision = self.append(vec![ApprovalEvent::PreApproved(body, ()).into()], RunAnswer::Done);
        decision.records.iter_mut().for_each(|(_, streams)| streams.push(StreamId::Approval(pre.approval.clone())));
        decision.expect.push((StreamId::Access, known.access_version));
        Ok(decision)
    }
}

fn denied(approval: &Approval) -> Finding {
    let who = approval.end().map_or("somebody", |(who, _)| who);
    finding("approval.denied", format!("{who} denied approval {} for exactly this call in this run", approval.id()))
}

pub(super) fn cancelled(id: &ApprovalId, why: &str) -> Event {
    ApprovalEvent::Cancelled(ApprovalCancelled { approval: id.clone(), note: why.to_owned() }, ()).into()
}

pub(super) fn revoked(id: &ApprovalId, why: &str) -> Event {
    ApprovalEvent::Revoked(ApprovalRevoked { approval: id.clone(), note: why.to_owned() }, ()).into()
}
