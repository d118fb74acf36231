//! The public ledger: one line of canonical JSON a record, hash-chained, with a Merkle tree over the lines.
//! Must not know what an event means.
pub mod merkle;
pub mod note;
mod record;

pub use merkle::Frontier;
pub use record::{Draft, LINE_BYTES_MAX, RecordError, genesis, leaf, run_genesis};
