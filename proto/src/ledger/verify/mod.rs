//! Verification of a ledger from its bytes alone, by somebody who trusts none of it. Must not know where the bytes come
//! from, nor what an event means: which types exist comes in as a function.
mod chain;
mod checkpoint;
mod report;

use rayon::prelude::*;

pub use report::{Authenticity, Code, Completeness, Finding, Freshness, Report};

use super::line::{Line, LineError, too_long};
use super::note::VerifierKey;
use super::{Frontier, LINE_BYTES_MAX, leaf};
use crate::canonical::scan::line_end;
use crate::hash::Hash;
use chain::Chain;
use checkpoint::Anchor;

/// So many bytes are collected before all cores are set to work on them.
const BATCH_BYTES: usize = 4 << 20;

/// What one core takes at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Warnings that are kept; all are counted.
const WARNINGS_MAX: usize = 100;

/// What to hold the ledger to.
pub struct Options<'a> {
    /// Which record types there are.
    pub known_type: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether unknown types and versions are warnings only.
    pub lenient: bool,
    /// The checkpoint, as the bytes of a signed note.
    pub checkpoint: Option<&'a [u8]>,
    /// Whether a missing checkpoint is a failure.
    pub require_checkpoint: bool,
    /// The key that the checkpoint must be signed with.
    pub trust: Option<&'a VerifierKey>,
}

/// Takes a ledger's bytes in order, in chunks of any size, and says at the end what holds.
pub struct Verifier<'a> {
    options: Options<'a>,
    /// Bytes taken but not looked at; begins with a line.
    pending: Vec<u8>,
    chain: Chain,
    tree: Tree,
    bytes: u64,
    first_bad: Option<Finding>,
    warnings: Vec<Finding>,
    warnings_total: u64,
}

/// The Merkle tree over the records. It lags behind the chain, so that it grows while the next batch is checked.
struct Tree {
    frontier: Frontier,
    anchor: Anchor,
    /// Leaves of records that hold and are not in the frontier yet.
    waiting: Vec<Hash>,
}

impl Tree {
    fn catch_up(&mut self) {
        for leaf in self.waiting.drain(..) {
            self.frontier.append(leaf);
            self.anchor.pass(&self.frontier);
        }
    }
}

/// A line that is in order by itself.
struct Checked<'a> {
    line: Line<'a>,
    leaf: Hash,
    bytes: u64,
    /// What makes it a warning, in a lenient verification.
    unknown: Option<LineError>,
}

/// The lines of a piece up to the first that isn't in order.
struct Piece<'a> {
    lines: Vec<Checked<'a>>,
    bad: Option<LineError>,
}

impl<'a> Verifier<'a> {
    /// Before the first byte.
    pub fn new(options: Options<'a>) -> Self {
        let mut anchor = Anchor::new(options.checkpoint, options.trust, options.require_checkpoint);
        anchor.pass(&Frontier::default());
        Self {
            options,
            pending: Vec::new(),
            chain: Chain::default(),
            tree: Tree { frontier: Frontier::default(), anchor, waiting: Vec::new() },
            bytes: 0,
            first_bad: None,
            warnings: Vec::new(),
            warnings_total: 0,
        }
    }

    /// Takes the next bytes. False once a bad line was found: reading on changes nothing.
    pub fn feed(&mut self, mut chunk: &[u8]) -> bool {
        while !chunk.is_empty() && self.first_bad.is_none() {
            let (now, later) = chunk.split_at(chunk.len().min(BATCH_BYTES));
            self.pending.extend_from_slice(now);
            chunk = later;
            if self.pending.len() >= BATCH_BYTES {
                self.look();
            }
        }
        self.first_bad.is_none()
    }

    /// Number of records that hold so far, for a progress bar.
    pub fn records(&self) -> u64 {
        self.chain.records
    }

    /// After the last byte.
    pub fn finish(mut self) -> Report {
        self.look();
        if self.first_bad.is_none() && !self.pending.is_empty() {
            let detail = "the file ends within a line: its end is missing, or it is still being written".to_owned();
            self.bad(LineError { code: Code::HalfLine, detail, seq: None });
        }
        if self.first_bad.is_none() && self.records() == 0 {
            self.bad(LineError { code: Code::EmptyLedger, detail: "there is no record".to_owned(), seq: None });
        }
        self.tree.catch_up();
        let Tree { frontier, anchor, waiting: _ } = self.tree;
        let Chain { ledger, records, head, last_ts, runs } = self.chain;
        let (authenticity, completeness, freshness) = anchor.judge(ledger, records, self.first_bad.is_some());
        let runs = runs.iter().filter(|(name, _)| !name.is_empty());
        Report {
            first_bad: self.first_bad,
            authenticity,
            completeness,
            freshness,
            ledger,
            records,
            bytes: self.bytes,
            head,
            root: frontier.root(),
            last_ts: Some(last_ts).filter(|ts| !ts.is_empty()),
            runs: runs.clone().count() as u64,
            runs_open: runs.filter(|(_, run)| !run.sealed).count() as u64,
            warnings: self.warnings,
            warnings_total: self.warnings_total,
        }
    }

    /// Verifies the whole lines among the pending bytes, and keeps the rest.
    fn look(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        let whole = pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (options, tree) = (&self.options, &mut self.tree);
        let check_all = || split(&pending[..whole]).into_par_iter().map(|piece| check(piece, options)).collect();
        let (pieces, ()): (Vec<Piece<'_>>, ()) = rayon::join(check_all, || tree.catch_up());
        for piece in pieces {
            self.take_piece(piece);
        }
        pending.drain(..whole);
        if pending.len() > LINE_BYTES_MAX && self.first_bad.is_none() {
            self.bad(too_long());
        }
        self.pending = pending;
    }

    fn take_piece(&mut self, piece: Piece<'_>) {
        for Checked { line, leaf, bytes, unknown } in piece.lines {
            if self.first_bad.is_some() {
                return;
            }
            if let Err(error) = self.chain.accept(&line, leaf) {
                return self.bad(error);
            }
            self.bytes += bytes;
            self.tree.waiting.push(leaf);
            if let Some(unknown) = unknown {
                self.warn(unknown);
            }
        }
        if let (Some(error), None) = (piece.bad, &self.first_bad) {
            self.bad(error);
        }
    }

    fn bad(&mut self, LineError { code, detail, seq }: LineError) {
        self.first_bad = Some(Finding { line: self.records() + 1, seq, code, detail });
    }

    fn warn(&mut self, LineError { code, detail, seq }: LineError) {
        self.warnings_total += 1;
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(Finding { line: self.records(), seq, code, detail });
        }
    }
}

/// Cuts whole lines into pieces of whole lines.
fn split(mut lines: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !lines.is_empty() {
        let at = lines.len().min(PIECE_BYTES);
        let end = line_end(&lines[at..]).map_or(lines.len(), |more| at + more + 1);
        let (piece, rest) = lines.split_at(end);
        pieces.push(piece);
        lines = rest;
    }
    pieces
}

/// Everything that can be said about lines without their neighbours: the part that all cores share.
fn check<'a>(piece: &'a [u8], options: &Options<'_>) -> Piece<'a> {
    let mut lines = Vec::with_capacity(piece.len() / 512);
    let mut rest = piece;
    while let Some(end) = line_end(rest) {
        match check_line(&rest[..end], options) {
            Ok(checked) => lines.push(checked),
            Err(bad) => return Piece { lines, bad: Some(bad) },
        }
        rest = &rest[end + 1..];
    }
    Piece { lines, bad: None }
}

fn check_line<'a>(text: &'a [u8], options: &Options<'_>) -> Result<Checked<'a>, LineError> {
    let line = if options.lenient { Line::parse_any_version(text)? } else { Line::parse(text)? };
    let unknown = if line.v != 1 {
        Some((Code::UnknownVersion, format!("the record is of version {}, expected 1", line.v)))
    } else if (options.known_type)(line.kind) {
        None
    } else {
        Some((Code::UnknownType, format!("the record's type {:?} is not known to this program", line.kind)))
    };
    let unknown = unknown.map(|(code, detail)| LineError { code, detail, seq: Some(line.seq) });
    match unknown {
        Some(unknown) if !options.lenient => Err(unknown),
        unknown => Ok(Checked { leaf: leaf(text), bytes: text.len() as u64 + 1, line, unknown }),
    }
}
