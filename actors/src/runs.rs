//! The Run as an entity: which facts it needs, and what a rollback starts. Must not know how an inverse is called.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use reversi_proto::approval::Rules;
use reversi_proto::config::Archive;
use reversi_proto::ids::{Actor, RunId, StreamId, ToolName};
use reversi_proto::ledger::run_genesis;
use reversi_proto::manifest::Manifest;
use reversi_proto::run::{
    BeginCall, BeginFacts, ClaimFact, PreApproveFacts, Run, RunCommand, RunEffect, RunFacts, RunReject, Step, UndoAsk,
    claim_of, rules_of, undo_rules,
};
use reversi_proto::undo::{Undo, UndoCommand};
use reversi_proto::wake::Wake;

use crate::codec::RunKeys;
use crate::compensations::grant_of;
use crate::directory::Directory;
use crate::failpoint::failpoint;
use crate::host::{ChainEnd, Entity, HostError, Msg};
use crate::ids::Mint as _;
use crate::world::{UndoKey, World};

impl Entity for Run {
    type Key = RunId;
    const KIND: &'static str = "run";

    fn directory(world: &World) -> &Directory<Self> {
        &world.runs
    }
    fn new(key: &RunId) -> Self {
        Self::new(key.clone())
    }
    fn stream(key: &RunId) -> StreamId {
        StreamId::Run(key.clone())
    }
    fn run(key: &RunId) -> &RunId {
        key
    }

    async fn facts(
        &self,
        world: &Arc<World>,
        keys: &RunKeys,
        command: &RunCommand,
    ) -> Result<(RunFacts, ChainEnd), HostError<RunReject>> {
        let (begin, manifest) = match command {
            RunCommand::Begin(call) => (Some(self.begin_facts(world, call)?), None),
            RunCommand::Complete(call) => (None, self.pinned(world, call.step)),
            RunCommand::Resolve(call) => (None, self.pinned(world, call.step)),
            RunCommand::Start { .. }
            | RunCommand::Seal
            | RunCommand::StartRollback(_)
            | RunCommand::FinishRollback
            | RunCommand::RequestUndoApproval(_)
            | RunCommand::PreApprove(_) => (None, None),
        };
        let claim = match command {
            RunCommand::Complete(call) => self.lost_claim(world, call.step)?,
            RunCommand::Start { .. }
            | RunCommand::Begin(_)
            | RunCommand::Resolve(_)
            | RunCommand::Seal
            | RunCommand::StartRollback(_)
            | RunCommand::FinishRollback
            | RunCommand::RequestUndoApproval(_)
            | RunCommand::PreApprove(_) => None,
        };
        let undo = match command {
            RunCommand::RequestUndoApproval(step) => self.undo_ask(world, *step),
            RunCommand::Start { .. }
            | RunCommand::Begin(_)
            | RunCommand::Complete(_)
            | RunCommand::Resolve(_)
            | RunCommand::Seal
            | RunCommand::StartRollback(_)
            | RunCommand::FinishRollback
            | RunCommand::PreApprove(_) => None,
        };
        let pre_approve = match command {
            RunCommand::PreApprove(pre) => Some(pre_approve_facts(world, &pre.tool)),
            RunCommand::Start { .. }
            | RunCommand::Begin(_)
            | RunCommand::Complete(_)
            | RunCommand::Resolve(_)
            | RunCommand::Seal
            | RunCommand::StartRollback(_)
            | RunCommand::FinishRollback
            | RunCommand::RequestUndoApproval(_) => None,
        };
        let facts = RunFacts { payload_key: keys.payload, begin, manifest, claim, undo, pre_approve };
        Ok((facts, chain_end(self, world)))
    }

    fn start(
        &self,
        world: &Arc<World>,
        effect: &RunEffect,
    ) -> Option<impl Future<Output = Option<RunCommand>> + Send + 'static> {
        match effect {
            // A grant that is not enough any more is taken away, and asked for anew.
            RunEffect::DriveUndo(step) if grant_of(self, *step, world).is_err() => {
                Some(ready(RunCommand::RequestUndoApproval(*step)))
            }
            RunEffect::DriveUndo(step) => {
                let key = UndoKey(self.id().clone(), *step);
                let message = Msg::Command { actor: Actor::system(), command: UndoCommand::Attempt, reply: None };
                Undo::directory(world).send(&key, message, world.clock.now());
                None
            }
            RunEffect::FinishRollback => Some(ready(RunCommand::FinishRollback)),
            RunEffect::SealAgain => Some(ready(RunCommand::Seal)),
            RunEffect::RequestApproval(step) => Some(ready(RunCommand::RequestUndoApproval(*step))),
        }
    }

    fn is_once(_effect: &RunEffect) -> bool {
        false
    }

    fn effect_died(&self, _effect: &RunEffect) -> Option<RunCommand> {
        None
    }

    fn is_first(command: &RunCommand) -> bool {
        matches!(command, RunCommand::Start { .. })
    }

    fn is_reserved(command: &RunCommand) -> bool {
        match command {
            RunCommand::Complete(_)
            | RunCommand::Resolve(_)
            | RunCommand::Seal
            | RunCommand::FinishRollback
            | RunCommand::RequestUndoApproval(_) => true,
            RunCommand::Start { .. }
            | RunCommand::Begin(_)
            | RunCommand::StartRollback(_)
            | RunCommand::PreApprove(_) => false,
        }
    }

    fn wake_of_other(stream: &StreamId) -> Wake {
        let _ = stream; // a claim needs nobody, and the run says itself when its approvals do
        Wake::None
    }

    fn at_append(_command: &RunCommand, before: bool) {
        if before {
            failpoint!("run.before_append");
        } else {
            failpoint!("run.after_append");
        }
    }
}

fn ready(command: RunCommand) -> Pin<Box<dyn Future<Output = Option<RunCommand>> + Send>> {
    Box::pin(std::future::ready(Some(command)))
}

/// Where the run's next record goes.
pub(crate) fn chain_end(run: &Run, world: &World) -> ChainEnd {
    let genesis = || run_genesis(world.journal.ledger(), Some(run.id()));
    ChainEnd { run_seq: run.chain().next_run_seq(), run_prev: run.chain().last.unwrap_or_else(genesis) }
}

trait RunFactsOf {
    fn begin_facts(&self, world: &Arc<World>, call: &BeginCall) -> Result<BeginFacts, HostError<RunReject>>;
    fn pinned(&self, world: &Arc<World>, step: u32) -> Option<Arc<Manifest>>;
    fn lost_claim(&self, world: &Arc<World>, step: u32) -> Result<Option<ClaimFact>, HostError<RunReject>>;
    fn undo_ask(&self, world: &Arc<World>, step: u32) -> Option<UndoAsk>;
}

impl RunFactsOf for Run {
    fn begin_facts(&self, world: &Arc<World>, call: &BeginCall) -> Result<BeginFacts, HostError<RunReject>> {
        let globals = world.globals();
        let manifests = globals.archive.current().map(|(_, set)| set).unwrap_or_default();
        let ledger_key = world.journal.ledger_keys().hmac;
        let claim = manifests
            .get(&call.tool)
            .and_then(|manifest| claim_of(manifest, &call.args, (self.id(), &call.actor), &ledger_key));
        let claim = match claim {
            None => None,
            Some(Err(why)) => Some(Err(why)),
            Some(Ok(claim)) => Some(Ok(world.claim(claim).map_err(HostError::of_another)?)),
        };
        Ok(BeginFacts {
            manifests,
            config: globals.config_version,
            access: globals.access,
            access_version: globals.access_version,
            halt: globals.halt,
            halt_version: globals.halt_version,
            claim,
            approval: world.ids.approval_id(),
        })
    }

    fn pinned(&self, world: &Arc<World>, step: u32) -> Option<Arc<Manifest>> {
        let step = self.step(step)?;
        world.globals().archive.get(step.config, &step.tool).cloned()
    }

    /// The claim of a resolved step: only then can a late outcome ask for it back.
    fn lost_claim(&self, world: &Arc<World>, step: u32) -> Result<Option<ClaimFact>, HostError<RunReject>> {
        let Some(step) = self.step(step).filter(|step| step.resolved.is_some() && !step.claim_held) else {
            return Ok(None);
        };
        step.claim.map(|claim| world.claim(claim).map_err(HostError::of_another)).transpose()
    }

    fn undo_ask(&self, world: &Arc<World>, no: u32) -> Option<UndoAsk> {
        let (step, archive) = (self.step(no)?, world.globals().archive);
        let spec = step.undo_spec(&archive, &|tool| world.tools.upstream_of(tool).is_some());
        let spec = spec
            .inspect_err(|error| tracing::error!(run = %self.id(), step = no, %error, "an undo can't be built"))
            .ok()?;
        let globals = world.globals();
        Some(UndoAsk {
            access: globals.access,
            access_version: globals.access_version,
            approval: world.ids.approval_id(),
            manifest: archive.get(step.config, &spec.tool).map(|manifest| manifest.checksum()),
            tool: spec.tool,
            args: spec.args,
            config: step.config,
            rules: undo_rules_of(step, &archive),
        })
    }
}

/// Who must approve the undo of a step.
pub(crate) fn undo_rules_of(step: &Step, archive: &Archive) -> Rules {
    let pinned = |tool: &ToolName| archive.get(step.config, tool).map(Arc::as_ref);
    undo_rules(step.undo_pin.as_ref().and_then(|pin| pinned(&pin.tool)), pinned(&step.tool))
}

fn pre_approve_facts(world: &World, tool: &ToolName) -> PreApproveFacts {
    let globals = world.globals();
    let manifests = globals.archive.current().map(|(_, set)| set).unwrap_or_default();
    PreApproveFacts {
        rules: manifests.get(tool).map(|manifest| rules_of(manifest).unwrap_or_default()),
        access: globals.access,
        access_version: globals.access_version,
    }
}
