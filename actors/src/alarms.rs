//! Wakes what the journal says is due: after a restart, and whenever a live actor should be moving but isn't. Timers of
//! live actors are their own; this is the net below them. Also retires actors that nobody has asked for a while.
use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use reversi_proto::event::SystemEvent;
use reversi_proto::event::v1::ClockStepped;
use reversi_proto::ids::StreamId;
use reversi_proto::time::Timestamp;

use crate::host::Msg;
use crate::world::{UndoKey, World};

/// Between two looks at the journal's alarms, in milliseconds.
const TICK_MS: u64 = 250;
/// Most entities woken in one tick: ten thousand that are due at boot are drained in seconds, and fresh calls get through.
const WAKES_PER_TICK: usize = 256;
/// Before an entity that is still due is woken once more, in milliseconds.
const RECONCILE_MS: u64 = 5_000;
/// An actor without a message for this long is retired, in milliseconds.
const IDLE_MS: u64 = 60_000;
/// Ticks between two sweeps for idle actors.
const SWEEP_TICKS: u64 = 40;

/// The alarm actor.
pub(crate) struct Alarms {
    pub(crate) world: Arc<World>,
}

/// The alarm actor's only message: look again.
pub(crate) struct Tick;

/// What it remembers; losing it costs a few needless wakes.
#[derive(Default)]
pub(crate) struct Woken {
    ticks: u64,
    at: HashMap<StreamId, Timestamp>,
}

impl Actor for Alarms {
    type Msg = Tick;
    type State = Woken;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<Tick>, (): ()) -> Result<Woken, ActorProcessingErr> {
        let _ = myself.send_message(Tick);
        Ok(Woken::default())
    }

    async fn handle(&self, myself: ActorRef<Tick>, Tick: Tick, woken: &mut Woken) -> Result<(), ActorProcessingErr> {
        let now = self.world.clock.now();
        self.journal_wall_step();
        self.wake_due(now, woken);
        woken.ticks += 1;
        if woken.ticks.is_multiple_of(SWEEP_TICKS) {
            self.sweep(now);
        }
        let (world, next) = (Arc::clone(&self.world), now.plus_ms(TICK_MS));
        tokio::spawn(async move {
            world.clock.sleep_until(next).await;
            let _ = myself.send_message(Tick);
        });
        Ok(())
    }
}

impl Alarms {
    /// The wall clock's steps are journaled and not followed.
    fn journal_wall_step(&self) {
        let Some(micros) = self.world.clock.wall_step() else { return };
        let world = Arc::clone(&self.world);
        tokio::spawn(async move {
            tracing::warn!(by_ms = micros / 1000, "the wall clock was stepped; deadlines don't follow");
            let event = SystemEvent::ClockStepped(ClockStepped { by_ms: micros / 1000 }, ());
            if let Err(error) = world.append_system(event.into()).await {
                tracing::error!(%error, "a step of the clock could not be journaled");
            }
        });
    }

    fn wake_due(&self, now: Timestamp, woken: &mut Woken) {
        let fresh = |at: &Timestamp| now.ms_since(*at) < RECONCILE_MS;
        let limit = WAKES_PER_TICK + woken.at.len();
        let due = match self.world.journal.due(now, limit) {
            Ok(due) => due,
            Err(error) => {
                tracing::error!(%error, "alarms can't be read");
                return;
            }
        };
        let mut left = WAKES_PER_TICK;
        for (stream, _) in &due {
            if left == 0 || woken.at.get(stream).is_some_and(fresh) {
                continue;
            }
            if woken.at.insert(stream.clone(), now).is_some() {
                World::count(&self.world.counters.reconciled);
            }
            self.wake(stream, now);
            left -= 1;
        }
        if woken.at.len() > 4 * WAKES_PER_TICK {
            let still: std::collections::HashSet<_> = due.into_iter().map(|(stream, _)| stream).collect();
            woken.at.retain(|stream, at| still.contains(stream) || fresh(at));
        }
    }

    fn wake(&self, stream: &StreamId, now: Timestamp) {
        match stream {
            StreamId::Run(run) => self.world.runs.send(run, Msg::Wake, now),
            StreamId::Undo(run, step) => self.world.undos.send(&UndoKey(run.clone(), *step), Msg::Wake, now),
            StreamId::Approval(id) => {
                if let Some(key) = self.world.approval_key(id) {
                    self.world.approvals.send(&key, Msg::Wake, now);
                }
            }
            StreamId::Claim(_) | StreamId::Halt | StreamId::Config | StreamId::Access | StreamId::Ledger => {}
        }
    }

    fn sweep(&self, now: Timestamp) {
        let since = Timestamp::from_micros(now.micros() - i64::try_from(IDLE_MS * 1000).unwrap_or(i64::MAX));
        for run in self.world.runs.idle_since(since) {
            let _ = self.world.runs.send_if_live(&run, Msg::Retire, now);
        }
        for approval in self.world.approvals.idle_since(since) {
            let _ = self.world.approvals.send_if_live(&approval, Msg::Retire, now);
        }
        for undo in self.world.undos.idle_since(since) {
            let _ = self.world.undos.send_if_live(&undo, Msg::Retire, now);
        }
    }
}
