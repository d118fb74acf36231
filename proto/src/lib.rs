//! The pure part of Reversi: no files, no clock, no randomness, no tokio. What a thing *is* and what may happen to it
//! next; everything that does something lives in `reversi-actors` and above.
#![warn(missing_docs)]

pub mod canonical;
pub mod commit;
pub mod hash;
pub mod ids;
pub mod ledger;
pub mod manifest;
pub mod time;
pub mod wake;
