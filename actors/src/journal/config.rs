//! Settings of the journal. Must not read the environment.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::JournalError;
const PAGE_BYTES: usize = 4096;

/// Told why the process must end. By default it logs and aborts; what a test injects may return, and then nothing is
/// acknowledged any more.
pub type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// Told at boot how far the event store is in catching up with the ledger, or in being rebuilt from it: (records done, records in all).
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Tells how many bytes are free on the disk that holds the data directory.
pub type FreeSpace = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Where checkpoints go beside the data directory. It should be on another disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointSink {
    /// Appended to this file and synced. Each note (C2SP signed note: text, an empty line, signature lines that start
    /// with an em dash) is followed by one empty line.
    File(PathBuf),
}

/// What to do at boot about a run whose key is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingKeys {
    /// Refuse to start, naming the run.
    Refuse,
    /// Start; the caller compares [`super::Journal::runs_without_key`] with the runs that were erased.
    Report,
}

/// Settings; [`Config::new`] gives the defaults.
#[derive(Clone)]
pub struct Config {
    /// The data directory.
    pub dir: PathBuf,
    /// What checkpoints are signed as: `origin/<ledger id>`. A host name, as a rule.
    pub origin: String,
    /// Size of a segment, 64 MiB. Applies to new segments.
    pub segment_bytes: u64,
    /// Requests that may wait, 4,096; more wait outside.
    pub queue: usize,
    /// Most requests in a group commit, 1,024.
    pub batch_requests: usize,
    /// Bytes at which a group commit takes no further request, 1 MiB.
    pub batch_bytes: usize,
    /// Records that the window of `recent` versions holds beside the unapplied ones, 4,096.
    pub window: u64,
    /// The applier waits this long for more, 100 ms.
    pub apply_interval: Duration,
    /// The applier does not wait once there are this many records, and takes about as many at once, 2,000.
    pub apply_records: u64,
    /// sled's cache, 64 MiB. It is no bound: sled can hold the database in memory.
    pub cache_bytes: u64,
    /// A checkpoint is signed once this many records are unsigned, 256. Under load they are merged: one at a time.
    pub checkpoint_records: u64,
    /// A checkpoint is signed when the last one is older than this and there are unsigned records, 10 s.
    pub checkpoint_after: Duration,
    /// Where checkpoints go beside the event store.
    pub sink: Option<CheckpointSink>,
    /// Below this much free space only reserved requests are taken, 256 MiB.
    pub free_bytes_min: u64,
    /// Start although the newest record is more than 24 h ahead of the wall clock.
    pub accept_clock: bool,
    /// Start although the ledger is older than a checkpoint or the event store knows.
    pub accept_restored_storage: bool,
    /// What to do about runs without a key.
    pub missing_keys: MissingKeys,
    /// What ends the process.
    pub fatal: Fatal,
    /// Told how far the event store is at boot.
    pub progress: Option<Progress>,
    /// Replaces the kernel's boot id, for tests.
    pub boot_id: Option<String>,
    /// Replaces the look at the file system, for tests.
    pub free_space: Option<FreeSpace>,
}

impl Config {
    /// The defaults for a data directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            origin: "reversi".to_owned(),
            segment_bytes: 64 << 20,
            queue: 4096,
            batch_requests: 1024,
            batch_bytes: 1 << 20,
            window: 4096,
            apply_interval: Duration::from_millis(100),
            apply_records: 2000,
            cache_bytes: 64 << 20,
            checkpoint_records: 256,
            checkpoint_after: Duration::from_secs(10),
            sink: None,
            free_bytes_min: 256 << 20,
            accept_clock: false,
            accept_restored_storage: false,
            missing_keys: MissingKeys::Refuse,
            fatal: Arc::new(|why| {
                tracing::error!(why, "the ledger can't be trusted to be durable any more, so the daemon stops at once");
                std::process::abort();
            }),
            progress: None,
            boot_id: None,
            free_space: None,
        }
    }

    /// Refuses what can't work.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let too_small = |name, got, allowed| Err(JournalError::Setting { name, got, allowed });
        if self.segment_bytes < 16 * PAGE_BYTES as u64 || self.segment_bytes > 1 << 31 {
            return too_small("segment_bytes", self.segment_bytes, "64 KiB to 2 GiB");
        }
        if self.queue == 0 {
            return too_small("queue", 0, "at least 1");
        }
        if self.batch_requests == 0 {
            return too_small("batch_requests", 0, "at least 1");
        }
        Ok(())
    }

    pub(crate) fn ledger_dir(&self) -> PathBuf {
        self.dir.join("ledger")
    }

    pub(crate) fn store_dir(&self) -> PathBuf {
        self.dir.join("db")
    }

    pub(crate) fn keys_file(&self) -> PathBuf {
        self.dir.join("private.keys")
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("dir", &self.dir)
            .field("segment_bytes", &self.segment_bytes)
            .finish_non_exhaustive()
    }
}
