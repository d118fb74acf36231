//! The undo of one step: call the inverse at most once net, then read back. Must not know the plan around it: whether
//! the step's turn has come is a fact from the Run.
mod decide;

use crate::aggregate::{Aggregate, Decision};
use crate::canonical::Canonical;
use crate::event::v1::{AfterMismatch, AfterUnknown, Outcome, Target};
use crate::event::{Event, Meta, StepEvent, UndoEvent};
use crate::hash::Hash;
use crate::ids::{ApprovalId, RollbackId, RunId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::Expectations;
use crate::time::Timestamp;
use crate::wake::Wake;

/// State of one step's undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    run: RunId,
    step: StepNo,
    phase: Phase,
    /// Attempts over all rollbacks.
    attempts: u32,
    /// Attempts of the rollback that asked last.
    attempts_in_round: u32,
    round: Option<RollbackId>,
    /// Some attempt's outcome is unknown and no operator has settled it.
    unknown: bool,
    /// Some attempt reported success and no read-back agreed.
    reported: bool,
    first_mismatch: Option<(String, Hash)>,
    /// An operator settled the last attempt so.
    resolved: Option<Outcome>,
    /// The grant that its first attempt used up; it is good for all of them.
    approval: Option<ApprovalId>,
}

/// Where an undo stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Never attempted, or put back until its turn comes again.
    Idle,
    /// The inverse may be running.
    Calling {
        /// It is over by then at the latest.
        over_by: Timestamp,
    },
    /// To be called (again), not before then.
    Waiting {
        /// When.
        at: Timestamp,
    },
    /// To be read back, not before then.
    Reading {
        /// What the call before it said.
        after: After,
        /// Number of the read-back, from 1.
        read: u32,
        /// When.
        at: Timestamp,
    },
    /// Undone.
    Compensated(Verified),
    /// Not undone, and known to be so.
    Failed,
    /// Nobody knows: an operator settles it.
    Uncertain,
}

/// What is known when a read-back begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The inverse reported success.
    Success,
    /// Its outcome is unknown.
    Unknown,
}

/// How sure a compensation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// The manifest declares no read-back.
    NotDeclared,
    /// The read-back matched.
    Matched,
    /// A read-back is declared and none could be had.
    Unverified,
}

/// What an undo is asked to do.
#[derive(Debug, Clone)]
pub enum UndoCommand {
    /// Its turn has come, or its timer fired.
    Attempt,
    /// The call of that attempt is over.
    CallEnded {
        /// Which attempt.
        attempt: u32,
        /// How it ended.
        end: CallEnd,
    },
    /// A new incarnation found the attempt open.
    LoseAttempt,
    /// A read-back is over.
    ReadEnded {
        /// After which attempt.
        attempt: u32,
        /// Which read-back.
        read: u32,
        /// What it showed.
        end: ReadEnd,
    },
}

/// How a call of the inverse ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// With success.
    Success,
    /// Provably not executed.
    KnownFailure(String),
    /// It may have happened.
    Unknown(String),
}

/// How a read-back ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadEnd {
    /// As the manifest expects.
    Match,
    /// Not so.
    Mismatch {
        /// First path that differs.
        path: String,
        /// What the manifest says.
        expected: Canonical,
        /// What was read there.
        got: Option<Canonical>,
    },
    /// There was no answer, after all retries.
    Unavailable(String),
}

/// The call that undoes a step, ready to be made.
#[derive(Debug, Clone)]
pub struct UndoSpec {
    /// The inverse.
    pub tool: ToolName,
    /// Its arguments.
    pub args: Canonical,
    /// It may be called again with the same key.
    pub idempotent: bool,
    /// Longest wait for its answer, in milliseconds.
    pub timeout_ms: u64,
    /// Attempts a rollback may spend.
    pub attempts_max: u32,
    /// First backoff, in milliseconds.
    pub base_ms: u64,
    /// Longest backoff, in milliseconds.
    pub max_ms: u64,
    /// The declared read-back.
    pub read_back: Option<ReadBack>,
}

/// A declared read-back, ready to be made.
#[derive(Debug, Clone)]
pub struct ReadBack {
    /// A read-only tool.
    pub tool: ToolName,
    /// Its arguments.
    pub args: Canonical,
    /// What its answer must show.
    pub expect: Expectations,
    /// How many read-backs may mismatch.
    pub retries: u32,
    /// Wait before the second, doubled from then on, in milliseconds.
    pub backoff_ms: u64,
    /// Longest wait for its answer, in milliseconds.
    pub timeout_ms: u64,
    /// Some upstream serves the tool.
    pub possible: bool,
}

/// What an undo must know of the world.
#[derive(Debug, Clone)]
pub struct UndoFacts {
    /// The rollback that is going on, if this step's turn has come; else why not.
    pub turn: Result<RollbackId, NotReady>,
    /// What to call.
    pub spec: UndoSpec,
    /// Version of the run's stream when this was read: every record of a run expects it.
    pub run_version: Seq,
    /// Position that the next record will have in the run's chain.
    pub run_seq: u64,
    /// For commitments.
    pub payload_key: [u8; 32],
    /// The claim that ends with a compensation.
    pub claim: Option<StreamId>,
    /// Calls that an earlier incarnation made, or that were lost, can't be running any more.
    pub calls_are_over: bool,
    /// For jitter.
    pub random: u64,
    /// The grant that the first attempt uses up, and when its stream must be woken after that; None where it needs none,
    /// an error where it needs one and there is none that may be used now.
    pub grant: Result<Option<(ApprovalId, Wake)>, NoGrant>,
    /// Version of the `access` stream when the grant's voters were looked at.
    pub access_version: Option<Seq>,
}

/// There is no grant that may be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoGrant;

/// Why a step's turn has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// No rollback is going on.
    #[error("the run is not rolling back")]
    NotRollingBack,
    /// The rollback's selection leaves it out, or there is nothing to undo.
    #[error("the rollback has nothing to do for this step")]
    NotPlanned,
    /// Something above it isn't done.
    #[error("a later step must be undone or settled first")]
    Deferred,
    /// The daemon runs on a restored copy of its ledger.
    #[error("rollbacks are parked: the ledger is a restored copy, in which finished undos may be missing")]
    Parked,
    /// A person must approve it first.
    #[error("the undo waits for an approval")]
    AwaitingApproval,
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UndoReject {
    /// Its turn has not come.
    #[error("undo of step {step} is not ready")]
    NotReady {
        /// Which step.
        step: StepNo,
        /// Why.
        #[source]
        why: NotReady,
    },
    /// The command speaks of an attempt or read-back that is no longer the current one.
    #[error("attempt {got} of step {step} is over: the undo stands at attempt {expected}")]
    AttemptOver {
        /// Which step.
        step: StepNo,
        /// The current attempt.
        expected: u32,
        /// The command's.
        got: u32,
    },
}

/// What must be running for an undo.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UndoEffect {
    /// Call the inverse: only by the incarnation that appended `undo.attempted`.
    Call {
        /// Which attempt.
        attempt: u32,
    },
    /// Read back: repeatable.
    ReadBack {
        /// After which attempt.
        attempt: u32,
        /// Which read-back.
        read: u32,
        /// Not before then.
        at: Timestamp,
    },
}

impl Undo {
    /// The undo of a step, never attempted.
    pub fn new(run: RunId, step: StepNo) -> Self {
        Self {
            run,
            step,
            phase: Phase::Idle,
            attempts: 0,
            attempts_in_round: 0,
            round: None,
            unknown: false,
            reported: false,
            first_mismatch: None,
            resolved: None,
            approval: None,
        }
    }

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Attempts so far, over all rollbacks.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// First path that a read-back showed otherwise than declared.
    pub fn first_mismatch(&self) -> Option<&str> {
        self.first_mismatch.as_ref().map(|(path, _)| path.as_str())
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The step.
    pub fn step(&self) -> StepNo {
        self.step
    }

    /// Could a rollback with that id call the inverse now? A failed undo is tried again by a newer rollback only, and
    /// only if no attempt of it can have happened.
    pub fn may_start(&self, rollback: &RollbackId) -> bool {
        match self.phase {
            Phase::Idle => true,
            Phase::Failed => self.may_be_retried() && self.round.as_ref() != Some(rollback),
            Phase::Calling { .. }
            | Phase::Waiting { .. }
            | Phase::Reading { .. }
            | Phase::Compensated(_)
            | Phase::Uncertain => false,
        }
    }

    /// No attempt so far can have happened.
    pub fn may_be_retried(&self) -> bool {
        !self.reported && !self.unknown
    }

    /// The grant that its first attempt used up.
    pub fn approval(&self) -> Option<&ApprovalId> {
        self.approval.as_ref()
    }

    /// How an operator settled the last attempt.
    pub fn resolved(&self) -> Option<Outcome> {
        self.resolved
    }

    /// Goes on by itself: a call, a read-back or a timer is due.
    pub fn is_moving(&self) -> bool {
        match self.phase {
            Phase::Calling { .. } | Phase::Waiting { .. } | Phase::Reading { .. } => true,
            Phase::Idle | Phase::Compensated(_) | Phase::Failed | Phase::Uncertain => false,
        }
    }

    fn evolve_undo(&mut self, event: &UndoEvent) {
        match event {
            UndoEvent::Attempted(body, ()) => {
                let same_round = self.round.as_ref() == Some(&body.rollback);
                self.attempts = body.attempt;
                self.attempts_in_round = if same_round { self.attempts_in_round + 1 } else { 1 };
                self.round = Some(body.rollback.clone());
                self.resolved = None;
                self.approval = body.approval.clone().or_else(|| self.approval.take());
                self.phase = Phase::Calling { over_by: body.over_by };
            }
            UndoEvent::Succeeded(body, ()) => {
                self.reported = true;
                self.phase = match body.read_at {
                    Some(at) => Phase::Reading { after: After::Success, read: 1, at },
                    None => Phase::Compensated(Verified::NotDeclared),
                };
            }
            UndoEvent::Failed(body, _) => {
                self.phase = body.retry_at.map_or(Phase::Failed, |at| Phase::Waiting { at });
            }
            UndoEvent::Uncertain(body, _) => {
                self.unknown = true;
                self.phase = match body.next {
                    AfterUnknown::Read { at } => Phase::Reading { after: After::Unknown, read: 1, at },
                    AfterUnknown::Again { at } => Phase::Waiting { at },
                    AfterUnknown::Operator => Phase::Uncertain,
                };
            }
            UndoEvent::Mismatched(body, _) => {
                self.first_mismatch.get_or_insert_with(|| (body.path.clone(), body.mismatch));
                self.phase = match body.next {
                    AfterMismatch::Read { at } => {
                        let after = if let Phase::Reading { after, .. } = self.phase { after } else { After::Unknown };
                        Phase::Reading { after, read: body.read + 1, at }
                    }
                    AfterMismatch::Again { at } => Phase::Waiting { at },
                    AfterMismatch::Failed => Phase::Failed,
                    AfterMismatch::Operator => Phase::Uncertain,
                };
            }
            UndoEvent::Verified(body, ()) => {
                let verified = if body.matched { Verified::Matched } else { Verified::Unverified };
                self.phase = Phase::Compensated(verified);
            }
            UndoEvent::Deferred(_, ()) => self.phase = Phase::Idle,
        }
    }

    fn evolve_resolution(&mut self, status: Outcome) {
        (self.unknown, self.reported) = (false, false);
        self.resolved = Some(status);
        self.phase = match status {
            Outcome::Succeeded => Phase::Compensated(Verified::Unverified),
            Outcome::Failed => Phase::Failed,
            Outcome::Uncertain => Phase::Uncertain,
        };
    }
}

impl Aggregate for Undo {
    type Command = UndoCommand;
    type Facts = UndoFacts;
    type Answer = ();
    type Reject = UndoReject;
    type Effect = UndoEffect;

    fn decide(&self, now: Timestamp, command: &UndoCommand, facts: &UndoFacts) -> Result<Decision<()>, UndoReject> {
        match command {
            UndoCommand::Attempt => self.attempt(now, facts),
            UndoCommand::CallEnded { attempt, end } => self.call_ended(now, *attempt, end, facts),
            UndoCommand::LoseAttempt => {
                let lost = CallEnd::Unknown("the daemon stopped while the call was open".to_owned());
                self.call_ended(now, self.attempts, &lost, facts)
            }
            UndoCommand::ReadEnded { attempt, read, end } => self.read_ended(now, (*attempt, *read), end, facts),
        }
    }

    fn evolve(&mut self, _meta: &Meta, event: &Event) {
        match event {
            Event::Undo(event) => self.evolve_undo(event),
            Event::Step(StepEvent::Resolved(body, _)) if body.target == Target::Undo => {
                self.evolve_resolution(body.status);
            }
            Event::System(_)
            | Event::Access(_)
            | Event::Config(_)
            | Event::Halt(_)
            | Event::Run(_)
            | Event::Step(_)
            | Event::Approval(_)
            | Event::Rollback(_) => {}
        }
    }

    fn effects(&self) -> Vec<UndoEffect> {
        match self.phase {
            Phase::Calling { .. } => vec![UndoEffect::Call { attempt: self.attempts }],
            Phase::Reading { read, at, .. } => vec![UndoEffect::ReadBack { attempt: self.attempts, read, at }],
            Phase::Idle | Phase::Waiting { .. } | Phase::Compensated(_) | Phase::Failed | Phase::Uncertain => vec![],
        }
    }

    fn deadline(&self) -> Option<(Timestamp, UndoCommand)> {
        match self.phase {
            Phase::Waiting { at } => Some((at, UndoCommand::Attempt)),
            Phase::Idle
            | Phase::Calling { .. }
            | Phase::Reading { .. }
            | Phase::Compensated(_)
            | Phase::Failed
            | Phase::Uncertain => None,
        }
    }

    fn abandon_open_intent(&self) -> Option<UndoCommand> {
        matches!(self.phase, Phase::Calling { .. }).then_some(UndoCommand::LoseAttempt)
    }

    fn wake_after(&self, now: Timestamp, events: &[Event]) -> Wake {
        let meta = Meta { seq: 0, ts: now, leaf: Hash::default(), actor: crate::ids::Actor::system() };
        let mut next = self.clone();
        for event in events {
            next.evolve(&meta, event);
        }
        match next.phase {
            Phase::Calling { .. } => Wake::Now,
            Phase::Waiting { at } | Phase::Reading { at, .. } => Wake::At(at),
            Phase::Idle | Phase::Compensated(_) | Phase::Failed | Phase::Uncertain => Wake::None,
        }
    }
}
