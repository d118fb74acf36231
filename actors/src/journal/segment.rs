//! Segment files: names, creation, scanning, and the readers' registry of them. Must not decide what to do about a bad
//! tail: the boot does.
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use reversi_proto::hash::{Hash, hex};
use reversi_proto::ids::{LedgerId, Seq};
use reversi_proto::ledger::leaf;

use super::JournalError;
use super::files;
use super::frame::{self, Chain, PAGE_BYTES, Page, PageInfo, Record};
use super::reader::{BatchReader, Step};

/// Where a segment that is being prepared stands.
pub(crate) const PREPARED_NAME: &str = "next.tmp";

/// Advice for acknowledged bytes that are wrong.
pub(crate) const RESTORE_FILE: &str = "put this file back from a backup or a replica, nothing has been changed";

/// Files that the readers keep open.
const OPEN_FILES_MAX: usize = 64;

/// `dir/<first seq, 20 digits>.seg`.
pub(crate) fn path_of(dir: &Path, first: Seq) -> PathBuf {
    dir.join(format!("{first:020}.seg"))
}

/// The first seqs of the segments in a directory, in order.
pub(crate) fn list(dir: &Path) -> Result<Vec<Seq>, JournalError> {
    let wrong = || JournalError::io("list", dir);
    let mut firsts = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(wrong())? {
        let name = entry.map_err(wrong())?.file_name();
        let first = name.to_str().and_then(|name| name.strip_suffix(".seg")).filter(|digits| digits.len() == 20);
        firsts.extend(first.and_then(|digits| digits.parse::<Seq>().ok()));
    }
    firsts.sort_unstable();
    Ok(firsts)
}

/// The segment that the writer appends to.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) first: Seq,
    /// Where the next batch goes.
    pub(crate) at: u64,
    /// Where batches must end.
    pub(crate) end: u64,
    pub(crate) seed: u32,
}

impl OpenSegment {
    /// Writes the header into a zero-filled file: the segment that starts at the chain's next record.
    pub(crate) fn write_header(file: &File, ledger: LedgerId, chain: &Chain) -> io::Result<()> {
        let header = PageInfo { ledger, first: chain.next, end: 0, chain: chain.clone() };
        file.write_all_at(&frame::encode_page(Page::Header, &header), 0)
    }

    /// Gives a file with a header its place among the segments: sync, rename, sync of the directory.
    pub(crate) fn place(prepared: &Path, file: File, dir: &Path, ledger: LedgerId, first: Seq) -> io::Result<Self> {
        file.sync_all()?;
        let path = path_of(dir, first);
        std::fs::rename(prepared, &path)?;
        files::sync_dir(dir)?;
        let end = file.metadata()?.len() - PAGE_BYTES as u64;
        Ok(Self { file, path, first, at: PAGE_BYTES as u64, end, seed: frame::segment_seed(ledger, first) })
    }

    /// Writes the footer. Once that is synced the segment is closed, and nothing may be appended to it.
    pub(crate) fn write_footer(&self, ledger: LedgerId, chain: &Chain) -> io::Result<()> {
        let footer = PageInfo { ledger, first: self.first, end: self.at, chain: chain.clone() };
        self.file.write_all_at(&frame::encode_page(Page::Footer, &footer), self.end)
    }
}

/// What the pages of a segment say.
pub(crate) struct Pages {
    pub(crate) header: PageInfo,
    pub(crate) footer: Option<PageInfo>,
    /// Where batches must end.
    pub(crate) end: u64,
}

/// Reads the header and, if the segment is closed, the footer.
pub(crate) fn read_pages(path: &Path, first: Seq) -> Result<Pages, JournalError> {
    let damage = |offset, what: &str| JournalError::Damage {
        path: path.to_owned(),
        offset,
        what: what.to_owned(),
        advice: RESTORE_FILE,
    };
    let file = File::open(path).map_err(JournalError::io("open", path))?;
    let len = file.metadata().map_err(JournalError::io("read", path))?.len();
    let end = len.checked_sub(PAGE_BYTES as u64).filter(|end| *end >= PAGE_BYTES as u64);
    let end = end.ok_or_else(|| damage(len, "the file is shorter than a segment can be"))?;
    let mut page = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut page, 0).map_err(JournalError::io("read", path))?;
    let header =
        frame::decode_page(Page::Header, &page).ok_or_else(|| damage(0, "the header is not what was written"))?;
    if header.first != first || header.chain.next != first {
        return Err(damage(0, "the header is of another segment than the file's name says"));
    }
    file.read_exact_at(&mut page, end).map_err(JournalError::io("read", path))?;
    let footer = frame::decode_page(Page::Footer, &page).filter(|footer| footer.first == first);
    Ok(Pages { header, footer, end })
}

/// What stands behind the last valid batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Zeros.
    Zeros,
    /// Bytes, but no valid batch among them.
    Torn,
    /// A valid batch of this segment, at this offset: what is before it was acknowledged.
    Later(u64),
}

/// What a scan of a segment found.
pub(crate) struct Scan {
    pub(crate) chain: Chain,
    /// Where the valid batches end.
    pub(crate) at: u64,
    pub(crate) rest: Rest,
}

/// Reads a segment's batches from the start, verifies the chain, and looks at what is behind them. With `until`, stops
/// after the record before it.
pub(crate) fn scan(path: &Path, pages: &Pages, until: Option<Seq>) -> Result<Scan, JournalError> {
    let file = Arc::new(File::open(path).map_err(JournalError::io("open", path))?);
    let header = &pages.header;
    let seed = frame::segment_seed(header.ledger, header.first);
    let mut reader = BatchReader::new(Arc::clone(&file), seed, header.first, pages.end);
    let mut chain = header.chain.clone();
    while let Step::Batch(batch) = reader.step().map_err(JournalError::io("read", path))? {
        let mut offset = 0;
        for _ in 0..batch.records {
            if until == Some(chain.next) {
                return Ok(Scan { chain, at: batch.offset, rest: Rest::Zeros });
            }
            let taken = batch.payload.get(offset..).and_then(frame::take_record);
            let linked = taken
                .ok_or_else(|| "a record is not whole".to_owned())
                .and_then(|(record, len)| extend(&mut chain, header.ledger, &record).map(|_| len));
            let at = batch.offset + offset as u64;
            offset += linked.map_err(|what| JournalError::Damage {
                path: path.to_owned(),
                offset: at,
                what,
                advice: RESTORE_FILE,
            })?;
        }
    }
    let at = reader.at();
    let rest = look_behind(&file, seed, chain.next, at, pages.end).map_err(JournalError::io("read", path))?;
    Ok(Scan { chain, at, rest })
}

/// Takes a stored record into the chain, if it continues it.
pub(crate) fn extend(chain: &mut Chain, ledger: LedgerId, record: &Record<'_>) -> Result<Hash, String> {
    let link = frame::link(record.line).ok_or_else(|| "a stored line is no ledger line".to_owned())?;
    if link.seq != chain.next {
        return Err(format!("expected the record with seq {}, found seq {}", chain.next, link.seq));
    }
    if link.prev != hex(&chain.leaf.0) {
        return Err(format!(
            "the chain is broken at seq {}: expected prev {}, found {}",
            link.seq, chain.leaf, link.prev
        ));
    }
    if link.ledger != hex(&ledger.0) {
        return Err(format!("seq {} is of ledger {}, not of {ledger}", link.seq, link.ledger));
    }
    let leaf = leaf(record.line);
    chain.push(leaf, record.ts, record.loose);
    Ok(leaf)
}

pub(crate) fn look_behind(file: &File, seed: u32, next: Seq, at: u64, end: u64) -> io::Result<Rest> {
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(at)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Rest::Zeros);
    }
    let mut from = 0;
    while let Some(found) = frame::find_batch(&bytes[from..]) {
        let start = from + found;
        if let Some(head) = frame::batch_head(&bytes[start..]) {
            let whole = bytes.get(start..start + frame::BATCH_HEAD_BYTES + head.bytes as usize);
            if whole.is_some_and(|whole| head.first >= next && frame::batch_is_valid(&head, seed, whole)) {
                return Ok(Rest::Later(at + start as u64));
            }
        }
        from = start + 1;
    }
    Ok(Rest::Torn)
}

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// First seq of its segment.
    pub(crate) segment: Seq,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// The readers' view of all segments.
pub(crate) struct Segments {
    dir: PathBuf,
    ledger: LedgerId,
    firsts: RwLock<Vec<Seq>>,
    files: Mutex<HashMap<Seq, Arc<File>>>,
}

impl Segments {
    pub(crate) fn new(dir: PathBuf, ledger: LedgerId, firsts: Vec<Seq>) -> Self {
        Self { dir, ledger, firsts: RwLock::new(firsts), files: Mutex::new(HashMap::new()) }
    }

    /// The writer has begun a new segment.
    pub(crate) fn add(&self, first: Seq) {
        self.firsts.write().unwrap_or_else(PoisonError::into_inner).push(first);
    }

    /// The path of a segment.
    pub(crate) fn path(&self, first: Seq) -> PathBuf {
        path_of(&self.dir, first)
    }

    /// First seq of the segment that holds, or will hold, `seq`.
    pub(crate) fn holding(&self, seq: Seq) -> Seq {
        let firsts = self.firsts.read().unwrap_or_else(PoisonError::into_inner);
        let behind = firsts.partition_point(|first| *first <= seq);
        firsts.get(behind.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// A reader at the start of the segment that holds `seq`, and that segment's first seq.
    pub(crate) fn reader(&self, seq: Seq) -> Result<(Seq, BatchReader), JournalError> {
        let first = self.holding(seq);
        let file = self.file(first)?;
        let len = file.metadata().map_err(JournalError::io("read", &self.path(first)))?.len();
        let end = len.saturating_sub(PAGE_BYTES as u64);
        Ok((first, BatchReader::new(file, frame::segment_seed(self.ledger, first), first, end)))
    }

    /// The bytes of one record.
    pub(crate) fn record(&self, pointer: Pointer) -> Result<Vec<u8>, JournalError> {
        let file = self.file(pointer.segment)?;
        let mut bytes = vec![0; pointer.len as usize];
        file.read_exact_at(&mut bytes, pointer.offset).map_err(|source| JournalError::Io {
            what: "read",
            path: self.path(pointer.segment),
            source,
        })?;
        Ok(bytes)
    }

    fn file(&self, first: Seq) -> Result<Arc<File>, JournalError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&first) {
            return Ok(Arc::clone(file));
        }
        let path = self.path(first);
        let file = Arc::new(File::open(&path).map_err(JournalError::io("open", &path))?);
        if files.len() >= OPEN_FILES_MAX {
            files.clear();
        }
        files.insert(first, Arc::clone(&file));
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use reversi_proto::canonical::Canonical;
    use reversi_proto::ids::Actor;
    use reversi_proto::ledger::Draft;
    use reversi_proto::time::Timestamp;

    use super::*;

    /// A segment of three batches, and where each begins; the last entry is where they end.
    fn segment(dir: &Path) -> (PathBuf, Vec<usize>) {
        let ledger = LedgerId([7; 16]);
        let (mut bytes, mut starts, start) = (vec![0; PAGE_BYTES], vec![PAGE_BYTES], Chain::start(ledger));
        let mut chain = start.clone();
        for n in 0..3 {
            let body = Canonical::parse(format!(r#"{{"n":{n}}}"#).as_bytes()).unwrap();
            let draft = Draft::new(ledger, &Actor::system(), "x.y", &body, (None, n), [1; 16]).unwrap();
            let (mut line, mut batch) = (Vec::new(), vec![0; frame::BATCH_HEAD_BYTES]);
            draft.stamp(chain.next, chain.leaf, chain.loose_leaf, Timestamp::from_micros(9), &mut line);
            let ts = Timestamp::from_micros(9);
            let record = Record { line: &line, private: b"sealed!", ts, loose: true, keyed: false, streams: vec![] };
            frame::put_record(&mut batch, &record);
            frame::seal_batch(&mut batch, frame::segment_seed(ledger, 0), chain.next, 1);
            extend(&mut chain, ledger, &record).unwrap();
            bytes.extend(batch);
            starts.push(bytes.len());
        }
        bytes.resize(bytes.len() + 200 + PAGE_BYTES, 0);
        let prepared = dir.join(PREPARED_NAME);
        std::fs::write(&prepared, bytes).unwrap();
        let file = files::open_existing(&prepared).unwrap();
        OpenSegment::write_header(&file, ledger, &start).unwrap();
        (OpenSegment::place(&prepared, file, dir, ledger, 0).unwrap().path, starts)
    }

    fn look(path: &Path) -> Result<(Seq, usize, Rest), JournalError> {
        let pages = read_pages(path, 0)?;
        let found = scan(path, &pages, None)?;
        Ok((found.chain.next, usize::try_from(found.at).unwrap(), found.rest))
    }

    #[test]
    fn a_last_batch_torn_at_any_byte_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let (path, starts) = segment(dir.path());
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(look(&path).unwrap(), (3, starts[3], Rest::Zeros));
        for cut in starts[2]..starts[3] {
            let mut torn = whole.clone();
            torn[cut..starts[3]].fill(0);
            std::fs::write(&path, &torn).unwrap();
            let rest = if cut == starts[2] { Rest::Zeros } else { Rest::Torn };
            assert_eq!(look(&path).unwrap(), (2, starts[2], rest), "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (path, starts) = segment(dir.path());
        let whole = std::fs::read(&path).unwrap();
        let file = files::open_existing(&path).unwrap();
        for (byte, right) in whole[..starts[3]].iter().enumerate() {
            file.write_all_at(&[right ^ 1 << (byte % 8)], byte as u64).unwrap();
            let found = look(&path);
            file.write_all_at(&[*right], byte as u64).unwrap();
            match starts.iter().rposition(|start| *start <= byte) {
                None => assert!(matches!(found, Err(JournalError::Damage { offset: 0, .. })), "byte {byte}"),
                Some(2) => assert_eq!(found.unwrap(), (2, starts[2], Rest::Torn), "byte {byte}"),
                Some(batch) => {
                    let expected = (batch as u64, starts[batch], Rest::Later(starts[batch + 1] as u64));
                    assert_eq!(found.unwrap(), expected, "byte {byte}");
                }
            }
        }
    }

    #[test]
    fn a_batch_of_another_file_is_none_here() {
        let dir = tempfile::tempdir().unwrap();
        let (path, starts) = segment(dir.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let mut foreign = bytes[starts[2]..starts[3]].to_vec();
        frame::seal_batch(&mut foreign, frame::segment_seed(LedgerId([7; 16]), 1), 2, 1);
        bytes[starts[2]..starts[3]].copy_from_slice(&foreign);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(look(&path).unwrap(), (2, starts[2], Rest::Torn));
    }
}
