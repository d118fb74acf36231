//! `reversi validate`: are these tool manifests in order? Must not know what a manifest says.
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use reversi_proto::manifest::{Diagnostic, Manifest, ManifestSet, load};
use serde::Serialize;

use super::failure::{Failure, exit};
use super::out::{Out, Tone, clean};

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
    let mut found: Vec<(String, Manifest)> = Vec::new();
    let mut mistakes = Vec::new();
    for file in files(paths)? {
        let bytes = std::fs::read(&file).map_err(|error| Failure::io("read", &file, &error))?;
        let name = file.display().to_string();
        match load(&name, &bytes) {
            Ok(manifests) => found.extend(manifests.into_iter().map(|manifest| (name.clone(), manifest))),
            Err(diagnostics) => mistakes.extend(diagnostics),
        }
    }
    Ok(if mistakes.is_empty() { ManifestSet::new(found) } else { Err(mistakes) })
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error: std::io::Error| Failure::io("read", path, &error);
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            inside.push(entry.map_err(failed)?.path());
        }
        inside.retain(|file| is_manifest(file));
        if inside.is_empty() {
            return Err(Failure::Input(format!("{} holds no .yaml, .yml or .json file", path.display())));
        }
        // The order of a folder is the file system's whim.
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

fn is_manifest(file: &Path) -> bool {
    let hidden = file.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    let end = file.extension().unwrap_or_default();
    !hidden && file.is_file() && ["yaml", "yml", "json"].iter().any(|known| end.eq_ignore_ascii_case(known))
}
