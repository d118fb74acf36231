//! How a call ended: outcomes, resolutions, and the seal. Must not know why it was allowed.
use std::collections::BTreeMap;

use serde_json::Value;

use super::{Run, RunAnswer, RunFacts, RunReject, RunStatus, Step, StepStatus};
use crate::aggregate::Decision;
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
        if let Some(resolved) = step.resolved {
            return Ok(self.late_outcome(step, resolved, call.status));
        }
        let hint = match step.status {
            StepStatus::Blocked => "the call was refused, so it has no outcome",
            StepStatus::Uncertain => "an operator settles it with resolve",
            StepStatus::Succeeded | StepStatus::Failed | StepStatus::InFlight => {
                if self.says_the_same(step, call, facts) {
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
    fn late_outcome(&self, step: &Step, resolved: Outcome, late: Outcome) -> Decision<RunAnswer> {
        if resolved == late || late == Outcome::Uncertain {
            return Decision::already(RunAnswer::Complete(CompleteAnswer::of(step, false)));
        }
        let answer = RunAnswer::Complete(CompleteAnswer::of(step, true));
        if step.disputed {
            return Decision::already(answer);
        }
        self.append(vec![Event::Step(StepEvent::Disputed(StepDisputed { status: late, step: step.no }, ()))], answer)
    }

    /// Is this completion a retry of the recorded one? The commitment tells, without the result being kept.
    fn says_the_same(&self, step: &Step, call: &CompleteCall, facts: &RunFacts) -> bool {
        match (step.status, call.status) {
            (StepStatus::Failed, Outcome::Failed) => true,
            (StepStatus::Succeeded, Outcome::Succeeded) => match (step.result, &call.result) {
                (None, ResultPayload::None | ResultPayload::Omitted(_)) => true,
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
        if step.resolved == Some(call.status) {
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

    fn resolve_undo(&self, step: &Step, call: &ResolveCall) -> Result<Decision<RunAnswer>, RunReject> {
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
        let open = |step: &&Step| matches!(step.status, StepStatus::InFlight | StepStatus::Uncertain);
        if let (RunStatus::Active, Some(step)) = (self.status, self.steps.iter().find(open)) {
            return Err(RunReject::StepOpen { step: step.no });
        }
        let body = RunSealed { records: self.chain.frontier.size(), run_root: self.chain.frontier.root() };
        Ok(self.append(vec![RunEvent::Sealed(body, ()).into()], RunAnswer::Done))
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
