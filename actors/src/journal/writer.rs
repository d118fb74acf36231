//! The single writer: one plain thread that checks, stamps, writes and syncs whole batches of requests, and only then
//! answers. Must not read sled, and must not know what a record means.
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use reversi_proto::hash::Hash;
use reversi_proto::ids::{LedgerId, RunId, Seq, StreamId};
use reversi_proto::ledger::leaf;
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;
use tokio::sync::{mpsc, oneshot};

use super::error::is_full;
use super::frame::{self, BATCH_HEAD_BYTES, Chain, PAGE_BYTES, Record};
use super::keys::{KeyError, KeyFile};
use super::prepare::Preparer;
use super::recent::{Recent, Verdict};
use super::segment::{OpenSegment, Pointer};
use super::shared::Shared;
use super::tail::Advance;
use super::{AppendError, Appended, NewRecord, PublishedRecord, Request};
use crate::clock::Clock;
use crate::failpoint::failpoint;

/// How long those who were answered together are waited for.
const LINGER_MAX: Duration = Duration::from_micros(100);

/// How an append is answered.
pub(crate) type Reply = oneshot::Sender<Result<Vec<Appended>, AppendError>>;

/// What the writer is sent.
pub(crate) enum Message {
    Append(Request, Reply),
    /// Answer what is queued, then stop.
    Close,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) queue: mpsc::Receiver<Message>,
    pub(crate) open: OpenSegment,
    pub(crate) keys: KeyFile,
    pub(crate) chain: Chain,
    pub(crate) recent: Recent,
    batch: Batch,
    /// A message that did not fit into the batch before.
    carried: Option<Message>,
    /// Requests in the batch before.
    requests: usize,
}

/// A group commit in the making.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    records: Vec<Built>,
    keys: Vec<(RunId, [u8; 32])>,
    /// (whom to answer, how many of the records are theirs).
    accepted: Vec<(Reply, usize)>,
    /// Answered with the others: who conflicts with a record of this batch must find it durable when loading again.
    refused: Vec<(Reply, AppendError)>,
    /// It does not fit into the open segment any more.
    roll: bool,
}

struct Built {
    appended: Appended,
    private: Vec<u8>,
    streams: Vec<(StreamId, Wake)>,
    names: Vec<Arc<str>>,
    offset: usize,
    len: usize,
}

/// Whether a request has room.
enum Room {
    Yes,
    /// In the next segment, so the batch must roll.
    AfterRoll,
    /// Only once this batch is written.
    NextBatch,
    No(AppendError),
}

/// The batch came to nothing.
enum Failed {
    /// There was no room; nothing is stored.
    Full,
    /// It may be stored or not: nothing can be acknowledged any more.
    Fatal(String),
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        queue: mpsc::Receiver<Message>,
        (open, keys, chain): (OpenSegment, KeyFile, Chain),
    ) -> Self {
        let recent = Recent::new(chain.next);
        Self { shared, clock, queue, open, keys, chain, recent, batch: Batch::default(), carried: None, requests: 0 }
    }

    /// The thread: one group commit after the other, until told to close or all handles are gone. Returns the chain's end.
    pub(crate) fn run(mut self) -> Chain {
        while let Some(message) = self.carried.take().or_else(|| self.queue.blocking_recv()) {
            if self.shared.has_failed() {
                break;
            }
            let before = self.chain.clone();
            self.linger();
            self.gather(message);
            if let Err(failed) = self.commit(&before) {
                self.give_up(before, failed);
            }
        }
        // Whoever still waits is told `Closed` by the drop of its reply.
        self.queue.close();
        self.chain
    }

    /// Whoever was answered together asks again within microseconds; a sync takes a hundred times longer, and without this
    /// the first one back would have it alone. A lone appender never waits.
    fn linger(&self) {
        let begun = Instant::now();
        while self.queue.len() + 1 < self.requests && begun.elapsed() < LINGER_MAX {
            std::thread::yield_now();
        }
    }

    /// Takes the message and what else is waiting, up to the bounds of a batch.
    fn gather(&mut self, first: Message) {
        let now = self.clock.now().max(self.chain.ts);
        let (requests_max, bytes_max) = (self.shared.config.batch_requests, self.shared.config.batch_bytes);
        self.batch.bytes.clear();
        self.batch.bytes.resize(BATCH_HEAD_BYTES, 0);
        let mut next = Some(first);
        let mut requests = 0;
        while let Some(message) = next.take() {
            match message {
                Message::Close => self.queue.close(),
                Message::Append(request, reply) => {
                    requests += 1;
                    if let Some(carried) = self.take_in(request, reply, now) {
                        self.carried = Some(carried);
                        break;
                    }
                }
            }
            if requests < requests_max && self.batch.bytes.len() < bytes_max {
                next = self.queue.try_recv().ok();
            }
        }
        self.requests = requests;
    }

    /// Decides about one request; gives it back if it must wait for the next batch.
    fn take_in(&mut self, request: Request, reply: Reply, now: Timestamp) -> Option<Message> {
        if !is_of_one_run(&request) {
            self.batch.refused.push((reply, AppendError::Mixed));
            return None;
        }
        if let Err(error) = self.check(&request) {
            self.batch.refused.push((reply, error));
            return None;
        }
        match self.room(&request) {
            Room::No(error) => {
                self.batch.refused.push((reply, error));
                return None;
            }
            Room::NextBatch => return Some(Message::Append(request, reply)),
            Room::AfterRoll => self.batch.roll = true,
            Room::Yes => {}
        }
        let count = request.records.len();
        self.stamp(request, now);
        self.batch.accepted.push((reply, count));
        None
    }

    fn check(&self, request: &Request) -> Result<(), AppendError> {
        for (stream, expected) in &request.expect {
            let verdict = self.recent.check(&stream.to_string(), *expected, request.read_at);
            if let Verdict::Conflict { found } = verdict {
                return Err(AppendError::Conflict { stream: stream.clone(), expected: *expected, found });
            }
        }
        Ok(())
    }

    fn room(&self, request: &Request) -> Room {
        let need: usize = request.records.iter().map(bytes_max).sum();
        let preparer = &self.shared.preparer;
        let capacity = self.shared.config.segment_bytes - 2 * PAGE_BYTES as u64;
        let (need, used) = (need as u64, self.batch.bytes.len() as u64);
        if BATCH_HEAD_BYTES as u64 + need > capacity {
            let fits = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            return Room::No(AppendError::TooLarge { bytes: fits(need), bytes_max: fits(capacity) });
        }
        if !request.reserved && preparer.is_low() {
            return Room::No(AppendError::Full);
        }
        let left = self.open.end - self.open.at;
        if !self.batch.roll && used + need <= left {
            // Without a next segment, the last quarter of this one is kept for outcomes.
            let kept = if preparer.is_full() { self.shared.config.segment_bytes / 4 } else { 0 };
            let fits = request.reserved || used + need + kept <= left;
            return if fits { Room::Yes } else { Room::No(AppendError::Full) };
        }
        if used + need > capacity {
            return Room::NextBatch;
        }
        if preparer.wait_ready() { Room::AfterRoll } else { Room::No(AppendError::Full) }
    }

    /// Builds the lines of an accepted request, each linked to the one before.
    fn stamp(&mut self, request: Request, now: Timestamp) {
        let keyed = request.run_key.is_some();
        self.batch.keys.extend(request.run_key);
        let mut run_prev = request.run_prev;
        for (position, NewRecord { mut draft, private, streams }) in request.records.into_iter().enumerate() {
            let seq = self.chain.next;
            let mut line = Vec::new();
            if run_prev.is_none() {
                draft.set_run_seq(self.chain.loose);
            }
            draft.stamp(seq, self.chain.leaf, run_prev.unwrap_or(self.chain.loose_leaf), now, &mut line);
            let leaf = leaf(&line);
            self.chain.push(leaf, now, run_prev.is_none());
            run_prev = run_prev.map(|_| leaf);
            let names: Vec<Arc<str>> = streams.iter().map(|(stream, _)| Arc::from(stream.to_string())).collect();
            for name in &names {
                self.recent.advance(name, seq);
            }
            let offset = self.batch.bytes.len();
            let wakes = names.iter().zip(&streams).map(|(name, (_, wake))| (&**name, *wake)).collect();
            let loose = run_prev.is_none();
            let keyed = keyed && position == 0;
            let record = Record { line: &line, private: &private, ts: now, loose, keyed, streams: wakes };
            frame::put_record(&mut self.batch.bytes, &record);
            let len = self.batch.bytes.len() - offset;
            let appended = Appended { seq, ts: now, leaf, line: line.into() };
            self.batch.records.push(Built { appended, private, streams, names, offset, len });
        }
    }

    /// Makes the batch durable, then known, then answers.
    fn commit(&mut self, before: &Chain) -> Result<(), Failed> {
        if !self.batch.records.is_empty() {
            failpoint!("journal.before_append");
            self.write_keys()?;
            if self.batch.roll {
                self.roll(before)?;
            }
            let place = self.write(before.next)?;
            // Durable, then memory, then the world.
            self.remember(place);
            self.publish();
        }
        failpoint!("journal.before_reply");
        self.reply();
        Ok(())
    }

    fn write_keys(&mut self) -> Result<(), Failed> {
        if self.batch.keys.is_empty() {
            return Ok(());
        }
        self.shared.syncs.fetch_add(1, Ordering::Relaxed);
        self.keys.append(&self.batch.keys).map_err(|error| match error {
            KeyError::Write(error) if is_full(&error) => Failed::Full,
            KeyError::Write(error) => Failed::Fatal(format!("private.keys can't be written: {error}")),
            KeyError::Sync(error) => Failed::Fatal(format!("private.keys can't be synced: {error}")),
        })
    }

    /// Closes the open segment and begins the prepared one.
    fn roll(&mut self, before: &Chain) -> Result<(), Failed> {
        failpoint!("journal.roll.before");
        let ledger = self.shared.ledger;
        let fatal = |error| Failed::Fatal(format!("the next segment can't be begun: {error}"));
        let Some(file) = self.shared.preparer.take() else { return Err(Failed::Full) };
        // As long as no footer is synced, a lack of room changes nothing: the open segment goes on.
        let written = OpenSegment::write_header(&file, ledger, before);
        match written.and_then(|()| self.open.write_footer(ledger, before)) {
            Err(error) if is_full(&error) => {
                self.shared.preparer.put_back(file);
                return Err(Failed::Full);
            }
            other => other.map_err(fatal)?,
        }
        self.open.file.sync_data().map_err(fatal)?;
        let config = &self.shared.config;
        let open = OpenSegment::place(&Preparer::path(config), file, &config.ledger_dir(), ledger, before.next);
        self.open = open.map_err(fatal)?;
        self.shared.segments.add(self.open.first);
        self.shared.preparer.taken();
        self.shared.rolls.fetch_add(1, Ordering::Relaxed);
        self.shared.syncs.fetch_add(3, Ordering::Relaxed);
        failpoint!("journal.roll.after");
        Ok(())
    }

    /// One positioned write, one sync. Returns where the batch stands.
    fn write(&mut self, first: Seq) -> Result<u64, Failed> {
        use std::os::unix::fs::FileExt;
        let records = u32::try_from(self.batch.records.len()).unwrap_or(u32::MAX);
        frame::seal_batch(&mut self.batch.bytes, self.open.seed, first, records);
        let path = self.open.path.display();
        let place = self.open.at;
        match self.open.file.write_all_at(&self.batch.bytes, place) {
            // The bytes that did get there are no valid batch, and the next one is written over them.
            Err(error) if is_full(&error) => return Err(Failed::Full),
            Err(error) => return Err(Failed::Fatal(format!("{path} can't be written: {error}"))),
            Ok(()) => {}
        }
        failpoint!("journal.after_write");
        // Never again after a failure: the kernel may have dropped the pages and report success next time.
        let synced = self.open.file.sync_data();
        synced.map_err(|error| Failed::Fatal(format!("{path} can't be synced: {error}")))?;
        failpoint!("journal.after_sync");
        self.open.at += self.batch.bytes.len() as u64;
        Ok(place)
    }

    /// Memory follows: the overlay first and the head last, so that whoever sees the head finds the records.
    fn remember(&mut self, place: u64) {
        let shared = &self.shared;
        let mut advances = Vec::with_capacity(self.batch.records.len());
        for built in &mut self.batch.records {
            let len = u32::try_from(built.len).unwrap_or(u32::MAX);
            let place = Pointer { segment: self.open.first, offset: place + built.offset as u64, len };
            let names = std::mem::take(&mut built.names);
            advances.extend(names.into_iter().zip(&built.streams).map(|(stream, (_, wake))| Advance {
                stream,
                seq: built.appended.seq,
                place,
                wake: *wake,
            }));
        }
        shared.tail.add(advances);
        shared.durable.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.chain.frontier);
        let (before, head) = (shared.head.swap(self.chain.next, Ordering::SeqCst), self.chain.next);
        shared.batches.fetch_add(1, Ordering::Relaxed);
        shared.syncs.fetch_add(1, Ordering::Relaxed);
        shared.bytes.fetch_add(self.batch.bytes.len() as u64, Ordering::Relaxed);
        shared.preparer.set_used(self.open.at);
        let applied = shared.applied.load(Ordering::SeqCst);
        if crosses(before, head, applied, shared.config.apply_records) {
            shared.applies.ring(|_| {});
        }
        if crosses(before, head, shared.signed.load(Ordering::SeqCst), shared.config.checkpoint_records) {
            shared.checkpoints.ring(|_| {});
        }
        self.recent.keep();
        self.recent.forget_before(applied.min(head.saturating_sub(shared.config.window)));
    }

    fn publish(&mut self) {
        let publisher = self.shared.publisher.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(publisher) = publisher else { return };
        let told = self.batch.records.iter_mut().map(|built| PublishedRecord {
            record: built.appended.clone(),
            private: std::mem::take(&mut built.private),
            streams: std::mem::take(&mut built.streams),
        });
        publisher(told.collect());
    }

    /// Whoever has gone away meanwhile does not mind.
    fn reply(&mut self) {
        let mut records = self.batch.records.drain(..).map(|built| built.appended);
        for (reply, count) in self.batch.accepted.drain(..) {
            let _ = reply.send(Ok(records.by_ref().take(count).collect()));
        }
        for (reply, error) in self.batch.refused.drain(..) {
            let _ = reply.send(Err(error));
        }
        drop(records);
        self.batch.keys.clear();
        self.batch.roll = false;
    }

    fn give_up(&mut self, before: Chain, failed: Failed) {
        self.chain = before;
        self.recent.take_back();
        self.batch.records.clear();
        self.batch.keys.clear();
        self.batch.roll = false;
        let error = match failed {
            Failed::Full => AppendError::Full,
            Failed::Fatal(why) => {
                self.shared.fail(&why);
                AppendError::Closed
            }
        };
        let accepted = self.batch.accepted.drain(..).map(|(reply, _)| (reply, error.clone()));
        for (reply, error) in accepted.chain(self.batch.refused.drain(..)) {
            let _ = reply.send(Err(error));
        }
    }
}

/// Whether a count that is waited for has begun or been reached: (`before`, `head`] beyond `done`.
fn crosses(before: Seq, head: Seq, done: Seq, enough: u64) -> bool {
    let (was, is) = (before.saturating_sub(done), head.saturating_sub(done));
    is > 0 && (was == 0 || (was < enough && is >= enough))
}

fn is_of_one_run(request: &Request) -> bool {
    let Some(first) = request.records.first() else { return false };
    let run = first.draft.run();
    run.is_some() == request.run_prev.is_some() && request.records.iter().all(|record| record.draft.run() == run)
}

fn bytes_max(record: &NewRecord) -> usize {
    // A stream's text is at most `undo/`, a run id and a step number.
    const NAME_BYTES_MAX: usize = 5 + 128 + 1 + 10;
    let names = record.streams.iter().map(|_| NAME_BYTES_MAX);
    frame::record_bytes_max(record.draft.bytes_max(), record.private.len(), names)
}

/// The first batch of a new ledger: its one record.
pub(crate) fn first_batch(ledger: LedgerId, record: NewRecord, now: Timestamp, chain: &mut Chain) -> Vec<u8> {
    let NewRecord { mut draft, private, streams } = record;
    let mut line = Vec::new();
    draft.set_run_seq(0);
    draft.stamp(0, chain.leaf, chain.loose_leaf, now, &mut line);
    let names: Vec<String> = streams.iter().map(|(stream, _)| stream.to_string()).collect();
    let streams = names.iter().zip(&streams).map(|(name, (_, wake))| (name.as_str(), *wake)).collect();
    let record = Record { line: &line, private: &private, ts: now, loose: true, keyed: false, streams };
    let mut bytes = vec![0; BATCH_HEAD_BYTES];
    frame::put_record(&mut bytes, &record);
    frame::seal_batch(&mut bytes, frame::segment_seed(ledger, 0), 0, 1);
    let leaf: Hash = leaf(&line);
    chain.push(leaf, now, true);
    bytes
}
