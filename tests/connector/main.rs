//! The file connector and the MCP client, as real processes. `cargo test --features failpoints --test connector` also
//! kills the connector in the middle of changes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests panic like tests")]

mod changes;
mod client;
mod containment;
mod harness;
mod http;
#[cfg(feature = "failpoints")]
mod kills;
mod protocol;
