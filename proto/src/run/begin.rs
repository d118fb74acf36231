//! May this call be made? Every finding is reported, in a fixed order. Must not know who asks over which protocol.
use std::collections::BTreeMap;
use std::sync::Arc;

use super::approve::{Approving, cancelled, revoked, rules_of};
use super::{Run, RunAnswer, RunFacts, RunReject, RunStatus, STEPS_MAX, Step, StepStatus};
use crate::access::Access;
use crate::aggregate::Decision;
use crate::canonical::Canonical;
use crate::commit;
use crate::event::v1::{Finding, Mode, RequestKey, StepBegun, StepBlocked, UndoPin, Values};
use crate::event::{Event, StepEvent};
use crate::halt::Halt;
use crate::hash::Hash;
use crate::ids::{Actor, ApprovalId, RunId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::{IdempotencyScope, Manifest, ManifestSet, Reference, Root, Status};
use crate::time::Timestamp;

/// A call that an agent wants to make.
#[derive(Debug, Clone)]
pub struct BeginCall {
    /// Who asks.
    pub actor: Actor,
    /// Which tool.
    pub tool: ToolName,
    /// The agent's words, public by contract.
    pub reason: String,
    /// The full arguments.
    pub args: Canonical,
    /// For retries.
    pub request: Option<RequestKey>,
    /// HMAC of the execution that asks.
    pub attempt: Option<Hash>,
    /// The person behind the actor.
    pub person: Option<String>,
    /// The grant that it means to use.
    pub approval: Option<ApprovalId>,
}

/// What a begin must know of the world.
#[derive(Debug, Clone)]
pub struct BeginFacts {
    /// The manifests in force.
    pub manifests: Arc<ManifestSet>,
    /// Version of the `config` stream: the seq of the `manifests.loaded` in force.
    pub config: Option<Seq>,
    /// Who may approve.
    pub access: Arc<Access>,
    /// Version of the `access` stream.
    pub access_version: Option<Seq>,
    /// What may not begin.
    pub halt: Arc<Halt>,
    /// Version of the `halt` stream.
    pub halt_version: Option<Seq>,
    /// The claim that the call would take, or why its key can't be rendered.
    pub claim: Option<Result<ClaimFact, String>>,
    /// An id for the approval request that may have to be opened.
    pub approval: ApprovalId,
}

/// A claim as it stands.
#[derive(Debug, Clone)]
pub struct ClaimFact {
    /// Its stream.
    pub claim: Hash,
    /// Version of that stream.
    pub version: Option<Seq>,
    /// The step that holds it.
    pub holder: Option<(RunId, StepNo)>,
}

/// Allow or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionWord {
    /// The tool may run, once, by the attempt that asked.
    Allow,
    /// The tool must not run.
    Block,
}

/// The decision on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginAnswer {
    /// Allow or block.
    pub decision: DecisionWord,
    /// Number of the step.
    pub step: StepNo,
    /// Why it is blocked.
    pub findings: Vec<Finding>,
    /// The request that must be granted first.
    pub approval: Option<ApprovalId>,
    /// What the agent should know all the same.
    pub notes: Vec<String>,
    /// References into the result that the undo needs.
    pub result_paths: Vec<String>,
    /// A stored decision, given again.
    pub replayed: bool,
}

/// The claim that a call takes: HMAC, under the ledger's key, of scope, tool and rendered key. None where the manifest
/// declares no idempotency; an error where the key can't be rendered.
pub fn claim_of(
    manifest: &Manifest,
    args: &Canonical,
    (run, actor): (&RunId, &Actor),
    ledger_key: &[u8; 32],
) -> Option<Result<Hash, String>> {
    let idempotency = manifest.idempotency.as_ref()?;
    let rendered = match idempotency.key.render(&args.value()) {
        Ok(rendered) => rendered,
        Err(error) => return Some(Err(error.to_string())),
    };
    let (scope, owner) = match idempotency.scope {
        IdempotencyScope::Run => ("run", run.as_str()),
        IdempotencyScope::Actor => ("actor", actor.id.as_str()),
        IdempotencyScope::Global => ("global", ""),
    };
    let parts = [scope, owner, manifest.tool.as_str(), rendered.as_str()];
    Some(Ok(commit::keyed(ledger_key, "reversi.dev/claim/v1", &parts)))
}

pub(super) fn finding(code: &str, text: String) -> Finding {
    Finding { code: code.to_owned(), text }
}

/// All that speaks against a call, and what is said beside it.
#[derive(Default)]
struct Findings {
    /// Block in enforce mode.
    violations: Vec<Finding>,
    /// Block in every mode.
    absolute: Vec<Finding>,
    /// The one violation that a person can lift.
    approval: Option<Finding>,
    /// Where it stands with that.
    approving: Option<Approving>,
    /// Never block.
    notes: Vec<String>,
}

impl Run {
    pub(super) fn decide_begin(
        &self,
        now: Timestamp,
        call: &BeginCall,
        facts: &RunFacts,
    ) -> Result<Decision<RunAnswer>, RunReject> {
        if let Some(replay) = self.replayed_begin(call, facts.begin.as_ref())? {
            return Ok(Decision::already(RunAnswer::Begin(replay)));
        }
        if self.status != RunStatus::Active {
            return Err(RunReject::NotActive { run: self.id.clone(), status: self.status.as_str(), what: "new call" });
        }
        if self.steps.len() >= STEPS_MAX {
            return Err(RunReject::TooManySteps { run: self.id.clone() });
        }
        let Some(begin) = &facts.begin else { return Err(RunReject::Invalid("begin needs its facts")) };
        let manifest = begin.manifests.get(&call.tool);
        let findings = self.check(now, call, manifest.map(Arc::as_ref), (facts, begin));
        let blocked = !findings.absolute.is_empty()
            || self.mode == Mode::Enforce && !(findings.violations.is_empty() && findings.approval.is_none());
        let mut decision = if blocked {
            self.block(now, call, manifest.map(Arc::as_ref), findings, (facts, begin))
        } else {
            self.allow(call, manifest.map(Arc::as_ref), findings, (facts, begin))
        };
        decision.expect.extend([
            (StreamId::Halt, begin.halt_version),
            (StreamId::Config, begin.config),
            (StreamId::Access, begin.access_version),
        ]);
        if let Some(Ok(claim)) = &begin.claim {
            decision.expect.push((StreamId::Claim(claim.claim.0), claim.version));
        }
        Ok(decision)
    }

    /// A stored allow is given again to the attempt that got it, and to no other; a block is decided anew each time.
    fn replayed_begin(&self, call: &BeginCall, begin: Option<&BeginFacts>) -> Result<Option<BeginAnswer>, RunReject> {
        let Some(request) = call.request else { return Ok(None) };
        let Some(step) = self.by_request.get(&request.key).and_then(|no| self.step(*no)) else { return Ok(None) };
        if step.request != Some(request) {
            return Err(RunReject::KeyReused);
        }
        let same_attempt = call.attempt.is_some() && call.attempt == step.attempt;
        let (decision, findings) = if same_attempt && step.status == StepStatus::InFlight {
            (DecisionWord::Allow, Vec::new())
        } else {
            let text = format!("step {} of this request was begun already and is {}", step.no, step.word());
            (DecisionWord::Block, vec![finding("step.already_begun", text)])
        };
        // What the manifest adds to the answer can be told only while the pinned one is in force.
        let in_force = begin.and_then(|begin| begin.manifests.get(&call.tool)).map(Arc::as_ref);
        let pinned = in_force.filter(|manifest| Some(manifest.checksum()) == step.manifest);
        let mut notes: Vec<String> = pinned.and_then(deprecation).into_iter().collect();
        notes.extend(self.violation_notes(&step.findings));
        Ok(Some(BeginAnswer {
            decision,
            step: step.no,
            findings,
            approval: step.approval.clone(),
            notes,
            result_paths: pinned.map(result_paths).unwrap_or_default(),
            replayed: true,
        }))
    }

    fn violation_notes(&self, violations: &[Finding]) -> Vec<String> {
        match self.mode {
            Mode::Advise => violations.iter().map(|finding| finding.text.clone()).collect(),
            Mode::Enforce | Mode::Observe => Vec::new(),
        }
    }

    /// Halt, manifest, lifecycle, scope, requires, duplicate, approval: in this order, all of them.
    fn check(
        &self,
        now: Timestamp,
        call: &BeginCall,
        manifest: Option<&Manifest>,
        (facts, begin): (&RunFacts, &BeginFacts),
    ) -> Findings {
        let mut found = Findings::default();
        let tool = &call.tool;
        if let Some(halt) = begin.halt.of(&self.id, &call.actor.id, tool) {
            let text = format!("calls are halted (scope {}): {}", halt.scope, halt.reason);
            found.absolute.push(finding("halt.active", text));
        }
        let Some(manifest) = manifest else {
            found
                .violations
                .push(finding("manifest.missing", format!("no manifest for {tool}: declare the tool first")));
            return found;
        };
        match manifest.status {
            Status::Draft => {
                found.absolute.push(finding("manifest.draft", format!("the manifest of {tool} is a draft")));
            }
            Status::Deprecated | Status::Approved => found.notes.extend(deprecation(manifest)),
        }
        let permission = &manifest.permission;
        if !self.permissions.contains(permission) {
            let text = format!("{tool} needs the permission {permission}, which is not in the run's scope");
            found.violations.push(finding("scope.missing_permission", text));
        }
        for required in &manifest.requires {
            let done =
                |step: &Step| step.tool == *required && step.status == StepStatus::Succeeded && step.undo.is_none();
            if !self.steps.iter().any(done) {
                let text = format!("{tool} requires {required} to have succeeded earlier in this run");
                found.violations.push(finding("requires.missing", text));
            }
        }
        match &begin.claim {
            None | Some(Ok(ClaimFact { holder: None, .. })) => {}
            Some(Ok(ClaimFact { holder: Some((run, step)), .. })) => {
                let place = if *run == self.id { format!("step {step}") } else { "another run".to_owned() };
                let text = format!("duplicate of a call that still stands ({place}): same tool, same idempotency key");
                found.violations.push(finding("duplicate.call", text));
            }
            Some(Err(why)) => found.violations.push(finding("duplicate.key_unusable", why.clone())),
        }
        let approving = self.approving(now, call, manifest, (facts, begin));
        found.approval = match &approving {
            Approving::NotNeeded | Approving::Granted(_) => None,
            Approving::Pending(_) | Approving::Ask { .. } => {
                let text = format!("{tool} needs a person's approval for exactly these arguments");
                Some(finding("approval.required", text))
            }
            Approving::Refused(why) => Some(why.clone()),
        };
        found.approving = Some(approving);
        found
    }

    fn block(
        &self,
        now: Timestamp,
        call: &BeginCall,
        manifest: Option<&Manifest>,
        found: Findings,
        (facts, begin): (&RunFacts, &BeginFacts),
    ) -> Decision<RunAnswer> {
        let step = self.next_step();
        // A person can't lift anything else, so nobody is asked while something else stands against the call.
        let only_approval = found.violations.is_empty() && found.absolute.is_empty();
        let approving = found.approving.filter(|_| only_approval);
        let mut records: Vec<(Event, Vec<StreamId>)> = Vec::new();
        let approval = match (approving, manifest) {
            (Some(Approving::Pending(id)), _) => Some(id),
            (Some(Approving::Ask { stale }), Some(manifest)) => {
                if let Some(id) = stale {
                    let why = "the votes for it do not satisfy its rules any more, or its time to be used is over";
                    records.push((revoked(&id, why), self.with_approval(&id)));
                }
                let run_seq = self.chain.next_run_seq() + records.len() as u64;
                let rules = rules_of(manifest).unwrap_or_default();
                let event = self.request_approval(now, call, (manifest, rules), (step, run_seq), (facts, begin));
                records.push((event, self.with_approval(&begin.approval)));
                Some(begin.approval.clone())
            }
            (
                Some(Approving::Ask { .. } | Approving::NotNeeded | Approving::Granted(_) | Approving::Refused(_))
                | None,
                _,
            ) => None,
        };
        let findings: Vec<Finding> = found.absolute.into_iter().chain(found.violations).chain(found.approval).collect();
        let run_seq = self.chain.next_run_seq() + records.len() as u64;
        let body = StepBlocked {
            approval: approval.clone(),
            args: self.commit_args(&call.args, run_seq, facts),
            findings: findings.clone(),
            reason: call.reason.clone(),
            step,
            tool: call.tool.clone(),
        };
        records.push((StepEvent::Blocked(body, ()).into(), vec![self.stream()]));
        let answer = BeginAnswer {
            decision: DecisionWord::Block,
            step,
            findings,
            approval,
            notes: found.notes,
            result_paths: Vec::new(),
            replayed: false,
        };
        Decision { records, ..self.append(Vec::new(), RunAnswer::Begin(answer)) }
    }

    fn allow(
        &self,
        call: &BeginCall,
        manifest: Option<&Manifest>,
        found: Findings,
        (facts, begin): (&RunFacts, &BeginFacts),
    ) -> Decision<RunAnswer> {
        let granted = match found.approving {
            Some(Approving::Granted(id)) => Some(id),
            Some(Approving::NotNeeded | Approving::Pending(_) | Approving::Ask { .. } | Approving::Refused(_))
            | None => None,
        };
        let violations: Vec<Finding> = found.violations.into_iter().chain(found.approval).collect();
        // A duplicate that observe or advise lets through takes no claim: the first call keeps it.
        let claim = match &begin.claim {
            Some(Ok(ClaimFact { claim, holder: None, .. })) => Some(*claim),
            Some(Ok(ClaimFact { holder: Some(_), .. }) | Err(_)) | None => None,
        };
        let step = self.next_step();
        let mut records: Vec<(Event, Vec<StreamId>)> = Vec::new();
        if let (Some(used), Some(manifest)) = (&granted, manifest)
            && let Some(id) = self.left_over(self.fingerprint(call, manifest, facts), used)
        {
            records.push((cancelled(&id, "another grant was used for the same call"), self.with_approval(&id)));
        }
        let body = StepBegun {
            approval: granted.clone(),
            args: self.commit_args(&call.args, self.chain.next_run_seq() + records.len() as u64, facts),
            attempt: call.attempt,
            claim,
            config: begin.config.unwrap_or(0),
            effect: manifest.map(|manifest| manifest.effect),
            manifest: manifest.map(Manifest::checksum),
            reason: call.reason.clone(),
            request: call.request,
            requires: manifest.map(|manifest| manifest.requires.clone()).unwrap_or_default(),
            step,
            timeout_ms: manifest.and_then(|manifest| manifest.timeout_ms),
            tool: call.tool.clone(),
            undo: manifest.and_then(pin),
            violations: violations.clone(),
        };
        let mut notes = found.notes;
        notes.extend(self.violation_notes(&violations));
        let answer = BeginAnswer {
            decision: DecisionWord::Allow,
            step,
            findings: Vec::new(),
            approval: granted.clone(),
            notes,
            result_paths: manifest.map(result_paths).unwrap_or_default(),
            replayed: false,
        };
        let values = Values { values: manifest.map(|manifest| captured(manifest, &call.args)).unwrap_or_default() };
        let others = granted.map(StreamId::Approval).into_iter().chain(claim.map(|claim| StreamId::Claim(claim.0)));
        let streams = std::iter::once(self.stream()).chain(others).collect();
        records.push((StepEvent::Begun(body, values).into(), streams));
        Decision { records, ..self.append(Vec::new(), RunAnswer::Begin(answer)) }
    }
}

fn deprecation(manifest: &Manifest) -> Option<String> {
    match (manifest.status, &manifest.replaced_by) {
        (Status::Draft | Status::Approved, _) => None,
        (Status::Deprecated, Some(other)) => Some(format!("manifest deprecated; use {other}")),
        (Status::Deprecated, None) => Some("manifest deprecated".to_owned()),
    }
}

/// References into the result that the undo needs.
fn result_paths(manifest: &Manifest) -> Vec<String> {
    let references = manifest.undo_references().into_iter();
    references.filter(|reference| reference.root == Root::Result).map(ToString::to_string).collect()
}

/// What the undo needs of the arguments.
fn captured(manifest: &Manifest, args: &Canonical) -> BTreeMap<String, Canonical> {
    let args = args.value();
    let of_args = manifest.undo_references().into_iter().filter(|reference| reference.root == Root::Args);
    let value = |reference: &Reference| Canonical::of(reference.resolve(&args, &serde_json::Value::Null)?).ok();
    of_args.filter_map(|reference| Some((reference.to_string(), value(reference)?))).collect()
}

fn pin(manifest: &Manifest) -> Option<UndoPin> {
    let compensation = manifest.compensation.as_ref()?;
    Some(UndoPin {
        approval: compensation.requires_approval,
        kind: compensation.kind,
        tool: compensation.tool.clone(),
        verify: compensation.verification.as_ref().map(|verification| verification.tool.clone()),
    })
}
