//! Reversi.
pub mod adapters;
pub mod connector;
