//! The states of one step's undo, worked out from the records alone. Written apart from `crate::undo` on purpose: a
//! mistake there must not hide itself here. Must not know other steps.
use super::{Invariant, Violations};
use crate::event::UndoEvent;
use crate::event::v1::{AfterMismatch, AfterUnknown, Outcome, UndoAttempted};
use crate::ids::{RollbackId, StepNo};
use crate::time::Timestamp;

/// Where an undo stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was tried, or it waits for its turn again.
    #[default]
    Idle,
    /// An attempt is open.
    Open,
    /// Another attempt follows, not before then.
    Pause(Timestamp),
    /// A read-back follows, not before then.
    ReadBack { after_success: bool, at: Timestamp },
    /// Undone.
    Undone,
    /// Given up, and known not to have happened.
    GivenUp,
    /// A person must look.
    Unknown,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Open => "open",
            Self::Pause(_) => "waiting for its next attempt",
            Self::ReadBack { .. } => "being read back",
            Self::Undone => "done",
            Self::GivenUp => "given up",
            Self::Unknown => "of unknown outcome",
        }
    }
}

/// One step's undo.
#[derive(Debug, Clone, Default)]
pub(super) struct UndoCheck {
    pub(super) state: State,
    pub(super) attempts: u32,
    rollback: Option<RollbackId>,
    /// Successes, and attempts of unknown outcome, that no person has settled.
    successes: u32,
    unknowns: u32,
}

impl UndoCheck {
    /// Holds an event against the state, then follows it.
    pub(super) fn take(&mut self, step: StepNo, ts: Timestamp, event: &UndoEvent, out: &mut Violations) {
        match event {
            UndoEvent::Attempted(body, ()) => self.attempted(body, ts, out),
            UndoEvent::Succeeded(body, ()) => {
                self.close(step, body.attempt, "succeeded", out);
                self.successes += 1;
                if self.successes > 1 {
                    out.push(Invariant::I4, format!("the inverse of step {step} succeeded a second time"));
                }
                self.state = body.read_at.map_or(State::Undone, |at| State::ReadBack { after_success: true, at });
            }
            UndoEvent::Failed(body, _) => {
                self.close(step, body.attempt, "failed", out);
                self.state = body.retry_at.map_or(State::GivenUp, State::Pause);
                self.never_failed_if_unknown(step, out);
            }
            UndoEvent::Uncertain(body, _) => {
                let fruitless = matches!(self.state, State::ReadBack { after_success: false, .. });
                if !(fruitless && body.attempt == self.attempts) {
                    self.close(step, body.attempt, "uncertain", out);
                    self.unknowns += 1;
                }
                self.state = match body.next {
                    AfterUnknown::Read { at } => State::ReadBack { after_success: false, at },
                    AfterUnknown::Again { at } => State::Pause(at),
                    AfterUnknown::Operator => State::Unknown,
                };
            }
            UndoEvent::Mismatched(body, _) => {
                let after_success = self.read(step, body.attempt, ts, out);
                self.state = match body.next {
                    AfterMismatch::Read { at } => State::ReadBack { after_success, at },
                    AfterMismatch::Again { at } => State::Pause(at),
                    AfterMismatch::Failed => State::GivenUp,
                    AfterMismatch::Operator => State::Unknown,
                };
                self.never_failed_if_unknown(step, out);
            }
            UndoEvent::Verified(body, ()) => {
                self.read(step, body.attempt, ts, out);
                self.state = State::Undone;
            }
            UndoEvent::Deferred(body, ()) => {
                match self.state {
                    State::Pause(at) if ts >= at && body.attempt == self.attempts => {}
                    State::Pause(at) if ts < at => {
                        out.push(Invariant::I7, format!("step {step}: put back at {ts}, though it is due at {at}"));
                    }
                    State::Pause(_)
                    | State::Idle
                    | State::Open
                    | State::ReadBack { .. }
                    | State::Undone
                    | State::GivenUp
                    | State::Unknown => {
                        let (at, word) = (self.attempts, self.state.word());
                        let detail = format!("step {step}: put back, but the undo is {word} at attempt {at}");
                        out.push(Invariant::I3, detail);
                    }
                }
                self.state = State::Idle;
            }
        }
    }

    fn attempted(&mut self, body: &UndoAttempted, ts: Timestamp, out: &mut Violations) {
        let step = body.step;
        if body.attempt != self.attempts + 1 {
            let expected = self.attempts + 1;
            out.push(
                Invariant::I3,
                format!("step {step}: attempt {} begins, expected attempt {expected}", body.attempt),
            );
        }
        match self.state {
            State::Pause(at) if ts < at => {
                out.push(Invariant::I7, format!("step {step}: the next attempt is due at {at}, but began at {ts}"));
            }
            State::GivenUp if self.successes + self.unknowns > 0 => {
                out.push(
                    Invariant::I4,
                    format!("step {step}: a second inverse, though an earlier one may have happened"),
                );
            }
            State::GivenUp if self.rollback.as_ref() == Some(&body.rollback) => {
                out.push(Invariant::I4, format!("step {step}: tried again in the rollback that had given it up"));
            }
            State::Idle | State::Pause(_) | State::GivenUp => {}
            State::Open => {
                let open = self.attempts;
                out.push(Invariant::I3, format!("step {step}: another attempt begins while attempt {open} is open"));
            }
            State::ReadBack { .. } | State::Undone | State::Unknown => {
                let word = self.state.word();
                out.push(Invariant::I4, format!("step {step}: a second inverse while the undo is {word}"));
            }
        }
        self.attempts = body.attempt;
        self.rollback = Some(body.rollback.clone());
        self.state = State::Open;
    }

    /// An outcome of an attempt: there must be that one open attempt.
    fn close(&self, step: StepNo, attempt: u32, how: &str, out: &mut Violations) {
        if self.state != State::Open || attempt != self.attempts {
            let (at, word) = (self.attempts, self.state.word());
            let detail = format!("step {step}: attempt {attempt} {how}, but the undo is {word} at attempt {at}");
            out.push(Invariant::I3, detail);
        }
    }

    /// The end of a read-back; whether it followed a success.
    fn read(&self, step: StepNo, attempt: u32, ts: Timestamp, out: &mut Violations) -> bool {
        let State::ReadBack { after_success, at } = self.state else {
            let word = self.state.word();
            out.push(Invariant::I3, format!("step {step}: a read-back ends, but the undo is {word}"));
            return false;
        };
        if attempt != self.attempts {
            let at = self.attempts;
            out.push(Invariant::I3, format!("step {step}: a read-back of attempt {attempt} ends at attempt {at}"));
        }
        if ts < at {
            out.push(Invariant::I7, format!("step {step}: the read-back is due at {at}, but ended at {ts}"));
        }
        after_success
    }

    fn never_failed_if_unknown(&self, step: StepNo, out: &mut Violations) {
        if self.state == State::GivenUp && self.unknowns > 0 {
            let detail = format!("step {step}: ends as failed, though an attempt's outcome is unknown");
            out.push(Invariant::I3, detail);
        }
    }

    /// A person settled it.
    pub(super) fn resolve(&mut self, step: StepNo, status: Outcome, out: &mut Violations) {
        if self.state != State::Unknown {
            let word = self.state.word();
            out.push(Invariant::I3, format!("step {step}: its undo is resolved, though it is {word}"));
        }
        (self.successes, self.unknowns) = (0, 0);
        self.state = match status {
            Outcome::Succeeded => State::Undone,
            Outcome::Failed => State::GivenUp,
            Outcome::Uncertain => State::Unknown,
        };
    }
}
