//! Folding a request's own events. Must not refuse anything.
use super::{Approval, ApprovalStatus, Ask, Glass, Rules, Vote};
use crate::event::v1::{ApprovalPreApproved, ApprovalRequested, FullArguments, Target};
use crate::event::{ApprovalEvent, Meta};

impl Approval {
    fn end_with(&mut self, status: ApprovalStatus, who: &str, why: &str) {
        (self.status, self.end) = (status, Some((who.to_owned(), why.to_owned())));
        self.forget_arguments();
    }

    pub(super) fn evolve_own(&mut self, meta: &Meta, event: &ApprovalEvent) {
        match event {
            ApprovalEvent::Requested(body, private) => self.requested(meta, body, private),
            ApprovalEvent::PreApproved(body, ()) => self.pre_approved(meta, body),
            ApprovalEvent::Voted(body, ()) => {
                let body = body.clone();
                let (person, on_behalf_of, key, note) = (body.person, body.on_behalf_of, body.key, body.note);
                self.votes.push(Vote { person, on_behalf_of, key, note, at: meta.ts });
            }
            ApprovalEvent::Granted(body, ()) => {
                (self.status, self.use_by) = (ApprovalStatus::Approved, Some(body.use_by));
            }
            ApprovalEvent::Denied(body, ()) => {
                self.end_with(ApprovalStatus::Denied, &body.person, body.note.as_deref().unwrap_or_default());
            }
            ApprovalEvent::Withdrawn(body, ()) => {
                self.votes.retain(|vote| vote.person != body.person);
                if self.status == ApprovalStatus::Approved && self.glass == Glass::Whole {
                    (self.status, self.use_by) = (ApprovalStatus::Open, None);
                }
            }
            ApprovalEvent::Escalated(body, ()) => (self.level, self.deadline) = (body.level, Some(body.deadline)),
            ApprovalEvent::Expired(_, ()) => {
                let why =
                    if self.status == ApprovalStatus::Open { "nobody answered in time" } else { "not used in time" };
                self.end_with(ApprovalStatus::Expired, meta.actor.id.as_str(), why);
            }
            ApprovalEvent::Revoked(body, ()) => {
                self.end_with(ApprovalStatus::Revoked, meta.actor.id.as_str(), &body.note);
            }
            ApprovalEvent::Cancelled(body, ()) => {
                self.end_with(ApprovalStatus::Cancelled, meta.actor.id.as_str(), &body.note);
            }
            ApprovalEvent::GlassBroken(body, ()) => {
                let (person, reason, review_by) = (body.person.clone(), body.reason.clone(), body.review_by);
                self.glass = Glass::Broken { person, at: meta.ts, reason, review_by, overdue: false };
                (self.status, self.use_by) = (ApprovalStatus::Approved, Some(body.use_by));
            }
            ApprovalEvent::Reviewed(body, ()) => {
                if let Glass::Broken { person, at, .. } = &self.glass {
                    let (person, at, by, note) = (person.clone(), *at, body.person.clone(), body.note.clone());
                    self.glass = Glass::Reviewed { person, at, by, note };
                }
            }
            ApprovalEvent::ReviewOverdue(_, ()) => {
                if let Glass::Broken { overdue, .. } = &mut self.glass {
                    *overdue = true;
                }
            }
        }
    }

    fn requested(&mut self, meta: &Meta, body: &ApprovalRequested, private: &FullArguments) {
        let body = body.clone();
        self.ask = Some(Ask {
            target: body.target,
            step: body.step,
            tool: body.tool,
            fingerprint: Some(body.fingerprint),
            manifest: body.manifest,
            config: body.config,
            rules: Rules {
                roles: body.roles,
                quorum: body.quorum,
                timeout_ms: body.timeout_ms,
                escalate_to: body.escalate_to,
            },
            actor: meta.actor.id.clone(),
            requester: body.requester,
            reason: body.reason,
            args: private.args.clone(),
            at: meta.ts,
        });
        (self.status, self.deadline) = (ApprovalStatus::Open, body.deadline);
    }

    fn pre_approved(&mut self, meta: &Meta, body: &ApprovalPreApproved) {
        let body = body.clone();
        self.ask = Some(Ask {
            target: Target::Step,
            step: 0,
            tool: body.tool,
            fingerprint: None,
            manifest: None,
            config: 0,
            rules: Rules::default(),
            actor: meta.actor.id.clone(),
            requester: None,
            reason: body.note.clone().unwrap_or_default(),
            args: None,
            at: meta.ts,
        });
        let (person, key, note) = (body.person, body.key, body.note);
        self.votes.push(Vote { person, on_behalf_of: None, key, note, at: meta.ts });
        (self.status, self.use_by) = (ApprovalStatus::Approved, Some(body.use_by));
    }
}
