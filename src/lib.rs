//! Reversi: the edges and the composition root, as a library so that tests can start a daemon in-process.
pub mod http;
