//! The journal on disk: the handle that appenders hold, and its threads. Reading is in `read.rs`.
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use async_trait::async_trait;
use reversi_proto::ids::{LedgerId, RunId, Seq, StreamId};
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;
use tokio::sync::{mpsc, oneshot};

use super::applier::{self, Feed};
use super::boot::{self, Booted, Mark};
use super::checkpoint::{Checkpointer, SignedCheckpoint};
use super::frame::Chain;
use super::prepare::{self, Preparer};
use super::read::Cursors;
use super::shared::{Bell, Shared};
use super::tail::Tail;
use super::writer::{Message, Writer};
use super::{
    AppendError, Appended, Config, Journal, JournalError, LedgerKeys, NewRecord, Publisher, Request, Stats,
    StoredRecord, index,
};
use crate::clock::Clock;

/// The journal in a data directory. Dropping it without [`Journal::close`] is an unclean stop.
pub struct DiskJournal {
    shared: Arc<Shared>,
    queue: RwLock<Option<mpsc::Sender<Message>>>,
    threads: Mutex<Threads>,
    cursors: Cursors,
    /// Held until the last thread has ended.
    lock: Mutex<Option<File>>,
}

#[derive(Default)]
struct Threads {
    writer: Option<JoinHandle<Chain>>,
    others: Vec<JoinHandle<()>>,
}

impl DiskJournal {
    /// Opens the data directory; in an empty one makes a new ledger whose first record is `genesis(id, verifier key)`.
    /// Blocks while it scans and, where needed, rebuilds.
    pub fn open(
        config: Config,
        clock: Arc<dyn Clock>,
        genesis: impl FnOnce(LedgerId, &str) -> NewRecord,
    ) -> Result<Self, JournalError> {
        let Booted { lock, ledger, open, chain, segments, keys, signer, index, restored } =
            boot::boot(&config, &*clock, genesis)?;
        let feed = Feed::new(&segments, chain.next)?;
        let (sender, queue) = mpsc::channel(config.queue);
        let shared = Arc::new(Shared {
            preparer: Preparer::new(&config),
            config,
            ledger,
            restored,
            segments,
            tail: Tail::default(),
            keyring: keys.ring(),
            publisher: RwLock::default(),
            applies: Bell::default(),
            checkpoints: Bell::default(),
            head: AtomicU64::new(chain.next),
            applied: AtomicU64::new(chain.next),
            signed: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            batches: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            rolls: AtomicU64::new(0),
            sink_errors: AtomicU64::new(0),
            durable: Mutex::new(chain.frontier.clone()),
            checkpoint: RwLock::default(),
            index: RwLock::new(Some(Arc::new(index))),
        });
        shared.preparer.set_used(open.at);
        let mut checkpointer = Checkpointer::new(Arc::clone(&shared), signer);
        // From now on the newest outside checkpoint is one of this very ledger, also after a restored copy was accepted.
        checkpointer.sign()?;
        let journal = Self {
            shared: Arc::clone(&shared),
            queue: RwLock::new(Some(sender)),
            threads: Mutex::default(),
            cursors: Cursors::default(),
            lock: Mutex::new(Some(lock)),
        };
        let writer = Writer::new(Arc::clone(&shared), clock, queue, (open, keys, chain));
        let writer = spawn(&shared, "journal-writer", move || writer.run())?;
        journal.threads().writer = Some(writer);
        let (applying, preparing) = (Arc::clone(&shared), Arc::clone(&shared));
        let thread = spawn(&shared, "journal-applier", move || applier::run(&applying, feed))?;
        journal.threads().others.push(thread);
        let thread = spawn(&shared, "journal-preparer", move || prepare::run(&preparing))?;
        journal.threads().others.push(thread);
        let thread = spawn(&shared, "journal-checkpoints", move || checkpointer.run())?;
        journal.threads().others.push(thread);
        Ok(journal)
    }

    /// Waits until the event store has everything that is durable now.
    pub fn wait_applied(&self) {
        wait_applied(&self.shared);
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sender(&self) -> Option<mpsc::Sender<Message>> {
        self.queue.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stop_others(shared: &Shared, others: Vec<JoinHandle<()>>) {
        shared.applies.ring(|state| state.stop = true);
        shared.checkpoints.ring(|state| state.stop = true);
        shared.preparer.stop();
        others.into_iter().for_each(join);
    }
}

#[async_trait]
impl Journal for DiskJournal {
    async fn append(&self, request: Request) -> Result<Vec<Appended>, AppendError> {
        let Some(queue) = self.sender() else { return Err(AppendError::Closed) };
        let (reply, answer) = oneshot::channel();
        queue.send(Message::Append(request, reply)).await.map_err(|_| AppendError::Closed)?;
        drop(queue);
        answer.await.unwrap_or(Err(AppendError::Closed))
    }

    fn head(&self) -> Seq {
        self.shared.head()
    }

    fn version(&self, stream: &StreamId) -> Result<Option<Seq>, JournalError> {
        self.shared.version(&stream.to_string())
    }

    fn load(&self, stream: &StreamId, from: Seq) -> Result<Vec<StoredRecord>, JournalError> {
        self.shared.load(&stream.to_string(), from)
    }

    fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(StreamId, Wake)>, JournalError> {
        self.shared.due(until, limit)
    }

    fn streams(&self, prefix: &str, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, JournalError> {
        self.shared.streams(prefix, after.map(ToString::to_string).as_deref(), limit)
    }

    fn lines(&self, from: Seq, bytes_max: usize) -> Result<Vec<Arc<[u8]>>, JournalError> {
        self.cursors.lines(&self.shared, from, bytes_max)
    }

    fn run_key(&self, run: &RunId) -> Option<[u8; 32]> {
        self.shared.keyring.run(run)
    }

    fn runs_without_key(&self) -> Result<Vec<RunId>, JournalError> {
        let index = self.shared.index()?;
        let mut missing = Vec::new();
        for run in index.keyed_runs() {
            missing.extend(run?.parse().ok().filter(|run| self.run_key(run).is_none()));
        }
        Ok(missing)
    }

    fn ledger_keys(&self) -> LedgerKeys {
        self.shared.keyring.ledger
    }

    fn ledger(&self) -> LedgerId {
        self.shared.ledger
    }

    fn checkpoint(&self) -> Option<SignedCheckpoint> {
        self.shared.checkpoint.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn sign_checkpoint(&self) -> Result<SignedCheckpoint, JournalError> {
        if self.sender().is_none() {
            return Err(JournalError::Closed);
        }
        let (waiter, signed) = oneshot::channel();
        self.shared.checkpoints.ring(|state| state.waiters.push(waiter));
        signed.await.map_err(|_| JournalError::Closed)
    }

    fn was_restored(&self) -> bool {
        self.shared.restored
    }

    fn publish_to(&self, publisher: Publisher) {
        *self.shared.publisher.write().unwrap_or_else(PoisonError::into_inner) = Some(publisher);
    }

    fn stats(&self) -> Stats {
        self.shared.stats()
    }

    async fn close(&self) -> Result<(), JournalError> {
        let queue = self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(queue) = queue else { return Err(JournalError::Closed) };
        let _ = queue.send(Message::Close).await;
        drop(queue);
        let (shared, threads) = (Arc::clone(&self.shared), std::mem::take(&mut *self.threads()));
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closing = tokio::task::spawn_blocking(move || {
            let closed = close(&shared, threads);
            // Last of all: whoever comes next finds everything in place.
            drop(lock);
            closed
        });
        closing.await.unwrap_or(Err(JournalError::Closed))
    }
}

impl Drop for DiskJournal {
    /// An unclean stop: the threads end, and no mark is left.
    fn drop(&mut self) {
        self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
        let Threads { writer, others } = std::mem::take(&mut *self.threads());
        writer.into_iter().for_each(join);
        Self::stop_others(&self.shared, others);
    }
}

/// The blocking part of an orderly end.
fn close(shared: &Shared, threads: Threads) -> Result<(), JournalError> {
    let chain = threads.writer.and_then(|writer| writer.join().ok());
    if let (Some(chain), false) = (chain, shared.has_failed()) {
        wait_applied(shared);
        let (waiter, signed) = oneshot::channel();
        shared.checkpoints.ring(|state| state.waiters.push(waiter));
        let _ = signed.blocking_recv();
        DiskJournal::stop_others(shared, threads.others);
        let index = shared.index.write().unwrap_or_else(PoisonError::into_inner).take();
        if shared.has_failed() {
            return Err(JournalError::Closed);
        }
        let config = &shared.config;
        index.as_ref().map_or(Ok(()), |index| index.flush())?;
        drop(index);
        index::sync(&config.store_dir())?;
        let (boot_id, store) = (boot::boot_id(config), index::files_of(&config.store_dir()));
        return Mark { boot_id, head: chain.next, leaf: chain.leaf, store }.leave(config);
    }
    DiskJournal::stop_others(shared, threads.others);
    Err(JournalError::Closed)
}

fn wait_applied(shared: &Shared) {
    let (head, bell): (_, &Condvar) = (shared.head(), &shared.applies.bell);
    let mut state = shared.applies.lock();
    while shared.applied.load(Ordering::SeqCst) < head && !state.stop && !shared.has_failed() {
        state.urgent = true;
        bell.notify_all();
        state = bell.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Starts a thread whose panic ends the process: a journal that lost one of them would go on as if it were whole.
fn spawn<T: Send + 'static>(
    shared: &Arc<Shared>,
    name: &'static str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, JournalError> {
    let shared = Arc::clone(shared);
    let guarded = move || match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(done) => done,
        Err(panic) => {
            shared.fail(&format!("the thread {name} panicked"));
            std::panic::resume_unwind(panic)
        }
    };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(guarded);
    spawned.map_err(|source| JournalError::Thread { name, source })
}

/// Joins a thread, unless it is the one that runs this.
fn join<T>(thread: JoinHandle<T>) {
    if thread.thread().id() != std::thread::current().id() {
        let _ = thread.join();
    }
}
