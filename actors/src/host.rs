//! Runs any aggregate as an actor: load, fold, decide, append, answer, then start what the new state calls for.
//! Must not know a particular aggregate. Order everywhere: durable, then memory, then the world.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::hash::Hash as StdHash;
use std::sync::Arc;

use ractor::{Actor as RactorActor, ActorProcessingErr, ActorRef};
use reversi_proto::aggregate::{Aggregate, Decision};
use reversi_proto::event::Event;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{Actor, RunId, Seq, StreamId};
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::codec::{CodecError, Place, RunKeys, decode, encode};
use crate::directory::Directory;
use crate::journal::{AppendError, Appended, JournalError, NewRecord, PublishedRecord, Request, StoredRecord};
use crate::notices::notice_of;
use crate::world::World;

/// Rounds of reload and decide again, after which an edge's request is told to come back later.
const CONFLICT_ROUNDS_MAX: u32 = 16;
/// First and longest wait before an internal command is tried again, in milliseconds.
const INTERNAL_BACKOFF_MS: (u64, u64) = (20, 5_000);
/// How often another entity may fail to answer an internal command's question before it comes to nothing.
const LOST_ROUNDS_MAX: u32 = 8;
/// Before a deadline whose command came to nothing is tried again, in milliseconds.
const DUE_AGAIN_MS: u64 = 1_000;

/// Where the next record of a run's chain goes, as it was when facts were read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainEnd {
    pub(crate) run_seq: u64,
    pub(crate) run_prev: Hash,
}

/// An aggregate that lives in a run's chain, and how the world around it is asked and changed.
pub(crate) trait Entity: Aggregate + Sized {
    type Key: Clone + Ord + StdHash + Display + Send + Sync + 'static;
    const KIND: &'static str;

    fn directory(world: &World) -> &Directory<Self>;
    fn new(key: &Self::Key) -> Self;
    fn stream(key: &Self::Key) -> StreamId;
    fn run(key: &Self::Key) -> &RunId;

    /// Facts for a command, with the end of the run's chain as it was read.
    fn facts(
        &self,
        world: &Arc<World>,
        keys: &RunKeys,
        command: &Self::Command,
    ) -> impl Future<Output = Result<(Self::Facts, ChainEnd), HostError<Self::Reject>>> + Send;

    /// What runs while the state wants the effect; it ends in a command, or in none where another actor goes on.
    fn start(
        &self,
        world: &Arc<World>,
        effect: &Self::Effect,
    ) -> Option<impl Future<Output = Option<Self::Command>> + Send + 'static>;

    /// Started only by the incarnation that appended its intent, and once: never again for the same intent.
    fn is_once(effect: &Self::Effect) -> bool;

    /// The command that an effect ends in when its task dies.
    fn effect_died(&self, effect: &Self::Effect) -> Option<Self::Command>;

    /// The command that creates the entity, with which a new run key is made durable.
    fn is_first(command: &Self::Command) -> bool;

    /// Outcomes may use the space that is kept for them when the disk is nearly full.
    fn is_reserved(command: &Self::Command) -> bool;

    /// Wake hint for another stream that a record advances.
    fn wake_of_other(stream: &StreamId) -> Wake;

    /// Named places for tests that kill the process.
    fn at_append(command: &Self::Command, before: bool);
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum HostError<R: std::error::Error + 'static> {
    /// The aggregate refused.
    #[error(transparent)]
    Reject(R),
    /// Others kept getting in between; nothing was done.
    #[error("too many requests touch the same entity at once; try again")]
    Busy,
    /// No room for it; nothing was done.
    #[error("the disk is nearly full: new work is refused until there is room, outcomes are still taken")]
    Full,
    /// More than a batch of the ledger can hold; nothing was done.
    #[error("the request holds {bytes} bytes, more than the {bytes_max} that the ledger takes at once")]
    TooLarge {
        /// What it holds.
        bytes: usize,
        /// What there may be.
        bytes_max: usize,
    },
    /// The daemon is stopping, or can't write any more.
    #[error("the daemon is stopping")]
    Closed,
    /// The entity failed while it handled the request: send the request again with the same Idempotency-Key.
    #[error("the request was lost; send it again with the same Idempotency-Key")]
    Lost,
    /// It failed too often.
    #[error("the entity failed too often and is left alone until the daemon is restarted")]
    Quarantined,
    /// A record can't be made.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The event store failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl<R: std::error::Error> HostError<R> {
    /// An error of another entity that was asked for facts; what it refuses is of no use here, so it is lost.
    pub(crate) fn of_another<S: std::error::Error>(error: HostError<S>) -> Self {
        match error {
            HostError::Reject(_) | HostError::Lost => Self::Lost,
            HostError::Busy => Self::Busy,
            HostError::Full => Self::Full,
            HostError::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            HostError::Closed => Self::Closed,
            HostError::Quarantined => Self::Quarantined,
            HostError::Codec(error) => Self::Codec(error),
            HostError::Journal(error) => Self::Journal(error),
        }
    }
}

pub(crate) type Answer<A> = Result<<A as Aggregate>::Answer, HostError<<A as Aggregate>::Reject>>;

/// What an entity's actor is told.
pub(crate) enum Msg<A: Entity> {
    /// From an edge or another entity.
    Command { actor: Actor, command: A::Command, reply: Option<oneshot::Sender<Answer<A>>> },
    /// Reads the state.
    Query(Box<dyn FnOnce(&A) + Send>),
    /// Others appended records that advance this stream.
    Foreign(Arc<[PublishedRecord]>),
    /// The reconciler or a timer: look at what should be running.
    Wake,
    /// An effect is over.
    EffectEnded { effect: A::Effect, command: Option<A::Command> },
    /// The deadline has come.
    Due(Timestamp),
    /// Nobody has asked for a while.
    Retire,
}

/// The actor of an entity.
pub(crate) struct Host<A: Entity> {
    pub(crate) world: Arc<World>,
    pub(crate) kind: std::marker::PhantomData<fn() -> A>,
}

/// What it remembers; all of it but the aggregate can be lost.
pub(crate) struct Live<A: Entity> {
    key: A::Key,
    aggregate: A,
    version: Option<Seq>,
    keys: Option<RunKeys>,
    running: BTreeMap<A::Effect, Option<AbortHandle>>,
    timer: Option<(Timestamp, AbortHandle)>,
    /// A deadline whose command came to nothing is not tried again before then.
    not_before: Timestamp,
    /// This incarnation appended the intent that is open, and has not started its effect yet.
    intent_is_ours: bool,
    handled: u64,
}

impl<A: Entity> RactorActor for Host<A> {
    type Msg = Msg<A>;
    type State = Live<A>;
    type Arguments = A::Key;

    async fn pre_start(&self, _myself: ActorRef<Msg<A>>, key: A::Key) -> Result<Live<A>, ActorProcessingErr> {
        let keys = self.world.journal.run_key(A::run(&key)).map(|run_key| RunKeys::of(&run_key));
        let mut live = Live {
            aggregate: A::new(&key),
            key,
            version: None,
            keys,
            running: BTreeMap::new(),
            timer: None,
            not_before: Timestamp::default(),
            intent_is_ours: false,
            handled: 0,
        };
        self.catch_up(&mut live)?;
        Ok(live)
    }

    async fn post_start(&self, _myself: ActorRef<Msg<A>>, live: &mut Live<A>) -> Result<(), ActorProcessingErr> {
        // Only an incarnation that starts gives up an open intent: it can't know what became of the call.
        if let Some(command) = live.aggregate.abandon_open_intent() {
            self.internal(live, command).await;
        }
        self.settle(live);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg<A>>,
        message: Msg<A>,
        live: &mut Live<A>,
    ) -> Result<(), ActorProcessingErr> {
        live.handled += 1;
        if live.handled == 1 {
            // What was published between the load and the entry in the directory was told to nobody.
            self.catch_up(live)?;
        }
        match message {
            Msg::Command { actor, command, reply } => {
                let answer = self.execute(live, &actor, &command).await;
                if let Err(error) = &answer {
                    tracing::debug!(entity = %live.key, kind = A::KIND, %error, "a command was not carried out");
                }
                match reply {
                    Some(reply) => drop(reply.send(answer)),
                    None if matches!(answer, Err(HostError::Busy | HostError::Full)) => {
                        self.internal(live, command).await;
                    }
                    None => {}
                }
            }
            Msg::Query(query) => query(&live.aggregate),
            Msg::Foreign(records) => self.fold_foreign(live, &records)?,
            Msg::Wake => {
                Self::forget_handless(live);
                self.give_up_lost_intent(live).await;
            }
            Msg::EffectEnded { effect, command } => {
                if live.running.remove(&effect).is_some()
                    && let Some(command) = command
                {
                    let before = live.version;
                    self.internal(live, command).await;
                    if live.version == before {
                        // It came to nothing, so starting it again at once would go in circles: the reconciler does.
                        live.running.insert(effect, None);
                    }
                }
            }
            Msg::Due(at) => {
                live.timer = None;
                if let Some((deadline, command)) = live.aggregate.deadline().filter(|(deadline, _)| *deadline <= at) {
                    tracing::debug!(entity = %live.key, kind = A::KIND, %deadline, "a deadline has come");
                    let before = live.version;
                    self.internal(live, command).await;
                    if live.version == before {
                        live.not_before = self.world.clock.now().plus_ms(DUE_AGAIN_MS);
                    }
                }
            }
            Msg::Retire => {
                let idle = live.running.is_empty() && live.timer.is_none();
                if idle && A::directory(&self.world).retire(&live.key, live.handled) {
                    myself.stop(None);
                }
                return Ok(());
            }
        }
        self.settle(live);
        Ok(())
    }

    async fn post_stop(&self, _myself: ActorRef<Msg<A>>, live: &mut Live<A>) -> Result<(), ActorProcessingErr> {
        for handle in live.running.values().flatten() {
            handle.abort();
        }
        if let Some((_, timer)) = &live.timer {
            timer.abort();
        }
        Ok(())
    }
}

impl<A: Entity> Host<A> {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self { world, kind: std::marker::PhantomData }
    }

    /// Folds what the journal has beyond what was folded.
    fn catch_up(&self, live: &mut Live<A>) -> Result<(), HostError<A::Reject>> {
        let from = live.version.map_or(0, |version| version + 1);
        for record in self.world.journal.load(&A::stream(&live.key), from)? {
            self.fold(live, &record)?;
        }
        Ok(())
    }

    fn fold(&self, live: &mut Live<A>, record: &StoredRecord) -> Result<(), HostError<A::Reject>> {
        if live.version.is_some_and(|version| record.seq <= version) {
            return Ok(());
        }
        let decoded = decode(&*self.world.journal, record)?;
        live.aggregate.evolve(&decoded.meta, &decoded.event);
        live.version = Some(record.seq);
        Ok(())
    }

    fn fold_foreign(&self, live: &mut Live<A>, records: &[PublishedRecord]) -> Result<(), HostError<A::Reject>> {
        let stream = A::stream(&live.key);
        let of_stream = |record: &&PublishedRecord| record.streams.iter().any(|(advanced, _)| *advanced == stream);
        for published in records.iter().filter(of_stream) {
            let record = StoredRecord::from(published);
            self.fold(live, &record)?;
        }
        Ok(())
    }

    /// An internal command is never given up: a conflict that lasts or a full disk only delays it.
    async fn internal(&self, live: &mut Live<A>, command: A::Command) {
        let (mut wait_ms, longest_ms) = INTERNAL_BACKOFF_MS;
        let mut lost = 0;
        loop {
            match self.execute(live, &Actor::system(), &command).await {
                Err(HostError::Lost) if lost == LOST_ROUNDS_MAX => {
                    tracing::warn!(entity = %live.key, kind = A::KIND, "an internal command was lost too often");
                    return;
                }
                Err(error @ (HostError::Busy | HostError::Full | HostError::Journal(_) | HostError::Lost)) => {
                    // Another entity failed while it was asked: it is started again, and the outcome must not go with it.
                    lost += u32::from(matches!(error, HostError::Lost));
                    let until = self.world.clock.now().plus_ms(wait_ms);
                    self.world.clock.sleep_until(until).await;
                    wait_ms = (wait_ms * 2).min(longest_ms);
                }
                Err(error) => {
                    tracing::debug!(entity = %live.key, kind = A::KIND, %error, "an internal command came to nothing");
                    return;
                }
                Ok(_) => return,
            }
        }
    }

    async fn execute(&self, live: &mut Live<A>, actor: &Actor, command: &A::Command) -> Answer<A> {
        let new_key = (live.keys.is_none() && A::is_first(command)).then(|| self.world.random_key());
        for _ in 0..CONFLICT_ROUNDS_MAX {
            let read_at = self.world.journal.head();
            let keys = match (&live.keys, &new_key) {
                (Some(keys), _) => keys.clone(),
                (None, Some(key)) => RunKeys::of(key),
                // A run that was never started, or whose key was erased.
                (None, None) => RunKeys::of(&[0; 32]),
            };
            let now = self.world.clock.now();
            let (facts, end) = live.aggregate.facts(&self.world, &keys, command).await?;
            let decision = live.aggregate.decide(now, command, &facts).map_err(HostError::Reject)?;
            if decision.records.is_empty() {
                return Ok(decision.answer);
            }
            let run_key = new_key.filter(|_| live.keys.is_none()).map(|key| (A::run(&live.key).clone(), key));
            let reserved = A::is_reserved(command);
            let request = self.request(live, (actor, now), &decision, end, &keys)?;
            let request = Request { read_at, run_key, reserved, ..request };
            A::at_append(command, true);
            match self.world.journal.append(request).await {
                Ok(appended) => {
                    // Durable; now memory.
                    let was_open = live.aggregate.abandon_open_intent().is_some();
                    Self::fold_own(live, actor, &decision, &appended);
                    let is_open = live.aggregate.abandon_open_intent().is_some();
                    live.intent_is_ours = is_open && (live.intent_is_ours || !was_open);
                    live.keys = Some(keys);
                    self.tell(live, &decision);
                    A::at_append(command, false);
                    return Ok(decision.answer);
                }
                Err(AppendError::Conflict { .. }) => self.catch_up(live)?,
                Err(AppendError::Full) => return Err(HostError::Full),
                Err(AppendError::TooLarge { bytes, bytes_max }) => {
                    return Err(HostError::TooLarge { bytes, bytes_max });
                }
                Err(AppendError::Closed | AppendError::Mixed) => return Err(HostError::Closed),
            }
        }
        Err(HostError::Busy)
    }

    fn tell(&self, live: &Live<A>, decision: &Decision<A::Answer>) {
        let run = A::run(&live.key);
        let notices = decision.records.iter().filter_map(|(event, _)| notice_of(run, event));
        notices.for_each(|notice| self.world.notifier.notify(notice));
    }

    fn request(
        &self,
        live: &Live<A>,
        (actor, now): (&Actor, Timestamp),
        decision: &Decision<A::Answer>,
        end: ChainEnd,
        keys: &RunKeys,
    ) -> Result<Request, HostError<A::Reject>> {
        let own = A::stream(&live.key);
        let events: Vec<Event> = decision.records.iter().map(|(event, _)| event.clone()).collect();
        let own_wake = live.aggregate.wake_after(now, &events);
        let mut records: Vec<NewRecord> = Vec::with_capacity(decision.records.len());
        for (run_seq, (event, streams)) in (end.run_seq..).zip(&decision.records) {
            let hinted = streams.iter().map(|stream| {
                let known = decision.wakes.get(stream).copied();
                let wake = if *stream == own { own_wake } else { known.unwrap_or_else(|| A::wake_of_other(stream)) };
                (stream.clone(), wake)
            });
            let place = Place::of_run(self.world.journal.ledger(), A::run(&live.key), run_seq, keys);
            records.push(encode(place, actor, event, hinted.collect(), &*self.world.ids)?);
        }
        let mut expect = decision.expect.clone();
        if expect.iter().all(|(stream, _)| *stream != own) {
            expect.push((own, live.version));
        }
        Ok(Request { expect, records, run_prev: Some(end.run_prev), ..Request::default() })
    }

    fn fold_own(live: &mut Live<A>, actor: &Actor, decision: &Decision<A::Answer>, appended: &[Appended]) {
        for ((event, _), record) in decision.records.iter().zip(appended) {
            let (seq, ts, leaf) = (record.seq, record.ts, record.leaf);
            let meta = reversi_proto::event::Meta { seq, ts, leaf, actor: actor.clone() };
            live.aggregate.evolve(&meta, event);
            live.version = Some(seq);
        }
    }

    /// Effects without a task of their own (another actor was told) are wanted again after a wake.
    fn forget_handless(live: &mut Live<A>) {
        live.running.retain(|_, handle| handle.is_some());
    }

    /// An open intent whose effect doesn't run any more, and whose outcome could not be recorded: as after a restart,
    /// nobody can know what became of it.
    async fn give_up_lost_intent(&self, live: &mut Live<A>) {
        let running = live.running.iter().any(|(effect, handle)| A::is_once(effect) && handle.is_some());
        if let (false, Some(command)) = (running, live.aggregate.abandon_open_intent()) {
            self.internal(live, command).await;
        }
    }

    /// Starts what the state wants and stops what it no longer wants; arms the timer.
    fn settle(&self, live: &mut Live<A>) {
        let wanted: BTreeSet<A::Effect> = live.aggregate.effects().into_iter().collect();
        live.running.retain(|effect, handle| {
            let keep = wanted.contains(effect);
            if let (false, Some(handle)) = (keep, handle) {
                handle.abort();
            }
            keep
        });
        for effect in wanted {
            if !live.running.contains_key(&effect) {
                let may_start = !A::is_once(&effect) || std::mem::take(&mut live.intent_is_ours);
                let handle = if may_start { self.start(live, &effect) } else { None };
                live.running.insert(effect, handle);
            }
        }
        self.arm(live);
    }

    fn start(&self, live: &Live<A>, effect: &A::Effect) -> Option<AbortHandle> {
        let work = live.aggregate.start(&self.world, effect)?;
        let died = live.aggregate.effect_died(effect);
        let (world, key, effect) = (Arc::clone(&self.world), live.key.clone(), effect.clone());
        let work = tokio::spawn(work);
        let abort = work.abort_handle();
        tokio::spawn(async move {
            let command = match work.await {
                Ok(command) => command,
                Err(error) if error.is_cancelled() => return,
                Err(_) => died,
            };
            A::directory(&world).send(&key, Msg::EffectEnded { effect, command }, world.clock.now());
        });
        Some(abort)
    }

    fn arm(&self, live: &mut Live<A>) {
        let wanted = live.aggregate.deadline().map(|(at, _)| at.max(live.not_before));
        if live.timer.as_ref().map(|(at, _)| *at) == wanted {
            return;
        }
        if let Some((_, timer)) = live.timer.take() {
            timer.abort();
        }
        if let Some(at) = wanted {
            let (world, key) = (Arc::clone(&self.world), live.key.clone());
            let timer = tokio::spawn(async move {
                world.clock.sleep_until(at).await;
                A::directory(&world).send(&key, Msg::Due(at), world.clock.now());
            });
            live.timer = Some((at, timer.abort_handle()));
        }
    }
}
