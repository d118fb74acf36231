//! Reversi: the edges and the composition root, as a library so that tests can start them. What happens is decided in
//! `reversi-proto` and carried out in `reversi-actors`; here requests become calls of the Service.
pub mod adapters;
pub mod app;
pub mod check;
pub mod cli;
pub mod config;
pub mod connector;
pub mod demo;
pub mod http;
pub mod log;
pub mod manifests;
pub mod reload;
pub mod serve;
