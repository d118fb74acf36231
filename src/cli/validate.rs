//! `reversi validate`: are these tool manifests in order? Must not know what a manifest says.
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::failure::Failure;
use super::mistakes;
use super::out::{Out, Tone};
use crate::manifests;

/// Checks tool manifests, each by itself and all together.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a folder, its .yaml, .yml and .json files are read, without its folders.

Examples:
  reversi validate manifests
  reversi validate manifests/payments.yaml manifests/demo/mail.yaml --json")]
pub(super) struct ValidateArgs {
    /// Files and folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    tools: Vec<&'a str>,
    diagnostics: [(); 0],
}

pub(super) fn run(args: &ValidateArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let set = match manifests::read(&args.paths) {
        Ok(set) => set,
        Err(mistakes) => return mistakes::print(&mistakes, args.json, out),
    };
    if args.json {
        let tools = set.iter().map(|manifest| manifest.tool.as_str()).collect();
        out.json(&Answer { ok: true, tools, diagnostics: [] })?;
    } else {
        let plural = if set.len() == 1 { "manifest" } else { "manifests" };
        let ok = out.paint(Tone::Good, "ok");
        out.line(format!("{ok}: {} tool {plural} valid", set.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}
