//! Mistakes in manifest files as every command shows them: a line each on stdout, their number on stderr.
use std::process::ExitCode;

use reversi_proto::manifest::Diagnostic;
use serde::Serialize;

use super::failure::{Failure, exit};
use super::out::{Out, clean, tell};
use crate::manifests::ManifestsError;

#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    diagnostics: &'a [Diagnostic],
}

/// Shows them all; the exit code of a command that can't go on without the manifests.
pub(super) fn print(mistakes: &ManifestsError, json: bool, out: &mut Out) -> Result<ExitCode, Failure> {
    out.judged(exit::FAILED);
    if json {
        out.json(&Answer { ok: false, diagnostics: mistakes.diagnostics() })?;
    } else {
        mistakes.lines().try_for_each(|line| out.line(clean(&line)))?;
        out.flush()?;
        tell!("{}", mistakes.count());
    }
    Ok(ExitCode::from(exit::FAILED))
}
