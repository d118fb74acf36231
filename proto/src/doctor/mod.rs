//! The invariants that a ledger's lines can be held to by themselves, long after the fact. Judges what was written
//! without asking the code that decided it: the undo's states and the order of inverses are worked out here anew, and
//! the aggregates' fold is only compared with the result. Must not know files, keys or private halves.
mod approval;
mod order;
mod run;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::event::{Event, Meta};
use crate::hash::Hash;
use crate::ids::{Actor, RunId, Seq, StepNo};
use crate::ledger::Line;
use approval::Approvals;
use run::RunCheck;

/// Violations that are kept; all are counted.
pub const VIOLATIONS_MAX: usize = 1_000;

macro_rules! invariants {
    ($($name:ident = $id:literal, $text:literal;)*) => {
        /// What must hold. The names are those of the architecture page.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant { $(#[doc = $text] $name,)* }

        impl Invariant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable name.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// The invariant in a sentence.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

invariants! {
    Decode = "decode", "every record is an event that this version knows";
    Fold = "fold", "every event is one that the state it meets accepts";
    I3 = "I3", "each intent ends once as succeeded, failed or uncertain, or is the last and open";
    I4 = "I4", "inverses run newest first along dependencies, each at most once net";
    I5 = "I5", "the chain verifies and positions are dense";
    I6 = "I6", "the stored streams and the fold agree with the records";
    I7 = "I7", "no timer fired early";
    I8 = "I8", "no two records hold one claim at once";
    I9 = "I9", "an approval is consumed at most once, in its run, while it is granted";
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Invariant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// What is violated.
    pub invariant: Invariant,
    /// The record that violates it.
    pub seq: Seq,
    /// What is wrong, in a sentence.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq {}: {}", self.seq, self.detail)
    }
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Records.
    pub records: u64,
    /// Runs.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Attempts to undo a step.
    pub undo_attempts: u64,
    /// Steps and undos whose outcome is not recorded yet.
    pub open_intents: u64,
    /// Violations, those that were not kept included.
    pub violations: u64,
}

/// Takes a ledger's records in order, and says at the end what is violated.
#[derive(Debug, Clone, Default)]
pub struct Doctor {
    next: Seq,
    runs: BTreeMap<RunId, RunCheck>,
    claims: BTreeMap<Hash, (RunId, StepNo)>,
    approvals: Approvals,
    violations: Violations,
}

/// Collects what is violated, by the record that is looked at.
#[derive(Debug, Clone, Default)]
struct Violations {
    seq: Seq,
    list: Vec<Violation>,
    count: u64,
}

impl Violations {
    fn push(&mut self, invariant: Invariant, detail: String) {
        self.count += 1;
        if self.list.len() < VIOLATIONS_MAX {
            self.list.push(Violation { invariant, seq: self.seq, detail });
        }
    }
}

impl Doctor {
    /// Takes the next record: its line, that line's leaf hash, and the names of the streams that it advances. An exported
    /// ledger has no streams; then they are not checked.
    pub fn feed(&mut self, line: &Line<'_>, leaf: Hash, streams: &[&str]) {
        let event = match Event::decode(line.kind, line.body, &[]) {
            Ok(event) => event,
            Err(error) => return self.undecodable(line.seq, error.to_string()),
        };
        let (Ok(ts), Ok(actor)) = (line.ts.parse(), line.actor.parse()) else {
            return self.undecodable(line.seq, format!("{:?} and {:?} are no time and actor", line.ts, line.actor));
        };
        let meta = Meta { seq: line.seq, ts, leaf, actor: Actor { id: actor, kind: line.actor_kind } };
        // The line's reader has checked the run's name, so it fails to parse only where it is empty: no run.
        self.take(&meta, line.run.parse().ok().as_ref(), &event, streams);
    }

    fn undecodable(&mut self, seq: Seq, detail: String) {
        self.violations.seq = seq;
        self.violations.push(Invariant::Decode, detail);
        self.next = seq + 1;
    }

    /// Takes a record that is an event already.
    pub fn take(&mut self, meta: &Meta, run: Option<&RunId>, event: &Event, streams: &[&str]) {
        self.violations.seq = meta.seq;
        if meta.seq != self.next {
            self.violations.push(Invariant::I5, format!("expected seq {}, found {}", self.next, meta.seq));
        }
        self.next = meta.seq + 1;
        match (run, event) {
            (Some(run), _) => self.take_of_run(run, meta, event, streams),
            (None, Event::System(_) | Event::Access(_) | Event::Config(_) | Event::Halt(_)) => {}
            (None, Event::Run(_) | Event::Step(_) | Event::Approval(_) | Event::Rollback(_) | Event::Undo(_)) => {
                self.violations.push(Invariant::Fold, format!("a {} record is of no run", event.kind()));
            }
        }
    }

    fn take_of_run(&mut self, id: &RunId, meta: &Meta, event: &Event, streams: &[&str]) {
        let Self { runs, claims, approvals, violations, .. } = self;
        let run = runs.entry(id.clone()).or_insert_with(|| RunCheck::new(id.clone()));
        run.check(meta, event, violations);
        run.check_claim(event, claims, violations);
        approvals.take(meta, id, event, violations);
        if !streams.is_empty() {
            run.check_streams(event, streams, violations);
        }
        run.evolve(meta, event);
    }

    /// What is violated so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations.list
    }

    /// After the last record.
    pub fn finish(mut self) -> (Vec<Violation>, Counts) {
        let mut counts = Counts { records: self.next, runs: self.runs.len() as u64, ..Counts::default() };
        for run in self.runs.values() {
            self.violations.seq = run.last_seq();
            run.compare_with_fold(&mut self.violations);
            run.count(&mut counts);
        }
        counts.violations = self.violations.count;
        (self.violations.list, counts)
    }
}
