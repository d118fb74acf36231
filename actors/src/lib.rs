//! Reversi.
pub mod ports;
