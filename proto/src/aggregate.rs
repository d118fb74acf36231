//! What it means to be an event-sourced machine. Knows no particular one.
use std::collections::BTreeMap;

use crate::event::{Event, Meta};
use crate::ids::{Seq, StreamId};
use crate::time::Timestamp;
use crate::wake::Wake;

/// What a command leads to: records to append in one go, what must not have changed meanwhile, and the answer.
/// No records: it already happened (an idempotent retry), or it was only a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<A> {
    /// Events in order, each with the streams it advances.
    pub records: Vec<(Event, Vec<StreamId>)>,
    /// Streams whose version must still be this one (None: no record yet).
    pub expect: Vec<(StreamId, Option<Seq>)>,
    /// When other streams than the aggregate's own must be woken after this, where it knows.
    pub wakes: BTreeMap<StreamId, Wake>,
    /// Sent to whoever asked, once the records are durable.
    pub answer: A,
}

impl<A> Decision<A> {
    /// Nothing to append.
    pub fn already(answer: A) -> Self {
        Self { records: Vec::new(), expect: Vec::new(), wakes: BTreeMap::new(), answer }
    }
}

/// One event-sourced machine; every method is a pure function of its arguments.
pub trait Aggregate: Clone + Send + Sync + 'static {
    /// What it is asked to do.
    type Command: Send + Sync + 'static;
    /// What `decide` must know of the world outside this state.
    type Facts: Send + Sync;
    /// What the asker gets.
    type Answer: Send + Sync + 'static;
    /// Why a command is refused.
    type Reject: std::error::Error + Send + Sync + 'static;
    /// Something that must be running.
    type Effect: Ord + Clone + Send + Sync + 'static;

    /// May this happen now?
    fn decide(
        &self,
        now: Timestamp,
        command: &Self::Command,
        facts: &Self::Facts,
    ) -> Result<Decision<Self::Answer>, Self::Reject>;

    /// Folds one durable event. Total: cannot fail, reads no clock.
    fn evolve(&mut self, meta: &Meta, event: &Event);

    /// What must be running in this state; a function of state alone, so that a restart needs no memory.
    fn effects(&self) -> Vec<Self::Effect>;

    /// When to be woken and with which command; a function of state alone.
    fn deadline(&self) -> Option<(Timestamp, Self::Command)>;

    /// The command by which an incarnation that *starts* in this state gives up an intent of an earlier one, whose
    /// outcome it can't know. A `once` effect is started only by the incarnation that appended its intent.
    fn abandon_open_intent(&self) -> Option<Self::Command>;

    /// When the state after `events` must be woken: journaled with them. Never laxer than that state's effects and
    /// deadline ask for.
    fn wake_after(&self, now: Timestamp, events: &[Event]) -> Wake;
}
