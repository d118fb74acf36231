//! The decisions of an undo: domain rules "Undo 2 to 5". Must not fold.
use super::{After, CallEnd, NotReady, Phase, ReadEnd, Undo, UndoFacts, UndoReject};
use crate::aggregate::Decision;
use crate::commit;
use crate::event::v1::{
    AfterMismatch, AfterUnknown, ErrorText, Executor, MismatchValues, UndoAttempted, UndoDeferred, UndoFailed,
    UndoMismatched, UndoSucceeded, UndoUncertain, UndoVerified,
};
use crate::event::{Event, UndoEvent};
use crate::ids::StreamId;
use crate::retry::{doubled_ms, full_jitter_ms};
use crate::time::Timestamp;

impl Undo {
    /// The intent, durable before the call. Nothing to do where one is open, a timer runs or the end is reached.
    pub(super) fn attempt(&self, now: Timestamp, facts: &UndoFacts) -> Result<Decision<()>, UndoReject> {
        let rollback = match &facts.turn {
            Ok(rollback) => rollback.clone(),
            Err(_) if matches!(self.phase, Phase::Waiting { at } if now >= at) => return Ok(self.deferred(facts)),
            Err(why) => return Err(UndoReject::NotReady { step: self.step, why: *why }),
        };
        let due = match self.phase {
            Phase::Waiting { at } => now >= at,
            Phase::Idle
            | Phase::Calling { .. }
            | Phase::Reading { .. }
            | Phase::Compensated(_)
            | Phase::Failed
            | Phase::Uncertain => self.may_start(&rollback),
        };
        if !due {
            return Ok(Decision::already(()));
        }
        // What was granted may not be enough any more: its voters may have lost what they held.
        let Ok(grant) = &facts.grant else {
            return Err(UndoReject::NotReady { step: self.step, why: NotReady::AwaitingApproval });
        };
        let k = commit::opening_key(&facts.payload_key, &self.run, facts.run_seq, "args");
        let event = UndoEvent::Attempted(
            UndoAttempted {
                approval: grant.as_ref().map(|(id, _)| id.clone()),
                args: commit::commit(&k, &facts.spec.args),
                attempt: self.attempts + 1,
                executor: Executor::Daemon,
                over_by: now.plus_ms(facts.spec.timeout_ms),
                rollback,
                step: self.step,
                tool: facts.spec.tool.clone(),
            },
            (),
        );
        let mut decision = self.append(vec![event], facts);
        if let (Some((id, wake)), Some((_, streams))) = (grant, decision.records.first_mut()) {
            streams.push(StreamId::Approval(id.clone()));
            decision.wakes.insert(StreamId::Approval(id.clone()), *wake);
            // Its voters must not have lost meanwhile what they held.
            decision.expect.push((StreamId::Access, facts.access_version));
        }
        Ok(decision)
    }

    /// What is above it became unsettled while it waited. Without a record its timer would stay due for ever.
    fn deferred(&self, facts: &UndoFacts) -> Decision<()> {
        let event = UndoEvent::Deferred(UndoDeferred { attempt: self.attempts, step: self.step }, ());
        self.append(vec![event], facts)
    }

    pub(super) fn call_ended(
        &self,
        now: Timestamp,
        attempt: u32,
        end: &CallEnd,
        facts: &UndoFacts,
    ) -> Result<Decision<()>, UndoReject> {
        let Phase::Calling { over_by } = self.phase else { return Err(self.attempt_over(attempt)) };
        if attempt != self.attempts {
            return Err(self.attempt_over(attempt));
        }
        let events = match end {
            CallEnd::Success => self.succeeded(now, facts),
            CallEnd::KnownFailure(error) => vec![self.known_failure(now, error, facts)],
            CallEnd::Unknown(error) => {
                let over_at = if facts.calls_are_over { now } else { over_by.max(now) };
                vec![self.unknown_outcome(over_at, error, true, facts)]
            }
        };
        Ok(self.append(events, facts))
    }

    fn succeeded(&self, now: Timestamp, facts: &UndoFacts) -> Vec<UndoEvent> {
        let declared = facts.spec.read_back.as_ref();
        let success = UndoSucceeded { attempt: self.attempts, read_at: declared.map(|_| now), step: self.step };
        let mut events = vec![UndoEvent::Succeeded(success, ())];
        if declared.is_some_and(|read_back| !read_back.possible) {
            events.push(self.verified(false));
        }
        events
    }

    fn verified(&self, matched: bool) -> UndoEvent {
        UndoEvent::Verified(UndoVerified { attempt: self.attempts, matched, step: self.step }, ())
    }

    fn known_failure(&self, now: Timestamp, error: &str, facts: &UndoFacts) -> UndoEvent {
        if self.unknown && !self.attempts_left(facts) {
            // An earlier attempt may have happened, so the step can't end as known to have failed.
            return self.uncertain(AfterUnknown::Operator, error);
        }
        let retry_at = self.attempts_left(facts).then(|| now.plus_ms(self.backoff_ms(facts)));
        let private = ErrorText { error: Some(error.to_owned()) };
        UndoEvent::Failed(UndoFailed { attempt: self.attempts, retry_at, step: self.step }, private)
    }

    /// Never a blind second inverse: read back, or call an idempotent tool again with the same key, or ask a person.
    fn unknown_outcome(&self, over_at: Timestamp, error: &str, may_read: bool, facts: &UndoFacts) -> UndoEvent {
        let readable = may_read && facts.spec.read_back.as_ref().is_some_and(|read_back| read_back.possible);
        let next = if readable {
            AfterUnknown::Read { at: over_at }
        } else if facts.spec.idempotent && self.attempts_left(facts) {
            AfterUnknown::Again { at: over_at.plus_ms(self.backoff_ms(facts)) }
        } else {
            AfterUnknown::Operator
        };
        self.uncertain(next, error)
    }

    fn uncertain(&self, next: AfterUnknown, error: &str) -> UndoEvent {
        let private = ErrorText { error: Some(error.to_owned()) };
        UndoEvent::Uncertain(UndoUncertain { attempt: self.attempts, next, step: self.step }, private)
    }

    pub(super) fn read_ended(
        &self,
        now: Timestamp,
        (attempt, read): (u32, u32),
        end: &ReadEnd,
        facts: &UndoFacts,
    ) -> Result<Decision<()>, UndoReject> {
        let Phase::Reading { after, read: expected, .. } = self.phase else { return Err(self.attempt_over(attempt)) };
        if (attempt, read) != (self.attempts, expected) {
            return Err(self.attempt_over(attempt));
        }
        let event = match (end, after) {
            (ReadEnd::Match, After::Success | After::Unknown) => self.verified(true),
            (ReadEnd::Unavailable(_), After::Success) => self.verified(false),
            (ReadEnd::Unavailable(error), After::Unknown) => self.unknown_outcome(now, error, false, facts),
            (ReadEnd::Mismatch { path, expected, got }, after) => {
                let values = MismatchValues { expected: Some(expected.clone()), got: got.clone() };
                self.mismatched(now, read, (path, values), after, facts)
            }
        };
        Ok(self.append(vec![event], facts))
    }

    fn mismatched(
        &self,
        now: Timestamp,
        read: u32,
        (path, values): (&str, MismatchValues),
        after: After,
        facts: &UndoFacts,
    ) -> UndoEvent {
        let (retries, backoff_ms) = facts.spec.read_back.as_ref().map_or((1, 0), |r| (r.retries, r.backoff_ms));
        let next = if read < retries {
            AfterMismatch::Read { at: now.plus_ms(doubled_ms(backoff_ms, read)) }
        } else {
            match after {
                // A mismatch after an unknown outcome proves nothing by itself.
                After::Unknown if facts.spec.idempotent && self.attempts_left(facts) => {
                    AfterMismatch::Again { at: now.plus_ms(self.backoff_ms(facts)) }
                }
                After::Success if !self.unknown => AfterMismatch::Failed,
                After::Success | After::Unknown => AfterMismatch::Operator,
            }
        };
        let k = commit::opening_key(&facts.payload_key, &self.run, facts.run_seq, "mismatch");
        let mismatch = match &values.got {
            Some(got) => commit::commit(&k, got),
            None => commit::commit_bytes(&k, b""),
        };
        let body =
            UndoMismatched { attempt: self.attempts, mismatch, next, path: path.to_owned(), read, step: self.step };
        UndoEvent::Mismatched(body, values)
    }

    fn attempts_left(&self, facts: &UndoFacts) -> bool {
        self.attempts_in_round < facts.spec.attempts_max
    }

    fn backoff_ms(&self, facts: &UndoFacts) -> u64 {
        full_jitter_ms(facts.spec.base_ms, facts.spec.max_ms, self.attempts_in_round, facts.random)
    }

    fn attempt_over(&self, got: u32) -> UndoReject {
        UndoReject::AttemptOver { step: self.step, expected: self.attempts, got }
    }

    /// Every undo record advances the undo and its run, and expects the run as it was read; the one that makes the
    /// step compensated frees its claim.
    fn append(&self, events: Vec<UndoEvent>, facts: &UndoFacts) -> Decision<()> {
        let run = StreamId::Run(self.run.clone());
        let undo = StreamId::Undo(self.run.clone(), self.step);
        let records = events
            .into_iter()
            .map(|event| {
                let compensated = match &event {
                    UndoEvent::Succeeded(body, ()) => body.read_at.is_none(),
                    UndoEvent::Verified(_, ()) => true,
                    UndoEvent::Attempted(..)
                    | UndoEvent::Failed(..)
                    | UndoEvent::Uncertain(..)
                    | UndoEvent::Mismatched(..)
                    | UndoEvent::Deferred(..) => false,
                };
                let mut streams = vec![undo.clone(), run.clone()];
                streams.extend(facts.claim.clone().filter(|_| compensated));
                (Event::Undo(event), streams)
            })
            .collect();
        Decision { records, expect: vec![(run, Some(facts.run_version))], ..Decision::already(()) }
    }
}
