//! The Approval as an entity, and what the daemon knows of all approvals that still live. Must not decide.
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};

use reversi_proto::approval::{Approval, ApprovalCommand, ApprovalFacts, ApprovalReject};
use reversi_proto::event::{ApprovalEvent, Event};
use reversi_proto::ids::{ApprovalId, RunId, StreamId};
use reversi_proto::run::Run;
use reversi_proto::wake::Wake;
use tokio::sync::watch;

use crate::codec::{Decoded, RunKeys, decode_public};
use crate::directory::Directory;
use crate::failpoint::failpoint;
use crate::host::{ChainEnd, Entity, HostError};
use crate::journal::{Journal, PublishedRecord, StoredRecord};
use crate::runs::chain_end;
use crate::world::World;

/// Streams that are looked at together when the daemon starts.
const PAGE: usize = 1_000;

/// Key of an approval: its run and id, printed as `<id>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ApprovalKey(pub(crate) RunId, pub(crate) ApprovalId);

impl std::fmt::Display for ApprovalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.1.fmt(f)
    }
}

impl Entity for Approval {
    type Key = ApprovalKey;
    const KIND: &'static str = "approval";

    fn directory(world: &World) -> &Directory<Self> {
        &world.approvals
    }
    fn new(key: &ApprovalKey) -> Self {
        Self::new(key.0.clone(), key.1.clone())
    }
    fn stream(key: &ApprovalKey) -> StreamId {
        StreamId::Approval(key.1.clone())
    }
    fn run(key: &ApprovalKey) -> &RunId {
        &key.0
    }

    async fn facts(
        &self,
        world: &Arc<World>,
        _keys: &RunKeys,
        _command: &ApprovalCommand,
    ) -> Result<(ApprovalFacts, ChainEnd), HostError<ApprovalReject>> {
        let asked = Arc::clone(world);
        let read = move |run: &Run| (run.chain().version.unwrap_or(0), chain_end(run, &asked));
        let (run_version, end) = world.query::<Run, _>(self.run(), read).await.map_err(HostError::of_another)?;
        let globals = world.globals();
        let halt = self.ask().and_then(|ask| globals.halt.of(self.run(), &ask.actor, &ask.tool));
        let facts = ApprovalFacts {
            halted: halt.map(|halt| halt.reason.clone()),
            access: globals.access,
            access_version: globals.access_version,
            halt_version: globals.halt_version,
            run_version,
        };
        Ok((facts, end))
    }

    fn start(
        &self,
        _world: &Arc<World>,
        effect: &Infallible,
    ) -> Option<impl Future<Output = Option<ApprovalCommand>> + Send + 'static> {
        match *effect {}
        #[allow(unreachable_code)] // it says which future there never is
        None::<std::future::Ready<Option<ApprovalCommand>>>
    }

    fn is_once(effect: &Infallible) -> bool {
        match *effect {}
    }

    fn effect_died(&self, effect: &Infallible) -> Option<ApprovalCommand> {
        match *effect {}
    }

    fn is_first(_command: &ApprovalCommand) -> bool {
        false
    }

    /// What stops something must be possible on a full disk too.
    fn is_reserved(command: &ApprovalCommand) -> bool {
        match command {
            ApprovalCommand::Deny(_)
            | ApprovalCommand::Withdraw(_)
            | ApprovalCommand::Revoke(..)
            | ApprovalCommand::Review(..)
            | ApprovalCommand::Fire => true,
            ApprovalCommand::Approve(_) | ApprovalCommand::BreakGlass(..) => false,
        }
    }

    /// A granted undo may be what its run waits for.
    fn wake_of_other(stream: &StreamId) -> Wake {
        match stream {
            StreamId::Run(_) => Wake::Now,
            StreamId::Undo(..)
            | StreamId::Approval(_)
            | StreamId::Claim(_)
            | StreamId::Halt
            | StreamId::Config
            | StreamId::Access
            | StreamId::Ledger => Wake::None,
        }
    }

    fn at_append(_command: &ApprovalCommand, before: bool) {
        if before {
            failpoint!("approval.before_append");
        } else {
            failpoint!("approval.after_append");
        }
    }
}

/// Approvals that still live, by id; and a counter that moves whenever one of them changes.
pub(crate) struct Asked {
    alive: RwLock<BTreeMap<ApprovalId, RunId>>,
    changes: watch::Sender<u64>,
}

impl Default for Asked {
    fn default() -> Self {
        Self { alive: RwLock::default(), changes: watch::Sender::new(0) }
    }
}

impl Asked {
    /// At boot: what the last record of each approval says.
    pub(crate) fn load(&self, journal: &dyn Journal) -> Result<(), HostError<Infallible>> {
        let mut after = None;
        loop {
            let page = journal.streams("approval/", after.as_ref(), PAGE)?;
            for stream in &page {
                let StreamId::Approval(id) = stream else { continue };
                let from = journal.version(stream)?.unwrap_or(0);
                if let Some(record) = journal.load(stream, from)?.last() {
                    self.fold(id, &decode_public(record)?);
                }
            }
            match page.into_iter().next_back() {
                Some(last) => after = Some(last),
                None => return Ok(()),
            }
        }
    }

    /// On the writer's thread, so it asks the journal nothing.
    pub(crate) fn publish(&self, id: &ApprovalId, published: &PublishedRecord) {
        match decode_public(&StoredRecord::from(published)) {
            Ok(decoded) => self.fold(id, &decoded),
            // It was encoded a moment ago, so this is a bug; the list of approvals shows one too many or too few.
            Err(error) => tracing::error!(%error, "a record of an approval could not be read back"),
        }
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn fold(&self, id: &ApprovalId, decoded: &Decoded) {
        let mut alive = self.alive.write().unwrap_or_else(PoisonError::into_inner);
        match (&decoded.run, lives_after(&decoded.event)) {
            (Some(run), true) => drop(alive.insert(id.clone(), run.clone())),
            (Some(_), false) | (None, _) => drop(alive.remove(id)),
        }
    }

    /// Those after `after`, in the order of their ids, which is that of their making.
    pub(crate) fn page(&self, after: Option<&ApprovalId>, limit: usize) -> Vec<ApprovalKey> {
        let alive = self.alive.read().unwrap_or_else(PoisonError::into_inner);
        let from = after.map_or(std::ops::Bound::Unbounded, |id| std::ops::Bound::Excluded(id.clone()));
        let rest = alive.range((from, std::ops::Bound::Unbounded));
        rest.take(limit).map(|(id, run)| ApprovalKey(run.clone(), id.clone())).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.alive.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn run_of(&self, id: &ApprovalId) -> Option<RunId> {
        self.alive.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Moves whenever some approval changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Somebody may still have to do something after this record of an approval's stream.
fn lives_after(event: &Event) -> bool {
    match event {
        Event::Approval(event) => match event {
            ApprovalEvent::Requested(..)
            | ApprovalEvent::PreApproved(..)
            | ApprovalEvent::Voted(..)
            | ApprovalEvent::Granted(..)
            | ApprovalEvent::Withdrawn(..)
            | ApprovalEvent::Escalated(..)
            | ApprovalEvent::GlassBroken(..) => true,
            ApprovalEvent::Denied(..)
            | ApprovalEvent::Expired(..)
            | ApprovalEvent::Revoked(..)
            | ApprovalEvent::Cancelled(..)
            | ApprovalEvent::Reviewed(..)
            | ApprovalEvent::ReviewOverdue(..) => false,
        },
        Event::System(_)
        | Event::Access(_)
        | Event::Config(_)
        | Event::Halt(_)
        | Event::Run(_)
        | Event::Step(_)
        | Event::Rollback(_)
        | Event::Undo(_) => false,
    }
}

impl World {
    /// The key of an approval: its run stands in its records.
    pub(crate) fn approval_key(&self, id: &ApprovalId) -> Option<ApprovalKey> {
        if let Some(run) = self.asked.run_of(id) {
            return Some(ApprovalKey(run, id.clone()));
        }
        let stream = StreamId::Approval(id.clone());
        let seq = self.journal.version(&stream).ok()??;
        let records = self.journal.load(&stream, seq).ok()?;
        let decoded = decode_public(records.last()?).ok()?;
        Some(ApprovalKey(decoded.run?, id.clone()))
    }
}
