//! The root of the supervisor tree: one child per kind of entity, and the alarms; each is started again if it fails.
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use reversi_proto::approval::Approval;
use reversi_proto::run::Run;
use reversi_proto::undo::Undo;

use crate::alarms::Alarms;
use crate::supervisor::Supervisor;
use crate::world::World;

/// The root actor; it gets no messages.
pub(crate) struct Root {
    pub(crate) world: Arc<World>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Child {
    Runs,
    Compensations,
    Approvals,
    Alarms,
}

/// Nothing is ever sent to the root.
pub(crate) enum Never {}

impl Actor for Root {
    type Msg = Never;
    type State = HashMap<ActorId, Child>;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<Never>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        let mut children = HashMap::new();
        for child in [Child::Runs, Child::Compensations, Child::Approvals, Child::Alarms] {
            children.insert(self.start(child, &myself).await?, child);
        }
        Ok(children)
    }

    async fn handle(&self, _: ActorRef<Never>, message: Never, _: &mut Self::State) -> Result<(), ActorProcessingErr> {
        match message {}
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Never>,
        event: SupervisionEvent,
        children: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let (id, why) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell.get_id(), error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => (cell.get_id(), reason.unwrap_or_default()),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        if let Some(child) = children.remove(&id) {
            tracing::error!(?child, why, "a supervisor stopped and is started again");
            children.insert(self.start(child, &myself).await?, child);
        }
        Ok(())
    }
}

impl Root {
    async fn start(&self, child: Child, myself: &ActorRef<Never>) -> Result<ActorId, ActorProcessingErr> {
        let (world, cell) = (Arc::clone(&self.world), myself.get_cell());
        let id = match child {
            Child::Runs => {
                let supervisor = Supervisor::<Run> { world, kind: PhantomData };
                Actor::spawn_linked(None, supervisor, (), cell).await?.0.get_id()
            }
            Child::Compensations => {
                let supervisor = Supervisor::<Undo> { world, kind: PhantomData };
                Actor::spawn_linked(None, supervisor, (), cell).await?.0.get_id()
            }
            Child::Approvals => {
                let supervisor = Supervisor::<Approval> { world, kind: PhantomData };
                Actor::spawn_linked(None, supervisor, (), cell).await?.0.get_id()
            }
            Child::Alarms => Actor::spawn_linked(None, Alarms { world }, (), cell).await?.0.get_id(),
        };
        Ok(id)
    }
}
