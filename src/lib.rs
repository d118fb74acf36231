//! The binary's modules as a library, so that tests can start them. The direction of use is in
//! `tests/architecture.rs`: edges call actors and proto, never each other.
pub mod adapters;
pub mod connector;
pub mod http;
