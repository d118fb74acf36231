//! Reading: the event store, with the unapplied tail laid over it, and the segments for exports. Every function looks at
//! the tail first and at sled second: the applier moves records the other way round, so none is missed in between.
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use reversi_proto::ids::{Seq, StreamId};
use reversi_proto::ledger::leaf;
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;

use super::frame;
use super::index::Entry;
use super::reader::Step;
use super::segment::{Pointer, RESTORE_FILE};
use super::shared::Shared;
use super::{JournalError, StoredRecord};

/// How many exports under way have their places remembered.
const CURSORS_MAX: usize = 8;

impl Shared {
    /// Seq of the stream's newest durable record.
    pub(crate) fn version(&self, name: &str) -> Result<Option<Seq>, JournalError> {
        match self.tail.version(name) {
            Some(seq) => Ok(Some(seq)),
            None => self.index()?.version(name),
        }
    }

    /// The stream's durable records from `from` on.
    pub(crate) fn load(&self, name: &str, from: Seq) -> Result<Vec<StoredRecord>, JournalError> {
        let tail = self.tail.records(name, from);
        let applied = self.index()?.records(name, from)?;
        // sled may have got some of the tail meanwhile, and records after it; what it has, it has without gaps.
        let last = applied.last().map(|(seq, _)| *seq);
        let rest = tail.into_iter().filter(|(seq, _)| last.is_none_or(|last| *seq > last));
        let all = applied.into_iter().chain(rest.map(|(seq, place)| (seq, Entry::At(place))));
        all.map(|(seq, entry)| self.stored(seq, entry)).collect()
    }

    /// Streams that are due.
    pub(crate) fn due(&self, until: Timestamp, limit: usize) -> Result<Vec<(StreamId, Wake)>, JournalError> {
        let tail = self.tail.wakes();
        let mut due = self.index()?.due(until, limit, |name| tail.contains_key(name))?;
        let is_due = |wake: &Wake| match wake {
            Wake::None => false,
            Wake::Now => true,
            Wake::At(at) => *at <= until,
        };
        due.extend(tail.into_iter().filter(|(_, wake)| is_due(wake)).map(|(name, wake)| (name.to_string(), wake)));
        due.sort_by(|(name_a, a), (name_b, b)| (a, name_a).cmp(&(b, name_b)));
        due.truncate(limit);
        due.into_iter().map(|(name, wake)| Ok((self.stream(&name)?, wake))).collect()
    }

    /// Streams in the order of their names.
    pub(crate) fn streams(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StreamId>, JournalError> {
        let mut names: BTreeSet<String> = self.tail.names(prefix, after);
        names.extend(self.index()?.names(prefix, after, limit)?);
        names.iter().take(limit).map(|name| self.stream(name)).collect()
    }

    fn stream(&self, name: &str) -> Result<StreamId, JournalError> {
        name.parse().map_err(|_| JournalError::Damage {
            path: self.config.store_dir(),
            offset: 0,
            what: format!("{name:?} names no stream"),
            advice: "stop the daemon and remove this directory, it is rebuilt from the ledger",
        })
    }

    fn stored(&self, seq: Seq, entry: Entry) -> Result<StoredRecord, JournalError> {
        match entry {
            Entry::Inline { line, private } => Ok(StoredRecord { seq, leaf: leaf(&line), line: line.into(), private }),
            Entry::At(place) => {
                let bytes = self.segments.record(place)?;
                let record = frame::take_record(&bytes)
                    .filter(|(record, _)| frame::link(record.line).is_some_and(|link| link.seq == seq));
                let (record, _) = record.ok_or_else(|| self.damaged(place, seq))?;
                let private = record.private.to_vec();
                Ok(StoredRecord { seq, leaf: leaf(record.line), line: record.line.into(), private })
            }
        }
    }

    fn damaged(&self, place: Pointer, seq: Seq) -> JournalError {
        JournalError::Damage {
            path: self.segments.path(place.segment),
            offset: place.offset,
            what: format!("record {seq} is not what was written"),
            advice: RESTORE_FILE,
        }
    }
}

/// Places of exports under way, so that each goes on where it stopped instead of at its segment's start.
#[derive(Default)]
pub(crate) struct Cursors(Mutex<HashMap<Seq, Place>>);

/// Where the batch that holds a seq begins.
#[derive(Clone, Copy)]
struct Place {
    segment: Seq,
    batch: Seq,
    at: u64,
}

impl Cursors {
    /// Lines from `from` on, at least one if there is one.
    pub(crate) fn lines(&self, shared: &Shared, from: Seq, bytes_max: usize) -> Result<Vec<Arc<[u8]>>, JournalError> {
        let head = shared.head();
        let (mut lines, mut bytes, mut next) = (Vec::new(), 0, from);
        if from >= head {
            return Ok(lines);
        }
        let (mut segment, mut reader) = shared.segments.reader(from)?;
        match self.take(from).filter(|place| place.segment == segment) {
            Some(place) => reader.seek(place.batch, place.at),
            None => reader.skip_to(from).map_err(JournalError::io("read", &shared.segments.path(segment)))?,
        }
        while next < head {
            let (batch_seq, at) = (reader.next_seq(), reader.at());
            let step = reader.step().map_err(JournalError::io("read", &shared.segments.path(segment)))?;
            let Step::Batch(batch) = step else {
                if shared.segments.holding(next) == segment || batch_seq != next {
                    return Err(shared.damaged(Pointer { segment, offset: at, len: 0 }, next));
                }
                (segment, reader) = shared.segments.reader(next)?;
                continue;
            };
            let mut offset = 0;
            for seq in batch.first..batch.first + u64::from(batch.records) {
                let place = Pointer { segment, offset: batch.offset + offset as u64, len: 0 };
                let taken = batch.payload.get(offset..).and_then(frame::take_record);
                let (record, len) = taken.ok_or_else(|| shared.damaged(place, seq))?;
                offset += len;
                if seq < next {
                    continue;
                }
                if !lines.is_empty() && bytes + record.line.len() > bytes_max {
                    self.put(next, Place { segment, batch: batch_seq, at });
                    return Ok(lines);
                }
                bytes += record.line.len();
                lines.push(Arc::from(record.line));
                next = seq + 1;
            }
        }
        self.put(next, Place { segment, batch: reader.next_seq(), at: reader.at() });
        Ok(lines)
    }

    fn take(&self, from: Seq) -> Option<Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&from)
    }

    fn put(&self, next: Seq, place: Place) {
        let mut cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cursors.len() >= CURSORS_MAX {
            cursors.clear();
        }
        cursors.insert(next, place);
    }
}
