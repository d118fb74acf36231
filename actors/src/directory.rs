//! Who is alive: entity to actor. Every message to an entity goes through here, so that an actor can be retired without
//! losing one: it leaves only when it has handled everything that was ever sent to it.
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use ractor::{ActorRef, MessagingErr};
use reversi_proto::time::Timestamp;

use crate::host::{Entity, Msg};
use crate::supervisor::SupervisorMsg;

struct Entry<A: Entity> {
    actor: ActorRef<Msg<A>>,
    sent: AtomicU64,
    used_micros: AtomicI64,
}

/// The live actors of one kind.
pub(crate) struct Directory<A: Entity> {
    live: RwLock<HashMap<A::Key, Entry<A>>>,
    quarantined: RwLock<BTreeSet<A::Key>>,
    supervisor: RwLock<Option<ActorRef<SupervisorMsg<A>>>>,
}

impl<A: Entity> Default for Directory<A> {
    fn default() -> Self {
        Self { live: RwLock::default(), quarantined: RwLock::default(), supervisor: RwLock::default() }
    }
}

impl<A: Entity> Directory<A> {
    pub(crate) fn supervised_by(&self, supervisor: ActorRef<SupervisorMsg<A>>) {
        *self.supervisor.write().unwrap_or_else(PoisonError::into_inner) = Some(supervisor);
    }

    /// Sends, starting the entity's actor if it isn't alive. A message that can't be delivered is dropped, which its
    /// sender sees by its reply channel.
    pub(crate) fn send(&self, key: &A::Key, message: Msg<A>, now: Timestamp) {
        let Err(message) = self.send_if_live(key, message, now) else { return };
        let supervisor = self.supervisor.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(supervisor) = &*supervisor {
            let _ = supervisor.send_message(SupervisorMsg::Deliver { key: key.clone(), message });
        }
    }

    /// Sends to a live actor, or gives the message back.
    pub(crate) fn send_if_live(&self, key: &A::Key, message: Msg<A>, now: Timestamp) -> Result<(), Msg<A>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = live.get(key) else { return Err(message) };
        // Counted before it is sent: between the two the actor can't believe that it has handled everything.
        entry.sent.fetch_add(1, Ordering::SeqCst);
        entry.used_micros.store(now.micros(), Ordering::Relaxed);
        match entry.actor.send_message(message) {
            Err(MessagingErr::SendErr(message)) => Err(message),
            Ok(()) | Err(MessagingErr::ChannelClosed | MessagingErr::InvalidActorType) => Ok(()),
        }
    }

    pub(crate) fn insert(&self, key: A::Key, actor: ActorRef<Msg<A>>, now: Timestamp) {
        let entry = Entry { actor, sent: AtomicU64::new(0), used_micros: AtomicI64::new(now.micros()) };
        self.live.write().unwrap_or_else(PoisonError::into_inner).insert(key, entry);
    }

    /// Forgets an actor that is gone; another one under the same key stays.
    pub(crate) fn remove(&self, key: &A::Key, id: ractor::ActorId) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.get(key).is_some_and(|entry| entry.actor.get_id() == id) {
            live.remove(key);
        }
    }

    /// True, and out of the directory, if the actor has handled every message that was sent to it.
    pub(crate) fn retire(&self, key: &A::Key, handled: u64) -> bool {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let done = live.get(key).is_some_and(|entry| entry.sent.load(Ordering::SeqCst) == handled);
        if done {
            live.remove(key);
        }
        done
    }

    /// Entities that got no message since then.
    pub(crate) fn idle_since(&self, since: Timestamp) -> Vec<A::Key> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let idle = |entry: &Entry<A>| entry.used_micros.load(Ordering::Relaxed) < since.micros();
        live.iter().filter(|(_, entry)| idle(entry)).map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn live(&self) -> usize {
        self.live.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn quarantine(&self, key: A::Key) {
        self.quarantined.write().unwrap_or_else(PoisonError::into_inner).insert(key);
    }

    pub(crate) fn is_quarantined(&self, key: &A::Key) -> bool {
        self.quarantined.read().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    pub(crate) fn quarantined(&self) -> Vec<A::Key> {
        self.quarantined.read().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
