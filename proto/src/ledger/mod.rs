//! The public ledger: one line of canonical JSON a record, hash-chained, with a Merkle tree over the lines.
//! Must not know what an event means.
mod line;
pub mod merkle;
pub mod note;
mod record;
pub mod verify;

pub use line::{Line, LineError};
pub use merkle::Frontier;
pub use note::{Checkpoint, SignedNote, Signer, VerifierKey};
pub use record::{Draft, LINE_BYTES_MAX, RecordError, genesis, leaf, run_genesis};
