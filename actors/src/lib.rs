//! Hosts of Reversi's aggregates: supervisor tree, journal, clock, ports, `Service`. Must not know HTTP, MCP or clap.
pub mod clock;
pub mod failpoint;
pub mod journal;
