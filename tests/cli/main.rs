//! The command line from outside: what it prints, where, and with which exit code.
#![allow(clippy::unwrap_used)]
mod contract;
mod data_dir;
mod files;
mod help;
mod http;
mod ledger;
mod lint;
mod offline;
mod program;
mod serve;
mod schema;
