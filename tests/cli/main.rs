//! The command line from outside: what it prints, where, and with which exit code.
#![allow(clippy::unwrap_used)]
mod approvals;
mod contract;
mod data_dir;
mod files;
mod help;
mod http;
mod ledger;
mod lint;
mod login;
mod offline;
mod people;
mod program;
mod schema;
mod serve;
mod terminal;
mod transcript;
mod watch;
