//! The Undo as an entity: what it asks its Run, and how the inverse and its read-back are called.
//! Must not decide: outcomes become commands.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use reversi_proto::canonical::Canonical;
use reversi_proto::ids::{ApprovalId, RunId, StreamId};
use reversi_proto::retry::doubled_ms;
use reversi_proto::run::{Run, SpecError};
use reversi_proto::time::Timestamp;
use reversi_proto::undo::{
    CallEnd, NoGrant, NotReady, ReadBack, ReadEnd, Undo, UndoCommand, UndoEffect, UndoFacts, UndoReject, UndoSpec,
};
use reversi_proto::wake::Wake;

use crate::codec::RunKeys;
use crate::directory::Directory;
use crate::failpoint::failpoint;
use crate::host::{ChainEnd, Entity, HostError};
use crate::ids::Mint as _;
use crate::ports::{CallOutcome, ToolCall};
use crate::runs::{chain_end, undo_rules_of};
use crate::world::{Calling, UndoKey, World};

/// Longest error text or value of an upstream that is sealed into a record, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Entity for Undo {
    type Key = UndoKey;
    const KIND: &'static str = "undo";

    fn directory(world: &World) -> &Directory<Self> {
        &world.undos
    }
    fn new(key: &UndoKey) -> Self {
        Self::new(key.0.clone(), key.1)
    }
    fn stream(key: &UndoKey) -> StreamId {
        StreamId::Undo(key.0.clone(), key.1)
    }
    fn run(key: &UndoKey) -> &RunId {
        &key.0
    }

    async fn facts(
        &self,
        world: &Arc<World>,
        keys: &RunKeys,
        _command: &UndoCommand,
    ) -> Result<(UndoFacts, ChainEnd), HostError<UndoReject>> {
        let (of_run, step, asked) = (self.run().clone(), self.step(), Arc::clone(world));
        let (payload_key, random) = (keys.payload, world.ids.number());
        let facts = world.query::<Run, _>(&of_run, move |run| {
            let spec = spec_of(run, step, &asked)?;
            let calling = asked.is_calling(&UndoKey(run.id().clone(), step));
            let calls_are_over = !calling && asked.tools.earlier_calls_are_over(&spec.tool);
            // Read before the grant is looked at: if it is older than what was looked at, the append is tried again.
            let access_version = asked.globals().access_version;
            let facts = UndoFacts {
                turn: if asked.parked { Err(NotReady::Parked) } else { run.turn_of(step) },
                spec,
                run_version: run.chain().version.unwrap_or(0),
                run_seq: run.chain().next_run_seq(),
                payload_key,
                grant: grant_of(run, step, &asked),
                access_version,
                claim: run.step(step).and_then(reversi_proto::run::Step::claim_stream),
                calls_are_over,
                random,
            };
            Ok((facts, chain_end(run, &asked)))
        });
        let answer: Result<(UndoFacts, ChainEnd), SpecError> = facts.await.map_err(HostError::of_another)?;
        answer.map_err(|error| {
            tracing::error!(run = %of_run, step, %error, "an undo can't be built");
            HostError::Lost
        })
    }

    fn start(
        &self,
        world: &Arc<World>,
        effect: &UndoEffect,
    ) -> Option<impl Future<Output = Option<UndoCommand>> + Send + 'static> {
        let (world, run, step) = (Arc::clone(world), self.run().clone(), self.step());
        let work: Pin<Box<dyn Future<Output = Option<UndoCommand>> + Send>> = match *effect {
            UndoEffect::Call { attempt } => {
                // From now on, and not only once the task has come so far: an actor that is restarted meanwhile must
                // not believe that nothing is being called.
                let calling = Calling::begin(&world, UndoKey(run.clone(), step));
                Box::pin(call_inverse(world, run, (step, attempt), calling))
            }
            UndoEffect::ReadBack { attempt, read, at } => Box::pin(read_back(world, run, step, (attempt, read), at)),
        };
        Some(work)
    }

    fn is_once(effect: &UndoEffect) -> bool {
        match effect {
            UndoEffect::Call { .. } => true,
            UndoEffect::ReadBack { .. } => false,
        }
    }

    fn effect_died(&self, effect: &UndoEffect) -> Option<UndoCommand> {
        match *effect {
            UndoEffect::Call { attempt } => {
                let end = CallEnd::Unknown("the daemon failed while it made the call".to_owned());
                Some(UndoCommand::CallEnded { attempt, end })
            }
            UndoEffect::ReadBack { attempt, read, .. } => {
                let end = ReadEnd::Unavailable("the daemon failed while it read back".to_owned());
                Some(UndoCommand::ReadEnded { attempt, read, end })
            }
        }
    }

    fn is_first(_command: &UndoCommand) -> bool {
        false
    }

    fn is_reserved(command: &UndoCommand) -> bool {
        match command {
            // Only written when there is room for its outcome.
            UndoCommand::Attempt => false,
            UndoCommand::CallEnded { .. } | UndoCommand::LoseAttempt | UndoCommand::ReadEnded { .. } => true,
        }
    }

    /// What an undo did may be what its run waits for.
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

    fn at_append(command: &UndoCommand, before: bool) {
        match (command, before) {
            (UndoCommand::Attempt, true) => {
                failpoint!("undo.before_attempt");
            }
            (UndoCommand::Attempt, false) => {
                failpoint!("undo.after_attempt");
            }
            (UndoCommand::CallEnded { .. } | UndoCommand::LoseAttempt | UndoCommand::ReadEnded { .. }, true) => {
                failpoint!("undo.before_outcome");
            }
            (UndoCommand::CallEnded { .. } | UndoCommand::LoseAttempt | UndoCommand::ReadEnded { .. }, false) => {
                failpoint!("undo.after_outcome");
            }
        }
    }
}

fn spec_of(run: &Run, step: u32, world: &World) -> Result<UndoSpec, SpecError> {
    let step = run.step(step).ok_or(SpecError::NoStep { step })?;
    let archive = world.globals().archive;
    step.undo_spec(&archive, &|tool| world.tools.upstream_of(tool).is_some())
}

/// The grant that the first attempt would use up, and when its stream must be woken once it has.
pub(crate) fn grant_of(run: &Run, step: u32, world: &World) -> Result<Option<(ApprovalId, Wake)>, NoGrant> {
    let globals = world.globals();
    let Some(of) = run.step(step) else { return Ok(None) };
    let rules = undo_rules_of(of, &globals.archive);
    let grant = run.undo_grant(step, &rules, (&globals.access, world.clock.now()))?;
    Ok(grant.map(|grant| (grant.id().clone(), grant.wake_once_used())))
}

async fn fetch_spec(world: &Arc<World>, run: &RunId, step: u32) -> Result<UndoSpec, String> {
    let asked = Arc::clone(world);
    let spec = world.query::<Run, _>(run, move |run| spec_of(run, step, &asked));
    spec.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Stable over attempts and restarts, so that the tool can deduplicate.
fn idempotency_key(world: &World, run: &RunId, step: u32) -> String {
    format!("undo:{}:{run}:{step}", world.journal.ledger())
}

/// The intent is durable; now the world.
async fn call_inverse(
    world: Arc<World>,
    run: RunId,
    (step, attempt): (u32, u32),
    calling: Option<Calling>,
) -> Option<UndoCommand> {
    let Some(_calling) = calling else {
        let end = CallEnd::KnownFailure("the call of an earlier attempt is not over yet".to_owned());
        return Some(UndoCommand::CallEnded { attempt, end });
    };
    let end = match fetch_spec(&world, &run, step).await {
        // Nothing was called.
        Err(error) => CallEnd::KnownFailure(error),
        Ok(spec) => {
            World::count(&world.counters.undo_calls);
            let key = Some(idempotency_key(&world, &run, step));
            let call = ToolCall { tool: spec.tool, args: spec.args, idempotency_key: key, timeout_ms: spec.timeout_ms };
            failpoint!("undo.before_call");
            let outcome = world.tools.call(call).await;
            failpoint!("undo.after_call");
            match outcome {
                CallOutcome::Success { .. } => CallEnd::Success,
                CallOutcome::KnownFailure { error } => CallEnd::KnownFailure(kept(&error)),
                CallOutcome::Unknown { error } => CallEnd::Unknown(kept(&error)),
            }
        }
    };
    Some(UndoCommand::CallEnded { attempt, end })
}

async fn read_back(
    world: Arc<World>,
    run: RunId,
    step: u32,
    (attempt, read): (u32, u32),
    at: Timestamp,
) -> Option<UndoCommand> {
    world.clock.sleep_until(at).await;
    let end = match fetch_spec(&world, &run, step).await {
        Err(error) => ReadEnd::Unavailable(error),
        Ok(UndoSpec { read_back: None, .. }) => ReadEnd::Unavailable("no read-back is declared".to_owned()),
        Ok(UndoSpec { read_back: Some(read_back), .. }) => ask(&world, &read_back).await,
    };
    Some(UndoCommand::ReadEnded { attempt, read, end })
}

/// One read-back. An error of the call is no mismatch: it is repeated, as often and as far apart as mismatches are.
async fn ask(world: &Arc<World>, read_back: &ReadBack) -> ReadEnd {
    let mut last = String::new();
    for try_no in 1..=read_back.retries {
        let call = ToolCall {
            tool: read_back.tool.clone(),
            args: read_back.args.clone(),
            idempotency_key: None,
            timeout_ms: read_back.timeout_ms,
        };
        failpoint!("verify.before_call");
        let outcome = world.tools.call(call).await;
        failpoint!("verify.after_call");
        match outcome {
            CallOutcome::Success { result } => return compare(read_back, result.as_ref()),
            CallOutcome::KnownFailure { error } | CallOutcome::Unknown { error } => last = kept(&error),
        }
        if try_no < read_back.retries {
            let until = world.clock.now().plus_ms(doubled_ms(read_back.backoff_ms, try_no));
            world.clock.sleep_until(until).await;
        }
    }
    ReadEnd::Unavailable(last)
}

/// What is kept of an upstream's error text.
fn kept(error: &str) -> String {
    error.char_indices().take_while(|(at, _)| *at < KEPT_BYTES_MAX).map(|(_, character)| character).collect()
}

fn compare(read_back: &ReadBack, result: Option<&Canonical>) -> ReadEnd {
    let answer = result.map_or(serde_json::Value::Null, Canonical::value);
    let Some(mismatch) = read_back.expect.first_mismatch(&answer) else { return ReadEnd::Match };
    let Ok(expected) = Canonical::of(&mismatch.expected) else {
        return ReadEnd::Unavailable("the expected value has no canonical form".to_owned());
    };
    let got = mismatch.got.and_then(|got| Canonical::of(&got).ok());
    // What is too large to keep would only keep the mismatch itself from being recorded.
    let got = got.filter(|got| got.as_str().len() <= KEPT_BYTES_MAX);
    ReadEnd::Mismatch { path: mismatch.path, expected, got }
}
