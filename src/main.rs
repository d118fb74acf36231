//! Reversi's entry point. Dispatches only; what a command does is in its module.
use clap::{Parser, Subcommand};
use reversi::connector;

#[derive(Parser)]
#[command(name = "reversi", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one of Reversi's own MCP servers.
    Connector {
        #[command(subcommand)]
        which: Connector,
    },
}

#[derive(Subcommand)]
enum Connector {
    Fs(connector::FsArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Connector { which: Connector::Fs(args) } => connector::run(args.into()),
    }
}
