//! What is durable but not in sled yet: per stream the places of its records and its last wake hint. Holds places and not
//! lines, so that a lagging applier costs disk and not memory.
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use reversi_proto::ids::Seq;
use reversi_proto::wake::Wake;

use super::segment::Pointer;

/// The unapplied tail.
#[derive(Default)]
pub(crate) struct Tail {
    streams: RwLock<HashMap<Arc<str>, Stream>>,
}

struct Stream {
    records: VecDeque<(Seq, Pointer)>,
    wake: Wake,
}

/// One advance of one stream.
pub(crate) struct Advance {
    pub(crate) stream: Arc<str>,
    pub(crate) seq: Seq,
    pub(crate) place: Pointer,
    pub(crate) wake: Wake,
}

impl Tail {
    /// A durable batch's advances, in order.
    pub(crate) fn add(&self, advances: Vec<Advance>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        for Advance { stream, seq, place, wake } in advances {
            let entry = streams.entry(stream).or_insert_with(|| Stream { records: VecDeque::new(), wake });
            entry.records.push_back((seq, place));
            entry.wake = wake;
        }
    }

    /// sled has everything before `applied` of these streams.
    pub(crate) fn remove<'a>(&self, names: impl Iterator<Item = &'a str>, applied: Seq) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            if let Some(stream) = streams.get_mut(name) {
                while stream.records.front().is_some_and(|(seq, _)| *seq < applied) {
                    stream.records.pop_front();
                }
                if stream.records.is_empty() {
                    streams.remove(name);
                }
            }
        }
    }

    /// The newest unapplied record of a stream.
    pub(crate) fn version(&self, name: &str) -> Option<Seq> {
        self.streams().get(name).and_then(|stream| stream.records.back()).map(|(seq, _)| *seq)
    }

    /// A stream's unapplied records from `from` on.
    pub(crate) fn records(&self, name: &str, from: Seq) -> Vec<(Seq, Pointer)> {
        let streams = self.streams();
        let Some(stream) = streams.get(name) else { return Vec::new() };
        stream.records.iter().filter(|(seq, _)| *seq >= from).copied().collect()
    }

    /// The wake hint of every unapplied stream; it replaces what sled says.
    pub(crate) fn wakes(&self) -> HashMap<Arc<str>, Wake> {
        self.streams().iter().map(|(name, stream)| (Arc::clone(name), stream.wake)).collect()
    }

    /// The unapplied streams that start with `prefix` and come after `after`.
    pub(crate) fn names(&self, prefix: &str, after: Option<&str>) -> BTreeSet<String> {
        let streams = self.streams();
        let wanted = |name: &&Arc<str>| name.starts_with(prefix) && after.is_none_or(|after| ***name > *after);
        streams.keys().filter(wanted).map(ToString::to_string).collect()
    }

    fn streams(&self) -> RwLockReadGuard<'_, HashMap<Arc<str>, Stream>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }
}
