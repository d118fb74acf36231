//! Implementations of the actors' ports. They may know protocols and processes; they decide nothing.
pub mod notify;
pub mod upstreams;
