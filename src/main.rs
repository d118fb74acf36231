//! Reversi's entry point. Dispatches only; what a command does is in its module.
use clap::{Parser, Subcommand};
use reversi::connector;
use std::process::ExitCode;

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
    Serve(reversi::serve::ServeArgs),
    Demo(reversi::demo::DemoArgs),
}

#[derive(Subcommand)]
enum Connector {
    Fs(connector::FsArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Connector { which: Connector::Fs(args) } => {
            connector::run(args.into())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Serve(args) => tokio::runtime::Runtime::new()?.block_on(reversi::serve::serve(args)),
        Command::Demo(args) => tokio::runtime::Runtime::new()?.block_on(reversi::demo::demo(args)),
    }
}
