//! Builds ledgers, and forges them: what the tests and the rate example share. Must not verify anything.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]
use std::collections::BTreeMap;

use ed25519_dalek::SigningKey;
use reversi_proto::canonical::Canonical;
use reversi_proto::commit;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{Actor, ActorKind, LedgerId, RunId};
use reversi_proto::ledger::{Checkpoint, Draft, Signer, genesis, leaf, merkle, run_genesis};
use reversi_proto::time::Timestamp;
use serde_json::{Value, json};

/// 2026-10-01T00:00:00Z.
const START_MICROS: i64 = 1_790_812_800_000_000;

/// A ledger being written.
pub struct Book {
    pub ledger: LedgerId,
    pub lines: Vec<Vec<u8>>,
    head: Hash,
    leaves: Vec<Hash>,
    runs: BTreeMap<String, Vec<Hash>>,
}

impl Book {
    pub fn new(id: u8) -> Self {
        let ledger = LedgerId([id; 16]);
        let (lines, leaves, runs) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut book = Self { ledger, lines, head: genesis(ledger), leaves, runs };
        book.add("", "ledger.opened", &json!({"key": signer(&book.log()).verifier().to_string(), "version": "0.1.0"}));
        book
    }

    /// Two runs interwoven: fractions, accents, commitments; both sealed, one of them rolled back and sealed again.
    pub fn small(id: u8) -> Self {
        let mut book = Self::new(id);
        book.add("", "daemon.started", &json!({"boot": 1}));
        book.add("run_a", "run.started", &json!({"reason": "refund for café é", "scope": ["orders:write"]}));
        book.add("run_b", "run.started", &json!({"reason": "second", "scope": []}));
        book.step("run_a", 1, &json!({"order": "o-1", "amount": 12.5}));
        book.step("run_b", 1, &json!({"approved": true}));
        book.seal("run_a");
        book.add("run_b", "rollback.started", &json!({"plan": {"steps": [2, 1], "cost": {"z": 1, "a": 12.5}}}));
        book.seal("run_b");
        book.add("run_a", "undo.succeeded", &json!({"step": 1}));
        book.seal("run_a");
        book.add("", "daemon.stopped", &json!({"clean": true}));
        book
    }

    pub fn add(&mut self, run: &str, kind: &str, body: &Value) {
        let seq = self.lines.len() as u64;
        let id: Option<RunId> = run.parse().ok();
        let of_run = self.runs.entry(run.to_owned()).or_default();
        let run_prev = of_run.last().copied().unwrap_or_else(|| run_genesis(self.ledger, id.as_ref()));
        let salt = leaf(&seq.to_be_bytes()).0[..16].try_into().unwrap();
        let agent = Actor { id: "bot-1".parse().unwrap(), kind: ActorKind::Agent };
        let actor = if run.is_empty() { Actor::system() } else { agent };
        let place = (id.as_ref(), of_run.len() as u64);
        let draft = Draft::new(self.ledger, &actor, kind, &Canonical::of(body).unwrap(), place, salt).unwrap();
        let mut line = Vec::new();
        let ts = Timestamp::from_micros(START_MICROS).plus_ms(seq);
        draft.stamp(seq, self.head, run_prev, ts, &mut line);
        self.head = leaf(&line);
        self.leaves.push(self.head);
        of_run.push(self.head);
        self.lines.push(line);
    }

    pub fn step(&mut self, run: &str, step: u32, args: &Value) {
        let key = commit::payload_key(&[7; 32]);
        let run_seq = self.runs[run].len() as u64;
        let k = commit::opening_key(&key, &run.parse().unwrap(), run_seq, "args");
        let args = commit::commit(&k, &Canonical::of(args).unwrap());
        self.add(
            run,
            "step.begun",
            &json!({"step": step, "tool": "stripe.refund", "args": args, "reason": "asked for"}),
        );
        self.add(run, "step.succeeded", &json!({"step": step, "took_ms": 12}));
    }

    pub fn seal(&mut self, run: &str) {
        let leaves = &self.runs[run];
        let body = json!({"records": leaves.len(), "run_root": merkle::root(leaves.iter().copied())});
        self.add(run, "run.sealed", &body);
    }

    pub fn log(&self) -> String {
        format!("reversi.example/main/{}", self.ledger)
    }

    pub fn text(&self) -> Vec<u8> {
        join(&self.lines)
    }

    /// The checkpoint over the first `size` records.
    pub fn checkpoint(&self, size: usize) -> Checkpoint {
        let root = merkle::root(self.leaves[..size].iter().copied());
        Checkpoint { origin: "reversi.example/main".to_owned(), ledger: self.ledger, size: size as u64, root }
    }

    /// That checkpoint as a note, signed with the ledger's key.
    pub fn note(&self, size: usize) -> String {
        signer(&self.log()).sign(&self.checkpoint(size)).unwrap().to_string()
    }
}

pub fn signer(name: &str) -> Signer {
    Signer::new(name, SigningKey::from_bytes(&[9; 32])).unwrap()
}

pub fn join(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
}

pub fn known_type(kind: &str) -> bool {
    let families = ["ledger.", "daemon.", "run.", "step.", "rollback.", "undo."];
    families.iter().any(|family| kind.starts_with(family))
}

/// Writes records anew so that positions, links and seals fit: what a forger with the software can do.
pub fn rehash(records: Vec<Value>) -> Vec<Vec<u8>> {
    let ledger: LedgerId = records[0]["ledger"].as_str().unwrap().parse().unwrap();
    let mut head = genesis(ledger);
    let mut runs: BTreeMap<String, Vec<Hash>> = BTreeMap::new();
    let mut lines = Vec::new();
    for (seq, mut record) in records.into_iter().enumerate() {
        let run = record["run"].as_str().unwrap().to_owned();
        let id: Option<RunId> = run.parse().ok();
        let of_run = runs.entry(run).or_default();
        let run_prev = of_run.last().copied().unwrap_or_else(|| run_genesis(ledger, id.as_ref()));
        if record["type"] == "run.sealed" {
            record["body"] = json!({"records": of_run.len(), "run_root": merkle::root(of_run.iter().copied())});
        }
        record["seq"] = json!(seq);
        record["prev"] = json!(head);
        record["run_seq"] = json!(of_run.len());
        record["run_prev"] = json!(run_prev);
        let line = Canonical::of(&record).unwrap().as_str().as_bytes().to_vec();
        head = leaf(&line);
        of_run.push(head);
        lines.push(line);
    }
    lines
}

/// The lines as values, to be edited and written anew.
pub fn values(lines: &[Vec<u8>]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
}
