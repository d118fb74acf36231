//! `reversi lint`: are these tool manifests, though valid, unsafe, incomplete or contradictory? Must not know what is:
//! the rules are `reversi_proto::lint`'s.
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use reversi_proto::lint::{Counts, Finding, Level, UpstreamTools, lint, lint_upstream};
use serde::Serialize;

use super::failure::{Failure, exit};
use super::mistakes;
use super::out::{Out, Tone, clean};
use crate::manifests;

/// The largest list of tools that is read.
const UPSTREAM_BYTES_MAX: u64 = 64 << 20;

/// Finds tool manifests that are valid but unsafe, incomplete or contradictory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a folder, its .yaml, .yml and .json files are read, without its folders. docs/lint.md explains each code.

Exit codes: 0 no errors, 1 errors (with --strict also warnings) or manifests that are not valid, 64 the command line is \
wrong.

Examples:
  reversi lint manifests
  reversi lint manifests --strict --json
  reversi lint manifests --upstream-schemas tools.json")]
pub(super) struct LintArgs {
    /// Files and folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,
    /// Check against the tools of a saved answer to MCP's tools/list; - for stdin
    #[arg(long, value_name = "FILE")]
    upstream_schemas: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    #[serde(flatten)]
    counts: Counts,
    findings: &'a [Finding],
}

pub(super) fn run(args: &LintArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let set = match manifests::read(&args.paths) {
        Ok(set) => set,
        Err(mistakes) => return mistakes::print(&mistakes, args.json, out),
    };
    let mut findings = lint(&set);
    if let Some(path) = &args.upstream_schemas {
        findings.extend(lint_upstream(&set, &upstream_tools(path)?));
        findings.sort_unstable();
    }
    let counts = Counts::of(&findings);
    let ok = counts.errors == 0 && !(args.strict && counts.warnings > 0);
    let code = if ok { exit::OK } else { exit::FAILED };
    out.judged(code);
    if args.json {
        out.json(&Answer { ok, counts, findings: &findings })?;
    } else {
        findings.iter().try_for_each(|finding| show(finding, out))?;
        out.line(counts.to_string())?;
    }
    Ok(ExitCode::from(code))
}

/// One line, whatever a name or a text may hold.
fn show(finding: &Finding, out: &mut Out) -> Result<(), Failure> {
    let tone = match finding.level {
        Level::Error => Tone::Bad,
        Level::Warning => Tone::Doubtful,
        Level::Info => Tone::Dim,
    };
    let level = out.paint(tone, finding.level.as_str());
    let rest = format!("{} {}: {}", finding.code, finding.tool, finding.message);
    out.line(format!("{level} {}", clean(&rest).replace('\n', " ")))
}

fn upstream_tools(path: &Path) -> Result<UpstreamTools, Failure> {
    let failed = |error: io::Error| Failure::io("read", path, &error);
    let bytes = if path == Path::new("-") {
        bytes_of(io::stdin().lock()).map_err(failed)?
    } else {
        File::open(path).and_then(bytes_of).map_err(failed)?
    };
    let name = path.display();
    if bytes.len() as u64 > UPSTREAM_BYTES_MAX {
        let text = format!("{name} is too large for a list of tools: at most {UPSTREAM_BYTES_MAX} bytes are read");
        return Err(Failure::Input(text));
    }
    UpstreamTools::parse(&bytes).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Failure::Input(format!("{name} can't be used: {error}{cause}"))
    })
}

/// One byte more than allowed tells that there is more.
fn bytes_of(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(UPSTREAM_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
