//! What every actor of one daemon shares: the journal, the ports, and what is in force for all of them.
//! Must not decide anything.
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use reversi_proto::access::Access;
use reversi_proto::approval::Approval;
use reversi_proto::claim::holder_after;
use reversi_proto::config::Archive;
use reversi_proto::event::Event;
use reversi_proto::halt::Halt;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{Actor, RunId, Seq, StreamId};
use reversi_proto::run::{ClaimFact, Run};
use reversi_proto::time::Timestamp;
use reversi_proto::undo::Undo;
use reversi_proto::wake::Wake;
use tokio::sync::oneshot;

use crate::approvals::{ApprovalKey, Asked};
use crate::clock::Clock;
use crate::codec::{Decoded, Place, decode, decode_public, encode};
use crate::directory::Directory;
use crate::host::{Answer, Entity, HostError, Msg};
use crate::ids::{IdSource, Mint as _};
use crate::journal::{AppendError, Journal, JournalError, PublishedRecord, Request, StoredRecord};
use crate::ports::{Notifier, ToolCaller};

/// Streams that every call depends on, folded, with their versions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Globals {
    pub(crate) archive: Arc<Archive>,
    pub(crate) access: Arc<Access>,
    pub(crate) halt: Arc<Halt>,
    pub(crate) config_version: Option<Seq>,
    pub(crate) access_version: Option<Seq>,
    pub(crate) halt_version: Option<Seq>,
}

impl Globals {
    fn fold(&mut self, stream: &StreamId, decoded: &Decoded) {
        let Decoded { run, meta, event } = decoded;
        match stream {
            StreamId::Config => {
                Arc::make_mut(&mut self.archive).evolve(meta, event);
                self.config_version = Some(meta.seq);
            }
            StreamId::Access => {
                Arc::make_mut(&mut self.access).evolve(meta, run.as_ref(), event);
                self.access_version = Some(meta.seq);
            }
            StreamId::Halt => {
                Arc::make_mut(&mut self.halt).evolve(meta, event);
                self.halt_version = Some(meta.seq);
            }
            StreamId::Run(_) | StreamId::Undo(..) | StreamId::Approval(_) | StreamId::Claim(_) | StreamId::Ledger => {}
        }
    }
}

/// Things counted since the daemon came up.
#[derive(Debug, Default)]
pub struct Counters {
    /// Calls that were let through.
    pub allowed: AtomicU64,
    /// Calls that were refused.
    pub blocked: AtomicU64,
    /// Inverses that were called.
    pub undo_calls: AtomicU64,
    /// Entities that should have been moving and had to be woken by the reconciler.
    pub reconciled: AtomicU64,
}

/// Shared by all actors of a daemon.
pub(crate) struct World {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) tools: Arc<dyn ToolCaller>,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) globals: RwLock<Globals>,
    pub(crate) runs: Directory<Run>,
    pub(crate) undos: Directory<Undo>,
    pub(crate) approvals: Directory<Approval>,
    pub(crate) asked: Asked,
    pub(crate) boot: Timestamp,
    /// This ledger is a restored copy, which may lack finished undos: none is attempted.
    pub(crate) parked: bool,
    pub(crate) counters: Counters,
    /// Inverses that this process is calling. An actor that was restarted can't know of its predecessor's call, and must
    /// not believe that it is over.
    pub(crate) calling: Mutex<HashSet<UndoKey>>,
}

/// An inverse is being called as long as this lives.
pub(crate) struct Calling {
    world: Arc<World>,
    key: UndoKey,
}

impl Calling {
    /// None while another call of the same inverse is not over.
    pub(crate) fn begin(world: &Arc<World>, key: UndoKey) -> Option<Self> {
        let first = world.calling.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        first.then(|| Self { world: Arc::clone(world), key })
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.world.calling.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl World {
    pub(crate) fn is_calling(&self, key: &UndoKey) -> bool {
        self.calling.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    pub(crate) fn globals(&self) -> Globals {
        self.globals.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn random_key(&self) -> [u8; 32] {
        self.ids.random()
    }

    /// Folds the global streams from the journal, at boot.
    pub(crate) fn load_globals(&self) -> Result<(), HostError<std::convert::Infallible>> {
        let mut globals = Globals::default();
        for stream in [StreamId::Config, StreamId::Access, StreamId::Halt] {
            for record in self.journal.load(&stream, 0)? {
                let decoded = decode(&*self.journal, &record)?;
                globals.fold(&stream, &decoded);
            }
        }
        *self.globals.write().unwrap_or_else(PoisonError::into_inner) = globals;
        Ok(())
    }

    /// On the writer's thread, for each durable batch, before its requests are answered: what others appended to an
    /// entity's stream goes to its actor. A record's first stream is its writer's own, which folds it by itself.
    pub(crate) fn publish(&self, batch: &Arc<[PublishedRecord]>) {
        for published in batch.iter() {
            for (index, (stream, _)) in published.streams.iter().enumerate() {
                match stream {
                    StreamId::Run(run) if index > 0 => {
                        let now = published.record.ts;
                        let _ = self.runs.send_if_live(run, Msg::Foreign(Arc::clone(batch)), now);
                    }
                    StreamId::Undo(run, step) if index > 0 => {
                        let (key, now) = (UndoKey(run.clone(), *step), published.record.ts);
                        let _ = self.undos.send_if_live(&key, Msg::Foreign(Arc::clone(batch)), now);
                    }
                    StreamId::Approval(id) => {
                        self.asked.publish(id, published);
                        if let (Some(run), true) = (run_of(published), index > 0) {
                            let (key, now) = (ApprovalKey(run.clone(), id.clone()), published.record.ts);
                            let _ = self.approvals.send_if_live(&key, Msg::Foreign(Arc::clone(batch)), now);
                        }
                    }
                    StreamId::Config | StreamId::Access | StreamId::Halt => self.publish_global(stream, published),
                    StreamId::Run(_) | StreamId::Undo(..) | StreamId::Claim(_) | StreamId::Ledger => {}
                }
            }
        }
    }

    fn publish_global(&self, stream: &StreamId, published: &PublishedRecord) {
        let record = StoredRecord::from(published);
        // The writer's thread can't ask for a run's key; what a run's record says to all is in its public half.
        let decoded = match run_of(published) {
            Some(_) => decode_public(&record),
            None => decode(&*self.journal, &record),
        };
        match decoded {
            Ok(decoded) => {
                let mut globals = self.globals.write().unwrap_or_else(PoisonError::into_inner);
                globals.fold(stream, &decoded);
            }
            // It was encoded a moment ago, so this is a bug; the old state stays in force.
            Err(error) => tracing::error!(%error, "a record of a global stream could not be read back"),
        }
    }

    /// Appends an event of no run as the daemon.
    pub(crate) async fn append_system(&self, event: Event) -> Result<Seq, AppendError> {
        self.append_global(&Actor::system(), event, None).await
    }

    /// Appends an event of no run; `expect` guards the stream that it advances.
    pub(crate) async fn append_global(
        &self,
        actor: &Actor,
        event: Event,
        expect: Option<(StreamId, Option<Seq>)>,
    ) -> Result<Seq, AppendError> {
        self.append_globals(actor, vec![event], expect).await
    }

    /// Appends events of no run, all or none.
    pub(crate) async fn append_globals(
        &self,
        actor: &Actor,
        events: Vec<Event>,
        expect: Option<(StreamId, Option<Seq>)>,
    ) -> Result<Seq, AppendError> {
        let read_at = self.journal.head();
        let seal = self.journal.ledger_keys().seal;
        let place = Place { ledger: self.journal.ledger(), run: None, seal: &seal };
        let record = |event: &Event| {
            encode(place, actor, event, vec![(stream_of(event), Wake::None)], &*self.ids).map_err(|error| {
                tracing::error!(%error, "a record of no run can't be written");
                AppendError::Mixed
            })
        };
        let records = events.iter().map(record).collect::<Result<_, _>>()?;
        let expect = expect.into_iter().collect();
        let request = Request { expect, read_at, records, reserved: true, ..Request::default() };
        let appended = self.journal.append(request).await?;
        Ok(appended.first().map_or(0, |record| record.seq))
    }

    /// Sends a command to an entity and waits for its answer.
    pub(crate) async fn ask<A: Entity>(&self, key: &A::Key, actor: Actor, command: A::Command) -> Answer<A> {
        let (reply, answer) = oneshot::channel();
        A::directory(self).send(key, Msg::Command { actor, command, reply: Some(reply) }, self.clock.now());
        match answer.await {
            Ok(answer) => answer,
            Err(_) if A::directory(self).is_quarantined(key) => Err(HostError::Quarantined),
            Err(_) => Err(HostError::Lost),
        }
    }

    /// Reads an entity's state where it lives.
    pub(crate) async fn query<A: Entity, T: Send + 'static>(
        &self,
        key: &A::Key,
        read: impl FnOnce(&A) -> T + Send + 'static,
    ) -> Result<T, HostError<A::Reject>> {
        let (reply, answer) = oneshot::channel();
        let query = Box::new(move |state: &A| drop(reply.send(read(state))));
        A::directory(self).send(key, Msg::Query(query), self.clock.now());
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) if A::directory(self).is_quarantined(key) => Err(HostError::Quarantined),
            Err(_) => Err(HostError::Lost),
        }
    }

    /// Who holds a claim, by the last record of its stream.
    pub(crate) fn claim(&self, claim: Hash) -> Result<ClaimFact, HostError<std::convert::Infallible>> {
        let stream = StreamId::Claim(claim.0);
        let version = self.journal.version(&stream)?;
        let Some(seq) = version else { return Ok(ClaimFact { claim, version: None, holder: None }) };
        let records = self.journal.load(&stream, seq)?;
        let holder = match records.last() {
            None => None,
            Some(record) => {
                let decoded = decode(&*self.journal, record)?;
                holder_after(decoded.run.as_ref(), &decoded.event)
            }
        };
        Ok(ClaimFact { claim, version: records.last().map(|record| record.seq).or(version), holder })
    }

    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Does the run have any record?
    pub(crate) fn run_exists(&self, run: &RunId) -> Result<bool, JournalError> {
        Ok(self.journal.version(&StreamId::Run(run.clone()))?.is_some())
    }
}

/// The stream that an event of no run advances.
fn stream_of(event: &Event) -> StreamId {
    match event {
        Event::Config(_) => StreamId::Config,
        Event::Access(_) => StreamId::Access,
        Event::Halt(_) => StreamId::Halt,
        Event::System(_)
        | Event::Run(_)
        | Event::Step(_)
        | Event::Approval(_)
        | Event::Rollback(_)
        | Event::Undo(_) => StreamId::Ledger,
    }
}

/// The run whose chain a record is in.
fn run_of(published: &PublishedRecord) -> Option<&RunId> {
    published.streams.iter().find_map(|(stream, _)| match stream {
        StreamId::Run(run) => Some(run),
        StreamId::Undo(..)
        | StreamId::Approval(_)
        | StreamId::Claim(_)
        | StreamId::Halt
        | StreamId::Config
        | StreamId::Access
        | StreamId::Ledger => None,
    })
}

/// Key of an undo: its run and step, printed as `<run>/<step>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UndoKey(pub(crate) RunId, pub(crate) u32);

impl std::fmt::Display for UndoKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}
