//! `reversi doctor`: which invariants does a data directory, or an export, violate? Must not change anything, and must not
//! know the invariants: they are `reversi_proto::doctor`'s.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use reversi_actors::journal::offline::{self, StoreCopy};
use reversi_proto::doctor::{Counts, Doctor, Invariant, Violation};
use reversi_proto::ids::Seq;
use reversi_proto::ledger::verify::{Options, Verifier};
use reversi_proto::ledger::{LINE_BYTES_MAX, Line, leaf};
use serde::Serialize;

use super::failure::{Failure, exit};
use super::out::{Out, Tone, tell};
use super::{progress, verify};

/// Violations of one invariant that are shown; JSON has more.
const SHOWN_MAX: usize = 5;

/// Checks a data directory for broken invariants.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing is changed. While a daemon runs, what it is writing right now is not seen, and its event store is not compared.

Exit codes: 0 every invariant holds, 1 one is violated, 64 the command line is wrong.

Examples:
  reversi doctor reversi-data
  reversi doctor ledger.jsonl --json")]
pub(super) struct DoctorArgs {
    /// A data directory, or an exported .jsonl file
    path: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    ok: bool,
    counts: Counts,
    invariants: Vec<Judged>,
    /// What could not be looked at.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Judged {
    invariant: Invariant,
    text: &'static str,
    ok: bool,
    violations: Vec<Violation>,
}

/// Everything that looks at the records as they pass.
struct Exam<'a> {
    doctor: Doctor,
    verifier: Verifier<'a>,
    /// Seq of the last record of each stream, up to what the event store has.
    versions: BTreeMap<String, Seq>,
    applied: Seq,
    found: Vec<Violation>,
    notes: Vec<String>,
}

pub(super) fn run(args: &DoctorArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let path = &args.path;
    let known_type = |kind: &str| reversi_proto::event::KINDS.contains(&kind);
    let (lenient, checkpoint, require_checkpoint, trust) = (false, None, false, None);
    let options = Options { known_type: &known_type, lenient, checkpoint, require_checkpoint, trust };
    let mut exam = Exam {
        doctor: Doctor::default(),
        verifier: Verifier::new(options),
        versions: BTreeMap::new(),
        applied: 0,
        found: Vec::new(),
        notes: Vec::new(),
    };
    let is_dir = std::fs::metadata(path).map_err(|error| Failure::io("read", path, &error))?.is_dir();
    if is_dir && !offline::is_data_dir(path) {
        let text = "is no data directory: it holds no segment in ledger/";
        return Err(Failure::Input(format!("{} {text}", path.display())));
    }
    if is_dir {
        exam.data_dir(path)?;
    } else {
        exam.export(path)?;
    }
    let answer = exam.judge();
    let code = if answer.ok { exit::OK } else { exit::FAILED };
    out.judged(code);
    if args.json {
        out.json(&answer)?;
    } else {
        show(out, &answer)?;
    }
    Ok(ExitCode::from(code))
}

impl Exam<'_> {
    fn data_dir(&mut self, dir: &Path) -> Result<(), Failure> {
        let scratch = tempfile::tempdir()
            .map_err(|error| Failure::Input(format!("no temporary directory can be made: {error}")))?;
        let store = self.open_store(dir, scratch.path());
        self.applied = store.as_ref().map_or(0, StoreCopy::applied);
        let bar = progress::bytes(offline::ledger_bytes(dir), "examining");
        let end = offline::read_records(dir, |record| {
            bar.inc(record.line.len() as u64);
            self.take(record.line, record.streams);
            if record.seq < self.applied {
                for stream in record.streams {
                    match self.versions.get_mut(*stream) {
                        Some(version) => *version = record.seq,
                        None => drop(self.versions.insert((*stream).to_owned(), record.seq)),
                    }
                }
            }
            ControlFlow::Continue(())
        });
        bar.finish_and_clear();
        match end {
            Ok(end) => {
                self.notes.extend(end.torn.map(|path| {
                    let text = "ends in bytes that are no whole batch: the daemon was killed there, or they are damage";
                    format!("{} {text}", path.display())
                }));
                if let Some(store) = store {
                    self.compare(&store, end.records, dir);
                }
            }
            Err(error) => self.violated(Invariant::I5, self.verifier.records(), verify::damage(&error)),
        }
        Ok(())
    }

    /// A copy of the event store, where there is one that a daemon would trust.
    fn open_store(&mut self, dir: &Path, scratch: &Path) -> Option<StoreCopy> {
        let why = if offline::is_locked(dir) {
            "a daemon has the directory open, so its event store is not compared".to_owned()
        } else {
            match StoreCopy::open(dir, scratch) {
                Ok(Some(store)) => return Some(store),
                Ok(None) => "there is no whole event store; the daemon rebuilds it from the ledger".to_owned(),
                Err(error) => format!("the event store is not compared: {}", verify::damage(&error)),
            }
        };
        self.notes.push(why);
        None
    }

    /// I6: the event store has every stream where the ledger has it.
    fn compare(&mut self, store: &StoreCopy, records: Seq, dir: &Path) {
        if offline::is_locked(dir) {
            return self.notes.push("a daemon was started meanwhile, so its event store is not compared".to_owned());
        }
        if self.applied > records {
            let detail =
                format!("the event store has {} records, the ledger only {records}: its tail was cut", self.applied);
            return self.violated(Invariant::I6, records, detail);
        }
        let mut wrong = Vec::new();
        for (stream, version) in &self.versions {
            match store.version(stream) {
                Ok(found) if found == Some(*version) => {}
                Ok(found) => {
                    let found = found.map_or("nothing".to_owned(), |seq| format!("seq {seq}"));
                    wrong.push((*version, format!("the event store has {found} as the last record of {stream}")));
                }
                Err(error) => wrong.push((*version, verify::damage(&error))),
            }
        }
        let streams = store.streams().unwrap_or(self.versions.len());
        if streams != self.versions.len() {
            let detail = format!("the event store knows {streams} streams, the ledger {}", self.versions.len());
            wrong.push((self.applied, detail));
        }
        for (seq, detail) in wrong {
            self.violated(Invariant::I6, seq, detail);
        }
    }

    fn export(&mut self, path: &Path) -> Result<(), Failure> {
        self.notes.push("this is an export, so streams and event store are not compared".to_owned());
        let failed = |error: std::io::Error| Failure::io("read", path, &error);
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line that is too long is cut: the verifier has its words for it.
            let limit = LINE_BYTES_MAX as u64 + 2;
            if (&mut file).take(limit).read_until(b'\n', &mut line).map_err(failed)? == 0 {
                return Ok(());
            }
            let Some(whole) = line.strip_suffix(b"\n") else {
                self.verifier.feed(&line);
                return Ok(());
            };
            self.take(whole, &[]);
        }
    }

    fn take(&mut self, line: &[u8], streams: &[&str]) {
        self.verifier.feed(line);
        self.verifier.feed(b"\n");
        // What is no line of a ledger is the verifier's to report.
        if let Ok(parsed) = Line::parse(line) {
            self.doctor.feed(&parsed, leaf(line), streams);
        }
    }

    fn violated(&mut self, invariant: Invariant, seq: Seq, detail: String) {
        self.found.push(Violation { invariant, seq, detail });
    }

    fn judge(mut self) -> Answer {
        let report = self.verifier.finish();
        if let Some(bad) = &report.first_bad {
            let detail = format!("line {}: {} ({})", bad.line, bad.detail, bad.code);
            self.found.push(Violation { invariant: Invariant::I5, seq: bad.seq.unwrap_or(report.records), detail });
        }
        let (violations, counts) = self.doctor.finish();
        self.found.extend(violations);
        let judged = |invariant: &Invariant| {
            let of_this = self.found.iter().filter(|violation| violation.invariant == *invariant);
            let violations: Vec<Violation> = of_this.cloned().collect();
            Judged { invariant: *invariant, text: invariant.text(), ok: violations.is_empty(), violations }
        };
        let invariants: Vec<Judged> = Invariant::ALL.iter().map(judged).collect();
        Answer { ok: self.found.is_empty(), counts, invariants, notes: self.notes }
    }
}

fn show(out: &mut Out, answer: &Answer) -> Result<(), Failure> {
    for judged in &answer.invariants {
        let (tone, word) = if judged.ok { (Tone::Good, "ok") } else { (Tone::Bad, "violated") };
        let word = out.paint(tone, &format!("{word:10}"));
        out.paragraph(&format!("{:8}{word}", judged.invariant.as_str()), 18, judged.text)?;
        for violation in judged.violations.iter().take(SHOWN_MAX) {
            out.paragraph("", 18, &violation.to_string())?;
        }
        if judged.violations.len() > SHOWN_MAX {
            out.line(format!("{:18}and {} more (see --json)", "", judged.violations.len() - SHOWN_MAX))?;
        }
    }
    let Counts { records, runs, steps, undo_attempts, open_intents, .. } = answer.counts;
    out.flush()?;
    tell!(
        "{records} records, {runs} runs, {steps} steps, {undo_attempts} undo attempts; {open_intents} intents are open"
    );
    answer.notes.iter().for_each(|note| tell!("note: {note}"));
    Ok(())
}
