//! `reversi test`: do the manifests do what their contract tests say? Must not know how a case is played or judged.
mod files;
mod junit;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use reversi_actors::contract::{self, CaseResult};
use reversi_proto::contract::{Case, Failure as Finding, load};
use reversi_proto::ids::ToolName;
use reversi_proto::manifest::{Diagnostic, ManifestSet};
use serde::Serialize;

use super::failure::{Failure, exit};
use super::mistakes;
use super::out::{Out, Tone, clean, tell};
use crate::config::Config;
use crate::manifests::Source;

/// Runs the contract tests of tool manifests, without touching any system
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without FILE, every .yaml, .yml and .json file under tests/ next to the settings is read.

Examples:
  reversi test
  reversi test tests/payments.test.yaml -m manifests
  reversi test --filter refund --json
  reversi test --junit target/contract-tests.xml")]
pub(super) struct TestArgs {
    /// Test files, and folders of them
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Manifest files and folders [default: those of the settings, else ./manifests]
    #[arg(short, long, value_name = "PATH")]
    manifests: Vec<PathBuf>,
    /// Settings [default: reversi.config.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run only the tests whose name holds this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// For CI systems.
    #[arg(long, value_name = "FILE", help = "Write the results to this file as JUnit XML too")]
    junit: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TestArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    if let Some(file) = args.junit.as_ref().filter(|file| file.exists() && !file.is_file()) {
        return Err(Failure::Usage(format!("--junit: {} is no file", file.display())));
    }
    let (set, cases) = match read(args)? {
        Ok(read) => read,
        Err(diagnostics) => return mistakes::print(&diagnostics.into(), args.json, out),
    };
    let not_covered = not_covered(&set, &cases);
    let chosen: Vec<Case> = match &args.filter {
        None => cases,
        Some(text) => cases.into_iter().filter(|case| case.name.contains(text.as_str())).collect(),
    };
    if chosen.is_empty() {
        let why = args.filter.as_ref().map_or("there is no contract test in what was read".to_owned(), |text| {
            format!("no contract test has a name with {text:?} in it")
        });
        return Err(Failure::Input(why));
    }
    let results = contract::run(&set, &chosen);
    let outcome = Outcome { cases: &chosen, results: &results, not_covered };
    if let Some(file) = &args.junit {
        junit::write(file, &outcome)?;
    }
    let code = if outcome.failed() == 0 { exit::OK } else { exit::FAILED };
    out.judged(code);
    if args.json {
        out.json(&outcome.answer())?;
    } else {
        outcome.print(out)?;
    }
    Ok(ExitCode::from(code))
}

/// What was read, or all mistakes of it.
type Checked<T> = Result<T, Vec<Diagnostic>>;

/// Manifests and cases of all files.
fn read(args: &TestArgs) -> Result<Checked<(ManifestSet, Vec<Case>)>, Failure> {
    let mut diagnostics = Vec::new();
    let set = read_manifests(args)?.unwrap_or_else(|mistakes| {
        diagnostics.extend(mistakes);
        ManifestSet::default()
    });
    let mut cases = Vec::new();
    for file in test_files(args)? {
        match load(&file.display().to_string(), &files::read(&file)?) {
            Ok(found) => cases.extend(found),
            Err(mistakes) => diagnostics.extend(mistakes),
        }
    }
    Ok(if diagnostics.is_empty() { Ok((set, cases)) } else { Err(diagnostics) })
}

fn read_manifests(args: &TestArgs) -> Result<Checked<ManifestSet>, Failure> {
    let source = if args.manifests.is_empty() {
        let settings = Config::find(args.config.as_deref(), Path::new("."));
        settings.map_err(|error| Failure::Input(error.to_string()))?.manifests
    } else {
        Source::Named(args.manifests.clone())
    };
    match source.read() {
        Ok(set) if set.is_empty() => {
            Err(Failure::Input("there are no manifests to test: name them with --manifests".to_owned()))
        }
        Ok(set) => Ok(Ok(set)),
        Err(mistakes) => Ok(Err(mistakes.into_diagnostics())),
    }
}

/// The test files; what belongs to the policy is left to it.
fn test_files(args: &TestArgs) -> Result<Vec<PathBuf>, Failure> {
    let found = if args.files.is_empty() {
        let folder = args.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let tests = folder.join("tests");
        if !tests.is_dir() {
            let what = format!("there is no folder {}: name the test files", tests.display());
            return Err(Failure::Input(what));
        }
        files::find(&[tests])?
    } else {
        files::find(&args.files)?
    };
    let (policy, cases): (Vec<_>, Vec<_>) = found.into_iter().partition(|file| files::is_policy_test(file));
    for file in policy {
        tell!("{}: skipped, because this version has no policy tests yet", clean(&file.display().to_string()));
    }
    Ok(cases)
}

/// Tools that change something and that no case calls, whichever cases were chosen.
fn not_covered(set: &ManifestSet, cases: &[Case]) -> Vec<ToolName> {
    let covered: std::collections::BTreeSet<&ToolName> = cases.iter().map(|case| &case.tool).collect();
    let mutating = set.iter().filter(|manifest| manifest.effect.is_mutating());
    mutating.map(|manifest| &manifest.tool).filter(|tool| !covered.contains(tool)).cloned().collect()
}

/// What came of all cases.
struct Outcome<'a> {
    cases: &'a [Case],
    results: &'a [CaseResult],
    not_covered: Vec<ToolName>,
}

#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    passed: usize,
    failed: usize,
    cases: Vec<CaseAnswer<'a>>,
    not_covered: &'a [ToolName],
}

#[derive(Serialize)]
struct CaseAnswer<'a> {
    name: &'a str,
    status: &'static str,
    tool: &'a ToolName,
    file: &'a str,
    line: u32,
    failures: &'a [Finding],
}

impl Outcome<'_> {
    fn each(&self) -> impl Iterator<Item = (&Case, &CaseResult)> {
        self.cases.iter().zip(self.results)
    }

    fn failed(&self) -> usize {
        self.results.iter().filter(|result| !result.passed()).count()
    }

    fn answer(&self) -> Answer<'_> {
        let failed = self.failed();
        let case = |(case, result)| {
            let (Case { name, tool, source, line, .. }, CaseResult { failures }): (&Case, &CaseResult) = (case, result);
            let status = if failures.is_empty() { "passed" } else { "failed" };
            CaseAnswer { name, status, tool, file: source, line: *line, failures }
        };
        Answer {
            ok: failed == 0,
            passed: self.results.len() - failed,
            failed,
            cases: self.each().map(case).collect(),
            not_covered: &self.not_covered,
        }
    }

    fn print(&self, out: &mut Out) -> Result<(), Failure> {
        for (case, result) in self.each() {
            let name = one_line(&case.name);
            if result.passed() {
                out.line(format!("{} {name}", out.paint(Tone::Good, "ok")))?;
                continue;
            }
            out.line(format!("{} {name}", out.paint(Tone::Bad, "FAIL")))?;
            out.line(format!("  {}:{}", one_line(&case.source), case.line))?;
            told(result).try_for_each(|line| out.line(format!("  {}", one_line(&line))))?;
        }
        if !self.not_covered.is_empty() {
            let tools: Vec<&str> = self.not_covered.iter().map(ToolName::as_str).collect();
            out.line(format!("not covered by any test: {}", tools.join(", ")))?;
        }
        let (failed, passed) = (self.failed(), self.results.len() - self.failed());
        out.line(if failed == 0 { format!("{passed} passed") } else { format!("{passed} passed, {failed} failed") })
    }
}

/// The lines that say why a case failed.
fn told(result: &CaseResult) -> impl Iterator<Item = String> {
    result.failures.iter().flat_map(|Finding { field, message, differences }| {
        let places = differences.iter().map(|difference| format!("  {difference}"));
        std::iter::once(format!("{field}: {message}")).chain(places)
    })
}

fn one_line(text: &str) -> String {
    clean(text).trim_end().replace('\n', " ")
}
