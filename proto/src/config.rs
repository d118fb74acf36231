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
