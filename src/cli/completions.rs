//! `reversi completions`: what a shell needs to complete our commands.
use std::process::ExitCode;

use clap::CommandFactory as _;

use super::failure::Failure;
use super::out::Out;

/// Prints a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  reversi completions bash > /etc/bash_completion.d/reversi
  reversi completions zsh  > ~/.zfunc/_reversi
  reversi completions fish > ~/.config/fish/completions/reversi.fish")]
pub(super) struct CompletionsArgs {
    /// Which shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "reversi", &mut script);
    out.bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
