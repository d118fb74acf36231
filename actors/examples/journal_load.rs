//! Writer and checker for power-cut tests of the journal: `write DIR` appends for ever and prints `seq leaf` of everything
//! acknowledged; `check DIR SEQ LEAF` opens the directory and says whether that record is there and all of it agrees.
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use reversi_actors::clock::RealClock;
use reversi_actors::journal::{Config, DiskJournal, Journal, NewRecord, Request};
use reversi_proto::canonical::Canonical;
use reversi_proto::ids::{Actor, LedgerId, RunId, StreamId};
use reversi_proto::ledger::{Draft, leaf, run_genesis};
use reversi_proto::wake::Wake;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["write", dir] => write(dir),
        ["check", dir, seq, leaf] => check(dir, seq, leaf),
        // Nothing was acknowledged before the cut.
        ["check", dir] => check(dir, "0", ""),
        _ => Err("usage: journal_load write DIR | check DIR SEQ LEAF".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn record(ledger: LedgerId, run: Option<&RunId>, run_seq: u64, stream: StreamId) -> Result<NewRecord, Failure> {
    let body = Canonical::parse(format!(r#"{{"pad":"{}"}}"#, "x".repeat(300)).as_bytes())?;
    let draft = Draft::new(ledger, &Actor::system(), "step.begun", &body, (run, run_seq), [7; 16])?;
    Ok(NewRecord { draft, private: vec![0x5a; 100], streams: vec![(stream, Wake::Now)] })
}

fn open(dir: &str) -> Result<DiskJournal, Failure> {
    let mut config = Config::new(dir);
    (config.segment_bytes, config.free_bytes_min) = (1 << 20, 1 << 20);
    config.apply_interval = std::time::Duration::from_millis(5);
    Ok(DiskJournal::open(config, Arc::new(RealClock::start()), |ledger, _| {
        record(ledger, None, 0, StreamId::Ledger).unwrap_or_else(|error| panic!("{error}"))
    })?)
}

fn write(dir: &str) -> Result<(), Failure> {
    let journal = Arc::new(open(dir)?);
    let runtime = tokio::runtime::Runtime::new()?;
    let clients = (0..8).map(|number| runtime.spawn(client(Arc::clone(&journal), number))).collect::<Vec<_>>();
    clients.into_iter().try_for_each(|client| runtime.block_on(client)?)
}

/// Starts runs of a few records, for ever.
async fn client(journal: Arc<DiskJournal>, number: usize) -> Result<(), Failure> {
    for round in 0_u64.. {
        let run: RunId = format!("run_{}_{number}_{round}", journal.head()).parse()?;
        let (stream, mut prev, mut version) =
            (StreamId::Run(run.clone()), run_genesis(journal.ledger(), Some(&run)), None);
        for run_seq in 0..20 {
            let request = Request {
                expect: vec![(stream.clone(), version)],
                read_at: journal.head(),
                records: vec![record(journal.ledger(), Some(&run), run_seq, stream.clone())?],
                run_prev: Some(prev),
                run_key: (run_seq == 0).then(|| (run.clone(), [9; 32])),
                ..Request::default()
            };
            let appended = journal.append(request).await?;
            (prev, version) = (appended[0].leaf, Some(appended[0].seq));
            let mut out = std::io::stdout().lock();
            writeln!(out, "{} {}", appended[0].seq, appended[0].leaf)?;
            out.flush()?;
        }
    }
    Ok(())
}

fn check(dir: &str, seq: &str, expected: &str) -> Result<(), Failure> {
    let journal = open(dir)?;
    let seq: u64 = seq.parse()?;
    let found = journal.lines(seq, 1)?;
    let found = found.first().map(|line| leaf(line).to_string()).unwrap_or_default();
    if !expected.is_empty() && found != expected {
        return Err(format!("record {seq} was acknowledged as {expected}, found {found:?}").into());
    }
    let mut records = 0;
    for run in journal.streams("run/", None, usize::MAX)? {
        records += journal.load(&run, 0)?.len();
    }
    println!("head {}, {records} records of runs, record {seq} is there", journal.head());
    // The ledger's first record is of no run, all others are.
    if records as u64 + 1 == journal.head() { Ok(()) } else { Err("the event store lacks records".into()) }
}
