//! What verification found, as data: four separate facts. Must not know how they were found.
use std::fmt;

use serde::{Serialize, Serializer};

use crate::hash::Hash;
use crate::ids::LedgerId;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a ledger doesn't verify. The names are stable and the same in every implementation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }
        impl Code {
            /// All codes.
            pub const ALL: &[Code] = &[$(Code::$name,)*];
            /// The stable name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    /// There is no record at all.
    EmptyLedger = "empty_ledger",
    /// A line longer than 65,535 bytes.
    LineTooLong = "line_too_long",
    /// An empty line.
    BlankLine = "blank_line",
    /// The file ends within a line.
    HalfLine = "half_line",
    /// A line ends in CR LF.
    CarriageReturn = "carriage_return",
    /// A line starts with a byte order mark.
    ByteOrderMark = "byte_order_mark",
    /// The bytes are not those that the canonical form of their value has; invalid JSON and UTF-8 included.
    NotCanonical = "not_canonical",
    /// A member is missing or one too many.
    WrongMembers = "wrong_members",
    /// A member has a value that it can't have.
    BadMember = "bad_member",
    /// A record of a later version than this program knows.
    UnknownVersion = "unknown_version",
    /// A record of a type that this program doesn't know.
    UnknownType = "unknown_type",
    /// A record of another ledger than the first one's.
    OtherLedger = "other_ledger",
    /// The positions are not dense from 0: something was dropped, inserted, doubled or swapped.
    SeqMismatch = "seq_mismatch",
    /// The record doesn't follow on the one before it: one of the two was changed or replaced.
    PrevMismatch = "prev_mismatch",
    /// A record earlier than the one before it.
    TimeBackwards = "time_backwards",
    /// The positions in a run are not dense from 0.
    RunSeqMismatch = "run_seq_mismatch",
    /// The record doesn't follow on the run's one before it.
    RunPrevMismatch = "run_prev_mismatch",
    /// The first record, and no other, is `ledger.opened`.
    OpeningMisplaced = "opening_misplaced",
    /// A seal doesn't state the number and root of the run's records before it.
    SealMismatch = "seal_mismatch",
    /// A checkpoint was required and none was given.
    CheckpointMissing = "checkpoint_missing",
    /// The checkpoint is no signed note of three lines.
    CheckpointMalformed = "checkpoint_malformed",
    /// The checkpoint is not signed by the trusted key.
    CheckpointOtherKey = "checkpoint_other_key",
    /// The trusted key's signature doesn't hold.
    CheckpointBadSignature = "checkpoint_bad_signature",
    /// The trusted key is named for another origin than the checkpoint's.
    CheckpointOtherOrigin = "checkpoint_other_origin",
    /// The checkpoint is of another ledger.
    CheckpointOtherLedger = "checkpoint_other_ledger",
    /// The records are not those that the checkpoint was made over, though their chain is whole.
    CheckpointRootMismatch = "checkpoint_root_mismatch",
    /// The checkpoint covers more records than there are.
    TailCut = "tail_cut",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Something wrong with one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The line, counted from 1.
    pub line: u64,
    /// The `seq` that the line claims, where that could be read.
    pub seq: Option<u64>,
    /// The reason, stable for programs.
    pub code: Code,
    /// The reason in a sentence.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} ({})", self.line, self.detail, self.code)
    }
}

/// Who vouches for the records: what the checkpoint's signature says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Authenticity {
    /// There is no checkpoint, so nobody does.
    NoCheckpoint,
    /// No key was pinned: the note is signed by keys that prove nothing.
    UnknownKey {
        /// The keys that the note names.
        keys: Vec<String>,
    },
    /// The pinned key does.
    Trusted {
        /// The key's name and hash.
        key: String,
    },
    /// The checkpoint is not what the pinned key signed.
    Failed {
        /// Why.
        code: Code,
        /// Why, in a sentence.
        detail: String,
    },
}

/// Whether all records are here: how far the checkpoint covers them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Completeness {
    /// There is no usable checkpoint: a cut tail, or a ledger written anew, can't be told.
    Unknown,
    /// The first `size` records are those that the checkpoint was made over.
    Covered {
        /// Number of records covered.
        size: u64,
    },
    /// The ledger is broken before the checkpoint's size is reached.
    NotReached {
        /// Number of records that the checkpoint covers.
        size: u64,
        /// Number of records that hold.
        verified: u64,
    },
    /// The records are fewer or others.
    Failed {
        /// Why.
        code: Code,
        /// Why, in a sentence.
        detail: String,
    },
}

/// How old the checkpoint is, in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Freshness {
    /// There is no usable checkpoint.
    Unknown,
    /// The checkpoint covers the last record.
    Current,
    /// Records came after the checkpoint. They are chained, but nothing outside the ledger vouches for them.
    Unanchored {
        /// How many.
        records: u64,
    },
}

/// What verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Integrity: the first line that doesn't hold; none if all do.
    pub first_bad: Option<Finding>,
    /// Authenticity.
    pub authenticity: Authenticity,
    /// Completeness.
    pub completeness: Completeness,
    /// Freshness.
    pub freshness: Freshness,
    /// The ledger, by its first record.
    pub ledger: Option<LedgerId>,
    /// Number of records that hold, from the first on.
    pub records: u64,
    /// Their length in bytes, line ends included.
    pub bytes: u64,
    /// Leaf hash of the last of them.
    pub head: Option<Hash>,
    /// Root of the Merkle tree over them.
    pub root: Hash,
    /// Time of the last of them.
    pub last_ts: Option<String>,
    /// Number of runs in them.
    pub runs: u64,
    /// Number of runs that don't end in a seal.
    pub runs_open: u64,
    /// What a lenient verification let through, the first hundred.
    pub warnings: Vec<Finding>,
    /// Number of warnings.
    pub warnings_total: u64,
}

impl Report {
    /// Every reason why the ledger doesn't verify; the first bad line's comes first.
    pub fn codes(&self) -> Vec<Code> {
        let Self { first_bad, authenticity, completeness, .. } = self;
        let authenticity = match authenticity {
            Authenticity::Failed { code, .. } => Some(*code),
            Authenticity::NoCheckpoint | Authenticity::UnknownKey { .. } | Authenticity::Trusted { .. } => None,
        };
        let completeness = match completeness {
            Completeness::Failed { code, .. } => Some(*code),
            Completeness::Unknown | Completeness::Covered { .. } | Completeness::NotReached { .. } => None,
        };
        first_bad.iter().map(|finding| finding.code).chain(authenticity).chain(completeness).collect()
    }

    /// Whether nothing speaks against the ledger. What speaks for it are the four facts.
    pub fn is_ok(&self) -> bool {
        self.codes().is_empty()
    }
}
