//! May this call be made? Every finding is reported, in a fixed order. Must not know who asks over which protocol.
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Run, RunAnswer, RunFacts, RunReject, RunStatus, STEPS_MAX, Step, StepStatus};
use crate::aggregate::Decision;
use crate::canonical::Canonical;
use crate::commit;
use crate::event::v1::{
    ApprovalRequested, Finding, FullArguments, Mode, RequestKey, StepBegun, StepBlocked, UndoPin, Values,
};
use crate::event::{ApprovalEvent, Event, StepEvent};
use crate::hash::Hash;
use crate::ids::{Actor, ApprovalId, RunId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::{Approval, ApprovalRules, IdempotencyScope, Manifest, ManifestSet, Reference, Root, Status};
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
}

/// What a begin must know of the world.
#[derive(Debug, Clone)]
pub struct BeginFacts {
    /// The manifests in force.
    pub manifests: Arc<ManifestSet>,
    /// Version of the `config` stream: the seq of the `manifests.loaded` in force.
    pub config: Option<Seq>,
    /// Version of the `access` stream.
    pub access: Option<Seq>,
    /// Version of the `halt` stream.
    pub halt: Option<Seq>,
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

fn finding(code: &str, text: String) -> Finding {
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
        let findings = self.check(call, manifest.map(Arc::as_ref), begin);
        let blocked = !findings.absolute.is_empty()
            || self.mode == Mode::Enforce && !(findings.violations.is_empty() && findings.approval.is_none());
        let mut decision = if blocked {
            self.block(call, manifest.map(Arc::as_ref), findings, facts, begin)
        } else {
            self.allow(call, manifest.map(Arc::as_ref), findings, facts, begin)
        };
        let _ = now;
        decision.expect.extend([
            (StreamId::Halt, begin.halt),
            (StreamId::Config, begin.config),
            (StreamId::Access, begin.access),
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

    /// Manifest, lifecycle, scope, requires, duplicate, approval: in this order, all of them.
    fn check(&self, call: &BeginCall, manifest: Option<&Manifest>, begin: &BeginFacts) -> Findings {
        let mut found = Findings::default();
        let tool = &call.tool;
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
        if manifest.approval != Approval::Never {
            let text = format!("{tool} needs a person's approval for exactly these arguments");
            found.approval = Some(finding("approval.required", text));
        }
        found
    }

    fn block(
        &self,
        call: &BeginCall,
        manifest: Option<&Manifest>,
        found: Findings,
        facts: &RunFacts,
        begin: &BeginFacts,
    ) -> Decision<RunAnswer> {
        let step = self.next_step();
        let only_approval = found.violations.is_empty() && found.absolute.is_empty();
        let mut events = Vec::new();
        let mut approval = None;
        if let (true, Some(manifest)) = (only_approval && found.approval.is_some(), manifest) {
            let fingerprint = self.fingerprint(call, manifest, facts);
            let known = self.approvals.get(&fingerprint).cloned();
            let id = known.clone().unwrap_or_else(|| begin.approval.clone());
            if known.is_none() {
                events.push(self.request_approval(call, manifest, (step, fingerprint, id.clone()), facts));
            }
            approval = Some(id);
        }
        let findings: Vec<Finding> = found.absolute.into_iter().chain(found.violations).chain(found.approval).collect();
        let run_seq = self.chain.next_run_seq() + events.len() as u64;
        let body = StepBlocked {
            approval: approval.clone(),
            args: self.commit_args(call, run_seq, facts),
            findings: findings.clone(),
            reason: call.reason.clone(),
            step,
            tool: call.tool.clone(),
        };
        let requested = events.len();
        events.push(StepEvent::Blocked(body, ()).into());
        let answer = BeginAnswer {
            decision: DecisionWord::Block,
            step,
            findings,
            approval: approval.clone(),
            notes: found.notes,
            result_paths: Vec::new(),
            replayed: false,
        };
        let mut decision = self.append(events, RunAnswer::Begin(answer));
        if let (1, Some(id), Some((_, streams))) = (requested, approval, decision.records.first_mut()) {
            streams.push(StreamId::Approval(id));
        }
        decision
    }

    fn fingerprint(&self, call: &BeginCall, manifest: &Manifest, facts: &RunFacts) -> Hash {
        let checksum = manifest.checksum().to_string();
        let parts = [call.tool.as_str(), &checksum, call.args.as_str(), call.actor.id.as_str(), self.id.as_str()];
        commit::keyed(&facts.payload_key, "reversi.dev/approval/v1", &parts)
    }

    fn request_approval(
        &self,
        call: &BeginCall,
        manifest: &Manifest,
        (step, fingerprint, approval): (StepNo, Hash, ApprovalId),
        facts: &RunFacts,
    ) -> Event {
        let rules = match &manifest.approval {
            Approval::Always(rules) => rules.clone(),
            Approval::Never => ApprovalRules::default(),
        };
        let body = ApprovalRequested {
            approval,
            args: self.commit_args(call, self.chain.next_run_seq(), facts),
            fingerprint,
            quorum: rules.quorum,
            roles: rules.roles,
            step,
            timeout_ms: rules.timeout_ms,
            tool: call.tool.clone(),
        };
        ApprovalEvent::Requested(body, FullArguments { args: Some(call.args.clone()) }).into()
    }

    fn commit_args(&self, call: &BeginCall, run_seq: u64, facts: &RunFacts) -> Hash {
        commit::commit(&commit::opening_key(&facts.payload_key, &self.id, run_seq, "args"), &call.args)
    }

    fn allow(
        &self,
        call: &BeginCall,
        manifest: Option<&Manifest>,
        found: Findings,
        facts: &RunFacts,
        begin: &BeginFacts,
    ) -> Decision<RunAnswer> {
        let violations: Vec<Finding> = found.violations.into_iter().chain(found.approval).collect();
        // A duplicate that observe or advise lets through takes no claim: the first call keeps it.
        let claim = match &begin.claim {
            Some(Ok(ClaimFact { claim, holder: None, .. })) => Some(*claim),
            Some(Ok(ClaimFact { holder: Some(_), .. }) | Err(_)) | None => None,
        };
        let step = self.next_step();
        let body = StepBegun {
            approval: None,
            args: self.commit_args(call, self.chain.next_run_seq(), facts),
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
            approval: None,
            notes,
            result_paths: manifest.map(result_paths).unwrap_or_default(),
            replayed: false,
        };
        let values = Values { values: manifest.map(|manifest| captured(manifest, &call.args)).unwrap_or_default() };
        let mut decision = self.append(vec![StepEvent::Begun(body, values).into()], RunAnswer::Begin(answer));
        if let (Some(claim), Some((_, streams))) = (claim, decision.records.first_mut()) {
            streams.push(StreamId::Claim(claim.0));
        }
        decision
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
