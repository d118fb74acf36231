//! Reversi.
pub mod connector;
