//! How a call ended: outcomes, resolutions, and the seal. Must not know why it was allowed.
use std::collections::BTreeMap;

use serde_json::Value;

use super::{ClaimFact, Run, RunAnswer, RunFacts, RunReject, RunStatus, Step, StepStatus};
use crate::aggregate::Decision;
use crate::approval::Ask;
use crate::canonical::Canonical;
use crate::commit;
use crate::event::v1::{
    ErrorText, Outcome, RunSealed, StepDisputed, StepFailed, StepResolved, StepSucceeded, StepUncertain, Target, Values,
};
use crate::event::{Event, RunEvent, StepEvent};
use crate::hash::Hash;
use crate::ids::{StepNo, StreamId};
use crate::manifest::{Manifest, Root};
use crate::undo::Phase;

/// What a tool returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultPayload {
    /// Nothing was given.
    None,
    /// A value with a canonical form.
    Canonical(Canonical),
    /// A value without one: committed to by its raw bytes.
    Raw {
        /// As they came.
        bytes: Vec<u8>,
        /// Why it has none.
        error: String,
    },
    /// Too large to send: only the values that begin named.
    Omitted(BTreeMap<String, Canonical>),
}

/// An agent's word on how a step ended.
#[derive(Debug, Clone)]
pub struct CompleteCall {
    /// Which step.
    pub step: StepNo,
    /// How it ended.
    pub status: Outcome,
    /// What the tool returned.
    pub result: ResultPayload,
    /// What went wrong; sealed.
    pub error: Option<String>,
}

/// An operator's word.
#[derive(Debug, Clone)]
pub struct ResolveCall {
    /// The step or its undo.
    pub target: Target,
    /// Which step.
    pub step: StepNo,
    /// Succeeded or failed.
    pub status: Outcome,
    /// Public by contract.
    pub note: String,
    /// What the tool returned, where known.
    pub result: ResultPayload,
}

/// The answer to a completion or a resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteAnswer {
    /// Which step.
    pub step: StepNo,
    /// Its status now.
    pub status: &'static str,
    /// Everything that its undo needs was found.
    pub recoverable: bool,
    /// What was not.
    pub missing: Vec<String>,
    /// It contradicts an operator's resolution and was journaled as such: 409.
    pub disputed: bool,
}

struct Seen {
    commitment: Option<Hash>,
    error: Option<String>,
    values: BTreeMap<String, Canonical>,
    missing: Vec<String>,
}

impl Run {
    fn known_step(&self, no: StepNo) -> Result<&Step, RunReject> {
        self.step(no).ok_or_else(|| RunReject::NoStep { run: self.id.clone(), step: no })
    }

    pub(super) fn decide_complete(
        &self,
        call: &CompleteCall,
        facts: &RunFacts,
    ) -> Result<Decision<RunAnswer>, RunReject> {
        let step = self.known_step(call.step)?;
        if step.status == StepStatus::InFlight {
            return Ok(self.record_outcome(step, call, facts));
        }
        if step.late == Some(call.status) && step.resolved != Some(call.status) {
            return Ok(Decision::already(RunAnswer::Complete(CompleteAnswer::of(step, true))));
        }
        if let Some(resolved) = step.resolved {
            return Ok(self.late_outcome(step, resolved, call.status, facts));
        }
        let hint = match step.status {
            StepStatus::Blocked => "the call was refused, so it has no outcome",
            StepStatus::Uncertain => "an operator settles it with resolve",
            StepStatus::Succeeded | StepStatus::Failed | StepStatus::InFlight => {
                if self.says_the_same(step, (call.status, &call.result), facts) {
                    return Ok(Decision::already(RunAnswer::Complete(CompleteAnswer::of(step, false))));
                }
                "its outcome was recorded already and can't be changed"
            }
        };
        if step.status == StepStatus::Uncertain && call.status == Outcome::Uncertain {
            return Ok(Decision::already(RunAnswer::Complete(CompleteAnswer::of(step, false))));
        }
        Err(RunReject::StepStatus { step: step.no, status: step.word(), hint })
    }

    fn record_outcome(&self, step: &Step, call: &CompleteCall, facts: &RunFacts) -> Decision<RunAnswer> {
        let error = ErrorText { error: call.error.clone() };
        let mut answer = CompleteAnswer::of(step, false);
        let (event, frees_claim) = match call.status {
            Outcome::Succeeded => {
                let seen = self.see(step, &call.result, facts);
                answer.status = StepStatus::Succeeded.as_str();
                (answer.recoverable, answer.missing) = (seen.missing.is_empty(), seen.missing.clone());
                let body = StepSucceeded {
                    missing: seen.missing,
                    result: seen.commitment,
                    result_error: seen.error,
                    step: step.no,
                };
                (StepEvent::Succeeded(body, Values { values: seen.values }), false)
            }
            Outcome::Failed => {
                answer.status = StepStatus::Failed.as_str();
                (StepEvent::Failed(StepFailed { step: step.no }, error), true)
            }
            Outcome::Uncertain => {
                answer.status = StepStatus::Uncertain.as_str();
                (StepEvent::Uncertain(StepUncertain { step: step.no }, error), false)
            }
        };
        self.append_step(step, event, frees_claim, answer)
    }

    fn append_step(&self, step: &Step, event: StepEvent, frees: bool, answer: CompleteAnswer) -> Decision<RunAnswer> {
        let mut decision = self.append(vec![Event::Step(event)], RunAnswer::Complete(answer));
        if let (true, Some(claim), Some((_, streams))) = (frees, step.claim_stream(), decision.records.first_mut()) {
            streams.push(claim);
        }
        decision
    }

    /// A late outcome agrees with the resolution, or is journaled as a dispute.
    fn late_outcome(&self, step: &Step, resolved: Outcome, late: Outcome, facts: &RunFacts) -> Decision<RunAnswer> {
        if resolved == late || late == Outcome::Uncertain {
            return Decision::already(RunAnswer::Complete(CompleteAnswer::of(step, false)));
        }
        let mut answer = CompleteAnswer::of(step, true);
        if step.undo.is_none() {
            (answer.status, answer.recoverable) = (StepStatus::Uncertain.as_str(), false);
        }
        // Where an undo was attempted, the status stays, and so does what became of the claim.
        let lost = step.claim.filter(|_| !step.claim_held && step.undo.is_none());
        let free = |fact: &&ClaimFact| Some(fact.claim) == lost && fact.holder.is_none();
        let taken = facts.claim.as_ref().filter(free);
        let body = StepDisputed { claim: taken.map(|fact| fact.claim), status: late, step: step.no };
        let event = Event::Step(StepEvent::Disputed(body, ()));
        let mut decision = self.append(vec![event], RunAnswer::Complete(answer));
        if let (Some(fact), Some((_, streams))) = (taken, decision.records.first_mut()) {
            streams.push(StreamId::Claim(fact.claim.0));
            decision.expect.push((StreamId::Claim(fact.claim.0), fact.version));
        }
        if step.undo.is_none() {
            // A resolution may give the undo other arguments than somebody was asked about.
            let of_undo = |ask: &Ask| ask.target == Target::Undo && ask.step == step.no;
            decision.records.extend(self.cancel(of_undo, "the outcome of the step is disputed"));
        }
        decision
    }

    /// Is this outcome a retry of the recorded one? The commitment tells, without the result being kept.
    fn says_the_same(&self, step: &Step, (status, result): (Outcome, &ResultPayload), facts: &RunFacts) -> bool {
        match (step.status, status) {
            (StepStatus::Failed, Outcome::Failed) => true,
            (StepStatus::Succeeded, Outcome::Succeeded) => match (step.result, result) {
                (None, ResultPayload::None) => step.kept(&BTreeMap::new()),
                (None, ResultPayload::Omitted(given)) => step.kept(given),
                (Some((run_seq, known)), payload) => self.commit_result(payload, run_seq, facts) == Some(known),
                (None, ResultPayload::Canonical(_) | ResultPayload::Raw { .. }) => false,
            },
            _ => false,
        }
    }

    fn commit_result(&self, payload: &ResultPayload, run_seq: u64, facts: &RunFacts) -> Option<Hash> {
        let k = commit::opening_key(&facts.payload_key, &self.id, run_seq, "result");
        match payload {
            ResultPayload::None | ResultPayload::Omitted(_) => None,
            ResultPayload::Canonical(value) => Some(commit::commit(&k, value)),
            ResultPayload::Raw { bytes, .. } => Some(commit::commit_bytes(&k, bytes)),
        }
    }

    /// What a result gives to the undo, and its commitment.
    fn see(&self, step: &Step, payload: &ResultPayload, facts: &RunFacts) -> Seen {
        let (mut values, mut missing) = (BTreeMap::new(), Vec::new());
        let value = match payload {
            ResultPayload::Canonical(value) => Some(value.value()),
            ResultPayload::None | ResultPayload::Raw { .. } | ResultPayload::Omitted(_) => None,
        };
        for reference in facts.manifest.as_deref().map(Manifest::undo_references).unwrap_or_default() {
            let text = reference.to_string();
            let found = match (reference.root, payload) {
                (Root::Args, _) => {
                    if !step.values.contains_key(&text) {
                        missing.push(text);
                    }
                    continue;
                }
                (Root::Result, ResultPayload::Omitted(given)) => given.get(&text).cloned(),
                (Root::Result, ResultPayload::None | ResultPayload::Raw { .. } | ResultPayload::Canonical(_)) => value
                    .as_ref()
                    .and_then(|value| reference.resolve(&Value::Null, value))
                    .and_then(|found| Canonical::of(found).ok()),
            };
            match found {
                Some(found) => drop(values.insert(text, found)),
                None => missing.push(text),
            }
        }
        // A pinned manifest that can't be read names nothing, and what it would have named is missing.
        if let (None, Some(pin)) = (&facts.manifest, &step.undo_pin) {
            missing.push(format!("the manifest that names the arguments of {}", pin.tool));
        }
        let error = match payload {
            ResultPayload::Raw { error, .. } => Some(error.clone()),
            ResultPayload::None | ResultPayload::Canonical(_) | ResultPayload::Omitted(_) => None,
        };
        Seen { commitment: self.commit_result(payload, self.chain.next_run_seq(), facts), error, values, missing }
    }

    pub(super) fn decide_resolve(
        &self,
        call: &ResolveCall,
        facts: &RunFacts,
    ) -> Result<Decision<RunAnswer>, RunReject> {
        let step = self.known_step(call.step)?;
        if call.status == Outcome::Uncertain {
            return Err(RunReject::Invalid("a resolution says succeeded or failed"));
        }
        match call.target {
            Target::Step => self.resolve_step(step, call, facts),
            Target::Undo => self.resolve_undo(step, call),
        }
    }

    fn resolve_step(
        &self,
        step: &Step,
        call: &ResolveCall,
        facts: &RunFacts,
    ) -> Result<Decision<RunAnswer>, RunReject> {
        let mut answer = CompleteAnswer::of(step, false);
        if step.disputed && step.undo.is_some() {
            return self.note_dispute(step, call, answer);
        }
        if step.resolved == Some(call.status) && self.says_the_same(step, (call.status, &call.result), facts) {
            return Ok(Decision::already(RunAnswer::Complete(answer)));
        }
        if !matches!(step.status, StepStatus::InFlight | StepStatus::Uncertain) {
            let hint = "only a step that is in flight or uncertain can be resolved";
            return Err(RunReject::StepStatus { step: step.no, status: step.word(), hint });
        }
        let failed = call.status == Outcome::Failed;
        let seen = if failed {
            Seen { commitment: None, error: None, values: BTreeMap::new(), missing: Vec::new() }
        } else {
            self.see(step, &call.result, facts)
        };
        answer.status = if failed { StepStatus::Failed.as_str() } else { StepStatus::Succeeded.as_str() };
        (answer.recoverable, answer.missing) = (seen.missing.is_empty(), seen.missing.clone());
        let body = StepResolved {
            missing: seen.missing,
            note: call.note.clone(),
            result: seen.commitment,
            status: call.status,
            step: step.no,
            target: Target::Step,
        };
        Ok(self.append_step(step, StepEvent::Resolved(body, Values { values: seen.values }), failed, answer))
    }

    /// The undo of a disputed step was attempted, so its status stays: the operator says that the dispute was looked at.
    fn note_dispute(
        &self,
        step: &Step,
        call: &ResolveCall,
        answer: CompleteAnswer,
    ) -> Result<Decision<RunAnswer>, RunReject> {
        if step.resolved != Some(call.status) {
            let hint = "its undo was attempted, so its status stays; note the dispute by resolving the step as before";
            return Err(RunReject::StepStatus { step: step.no, status: step.word(), hint });
        }
        let body = StepResolved {
            missing: step.missing.clone(),
            note: call.note.clone(),
            result: None,
            status: call.status,
            step: step.no,
            target: Target::Step,
        };
        Ok(self.append_step(step, StepEvent::Resolved(body, Values::default()), false, answer))
    }

    fn resolve_undo(&self, step: &Step, call: &ResolveCall) -> Result<Decision<RunAnswer>, RunReject> {
        if step.undo.as_ref().is_some_and(|undo| undo.resolved() == Some(call.status)) {
            return Ok(Decision::already(RunAnswer::Complete(CompleteAnswer::of(step, false))));
        }
        if !step.undo.as_ref().is_some_and(|undo| matches!(undo.phase(), Phase::Uncertain)) {
            let hint = "only an undo of unknown outcome (undo_uncertain) can be resolved";
            return Err(RunReject::StepStatus { step: step.no, status: step.word(), hint });
        }
        let body = StepResolved {
            missing: Vec::new(),
            note: call.note.clone(),
            result: None,
            status: call.status,
            step: step.no,
            target: Target::Undo,
        };
        let mut answer = CompleteAnswer::of(step, false);
        let undone = call.status == Outcome::Succeeded;
        answer.status = if undone { "compensated" } else { "compensation_failed" };
        let event = StepEvent::Resolved(body, Values::default());
        let mut decision = self.append_step(step, event, undone, answer);
        if let Some((_, streams)) = decision.records.first_mut() {
            streams.push(StreamId::Undo(self.id.clone(), step.no));
        }
        Ok(decision)
    }

    pub(super) fn decide_seal(&self) -> Result<Decision<RunAnswer>, RunReject> {
        if self.sealed {
            return Ok(Decision::already(RunAnswer::Done));
        }
        if self.status == RunStatus::RollingBack {
            return Err(RunReject::NotActive { run: self.id.clone(), status: self.status.as_str(), what: "seal" });
        }
        if let Some(step) = self.steps.iter().find(|step| step.is_open()) {
            return Err(RunReject::StepOpen { step: step.no });
        }
        // Their leaves are part of what the seal covers, so they must stand before it.
        let ended = self.cancel(|ask| ask.fingerprint.is_some() && ask.target == Target::Step, "the run is sealed");
        if !ended.is_empty() {
            return Ok(Decision { records: ended, ..self.append(Vec::new(), RunAnswer::Again) });
        }
        let body = RunSealed { records: self.chain.frontier.size(), run_root: self.chain.frontier.root() };
        Ok(self.append(vec![RunEvent::Sealed(body, ()).into()], RunAnswer::Done))
    }
}

impl Step {
    /// Were these the values that an omitted result gave?
    fn kept(&self, given: &BTreeMap<String, Canonical>) -> bool {
        let of_result = |name: &&String| name.starts_with("$result.");
        self.values.keys().filter(of_result).all(|name| given.get(name) == self.values.get(name))
            && !self.missing.iter().any(|name| given.contains_key(name))
    }
}

impl CompleteAnswer {
    fn of(step: &Step, disputed: bool) -> Self {
        Self {
            step: step.no,
            status: step.word(),
            recoverable: step.recoverable(),
            missing: step.missing.clone(),
            disputed,
        }
    }
}
