//! What the journal's tests share: a directory with a simulated clock, records, and pictures of a journal's whole state.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reversi_actors::clock::SimClock;
use reversi_actors::journal::{
    AppendError, Appended, Config, DiskJournal, Journal, JournalError, NewRecord, Request, StoredRecord,
};
use reversi_proto::canonical::Canonical;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{Actor, LedgerId, RunId, Seq, StreamId};
use reversi_proto::ledger::{Draft, run_genesis};
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;

/// Seconds after the tests' beginning of time.
pub fn at(seconds: u64) -> Timestamp {
    "2026-10-01T00:00:00.000000Z".parse::<Timestamp>().unwrap().plus_ms(seconds * 1000)
}

pub fn run_id(name: &str) -> RunId {
    name.parse().unwrap()
}

/// A directory and the settings to open it with.
pub struct Bed {
    pub root: tempfile::TempDir,
    pub clock: Arc<SimClock>,
    pub config: Config,
}

impl Bed {
    /// Small segments, and an applier that is quick.
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut config = Config::new(root.path().join("data"));
        config.segment_bytes = 64 << 10;
        config.apply_interval = std::time::Duration::from_millis(1);
        config.free_space = Some(Arc::new(|| u64::MAX));
        config.boot_id = Some("boot-1".to_owned());
        config.fatal = Arc::new(|why| panic!("fatal: {why}"));
        Self { root, clock: Arc::new(SimClock::at(at(0))), config }
    }

    pub fn open(&self) -> DiskJournal {
        self.try_open().unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_open(&self) -> Result<DiskJournal, JournalError> {
        DiskJournal::open(self.config.clone(), Arc::clone(&self.clock) as _, |ledger, verifier| {
            let body = format!(r#"{{"verifier":"{verifier}"}}"#);
            draft(ledger, "ledger.opened", &body, None, 0, vec![(StreamId::Ledger, Wake::None)])
        })
    }

    pub fn dir(&self) -> &Path {
        &self.config.dir
    }

    /// The segment files, oldest first.
    pub fn segments(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir().join("ledger")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "seg")).collect();
        files.sort();
        files
    }
}

pub fn draft(
    ledger: LedgerId,
    kind: &str,
    body: &str,
    run: Option<&RunId>,
    run_seq: u64,
    streams: Vec<(StreamId, Wake)>,
) -> NewRecord {
    let body = Canonical::parse(body.as_bytes()).unwrap();
    let draft = Draft::new(ledger, &Actor::system(), kind, &body, (run, run_seq), [7; 16]).unwrap();
    NewRecord { draft, private: format!("sealed {run_seq}").into_bytes(), streams }
}

/// A record of no run.
pub fn loose(ledger: LedgerId, note: &str, streams: Vec<(StreamId, Wake)>) -> Request {
    let body = format!(r#"{{"note":"{note}"}}"#);
    Request { records: vec![draft(ledger, "policy.loaded", &body, None, 0, streams)], ..Request::default() }
}

/// A run as its actor sees it.
#[derive(Clone)]
pub struct Run {
    pub ledger: LedgerId,
    pub id: RunId,
    pub next: u64,
    pub prev: Hash,
    pub version: Option<Seq>,
}

impl Run {
    pub fn new(journal: &dyn Journal, name: &str) -> Self {
        let (ledger, id) = (journal.ledger(), run_id(name));
        let prev = run_genesis(ledger, Some(&id));
        Self { ledger, id, next: 0, prev, version: None }
    }

    pub fn stream(&self) -> StreamId {
        StreamId::Run(self.id.clone())
    }

    /// One record for each set of further streams.
    pub fn request(&self, wake: Wake, further: &[Vec<(StreamId, Wake)>], pad: usize) -> Request {
        let record = |(position, further): (u64, &Vec<(StreamId, Wake)>)| {
            let body = format!(r#"{{"pad":"{}"}}"#, "x".repeat(pad));
            let mut streams = vec![(self.stream(), wake)];
            streams.extend(further.iter().cloned());
            let kind = if self.next + position == 0 { "run.started" } else { "step.begun" };
            draft(self.ledger, kind, &body, Some(&self.id), self.next + position, streams)
        };
        Request {
            expect: vec![(self.stream(), self.version)],
            read_at: 0,
            records: (0..).zip(further).map(record).collect(),
            run_prev: Some(self.prev),
            run_key: (self.next == 0).then(|| (self.id.clone(), [9; 32])),
            reserved: false,
        }
    }

    pub fn took(&mut self, appended: &[Appended]) {
        let last = appended.last().unwrap();
        self.next += appended.len() as u64;
        (self.prev, self.version) = (last.leaf, Some(last.seq));
    }

    /// Appends one record of this run.
    pub async fn step(&mut self, journal: &dyn Journal) -> Vec<Appended> {
        self.try_step(journal, 200, false).await.unwrap()
    }

    pub async fn try_step(
        &mut self,
        journal: &dyn Journal,
        pad: usize,
        reserved: bool,
    ) -> Result<Vec<Appended>, AppendError> {
        let mut request = self.request(Wake::None, &[vec![]], pad);
        (request.read_at, request.reserved) = (journal.head(), reserved);
        let appended = journal.append(request).await?;
        self.took(&appended);
        Ok(appended)
    }
}

/// Everything that can be read from a journal.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    pub head: Seq,
    pub lines: Vec<String>,
    pub streams: BTreeMap<String, Vec<StoredRecord>>,
    pub versions: BTreeMap<String, Option<Seq>>,
    pub due: Vec<(StreamId, Wake)>,
}

pub fn picture(journal: &dyn Journal) -> Picture {
    let mut lines = Vec::new();
    while (lines.len() as u64) < journal.head() {
        let more = journal.lines(lines.len() as u64, 10_000).unwrap();
        lines.extend(more.iter().map(|line| String::from_utf8(line.to_vec()).unwrap()));
    }
    let mut ids: Vec<StreamId> = Vec::new();
    loop {
        let more = journal.streams("", ids.last(), 3).unwrap();
        if more.is_empty() {
            break;
        }
        ids.extend(more);
    }
    let load = |id: &StreamId| (id.to_string(), journal.load(id, 0).unwrap());
    let version = |id: &StreamId| (id.to_string(), journal.version(id).unwrap());
    Picture {
        head: journal.head(),
        lines,
        streams: ids.iter().map(load).collect(),
        versions: ids.iter().map(version).collect(),
        due: journal.due(at(1_000_000), 1000).unwrap(),
    }
}

/// A little of everything: several runs, shared streams, alarms, large records, several segments.
pub async fn fill(journal: &dyn Journal, rounds: u64) {
    let claim = |n: u64| StreamId::Claim([u8::try_from(n % 3).unwrap(); 32]);
    let mut runs: Vec<Run> = ["m", "n", "n.o"].iter().map(|name| Run::new(journal, name)).collect();
    for round in 0..rounds {
        for (position, run) in (0..).zip(&mut runs) {
            let wake = match (round + position) % 4 {
                0 => Wake::Now,
                1 => Wake::At(at(100 + round)),
                2 => Wake::None,
                _ => Wake::At(at(50)),
            };
            let undo = StreamId::Undo(run.id.clone(), u32::try_from(round).unwrap());
            let further = [vec![(claim(round), Wake::None)], vec![(undo, Wake::Now)]];
            let pad = if round % 5 == 4 { 6000 } else { 300 };
            let mut request = run.request(wake, &further, pad);
            request.read_at = journal.head();
            let appended = journal.append(request).await.unwrap();
            run.took(&appended);
        }
        let note = loose(journal.ledger(), "hello", vec![(StreamId::Config, Wake::None), (StreamId::Halt, Wake::None)]);
        journal.append(note).await.unwrap();
    }
}
