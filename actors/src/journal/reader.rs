//! Reads the batches of one segment in order. Must not decide what a bad batch means: the boot does.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use reversi_proto::ids::Seq;

use super::frame::{self, BATCH_HEAD_BYTES, BatchHead, PAGE_BYTES};

const READ_AHEAD: usize = 256 << 10;

/// Walks over a segment's batches.
pub(crate) struct BatchReader {
    file: Arc<File>,
    seed: u32,
    /// Where the next batch starts.
    at: u64,
    /// Where batches end at the latest.
    end: u64,
    /// First seq of the next batch.
    next: Seq,
    buffer: Vec<u8>,
    buffer_at: u64,
}

/// What stands at the reader's place.
pub(crate) enum Step<'a> {
    /// A valid batch; the reader is behind it now.
    Batch(Batch<'a>),
    /// No valid batch: the end, or damage. The reader has not moved.
    Stop,
}

/// A valid batch.
pub(crate) struct Batch<'a> {
    /// Seq of its first record.
    pub(crate) first: Seq,
    pub(crate) records: u32,
    /// Where its first record stands in the file.
    pub(crate) offset: u64,
    /// Its records.
    pub(crate) payload: &'a [u8],
}

impl BatchReader {
    /// Starts at the first batch of a segment whose batches end before `end`.
    pub(crate) fn new(file: Arc<File>, seed: u32, first: Seq, end: u64) -> Self {
        let at = PAGE_BYTES as u64;
        Self { file, seed, at, end, next: first, buffer: Vec::new(), buffer_at: at }
    }

    /// Goes on at a known place.
    pub(crate) fn seek(&mut self, next: Seq, at: u64) {
        (self.next, self.at) = (next, at);
    }

    /// Where the next batch starts.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// First seq of the next batch.
    pub(crate) fn next_seq(&self) -> Seq {
        self.next
    }

    /// Reads the next batch, checks its CRC and moves on.
    pub(crate) fn step(&mut self) -> io::Result<Step<'_>> {
        // What was read ahead can be older than what the writer has put there since: look twice before giving up.
        let mut found = self.whole_batch()?;
        if found.is_none() && !self.buffer.is_empty() {
            self.buffer.clear();
            found = self.whole_batch()?;
        }
        let Some(head) = found else { return Ok(Step::Stop) };
        let len = BATCH_HEAD_BYTES + head.bytes as usize;
        let start = self.in_buffer();
        let offset = self.at + BATCH_HEAD_BYTES as u64;
        self.at += len as u64;
        self.next = head.first + u64::from(head.records);
        let payload = &self.buffer[start + BATCH_HEAD_BYTES..start + len];
        Ok(Step::Batch(Batch { first: head.first, records: head.records, offset, payload }))
    }

    /// Passes over batches that end before `seq` by their heads alone.
    pub(crate) fn skip_to(&mut self, seq: Seq) -> io::Result<()> {
        loop {
            if !self.fill(BATCH_HEAD_BYTES)? {
                return Ok(());
            }
            let Some(head) = frame::batch_head(&self.buffer[self.in_buffer()..]) else { return Ok(()) };
            let after = head.first + u64::from(head.records);
            if head.first != self.next || after > seq || head.records == 0 {
                return Ok(());
            }
            self.next = after;
            self.at += BATCH_HEAD_BYTES as u64 + u64::from(head.bytes);
        }
    }

    fn whole_batch(&mut self) -> io::Result<Option<BatchHead>> {
        if !self.fill(BATCH_HEAD_BYTES)? {
            return Ok(None);
        }
        let Some(head) = frame::batch_head(&self.buffer[self.in_buffer()..]) else { return Ok(None) };
        let len = BATCH_HEAD_BYTES + head.bytes as usize;
        if head.first != self.next || !self.fill(len)? {
            return Ok(None);
        }
        let start = self.in_buffer();
        Ok(frame::batch_is_valid(&head, self.seed, &self.buffer[start..start + len]).then_some(head))
    }

    fn in_buffer(&self) -> usize {
        usize::try_from(self.at - self.buffer_at).unwrap_or(usize::MAX)
    }

    /// Makes sure that `len` bytes from the reader's place on are in the buffer; false if the segment has no room for them.
    fn fill(&mut self, len: usize) -> io::Result<bool> {
        if self.at + len as u64 > self.end {
            return Ok(false);
        }
        let held = self.buffer_at..self.buffer_at + self.buffer.len() as u64;
        if held.contains(&self.at) && self.at + len as u64 <= held.end {
            return Ok(true);
        }
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        self.buffer.resize(len.max(READ_AHEAD).min(left), 0);
        self.buffer_at = self.at;
        let read = self.file.read_exact_at(&mut self.buffer, self.at);
        if read.is_err() {
            self.buffer.clear();
        }
        read.map(|()| true)
    }
}
