//! Every set of manifests that was ever in force, by the record that put it there: what a running step pinned stays
//! readable, whatever the files of today say. Must not read files.
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{ConfigEvent, Event, Meta};
use crate::hash::Hash;
use crate::ids::{Seq, ToolName};
use crate::manifest::{Manifest, ManifestSet};

/// Fold of the `config` stream.
#[derive(Debug, Clone, Default)]
pub struct Archive {
    sets: BTreeMap<Seq, Arc<ManifestSet>>,
    /// Records whose texts this version can't read: named, not guessed.
    unreadable: Vec<(Seq, String)>,
}

impl Archive {
    /// The set in force and the seq of its record. None where the newest record can't be read: an older set would be
    /// a guess.
    pub fn current(&self) -> Option<(Seq, Arc<ManifestSet>)> {
        let (seq, set) = self.sets.last_key_value()?;
        let superseded = self.unreadable.last().is_some_and(|(unreadable, _)| unreadable > seq);
        (!superseded).then(|| (*seq, Arc::clone(set)))
    }

    /// Checksum of the set in force.
    pub fn checksum(&self) -> Option<Hash> {
        self.current().map(|(_, set)| set.checksum())
    }

    /// A tool's manifest as of the given record.
    pub fn get(&self, config: Seq, tool: &ToolName) -> Option<&Arc<Manifest>> {
        self.sets.get(&config)?.get(tool)
    }

    /// All manifests as of the given record.
    pub fn set(&self, config: Seq) -> impl Iterator<Item = &Arc<Manifest>> {
        self.sets.get(&config).into_iter().flat_map(|set| set.iter())
    }

    /// Records that could not be read, with why.
    pub fn unreadable(&self) -> &[(Seq, String)] {
        &self.unreadable
    }

    /// Folds one record of the stream.
    pub fn evolve(&mut self, meta: &Meta, event: &Event) {
        let Event::Config(ConfigEvent::ManifestsLoaded(body, private)) = event else { return };
        let manifests: Result<Vec<Manifest>, _> = private.texts.iter().map(Manifest::from_canonical).collect();
        match manifests.map(ManifestSet::restore) {
            Ok(set) if set.checksum() == body.set => drop(self.sets.insert(meta.seq, Arc::new(set))),
            Ok(set) => {
                let (expected, got) = (body.set, set.checksum());
                self.unreadable
                    .push((meta.seq, format!("the texts are of another set: expected {expected}, got {got}")));
            }
            Err(error) => self.unreadable.push((meta.seq, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::Canonical;
    use crate::event::v1::{ManifestsLoaded, ManifestsLoadedPrivate};
    use crate::testing::{at, hash, manifests, tool};

    fn loaded(archive: &mut Archive, seq: Seq, set: Hash, texts: Vec<Canonical>) {
        let meta = Meta { seq, ts: at(0), leaf: hash(1), actor: crate::ids::Actor::system() };
        let body = ManifestsLoaded { count: 1, set };
        archive.evolve(&meta, &ConfigEvent::ManifestsLoaded(body, ManifestsLoadedPrivate { texts }).into());
    }

    #[test]
    fn every_set_stays_readable_and_the_newest_is_in_force() {
        let (mut archive, set) = (Archive::default(), manifests());
        assert!(archive.current().is_none());
        let texts: Vec<Canonical> = set.iter().map(|manifest| manifest.canonical()).collect();
        loaded(&mut archive, 3, set.checksum(), texts);
        loaded(&mut archive, 7, ManifestSet::default().checksum(), vec![]);
        assert_eq!(archive.current().map(|(seq, set)| (seq, set.len())), Some((7, 0)));
        assert!(archive.get(3, &tool("stripe.refund")).is_some() && archive.get(7, &tool("stripe.refund")).is_none());
    }

    #[test]
    fn what_cannot_be_read_leaves_nothing_in_force() {
        let set = manifests();
        let texts: Vec<Canonical> = set.iter().map(|manifest| manifest.canonical()).collect();
        for broken in [vec![], texts[1..].to_vec(), vec![Canonical::parse(b"{}").unwrap()]] {
            let mut archive = Archive::default();
            loaded(&mut archive, 3, set.checksum(), texts.clone());
            loaded(&mut archive, 7, set.checksum(), broken);
            assert!(archive.current().is_none() && archive.checksum().is_none(), "an older set would be a guess");
            assert_eq!(archive.unreadable().len(), 1);
            assert!(archive.get(3, &tool("stripe.refund")).is_some(), "what was pinned stays");
            loaded(&mut archive, 9, set.checksum(), texts.clone());
            assert_eq!(archive.current().map(|(seq, _)| seq), Some(9));
        }
    }
}
