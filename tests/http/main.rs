//! A whole daemon (disk journal, actors, HTTP) in this process, asked over real connections.
mod errors;
mod harness;
mod life;
mod limits;
mod retries;
mod roles;
mod undo;
