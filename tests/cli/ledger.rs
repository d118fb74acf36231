//! A ledger of real events for the offline commands, built line by line. Must not verify anything.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reversi_proto::canonical::Canonical;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{Actor, LedgerId, RunId};
use reversi_proto::ledger::note::{key_from_seed, private_key_from_pem};
use reversi_proto::ledger::{Checkpoint, Draft, Signer, genesis, leaf, merkle, run_genesis};
use reversi_proto::time::Timestamp;
use serde_json::{Value, json};

const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
pub(crate) const RUN: &str = "support:4821";
const ROLLBACK: &str = "rbk_00000000000000000000000000000001";
pub(crate) const LOG: &str = "ledger.example/07070707070707070707070707070707";

/// A ledger being written, and the folder in which it is put down.
pub(crate) struct Book {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) lines: Vec<String>,
    leaves: Vec<Hash>,
    runs: BTreeMap<String, Vec<Hash>>,
}

impl Book {
    /// One run of two steps, undone in order and sealed.
    pub(crate) fn undone() -> Self {
        let mut book = Self::new();
        book.steps();
        for step in [2, 1] {
            book.attempt(step);
            book.add(RUN, "undo.succeeded", &json!({"attempt": 1, "step": step}));
        }
        book.add(RUN, "rollback.finished", &json!({"complete": true, "rollback": ROLLBACK, "verified": true}));
        let leaves = &book.runs[RUN];
        let seal = json!({"records": leaves.len(), "run_root": merkle::root(leaves.iter().copied())});
        book.add(RUN, "run.sealed", &seal);
        book
    }

    /// The same, undone in the wrong order.
    pub(crate) fn undone_in_the_wrong_order() -> Self {
        let mut book = Self::new();
        book.steps();
        book.attempt(1);
        book
    }

    fn new() -> Self {
        let (lines, leaves, runs) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut book = Self { dir: tempfile::tempdir().unwrap(), lines, leaves, runs };
        let key = key_from_seed(LOG, &[9; 32]).unwrap().verifier.to_string();
        book.add("", "ledger.opened", &json!({"software": "reversi 0.1.0", "verifier_key": key}));
        book.add("", "daemon.started", &json!({"clean": true, "software": "reversi 0.1.0"}));
        book
    }

    fn steps(&mut self) {
        self.add(RUN, "run.started", &json!({"mode": "enforce", "permissions": ["files:write"]}));
        for step in [1, 2] {
            let body = json!({
                "args": ZEROS, "config": 0, "effect": "reversible", "reason": "asked for", "step": step,
                "tool": "files.write", "undo": {"approval": false, "kind": "inverse", "tool": "files.restore"},
            });
            self.add(RUN, "step.begun", &body);
            self.add(RUN, "step.succeeded", &json!({"step": step}));
        }
        let body = json!({"executor": "daemon", "rollback": ROLLBACK, "upstreams": {"files.restore": "fs"}});
        self.add(RUN, "rollback.started", &body);
    }

    fn attempt(&mut self, step: u32) {
        let body = json!({
            "args": ZEROS, "attempt": 1, "executor": "daemon", "over_by": "2026-10-01T01:00:00.000000Z",
            "rollback": ROLLBACK, "step": step, "tool": "files.restore",
        });
        self.add(RUN, "undo.attempted", &body);
    }

    pub(crate) fn add(&mut self, run: &str, kind: &str, body: &Value) {
        let ledger = LedgerId([7; 16]);
        let seq = self.lines.len() as u64;
        let id: Option<RunId> = run.parse().ok();
        let of_run = self.runs.entry(run.to_owned()).or_default();
        let run_prev = of_run.last().copied().unwrap_or_else(|| run_genesis(ledger, id.as_ref()));
        let prev = self.leaves.last().copied().unwrap_or_else(|| genesis(ledger));
        let place = (id.as_ref(), of_run.len() as u64);
        let body = Canonical::of(body).unwrap();
        let draft = Draft::new(ledger, &Actor::system(), kind, &body, place, [0; 16]).unwrap();
        let ts: Timestamp = "2026-10-01T00:00:00.000000Z".parse().unwrap();
        let mut line = Vec::new();
        draft.stamp(seq, prev, run_prev, ts.plus_ms(seq), &mut line);
        of_run.push(leaf(&line));
        self.leaves.push(leaf(&line));
        self.lines.push(String::from_utf8(line).unwrap());
    }

    /// Puts lines down.
    pub(crate) fn file(&self, name: &str, lines: &[String]) -> PathBuf {
        self.text(name, &lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>())
    }

    pub(crate) fn text(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The checkpoint over the first `size` records, signed by the ledger's key.
    pub(crate) fn note(&self, size: usize) -> String {
        let pem = key_from_seed(LOG, &[9; 32]).unwrap().private;
        let signer = Signer::new(LOG, private_key_from_pem(&pem).unwrap()).unwrap();
        let root = merkle::root(self.leaves[..size].iter().copied());
        let (origin, ledger) = ("ledger.example".to_owned(), LedgerId([7; 16]));
        signer.sign(&Checkpoint { origin, ledger, size: size as u64, root }).unwrap().to_string()
    }
}

/// The ledger's key, as somebody pins it.
pub(crate) fn verifier_key() -> String {
    key_from_seed(LOG, &[9; 32]).unwrap().verifier.to_string()
}

/// A path as an argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}
