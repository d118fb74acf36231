//! Hosts of Reversi's aggregates: the supervisor tree, the journal, the clock, the ports to the outside world, and
//! [`service::Service`], the one typed handle that every edge calls. Knows no HTTP, no MCP, no command line.

mod alarms;
mod approvals;
pub mod clock;
mod codec;
mod compensations;
pub mod contract;
mod directory;
pub mod error;
pub mod failpoint;
mod host;
pub mod ids;
pub mod journal;
mod notices;
pub mod ports;
mod root;
mod runs;
pub mod service;
mod supervisor;
pub mod system;
mod world;

pub use codec::CodecError;
pub use world::Counters;
