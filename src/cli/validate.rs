//! `reversi validate`: are these tool manifests in order? Must not know what a manifest says.
use std::path::PathBuf;
use std::process::ExitCode;

use reversi_proto::manifest::{Diagnostic, ManifestSet};
use serde::Serialize;

use super::failure::{Failure, exit};
use super::out::{Out, Tone, clean};
use crate::manifests::{self, ManifestsError};

/// Checks tool manifests, each by itself and all together.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a folder, its .yaml, .yml and .json files are read, without its folders.

Examples:
  reversi validate manifests
  reversi validate manifests/payments.yaml manifests/mail.yaml --json")]
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
    diagnostics: &'a [Diagnostic],
}

pub(super) fn run(args: &ValidateArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let checked = check(&args.paths)?;
    let (set, diagnostics) = match &checked {
        Ok(set) => (Some(set), &[][..]),
        Err(diagnostics) => (None, diagnostics.as_slice()),
    };
    let tools: Vec<&str> = set.into_iter().flat_map(ManifestSet::iter).map(|manifest| manifest.tool.as_str()).collect();
    if args.json {
        out.json(&Answer { ok: set.is_some(), tools, diagnostics })?;
    } else if set.is_some() {
        let plural = if tools.len() == 1 { "manifest" } else { "manifests" };
        let ok = out.paint(Tone::Good, "ok");
        out.line(format!("{ok}: {} tool {plural} valid", tools.len()))?;
    } else {
        diagnostics.iter().try_for_each(|diagnostic| out.line(clean(&diagnostic.to_string())))?;
        out.flush()?;
        let plural = if diagnostics.len() == 1 { "mistake" } else { "mistakes" };
        eprintln!("{} {plural}", diagnostics.len());
    }
    Ok(ExitCode::from(if set.is_some() { exit::OK } else { exit::FAILED }))
}

/// All mistakes of all files; those between files only once each file is in order.
fn check(paths: &[PathBuf]) -> Result<Result<ManifestSet, Vec<Diagnostic>>, Failure> {
    match manifests::read(paths) {
        Ok(set) if set.is_empty() => {
            Err(Failure::Input("there is no .yaml, .yml or .json file to check in what was named".to_owned()))
        }
        Ok(set) => Ok(Ok(set)),
        Err(ManifestsError::Invalid(diagnostics)) => Ok(Err(diagnostics)),
        Err(ManifestsError::Read { path, source }) => Err(Failure::io("read", &path, &source)),
    }
}
