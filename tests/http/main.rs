//! A whole daemon (disk journal, actors, HTTP) in this process, asked over real connections.
#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests are outside of #[test] functions

mod approvals;
mod defaults;
mod errors;
mod harness;
mod life;
mod limits;
mod reload;
mod retries;
mod roles;
mod undo;
