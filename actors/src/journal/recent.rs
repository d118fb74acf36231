//! The writer's window of stream versions. Pure; must not read sled.
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use reversi_proto::ids::Seq;

/// Which streams were advanced lately, and by which record.
pub(crate) struct Recent {
    versions: HashMap<Arc<str>, Seq>,
    advances: VecDeque<(Seq, Arc<str>)>,
    /// Every advance by a record with `seq >= from` is in the window.
    from: Seq,
    /// What the batch being built replaced, to take it back.
    replaced: Vec<(Arc<str>, Option<Seq>)>,
}

/// What the window says of an expectation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold, or the window does not reach back far enough to tell.
    Conflict {
        /// The version that the window knows.
        found: Option<Seq>,
    },
}

impl Recent {
    /// Empty, at a time when nothing with `seq < from` is unapplied.
    pub(crate) fn new(from: Seq) -> Self {
        Self { versions: HashMap::new(), advances: VecDeque::new(), from, replaced: Vec::new() }
    }

    /// Whether `stream` can have the version `expected`, which its reader saw when `read_at` records were durable.
    pub(crate) fn check(&self, stream: &str, expected: Option<Seq>, read_at: Seq) -> Verdict {
        match self.versions.get(stream) {
            Some(seq) if Some(*seq) != expected => Verdict::Conflict { found: Some(*seq) },
            None if read_at < self.from => Verdict::Conflict { found: None },
            Some(_) | None => Verdict::Holds,
        }
    }

    /// A record of the batch being built advances a stream.
    pub(crate) fn advance(&mut self, stream: &Arc<str>, seq: Seq) {
        let before = self.versions.insert(Arc::clone(stream), seq);
        self.replaced.push((Arc::clone(stream), before));
        self.advances.push_back((seq, Arc::clone(stream)));
    }

    /// The batch is durable.
    pub(crate) fn keep(&mut self) {
        self.replaced.clear();
    }

    /// The batch came to nothing.
    pub(crate) fn take_back(&mut self) {
        while let Some((stream, before)) = self.replaced.pop() {
            self.advances.pop_back();
            match before {
                Some(seq) => self.versions.insert(stream, seq),
                None => self.versions.remove(&stream),
            };
        }
    }

    /// Forgets advances by records before `seq`.
    pub(crate) fn forget_before(&mut self, seq: Seq) {
        while let Some((oldest, _)) = self.advances.front().filter(|(oldest, _)| *oldest < seq) {
            let oldest = *oldest;
            if let Some((_, stream)) = self.advances.pop_front()
                && self.versions.get(&stream) == Some(&oldest)
            {
                self.versions.remove(&stream);
            }
        }
        self.from = self.from.max(seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    #[test]
    fn a_known_version_decides() {
        let mut recent = Recent::new(10);
        recent.advance(&name("run/a"), 12);
        assert_eq!(recent.check("run/a", Some(12), 13), Verdict::Holds);
        assert_eq!(recent.check("run/a", Some(12), 3), Verdict::Holds);
        assert_eq!(recent.check("run/a", Some(4), 12), Verdict::Conflict { found: Some(12) });
        assert_eq!(recent.check("run/a", None, 12), Verdict::Conflict { found: Some(12) });
    }

    #[test]
    fn an_unknown_stream_is_unchanged_only_since_the_window_began() {
        let mut recent = Recent::new(10);
        assert_eq!(recent.check("run/b", Some(4), 10), Verdict::Holds);
        assert_eq!(recent.check("run/b", Some(4), 9), Verdict::Conflict { found: None });
        recent.forget_before(20);
        assert_eq!(recent.check("run/b", Some(4), 19), Verdict::Conflict { found: None });
    }

    #[test]
    fn taking_back_restores_every_version() {
        let mut recent = Recent::new(0);
        recent.advance(&name("a"), 1);
        recent.keep();
        recent.advance(&name("a"), 2);
        recent.advance(&name("a"), 3);
        recent.advance(&name("b"), 3);
        recent.take_back();
        assert_eq!(recent.check("a", Some(1), 2), Verdict::Holds);
        assert_eq!(recent.check("b", None, 2), Verdict::Holds);
        recent.forget_before(2);
        assert!(recent.versions.is_empty() && recent.advances.is_empty());
    }
}
