//! Reversi: the edges and the composition root. What happens is decided in `reversi-proto`, carried out in
//! `reversi-actors`; here requests become calls of the Service.
pub mod adapters;
pub mod cli;
pub mod connector;
pub mod demo;
