//! Looking into a data directory from outside: takes no lock, changes nothing, trusts nothing but CRCs. For tools that
//! judge a stopped or running daemon's ledger. Must not know what a line says.
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reversi_proto::ids::Seq;

pub use super::JournalError;
pub use super::checkpoint::read_notes;
use super::frame;
use super::index::Index;
use super::reader::{BatchReader, Step};
use super::segment::{self, Pages, RESTORE_FILE, Rest};

/// A copy of the event store is only looked at, so its cache can be small.
const CACHE_BYTES: u64 = 16 << 20;

/// A stored record, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    /// Its position, as the batches count.
    pub seq: Seq,
    /// Its line, without LF.
    pub line: &'a [u8],
    /// The names of the streams that it advanced.
    pub streams: &'a [&'a str],
}

/// How far the reading got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEnd {
    /// Records that were read.
    pub records: Seq,
    /// Bytes behind the last whole batch of the newest segment. They were never acknowledged if the daemon was killed
    /// there, and they are damage if it was not: nothing in the directory can tell.
    pub torn: Option<PathBuf>,
    /// What the mark of a clean stop says of the number of records; none without that mark.
    pub clean_stop: Option<Seq>,
}

/// The bytes of all segments, for a progress bar.
pub fn ledger_bytes(dir: &Path) -> u64 {
    let ledger = dir.join("ledger");
    let size = |first| std::fs::metadata(segment::path_of(&ledger, first)).map_or(0, |data| data.len());
    segment::list(&ledger).map_or(0, |firsts| firsts.into_iter().map(size).sum())
}

/// Whether this looks like a data directory: there is at least one segment.
pub fn is_data_dir(dir: &Path) -> bool {
    segment::list(&dir.join("ledger")).is_ok_and(|firsts| !firsts.is_empty())
}

/// Whether a daemon has the directory open right now.
pub fn is_locked(dir: &Path) -> bool {
    File::open(dir.join("lock"))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Calls `on` with every line, in order, until it breaks.
pub fn read_lines(dir: &Path, mut on: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<ReadEnd, JournalError> {
    read_records(dir, |record| on(record.line))
}

/// Calls `on` with every record, in order, until it breaks.
pub fn read_records(
    dir: &Path,
    mut on: impl FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> Result<ReadEnd, JournalError> {
    let ledger = dir.join("ledger");
    let mut end = ReadEnd { records: 0, torn: None, clean_stop: clean_stop(dir) };
    // The list is read before the segments: what a running daemon begins meanwhile is not seen, and not missed.
    let firsts = segment::list(&ledger)?;
    for (at, first) in firsts.iter().enumerate() {
        let path = segment::path_of(&ledger, *first);
        if *first != end.records {
            let what = format!("the segment before it ends at record {}, so records are missing", end.records);
            return Err(damage(&path, 0, what));
        }
        let pages = segment::read_pages(&path, *first)?;
        let behind = read_segment(&path, &pages, &mut end.records, &mut on)?;
        let Some(behind) = behind else { return Ok(end) };
        check_end(&path, &pages, behind, end.records, at + 1 == firsts.len(), &mut end.torn)?;
    }
    match end.clean_stop {
        Some(head) if end.records < head => {
            let last = firsts.last().map_or(ledger.clone(), |first| segment::path_of(&ledger, *first));
            let what = format!("the daemon stopped cleanly at record {head}, but only {} are here", end.records);
            Err(damage(&last, 0, what))
        }
        Some(_) | None => Ok(end),
    }
}

/// Reads one segment; where its batches end, or none if `on` broke.
fn read_segment(
    path: &Path,
    pages: &Pages,
    next: &mut Seq,
    on: &mut impl FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> Result<Option<u64>, JournalError> {
    let file = Arc::new(File::open(path).map_err(JournalError::io("open", path))?);
    let header = &pages.header;
    let seed = frame::segment_seed(header.ledger, header.first);
    let mut reader = BatchReader::new(file, seed, header.first, pages.end);
    while let Step::Batch(batch) = reader.step().map_err(JournalError::io("read", path))? {
        let mut offset = 0;
        for seq in batch.first..batch.first + u64::from(batch.records) {
            let taken = batch.payload.get(offset..).and_then(frame::take_record);
            let (record, len) =
                taken.ok_or_else(|| damage(path, batch.offset + offset as u64, "a record is not whole".to_owned()))?;
            offset += len;
            let streams: Vec<&str> = record.streams.iter().map(|(name, _)| *name).collect();
            let flow = on(RecordView { seq, line: record.line, streams: &streams });
            *next = seq + 1;
            if flow.is_break() {
                return Ok(None);
            }
        }
    }
    Ok(Some(reader.at()))
}

/// Whether a segment may end where its last whole batch does.
fn check_end(
    path: &Path,
    pages: &Pages,
    at: u64,
    records: Seq,
    newest: bool,
    torn: &mut Option<PathBuf>,
) -> Result<(), JournalError> {
    if let Some(footer) = &pages.footer {
        if footer.chain.next == records && footer.end == at {
            return Ok(());
        }
        let what = format!("no whole batch stands here, but the segment goes on to record {}", footer.chain.next);
        return Err(damage(path, at, what));
    }
    if !newest {
        return Ok(());
    }
    let file = File::open(path).map_err(JournalError::io("open", path))?;
    let seed = frame::segment_seed(pages.header.ledger, pages.header.first);
    match segment::look_behind(&file, seed, records, at, pages.end).map_err(JournalError::io("read", path))? {
        Rest::Zeros => Ok(()),
        Rest::Torn => {
            *torn = Some(path.to_owned());
            Ok(())
        }
        // A running daemon wrote it after the reader had stopped.
        Rest::Later(later) if later == at => Ok(()),
        Rest::Later(later) => {
            Err(damage(path, at, format!("no whole batch stands here, but one stands at byte {later}")))
        }
    }
}

/// What a clean stop wrote down, if the last stop was one.
fn clean_stop(dir: &Path) -> Option<Seq> {
    std::fs::read_to_string(dir.join("clean-stop")).ok()?.lines().nth(1)?.parse().ok()
}

fn damage(path: &Path, offset: u64, what: String) -> JournalError {
    JournalError::Damage { path: path.to_owned(), offset, what, advice: RESTORE_FILE }
}

/// The event store of a stopped daemon, opened as a copy: sled writes to whatever it opens.
pub struct StoreCopy {
    index: Index,
    applied: Seq,
}

impl StoreCopy {
    /// Copies the store into an empty directory and opens the copy. None if there is no store, or one that a daemon would
    /// not trust either: it is rebuilt from the ledger at the next start.
    pub fn open(dir: &Path, scratch: &Path) -> Result<Option<Self>, JournalError> {
        let (from, to) = (dir.join("db"), scratch.join("db"));
        if !from.is_dir() {
            return Ok(None);
        }
        copy_tree(&from, &to).map_err(JournalError::io("copy", &from))?;
        let Some(index) = Index::open(&to, CACHE_BYTES)? else { return Ok(None) };
        let Some(meta) = index.meta()? else { return Ok(None) };
        Ok(index.is_whole().then_some(Self { index, applied: meta.applied }))
    }

    /// Records that the store has.
    pub fn applied(&self) -> Seq {
        self.applied
    }

    /// Seq of the last applied record that advanced a stream.
    pub fn version(&self, stream: &str) -> Result<Option<Seq>, JournalError> {
        self.index.version(stream)
    }

    /// How many streams the store knows.
    pub fn streams(&self) -> Result<usize, JournalError> {
        self.index.names("", None, usize::MAX).map(|names| names.len())
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use reversi_proto::canonical::Canonical;
    use reversi_proto::ids::{Actor, LedgerId};
    use reversi_proto::ledger::Draft;
    use reversi_proto::time::Timestamp;
    use reversi_proto::wake::Wake;

    use super::super::frame::{Chain, PAGE_BYTES, Record};
    use super::super::segment::OpenSegment;
    use super::*;

    const LEDGER: LedgerId = LedgerId([7; 16]);

    /// A data directory with segments of two batches of one record, all closed but the newest.
    fn data_dir(segments: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger");
        std::fs::create_dir(&ledger).unwrap();
        let mut chain = Chain::start(LEDGER);
        let mut paths = Vec::new();
        for n in 0..segments {
            let start = chain.clone();
            let mut bytes = vec![0; PAGE_BYTES];
            for _ in 0..2 {
                bytes.extend(batch(&mut chain, start.next));
            }
            let at = bytes.len() as u64;
            bytes.resize(bytes.len() + 300 + PAGE_BYTES, 0);
            let prepared = ledger.join("next.tmp");
            std::fs::write(&prepared, bytes).unwrap();
            let file = File::options().read(true).write(true).open(&prepared).unwrap();
            OpenSegment::write_header(&file, LEDGER, &start).unwrap();
            let mut open = OpenSegment::place(&prepared, file, &ledger, LEDGER, start.next).unwrap();
            open.at = at;
            if n + 1 < segments {
                open.write_footer(LEDGER, &chain).unwrap();
            }
            paths.push(open.path);
        }
        (dir, paths)
    }

    fn batch(chain: &mut Chain, segment: Seq) -> Vec<u8> {
        let body = Canonical::parse(format!(r#"{{"n":{}}}"#, chain.next).as_bytes()).unwrap();
        let draft = Draft::new(LEDGER, &Actor::system(), "x.y", &body, (None, chain.loose), [1; 16]).unwrap();
        let (mut line, mut batch) = (Vec::new(), vec![0; frame::BATCH_HEAD_BYTES]);
        let ts = Timestamp::from_micros(9);
        draft.stamp(chain.next, chain.leaf, chain.loose_leaf, ts, &mut line);
        let streams = vec![("ledger", Wake::None)];
        let record = Record { line: &line, private: b"sealed", ts, loose: true, keyed: false, streams };
        frame::put_record(&mut batch, &record);
        frame::seal_batch(&mut batch, frame::segment_seed(LEDGER, segment), chain.next, 1);
        segment::extend(chain, LEDGER, &record).unwrap();
        batch
    }

    fn read(dir: &Path) -> Result<ReadEnd, JournalError> {
        let mut expected = 0;
        read_records(dir, |record| {
            assert_eq!((record.seq, record.streams), (expected, &["ledger"][..]));
            assert!(record.line.starts_with(b"{\"actor\""));
            expected += 1;
            ControlFlow::Continue(())
        })
    }

    fn flip(path: &Path, at: usize) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn every_record_is_read_in_order_and_nothing_is_changed() {
        let (dir, paths) = data_dir(3);
        let before: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert_eq!(read(dir.path()).unwrap(), ReadEnd { records: 6, torn: None, clean_stop: None });
        let after: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert_eq!(before, after);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(is_data_dir(dir.path()) && !is_data_dir(&dir.path().join("ledger")));
        assert_eq!(ledger_bytes(dir.path()), before.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
    }

    #[test]
    fn reading_stops_when_told_to() {
        let (dir, _) = data_dir(2);
        let mut lines = 0;
        let stop = |_: &[u8]| {
            lines += 1;
            if lines == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        assert_eq!(read_lines(dir.path(), stop).unwrap().records, 3);
    }

    #[test]
    fn a_torn_tail_is_told_apart_from_damage() {
        let (dir, paths) = data_dir(2);
        let end = PAGE_BYTES + (std::fs::read(&paths[1]).unwrap().len() - 2 * PAGE_BYTES - 300);
        flip(&paths[1], end - 1);
        let found = read(dir.path()).unwrap();
        assert_eq!((found.records, found.torn.as_ref()), (3, Some(&paths[1])));
        // A clean stop knew better.
        std::fs::write(dir.path().join("clean-stop"), "boot\n4\nleaf\nstore\n").unwrap();
        assert!(matches!(read(dir.path()), Err(JournalError::Damage { .. })));
        // The same in a closed segment, or before a whole batch, is damage by itself.
        let (dir, paths) = data_dir(2);
        flip(&paths[0], end - 1);
        assert!(matches!(read(dir.path()), Err(JournalError::Damage { path, .. }) if path == paths[0]));
        let (dir, paths) = data_dir(1);
        flip(&paths[0], PAGE_BYTES + 30);
        assert!(matches!(read(dir.path()), Err(JournalError::Damage { path, .. }) if path == paths[0]));
    }

    #[test]
    fn a_missing_segment_is_damage() {
        let (dir, paths) = data_dir(3);
        std::fs::remove_file(&paths[1]).unwrap();
        assert!(matches!(read(dir.path()), Err(JournalError::Damage { path, .. }) if path == paths[2]));
    }

    #[test]
    fn a_held_lock_is_seen() {
        let (dir, _) = data_dir(1);
        assert!(!is_locked(dir.path()));
        let lock = File::create(dir.path().join("lock")).unwrap();
        assert!(!is_locked(dir.path()));
        lock.try_lock().unwrap();
        assert!(is_locked(dir.path()));
    }

    #[test]
    fn the_store_is_looked_at_as_a_copy() {
        let (dir, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(StoreCopy::open(dir.path(), scratch.path()).unwrap().is_none());
        let index = Index::open(&dir.path().join("db"), CACHE_BYTES).unwrap().unwrap();
        index.begin(LEDGER).unwrap();
        index.flush().unwrap();
        drop(index);
        let files = || {
            let list = std::fs::read_dir(dir.path().join("db")).unwrap().map(Result::unwrap);
            let mut files: Vec<_> = list.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect();
            files.sort();
            files
        };
        let before = files();
        let copy = StoreCopy::open(dir.path(), scratch.path()).unwrap().unwrap();
        assert_eq!((copy.applied(), copy.streams().unwrap()), (0, 0));
        assert_eq!(copy.version("ledger").unwrap(), None);
        assert_eq!(before, files());
    }
}
