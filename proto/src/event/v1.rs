//! Events of version 1, frozen: a field is never changed, only a new version is added. The public half of each is the
//! `body` of its ledger line; what may not stand there is in the `...Private` half, which is sealed.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::canonical::Canonical;
use crate::halt::HaltScope;
use crate::hash::Hash;
use crate::ids::{ActorId, ActorKind, ApprovalId, DelegationId, KeyId, RollbackId, Seq, StepNo, StreamId, ToolName};
use crate::manifest::{CompensationKind, Effect};
use crate::time::Timestamp;

macro_rules! body {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    )*};
}

macro_rules! private {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    )*};
}

/// How violations are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Violations block.
    #[default]
    Enforce,
    /// Violations are journaled, the call runs.
    Observe,
    /// Like observe, and the violations go back to the agent as notes.
    Advise,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Its own runs.
    Agent,
    /// Votes.
    Approver,
    /// Reads and exports everything.
    Auditor,
    /// Auditor, and plans, rolls back, resolves.
    Operator,
    /// Operator, and keys, halt, registry.
    Admin,
    /// Grants one request in an emergency.
    Breakglass,
}

impl Role {
    /// The word that stands on the wire, and by which a manifest can list it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Breakglass => "breakglass",
        }
    }
}

/// One reason against a call (or a note about it).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Stable code, like `scope.missing_permission`.
    pub code: String,
    /// A sentence; it holds no argument value.
    pub text: String,
}

/// A retried request's identity: HMACs, under the ledger's key, of its Idempotency-Key (scoped to actor, run and
/// endpoint) and of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKey {
    /// HMAC of the body: the same key with another body is refused.
    pub body: Hash,
    /// HMAC of the key.
    pub key: Hash,
}

/// How a step is undone, as pinned when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoPin {
    /// Whether a human must approve running it.
    pub approval: bool,
    /// Amends or exact inverse.
    pub kind: CompensationKind,
    /// The tool that undoes.
    pub tool: ToolName,
    /// The tool that reads back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verify: Option<ToolName>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference.
fn is_zero(seq: &Seq) -> bool {
    *seq == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference.
fn is_step(target: &Target) -> bool {
    *target == Target::Step
}

fn step_target() -> Target {
    Target::Step
}

/// What an outcome or a resolution says about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It happened.
    Succeeded,
    /// KNOWN to have had no effect.
    Failed,
    /// Nobody knows.
    Uncertain,
}

/// What a resolution settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The step itself.
    Step,
    /// Its undo.
    Undo,
}

/// Who runs inverses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// The daemon, through an upstream.
    #[default]
    Daemon,
    /// A worker that leases the calls.
    Worker,
}

body! {
    /// seq 0 of every ledger.
    LedgerOpened {
        /// Name and version of the software.
        software: String,
        /// The first key that signs checkpoints, as a C2SP vkey.
        verifier_key: String,
    }
    /// A daemon came up.
    DaemonStarted {
        /// Whether the last stop was clean.
        clean: bool,
        /// Name and version of the software.
        software: String,
    }
    /// A daemon stopped on request.
    DaemonStopped {}
    /// The wall clock moved against the boot clock; the daemon did not follow.
    ClockStepped {
        /// By how many milliseconds, negative when it went back.
        by_ms: i64,
    }
    /// An entity that kept failing is left alone until an operator releases it.
    EntityQuarantined {
        /// Which.
        entity: StreamId,
        /// A code.
        reason: String,
    }
    /// It may run again.
    EntityReleased {
        /// Which.
        entity: StreamId,
    }
    /// An access key exists; its SHA-256 is in the private half.
    KeyCreated {
        /// Whose key it is.
        actor: ActorId,
        /// May start runs in observe or advise mode.
        allow_observe: bool,
        /// Not valid from then on.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        expires_at: Option<Timestamp>,
        /// Groups that the person is in.
        groups: Vec<String>,
        /// Public half of the key.
        key: KeyId,
        /// Agent, human or system.
        kind: ActorKind,
        /// The person behind it; votes count by person.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        person: Option<String>,
        /// What it may do.
        roles: Vec<Role>,
    }
    /// It is void at once.
    KeyRevoked {
        /// Which.
        key: KeyId,
    }
    /// The manifests in force from here on; their texts are in the private half.
    ManifestsLoaded {
        /// How many.
        count: u32,
        /// Checksum of the set.
        set: Hash,
    }
    /// A run exists.
    RunStarted {
        /// How violations are treated.
        mode: Mode,
        /// The scope.
        permissions: Vec<String>,
        /// The person behind the actor.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        person: Option<String>,
        /// Public by contract.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
        /// For retries.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        request: Option<RequestKey>,
    }
    /// The run's chain ends here.
    RunSealed {
        /// How many records of the run stand before this one.
        records: u64,
        /// RFC 6962 root over their leaves.
        run_root: Hash,
    }
    /// A call was let through: its intent is durable.
    StepBegun {
        /// The request it consumed.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        approval: Option<ApprovalId>,
        /// Commitment.
        args: Hash,
        /// HMAC of the execution that may run the tool.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        attempt: Option<Hash>,
        /// The claim that it holds.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        claim: Option<Hash>,
        /// seq of the `manifests.loaded` that pins tool, compensation and verification.
        config: Seq,
        /// None where an unknown tool was let through by observe or advise.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        effect: Option<Effect>,
        /// Checksum of the tool's manifest.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        manifest: Option<Hash>,
        /// The agent's words, public by contract.
        reason: String,
        /// For retries.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        request: Option<RequestKey>,
        /// Tools that this one needed earlier in the run: they order the rollback.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        requires: Vec<ToolName>,
        /// Number in the run.
        step: StepNo,
        /// How long it may stay open, in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        timeout_ms: Option<u64>,
        /// What was called.
        tool: ToolName,
        /// How it will be undone.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        undo: Option<UndoPin>,
        /// What would have blocked it in enforce mode.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        violations: Vec<Finding>,
    }
    /// A call was refused; the tool never ran.
    StepBlocked {
        /// The open request, where an approval is what is missing.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        approval: Option<ApprovalId>,
        /// Commitment.
        args: Hash,
        /// Why, all of it.
        findings: Vec<Finding>,
        /// The agent's words.
        reason: String,
        /// Number in the run.
        step: StepNo,
        /// What was called.
        tool: ToolName,
    }
    /// The tool answered.
    StepSucceeded {
        /// References that the undo needs and that were not found.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        missing: Vec<String>,
        /// Commitment to the result, where one was given.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        result: Option<Hash>,
        /// Why the result has no canonical form.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        result_error: Option<String>,
        /// Which.
        step: StepNo,
    }
    /// KNOWN to have had no effect.
    StepFailed {
        /// Which.
        step: StepNo,
    }
    /// Nobody knows.
    StepUncertain {
        /// Which.
        step: StepNo,
    }
    /// An operator settled it.
    StepResolved {
        /// References that the undo needs and that were not found.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        missing: Vec<String>,
        /// The operator's words.
        note: String,
        /// Commitment to the result, where one was given.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        result: Option<Hash>,
        /// Succeeded or failed.
        status: Outcome,
        /// Which.
        step: StepNo,
        /// The step or its undo.
        target: Target,
    }
    /// A late outcome contradicts a resolution.
    StepDisputed {
        /// The claim that it takes back: the resolution had freed it, and nobody holds it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        claim: Option<Hash>,
        /// What the late outcome says.
        status: Outcome,
        /// Which.
        step: StepNo,
    }
    /// Somebody must say yes first.
    ApprovalRequested {
        /// The request.
        approval: ApprovalId,
        /// Commitment.
        args: Hash,
        /// seq of the `manifests.loaded` that the request was made under.
        #[serde(skip_serializing_if = "is_zero", default)]
        config: Seq,
        /// Nobody has answered by then: it escalates or expires.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        deadline: Option<Timestamp>,
        /// Whose word counts too from each further level on.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        escalate_to: Vec<String>,
        /// Binds tool, manifest, arguments, actor and run.
        fingerprint: Hash,
        /// Checksum of the manifest that it is bound to.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        manifest: Option<Hash>,
        /// How many persons.
        quorum: u32,
        /// The asker's words, public by contract.
        #[serde(skip_serializing_if = "String::is_empty", default)]
        reason: String,
        /// The person behind the asker, whose own vote does not count.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        requester: Option<String>,
        /// Who may.
        roles: Vec<String>,
        /// Number of the blocked step, or of the step to be undone.
        step: StepNo,
        /// A call or an undo.
        #[serde(skip_serializing_if = "is_step", default = "step_target")]
        target: Target,
        /// Milliseconds until it expires or escalates.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        timeout_ms: Option<u64>,
        /// What would be called.
        tool: ToolName,
    }
    /// An operator said yes to the next call of a tool, whatever its arguments.
    ApprovalPreApproved {
        /// The grant.
        approval: ApprovalId,
        /// By which key.
        key: KeyId,
        /// The operator's words.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        note: Option<String>,
        /// Whose vote it is.
        person: String,
        /// The tool that may be called once, or be the undo of one step.
        tool: ToolName,
        /// Void from then on.
        use_by: Timestamp,
    }
    /// A person said yes.
    ApprovalVoted {
        /// Which.
        approval: ApprovalId,
        /// By which key.
        key: KeyId,
        /// The voter's words.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        note: Option<String>,
        /// In whose place, by a delegation.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        on_behalf_of: Option<String>,
        /// Who.
        person: String,
    }
    /// Enough persons did: the same call may be made once.
    ApprovalGranted {
        /// Which.
        approval: ApprovalId,
        /// Void from then on.
        use_by: Timestamp,
    }
    /// A person said no.
    ApprovalDenied {
        /// Which.
        approval: ApprovalId,
        /// By which key.
        key: KeyId,
        /// The voter's words.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        note: Option<String>,
        /// Who.
        person: String,
    }
    /// A person took a yes back.
    ApprovalWithdrawn {
        /// Which.
        approval: ApprovalId,
        /// Who.
        person: String,
    }
    /// Nobody answered: more people may.
    ApprovalEscalated {
        /// Which.
        approval: ApprovalId,
        /// The new deadline.
        deadline: Timestamp,
        /// How many levels it has climbed.
        level: u32,
    }
    /// Nobody answered in time, or nobody used the grant in time.
    ApprovalExpired {
        /// Which.
        approval: ApprovalId,
    }
    /// The request or grant was taken away.
    ApprovalRevoked {
        /// Which.
        approval: ApprovalId,
        /// Why.
        note: String,
    }
    /// What it was asked for can't happen any more.
    ApprovalCancelled {
        /// Which.
        approval: ApprovalId,
        /// Why.
        note: String,
    }
    /// In an emergency one person granted it in place of the quorum.
    ApprovalGlassBroken {
        /// Which.
        approval: ApprovalId,
        /// By which key.
        key: KeyId,
        /// Who.
        person: String,
        /// Why, at some length.
        reason: String,
        /// Another person owes a review by then.
        review_by: Timestamp,
        /// The grant is void from then on.
        use_by: Timestamp,
    }
    /// Another person looked at what was done in the emergency.
    ApprovalReviewed {
        /// Which.
        approval: ApprovalId,
        /// By which key.
        key: KeyId,
        /// What was found.
        note: String,
        /// Who.
        person: String,
    }
    /// Nobody did in time: until somebody does, whoever broke the glass can't do it again.
    ApprovalReviewOverdue {
        /// Which.
        approval: ApprovalId,
    }
    /// Persons that share a group; it replaces a group of that name.
    GroupSet {
        /// Its name, as manifests list it under `roles`.
        group: String,
        /// Its persons.
        members: Vec<String>,
    }
    /// A group is gone.
    GroupDeleted {
        /// Which.
        group: String,
    }
    /// A person lets another one vote in their place for a while.
    Delegated {
        /// Its id.
        delegation: DelegationId,
        /// Until then.
        end: Timestamp,
        /// Who lends.
        from: String,
        /// Which roles or groups.
        roles: Vec<String>,
        /// From then on.
        start: Timestamp,
        /// Who may vote.
        to: String,
    }
    /// A delegation is over before its time.
    DelegationEnded {
        /// Which.
        delegation: DelegationId,
    }
    /// The kill switch: nothing in this scope may begin.
    Halted {
        /// Why; blocked agents are told.
        reason: String,
        /// What is stopped.
        scope: HaltScope,
    }
    /// It may again.
    Resumed {
        /// Why.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
        /// What may go on.
        scope: HaltScope,
    }
    /// An operator wants the run undone.
    RollbackStarted {
        /// Who runs the inverses.
        executor: Executor,
        /// The person behind whoever started it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        person: Option<String>,
        /// For retries.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        request: Option<RequestKey>,
        /// This rollback.
        rollback: RollbackId,
        /// Only these, where a selection was made.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        steps: Option<Vec<StepNo>>,
        /// Which upstream serves which undo tool: steps of one upstream are undone in order.
        upstreams: BTreeMap<ToolName, String>,
    }
    /// Nothing is left that can be done without a person.
    RollbackFinished {
        /// Nothing was left undone.
        complete: bool,
        /// Which.
        rollback: RollbackId,
        /// Every declared read-back matched.
        verified: bool,
    }
    /// Intent: this inverse is about to be called.
    UndoAttempted {
        /// The grant that it consumed.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        approval: Option<ApprovalId>,
        /// Commitment to the undo's arguments.
        args: Hash,
        /// From 1, over all rollbacks of the step.
        attempt: u32,
        /// Who calls.
        executor: Executor,
        /// The call is over by then at the latest.
        over_by: Timestamp,
        /// Which rollback asked.
        rollback: RollbackId,
        /// Whose undo.
        step: StepNo,
        /// The inverse.
        tool: ToolName,
    }
    /// The inverse answered with success.
    UndoSucceeded {
        /// Which attempt.
        attempt: u32,
        /// A read-back follows, not before then. None: the step is compensated.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        read_at: Option<Timestamp>,
        /// Whose undo.
        step: StepNo,
    }
    /// The attempt is KNOWN to have had no effect.
    UndoFailed {
        /// Which attempt.
        attempt: u32,
        /// It is tried again, not before then. None: given up.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        retry_at: Option<Timestamp>,
        /// Whose undo.
        step: StepNo,
    }
    /// The attempt's outcome is unknown.
    UndoUncertain {
        /// Which attempt.
        attempt: u32,
        /// What follows.
        next: AfterUnknown,
        /// Whose undo.
        step: StepNo,
    }
    /// Its timer fired while something above it had become unsettled: it waits for its turn again.
    UndoDeferred {
        /// Attempts so far.
        attempt: u32,
        /// Whose undo.
        step: StepNo,
    }
    /// A read-back didn't show what the manifest expects.
    UndoMismatched {
        /// Which attempt.
        attempt: u32,
        /// Commitment to what was read.
        mismatch: Hash,
        /// What follows.
        next: AfterMismatch,
        /// First path that differs.
        path: String,
        /// Number of the read-back after that attempt, from 1.
        read: u32,
        /// Whose undo.
        step: StepNo,
    }
    /// Read-backs are over and the step is compensated.
    UndoVerified {
        /// Which attempt.
        attempt: u32,
        /// False: nothing could run the read-back.
        matched: bool,
        /// Whose undo.
        step: StepNo,
    }
}

/// What follows an attempt of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub enum AfterUnknown {
    /// Read back, not before then.
    Read {
        /// When.
        at: Timestamp,
    },
    /// Call again with the same key, not before then.
    Again {
        /// When.
        at: Timestamp,
    },
    /// An operator must look.
    Operator,
}

/// What follows a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub enum AfterMismatch {
    /// Read again, not before then.
    Read {
        /// When.
        at: Timestamp,
    },
    /// Call again with the same key, not before then.
    Again {
        /// When.
        at: Timestamp,
    },
    /// The compensation failed.
    Failed,
    /// An operator must look.
    Operator,
}

private! {
    /// Private half of [`KeyCreated`].
    KeyCreatedPrivate {
        /// SHA-256 of the whole key.
        secret: Hash,
    }
    /// Private half of [`ManifestsLoaded`].
    ManifestsLoadedPrivate {
        /// Canonical text of each manifest, by tool name.
        texts: Vec<Canonical>,
    }
    /// Values that an undo needs, by reference (`$args.id`).
    Values {
        /// The values.
        values: BTreeMap<String, Canonical>,
    }
    /// Text of an error, of an upstream, a worker or an agent.
    ErrorText {
        /// The text.
        error: Option<String>,
    }
    /// The full arguments of an open request.
    FullArguments {
        /// The arguments; none once erased.
        args: Option<Canonical>,
    }
    /// Private half of [`UndoMismatched`].
    MismatchValues {
        /// What the manifest expects at the path.
        expected: Option<Canonical>,
        /// What was read there, where anything was.
        got: Option<Canonical>,
    }
}
