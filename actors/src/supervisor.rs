//! Starts the actors of one kind on demand, starts them again with backoff, and leaves a poisoned one alone.
//! Must not know what they do.
use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use reversi_proto::event::SystemEvent;
use reversi_proto::event::v1::EntityQuarantined;
use reversi_proto::restart::{Restart, RestartPolicy};
use reversi_proto::time::Timestamp;

use crate::host::{Entity, Host, Msg};
use crate::ports::Notice;
use crate::world::World;

const POLICY: RestartPolicy = RestartPolicy { failures_max: 5, window_ms: 600_000, base_ms: 100, max_ms: 30_000 };

/// What a supervisor is told.
pub(crate) enum SupervisorMsg<A: Entity> {
    /// The entity isn't alive: start it, then hand it the message.
    Deliver { key: A::Key, message: Msg<A> },
}

/// Supervisor of all actors of one kind.
pub(crate) struct Supervisor<A: Entity> {
    pub(crate) world: Arc<World>,
    pub(crate) kind: std::marker::PhantomData<fn() -> A>,
}

/// What it remembers.
pub(crate) struct Children<A: Entity> {
    keys: HashMap<ActorId, A::Key>,
    failures: HashMap<A::Key, Vec<Timestamp>>,
}

impl<A: Entity> Actor for Supervisor<A> {
    type Msg = SupervisorMsg<A>;
    type State = Children<A>;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<Self::Msg>, (): ()) -> Result<Children<A>, ActorProcessingErr> {
        A::directory(&self.world).supervised_by(myself);
        Ok(Children { keys: HashMap::new(), failures: HashMap::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        SupervisorMsg::Deliver { key, message }: Self::Msg,
        children: &mut Children<A>,
    ) -> Result<(), ActorProcessingErr> {
        let now = self.world.clock.now();
        let directory = A::directory(&self.world);
        if directory.is_quarantined(&key) {
            return Ok(()); // dropping the message drops its reply channel
        }
        // Somebody else's message may have started it meanwhile.
        let Err(message) = directory.send_if_live(&key, message, now) else { return Ok(()) };
        let host = Host::<A>::new(Arc::clone(&self.world));
        match Actor::spawn_linked(None, host, key.clone(), myself.get_cell()).await {
            Ok((actor, _)) => {
                children.keys.insert(actor.get_id(), key.clone());
                directory.insert(key.clone(), actor, now);
                let _ = directory.send_if_live(&key, message, now);
            }
            Err(error) => {
                tracing::error!(entity = %key, kind = A::KIND, %error, "an entity could not be started");
                self.failed(key, children).await;
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        children: &mut Children<A>,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => {
                if let Some(key) = children.keys.remove(&cell.get_id()) {
                    A::directory(&self.world).remove(&key, cell.get_id());
                }
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                if let Some(key) = children.keys.remove(&cell.get_id()) {
                    tracing::error!(entity = %key, kind = A::KIND, %error, "an entity failed");
                    A::directory(&self.world).remove(&key, cell.get_id());
                    self.failed(key, children).await;
                }
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl<A: Entity> Supervisor<A> {
    async fn failed(&self, key: A::Key, children: &mut Children<A>) {
        let now = self.world.clock.now();
        let failures = children.failures.entry(key.clone()).or_default();
        failures.push(now);
        match POLICY.after(failures, now) {
            Restart::At(at) => {
                let world = Arc::clone(&self.world);
                tokio::spawn(async move {
                    world.clock.sleep_until(at).await;
                    A::directory(&world).send(&key, Msg::Wake, world.clock.now());
                });
            }
            Restart::Quarantine => {
                tracing::error!(entity = %key, kind = A::KIND, "an entity failed too often and is left alone");
                let reason = "failed_too_often".to_owned();
                let body = EntityQuarantined { entity: A::stream(&key), reason };
                self.world.notifier.notify(Notice::Quarantined { entity: A::stream(&key) });
                A::directory(&self.world).quarantine(key);
                if let Err(error) = self.world.append_system(SystemEvent::EntityQuarantined(body, ()).into()).await {
                    tracing::error!(%error, "a quarantine could not be journaled");
                }
            }
        }
    }
}
