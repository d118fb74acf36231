//! The pure part of Reversi: no files, no clock, no randomness, no tokio. What a thing *is* and what may happen to it
//! next; everything that does something lives in `reversi-actors` and above.
#![warn(missing_docs)]

pub mod access;
pub mod aggregate;
pub mod approval;
pub mod canonical;
pub mod claim;
pub mod commit;
pub mod config;
pub mod contract;
pub mod doctor;
pub mod event;
pub mod halt;
pub mod hash;
pub mod ids;
pub mod ledger;
pub mod lint;
pub mod manifest;
pub mod restart;
pub mod retry;
pub mod run;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod undo;
pub mod wake;
