//! A ledger line (v1): building it and hashing it. Must not know events, files or time sources.
use sha2::{Digest, Sha256};

use crate::canonical::{self, Canonical, DEPTH_MAX};
use crate::hash::{Hash, hex};
use crate::ids::{Actor, LedgerId, RunId, Seq};
use crate::time::Timestamp;

/// Longest line, LF not counted, in bytes.
pub const LINE_BYTES_MAX: usize = 65_535;

/// Longest `seq` (20 digits) and the fixed-size members that the writer fills in, and a longer `run_seq` than the draft's.
const STAMP_BYTES: usize = 20 + 64 + 64 + 27 + 20;

/// Leaf hash of a line (RFC 6962, section 2.1): SHA-256 of a zero byte and the line without its LF.
pub fn leaf(line: &[u8]) -> Hash {
    Hash(Sha256::new().chain_update([0]).chain_update(line).finalize().into())
}

/// `prev` of the record with seq 0.
pub fn genesis(ledger: LedgerId) -> Hash {
    let input = format!("reversi.dev/ledger/v1/genesis\n{ledger}");
    Hash(Sha256::digest(input).into())
}

/// `run_prev` of a run's first record; the records of no run form the chain of the empty name.
pub fn run_genesis(ledger: LedgerId, run: Option<&RunId>) -> Hash {
    let input = format!("reversi.dev/run/v1/genesis\n{ledger}\n{}", run.map_or("", RunId::as_str));
    Hash(Sha256::digest(input).into())
}

/// Why a record can't become a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The line would be longer than [`LINE_BYTES_MAX`].
    #[error("the {kind} record would take {bytes} bytes, more than the {LINE_BYTES_MAX} that a ledger line may have")]
    TooLong {
        /// The record's type.
        kind: String,
        /// The length it would have.
        bytes: usize,
    },
    /// The body is no object, or nests too deep to stand inside a record.
    #[error("the body of the {kind} record is no object, or nests deeper than {} levels", DEPTH_MAX - 1)]
    BadBody {
        /// The record's type.
        kind: String,
    },
}

/// A line in which only what the journal's writer decides is open: `seq`, `prev`, `run_prev`, `ts`.
/// The members stand in canonical order, so stamping is concatenation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    run: Option<RunId>,
    run_seq: u64,
    until_prev: String,
    until_run_prev: String,
    until_seq: String,
    after_ts: String,
}

impl Draft {
    /// Everything of a record but the writer's stamp. `kind` is the record's `type`; `salt` is 128 random bits.
    pub fn new(
        ledger: LedgerId,
        actor: &Actor,
        kind: &str,
        body: &Canonical,
        (run, run_seq): (Option<&RunId>, u64),
        salt: [u8; 16],
    ) -> Result<Self, RecordError> {
        let kind_of_actor = match actor.kind {
            crate::ids::ActorKind::Agent => "agent",
            crate::ids::ActorKind::Human => "human",
            crate::ids::ActorKind::System => "system",
        };
        if !body.as_str().starts_with('{') || !canonical::fits_at_depth(body, 1) {
            return Err(RecordError::BadBody { kind: kind.to_owned() });
        }
        // Actor, run and type hold no character that JSON escapes: their types and the event table see to that.
        let draft = Self {
            run: run.cloned(),
            run_seq,
            until_prev: format!(
                r#"{{"actor":{{"id":"{}","kind":"{kind_of_actor}"}},"body":{},"ledger":"{ledger}","prev":""#,
                actor.id,
                body.as_str()
            ),
            until_run_prev: format!(r#"","run":"{}","run_prev":""#, run.map_or("", RunId::as_str)),
            until_seq: format!(r#"","run_seq":{run_seq},"salt":"{}","seq":"#, hex(&salt)),
            after_ts: format!(r#"","type":"{kind}","v":1}}"#),
        };
        let bytes = draft.len() + STAMP_BYTES;
        if bytes > LINE_BYTES_MAX {
            return Err(RecordError::TooLong { kind: kind.to_owned(), bytes });
        }
        Ok(draft)
    }

    /// The run whose chain the record joins; none for the records of no run.
    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref()
    }

    /// Position in the run's chain.
    pub fn run_seq(&self) -> u64 {
        self.run_seq
    }

    /// Gives a record of no run its position in the chain of such records: many append to it, so only the journal's
    /// writer knows.
    pub fn set_run_seq(&mut self, run_seq: u64) {
        if let Some(at) = self.until_seq.find(r#","salt":"#) {
            self.until_seq = format!(r#"","run_seq":{run_seq}{}"#, &self.until_seq[at..]);
            self.run_seq = run_seq;
        }
    }

    /// What the finished line takes at most, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.len() + STAMP_BYTES
    }

    fn len(&self) -> usize {
        let fixed = r#","ts":""#.len();
        self.until_prev.len() + self.until_run_prev.len() + self.until_seq.len() + fixed + self.after_ts.len()
    }

    /// Appends the finished line, without LF, to `out`.
    pub fn stamp(&self, seq: Seq, prev: Hash, run_prev: Hash, ts: Timestamp, out: &mut Vec<u8>) {
        use std::io::Write as _;
        out.reserve(self.len() + STAMP_BYTES);
        // Writing into a Vec can't fail.
        let _ = write!(
            out,
            r#"{}{prev}{}{run_prev}{}{seq},"ts":"{ts}{}"#,
            self.until_prev, self.until_run_prev, self.until_seq, self.after_ts
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(body: &str) -> Result<Draft, RecordError> {
        let run: RunId = "run_1".parse().unwrap();
        let body = Canonical::parse(body.as_bytes()).unwrap();
        Draft::new(LedgerId([1; 16]), &Actor::system(), "step.begun", &body, (Some(&run), 4), [2; 16])
    }

    #[test]
    fn a_stamped_draft_is_canonical() {
        let mut line = Vec::new();
        draft(r#"{"tool":"x"}"#).unwrap().stamp(9, Hash([3; 32]), Hash([4; 32]), Timestamp::from_micros(5), &mut line);
        assert_eq!(Canonical::parse(&line).unwrap().as_str().as_bytes(), line);
    }

    #[test]
    fn a_body_that_no_line_can_hold_is_refused_at_drafting() {
        let nested = |levels: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert!(draft(&nested(DEPTH_MAX - 2)).is_ok());
        assert!(matches!(draft(&nested(DEPTH_MAX - 1)), Err(RecordError::BadBody { .. })));
        assert!(matches!(draft("[]"), Err(RecordError::BadBody { .. })));
    }

    #[test]
    fn a_renumbered_draft_is_the_draft_with_that_number() {
        let run: RunId = "run_1".parse().unwrap();
        let body = Canonical::parse(br#"{"x":",\"salt\":1"}"#).unwrap();
        let draft = |run_seq| {
            Draft::new(LedgerId([1; 16]), &Actor::system(), "step.begun", &body, (Some(&run), run_seq), [2; 16])
                .unwrap()
        };
        let mut renumbered = draft(0);
        renumbered.set_run_seq(1_234_567);
        assert_eq!(renumbered, draft(1_234_567));
        let mut line = Vec::new();
        renumbered.stamp(u64::MAX, Hash([3; 32]), Hash([4; 32]), Timestamp::from_micros(5), &mut line);
        assert!(line.len() <= draft(0).bytes_max());
    }

    #[test]
    fn too_long_a_line_is_refused_at_drafting() {
        let body = format!(r#"{{"reason":"{}"}}"#, "x".repeat(LINE_BYTES_MAX));
        assert!(matches!(draft(&body), Err(RecordError::TooLong { .. })));
    }
}
