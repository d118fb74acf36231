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
    /// The set in force and the seq of its record.
    pub fn current(&self) -> Option<(Seq, Arc<ManifestSet>)> {
        self.sets.last_key_value().map(|(seq, set)| (*seq, Arc::clone(set)))
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
        let Event::Config(ConfigEvent::ManifestsLoaded(_, private)) = event else { return };
        let manifests: Result<Vec<Manifest>, _> = private.texts.iter().map(Manifest::from_canonical).collect();
        match manifests {
            Ok(manifests) => drop(self.sets.insert(meta.seq, Arc::new(ManifestSet::restore(manifests)))),
            Err(error) => self.unreadable.push((meta.seq, error.to_string())),
        }
    }
}
