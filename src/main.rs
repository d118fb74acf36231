//! Reversi's entry point. What can be typed, and who answers, is in `cli`.
use std::process::ExitCode;

fn main() -> ExitCode {
    reversi::cli::main(std::env::args_os())
}
