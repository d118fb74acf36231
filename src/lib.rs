//! The binary's modules as a library, so that tests can start them. `app` puts everything together; the edges know
//! `Service`, and neither each other nor what is behind it.
pub mod adapters;
pub mod app;
pub mod config;
pub mod connector;
pub mod http;
pub mod log;
pub mod manifests;
pub mod serve;
