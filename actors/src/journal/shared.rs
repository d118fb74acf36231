//! What the journal's threads and its readers share.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use reversi_proto::hash::Hash;
use reversi_proto::ids::{LedgerId, Seq};
use reversi_proto::ledger::Frontier;

use super::checkpoint::{SignedCheckpoint, Waiter};
use super::index::Index;
use super::keys::Keyring;
use super::prepare::Preparer;
use super::segment::Segments;
use super::tail::Tail;
use super::{Config, JournalError, Publisher, Stats};

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) ledger: LedgerId,
    pub(crate) restored: bool,
    pub(crate) segments: Segments,
    pub(crate) tail: Tail,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) preparer: Preparer,
    pub(crate) publisher: RwLock<Option<Publisher>>,
    pub(crate) applies: Bell<Applies>,
    pub(crate) checkpoints: Bell<Checkpoints>,
    pub(crate) head: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) signed: AtomicU64,
    pub(crate) failed: AtomicBool,
    pub(crate) batches: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) rolls: AtomicU64,
    pub(crate) sink_errors: AtomicU64,
    /// The tree over everything durable.
    pub(crate) durable: Mutex<Frontier>,
    pub(crate) checkpoint: RwLock<Option<SignedCheckpoint>>,
    /// None once closed.
    pub(crate) index: RwLock<Option<Arc<Index>>>,
}

/// A state, and the bell that is rung when it or one of the counters has changed.
#[derive(Default)]
pub(crate) struct Bell<T> {
    state: Mutex<T>,
    pub(crate) bell: Condvar,
}

/// What the applier is told.
#[derive(Default)]
pub(crate) struct Applies {
    pub(crate) stop: bool,
    /// Somebody waits for sled to have everything.
    pub(crate) urgent: bool,
}

/// What the checkpointer is told.
#[derive(Default)]
pub(crate) struct Checkpoints {
    pub(crate) stop: bool,
    pub(crate) waiters: Vec<Waiter>,
}

impl<T> Bell<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes whoever waits for it.
    pub(crate) fn ring(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.bell.notify_all();
    }
}

impl Shared {
    /// Number of durable records.
    pub(crate) fn head(&self) -> Seq {
        self.head.load(Ordering::SeqCst)
    }

    /// How many records are durable, and their Merkle root.
    pub(crate) fn durable_root(&self) -> (Seq, Hash) {
        let frontier = self.durable.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (frontier.size(), frontier.root())
    }

    /// The event store, until the journal is closed.
    pub(crate) fn index(&self) -> Result<Arc<Index>, JournalError> {
        self.index.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(JournalError::Closed)
    }

    /// A newer checkpoint is signed.
    pub(crate) fn set_checkpoint(&self, signed: SignedCheckpoint) {
        let size = signed.size;
        *self.checkpoint.write().unwrap_or_else(PoisonError::into_inner) = Some(signed);
        self.signed.store(size, Ordering::SeqCst);
    }

    /// Nothing may be acknowledged any more. Does not return unless a test's hook does.
    pub(crate) fn fail(&self, why: &str) {
        self.failed.store(true, Ordering::SeqCst);
        (self.config.fatal)(why);
    }

    /// Whether something has failed for good.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // `applied` first: it must not seem to be ahead of the head.
        let applied = self.applied.load(Ordering::SeqCst);
        let head = self.head();
        Stats {
            head,
            applied,
            lag: head.saturating_sub(applied),
            batches: get(&self.batches),
            syncs: get(&self.syncs),
            bytes: get(&self.bytes),
            rolls: get(&self.rolls),
            checkpoint: self.signed.load(Ordering::SeqCst),
            sink_errors: get(&self.sink_errors),
            disk_low: self.preparer.is_low(),
            next_ready: self.preparer.is_ready(),
        }
    }
}
