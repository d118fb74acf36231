//! The journal: durable, ordered, guarded. It sees drafts of ledger lines, sealed private bytes, stream ids and wake
//! hints, and must not know what an event means.
//!
//! Truth is in the segments (`segment.rs`, `frame.rs`), written by one thread (`writer.rs`) in group commits. sled
//! (`index.rs`) is what actors load from; the applier (`applier.rs`) fills it behind the writer, and `tail.rs` covers
//! what it has not reached yet. `boot.rs` decides what of a directory can be trusted.
mod applier;
mod boot;
mod checkpoint;
mod config;
mod disk;
mod error;
mod files;
mod frame;
mod index;
mod keys;
mod memory;
pub mod offline;
mod prepare;
mod read;
mod reader;
mod recent;
mod segment;
mod shared;
mod signing;
mod tail;
mod writer;

use std::sync::Arc;

use async_trait::async_trait;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{LedgerId, RunId, Seq, StreamId};
use reversi_proto::ledger::Draft;
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;

pub use checkpoint::{SignedCheckpoint, read_notes};
pub use config::{CheckpointSink, Config, Fatal, FreeSpace, MissingKeys, Progress};
pub use disk::DiskJournal;
pub use error::{AppendError, JournalError};
pub use memory::MemoryJournal;

/// One record to append.
#[derive(Debug, Clone)]
pub struct NewRecord {
    /// The line, but for the writer's stamp. The `run_seq` of a record of no run is the writer's too: it replaces what
    /// the draft was given.
    pub draft: Draft,
    /// The private part: sealed, or empty.
    pub private: Vec<u8>,
    /// The streams that the record advances, with the wake hint of each on the state after it. The first one should be
    /// the stream that is loaded most: it gets the record inline, the others get a pointer into the segment.
    pub streams: Vec<(StreamId, Wake)>,
}

/// Records that enter together or not at all. All belong to one run, or all to none.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The version that each stream must have; `None`: the stream has no record yet.
    pub expect: Vec<(StreamId, Option<Seq>)>,
    /// [`Journal::head`] from before the facts were read.
    pub read_at: Seq,
    /// In order.
    pub records: Vec<NewRecord>,
    /// Leaf of the run's previous record, or the run's genesis; `None` for records of no run.
    pub run_prev: Option<Hash>,
    /// A new run's key: durable before the records are.
    pub run_key: Option<(RunId, [u8; 32])>,
    /// May use the space that is kept for outcomes when the disk is nearly full.
    pub reserved: bool,
}

/// A record that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Its position.
    pub seq: Seq,
    /// Its time.
    pub ts: Timestamp,
    /// Its leaf hash.
    pub leaf: Hash,
    /// Its line, without LF.
    pub line: Arc<[u8]>,
}

/// A record read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its position.
    pub seq: Seq,
    /// Its leaf hash.
    pub leaf: Hash,
    /// Its line, without LF.
    pub line: Arc<[u8]>,
    /// Its private part, as it was handed in.
    pub private: Vec<u8>,
}

/// What live actors learn of every durable record.
#[derive(Debug, Clone)]
pub struct PublishedRecord {
    /// What was appended.
    pub record: Appended,
    /// Its private part.
    pub private: Vec<u8>,
    /// The streams it advanced.
    pub streams: Vec<(StreamId, Wake)>,
}

impl From<&PublishedRecord> for StoredRecord {
    fn from(published: &PublishedRecord) -> Self {
        let Appended { seq, ts: _, leaf, line } = &published.record;
        Self { seq: *seq, leaf: *leaf, line: Arc::clone(line), private: published.private.clone() }
    }
}

/// Called on the writer's thread with each durable batch, in order, before its requests are answered. Must not block and
/// must not append.
pub type Publisher = Arc<dyn Fn(Arc<[PublishedRecord]>) + Send + Sync>;

/// Keys of the whole ledger; they never leave the process but for `private.keys`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LedgerKeys {
    /// For HMACs: claims.
    pub hmac: [u8; 32],
    /// For sealing the private parts of records of no run.
    pub seal: [u8; 32],
}

impl std::fmt::Debug for LedgerKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LedgerKeys(..)")
    }
}

/// How the journal is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Durable records.
    pub head: Seq,
    /// Records that sled has.
    pub applied: Seq,
    /// Records that sled does not have yet.
    pub lag: u64,
    /// Group commits since the start.
    pub batches: u64,
    /// Syncs of segments and of `private.keys` by the writer since the start.
    pub syncs: u64,
    /// Bytes of batches since the start.
    pub bytes: u64,
    /// Segments closed since the start.
    pub rolls: u64,
    /// Records that the newest checkpoint covers.
    pub checkpoint: u64,
    /// Checkpoints that could not be written to the sink since the start.
    pub sink_errors: u64,
    /// The disk is nearly full: only reserved requests are taken.
    pub disk_low: bool,
    /// The next segment is prepared.
    pub next_ready: bool,
}

/// Where events live. One contract test (`tests/journal_contract.rs`) says what every implementation must do.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Appends all records of the request, or none. When this returns, they are durable. Waits while the queue is full.
    async fn append(&self, request: Request) -> Result<Vec<Appended>, AppendError>;

    /// The number of durable records.
    fn head(&self) -> Seq;

    /// Seq of the last record that advanced the stream.
    fn version(&self, stream: &StreamId) -> Result<Option<Seq>, JournalError>;

    /// The stream's records with `seq >= from`, in order.
    fn load(&self, stream: &StreamId, from: Seq) -> Result<Vec<StoredRecord>, JournalError>;

    /// Streams that want to be woken: `Now` first, then those due by `until`, earliest first.
    fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(StreamId, Wake)>, JournalError>;

    /// Streams whose text starts with `prefix` and comes after `after`, in the order of their text.
    fn streams(&self, prefix: &str, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, JournalError>;

    /// Lines from seq `from` on, in order: at least one if there is one, then until `bytes_max` bytes are full.
    fn lines(&self, from: Seq, bytes_max: usize) -> Result<Vec<Arc<[u8]>>, JournalError>;

    /// The key of a run.
    fn run_key(&self, run: &RunId) -> Option<[u8; 32]>;

    /// Runs whose `private.keys` entry is missing (see [`MissingKeys`]).
    fn runs_without_key(&self) -> Result<Vec<RunId>, JournalError>;

    /// The ledger's own keys.
    fn ledger_keys(&self) -> LedgerKeys;

    /// The ledger's id.
    fn ledger(&self) -> LedgerId;

    /// The newest signed checkpoint.
    fn checkpoint(&self) -> Option<SignedCheckpoint>;

    /// Signs a checkpoint over everything that is durable now, and writes it to the sink.
    async fn sign_checkpoint(&self) -> Result<SignedCheckpoint, JournalError>;

    /// This boot, or one before that nobody has revoked, accepted a ledger that is older than its own witnesses:
    /// rollbacks must be parked.
    fn was_restored(&self) -> bool;

    /// Whom to tell of durable batches; replaces an earlier one. Batches that are already durable are not told again.
    fn publish_to(&self, publisher: Publisher);

    /// How the journal is doing.
    fn stats(&self) -> Stats;

    /// Answers what is queued, applies, signs a last checkpoint and leaves the clean-stop mark. Later appends get
    /// `Closed`.
    async fn close(&self) -> Result<(), JournalError>;
}
