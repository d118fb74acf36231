//! Fills the event store behind the writer, reading from the segments. Must not be on the path of an acknowledgement.
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use reversi_proto::ids::{LedgerId, Seq};

use super::JournalError;
use super::frame::{self, Chain};
use super::index::{Index, Update};
use super::reader::{BatchReader, Step};
use super::segment::{self, Pointer, Segments};
use super::shared::Shared;
use crate::failpoint::failpoint;

/// sled gets what it holds in its own buffers to the kernel at least this often while there is work.
const FLUSH_RECORDS: u64 = 50_000;
/// sled is flushed when nothing new has come for this long.
const FLUSH_AFTER: std::time::Duration = std::time::Duration::from_millis(500);

/// Reads on from what has been applied.
pub(crate) struct Feed {
    segment: Seq,
    reader: BatchReader,
    /// The chain so far, where it is to be verified.
    verify: Option<(LedgerId, Chain)>,
}

impl Feed {
    /// Goes on at record `applied`.
    pub(crate) fn new(segments: &Segments, applied: Seq) -> Result<Self, JournalError> {
        let (segment, mut reader) = segments.reader(applied)?;
        reader.skip_to(applied).map_err(|source| JournalError::Io {
            what: "read",
            path: segments.path(segment),
            source,
        })?;
        Ok(Self { segment, reader, verify: None })
    }

    /// Starts at the first record and verifies the chain.
    pub(crate) fn verifying(segments: &Segments, ledger: LedgerId) -> Result<Self, JournalError> {
        Ok(Self { verify: Some((ledger, Chain::start(ledger))), ..Self::new(segments, 0)? })
    }

    /// Gathers whole batches, about `records` records, none at or behind `until`.
    fn gather(
        &mut self,
        segments: &Segments,
        update: &mut Update,
        until: Seq,
        records: u64,
    ) -> Result<(), JournalError> {
        let begin = update.applied();
        while update.applied() < until && update.applied() - begin < records {
            let at = self.reader.at();
            let damage = |offset, what: String| JournalError::Damage {
                path: segments.path(self.segment),
                offset,
                what,
                advice: segment::RESTORE_FILE,
            };
            let step = self.reader.step().map_err(JournalError::io("read", &segments.path(self.segment)))?;
            let Step::Batch(batch) = step else {
                let next = self.reader.next_seq();
                if next == update.applied() && segments.holding(next) == next && next != self.segment {
                    (self.segment, self.reader) = segments.reader(next)?;
                    continue;
                }
                return Err(damage(at, format!("the batch that begins with seq {} can't be read", update.applied())));
            };
            let mut offset = 0;
            for seq in batch.first..batch.first + u64::from(batch.records) {
                let place = batch.offset + offset as u64;
                let taken = batch.payload.get(offset..).and_then(frame::take_record);
                let (record, len) = taken.ok_or_else(|| damage(place, format!("record {seq} is not whole")))?;
                if let Some((ledger, chain)) = &mut self.verify {
                    segment::extend(chain, *ledger, &record).map_err(|what| damage(place, what))?;
                }
                let len_stored = u32::try_from(len).unwrap_or(u32::MAX);
                update.add(seq, &record, Pointer { segment: self.segment, offset: place, len: len_stored });
                offset += len;
            }
        }
        Ok(())
    }

    /// Applies one portion of what is before `until`; returns how far the store is, and which streams moved.
    pub(crate) fn apply(
        &mut self,
        index: &Index,
        segments: &Segments,
        until: Seq,
        records: u64,
    ) -> Result<(Seq, Vec<String>), JournalError> {
        let Some(meta) = index.meta()? else { return Err(JournalError::Closed) };
        let mut update = Update::new(meta);
        self.gather(segments, &mut update, until, records)?;
        let (applied, names) = (update.applied(), update.names());
        failpoint!("journal.before_apply");
        index.apply(update)?;
        failpoint!("journal.after_apply");
        Ok((applied, names))
    }
}

/// The thread.
pub(crate) fn run(shared: &Arc<Shared>, mut feed: Feed) {
    let mut unflushed = 0;
    while let Some(work) = wait(shared, unflushed > 0) {
        let applied = shared.applied.load(Ordering::SeqCst);
        let turn = shared.index().and_then(|index| {
            let (now, names) =
                feed.apply(&index, &shared.segments, shared.head(), shared.config.apply_records.max(1))?;
            // In sled first, out of the tail then: a reader looks at the tail first.
            shared.tail.remove(names.iter().map(String::as_str), now);
            shared.applied.store(now, Ordering::SeqCst);
            unflushed += now - applied;
            if unflushed >= FLUSH_RECORDS || work == Work::Flush {
                unflushed = 0;
                index.flush()?;
            }
            Ok(())
        });
        if let Err(error) = turn {
            // After an error sled's handle can show what it has not stored: the store must be opened anew.
            if !matches!(error, JournalError::Closed) {
                shared.fail(&format!("the event store can't be written: {error}"));
            }
            return;
        }
        // Somebody may wait for this.
        shared.applies.ring(|_| {});
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// There is a portion worth applying.
    Apply,
    /// Nothing new for a while: what was applied can leave sled's buffers, so that a kill loses little of it, and a
    /// tail that is cut off later is noticed.
    Flush,
}

/// Waits until there is work; None: the journal stops. `unflushed`: sled holds applied records in its buffers only.
fn wait(shared: &Shared, unflushed: bool) -> Option<Work> {
    let config = &shared.config;
    let lag = || shared.head() - shared.applied.load(Ordering::SeqCst);
    let mut state = shared.applies.lock();
    let mut since: Option<Instant> = None;
    loop {
        if state.stop || shared.has_failed() {
            return None;
        }
        let (lag, waited) = (lag(), since.map(|since| since.elapsed()));
        if lag >= config.apply_records || (lag > 0 && (state.urgent || waited >= Some(config.apply_interval))) {
            return Some(Work::Apply);
        }
        let bell = &shared.applies.bell;
        state = if lag == 0 {
            state.urgent = false;
            since = None;
            if unflushed {
                let (state, timed_out) = bell.wait_timeout(state, FLUSH_AFTER).unwrap_or_else(PoisonError::into_inner);
                if timed_out.timed_out() {
                    return Some(Work::Flush);
                }
                state
            } else {
                bell.wait(state).unwrap_or_else(PoisonError::into_inner)
            }
        } else {
            since.get_or_insert_with(Instant::now);
            let left = config.apply_interval.saturating_sub(waited.unwrap_or_default());
            bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
        };
    }
}
