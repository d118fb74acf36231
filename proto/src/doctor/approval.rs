//! Approvals, held against their own records: who was asked, who said yes, what it was used for. Worked out anew, without
//! the aggregate. Must not know who may vote: persons' roles at that time are not in these records.
use std::collections::{BTreeMap, BTreeSet};

use super::{Invariant, Violations};
use crate::approval::subject;
use crate::event::{ApprovalEvent, Event, Meta, StepEvent, UndoEvent};
use crate::ids::{ApprovalId, RunId, Seq};
use crate::time::Timestamp;

/// All approvals of a ledger.
#[derive(Debug, Clone, Default)]
pub(super) struct Approvals {
    known: BTreeMap<ApprovalId, Known>,
}

#[derive(Debug, Clone)]
struct Known {
    run: RunId,
    quorum: usize,
    yes: BTreeSet<String>,
    state: State,
    answer_by: Option<Timestamp>,
    use_by: Option<Timestamp>,
    review_by: Option<Timestamp>,
    /// Granted in an emergency, whether it was reviewed or not: such a grant doesn't rest on votes.
    glass: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Granted,
    Used(Seq),
    Over,
}

impl Approvals {
    /// Follows a record of a run, and says what is wrong with it.
    pub(super) fn take(&mut self, meta: &Meta, run: &RunId, event: &Event, out: &mut Violations) {
        match event {
            Event::Approval(event) => self.take_own(meta, run, event, out),
            Event::Step(StepEvent::Begun(body, _)) => {
                self.use_up(meta, run, body.approval.as_ref(), &format!("step {}", body.step), out);
            }
            Event::Undo(UndoEvent::Attempted(body, ())) => {
                self.use_up(meta, run, body.approval.as_ref(), &format!("the undo of step {}", body.step), out);
            }
            Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Halt(_)
            | Event::Run(_)
            | Event::Step(_)
            | Event::Rollback(_)
            | Event::Undo(_) => {}
        }
    }

    fn use_up(&mut self, meta: &Meta, run: &RunId, id: Option<&ApprovalId>, by: &str, out: &mut Violations) {
        let Some(id) = id else { return };
        let Some(known) = self.known.get_mut(id) else {
            return out.push(Invariant::I9, format!("{by} consumes approval {id}, which nobody asked for"));
        };
        if known.run != *run {
            out.push(Invariant::I9, format!("{by} consumes approval {id} of run {}", known.run));
        }
        match known.state {
            State::Granted if known.use_by.is_some_and(|until| until <= meta.ts) => {
                out.push(Invariant::I9, format!("{by} consumes approval {id} after its time to be used was over"));
            }
            State::Granted => {}
            State::Used(before) => {
                out.push(Invariant::I9, format!("{by} consumes approval {id}, which seq {before} had consumed"));
            }
            State::Open | State::Over => {
                out.push(Invariant::I9, format!("{by} consumes approval {id}, which is not granted"));
            }
        }
        known.state = State::Used(meta.seq);
    }

    fn take_own(&mut self, meta: &Meta, run: &RunId, event: &ApprovalEvent, out: &mut Violations) {
        let id = subject(event);
        match event {
            ApprovalEvent::Requested(body, _) => {
                let known = Known::new(run, body.quorum as usize, State::Open, body.deadline, None);
                self.insert(id, known, out);
            }
            ApprovalEvent::PreApproved(body, ()) => {
                let known = Known::new(run, 1, State::Granted, None, Some(body.use_by));
                self.insert(id, known, out);
            }
            ApprovalEvent::Voted(..)
            | ApprovalEvent::Granted(..)
            | ApprovalEvent::Denied(..)
            | ApprovalEvent::Withdrawn(..)
            | ApprovalEvent::Escalated(..)
            | ApprovalEvent::Expired(..)
            | ApprovalEvent::Revoked(..)
            | ApprovalEvent::Cancelled(..)
            | ApprovalEvent::GlassBroken(..)
            | ApprovalEvent::Reviewed(..)
            | ApprovalEvent::ReviewOverdue(..) => match self.known.get_mut(id) {
                None => out.push(Invariant::Fold, format!("approval {id} was not asked for before")),
                Some(known) if known.run != *run => {
                    out.push(Invariant::Fold, format!("approval {id} is of run {}", known.run));
                }
                Some(known) => known.take(meta, event, out),
            },
        }
    }

    fn insert(&mut self, id: &ApprovalId, known: Known, out: &mut Violations) {
        if self.known.insert(id.clone(), known).is_some() {
            out.push(Invariant::Fold, format!("approval {id} is asked for twice"));
        }
    }
}

impl Known {
    fn new(run: &RunId, quorum: usize, state: State, answer_by: Option<Timestamp>, use_by: Option<Timestamp>) -> Self {
        Self { run: run.clone(), quorum, yes: BTreeSet::new(), state, answer_by, use_by, review_by: None, glass: false }
    }

    fn must_be(&self, allowed: &[State], id: &ApprovalId, what: &str, out: &mut Violations) {
        if !allowed.contains(&self.state) {
            out.push(Invariant::Fold, format!("approval {id} is {what} while it is {:?}", self.state));
        }
    }

    fn must_be_due(meta: &Meta, at: Option<Timestamp>, id: &ApprovalId, what: &str, out: &mut Violations) {
        if at.is_none_or(|at| meta.ts < at) {
            out.push(Invariant::I7, format!("approval {id} is {what} before its time"));
        }
    }

    fn take(&mut self, meta: &Meta, event: &ApprovalEvent, out: &mut Violations) {
        let alive = [State::Open, State::Granted];
        match event {
            ApprovalEvent::Voted(body, ()) => {
                self.must_be(&[State::Open], &body.approval, "voted for", out);
                if !self.yes.insert(body.person.clone()) {
                    out.push(Invariant::Fold, format!("{} votes twice for approval {}", body.person, body.approval));
                }
            }
            ApprovalEvent::Granted(body, ()) => {
                self.must_be(&[State::Open], &body.approval, "granted", out);
                if self.yes.len() < self.quorum {
                    let (id, votes, quorum) = (&body.approval, self.yes.len(), self.quorum);
                    out.push(Invariant::Fold, format!("approval {id} is granted with {votes} of {quorum} votes"));
                }
                (self.state, self.use_by) = (State::Granted, Some(body.use_by));
            }
            ApprovalEvent::Withdrawn(body, ()) => {
                self.must_be(&alive, &body.approval, "withdrawn from", out);
                self.yes.remove(&body.person);
                if !self.glass {
                    self.state = State::Open;
                }
            }
            ApprovalEvent::Escalated(body, ()) => {
                self.must_be(&[State::Open], &body.approval, "escalated", out);
                Self::must_be_due(meta, self.answer_by, &body.approval, "escalated", out);
                self.answer_by = Some(body.deadline);
            }
            ApprovalEvent::Expired(body, ()) => {
                self.must_be(&alive, &body.approval, "expired", out);
                let by = if self.state == State::Granted { self.use_by } else { self.answer_by };
                Self::must_be_due(meta, by, &body.approval, "expired", out);
                self.state = State::Over;
            }
            ApprovalEvent::Denied(body, ()) => self.end(&body.approval, "denied", out),
            ApprovalEvent::Revoked(body, ()) => self.end(&body.approval, "revoked", out),
            ApprovalEvent::Cancelled(body, ()) => self.end(&body.approval, "cancelled", out),
            ApprovalEvent::GlassBroken(body, ()) => {
                self.must_be(&[State::Open], &body.approval, "granted in an emergency", out);
                (self.state, self.use_by) = (State::Granted, Some(body.use_by));
                (self.review_by, self.glass) = (Some(body.review_by), true);
            }
            ApprovalEvent::Reviewed(body, ()) => {
                if self.review_by.take().is_none() {
                    out.push(Invariant::Fold, format!("no review of approval {} is owed", body.approval));
                }
            }
            ApprovalEvent::ReviewOverdue(body, ()) => {
                Self::must_be_due(meta, self.review_by, &body.approval, "overdue for review", out);
            }
            // These two make one.
            ApprovalEvent::Requested(..) | ApprovalEvent::PreApproved(..) => {}
        }
    }

    fn end(&mut self, id: &ApprovalId, what: &str, out: &mut Violations) {
        self.must_be(&[State::Open, State::Granted], id, what, out);
        self.state = State::Over;
    }
}
