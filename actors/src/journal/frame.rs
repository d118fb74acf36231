//! The bytes of a segment: header and footer pages, batches, records. Pure: knows no files, threads or domain events.
//!
//! ```text
//! segment = page(header) batch* zeros page(footer, once closed)      integers are little-endian
//! page    = magic 8 | version 4 | ledger 16 | first 8 | end 8 | chain state | zeros | crc32c 4        (4,096 bytes)
//! batch   = magic 4 | crc32c 4 | first_seq 8 | records 4 | bytes 4 | record*
//! record  = len 4 | version 1 | flags 1 | streams 2 | line 4 | private 4 | ts 8 | crc(line) 4 | crc(private) 4
//!           | (wake 1 [at 8] name_len 1 name)* | line without LF | private part
//! ```
//! A batch's CRC also covers the ledger id and the segment's first seq, so bytes of another file are never a batch here.
use reversi_proto::hash::Hash;
use reversi_proto::ids::{LedgerId, Seq};
use reversi_proto::ledger::{Frontier, genesis, run_genesis};
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const BATCH_HEAD_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 36;
const FORMAT: u32 = 1;
const RECORD_VERSION: u8 = 1;
const BATCH_MAGIC: [u8; 4] = [0xb5, b'R', b'V', 0x01];
const FLAG_LOOSE: u8 = 1;
const FLAG_KEYED: u8 = 2;

/// Everything the next record depends on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chain {
    /// Seq of the next record, so also the number of records.
    pub(crate) next: Seq,
    /// Leaf of the newest record.
    pub(crate) leaf: Hash,
    /// Time of the newest record.
    pub(crate) ts: Timestamp,
    /// How many records of no run there are: the next one's `run_seq`.
    pub(crate) loose: u64,
    /// Leaf of the newest record of no run.
    pub(crate) loose_leaf: Hash,
    /// The Merkle tree over all lines.
    pub(crate) frontier: Frontier,
}

impl Chain {
    /// Before the first record.
    pub(crate) fn start(ledger: LedgerId) -> Self {
        Self {
            next: 0,
            leaf: genesis(ledger),
            ts: Timestamp::default(),
            loose: 0,
            loose_leaf: run_genesis(ledger, None),
            frontier: Frontier::default(),
        }
    }

    /// Takes in one more record.
    pub(crate) fn push(&mut self, leaf: Hash, ts: Timestamp, loose: bool) {
        self.next += 1;
        self.leaf = leaf;
        self.ts = ts;
        if loose {
            self.loose += 1;
            self.loose_leaf = leaf;
        }
        self.frontier.append(leaf);
    }
}

/// Which page of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// The first one: the chain's state before the segment's first record.
    Header,
    /// The last one: the chain's state after the segment's last record.
    Footer,
}

impl Page {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Header => *b"\x89RVSEG\r\n",
            Self::Footer => *b"\x89RVEND\r\n",
        }
    }
}

/// What a page says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PageInfo {
    pub(crate) ledger: LedgerId,
    /// The segment's first seq.
    pub(crate) first: Seq,
    /// Where the batches end; 0 in a header.
    pub(crate) end: u64,
    pub(crate) chain: Chain,
}

/// One page; its size is fixed, the frontier of 2^64 leaves fits.
pub(crate) fn encode_page(page: Page, info: &PageInfo) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_BYTES);
    out.extend_from_slice(&page.magic());
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&info.ledger.0);
    out.extend_from_slice(&info.first.to_le_bytes());
    out.extend_from_slice(&info.end.to_le_bytes());
    let chain = &info.chain;
    out.extend_from_slice(&chain.next.to_le_bytes());
    out.extend_from_slice(&chain.leaf.0);
    out.extend_from_slice(&chain.ts.micros().to_le_bytes());
    out.extend_from_slice(&chain.loose.to_le_bytes());
    out.extend_from_slice(&chain.loose_leaf.0);
    for peak in chain.frontier.subtrees() {
        out.extend_from_slice(&peak.0);
    }
    out.resize(PAGE_BYTES - 4, 0);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Reads a page; none if a byte of it is wrong.
pub(crate) fn decode_page(page: Page, bytes: &[u8]) -> Option<PageInfo> {
    let (body, crc) = bytes.get(..PAGE_BYTES)?.split_at(PAGE_BYTES - 4);
    if crc != crc32c::crc32c(body).to_le_bytes() {
        return None;
    }
    let mut cursor = Cursor(body);
    if cursor.array::<8>()? != page.magic() || cursor.u32()? != FORMAT {
        return None;
    }
    let (ledger, first, end) = (LedgerId(cursor.array()?), cursor.u64()?, cursor.u64()?);
    let next = cursor.u64()?;
    let leaf = Hash(cursor.array()?);
    let ts = Timestamp::from_micros(i64::from_le_bytes(cursor.array()?));
    let (loose, loose_leaf) = (cursor.u64()?, Hash(cursor.array()?));
    let peaks = (0..next.count_ones()).map(|_| cursor.array().map(Hash)).collect::<Option<Vec<_>>>()?;
    let frontier = Frontier::from_parts(next, peaks).ok()?;
    Some(PageInfo { ledger, first, end, chain: Chain { next, leaf, ts, loose, loose_leaf, frontier } })
}

/// What a batch's CRC starts from: the file it belongs to.
pub(crate) fn segment_seed(ledger: LedgerId, first: Seq) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&ledger.0), &first.to_le_bytes())
}

/// The head of a batch, not yet checked against its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHead {
    crc: u32,
    pub(crate) first: Seq,
    pub(crate) records: u32,
    pub(crate) bytes: u32,
}

/// Fills in the head of a batch whose first [`BATCH_HEAD_BYTES`] were left free.
pub(crate) fn seal_batch(out: &mut [u8], seed: u32, first: Seq, records: u32) {
    let bytes = u32::try_from(out.len() - BATCH_HEAD_BYTES).unwrap_or(u32::MAX);
    out[0..4].copy_from_slice(&BATCH_MAGIC);
    out[8..16].copy_from_slice(&first.to_le_bytes());
    out[16..20].copy_from_slice(&records.to_le_bytes());
    out[20..24].copy_from_slice(&bytes.to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a batch's head; none if there is none here.
pub(crate) fn batch_head(bytes: &[u8]) -> Option<BatchHead> {
    let mut cursor = Cursor(bytes);
    if cursor.array::<4>()? != BATCH_MAGIC {
        return None;
    }
    Some(BatchHead { crc: cursor.u32()?, first: cursor.u64()?, records: cursor.u32()?, bytes: cursor.u32()? })
}

/// Whether a whole batch (head included) is what was written for this segment.
pub(crate) fn batch_is_valid(head: &BatchHead, seed: u32, batch: &[u8]) -> bool {
    head.records > 0 && crc32c::crc32c_append(seed, &batch[8..]) == head.crc
}

/// Where a batch's magic next stands in `bytes`.
pub(crate) fn find_batch(bytes: &[u8]) -> Option<usize> {
    bytes.windows(BATCH_MAGIC.len()).position(|window| window == BATCH_MAGIC)
}

/// What a record carries, borrowed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record<'a> {
    pub(crate) line: &'a [u8],
    pub(crate) private: &'a [u8],
    pub(crate) ts: Timestamp,
    /// It is of no run.
    pub(crate) loose: bool,
    /// A new run's key went with it: that run's key must be in `private.keys`.
    pub(crate) keyed: bool,
    pub(crate) streams: Vec<(&'a str, Wake)>,
}

/// Appends a record. Stream names are at most 255 bytes (their ids see to that), parts at most 4 GiB.
pub(crate) fn put_record(out: &mut Vec<u8>, record: &Record<'_>) {
    let start = out.len();
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let flags = if record.loose { FLAG_LOOSE } else { 0 } | if record.keyed { FLAG_KEYED } else { 0 };
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[RECORD_VERSION, flags]);
    out.extend_from_slice(&u16::try_from(record.streams.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(&size(record.line));
    out.extend_from_slice(&size(record.private));
    out.extend_from_slice(&record.ts.micros().to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(record.line).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(record.private).to_le_bytes());
    for (name, wake) in &record.streams {
        put_wake(out, *wake);
        out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(record.line);
    out.extend_from_slice(record.private);
    let len = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// An upper bound of what [`put_record`] appends.
pub(crate) fn record_bytes_max(line: usize, private: usize, names: impl Iterator<Item = usize>) -> usize {
    RECORD_HEAD_BYTES + line + private + names.map(|name| name + 10).sum::<usize>()
}

/// Reads the record at the start of `bytes` and its length; none if it is not whole or its CRCs are wrong.
pub(crate) fn take_record(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let len = usize::try_from(Cursor(bytes).u32()?).ok()?;
    let mut cursor = Cursor(bytes.get(4..len)?);
    let [version, flags] = cursor.array::<2>()?;
    if version != RECORD_VERSION {
        return None;
    }
    let streams = u16::from_le_bytes(cursor.array()?);
    let (line, private) = (cursor.u32()?, cursor.u32()?);
    let ts = Timestamp::from_micros(i64::from_le_bytes(cursor.array()?));
    let (line_crc, private_crc) = (cursor.u32()?, cursor.u32()?);
    let streams = (0..streams)
        .map(|_| {
            let wake = take_wake(&mut cursor)?;
            let [name] = cursor.array::<1>()?;
            Some((std::str::from_utf8(cursor.bytes(usize::from(name))?).ok()?, wake))
        })
        .collect::<Option<Vec<_>>>()?;
    let line = cursor.bytes(usize::try_from(line).ok()?)?;
    let private = cursor.bytes(usize::try_from(private).ok()?)?;
    let whole = cursor.0.is_empty() && crc32c::crc32c(line) == line_crc && crc32c::crc32c(private) == private_crc;
    let (loose, keyed) = (flags & FLAG_LOOSE != 0, flags & FLAG_KEYED != 0);
    whole.then_some((Record { line, private, ts, loose, keyed, streams }, len))
}

/// Appends a wake hint: one byte, and an instant where there is one.
pub(crate) fn put_wake(out: &mut Vec<u8>, wake: Wake) {
    match wake {
        Wake::None => out.push(0),
        Wake::Now => out.push(1),
        Wake::At(at) => {
            out.push(2);
            out.extend_from_slice(&at.micros().to_be_bytes());
        }
    }
}

/// Reads a wake hint.
pub(crate) fn take_wake(cursor: &mut Cursor<'_>) -> Option<Wake> {
    match cursor.array::<1>()? {
        [0] => Some(Wake::None),
        [1] => Some(Wake::Now),
        [2] => Some(Wake::At(Timestamp::from_micros(i64::from_be_bytes(cursor.array()?)))),
        _ => None,
    }
}

/// Takes fixed-size values off the front of a slice.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// The members of a stored line that the chain consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    pub(crate) seq: Seq,
    pub(crate) prev: &'a str,
    pub(crate) ledger: &'a str,
}

/// Reads a line's links without parsing it: after `body` a line holds no free text, so the last place where a member's
/// name stands is the member.
pub(crate) fn link(line: &[u8]) -> Option<Link<'_>> {
    let line = std::str::from_utf8(line).ok()?;
    let after = |name: &str| line.rfind(name).map(|at| &line[at + name.len()..]);
    let seq = after(r#","seq":"#)?;
    let seq = seq[..seq.find(',')?].parse().ok()?;
    Some(Link { seq, prev: after(r#","prev":""#)?.get(..64)?, ledger: after(r#","ledger":""#)?.get(..32)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(records: u64) -> Chain {
        let mut chain = Chain::start(LedgerId([7; 16]));
        for n in 0..records {
            chain.push(Hash([u8::try_from(n).unwrap(); 32]), Timestamp::from_micros(5), n % 2 == 0);
        }
        chain
    }

    #[test]
    fn a_page_survives_and_every_flipped_byte_is_seen() {
        let info = PageInfo { ledger: LedgerId([7; 16]), first: 3, end: 9000, chain: chain(11) };
        let bytes = encode_page(Page::Footer, &info);
        assert_eq!(decode_page(Page::Footer, &bytes), Some(info));
        assert_eq!(decode_page(Page::Header, &bytes), None);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(decode_page(Page::Footer, &bad), None, "byte {at}");
        }
    }

    #[test]
    fn a_record_survives_and_its_parts_are_guarded() {
        let streams =
            vec![("run/r", Wake::At(Timestamp::from_micros(77))), ("halt", Wake::Now), ("config", Wake::None)];
        let record = Record {
            line: b"{line}",
            private: b"sealed",
            ts: Timestamp::from_micros(3),
            loose: true,
            keyed: true,
            streams,
        };
        let mut bytes = Vec::new();
        put_record(&mut bytes, &record);
        assert!(bytes.len() <= record_bytes_max(6, 6, [5, 4, 6].into_iter()));
        bytes.push(1);
        assert_eq!(take_record(&bytes), Some((record, bytes.len() - 1)));
        bytes.pop();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(take_record(&bytes), None);
    }

    #[test]
    fn links_are_the_last_members_of_their_name() {
        let line = br#"{"actor":1,"body":{"x":",\"seq\":9","y":{",":1,"prev":"no"}},"ledger":"0123456789abcdef0123456789abcdef","prev":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","run":"","run_prev":"b","run_seq":1,"salt":"s","seq":42,"ts":"t","type":"x","v":1}"#;
        let Link { seq, prev, ledger } = link(line).unwrap();
        assert_eq!((seq, prev, ledger.len()), (42, &"a".repeat(64)[..], 32));
    }
}
