//! The decisions on a request: domain rules "Approval". Must not fold.
use super::{
    Approval, ApprovalFacts, ApprovalReject, ApprovalStatus, Ask, GLASS_REASON_CHARS_MIN, Glass, REVIEW_WITHIN_MS, Say,
    USE_WITHIN_MS,
};
use crate::access::{Access, Principal, Standing};
use crate::aggregate::Decision;
use crate::event::v1::{
    ApprovalDenied, ApprovalEscalated, ApprovalExpired, ApprovalGlassBroken, ApprovalGranted, ApprovalReviewOverdue,
    ApprovalReviewed, ApprovalRevoked, ApprovalVoted, ApprovalWithdrawn, Role,
};
use crate::event::{ApprovalEvent, Event};
use crate::ids::StreamId;
use crate::time::Timestamp;

type Decided = Result<Decision<()>, ApprovalReject>;

impl Approval {
    /// A yes; with the one that makes the quorum the request is granted, in the same append.
    pub(super) fn approve(&self, now: Timestamp, say: &Say, facts: &ApprovalFacts) -> Decided {
        let person = say.who.person();
        self.must_match(say)?;
        let already = self.votes.iter().any(|vote| vote.person == person);
        if self.status != ApprovalStatus::Open || self.is_over(now) {
            // A retried vote has nothing to add.
            let granted = matches!(self.status, ApprovalStatus::Approved | ApprovalStatus::Consumed);
            return if already && granted { Ok(Decision::already(())) } else { Err(self.closed("vote", now)) };
        }
        let standing = self.standing(now, &say.who, &facts.access)?;
        // A vote of before counts only while its voter is entitled to it: it may be what completes the quorum now.
        let mut events = Vec::new();
        if !already {
            let on_behalf_of = match standing {
                Standing::Own => None,
                Standing::For(person) => Some(person),
            };
            let (approval, key, note) = (self.id.clone(), say.who.key.clone(), say.note.clone());
            events.push(ApprovalEvent::Voted(
                ApprovalVoted { approval, key, note, on_behalf_of, person: person.to_owned() },
                (),
            ));
        }
        if self.has_quorum(&[person], &facts.access, now) {
            let use_by = now.plus_ms(USE_WITHIN_MS);
            events.push(ApprovalEvent::Granted(ApprovalGranted { approval: self.id.clone(), use_by }, ()));
        }
        Ok(self.by_access(events, facts))
    }

    /// One no is enough, whatever was said before.
    pub(super) fn deny(&self, now: Timestamp, say: &Say, facts: &ApprovalFacts) -> Decided {
        let person = say.who.person();
        self.must_match(say)?;
        if !self.status.is_alive() || self.is_over(now) {
            let same = self.status == ApprovalStatus::Denied && self.end().is_some_and(|(who, _)| who == person);
            return if same { Ok(Decision::already(())) } else { Err(self.closed("vote", now)) };
        }
        self.standing(now, &say.who, &facts.access)?;
        let (approval, key, note) = (self.id.clone(), say.who.key.clone(), say.note.clone());
        let denied = ApprovalDenied { approval, key, note, person: person.to_owned() };
        Ok(self.by_access(vec![ApprovalEvent::Denied(denied, ())], facts))
    }

    pub(super) fn withdraw(&self, now: Timestamp, who: &Principal, facts: &ApprovalFacts) -> Decided {
        if !self.status.is_alive() || self.is_over(now) {
            return Err(self.closed("withdrawal", now));
        }
        // An agent that acts for a voter is not the voter.
        if who.has(Role::Agent) {
            return Err(ApprovalReject::Agent);
        }
        let person = who.person().to_owned();
        let approval = self.id.clone();
        if !self.votes.iter().any(|vote| vote.person == person) || self.fingerprint_of_ask().is_none() {
            return Err(ApprovalReject::NoVote { approval, person });
        }
        let withdrawn = ApprovalWithdrawn { approval, person };
        Ok(self.append(vec![ApprovalEvent::Withdrawn(withdrawn, ())], facts))
    }

    pub(super) fn revoke(&self, now: Timestamp, who: &Principal, note: &str, facts: &ApprovalFacts) -> Decided {
        if !self.status.is_alive() || self.is_over(now) {
            return Err(self.closed("revocation", now));
        }
        if who.has(Role::Agent) {
            return Err(ApprovalReject::Agent);
        }
        let voted = self.votes.iter().any(|vote| vote.person == who.person());
        let broke = matches!(&self.glass, Glass::Broken { person, .. } if person == who.person());
        if !(voted || broke || who.has(Role::Admin)) {
            return Err(ApprovalReject::NotRevoker { approval: self.id.clone() });
        }
        let revoked = ApprovalRevoked { approval: self.id.clone(), note: note.to_owned() };
        Ok(self.by_access(vec![ApprovalEvent::Revoked(revoked, ())], facts))
    }

    /// Never one's own request, never against a deny or a halt.
    pub(super) fn break_glass(&self, now: Timestamp, who: &Principal, reason: &str, facts: &ApprovalFacts) -> Decided {
        let person = who.person().to_owned();
        if self.status != ApprovalStatus::Open || self.is_over(now) {
            return Err(self.closed("emergency grant", now));
        }
        let got = reason.trim().chars().count();
        if got < GLASS_REASON_CHARS_MIN {
            return Err(ApprovalReject::ReasonTooShort { got });
        }
        self.must_be_another(who)?;
        if !who.has(Role::Breakglass) {
            return Err(ApprovalReject::NotEligible { person, roles: vec![Role::Breakglass.as_str().to_owned()] });
        }
        if let Some(reason) = facts.halted.clone() {
            return Err(ApprovalReject::Halted { reason });
        }
        if facts.access.has_overdue_review(&person, now) {
            return Err(ApprovalReject::ReviewOverdue { person });
        }
        let broken = ApprovalGlassBroken {
            approval: self.id.clone(),
            key: who.key.clone(),
            person,
            reason: reason.to_owned(),
            review_by: now.plus_ms(REVIEW_WITHIN_MS),
            use_by: now.plus_ms(USE_WITHIN_MS),
        };
        let mut decision = self.owing_review(ApprovalEvent::GlassBroken(broken, ()), facts);
        decision.expect.push((StreamId::Halt, facts.halt_version));
        Ok(decision)
    }

    pub(super) fn review(&self, who: &Principal, note: &str, facts: &ApprovalFacts) -> Decided {
        let approval = self.id.clone();
        let Glass::Broken { person: broke, .. } = &self.glass else {
            return Err(ApprovalReject::NoReview { approval });
        };
        let person = who.person().to_owned();
        if *broke == person {
            return Err(ApprovalReject::OwnRequest { person });
        }
        self.must_be_another(who)?;
        let reviewed = ApprovalReviewed { approval, key: who.key.clone(), note: note.to_owned(), person };
        Ok(self.owing_review(ApprovalEvent::Reviewed(reviewed, ()), facts))
    }

    /// One level per late firing. Nothing to do where no deadline has passed.
    pub(super) fn fire(&self, now: Timestamp, facts: &ApprovalFacts) -> Decision<()> {
        let passed = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if let Glass::Broken { review_by, overdue: false, .. } = &self.glass
            && *review_by <= now
        {
            let overdue = ApprovalReviewOverdue { approval: self.id.clone() };
            return self.owing_review(ApprovalEvent::ReviewOverdue(overdue, ()), facts);
        }
        let due = match self.status {
            ApprovalStatus::Open => passed(self.deadline),
            ApprovalStatus::Approved => passed(self.use_by),
            ApprovalStatus::Absent
            | ApprovalStatus::Consumed
            | ApprovalStatus::Denied
            | ApprovalStatus::Expired
            | ApprovalStatus::Revoked
            | ApprovalStatus::Cancelled => false,
        };
        if !due {
            return Decision::already(());
        }
        let approval = self.id.clone();
        let rules = self.ask.as_ref().map(|ask| &ask.rules);
        let next = rules.filter(|_| self.status == ApprovalStatus::Open && self.can_climb());
        let event = match next.and_then(|rules| rules.timeout_ms) {
            Some(timeout_ms) => {
                let (deadline, level) = (now.plus_ms(timeout_ms), self.level + 1);
                ApprovalEvent::Escalated(ApprovalEscalated { approval, deadline, level }, ())
            }
            None => ApprovalEvent::Expired(ApprovalExpired { approval }, ()),
        };
        self.append(vec![event], facts)
    }

    fn can_climb(&self) -> bool {
        self.ask.as_ref().is_some_and(|ask| (self.level as usize) < ask.rules.escalate_to.len())
    }

    /// At quorum every voter is looked at again: only who is entitled now counts, and each camp of a delegation once.
    pub(super) fn has_quorum(&self, more: &[&str], access: &Access, now: Timestamp) -> bool {
        let Some(ask) = &self.ask else { return false };
        let (listed, barred) = (ask.rules.listed(self.level), ask.barred());
        let voters = self.votes.iter().map(|vote| vote.person.as_str()).chain(more.iter().copied());
        // A pre-approval is the vote of an operator; whether that is enough was and is the Run's to say.
        let standing = |person| match ask.fingerprint {
            None => Some(Standing::Own),
            Some(_) => access.standing(person, &listed, &barred, now),
        };
        let counted = voters.filter_map(|person| Some((person, standing(person)?)));
        access.count(counted, now) >= ask.rules.quorum as usize
    }

    fn standing(&self, now: Timestamp, who: &Principal, access: &Access) -> Result<Standing, ApprovalReject> {
        self.must_be_another(who)?;
        let Some(ask) = &self.ask else { return Err(self.closed("vote", now)) };
        let roles = ask.rules.listed(self.level);
        let person = who.person();
        // The key that votes must be an approver's itself; another key of the same person lends nothing.
        let standing = if who.has(Role::Approver) { access.standing(person, &roles, &ask.barred(), now) } else { None };
        standing.ok_or_else(|| ApprovalReject::NotEligible { person: person.to_owned(), roles })
    }

    /// Would this person's word count now?
    pub fn may_decide(&self, who: &Principal, access: &Access, now: Timestamp) -> bool {
        self.status == ApprovalStatus::Open && !self.is_over(now) && self.standing(now, who, access).is_ok()
    }

    fn must_be_another(&self, who: &Principal) -> Result<(), ApprovalReject> {
        if who.has(Role::Agent) {
            return Err(ApprovalReject::Agent);
        }
        let barred = self.ask.as_ref().map(Ask::barred).unwrap_or_default();
        if barred.contains(&who.person()) || barred.contains(&who.actor.id.as_str()) {
            return Err(ApprovalReject::OwnRequest { person: who.person().to_owned() });
        }
        Ok(())
    }

    fn must_match(&self, say: &Say) -> Result<(), ApprovalReject> {
        match (&say.fingerprint, self.fingerprint()) {
            (Some(got), Some(expected)) if *got != expected => {
                let (approval, got) = (self.id.clone(), got.chars().take(64).collect());
                Err(ApprovalReject::Fingerprint { approval, expected, got })
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    fn closed(&self, what: &'static str, now: Timestamp) -> ApprovalReject {
        let status = if self.is_over(now) { ApprovalStatus::Expired } else { self.status };
        ApprovalReject::Closed { approval: self.id.clone(), status: status.as_str(), what }
    }

    /// Its last deadline has passed: what the timer has not recorded yet, because the daemon was down or is busy, is no
    /// reason to take a word that came too late.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let passed = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        match self.status {
            ApprovalStatus::Open => passed(self.deadline) && !self.can_climb(),
            ApprovalStatus::Approved => passed(self.use_by),
            ApprovalStatus::Absent
            | ApprovalStatus::Consumed
            | ApprovalStatus::Denied
            | ApprovalStatus::Expired
            | ApprovalStatus::Revoked
            | ApprovalStatus::Cancelled => false,
        }
    }

    /// Every record advances the request and its run, and expects the run as it was read.
    fn append(&self, events: Vec<ApprovalEvent>, facts: &ApprovalFacts) -> Decision<()> {
        let records = events.into_iter().map(|event| (Event::Approval(event), self.streams())).collect();
        let expect = vec![(StreamId::Run(self.run.clone()), Some(facts.run_version))];
        Decision { records, expect, ..Decision::already(()) }
    }

    /// A decision that rests on who may: it must not have changed meanwhile.
    fn by_access(&self, events: Vec<ApprovalEvent>, facts: &ApprovalFacts) -> Decision<()> {
        let mut decision = self.append(events, facts);
        if !decision.records.is_empty() {
            decision.expect.push((StreamId::Access, facts.access_version));
        }
        decision
    }

    /// Reviews that are owed are known with the people.
    fn owing_review(&self, event: ApprovalEvent, facts: &ApprovalFacts) -> Decision<()> {
        let mut decision = self.by_access(vec![event], facts);
        decision.records.iter_mut().for_each(|(_, streams)| streams.push(StreamId::Access));
        decision
    }
}

impl Ask {
    /// Who can't decide on it: the person behind the asker, and the asker.
    pub(super) fn barred(&self) -> Vec<&str> {
        let actor = self.fingerprint.is_some().then_some(self.actor.as_str());
        self.requester.as_deref().into_iter().chain(actor).collect()
    }
}
