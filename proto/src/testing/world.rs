//! A run and its undos under guarded appends, without a journal: every decision's expectations are checked against the
//! streams' versions, every record is folded by all that it concerns, and the invariants are looked at after each.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    OWNER, Upstreams, agent, approval_id, at, hash, json, manifests, operator, people, principal, request, rollback_id,
    run_id, upstreams,
};
use crate::access::Access;
use crate::aggregate::{Aggregate, Decision};
use crate::approval::{Approval, ApprovalCommand, ApprovalFacts, ApprovalReject, Say};
use crate::claim::holder_after;
use crate::config::Archive;
use crate::doctor::Doctor;
use crate::event::v1::{Executor, ManifestsLoaded, ManifestsLoadedPrivate, Mode, Outcome, RequestKey, Target};
use crate::event::{ConfigEvent, Event, Meta};
use crate::halt::Halt;
use crate::hash::Hash;
use crate::ids::{Actor, ApprovalId, RunId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::ManifestSet;
use crate::run::{
    BeginAnswer, BeginCall, BeginFacts, ClaimFact, CompleteAnswer, CompleteCall, DecisionWord, PreApproveFacts,
    ResolveCall, ResultPayload, Run, RunAnswer, RunCommand, RunEffect, RunFacts, RunReject, StartRollback, UndoAsk,
    claim_of, rules_of, undo_rules,
};
use crate::time::Timestamp;
use crate::undo::{CallEnd, NoGrant, Phase, ReadEnd, Undo, UndoCommand, UndoFacts, UndoReject, UndoSpec};
use crate::wake::Wake;

const PAYLOAD_KEY: [u8; 32] = [7; 32];
const LEDGER_KEY: [u8; 32] = [9; 32];

/// One durable record.
#[derive(Debug, Clone)]
pub struct Logged {
    /// Stamp.
    pub meta: Meta,
    /// What happened.
    pub event: Event,
    /// What it advances.
    pub streams: Vec<StreamId>,
}

/// A run, its undos, and everything they ask of the world.
#[derive(Debug, Clone)]
pub struct World {
    /// The clock.
    pub now: Timestamp,
    /// The run, folded from its stream.
    pub run: Run,
    /// Each undo, folded from its own stream.
    pub undos: BTreeMap<StepNo, Undo>,
    /// The manifests that were ever in force.
    pub archive: Archive,
    /// All records, the first one being `manifests.loaded`.
    pub log: Vec<Logged>,
    /// Which upstream serves which tool.
    pub upstreams: Upstreams,
    /// Tools that no upstream serves at the moment.
    pub unserved: BTreeSet<ToolName>,
    /// Calls that were lost can't be running any more.
    pub calls_are_over: bool,
    /// For jitter.
    pub random: u64,
    /// Who holds which claim, as `claim::holder_after` says.
    pub holders: BTreeMap<Hash, Option<(RunId, StepNo)>>,
    /// Each approval, folded from its own stream.
    pub approvals: BTreeMap<ApprovalId, Approval>,
    /// Who may approve.
    pub access: Access,
    /// What may not begin.
    pub halt: Halt,
    versions: BTreeMap<StreamId, Seq>,
    minted: u8,
    /// Looks over every story's shoulder.
    doctor: Doctor,
}

impl World {
    /// A run that was just started with every permission of the stories' manifests.
    pub fn new(mode: Mode) -> Self {
        let every: BTreeSet<String> = manifests().iter().map(|manifest| manifest.permission.clone()).collect();
        Self::with_scope(mode, every.into_iter().collect())
    }

    /// A run that was just started with this scope.
    pub fn with_scope(mode: Mode, permissions: Vec<String>) -> Self {
        let mut world = Self {
            now: at(0),
            run: Run::new(run_id()),
            undos: BTreeMap::new(),
            archive: Archive::default(),
            log: Vec::new(),
            upstreams: upstreams(),
            unserved: BTreeSet::new(),
            calls_are_over: false,
            random: 0,
            holders: BTreeMap::new(),
            versions: BTreeMap::new(),
            approvals: BTreeMap::new(),
            access: people(),
            halt: Halt::default(),
            minted: 0,
            doctor: Doctor::default(),
        };
        world.load(&manifests());
        let request = Some(request(200, 200));
        let person = Some(OWNER.to_owned());
        let start = RunCommand::Start { owner: agent(), person, permissions, mode, reason: None, request };
        world.command(&start).unwrap();
        world
    }

    /// Loads this set: what a step pinned before stays known.
    pub fn load(&mut self, set: &ManifestSet) {
        let texts = set.iter().map(|manifest| manifest.canonical()).collect();
        let body = ManifestsLoaded { count: u32::try_from(set.len()).unwrap(), set: set.checksum() };
        let event = ConfigEvent::ManifestsLoaded(body, ManifestsLoadedPrivate { texts }).into();
        self.fold(&Actor::system(), event, vec![StreamId::Config]);
    }

    /// A record of somebody else's: of the people, of a halt.
    pub fn record(&mut self, actor: &Actor, event: impl Into<Event>, stream: StreamId) {
        self.fold(actor, event.into(), vec![stream]);
    }

    /// Lets time pass.
    pub fn wait(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.plus_ms(ms);
        self
    }

    /// The run's next record will have that number in the run.
    fn version(&self, stream: &StreamId) -> Option<Seq> {
        self.versions.get(stream).copied()
    }

    /// Appends a decision's records, as the journal's writer would.
    fn append<A>(&mut self, actor: &Actor, decision: Decision<A>) -> A {
        if !decision.records.is_empty() {
            assert!(decision.expect.iter().any(|(stream, _)| *stream == self.run.stream()), "the run is not guarded");
        }
        for (stream, expected) in &decision.expect {
            assert_eq!(self.version(stream), *expected, "wrong expectation of {stream}");
        }
        let before = self.clone();
        for (event, streams) in &decision.records {
            self.fold(actor, event.clone(), streams.clone());
        }
        let events: Vec<Event> = decision.records.into_iter().map(|(event, _)| event).collect();
        self.check(&before, &events);
        assert_eq!(self.doctor.violations(), [], "the doctor finds something in an honest story");
        decision.answer
    }

    fn fold(&mut self, actor: &Actor, event: Event, streams: Vec<StreamId>) {
        let seq = self.log.len() as Seq;
        let mut leaf = hash(0);
        leaf.0[..8].copy_from_slice(&(seq + 1).to_be_bytes());
        let meta = Meta { seq, ts: self.now, leaf, actor: actor.clone() };
        for stream in &streams {
            self.versions.insert(stream.clone(), seq);
            self.fold_into(stream, &meta, &event);
        }
        let names: Vec<String> = streams.iter().map(StreamId::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let of_run = streams.iter().any(|stream| matches!(stream, StreamId::Run(_)));
        self.doctor.take(&meta, of_run.then(|| self.run.id()), &event, &names);
        self.log.push(Logged { meta, event, streams });
    }

    fn fold_into(&mut self, stream: &StreamId, meta: &Meta, event: &Event) {
        match stream {
            StreamId::Run(run) => {
                assert_eq!(run, self.run.id());
                self.run.evolve(meta, event);
            }
            StreamId::Undo(run, step) => {
                let undo = self.undos.entry(*step).or_insert_with(|| Undo::new(run.clone(), *step));
                undo.evolve(meta, event);
            }
            StreamId::Claim(claim) => {
                self.holders.insert(Hash(*claim), holder_after(Some(self.run.id()), event));
            }
            StreamId::Config => self.archive.evolve(meta, event),
            StreamId::Approval(id) => {
                let run = self.run.id().clone();
                let approval = self.approvals.entry(id.clone()).or_insert_with(|| Approval::new(run, id.clone()));
                approval.evolve(meta, event);
            }
            StreamId::Access => self.access.evolve(meta, Some(self.run.id()), event),
            StreamId::Halt => self.halt.evolve(meta, event),
            StreamId::Ledger => {}
        }
    }

    /// The types of the records after the first `skip` ones.
    pub fn kinds_after(&self, skip: usize) -> Vec<&'static str> {
        self.log[skip..].iter().map(|logged| logged.event.kind()).collect()
    }

    /// The claim stream that a key has, as it stands.
    pub fn claim(&self, claim: Hash) -> ClaimFact {
        let holder = self.holders.get(&claim).cloned().flatten();
        ClaimFact { claim, version: self.version(&StreamId::Claim(claim.0)), holder }
    }

    /// Gives a claim to a step of another run, as that run's begin would.
    pub fn let_another_run_take(&mut self, claim: Hash) {
        let seq = self.log.len() as Seq;
        self.versions.insert(StreamId::Claim(claim.0), seq);
        self.holders.insert(claim, Some(("other".parse().unwrap(), 1)));
        // Its record stands between ours.
        let meta = Meta { seq, ts: self.now, leaf: hash(0), actor: agent() };
        let event = crate::event::SystemEvent::ClockStepped(crate::event::v1::ClockStepped { by_ms: 0 }, ()).into();
        self.doctor.take(&meta, None, &event, &[]);
        self.log.push(Logged { meta, event, streams: vec![] });
    }

    fn run_facts(&mut self, command: &RunCommand) -> RunFacts {
        let step = match command {
            RunCommand::Complete(call) => Some(call.step),
            RunCommand::Resolve(call) => Some(call.step),
            RunCommand::Start { .. }
            | RunCommand::Begin(_)
            | RunCommand::Seal
            | RunCommand::StartRollback(_)
            | RunCommand::FinishRollback
            | RunCommand::RequestUndoApproval(_)
            | RunCommand::PreApprove(_) => None,
        };
        let step = step.and_then(|no| self.run.step(no));
        let manifest = step.and_then(|step| self.archive.get(step.config, &step.tool)).cloned();
        let claim = step.and_then(|step| step.claim).map(|claim| self.claim(claim));
        let begin = if let RunCommand::Begin(call) = command { Some(self.begin_facts(call)) } else { None };
        let undo = if let RunCommand::RequestUndoApproval(step) = command { Some(self.undo_ask(*step)) } else { None };
        let pre_approve = if let RunCommand::PreApprove(pre) = command {
            let manifest = self.archive.current().unwrap().1.get(&pre.tool).cloned();
            Some(PreApproveFacts {
                rules: manifest.map(|manifest| rules_of(&manifest).unwrap_or_default()),
                access: Arc::new(self.access.clone()),
                access_version: self.version(&StreamId::Access),
            })
        } else {
            None
        };
        RunFacts { payload_key: PAYLOAD_KEY, begin, manifest, claim, undo, pre_approve }
    }

    fn mint(&mut self) -> ApprovalId {
        self.minted += 1;
        approval_id(self.minted)
    }

    fn undo_ask(&mut self, no: StepNo) -> UndoAsk {
        let (approval, spec) = (self.mint(), self.spec(no));
        let step = self.run.step(no).unwrap();
        let of = |tool: &ToolName| self.archive.get(step.config, tool).map(|manifest| &**manifest);
        let (undo, rules) = (of(&spec.tool), undo_rules(of(&spec.tool), of(&step.tool)));
        let manifest = undo.map(crate::manifest::Manifest::checksum);
        let (tool, args, config) = (spec.tool.clone(), spec.args, step.config);
        let (access, access_version) = (Arc::new(self.access.clone()), self.version(&StreamId::Access));
        UndoAsk { approval, tool, args, manifest, config, rules, access, access_version }
    }

    fn begin_facts(&mut self, call: &BeginCall) -> BeginFacts {
        let approval = self.mint();
        let (_, set) = self.archive.current().unwrap();
        let claim = set.get(&call.tool);
        let claim = claim.and_then(|found| claim_of(found, &call.args, (self.run.id(), &call.actor), &LEDGER_KEY));
        BeginFacts {
            manifests: set,
            config: self.version(&StreamId::Config),
            access: Arc::new(self.access.clone()),
            access_version: self.version(&StreamId::Access),
            halt: Arc::new(self.halt.clone()),
            halt_version: self.version(&StreamId::Halt),
            claim: claim.map(|claim| claim.map(|claim| self.claim(claim))),
            approval,
        }
    }

    /// Asks the run.
    pub fn command(&mut self, command: &RunCommand) -> Result<RunAnswer, RunReject> {
        let actor = match command {
            RunCommand::Start { .. } | RunCommand::Begin(_) | RunCommand::Complete(_) | RunCommand::Seal => agent(),
            RunCommand::Resolve(_) | RunCommand::StartRollback(_) | RunCommand::PreApprove(_) => operator(),
            RunCommand::FinishRollback | RunCommand::RequestUndoApproval(_) => Actor::system(),
        };
        let decision = self.decide(command)?;
        Ok(self.append(&actor, decision))
    }

    /// What the run would answer and record.
    pub fn decide(&mut self, command: &RunCommand) -> Result<Decision<RunAnswer>, RunReject> {
        let facts = self.run_facts(command);
        self.run.decide(self.now, command, &facts)
    }

    /// A call that the agent wants to make, with a request key of its own.
    pub fn call(&self, tool: &str, args: &str) -> BeginCall {
        let mut key = hash(3);
        key.0[..8].copy_from_slice(&(self.log.len() as u64).to_be_bytes());
        BeginCall {
            actor: agent(),
            tool: tool.parse().unwrap(),
            reason: "the customer asked".to_owned(),
            args: json(args),
            request: Some(RequestKey { key, body: hash(4) }),
            attempt: Some(hash(5)),
            person: Some(OWNER.to_owned()),
            approval: None,
        }
    }

    /// Begins a call.
    pub fn begin(&mut self, tool: &str, args: &str) -> BeginAnswer {
        let call = self.call(tool, args);
        self.begin_call(call).unwrap()
    }

    /// Begins a call.
    pub fn begin_call(&mut self, call: BeginCall) -> Result<BeginAnswer, RunReject> {
        match self.command(&RunCommand::Begin(call))? {
            RunAnswer::Begin(answer) => Ok(answer),
            other => panic!("not the answer of a begin: {other:?}"),
        }
    }

    /// A call that is allowed and ends well; its step.
    #[track_caller]
    pub fn done(&mut self, tool: &str, args: &str, result: &str) -> StepNo {
        let begun = self.begin(tool, args);
        assert_eq!(begun.decision, DecisionWord::Allow, "{:?}", begun.findings);
        self.complete(begun.step, Outcome::Succeeded, result).unwrap();
        begun.step
    }

    /// Reports an outcome; an empty result is none.
    pub fn complete(&mut self, step: StepNo, status: Outcome, result: &str) -> Result<CompleteAnswer, RunReject> {
        self.complete_with(step, status, payload(result))
    }

    /// Reports an outcome.
    pub fn complete_with(
        &mut self,
        step: StepNo,
        status: Outcome,
        result: ResultPayload,
    ) -> Result<CompleteAnswer, RunReject> {
        let command = RunCommand::Complete(CompleteCall { step, status, result, error: None });
        self.command(&command).map(outcome)
    }

    /// Settles a step or an undo; an empty result is none.
    pub fn resolve(
        &mut self,
        target: Target,
        step: StepNo,
        status: Outcome,
        result: &str,
    ) -> Result<CompleteAnswer, RunReject> {
        let (note, result) = ("looked at the upstream".to_owned(), payload(result));
        self.command(&RunCommand::Resolve(ResolveCall { target, step, status, note, result })).map(outcome)
    }

    /// A rollback of everything, or of these steps.
    pub fn rollback_command(&self, n: u8, steps: Option<Vec<StepNo>>) -> StartRollback {
        StartRollback {
            id: rollback_id(n),
            executor: Executor::Daemon,
            steps,
            to_step: None,
            upstreams: self.upstreams.clone(),
            request: Some(request(n, n)),
            person: Some(operator().id.to_string()),
        }
    }

    /// Starts the rollback number `n`.
    pub fn rollback(&mut self, n: u8) -> Result<RunAnswer, RunReject> {
        self.rollback_of(n, None)
    }

    /// Starts the rollback number `n` of some steps.
    pub fn rollback_of(&mut self, n: u8, steps: Option<Vec<StepNo>>) -> Result<RunAnswer, RunReject> {
        let command = self.rollback_command(n, steps);
        self.command(&RunCommand::StartRollback(command))
    }

    /// What the undo of a step would call now.
    pub fn spec(&self, step: StepNo) -> UndoSpec {
        let served = |tool: &ToolName| !self.unserved.contains(tool);
        self.run.step(step).unwrap().undo_spec(&self.archive, &served).unwrap()
    }

    fn grant(&self, step: StepNo) -> Result<Option<(ApprovalId, Wake)>, NoGrant> {
        let of = self.run.step(step).unwrap();
        let tool = |tool: &ToolName| self.archive.get(of.config, tool).map(|manifest| &**manifest);
        let undo = of.undo_pin.as_ref().and_then(|pin| tool(&pin.tool));
        let rules = undo_rules(undo, tool(&of.tool));
        let grant = self.run.undo_grant(step, &rules, (&self.access, self.now))?;
        Ok(grant.map(|grant| (grant.id().clone(), grant.wake_once_used())))
    }

    /// Tells an approval something.
    pub fn say(&mut self, id: &ApprovalId, command: &ApprovalCommand) -> Result<(), ApprovalReject> {
        let facts = ApprovalFacts {
            access: Arc::new(self.access.clone()),
            access_version: self.version(&StreamId::Access),
            halted: self.halt.iter().next().map(|halt| halt.reason.clone()),
            halt_version: self.version(&StreamId::Halt),
            run_version: self.run.chain().version.unwrap(),
        };
        let approval = self.approvals.get(id).cloned();
        let approval = approval.unwrap_or_else(|| Approval::new(self.run.id().clone(), id.clone()));
        let decision = approval.decide(self.now, command, &facts)?;
        let actor = match command {
            ApprovalCommand::Approve(say) | ApprovalCommand::Deny(say) => say.who.actor.clone(),
            ApprovalCommand::Withdraw(who)
            | ApprovalCommand::Revoke(who, _)
            | ApprovalCommand::BreakGlass(who, _)
            | ApprovalCommand::Review(who, _) => who.actor.clone(),
            ApprovalCommand::Fire => Actor::system(),
        };
        self.append(&actor, decision);
        Ok(())
    }

    /// A person's yes.
    pub fn approve(&mut self, id: &ApprovalId, person: &str) -> Result<(), ApprovalReject> {
        self.say(id, &ApprovalCommand::Approve(Say { who: principal(person), note: None, fingerprint: None }))
    }

    /// Asks an undo.
    pub fn undo(&mut self, step: StepNo, command: &UndoCommand) -> Result<(), UndoReject> {
        let facts = UndoFacts {
            turn: self.run.turn_of(step),
            spec: self.spec(step),
            run_version: self.run.chain().version.unwrap(),
            run_seq: self.run.chain().next_run_seq(),
            payload_key: PAYLOAD_KEY,
            claim: self.run.step(step).and_then(crate::run::Step::claim_stream),
            calls_are_over: self.calls_are_over,
            random: self.random,
            grant: self.grant(step),
            access_version: self.version(&StreamId::Access),
        };
        let undo = self.undos.get(&step).cloned().unwrap_or_else(|| Undo::new(self.run.id().clone(), step));
        let decision = undo.decide(self.now, command, &facts)?;
        self.append(&Actor::system(), decision);
        Ok(())
    }

    /// Where an undo stands.
    pub fn phase(&self, step: StepNo) -> Phase {
        self.undos.get(&step).map_or(Phase::Idle, |undo| undo.phase().clone())
    }

    /// The inverse of a step is called, and ends so.
    #[track_caller]
    pub fn attempt(&mut self, step: StepNo, end: CallEnd) {
        self.undo(step, &UndoCommand::Attempt).unwrap();
        assert!(matches!(self.phase(step), Phase::Calling { .. }), "no attempt: {:?}", self.phase(step));
        self.call_ended(step, end);
    }

    /// The open call of an undo ends so.
    #[track_caller]
    pub fn call_ended(&mut self, step: StepNo, end: CallEnd) {
        let attempt = self.undos[&step].attempts();
        self.undo(step, &UndoCommand::CallEnded { attempt, end }).unwrap();
    }

    /// The next read-back of an undo is made when it is due, and ends so.
    #[track_caller]
    pub fn read(&mut self, step: StepNo, end: ReadEnd) {
        let Phase::Reading { read, at, .. } = self.phase(step) else { panic!("not reading: {:?}", self.phase(step)) };
        self.now = self.now.max(at);
        let attempt = self.undos[&step].attempts();
        self.undo(step, &UndoCommand::ReadEnded { attempt, read, end }).unwrap();
    }

    /// Steps whose undo the run wants to be woken, and which may be.
    pub fn ready(&self) -> Vec<StepNo> {
        let drive = |effect| match effect {
            RunEffect::DriveUndo(step) => Some(step).filter(|step| self.grant(*step).is_ok()),
            RunEffect::FinishRollback | RunEffect::SealAgain | RunEffect::RequestApproval(_) => None,
        };
        self.run.effects().into_iter().filter_map(drive).collect()
    }

    /// Does what the run wants done for itself.
    pub fn settle(&mut self) {
        for _ in 0..10 {
            let command = match self.run.effects().first() {
                Some(RunEffect::FinishRollback) => RunCommand::FinishRollback,
                Some(RunEffect::SealAgain) => RunCommand::Seal,
                Some(RunEffect::RequestApproval(step)) => RunCommand::RequestUndoApproval(*step),
                Some(RunEffect::DriveUndo(step)) if self.grant(*step).is_err() => {
                    RunCommand::RequestUndoApproval(*step)
                }
                Some(RunEffect::DriveUndo(_)) | None => return,
            };
            let before = self.log.len();
            self.command(&command).unwrap();
            assert!(self.log.len() > before, "an effect that comes to nothing would be started for ever: {command:?}");
        }
        panic!("the run does not come to rest");
    }

    /// Every inverse succeeds and every read-back matches, until nothing moves any more.
    #[track_caller]
    pub fn undo_all(&mut self) {
        while let Some(step) = self.ready().first().copied() {
            self.attempt(step, CallEnd::Success);
            if matches!(self.phase(step), Phase::Reading { .. }) {
                self.read(step, ReadEnd::Match);
            }
        }
        self.settle();
    }
}

fn payload(result: &str) -> ResultPayload {
    if result.is_empty() { ResultPayload::None } else { ResultPayload::Canonical(json(result)) }
}

fn outcome(answer: RunAnswer) -> CompleteAnswer {
    match answer {
        RunAnswer::Complete(answer) => answer,
        other => panic!("not the answer to an outcome: {other:?}"),
    }
}
