//! `reversi verify`: does a ledger hold together, by its bytes alone? Must not trust the daemon that wrote it: nothing of
//! it is asked, and only lines are read.
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use reversi_actors::journal::offline::{self, JournalError};
use reversi_proto::ledger::verify::{Authenticity, Code, Completeness, Finding, Freshness, Options, Report, Verifier};
use serde::Serialize;

use super::failure::{Failure, exit};
use super::out::{Out, Tone, tell};
use super::{progress, trust};

const CHUNK_BYTES: usize = 1 << 20;

/// Verifies a ledger: an exported file, or a data directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A chain alone can't show that its tail was cut off or that all of it was written anew: give a checkpoint that was \
kept elsewhere, and the key that must have signed it. Nothing is changed, and a daemon may be running.

Exit codes: 0 nothing speaks against the ledger, 1 tampered with or not verifiable, 64 the command line is wrong.

Examples:
  reversi verify ledger.jsonl
  reversi verify ledger.jsonl --checkpoint ledger.note --trust ledger.vkey --require-checkpoint
  reversi verify reversi-data --checkpoint reversi-data.checkpoints --trust ledger.vkey")]
pub(super) struct VerifyArgs {
    /// A data directory, an exported .jsonl file, or - for stdin
    path: PathBuf,
    /// The key to pin: a verifier key (name+hash+key), or a file that holds one or a PEM public key
    #[arg(long, value_name = "KEY")]
    trust: Option<String>,
    /// A file with signed checkpoints; the one that covers most is used
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Fail where no checkpoint is given
    #[arg(long)]
    require_checkpoint: bool,
    /// Records of types and versions that this program doesn't know are warnings
    #[arg(long)]
    lenient: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The report, and what only a data directory can have.
#[derive(Serialize)]
struct Answer<'a> {
    ok: bool,
    codes: Vec<&'static str>,
    #[serde(flatten)]
    report: &'a Report,
    /// Why reading a data directory ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    /// The segment that ends in bytes which are no whole batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    torn: Option<PathBuf>,
}

/// What reading the bytes came to.
#[derive(Default)]
struct Source {
    damage: Option<String>,
    torn: Option<PathBuf>,
}

pub(super) fn run(args: &VerifyArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let note = args.checkpoint.as_deref().map(|file| trust::checkpoint(file, args.trust.as_deref())).transpose()?;
    let key = args.trust.as_deref().map(|key| trust::verifier(key, note.as_deref())).transpose()?;
    let mut verifier = Verifier::new(Options {
        known_type: &|kind| reversi_proto::event::KINDS.contains(&kind),
        lenient: args.lenient,
        checkpoint: note.as_deref(),
        require_checkpoint: args.require_checkpoint,
        trust: key.as_ref(),
    });
    let source = read(&args.path, &mut verifier)?;
    let report = verifier.finish();
    let ok = report.is_ok() && source.damage.is_none();
    let mut codes: Vec<&'static str> = report.codes().into_iter().map(Code::as_str).collect();
    codes.extend(source.damage.as_ref().map(|_| "segment_damaged"));
    let answer = Answer { ok, codes, report: &report, damage: source.damage, torn: source.torn };
    let code = if ok { exit::OK } else { exit::FAILED };
    out.judged(code);
    if args.json {
        out.json(&answer)?;
    } else {
        show(out, &answer)?;
    }
    Ok(ExitCode::from(code))
}

/// Gives the verifier the ledger's bytes, wherever they are.
fn read(path: &Path, verifier: &mut Verifier<'_>) -> Result<Source, Failure> {
    if path == Path::new("-") {
        return read_file(io::stdin().lock(), 0, verifier).map_err(|error| Failure::io("read", path, &error));
    }
    let data = std::fs::metadata(path).map_err(|error| Failure::io("read", path, &error))?;
    if !data.is_dir() {
        let file = File::open(path).and_then(|file| read_file(file, data.len(), verifier));
        return file.map_err(|error| Failure::io("read", path, &error));
    }
    if !offline::is_data_dir(path) {
        let text = "is no data directory: it holds no segment in ledger/";
        return Err(Failure::Input(format!("{} {text}", path.display())));
    }
    Ok(read_dir(path, verifier))
}

fn read_file(mut file: impl Read, len: u64, verifier: &mut Verifier<'_>) -> io::Result<Source> {
    let bar = progress::bytes(len, "verifying");
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bar.inc(read as u64);
        if !verifier.feed(&chunk[..read]) {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(Source::default())
}

fn read_dir(dir: &Path, verifier: &mut Verifier<'_>) -> Source {
    let bar = progress::bytes(offline::ledger_bytes(dir), "verifying");
    let mut chunk = Vec::with_capacity(CHUNK_BYTES + (64 << 10));
    let end = offline::read_lines(dir, |line| {
        chunk.extend_from_slice(line);
        chunk.push(b'\n');
        if chunk.len() < CHUNK_BYTES {
            return ControlFlow::Continue(());
        }
        bar.inc(chunk.len() as u64);
        let goes_on = verifier.feed(&chunk);
        chunk.clear();
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    verifier.feed(&chunk);
    bar.finish_and_clear();
    match end {
        Ok(end) => Source { damage: None, torn: end.torn },
        Err(error) => Source { damage: Some(damage(&error)), torn: None },
    }
}

/// An error with its cause: `cannot read x: permission denied`.
pub(super) fn damage(error: &JournalError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or(error.to_string(), |cause| format!("{error}: {cause}"))
}

/// The four facts, in words.
fn show(out: &mut Out, answer: &Answer<'_>) -> Result<(), Failure> {
    let report = answer.report;
    let (tone, text) = integrity(answer);
    fact(out, "integrity", tone, &text)?;
    let (tone, text) = authenticity(&report.authenticity);
    fact(out, "authenticity", tone, &text)?;
    let (tone, text) = completeness(&report.completeness);
    fact(out, "completeness", tone, &text)?;
    let (tone, text) = freshness(&report.freshness);
    fact(out, "freshness", tone, &text)?;
    if let Some(torn) = &answer.torn {
        let text = "ends in bytes that are no whole batch: the daemon was killed there, or they are damage; only a \
                    checkpoint can tell";
        fact(out, "note", Tone::Doubtful, &format!("{} {text}", torn.display()))?;
    }
    let (tone, text) = result(answer);
    fact(out, "result", tone, &text)?;
    out.flush()?;
    for warning in &report.warnings {
        tell!("warning: {}", super::out::clean(&warning.to_string()));
    }
    Ok(())
}

fn result(answer: &Answer<'_>) -> (Tone, String) {
    if !answer.ok {
        return (Tone::Bad, format!("NOT VERIFIED ({})", answer.codes.join(", ")));
    }
    let but = match answer.report.authenticity {
        Authenticity::Trusted { .. } => return (Tone::Good, "verified".to_owned()),
        Authenticity::UnknownKey { .. } => "without --trust anybody could have signed the checkpoint",
        Authenticity::NoCheckpoint | Authenticity::Failed { .. } => {
            "without --checkpoint and --trust a cut tail or a ledger that was written anew looks the same"
        }
    };
    (Tone::Doubtful, format!("nothing speaks against it, but {but}"))
}

fn fact(out: &mut Out, name: &str, tone: Tone, text: &str) -> Result<(), Failure> {
    let name = out.paint(tone, &format!("{name:14}"));
    out.paragraph(&name, 14, text)
}

fn integrity(answer: &Answer<'_>) -> (Tone, String) {
    let Report { first_bad, records, runs, ledger, last_ts, .. } = answer.report;
    if let Some(Finding { line, seq, code, detail }) = first_bad {
        let seq = seq.map_or(String::new(), |seq| format!(", seq {seq}"));
        return (Tone::Bad, format!("BROKEN at line {line}{seq} ({code}): {detail}. {records} records before it hold"));
    }
    if let Some(damage) = &answer.damage {
        return (Tone::Bad, format!("BROKEN after {records} records (segment_damaged): {damage}"));
    }
    let ledger = ledger.map_or(String::new(), |ledger| format!(" of ledger {ledger}"));
    let last = last_ts.as_deref().unwrap_or("an unknown time");
    (Tone::Good, format!("ok: {records} records and {runs} runs{ledger} hold together; the last record is of {last}"))
}

fn authenticity(fact: &Authenticity) -> (Tone, String) {
    match fact {
        Authenticity::NoCheckpoint => (Tone::Doubtful, "nobody vouches for it: no checkpoint was given".to_owned()),
        Authenticity::UnknownKey { keys } => {
            let keys = keys.join(", ");
            (Tone::Doubtful, format!("signed by UNKNOWN key {keys}: pin the right one with --trust"))
        }
        Authenticity::Trusted { key } => (Tone::Good, format!("ok: signed by the trusted key {key}")),
        Authenticity::Failed { code, detail } => (Tone::Bad, format!("FAILED ({code}): {detail}")),
    }
}

fn completeness(fact: &Completeness) -> (Tone, String) {
    match fact {
        Completeness::Unknown => (Tone::Doubtful, "unknown: without a checkpoint a cut tail can't be told".to_owned()),
        Completeness::Covered { size } => {
            (Tone::Good, format!("ok: the checkpoint covers the first {size} records, and all are here"))
        }
        Completeness::NotReached { size, verified } => {
            let text = format!("unknown: the checkpoint covers {size} records, only {verified} could be verified");
            (Tone::Bad, text)
        }
        Completeness::Failed { code, detail } => (Tone::Bad, format!("FAILED ({code}): {detail}")),
    }
}

fn freshness(fact: &Freshness) -> (Tone, String) {
    match fact {
        Freshness::Unknown => (Tone::Doubtful, "unknown".to_owned()),
        Freshness::Current => (Tone::Good, "ok: the checkpoint covers the last record".to_owned()),
        Freshness::Unanchored { records } => {
            let text = "came after the checkpoint; they are chained, but nothing outside vouches for them";
            (Tone::Doubtful, format!("{records} records {text}"))
        }
    }
}
