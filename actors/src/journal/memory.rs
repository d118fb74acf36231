//! A journal in memory, for simulations and for tests that need no disk: the same promises but durability.
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{LedgerId, RunId, Seq, StreamId};
use reversi_proto::ledger::{Frontier, genesis, leaf, run_genesis};
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;

use super::{
    AppendError, Appended, Journal, JournalError, LedgerKeys, NewRecord, PublishedRecord, Publisher, Request,
    SignedCheckpoint, Stats, StoredRecord,
};
use crate::clock::Clock;

/// Everything in memory; what is appended lives as long as this.
pub struct MemoryJournal {
    ledger: LedgerId,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: Vec<StoredRecord>,
    streams: BTreeMap<String, (StreamId, Vec<Seq>, Wake)>,
    keys: HashMap<RunId, [u8; 32]>,
    prev: Hash,
    no_run: (u64, Hash),
    last_ts: Timestamp,
    frontier: Frontier,
    publisher: Option<Publisher>,
    closed: bool,
}

impl MemoryJournal {
    /// A new ledger, opened by the given record.
    pub fn open(ledger: LedgerId, clock: Arc<dyn Clock>, first: NewRecord) -> Self {
        let state = State { prev: genesis(ledger), no_run: (0, run_genesis(ledger, None)), ..State::default() };
        let journal = Self { ledger, clock, state: Mutex::new(state) };
        let request = Request { records: vec![first], ..Request::default() };
        let _ = journal.append_now(request);
        journal
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append_now(&self, request: Request) -> Result<Vec<Appended>, AppendError> {
        let mut state = self.state();
        if state.closed {
            return Err(AppendError::Closed);
        }
        for (stream, expected) in &request.expect {
            let found = state.version(stream);
            if found != *expected {
                return Err(AppendError::Conflict { stream: stream.clone(), expected: *expected, found });
            }
        }
        if let Some((run, key)) = request.run_key {
            state.keys.insert(run, key);
        }
        let (mut run_prev, mut appended, mut published) = (request.run_prev, Vec::new(), Vec::new());
        for new in request.records {
            let record = state.push(&new, run_prev, self.clock.now());
            run_prev = run_prev.map(|_| record.leaf);
            published.push(PublishedRecord { record: record.clone(), private: new.private, streams: new.streams });
            appended.push(record);
        }
        // Told under the lock, so that batches are told in order, as the writer's thread does.
        if let Some(publisher) = state.publisher.clone() {
            publisher(published.into());
        }
        Ok(appended)
    }
}

impl State {
    fn version(&self, stream: &StreamId) -> Option<Seq> {
        self.streams.get(&stream.to_string())?.1.last().copied()
    }

    fn push(&mut self, new: &NewRecord, run_prev: Option<Hash>, now: Timestamp) -> Appended {
        let seq = self.records.len() as Seq;
        let ts = now.max(self.last_ts);
        let mut line = Vec::new();
        if let Some(run_prev) = run_prev {
            new.draft.stamp(seq, self.prev, run_prev, ts, &mut line);
        } else {
            let mut draft = new.draft.clone();
            draft.set_run_seq(self.no_run.0);
            draft.stamp(seq, self.prev, self.no_run.1, ts, &mut line);
        }
        let (leaf, line): (Hash, Arc<[u8]>) = (leaf(&line), line.into());
        if run_prev.is_none() {
            self.no_run = (self.no_run.0 + 1, leaf);
        }
        for (stream, wake) in &new.streams {
            let entry = self.streams.entry(stream.to_string());
            let entry = entry.or_insert_with(|| (stream.clone(), Vec::new(), Wake::None));
            entry.1.push(seq);
            entry.2 = *wake;
        }
        self.records.push(StoredRecord { seq, leaf, line: Arc::clone(&line), private: new.private.clone() });
        self.frontier.append(leaf);
        (self.prev, self.last_ts) = (leaf, ts);
        Appended { seq, ts, leaf, line }
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn append(&self, request: Request) -> Result<Vec<Appended>, AppendError> {
        // As with a disk, others read and decide before this is durable: a race that can't happen proves nothing.
        tokio::task::yield_now().await;
        self.append_now(request)
    }
    fn head(&self) -> Seq {
        self.state().records.len() as Seq
    }
    fn version(&self, stream: &StreamId) -> Result<Option<Seq>, JournalError> {
        Ok(self.state().version(stream))
    }
    fn load(&self, stream: &StreamId, from: Seq) -> Result<Vec<StoredRecord>, JournalError> {
        let state = self.state();
        let seqs = state.streams.get(&stream.to_string()).map(|(_, seqs, _)| seqs.as_slice()).unwrap_or_default();
        let index = |seq: &Seq| usize::try_from(*seq).unwrap_or(usize::MAX);
        Ok(seqs.iter().filter(|seq| **seq >= from).filter_map(|seq| state.records.get(index(seq)).cloned()).collect())
    }
    fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(StreamId, Wake)>, JournalError> {
        let state = self.state();
        let mut due: Vec<(StreamId, Wake)> = state
            .streams
            .values()
            .filter(|(_, _, wake)| match wake {
                Wake::None => false,
                Wake::Now => true,
                Wake::At(at) => *at <= until,
            })
            .map(|(stream, _, wake)| (stream.clone(), *wake))
            .collect();
        due.sort_by_key(|(_, wake)| *wake);
        due.truncate(limit);
        Ok(due)
    }
    fn streams(&self, prefix: &str, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, JournalError> {
        let (state, after) = (self.state(), after.map(ToString::to_string));
        let wanted = |text: &&String| text.starts_with(prefix) && after.as_ref().is_none_or(|after| *text > after);
        let keys = state.streams.keys().filter(wanted).take(limit);
        Ok(keys.filter_map(|text| Some(state.streams.get(text)?.0.clone())).collect())
    }
    fn lines(&self, from: Seq, bytes_max: usize) -> Result<Vec<Arc<[u8]>>, JournalError> {
        let (state, mut bytes, mut lines) = (self.state(), 0, Vec::new());
        for record in state.records.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            bytes += record.line.len() + 1;
            if bytes > bytes_max && !lines.is_empty() {
                break;
            }
            lines.push(Arc::clone(&record.line));
        }
        Ok(lines)
    }
    fn run_key(&self, run: &RunId) -> Option<[u8; 32]> {
        self.state().keys.get(run).copied()
    }
    fn runs_without_key(&self) -> Result<Vec<RunId>, JournalError> {
        Ok(Vec::new())
    }
    fn was_restored(&self) -> bool {
        false
    }
    fn ledger_keys(&self) -> LedgerKeys {
        LedgerKeys { hmac: [1; 32], seal: [2; 32] }
    }
    fn ledger(&self) -> LedgerId {
        self.ledger
    }
    fn checkpoint(&self) -> Option<SignedCheckpoint> {
        None
    }
    async fn sign_checkpoint(&self) -> Result<SignedCheckpoint, JournalError> {
        Err(JournalError::Closed)
    }
    fn publish_to(&self, publisher: Publisher) {
        self.state().publisher = Some(publisher);
    }
    fn stats(&self) -> Stats {
        let head = self.head();
        Stats { head, applied: head, ..Stats::default() }
    }
    async fn close(&self) -> Result<(), JournalError> {
        self.state().closed = true;
        Ok(())
    }
}
