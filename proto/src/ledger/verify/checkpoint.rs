//! What a checkpoint says about a ledger whose records were counted elsewhere. Must not know single records.
use super::report::{Authenticity, Code, Completeness, Freshness};
use crate::hash::Hash;
use crate::ids::LedgerId;
use crate::ledger::Frontier;
use crate::ledger::note::{Checkpoint, NoteError, NoteSignature, SignedNote, VerifierKey};

/// A checkpoint waiting for its size to be reached.
#[derive(Debug)]
pub(super) struct Anchor {
    authenticity: Authenticity,
    checkpoint: Option<Checkpoint>,
    /// Root of the records at the checkpoint's size, once they were that many.
    reached: Option<Hash>,
    missing: bool,
}

impl Anchor {
    pub(super) fn new(note: Option<&[u8]>, trust: Option<&VerifierKey>, required: bool) -> Self {
        let Some(note) = note else {
            let authenticity = Authenticity::NoCheckpoint;
            return Self { authenticity, checkpoint: None, reached: None, missing: required };
        };
        let read = SignedNote::parse(note).and_then(|note| Ok((note.checkpoint()?, note)));
        let (checkpoint, authenticity) = match read {
            Err(error) => (None, failed(&error)),
            Ok((checkpoint, note)) => {
                let authenticity = authenticity(&note, &checkpoint, trust);
                (Some(checkpoint), authenticity)
            }
        };
        Self { authenticity, checkpoint, reached: None, missing: false }
    }

    /// To be called before the first record and after each.
    pub(super) fn pass(&mut self, tree: &Frontier) {
        if self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.size == tree.size()) {
            self.reached = Some(tree.root());
        }
    }

    /// After the last record that holds.
    pub(super) fn judge(
        self,
        ledger: Option<LedgerId>,
        records: u64,
        broken: bool,
    ) -> (Authenticity, Completeness, Freshness) {
        let Some(checkpoint) = self.checkpoint else {
            let missing = Completeness::Failed {
                code: Code::CheckpointMissing,
                detail: "a checkpoint is required, and none was given".to_owned(),
            };
            let completeness = if self.missing { missing } else { Completeness::Unknown };
            return (self.authenticity, completeness, Freshness::Unknown);
        };
        let completeness = completeness(&checkpoint, ledger, records, self.reached, broken);
        let freshness = match &completeness {
            Completeness::Covered { size } if !broken => match records - size {
                0 => Freshness::Current,
                records => Freshness::Unanchored { records },
            },
            Completeness::Covered { .. }
            | Completeness::Unknown
            | Completeness::NotReached { .. }
            | Completeness::Failed { .. } => Freshness::Unknown,
        };
        (self.authenticity, completeness, freshness)
    }
}

fn authenticity(note: &SignedNote, checkpoint: &Checkpoint, trust: Option<&VerifierKey>) -> Authenticity {
    let Some(trust) = trust else {
        return Authenticity::UnknownKey { keys: note.signatures().iter().map(NoteSignature::key).collect() };
    };
    if let Err(error) = note.verify(trust) {
        return failed(&error);
    }
    if !trust.is_for(checkpoint) {
        let detail =
            format!("the checkpoint is of {}, but the trusted key is named {}", checkpoint.log(), trust.name());
        return Authenticity::Failed { code: Code::CheckpointOtherOrigin, detail };
    }
    Authenticity::Trusted { key: trust.short() }
}

fn failed(error: &NoteError) -> Authenticity {
    let code = match error {
        NoteError::OtherKey { .. } => Code::CheckpointOtherKey,
        NoteError::BadSignature { .. } => Code::CheckpointBadSignature,
        NoteError::Malformed { .. }
        | NoteError::NoCheckpoint { .. }
        | NoteError::BadName { .. }
        | NoteError::BadKey { .. } => Code::CheckpointMalformed,
    };
    Authenticity::Failed { code, detail: error.to_string() }
}

fn completeness(
    checkpoint: &Checkpoint,
    ledger: Option<LedgerId>,
    records: u64,
    reached: Option<Hash>,
    broken: bool,
) -> Completeness {
    let size = checkpoint.size;
    if let Some(ledger) = ledger.filter(|ledger| *ledger != checkpoint.ledger) {
        let detail = format!("the checkpoint is of ledger {}, the records are of {ledger}", checkpoint.ledger);
        return Completeness::Failed { code: Code::CheckpointOtherLedger, detail };
    }
    match reached {
        Some(root) if root == checkpoint.root => Completeness::Covered { size },
        Some(root) => Completeness::Failed {
            code: Code::CheckpointRootMismatch,
            detail: format!("the first {size} records have the root {root}, the checkpoint has {}", checkpoint.root),
        },
        None if broken => Completeness::NotReached { size, verified: records },
        None => Completeness::Failed {
            code: Code::TailCut,
            detail: format!("the checkpoint covers {size} records, here are {records}: the newest are gone"),
        },
    }
}
