//! What can go wrong, split by what the caller can do about it. Every text says what happened and what helps.
use std::path::{Path, PathBuf};

use reversi_proto::ids::{RunId, Seq, StreamId};
use reversi_proto::time::Timestamp;

/// Why nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// A stream is not where the request believed it to be: load again and decide again.
    #[error("conflict on {stream}: expected version {expected:?}, found {found:?}")]
    Conflict {
        /// Which stream.
        stream: StreamId,
        /// The version that was expected.
        expected: Option<Seq>,
        /// The newest version that the writer knows. If `read_at` was older than the writer's window it can't tell, and
        /// this is `None` or equal to `expected`.
        found: Option<Seq>,
    },
    /// The disk is (nearly) full: nothing but outcomes is taken until there is room.
    #[error("the disk that holds the ledger is nearly full")]
    Full,
    /// The records of the request take more room than a segment has.
    #[error("the request takes {bytes} bytes, more than the {bytes_max} that fit into a segment")]
    TooLarge {
        /// What it takes at most.
        bytes: usize,
        /// What there is.
        bytes_max: usize,
    },
    /// The records don't all belong to one run (or to none), or there are none.
    #[error("a request must hold at least one record, all of one run with its `run_prev` or all of no run without")]
    Mixed,
    /// The journal is closed, or has failed: nothing is known of this request's fate but that it wasn't acknowledged.
    #[error("the journal is closed")]
    Closed,
}

/// Why the journal can't be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process has the directory open.
    #[error("another daemon ({holder}) has {path} open: stop it first, or give this one another data directory")]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// What the lock file says of its holder.
        holder: String,
    },
    /// The operating system refused something.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
    /// Stored bytes are wrong and were acknowledged once.
    #[error("{path} is damaged at byte {offset}: {what}; {advice}")]
    Damage {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
        /// What helps.
        advice: &'static str,
    },
    /// The segments end before something that was durable once: the tail was cut, or an older copy was put back.
    #[error(
        "the ledger ends at record {head}, but {witness} knows {known} records: records were cut off or an older copy was \
         restored. {path} ends at byte {offset}. Put the newest copy of the segments back; if they are lost, start with \
         --accept-restored-storage, which parks all rollbacks, because finished undos could be repeated"
    )]
    Restored {
        /// Records in the segments.
        head: Seq,
        /// Records that were there once.
        known: Seq,
        /// Who says so.
        witness: String,
        /// The newest segment.
        path: PathBuf,
        /// Where its valid bytes end.
        offset: u64,
    },
    /// A signed checkpoint contradicts the stored lines.
    #[error(
        "the first {size} records are not those that the checkpoint in {path} was signed over: the ledger was replaced or \
         rewritten. Put the right copy back, or start with --accept-restored-storage"
    )]
    Contradicted {
        /// How many records the checkpoint covers.
        size: Seq,
        /// Where it stands.
        path: PathBuf,
    },
    /// The newest record is far ahead of the wall clock.
    #[error(
        "the newest record is of {last}, more than 24 h ahead of the wall clock ({wall}): set the clock, or start with \
         --accept-clock to go on from the record's time"
    )]
    ClockAhead {
        /// Time of the newest record.
        last: Timestamp,
        /// The wall clock.
        wall: Timestamp,
    },
    /// A run's key is not in `private.keys`.
    #[error(
        "the key of run {run} is missing from {path}: put the newest copy of the file back, the run's values can't be \
         read and nothing can be undone without it"
    )]
    MissingKey {
        /// The first such run.
        run: RunId,
        /// The key file.
        path: PathBuf,
    },
    /// sled refused something.
    #[error("the event store {path} failed; it is rebuilt from the ledger when the daemon is started again")]
    Store {
        /// Its directory.
        path: PathBuf,
        /// Its answer.
        #[source]
        source: sled::Error,
    },
    /// The signing key can't be read or written.
    #[error("the ledger's signing key {path} is unusable: {what}")]
    SigningKey {
        /// The key file.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// A setting can't be used.
    #[error("journal setting {name} is {got}, must be {allowed}")]
    Setting {
        /// Which one.
        name: &'static str,
        /// What it is.
        got: u64,
        /// What it must be.
        allowed: &'static str,
    },
    /// The journal is closed or has failed.
    #[error("the journal is closed")]
    Closed,
    /// A thread could not be started.
    #[error("cannot start the journal's {name} thread")]
    Thread {
        /// Which one.
        name: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl JournalError {
    /// Shorthand for `map_err`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}
