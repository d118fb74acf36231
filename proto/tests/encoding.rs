//! Every event survives its way into a line and back; damaged bytes are an error, never a panic.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use reversi_proto::canonical::Canonical;
use reversi_proto::event::v1::{
    AfterMismatch, AfterUnknown, ClockStepped, ErrorText, Executor, Finding, FullArguments, KeyCreated,
    KeyCreatedPrivate, ManifestsLoaded, ManifestsLoadedPrivate, MismatchValues, Mode, Outcome, Role, RollbackStarted,
    RunSealed, RunStarted, StepBegun, StepBlocked, StepDisputed, StepFailed, StepResolved, StepSucceeded,
    StepUncertain, Target, UndoAttempted, UndoFailed, UndoMismatched, UndoPin, UndoSucceeded, UndoUncertain, Values,
};
use reversi_proto::event::{
    AccessEvent, ApprovalEvent, ConfigEvent, Event, HaltEvent, RollbackEvent, RunEvent, StepEvent, SystemEvent,
    UndoEvent,
};
use reversi_proto::event::{DecodeError, KINDS, v1};
use reversi_proto::halt::HaltScope;
use reversi_proto::hash::Hash;
use reversi_proto::ids::{ActorKind, ToolName};
use reversi_proto::manifest::{CompensationKind, Effect};
use reversi_proto::testing::{approval_id, id, rollback_id, sample_events};
use reversi_proto::time::Timestamp;

/// The largest whole number that a line can hold.
const WHOLE_MAX: u64 = (1 << 53) - 1;

fn a_hash() -> impl Strategy<Value = Hash> + Clone {
    any::<[u8; 32]>().prop_map(Hash)
}

fn a_time() -> impl Strategy<Value = Timestamp> + Clone {
    (0..253_402_300_800_000_000_i64).prop_map(Timestamp::from_micros)
}

fn a_tool() -> impl Strategy<Value = ToolName> + Clone {
    "[a-zA-Z0-9_.:/-]{1,40}".prop_map(|text| text.parse().unwrap())
}

fn a_canonical() -> impl Strategy<Value = Canonical> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            btree_map(any::<String>(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    });
    value.prop_map(|value| Canonical::of(&value).unwrap())
}

fn values() -> impl Strategy<Value = Values> {
    btree_map("\\$(args|result)\\.[a-z.0-9]{1,12}", a_canonical(), 0..4).prop_map(|values| Values { values })
}

fn error() -> impl Strategy<Value = ErrorText> {
    option::of(any::<String>()).prop_map(|error| ErrorText { error })
}

fn outcome() -> impl Strategy<Value = Outcome> + Clone {
    prop_oneof![Just(Outcome::Succeeded), Just(Outcome::Failed), Just(Outcome::Uncertain)]
}

fn request() -> impl Strategy<Value = Option<v1::RequestKey>> + Clone {
    option::of((a_hash(), a_hash()).prop_map(|(body, key)| v1::RequestKey { body, key }))
}

fn findings() -> impl Strategy<Value = Vec<Finding>> + Clone {
    vec((any::<String>(), any::<String>()).prop_map(|(code, text)| Finding { code, text }), 0..3)
}

fn effect() -> impl Strategy<Value = Effect> + Clone {
    proptest::sample::select(Effect::WORDS.iter().map(|(_, effect)| *effect).collect::<Vec<_>>())
}

fn pin() -> impl Strategy<Value = Option<UndoPin>> {
    let kind = prop_oneof![Just(CompensationKind::Compensation), Just(CompensationKind::Inverse)];
    let pin = (any::<bool>(), kind, a_tool(), option::of(a_tool()));
    option::of(pin.prop_map(|(approval, kind, tool, verify)| UndoPin { approval, kind, tool, verify }))
}

fn begun() -> impl Strategy<Value = Event> {
    let ids = (any::<bool>(), a_hash(), option::of(a_hash()), option::of(a_hash()), 0..WHOLE_MAX, option::of(effect()));
    let said = (any::<String>(), request(), vec(a_tool(), 0..3), any::<u32>(), option::of(0..WHOLE_MAX), a_tool());
    (ids, said, pin(), findings(), option::of(a_hash()), values()).prop_map(
        |((approval, args, attempt, claim, config, effect), said, undo, violations, manifest, values)| {
            let (reason, request, requires, step, timeout_ms, tool) = said;
            let approval = approval.then(|| approval_id(7));
            let body = StepBegun {
                approval,
                args,
                attempt,
                claim,
                config,
                effect,
                manifest,
                reason,
                request,
                requires,
                step,
                timeout_ms,
                tool,
                undo,
                violations,
            };
            StepEvent::Begun(body, values).into()
        },
    )
}

fn step_event() -> impl Strategy<Value = Event> {
    let missing = vec("\\$result\\.[a-z]{1,5}", 0..3);
    prop_oneof![
        begun(),
        (a_hash(), findings(), any::<String>(), any::<u32>(), a_tool()).prop_map(
            |(args, findings, reason, step, tool)| {
                StepEvent::Blocked(StepBlocked { approval: None, args, findings, reason, step, tool }, ()).into()
            }
        ),
        (missing.clone(), option::of(a_hash()), option::of(any::<String>()), any::<u32>(), values()).prop_map(
            |(missing, result, result_error, step, values)| {
                StepEvent::Succeeded(StepSucceeded { missing, result, result_error, step }, values).into()
            }
        ),
        (any::<u32>(), error()).prop_map(|(step, error)| StepEvent::Failed(StepFailed { step }, error).into()),
        (any::<u32>(), error()).prop_map(|(step, error)| StepEvent::Uncertain(StepUncertain { step }, error).into()),
        (missing, any::<String>(), option::of(a_hash()), outcome(), any::<(u32, bool)>(), values()).prop_map(
            |(missing, note, result, status, (step, undo), values)| {
                let target = if undo { Target::Undo } else { Target::Step };
                StepEvent::Resolved(StepResolved { missing, note, result, status, step, target }, values).into()
            }
        ),
        (option::of(a_hash()), outcome(), any::<u32>()).prop_map(|(claim, status, step)| StepEvent::Disputed(
            StepDisputed { claim, status, step },
            ()
        )
        .into()),
    ]
}

fn undo_event() -> impl Strategy<Value = Event> {
    let after_unknown = a_time().prop_flat_map(|at| {
        prop_oneof![Just(AfterUnknown::Read { at }), Just(AfterUnknown::Again { at }), Just(AfterUnknown::Operator)]
    });
    let after_mismatch = a_time().prop_flat_map(|at| {
        prop_oneof![
            Just(AfterMismatch::Read { at }),
            Just(AfterMismatch::Again { at }),
            Just(AfterMismatch::Failed),
            Just(AfterMismatch::Operator)
        ]
    });
    let seen = (option::of(a_canonical()), option::of(a_canonical()));
    let seen = seen.prop_map(|(expected, got)| MismatchValues { expected, got });
    prop_oneof![
        (a_hash(), any::<u32>(), a_time(), any::<u32>(), a_tool()).prop_map(|(args, attempt, over_by, step, tool)| {
            let (executor, rollback) = (Executor::Worker, rollback_id(1));
            let body = UndoAttempted { approval: None, args, attempt, executor, over_by, rollback, step, tool };
            UndoEvent::Attempted(body, ()).into()
        }),
        (any::<u32>(), option::of(a_time()), any::<u32>()).prop_map(|(attempt, read_at, step)| {
            UndoEvent::Succeeded(UndoSucceeded { attempt, read_at, step }, ()).into()
        }),
        (any::<u32>(), option::of(a_time()), any::<u32>(), error()).prop_map(|(attempt, retry_at, step, error)| {
            UndoEvent::Failed(UndoFailed { attempt, retry_at, step }, error).into()
        }),
        (any::<u32>(), after_unknown, any::<u32>(), error()).prop_map(|(attempt, next, step, error)| {
            UndoEvent::Uncertain(UndoUncertain { attempt, next, step }, error).into()
        }),
        (any::<(u32, u32, u32)>(), a_hash(), after_mismatch, any::<String>(), seen).prop_map(
            |((attempt, read, step), mismatch, next, path, seen)| {
                UndoEvent::Mismatched(UndoMismatched { attempt, mismatch, next, path, read, step }, seen).into()
            }
        ),
    ]
}

fn other_event() -> impl Strategy<Value = Event> {
    let roles = vec(prop_oneof![Just(Role::Agent), Just(Role::Auditor), Just(Role::Breakglass)], 0..3);
    let upstreams = btree_map(a_tool(), any::<String>(), 0..3);
    let selection = option::of(vec(any::<u32>(), 0..5));
    prop_oneof![
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(|by_ms| SystemEvent::ClockStepped(
            ClockStepped { by_ms },
            ()
        )
        .into()),
        (roles, vec(any::<String>(), 0..3), option::of(a_time()), any::<bool>(), a_hash()).prop_map(
            |(roles, groups, expires_at, allow_observe, secret)| {
                let body = KeyCreated {
                    actor: id("olga"),
                    allow_observe,
                    expires_at,
                    groups,
                    key: id("k0123456789ab"),
                    kind: ActorKind::Human,
                    person: None,
                    roles,
                };
                AccessEvent::KeyCreated(body, KeyCreatedPrivate { secret }).into()
            }
        ),
        (any::<u32>(), a_hash(), vec(a_canonical(), 0..3)).prop_map(|(count, set, texts)| {
            ConfigEvent::ManifestsLoaded(ManifestsLoaded { count, set }, ManifestsLoadedPrivate { texts }).into()
        }),
        (vec(any::<String>(), 0..3), option::of(any::<String>()), request()).prop_map(
            |(permissions, reason, request)| {
                let (mode, person) = (Mode::Observe, reason.clone());
                RunEvent::Started(RunStarted { mode, permissions, person, reason, request }, ()).into()
            }
        ),
        (0..WHOLE_MAX, a_hash())
            .prop_map(|(records, run_root)| RunEvent::Sealed(RunSealed { records, run_root }, ()).into()),
        (request(), selection, upstreams).prop_map(|(request, steps, upstreams)| {
            let (executor, rollback) = (Executor::Daemon, rollback_id(2));
            let body = RollbackStarted { executor, person: None, request, rollback, steps, upstreams };
            RollbackEvent::Started(body, ()).into()
        }),
        (option::of(a_canonical()), a_hash(), vec(any::<String>(), 0..3)).prop_map(|(args, hash, roles)| {
            let body = v1::ApprovalRequested {
                approval: approval_id(1),
                args: hash,
                config: 0,
                deadline: None,
                escalate_to: roles.clone(),
                fingerprint: hash,
                manifest: None,
                quorum: 1,
                reason: String::new(),
                requester: roles.first().cloned(),
                roles,
                step: 1,
                target: Target::Step,
                timeout_ms: None,
                tool: id("t"),
            };
            ApprovalEvent::Requested(body, FullArguments { args }).into()
        }),
    ]
}

/// What people say, and what is known of them.
fn people_event() -> impl Strategy<Value = Event> {
    let (words, note) = (any::<String>(), option::of(any::<String>()));
    let (approval, key) = (approval_id(1), "k0123456789ab");
    let (voted, denied, pre, broken) = (approval.clone(), approval.clone(), approval.clone(), approval.clone());
    prop_oneof![
        (words, note.clone(), note.clone()).prop_map(move |(person, on_behalf_of, note)| {
            let body = v1::ApprovalVoted { approval: voted.clone(), key: id(key), note, on_behalf_of, person };
            ApprovalEvent::Voted(body, ()).into()
        }),
        (words, note.clone()).prop_map(move |(person, note)| {
            let body = v1::ApprovalDenied { approval: denied.clone(), key: id(key), note, person };
            ApprovalEvent::Denied(body, ()).into()
        }),
        (words, note.clone(), a_tool(), a_time()).prop_map(move |(person, note, tool, use_by)| {
            let approval = pre.clone();
            let body = v1::ApprovalPreApproved { approval, key: id(key), note, person, tool, use_by };
            ApprovalEvent::PreApproved(body, ()).into()
        }),
        (words, words, a_time(), a_time()).prop_map(move |(person, reason, review_by, use_by)| {
            let approval = broken.clone();
            let body = v1::ApprovalGlassBroken { approval, key: id(key), person, reason, review_by, use_by };
            ApprovalEvent::GlassBroken(body, ()).into()
        }),
        (any::<u32>(), a_time()).prop_map(move |(level, deadline)| {
            let body = v1::ApprovalEscalated { approval: approval.clone(), deadline, level };
            ApprovalEvent::Escalated(body, ()).into()
        }),
        (words, vec(words, 0..4)).prop_map(|(group, members)| AccessEvent::GroupSet(
            v1::GroupSet { group, members },
            ()
        )
        .into()),
        (words, words, vec(words, 0..3), a_time(), a_time()).prop_map(|(from, to, roles, start, end)| {
            let delegation = id(&format!("dlg_{:032x}", 7));
            AccessEvent::Delegated(v1::Delegated { delegation, end, from, roles, start, to }, ()).into()
        }),
        (words, a_tool(), any::<bool>()).prop_map(|(reason, tool, all)| {
            let scope = if all { HaltScope::All } else { HaltScope::Tool(tool) };
            HaltEvent::Halted(v1::Halted { reason, scope }, ()).into()
        }),
    ]
}

fn an_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => people_event(),
        3 => step_event(),
        3 => undo_event(),
        2 => other_event(),
        1 => proptest::sample::select(sample_events()),
    ]
}

proptest! {
    #[test]
    fn events_round_trip(event in an_event()) {
        let encoded = event.encode().unwrap();
        let decoded = Event::decode(encoded.kind, encoded.body.as_str(), &encoded.private).unwrap();
        prop_assert_eq!(&decoded, &event);
        // One encoding per event: what is read and written again is the same text.
        prop_assert_eq!(decoded.encode().unwrap(), encoded);
    }

    #[test]
    fn damaged_private_halves_never_panic(event in an_event(), at: prop::sample::Index, byte: u8, cut: bool) {
        let encoded = event.encode().unwrap();
        let mut private = encoded.private;
        if !private.is_empty() {
            let at = at.index(private.len());
            if cut { private.truncate(at) } else { private[at] = byte }
        }
        drop(Event::decode(encoded.kind, encoded.body.as_str(), &private));
    }

    #[test]
    fn damaged_bodies_never_panic(event in an_event(), at: prop::sample::Index, byte in 32_u8..127) {
        let encoded = event.encode().unwrap();
        let mut body = encoded.body.as_str().as_bytes().to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(body) = String::from_utf8(body) {
            drop(Event::decode(encoded.kind, &body, &encoded.private));
        }
    }

    #[test]
    fn hostile_private_halves_never_panic(kind in proptest::sample::select(KINDS), bytes in vec(any::<u8>(), 0..80)) {
        for event in sample_events().iter().filter(|event| event.kind() == kind) {
            let body = event.encode().unwrap().body;
            drop(Event::decode(kind, body.as_str(), &bytes));
            let versioned = [&[1][..], &bytes].concat();
            drop(Event::decode(kind, body.as_str(), &versioned));
        }
    }
}

#[test]
fn what_is_no_event_is_named() {
    let error = Event::decode("step.imagined", "{}", &[]).unwrap_err();
    assert!(matches!(error, DecodeError::UnknownType(kind) if kind == "step.imagined"));
    let error = Event::decode("step.failed", r#"{"step":1,"surprise":2}"#, &[]).unwrap_err();
    assert!(matches!(error, DecodeError::Body { kind: "step.failed", .. }));
    for private in [&[2, 0][..], &[1], &[1, 0, 0], &[1, 1, 0xff, 0xff]] {
        let error = Event::decode("step.failed", r#"{"step":1}"#, private).unwrap_err();
        assert!(matches!(error, DecodeError::Private { kind: "step.failed", .. }), "{private:?}");
    }
    // A length of 2^63 bytes must not be believed.
    let hostile = [&[1, 1, 253][..], &[0xff; 7], &[0x7f]].concat();
    assert!(Event::decode("step.failed", r#"{"step":1}"#, &hostile).is_err());
    // A type that has nothing private takes none.
    assert!(Event::decode("daemon.stopped", "{}", &[1]).is_err());
}

#[test]
fn an_erased_private_half_is_the_default() {
    for event in sample_events() {
        let encoded = event.encode().unwrap();
        let erased = Event::decode(encoded.kind, encoded.body.as_str(), &[]).unwrap();
        assert!(erased.encode().unwrap().private.is_empty(), "{}", encoded.kind);
    }
    let values: BTreeMap<String, Canonical> = BTreeMap::new();
    assert_eq!(Values::default(), Values { values });
}
