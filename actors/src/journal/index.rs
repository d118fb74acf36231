//! The event store: one sled tree, filled from the segments and never ahead of them. Must not be trusted over them.
//!
//! ```text
//! m                          applied 8 | values 8 | digest 8 | ledger 16
//! c                          the newest checkpoint note
//! e <stream> 00 <seq be>     entries of one batch: (00 delta 4 line 4 private 4 bytes) | (01 delta 4 segment 8 offset 8 len 4)
//! k <run>                    the run has a key in private.keys
//! s <stream>                 its wake hint, if it has one
//! t 00 <stream>              wants to be woken now
//! t 01 <micros be> <stream>  wants to be woken then
//! ```
//! `delta` counts from the seq in the key. A value stays below 4 KiB: larger ones would spill into sled's `blobs/`, which
//! it never syncs.
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use reversi_proto::ids::{LedgerId, Seq};
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;

use super::JournalError;
use super::files;
use super::frame::{Cursor, Record, put_wake, take_wake};
use super::segment::Pointer;

const VALUE_BYTES_MAX: usize = 4000;
const META: &[u8] = b"m";
const NOTE: &[u8] = b"c";

/// The open store.
pub(crate) struct Index {
    db: sled::Db,
    path: PathBuf,
}

/// What the store says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Records that have been applied.
    pub(crate) applied: Seq,
    /// How many `e` values there are, and a digest of their keys: a store that lost some does not match.
    values: u64,
    digest: u64,
    pub(crate) ledger: LedgerId,
}

impl Meta {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40);
        for number in [self.applied, self.values, self.digest] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.ledger.0);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        let (applied, values, digest) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let ledger = LedgerId(cursor.array()?);
        cursor.0.is_empty().then_some(Self { applied, values, digest, ledger })
    }

    fn count(&mut self, key: &[u8]) {
        self.values += 1;
        self.digest = self.digest.wrapping_add(u64::from(crc32c::crc32c(key)) << 16 | key.len() as u64);
    }
}

/// One record of a stream, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Inline { line: Vec<u8>, private: Vec<u8> },
    At(Pointer),
}

impl Index {
    /// Opens the store; none if it can't be trusted to be one. sled can panic on bytes that are not its own.
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<Option<Self>, JournalError> {
        remove_stray_snapshots(path)?;
        let config = sled::Config::new().path(path).flush_every_ms(None).cache_capacity(cache_bytes);
        match std::panic::catch_unwind(AssertUnwindSafe(|| config.open())) {
            Ok(Ok(db)) => Ok(Some(Self { db, path: path.to_owned() })),
            Ok(Err(sled::Error::Io(source))) if source.kind() == std::io::ErrorKind::WouldBlock => {
                Err(JournalError::Io { what: "lock", path: path.to_owned(), source })
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the event store can't be opened");
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    /// Writes what a new store begins with.
    pub(crate) fn begin(&self, ledger: LedgerId) -> Result<(), JournalError> {
        let meta = Meta { applied: 0, values: 0, digest: 0, ledger };
        self.db.insert(META, meta.encode()).map(|_| ()).map_err(|source| self.failed(source))
    }

    /// What the store says about itself; none if it says nothing sensible.
    pub(crate) fn meta(&self) -> Result<Option<Meta>, JournalError> {
        let value = self.db.get(META).map_err(|source| self.failed(source))?;
        Ok(value.as_deref().and_then(Meta::decode))
    }

    /// Whether all values that were ever applied are there. Reads every key; used only after an unclean stop.
    pub(crate) fn is_whole(&self) -> bool {
        let count = || -> Option<bool> {
            let said = self.meta().ok()??;
            let mut found = Meta { values: 0, digest: 0, ..said };
            for pair in self.db.scan_prefix(b"e") {
                found.count(&pair.ok()?.0);
            }
            Some(found == said)
        };
        std::panic::catch_unwind(AssertUnwindSafe(count)).ok().flatten().unwrap_or(false)
    }

    /// Applies what was gathered, and the new `applied` with it.
    pub(crate) fn apply(&self, mut update: Update) -> Result<(), JournalError> {
        let mut meta = update.meta;
        for (name, stream) in update.streams.drain() {
            let set = self.set_wake(&name, stream.wake, &mut update.batch);
            set.map_err(|source| self.failed(source))?;
            for (seq, value) in stream.values {
                let key = event_key(&name, seq);
                meta.count(&key);
                update.batch.insert(key, value);
            }
        }
        update.batch.insert(META, meta.encode());
        self.db.apply_batch(update.batch).map_err(|source| self.failed(source))
    }

    fn set_wake(&self, name: &str, wake: Wake, batch: &mut sled::Batch) -> sled::Result<()> {
        let state = key(b's', name);
        let before = self.db.get(&state)?.and_then(|value| take_wake(&mut Cursor(&value)));
        if before == Some(wake) || (before.is_none() && wake == Wake::None) {
            return Ok(());
        }
        if let Some(before) = before.and_then(|before| alarm_key(before, name)) {
            batch.remove(before);
        }
        match alarm_key(wake, name) {
            Some(alarm) => {
                let mut value = Vec::with_capacity(9);
                put_wake(&mut value, wake);
                batch.insert(state, value);
                batch.insert(alarm, &[]);
            }
            None => batch.remove(state),
        }
        Ok(())
    }

    /// Seq of the stream's newest applied record.
    pub(crate) fn version(&self, name: &str) -> Result<Option<Seq>, JournalError> {
        let newest = self.db.range(event_key(name, 0)..=event_key(name, Seq::MAX)).next_back();
        let Some(pair) = newest else { return Ok(None) };
        let (key, value) = pair.map_err(|source| self.failed(source))?;
        let last = entries(&key, &value).and_then(|entries| entries.last().map(|(seq, _)| *seq));
        last.map(Some).ok_or_else(|| self.unreadable(name))
    }

    /// The stream's applied records from `from` on.
    pub(crate) fn records(&self, name: &str, from: Seq) -> Result<Vec<(Seq, Entry)>, JournalError> {
        // The value that holds `from` can begin before it.
        let holding = self.db.range(event_key(name, 0)..=event_key(name, from)).next_back();
        let start = match holding {
            Some(pair) => pair.map_err(|source| self.failed(source))?.0,
            None => event_key(name, from).into(),
        };
        let mut found = Vec::new();
        for pair in self.db.range(start..=event_key(name, Seq::MAX).into()) {
            let (key, value) = pair.map_err(|source| self.failed(source))?;
            let entries = entries(&key, &value).ok_or_else(|| self.unreadable(name))?;
            found.extend(entries.into_iter().filter(|(seq, _)| *seq >= from));
        }
        Ok(found)
    }

    /// Alarms: `Now` first, then those due by `until` in their order. `skip` tells which streams to leave out.
    pub(crate) fn due(
        &self,
        until: Timestamp,
        limit: usize,
        skip: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Wake)>, JournalError> {
        let mut due = Vec::new();
        for pair in self.db.scan_prefix(b"t") {
            if due.len() >= limit {
                break;
            }
            let (key, _) = pair.map_err(|source| self.failed(source))?;
            let Some((wake, name)) = alarm_of(&key) else { continue };
            if matches!(wake, Wake::At(at) if at > until) {
                break;
            }
            if !skip(&name) {
                due.push((name, wake));
            }
        }
        Ok(due)
    }

    /// Names of applied streams that start with `prefix` and come after `after`.
    pub(crate) fn names(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, JournalError> {
        let mut names = Vec::new();
        // Behind every entry of a stream stands its name and a byte that no name begins with.
        let behind = |name: &str| [b"e", name.as_bytes(), &[1]].concat();
        let mut from = after.filter(|after| *after >= prefix).map_or_else(|| key(b'e', prefix), behind);
        while names.len() < limit {
            let Some(pair) = self.db.range(from..).next() else { break };
            let (key, _) = pair.map_err(|source| self.failed(source))?;
            let Some(name) = name_of(&key).filter(|name| name.starts_with(prefix)) else { break };
            from = behind(name);
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Runs that were given a key.
    pub(crate) fn keyed_runs(&self) -> impl Iterator<Item = Result<String, JournalError>> {
        self.db.scan_prefix(b"k").keys().map(|key| {
            let key = key.map_err(|source| self.failed(source))?;
            Ok(String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned())
        })
    }

    /// Keeps the newest checkpoint note.
    pub(crate) fn set_note(&self, note: &str) -> Result<(), JournalError> {
        self.db.insert(NOTE, note).map(|_| ()).map_err(|source| self.failed(source))
    }

    /// Hands everything to the kernel. No sync: after a power cut the store is rebuilt.
    pub(crate) fn flush(&self) -> Result<(), JournalError> {
        self.db.flush().map(|_| ()).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: sled::Error) -> JournalError {
        JournalError::Store { path: self.path.clone(), source }
    }

    fn unreadable(&self, name: &str) -> JournalError {
        JournalError::Damage {
            path: self.path.clone(),
            offset: 0,
            what: format!("a value of stream {name} is not what was written"),
            advice: "stop the daemon and remove this directory, it is rebuilt from the ledger",
        }
    }
}

/// A batch for the store in the making.
pub(crate) struct Update {
    meta: Meta,
    streams: HashMap<String, StreamUpdate>,
    batch: sled::Batch,
}

struct StreamUpdate {
    wake: Wake,
    /// (seq of the first entry, entries).
    values: Vec<(Seq, Vec<u8>)>,
}

impl Update {
    /// Goes on from what the store says about itself.
    pub(crate) fn new(meta: Meta) -> Self {
        Self { meta, streams: HashMap::new(), batch: sled::Batch::default() }
    }

    /// Takes in the next record, which stands at `place`.
    pub(crate) fn add(&mut self, seq: Seq, record: &Record<'_>, place: Pointer) {
        for (position, (name, wake)) in record.streams.iter().enumerate() {
            // Only the first stream gets the bytes, and only if they fit.
            let inline = position == 0 && 13 + record.line.len() + record.private.len() <= VALUE_BYTES_MAX;
            let need = if inline { 13 + record.line.len() + record.private.len() } else { 25 };
            let stream = match self.streams.get_mut(*name) {
                Some(stream) => stream,
                None => self.streams.entry((*name).to_owned()).or_insert(StreamUpdate { wake: *wake, values: vec![] }),
            };
            stream.wake = *wake;
            if stream.values.last().is_none_or(|(_, value)| value.len() + need > VALUE_BYTES_MAX) {
                stream.values.push((seq, Vec::with_capacity(need)));
            }
            if let Some((first, value)) = stream.values.last_mut() {
                put_entry(value, seq - *first, record, inline.then_some(()).ok_or(place));
            }
            if record.keyed
                && let Some(run) = name.strip_prefix("run/")
            {
                self.batch.insert(key(b'k', run), &[]);
            }
        }
        self.meta.applied = seq + 1;
    }

    /// Records applied once this is.
    pub(crate) fn applied(&self) -> Seq {
        self.meta.applied
    }

    /// The streams that move.
    pub(crate) fn names(&self) -> Vec<String> {
        self.streams.keys().cloned().collect()
    }
}

fn put_entry(out: &mut Vec<u8>, delta: u64, record: &Record<'_>, how: Result<(), Pointer>) {
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    // A batch holds far fewer than 2^32 records.
    let delta = u32::try_from(delta).unwrap_or(u32::MAX).to_le_bytes();
    match how {
        Ok(()) => {
            out.push(0);
            out.extend_from_slice(&delta);
            out.extend_from_slice(&size(record.line));
            out.extend_from_slice(&size(record.private));
            out.extend_from_slice(record.line);
            out.extend_from_slice(record.private);
        }
        Err(place) => {
            out.push(1);
            out.extend_from_slice(&delta);
            out.extend_from_slice(&place.segment.to_le_bytes());
            out.extend_from_slice(&place.offset.to_le_bytes());
            out.extend_from_slice(&place.len.to_le_bytes());
        }
    }
}

fn entries(key: &[u8], value: &[u8]) -> Option<Vec<(Seq, Entry)>> {
    let first = Seq::from_be_bytes(key.last_chunk().copied()?);
    let mut cursor = Cursor(value);
    let mut found = Vec::new();
    while !cursor.0.is_empty() {
        let [kind] = cursor.array::<1>()?;
        let seq = first + u64::from(cursor.u32()?);
        let entry = match kind {
            0 => {
                let (line, private) = (cursor.u32()?, cursor.u32()?);
                let line = cursor.bytes(line as usize)?.to_vec();
                Entry::Inline { line, private: cursor.bytes(private as usize)?.to_vec() }
            }
            1 => Entry::At(Pointer { segment: cursor.u64()?, offset: cursor.u64()?, len: cursor.u32()? }),
            _ => return None,
        };
        found.push((seq, entry));
    }
    Some(found)
}

fn key(kind: u8, name: &str) -> Vec<u8> {
    [&[kind], name.as_bytes()].concat()
}

fn event_key(name: &str, seq: Seq) -> Vec<u8> {
    [b"e", name.as_bytes(), &[0], &seq.to_be_bytes()].concat()
}

fn name_of(key: &[u8]) -> Option<&str> {
    let name = key.strip_prefix(b"e")?;
    std::str::from_utf8(name.get(..name.len().checked_sub(9)?)?).ok()
}

fn alarm_key(wake: Wake, name: &str) -> Option<Vec<u8>> {
    match wake {
        Wake::None => None,
        Wake::Now => Some([b"t", &[0][..], name.as_bytes()].concat()),
        Wake::At(at) => Some([b"t", &[1][..], &at.micros().to_be_bytes(), name.as_bytes()].concat()),
    }
}

fn alarm_of(key: &[u8]) -> Option<(Wake, String)> {
    let mut cursor = Cursor(key.strip_prefix(b"t")?);
    let wake = match cursor.array::<1>()? {
        [0] => Wake::Now,
        _ => Wake::At(Timestamp::from_micros(i64::from_be_bytes(cursor.array()?))),
    };
    Some((wake, String::from_utf8(cursor.0.to_vec()).ok()?))
}

/// Makes a store durable that nobody writes to: sled's own `flush` never calls fsync.
pub(crate) fn sync(path: &Path) -> Result<(), JournalError> {
    let wrong = || JournalError::io("sync", path);
    for entry in std::fs::read_dir(path).map_err(wrong())? {
        std::fs::File::open(entry.map_err(wrong())?.path()).and_then(|file| file.sync_all()).map_err(wrong())?;
    }
    files::sync_dir(path).map_err(wrong())
}

/// Names and lengths of a store's files, on one line: a cheap way to see that somebody touched them.
pub(crate) fn files_of(path: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(path) else { return String::new() };
    let size = |entry: std::fs::DirEntry| {
        format!("{}={}", entry.file_name().to_string_lossy(), entry.metadata().map_or(0, |data| data.len()))
    };
    let mut files: Vec<String> = entries.flatten().filter(|entry| entry.path().is_file()).map(size).collect();
    files.sort();
    files.join(" ")
}

/// After an open on a full disk sled leaves an empty `snap.*.generating` behind, which makes later opens report corruption.
fn remove_stray_snapshots(path: &Path) -> Result<(), JournalError> {
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().ends_with(".generating") {
            files::remove_if_there(&entry.path()).map_err(JournalError::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}
