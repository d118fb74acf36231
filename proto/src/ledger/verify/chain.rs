//! The part of verification that must go record by record: positions, links, times, seals. Must not know bytes.
use std::collections::BTreeMap;

use super::report::Code;
use crate::canonical::scan;
use crate::hash::Hash;
use crate::ids::{LedgerId, RunId};
use crate::ledger::line::{Line, LineError};
use crate::ledger::{Frontier, genesis, run_genesis};

/// Type of the first record, and of no other.
const OPENED: &str = "ledger.opened";

/// Type of the record that closes a run's chain.
const SEALED: &str = "run.sealed";

/// Everything that the next record must fit.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) ledger: Option<LedgerId>,
    /// Number of records that hold, which is the `seq` of the next.
    pub(super) records: u64,
    pub(super) head: Option<Hash>,
    pub(super) last_ts: String,
    pub(super) runs: BTreeMap<Box<str>, RunChain>,
}

/// The chain of one run.
#[derive(Debug)]
pub(super) struct RunChain {
    head: Hash,
    tree: Frontier,
    pub(super) sealed: bool,
}

impl Chain {
    /// Checks a record against all before it, and adds it. A refused record leaves the chain as it was.
    pub(super) fn accept(&mut self, line: &Line<'_>, leaf: Hash) -> Result<(), LineError> {
        let wrong = |code, detail| LineError { code, detail, seq: Some(line.seq) };
        let ledger = self.ledger.unwrap_or(line.ledger);
        let (seq, prev) = (self.records, self.head.unwrap_or_else(|| genesis(ledger)));
        if line.ledger != ledger {
            return Err(wrong(
                Code::OtherLedger,
                format!("the record is of ledger {}, expected {ledger}", line.ledger),
            ));
        }
        if line.seq != seq {
            return Err(wrong(Code::SeqMismatch, format!("seq is {}, expected {seq}", line.seq)));
        }
        if line.prev != prev {
            let detail = format!("prev is {}, but the leaf hash before is {prev}", line.prev);
            return Err(wrong(Code::PrevMismatch, detail));
        }
        if line.ts < self.last_ts.as_str() {
            return Err(wrong(Code::TimeBackwards, format!("ts is {}, before {}", line.ts, self.last_ts)));
        }
        if (line.kind == OPENED) != (seq == 0) || (seq == 0 && !line.run.is_empty()) {
            let detail = format!("the first record, and no other, is {OPENED}; this is number {seq}, a {}", line.kind);
            return Err(wrong(Code::OpeningMisplaced, detail));
        }
        self.accept_into_run(ledger, line, leaf)?;
        self.ledger = Some(ledger);
        self.records += 1;
        self.head = Some(leaf);
        self.last_ts.clear();
        self.last_ts.push_str(line.ts);
        Ok(())
    }

    fn accept_into_run(&mut self, ledger: LedgerId, line: &Line<'_>, leaf: Hash) -> Result<(), LineError> {
        if let Some(run) = self.runs.get_mut(line.run) {
            return run.accept(line, leaf);
        }
        // The line's reader has checked the run's name, so it fails to parse only where it is empty: no run.
        let name: Option<RunId> = line.run.parse().ok();
        let mut run = RunChain { head: run_genesis(ledger, name.as_ref()), tree: Frontier::default(), sealed: false };
        run.accept(line, leaf)?;
        self.runs.insert(line.run.into(), run);
        Ok(())
    }
}

impl RunChain {
    fn accept(&mut self, line: &Line<'_>, leaf: Hash) -> Result<(), LineError> {
        let wrong = |code, detail| Err(LineError { code, detail, seq: Some(line.seq) });
        let run_seq = self.tree.size();
        if line.run_seq != run_seq {
            return wrong(Code::RunSeqMismatch, format!("run_seq is {}, expected {run_seq}", line.run_seq));
        }
        if line.run_prev != self.head {
            let detail = format!("run_prev is {}, but the run's leaf hash before is {}", line.run_prev, self.head);
            return wrong(Code::RunPrevMismatch, detail);
        }
        let seals = line.kind == SEALED;
        if seals && !self.is_sealed_by(line) {
            let root = self.tree.root();
            let detail = format!("the seal doesn't state what it seals: {run_seq} records with the root {root}");
            return wrong(Code::SealMismatch, detail);
        }
        self.tree.append(leaf);
        self.head = leaf;
        // A sealed run that is rolled back goes on, and ends in a new seal that covers everything.
        self.sealed = seals;
        Ok(())
    }

    /// Whether a seal states the number and the root of the run's records before it. The records of no run have no seal.
    fn is_sealed_by(&self, line: &Line<'_>) -> bool {
        let members = scan::members(line.body, 2).unwrap_or_default();
        let states = |name, value: String| members.iter().any(|(key, stated)| *key == name && *stated == value);
        !line.run.is_empty()
            && states("records", self.tree.size().to_string())
            && states("run_root", format!("\"{}\"", self.tree.root()))
    }
}
