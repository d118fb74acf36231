//! How the domain is tested: `given(events).when(command, at).then(events)` on one machine, and a [`World`] in which a
//! run and its undos live together under guarded appends. Must not be in a shipped binary: feature `testing`.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod approvals;
mod invariants;
mod manifests;
mod people;
mod samples;
mod world;

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::aggregate::{Aggregate, Decision};
use crate::canonical::Canonical;
use crate::event::v1::{Finding, RequestKey};
use crate::event::{Event, Meta};
use crate::hash::Hash;
use crate::ids::{Actor, ActorKind, ApprovalId, RollbackId, RunId, StepNo, StreamId, ToolName};
use crate::time::Timestamp;

pub use approvals::{APPROVAL_TOOLS, say};
pub use manifests::{MANIFESTS, manifests, upstreams};
pub use people::{OWNER, key_id, people, principal};
pub use samples::sample_events;
pub use world::World;

/// Microseconds of [`at`]`(0)`: 2026-10-01T00:00:00Z.
const START_MICROS: i64 = 1_790_812_800_000_000;

/// The instant `ms` milliseconds after the tests' beginning of time.
pub fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(START_MICROS).plus_ms(ms)
}

/// Any id from its text.
pub fn id<T: std::str::FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// The run that most tests are about.
pub fn run_id() -> RunId {
    id("support:4821")
}

/// A tool's name.
pub fn tool(name: &str) -> ToolName {
    id(name)
}

/// The agent whose runs the tests are about.
pub fn agent() -> Actor {
    Actor { id: id("bot-1"), kind: ActorKind::Agent }
}

/// Someone who settles things.
pub fn operator() -> Actor {
    Actor { id: id("olga"), kind: ActorKind::Human }
}

/// A rollback's id.
pub fn rollback_id(n: u8) -> RollbackId {
    id(&format!("rbk_{n:032x}"))
}

/// An approval request's id.
pub fn approval_id(n: u8) -> ApprovalId {
    id(&format!("apr_{n:032x}"))
}

/// A request's identity.
pub fn request(key: u8, body: u8) -> RequestKey {
    RequestKey { body: hash(body), key: hash(key) }
}

/// A hash that is easy to tell from others.
pub fn hash(n: u8) -> Hash {
    Hash([n; 32])
}

/// A JSON text as canonical JSON.
pub fn json(text: &str) -> Canonical {
    Canonical::parse(text.as_bytes()).unwrap()
}

/// The codes of findings, in their order.
pub fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// The types of events, in their order.
pub fn kinds<'e>(events: impl IntoIterator<Item = &'e Event>) -> Vec<&'static str> {
    events.into_iter().map(Event::kind).collect()
}

/// One machine in the state that events led to.
#[derive(Debug, Clone)]
pub struct Given<A> {
    /// The machine.
    pub state: A,
    seq: u64,
}

/// A machine that has seen these events, a second apart.
pub fn given<A: Aggregate>(fresh: A, events: impl IntoIterator<Item = Event>) -> Given<A> {
    let mut given = Given { state: fresh, seq: 0 };
    for event in events {
        given.seq += 1;
        let meta = Meta { seq: given.seq, ts: at(given.seq * 1000), leaf: hash(1), actor: agent() };
        given.state.evolve(&meta, &event);
    }
    given
}

impl<A: Aggregate> Given<A> {
    /// Asks it, with what it must know of the world.
    pub fn when(self, command: &A::Command, now: Timestamp, facts: &A::Facts) -> When<A> {
        let decided = self.state.decide(now, command, facts);
        When { given: self, now, decided }
    }
}

/// What came of a command.
#[derive(Debug)]
pub struct When<A: Aggregate> {
    given: Given<A>,
    now: Timestamp,
    /// The decision or the refusal.
    pub decided: Result<Decision<A::Answer>, A::Reject>,
}

impl<A: Aggregate<Reject: Debug, Answer: Debug>> When<A> {
    /// Exactly these events; gives the machine that has seen them.
    #[track_caller]
    pub fn then(self, expected: &[Event]) -> Given<A> {
        let decision = self.decided.expect("refused");
        let events: Vec<&Event> = decision.records.iter().map(|(event, _)| event).collect();
        assert_eq!(events, expected.iter().collect::<Vec<_>>());
        let mut given = self.given;
        for event in expected {
            given.seq += 1;
            let meta = Meta { seq: given.seq, ts: self.now, leaf: hash(1), actor: agent() };
            given.state.evolve(&meta, event);
        }
        given
    }

    /// It happened already.
    #[track_caller]
    pub fn then_nothing(self) -> Given<A> {
        self.then(&[])
    }

    /// Events of these types.
    #[track_caller]
    pub fn then_kinds(self, expected: &[&str]) -> Given<A> {
        let events: Vec<Event> = match &self.decided {
            Ok(decision) => decision.records.iter().map(|(event, _)| event.clone()).collect(),
            Err(refused) => panic!("refused: {refused:?}"),
        };
        assert_eq!(kinds(&events), expected);
        self.then(&events)
    }

    /// A refusal in these words.
    #[track_caller]
    pub fn then_refused(self, words: &str) {
        let refused = self.decided.expect_err("accepted");
        assert_eq!(refused.to_string(), words);
    }

    /// The streams that each record advances.
    #[track_caller]
    pub fn streams(&self) -> Vec<Vec<StreamId>> {
        let decision = self.decided.as_ref().expect("refused");
        decision.records.iter().map(|(_, streams)| streams.clone()).collect()
    }
}

/// Entries of a report list or a plan as step numbers.
pub fn numbers(steps: impl IntoIterator<Item = StepNo>) -> Vec<StepNo> {
    steps.into_iter().collect()
}

/// Which upstream serves which tool: the part of the name before the first dot.
pub type Upstreams = BTreeMap<ToolName, String>;
