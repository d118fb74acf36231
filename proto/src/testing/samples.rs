//! One fixed example of every record type, with every optional field filled in. Golden files are made of them.
use std::collections::BTreeMap;

use super::{approval_id, at, hash, id, json, request, rollback_id, tool};
use crate::canonical::Canonical;
use crate::event::v1::{
    AfterMismatch, AfterUnknown, ApprovalCancelled, ApprovalDenied, ApprovalEscalated, ApprovalExpired,
    ApprovalGlassBroken, ApprovalGranted, ApprovalPreApproved, ApprovalRequested, ApprovalReviewOverdue,
    ApprovalReviewed, ApprovalRevoked, ApprovalVoted, ApprovalWithdrawn, ClockStepped, DaemonStarted, DaemonStopped,
    Delegated, DelegationEnded, EntityQuarantined, EntityReleased, ErrorText, Executor, Finding, FullArguments,
    GroupDeleted, GroupSet, Halted, KeyCreated, KeyCreatedPrivate, KeyRevoked, LedgerOpened, ManifestsLoaded,
    ManifestsLoadedPrivate, MismatchValues, Mode, Outcome, Resumed, Role, RollbackFinished, RollbackStarted, RunSealed,
    RunStarted, StepBegun, StepBlocked, StepDisputed, StepFailed, StepResolved, StepSucceeded, StepUncertain, Target,
    UndoAttempted, UndoDeferred, UndoFailed, UndoMismatched, UndoPin, UndoSucceeded, UndoUncertain, UndoVerified,
    Values,
};
use crate::event::{
    AccessEvent, ApprovalEvent, ConfigEvent, Event, HaltEvent, RollbackEvent, RunEvent, StepEvent, SystemEvent,
    UndoEvent,
};
use crate::halt::HaltScope;
use crate::ids::{ActorKind, StreamId};
use crate::manifest::{CompensationKind, Effect};

/// At least one event of each of [`crate::event::KINDS`].
pub fn sample_events() -> Vec<Event> {
    [world(), people(), run(), steps(), approvals(), outcomes(), rollback(), undo()].concat()
}

fn finding() -> Finding {
    Finding { code: "scope.missing_permission".to_owned(), text: "a sentence with é".to_owned() }
}

fn values() -> Values {
    let of = |text| json(text);
    let values: BTreeMap<String, Canonical> =
        [("$args.amount", of("2500")), ("$result.id", of(r#"{"a":[1,null,"é"]}"#))]
            .map(|(k, v)| (k.to_owned(), v))
            .into();
    Values { values }
}

fn error() -> ErrorText {
    ErrorText { error: Some("connection reset: é".to_owned()) }
}

fn world() -> Vec<Event> {
    let key = "k0123456789ab";
    let created = KeyCreated {
        actor: id("olga"),
        allow_observe: true,
        expires_at: Some(at(0)),
        groups: vec!["finance".to_owned()],
        key: id(key),
        kind: ActorKind::Human,
        person: Some("olga@example.com".to_owned()),
        roles: vec![Role::Operator, Role::Approver],
    };
    let texts = vec![json(r#"{"effect":"read_only","tool":"t"}"#)];
    let software = "reversi 0.1.0".to_owned();
    let verifier_key = "ledger.example+1234abcd+AQ==".to_owned();
    vec![
        SystemEvent::LedgerOpened(LedgerOpened { software: software.clone(), verifier_key }, ()).into(),
        SystemEvent::DaemonStarted(DaemonStarted { clean: true, software }, ()).into(),
        SystemEvent::DaemonStopped(DaemonStopped {}, ()).into(),
        SystemEvent::ClockStepped(ClockStepped { by_ms: -3_600_000 }, ()).into(),
        SystemEvent::EntityQuarantined(
            EntityQuarantined { entity: StreamId::Undo(id("run:1"), 7), reason: "entity.poisoned".to_owned() },
            (),
        )
        .into(),
        SystemEvent::EntityReleased(EntityReleased { entity: StreamId::Claim([9; 32]) }, ()).into(),
        AccessEvent::KeyCreated(created, KeyCreatedPrivate { secret: hash(1) }).into(),
        AccessEvent::KeyRevoked(KeyRevoked { key: id(key) }, ()).into(),
        ConfigEvent::ManifestsLoaded(ManifestsLoaded { count: 1, set: hash(2) }, ManifestsLoadedPrivate { texts })
            .into(),
    ]
}

fn people() -> Vec<Event> {
    let delegation = "dlg_00000000000000000000000000000001";
    let delegated = Delegated {
        delegation: id(delegation),
        end: at(86_400_000),
        from: "olga@example.com".to_owned(),
        roles: vec!["finance".to_owned()],
        start: at(0),
        to: "carl@example.com".to_owned(),
    };
    let members = vec!["carl@example.com".to_owned(), "olga@example.com".to_owned()];
    let halted = Halted { reason: "something is wrong".to_owned(), scope: HaltScope::Tool(tool("mail.send")) };
    let resumed = Resumed { reason: Some("it was mended".to_owned()), scope: HaltScope::All };
    vec![
        AccessEvent::GroupSet(GroupSet { group: "finance".to_owned(), members }, ()).into(),
        AccessEvent::GroupDeleted(GroupDeleted { group: "finance".to_owned() }, ()).into(),
        AccessEvent::Delegated(delegated, ()).into(),
        AccessEvent::DelegationEnded(DelegationEnded { delegation: id(delegation) }, ()).into(),
        HaltEvent::Halted(halted, ()).into(),
        HaltEvent::Resumed(resumed, ()).into(),
    ]
}

fn approvals() -> Vec<Event> {
    let (approval, key) = (approval_id(1), id("k0123456789ab"));
    let (person, note) = ("olga@example.com".to_owned(), Some("looked at the invoice: é".to_owned()));
    let on_behalf_of = Some("carl@example.com".to_owned());
    let pre = ApprovalPreApproved {
        approval: approval.clone(),
        key: id("k0123456789ab"),
        note: note.clone(),
        person: person.clone(),
        tool: tool("mail.send"),
        use_by: at(900_000),
    };
    let voted = ApprovalVoted {
        approval: approval.clone(),
        key: id("k0123456789ab"),
        note: note.clone(),
        on_behalf_of,
        person: person.clone(),
    };
    let denied = ApprovalDenied { approval: approval.clone(), key: id("k0123456789ab"), note, person: person.clone() };
    let broken = ApprovalGlassBroken {
        approval: approval.clone(),
        key: id("k0123456789ab"),
        person: person.clone(),
        reason: "the plant is on fire and nobody answers".to_owned(),
        review_by: at(259_200_000),
        use_by: at(900_000),
    };
    let reviewed = ApprovalReviewed {
        approval: approval.clone(),
        key,
        note: "it was right".to_owned(),
        person: "carl@example.com".to_owned(),
    };
    let why = "no more".to_owned();
    vec![
        ApprovalEvent::PreApproved(pre, ()).into(),
        ApprovalEvent::Voted(voted, ()).into(),
        ApprovalEvent::Granted(ApprovalGranted { approval: approval.clone(), use_by: at(900_000) }, ()).into(),
        ApprovalEvent::Denied(denied, ()).into(),
        ApprovalEvent::Withdrawn(ApprovalWithdrawn { approval: approval.clone(), person }, ()).into(),
        ApprovalEvent::Escalated(
            ApprovalEscalated { approval: approval.clone(), deadline: at(1_800_000), level: 1 },
            (),
        )
        .into(),
        ApprovalEvent::Expired(ApprovalExpired { approval: approval.clone() }, ()).into(),
        ApprovalEvent::Revoked(ApprovalRevoked { approval: approval.clone(), note: why.clone() }, ()).into(),
        ApprovalEvent::Cancelled(ApprovalCancelled { approval: approval.clone(), note: why }, ()).into(),
        ApprovalEvent::GlassBroken(broken, ()).into(),
        ApprovalEvent::Reviewed(reviewed, ()).into(),
        ApprovalEvent::ReviewOverdue(ApprovalReviewOverdue { approval }, ()).into(),
    ]
}

fn run() -> Vec<Event> {
    let started = RunStarted {
        mode: Mode::Advise,
        permissions: vec!["orders:write".to_owned(), "mail:send".to_owned()],
        person: Some("mia@example.com".to_owned()),
        reason: Some("support chat 4821".to_owned()),
        request: Some(request(1, 2)),
    };
    vec![
        RunEvent::Started(started, ()).into(),
        RunEvent::Sealed(RunSealed { records: 12, run_root: hash(3) }, ()).into(),
    ]
}

fn steps() -> Vec<Event> {
    let undo = UndoPin {
        approval: true,
        kind: CompensationKind::Inverse,
        tool: tool("fs.restore"),
        verify: Some(tool("fs.stat")),
    };
    let begun = StepBegun {
        approval: Some(approval_id(1)),
        args: hash(4),
        attempt: Some(hash(5)),
        claim: Some(hash(6)),
        config: 3,
        effect: Some(Effect::Reversible),
        manifest: Some(hash(7)),
        reason: "the customer asked".to_owned(),
        request: Some(request(8, 9)),
        requires: vec![tool("a.b")],
        step: 1,
        timeout_ms: Some(30_000),
        tool: tool("fs.write_file"),
        undo: Some(undo),
        violations: vec![finding()],
    };
    let blocked = StepBlocked {
        approval: Some(approval_id(1)),
        args: hash(4),
        findings: vec![finding()],
        reason: "the customer asked".to_owned(),
        step: 2,
        tool: tool("mail.send"),
    };
    let requested = ApprovalRequested {
        approval: approval_id(1),
        args: hash(4),
        config: 3,
        deadline: Some(at(900_000)),
        escalate_to: vec!["cfo".to_owned()],
        fingerprint: hash(5),
        manifest: Some(hash(6)),
        quorum: 2,
        reason: "the customer asked".to_owned(),
        requester: Some("mia@example.com".to_owned()),
        roles: vec!["finance".to_owned()],
        step: 2,
        target: Target::Undo,
        timeout_ms: Some(900_000),
        tool: tool("mail.send"),
    };
    let args = FullArguments { args: Some(json(r#"{"to":"é"}"#)) };
    vec![
        StepEvent::Begun(begun, values()).into(),
        StepEvent::Blocked(blocked, ()).into(),
        ApprovalEvent::Requested(requested, args).into(),
    ]
}

fn outcomes() -> Vec<Event> {
    let succeeded = StepSucceeded {
        missing: vec!["$result.id".to_owned()],
        result: Some(hash(1)),
        result_error: Some("duplicate key".to_owned()),
        step: 1,
    };
    let resolved = StepResolved {
        missing: vec!["$result.id".to_owned()],
        note: "looked at the upstream".to_owned(),
        result: Some(hash(2)),
        status: Outcome::Succeeded,
        step: 1,
        target: Target::Step,
    };
    vec![
        StepEvent::Succeeded(succeeded, values()).into(),
        StepEvent::Failed(StepFailed { step: 1 }, error()).into(),
        StepEvent::Uncertain(StepUncertain { step: 1 }, error()).into(),
        StepEvent::Resolved(resolved, values()).into(),
        StepEvent::Disputed(StepDisputed { claim: Some(hash(6)), status: Outcome::Failed, step: 1 }, ()).into(),
    ]
}

fn rollback() -> Vec<Event> {
    let started = RollbackStarted {
        executor: Executor::Daemon,
        person: Some("olga@example.com".to_owned()),
        request: Some(request(1, 2)),
        rollback: rollback_id(1),
        steps: Some(vec![1, 3]),
        upstreams: [(tool("fs.restore"), "files".to_owned())].into(),
    };
    vec![
        RollbackEvent::Started(started, ()).into(),
        RollbackEvent::Finished(RollbackFinished { complete: true, rollback: rollback_id(1), verified: false }, ())
            .into(),
    ]
}

fn undo() -> Vec<Event> {
    let step = 1;
    let attempted = UndoAttempted {
        approval: Some(approval_id(1)),
        args: hash(1),
        attempt: 1,
        executor: Executor::Daemon,
        over_by: at(30_000),
        rollback: rollback_id(1),
        step,
        tool: tool("fs.restore"),
    };
    let mismatched = UndoMismatched {
        attempt: 1,
        mismatch: hash(2),
        next: AfterMismatch::Read { at: at(31_000) },
        path: "items.0.id".to_owned(),
        read: 1,
        step,
    };
    let seen = MismatchValues { expected: Some(json("true")), got: Some(json(r#"["é"]"#)) };
    let uncertain = UndoUncertain { attempt: 1, next: AfterUnknown::Again { at: at(60_000) }, step };
    vec![
        UndoEvent::Attempted(attempted, ()).into(),
        UndoEvent::Succeeded(UndoSucceeded { attempt: 1, read_at: Some(at(30_000)), step }, ()).into(),
        UndoEvent::Failed(UndoFailed { attempt: 1, retry_at: Some(at(30_200)), step }, error()).into(),
        UndoEvent::Uncertain(uncertain, error()).into(),
        UndoEvent::Mismatched(mismatched, seen).into(),
        UndoEvent::Verified(UndoVerified { attempt: 1, matched: true, step }, ()).into(),
        UndoEvent::Deferred(UndoDeferred { attempt: 1, step }, ()).into(),
    ]
}
