//! Another set of manifests for a running daemon: one guarded record, or none. Must not know where manifests come from.
use std::collections::BTreeSet;

use reversi_proto::access::Principal;
use reversi_proto::canonical::Canonical;
use reversi_proto::event::ConfigEvent;
use reversi_proto::event::v1::{ManifestsLoaded, ManifestsLoadedPrivate, Role};
use reversi_proto::hash::Hash;
use reversi_proto::ids::{Actor, Seq, StreamId, ToolName};
use reversi_proto::manifest::ManifestSet;
use serde::Serialize;

use super::{Result, Service, need};
use crate::error::{Code, ServiceError};
use crate::journal::AppendError;
use crate::world::World;

/// Rounds of looking again and appending again, after which whoever asks is told to come back later.
const CONFLICT_ROUNDS_MAX: u32 = 16;

/// Who has other manifests loaded, and may.
#[derive(Debug, Clone)]
pub struct ReloadBy(Actor);

impl ReloadBy {
    /// Somebody with an admin's key.
    pub fn admin(who: &Principal) -> Result<Self> {
        need(who, Role::Admin)?;
        Ok(Self(who.actor.clone()))
    }

    /// The daemon's own process was told to, which only its owner can.
    pub fn system() -> Self {
        Self(Actor::system())
    }
}

/// What a reload came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Whether another set is in force than before.
    pub changed: bool,
    /// How many manifests are in force.
    pub count: usize,
    /// The checksum of their set.
    pub checksum: Hash,
    /// The record that put them in force.
    pub seq: Option<Seq>,
    /// Tools that had no manifest.
    pub added: Vec<ToolName>,
    /// Tools that have none any more.
    pub removed: Vec<ToolName>,
    /// Tools whose manifest is another.
    pub updated: Vec<ToolName>,
}

impl Service {
    /// Puts a set in force, with one record, unless it is already. Calls that began before keep what they began under;
    /// a call that races with it stands in the ledger before the record under the old set, or after it under the new.
    pub async fn reload_manifests(&self, by: &ReloadBy, manifests: &ManifestSet) -> Result<Reloaded> {
        put_in_force(&self.world, &by.0, manifests).await.map_err(|error| match error {
            AppendError::TooLarge { bytes, bytes_max } => {
                let detail = format!(
                    "the manifests take {bytes} bytes together, more than the {bytes_max} that the ledger takes at once"
                );
                ServiceError::new(Code::LimitReached, detail)
            }
            other => other.into(),
        })
    }
}

/// Journals a set unless it is the one in force.
pub(crate) async fn put_in_force(
    world: &World,
    by: &Actor,
    manifests: &ManifestSet,
) -> std::result::Result<Reloaded, AppendError> {
    let checksum = manifests.checksum();
    let mut texts: Option<Vec<Canonical>> = None;
    let mut round = 0;
    loop {
        let globals = world.globals();
        let current = globals.archive.current();
        let (before, set) = current.map_or((None, None), |(seq, set)| (Some(seq), Some(set)));
        if set.as_ref().is_some_and(|set| set.checksum() == checksum) {
            return Ok(reloaded((before, checksum), manifests, manifests));
        }
        let texts = texts.get_or_insert_with(|| manifests.iter().map(|manifest| manifest.canonical()).collect());
        let body = ManifestsLoaded { count: u32::try_from(manifests.len()).unwrap_or(u32::MAX), set: checksum };
        let event = ConfigEvent::ManifestsLoaded(body, ManifestsLoadedPrivate { texts: texts.clone() });
        let expect = (StreamId::Config, globals.config_version);
        round += 1;
        match world.append_global(by, event.into(), Some(expect)).await {
            Ok(seq) => {
                let before = set.unwrap_or_default();
                return Ok(Reloaded { changed: true, ..reloaded((Some(seq), checksum), &before, manifests) });
            }
            // Somebody else's set got in between; theirs is in force by now, so it is compared with.
            Err(AppendError::Conflict { .. }) if round < CONFLICT_ROUNDS_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// The difference between two sets.
fn reloaded((seq, checksum): (Option<Seq>, Hash), before: &ManifestSet, now: &ManifestSet) -> Reloaded {
    let names = |set: &ManifestSet| set.iter().map(|manifest| manifest.tool.clone()).collect::<BTreeSet<_>>();
    let (old, new) = (names(before), names(now));
    let differs = |tool: &&ToolName| {
        before.get(tool).map(|manifest| manifest.checksum()) != now.get(tool).map(|manifest| manifest.checksum())
    };
    Reloaded {
        changed: false,
        count: now.len(),
        checksum,
        seq,
        added: new.difference(&old).cloned().collect(),
        removed: old.difference(&new).cloned().collect(),
        updated: new.intersection(&old).filter(differs).cloned().collect(),
    }
}
