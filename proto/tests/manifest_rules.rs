//! Every rule of a manifest, one accepting and one rejecting case at least. The comments name the statements of the
//! specification (`A5`: names of tools).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use reversi_proto::manifest::{
    Approval, ApprovalRules, Code, CompensationKind, Effect, IdempotencyScope, Manifest, ManifestSet, OnTimeout,
    Status, load,
};

/// A read-only tool with more fields, in YAML.
fn reader(more: &str) -> String {
    format!("tool: t\neffect: read_only\npermission: p\n{more}")
}

/// A tool of an effect that has an undo, with more fields of the compensation.
fn undoable(effect: &str, compensation: &str) -> String {
    format!("tool: t\neffect: {effect}\npermission: p\ncompensation:\n  tool: undo\n{compensation}")
}

fn verified(more: &str) -> String {
    undoable("reversible", &format!("  verification:\n    tool: look\n{more}"))
}

fn one(text: &str) -> Manifest {
    match load("m.yaml", text.as_bytes()) {
        Ok(mut list) if list.len() == 1 => list.remove(0),
        Ok(list) => panic!("{} manifests in\n{text}", list.len()),
        Err(errors) => panic!("{errors:#?}\nin\n{text}"),
    }
}

/// The text has exactly this one error.
fn refused(text: &str, code: Code, path: &str) {
    let errors = load("m.yaml", text.as_bytes()).expect_err(text);
    let found: Vec<_> = errors.iter().map(|error| (error.code, error.path.as_str())).collect();
    assert_eq!(found, [(code, path)], "{errors:#?}\nin\n{text}");
    assert!(errors[0].line > 0 && errors[0].column > 0, "no place: {errors:#?}");
}

#[test]
fn names_effects_and_permissions() {
    // A5
    for name in ["a", "A-1_.:/b", "/", ":", ".", "..", &"x".repeat(128)] {
        one(&format!("tool: \"{name}\"\neffect: read_only\npermission: p"));
    }
    for name in ["", "a b", "é", "a\\nb", &"x".repeat(129)] {
        refused(&format!("tool: \"{name}\"\neffect: read_only\npermission: p"), Code::BadText, "tool");
    }
    refused("effect: read_only\npermission: p", Code::MissingField, "");
    refused("tool: 5\neffect: read_only\npermission: p", Code::WrongType, "tool");
    // A6
    for (word, effect) in Effect::WORDS {
        let more = if effect.has_undo() { "\ncompensation: {tool: undo}" } else { "" };
        assert_eq!(one(&format!("tool: t\neffect: {word}\npermission: p{more}")).effect, *effect);
    }
    refused("tool: t\neffect: readonly\npermission: p", Code::UnknownValue, "effect");
    refused("tool: t\neffect: READ_ONLY\npermission: p", Code::UnknownValue, "effect");
    refused("tool: t\npermission: p", Code::MissingField, "");
    // A7
    assert_eq!(one("tool: t\neffect: read_only\npermission: payments:read").permission, "payments:read");
    refused("tool: t\neffect: read_only\npermission: a b", Code::BadText, "permission");
    refused("tool: t\neffect: read_only\npermission: \"a\\u00a0b\"", Code::BadText, "permission");
    refused("tool: t\neffect: read_only\npermission: \"\"", Code::BadText, "permission");
    refused("tool: t\neffect: read_only", Code::MissingField, "");
}

#[test]
fn unknown_fields_are_errors_at_every_level() {
    // A3
    refused(&reader("efect: x"), Code::UnknownField, "efect");
    refused(&reader("approval: {role: [a]}"), Code::UnknownField, "approval.role");
    refused(&undoable("reversible", "  argument_maps: {}"), Code::UnknownField, "compensation.argument_maps");
    refused(&verified("    expect: {a: 1}\n    retry: 3"), Code::UnknownField, "compensation.verification.retry");
    refused(&reader("risk: {class: pii}"), Code::UnknownField, "risk.class");
    refused(&reader("retry: {attempt: 2}"), Code::UnknownField, "retry.attempt");
    refused(&reader("idempotency: {key: \"{{args.a}}\", scop: run}"), Code::UnknownField, "idempotency.scop");
    refused(&reader("audit: {retention: 5}"), Code::UnknownField, "audit.retention");
    refused(&reader("requires: [{tool: a, state: succeeded}]"), Code::UnknownField, "requires[0].state");
    refused(&reader("approval_rules: {quorum: 1}"), Code::UnknownField, "approval_rules");
    refused(&reader("a.b: 1"), Code::UnknownField, "[\"a.b\"]");
    let errors = load("m.yaml", reader("premission: x").as_bytes()).unwrap_err();
    assert_eq!(errors[0].hint.as_deref(), Some("did you mean `permission`?"));
    assert_eq!((errors[0].line, errors[0].column), (4, 1));
}

/// `approval` has a `timeout` and all others a `timeout_ms`, so that one is written for the other.
#[test]
fn fields_without_the_end_of_their_name_are_recognized() {
    for (field, hint) in [
        ("timeout: 3s", Some("did you mean `timeout_ms`?")),
        ("retry: {base: 3}", Some("did you mean `base_ms`?")),
        ("audit: {retention: 3}", Some("did you mean `retention_days`?")),
        ("approval: {timeout_ms: 3}", Some("did you mean `timeout`?")),
        ("time: 3s", None),
    ] {
        let text = reader(field);
        let errors = load("m.yaml", text.as_bytes()).expect_err(&text);
        assert_eq!((errors[0].code, errors[0].hint.as_deref()), (Code::UnknownField, hint), "{field}");
    }
}

#[test]
fn free_text_lifecycle_and_version() {
    // A8 A15 A16
    let m = one(&reader(
        "description: |\n  two\n  lines\nowner: a@b\noncall: c d\nrisk: {data_class: pii, blast_radius: low, environment: prod}",
    ));
    assert_eq!(m.description.as_deref(), Some("two\nlines\n"));
    assert_eq!((m.owner.as_deref(), m.oncall.as_deref()), (Some("a@b"), Some("c d")));
    assert_eq!(m.risk.environment.as_deref(), Some("prod"));
    refused(&reader("owner: \" \""), Code::BadText, "owner");
    refused(&reader("owner: \"a\\u001b[0m\""), Code::BadText, "owner");
    refused(&reader("owner:"), Code::WrongType, "owner");
    refused(&reader("oncall: [a]"), Code::WrongType, "oncall");
    refused(&reader("risk: {blast_radius: huge}"), Code::UnknownValue, "risk.blast_radius");
    refused(&reader("risk: high"), Code::WrongType, "risk");
    // A12 B2
    assert_eq!(one(&reader("")).version, 1);
    assert_eq!(one(&reader("version: 7")).version, 7);
    assert_eq!(one(&reader("version: 7.0")).version, 7);
    for wrong in ["0", "-1", "1.5"] {
        refused(&reader(&format!("version: {wrong}")), Code::OutOfRange, "version");
    }
    refused(&reader("version: \"1\""), Code::WrongType, "version");
    // A13 B3
    assert_eq!(one(&reader("")).status, Status::Approved);
    assert_eq!(one(&reader("status: draft")).status, Status::Draft);
    refused(&reader("status: live"), Code::UnknownValue, "status");
    // A14
    let m = one(&reader("status: deprecated\nreplaced_by: u"));
    assert_eq!(m.replaced_by.as_ref().unwrap().as_str(), "u");
    refused(&reader("replaced_by: t"), Code::SelfReference, "replaced_by");
    // A21
    assert_eq!(one(&reader("schema_hash: 0123456789ab")).schema_hash.as_deref(), Some("0123456789ab"));
    refused(&reader("schema_hash: 12"), Code::WrongType, "schema_hash");
    refused(&reader("schema_hash: a b"), Code::BadText, "schema_hash");
}

#[test]
fn durations_everywhere() {
    // A17 C1 C2 C3
    for (text, ms) in
        [("500", 500), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)]
    {
        assert_eq!(one(&reader(&format!("timeout_ms: {text}"))).timeout_ms, Some(ms), "{text}");
    }
    let m = one(&verified("    expect: {a: 1}\n    backoff_ms: 0\n  timeout_ms: 20s"));
    let compensation = m.compensation.as_ref().unwrap();
    assert_eq!(compensation.timeout_ms, Some(20_000));
    assert_eq!(compensation.verification.as_ref().unwrap().backoff_ms, 0);
    let retry = one(&reader("retry: {base_ms: 1s, max_ms: 1m}")).retry.unwrap();
    assert_eq!((retry.base_ms, retry.max_ms), (1000, 60_000));
    // C4
    for wrong in ["1.5s", "\"500\"", "10 s", "1h30m", "30S", "-5s", "1.5", "1w"] {
        refused(&reader(&format!("timeout_ms: {wrong}")), Code::BadDuration, "timeout_ms");
    }
    for wrong in ["-1", "0", "0s", "366d", "31536000001"] {
        refused(&reader(&format!("timeout_ms: {wrong}")), Code::OutOfRange, "timeout_ms");
    }
    refused(&reader("timeout_ms: true"), Code::WrongType, "timeout_ms");
    refused(&reader("timeout_ms: 1e99"), Code::NumberRange, "timeout_ms");
    refused(&reader("retry: {base_ms: x}"), Code::BadDuration, "retry.base_ms");
    refused(&reader("retry: {max_ms: x}"), Code::BadDuration, "retry.max_ms");
    refused(&reader("approval: {timeout: soon}"), Code::BadDuration, "approval.timeout");
    refused(&undoable("reversible", "  timeout_ms: x"), Code::BadDuration, "compensation.timeout_ms");
    let path = "compensation.verification.backoff_ms";
    refused(&verified("    expect: {a: 1}\n    backoff_ms: x"), Code::BadDuration, path);
}

#[test]
fn retry_is_for_tools_that_may_be_repeated() {
    // A18 B4 J6
    assert_eq!(one(&reader("")).retry, None);
    let retry = one(&reader("retry: {}")).retry.unwrap();
    assert_eq!((retry.attempts, retry.base_ms, retry.max_ms), (3, 200, 5000));
    assert!(one("tool: t\neffect: idempotent\npermission: p\nretry: {attempts: 10}").retry.is_some());
    for wrong in ["0", "11", "-1", "2.5"] {
        refused(&reader(&format!("retry: {{attempts: {wrong}}}")), Code::OutOfRange, "retry.attempts");
    }
    refused("tool: t\neffect: irreversible\npermission: p\nretry: {}", Code::RetryForbidden, "retry");
    for effect in ["reversible", "compensable"] {
        refused(&(undoable(effect, "") + "retry: {}"), Code::RetryForbidden, "retry");
    }
}

#[test]
fn compensation_belongs_to_effects_that_have_one() {
    // A10 J1
    for effect in ["reversible", "compensable"] {
        one(&undoable(effect, ""));
        refused(&format!("tool: t\neffect: {effect}\npermission: p"), Code::CompensationMissing, "");
    }
    for effect in ["read_only", "idempotent", "irreversible"] {
        let text = format!("tool: t\neffect: {effect}\npermission: p\ncompensation: {{tool: undo}}");
        refused(&text, Code::CompensationForbidden, "compensation");
    }
    // E1 J3
    refused(
        "tool: t\neffect: reversible\npermission: p\ncompensation: {tool: t}",
        Code::SelfReference,
        "compensation.tool",
    );
    refused(
        "tool: t\neffect: reversible\npermission: p\ncompensation: {kind: inverse}",
        Code::MissingField,
        "compensation",
    );
    // E2 E3 E4 B6 B7 J5
    let m = one(&undoable("compensable", "  residue: [a mail went out]\n  requires_approval: true"));
    let compensation = m.compensation.as_ref().unwrap();
    assert_eq!((compensation.kind, compensation.requires_approval), (CompensationKind::Compensation, true));
    assert_eq!(compensation.residue, ["a mail went out"]);
    assert!(!one(&undoable("reversible", "  kind: inverse")).compensation.as_ref().unwrap().requires_approval);
    one(&undoable("reversible", "  kind: inverse\n  residue: []"));
    refused(&undoable("reversible", "  kind: inverse\n  residue: [x]"), Code::InverseResidue, "compensation.residue");
    refused(&undoable("reversible", "  kind: exact"), Code::UnknownValue, "compensation.kind");
    refused(&undoable("reversible", "  residue: x"), Code::WrongType, "compensation.residue");
    refused(&undoable("reversible", "  residue: [\"\"]"), Code::BadText, "compensation.residue[0]");
    refused(&undoable("reversible", "  requires_approval: no"), Code::WrongType, "compensation.requires_approval");
}

#[test]
fn references_are_references() {
    // E6 E11 J4
    let m = one(&undoable("reversible", "  argument_map: {id: $result.a.0.b, n: $args.n}"));
    let map = &m.compensation.as_ref().unwrap().argument_map;
    assert_eq!(map["id"].to_string(), "$result.a.0.b");
    for wrong in
        ["usd", "$ctx.x", "$result", "$args", "5", "null", "[$args.a]", "{a: $args.a}", "$args.a[0]", "$args..a"]
    {
        let text = undoable("reversible", &format!("  argument_map: {{id: {wrong}}}"));
        refused(&text.replace("$args.a[0]", "\"$args.a[0]\""), Code::BadReference, "compensation.argument_map.id");
    }
    refused(&undoable("reversible", "  argument_map: [a]"), Code::WrongType, "compensation.argument_map");
    refused(
        &undoable("reversible", "  argument_map: {\"\": $args.a}"),
        Code::BadText,
        "compensation.argument_map[\"\"]",
    );
    refused(
        &verified("    expect: {a: 1}\n    arguments: {id: ch_1}"),
        Code::BadReference,
        "compensation.verification.arguments.id",
    );
    // A20 J4
    let m =
        one(&reader("audit: {retention_days: 2555, evidence_export: required, redaction: [$args.card, $result.x]}"));
    assert_eq!(m.audit.redaction.len(), 2);
    refused(&reader("audit: {redaction: [card]}"), Code::BadReference, "audit.redaction[0]");
    refused(&reader("audit: {redaction: $args.card}"), Code::WrongType, "audit.redaction");
    refused(&reader("audit: {retention_days: 0}"), Code::OutOfRange, "audit.retention_days");
    refused(&reader("audit: {evidence_export: maybe}"), Code::UnknownValue, "audit.evidence_export");
}

/// Who writes a value where a reference belongs may have written a secret, and errors end up in logs.
#[test]
fn a_literal_instead_of_a_reference_is_not_repeated() {
    for text in [
        undoable("reversible", "  argument_map: {key: hunter2}"),
        verified("    arguments: {key: hunter2}\n    expect: {a: 1}"),
        reader("audit: {redaction: [hunter2]}"),
    ] {
        let errors = load("m.yaml", text.as_bytes()).expect_err(&text);
        assert!(errors.len() == 1 && errors[0].code == Code::BadReference, "{errors:#?}");
        assert!(!errors[0].to_string().contains("hunter2"), "{}", errors[0]);
    }
}

#[test]
fn verification_expects_something() {
    // F3 F4 B8 B9 J7
    let m = one(&verified("    expect: {items.0.id: x, deleted: null, n: {a: [1.5]}}"));
    let verification = m.compensation.as_ref().unwrap().verification.as_ref().unwrap();
    assert_eq!((verification.retries, verification.backoff_ms), (3, 1000));
    assert_eq!(verification.expect.iter().count(), 3);
    refused(&verified("    expect: {}"), Code::ExpectEmpty, "compensation.verification.expect");
    refused(&verified(""), Code::MissingField, "compensation.verification");
    refused(&verified("    expect: [a]"), Code::WrongType, "compensation.verification.expect");
    refused(&verified("    expect: {a..b: 1}"), Code::BadPath, "compensation.verification.expect[\"a..b\"]");
    refused(&verified("    expect: {a: .nan}"), Code::NumberRange, "compensation.verification.expect.a");
    refused(&verified("    expect: {0: 1}"), Code::KeyNotText, "compensation.verification.expect");
    for wrong in ["0", "11"] {
        let text = verified(&format!("    expect: {{a: 1}}\n    retries: {wrong}"));
        refused(&text, Code::OutOfRange, "compensation.verification.retries");
    }
    refused(
        &undoable("reversible", "  verification: {expect: {a: 1}}"),
        Code::MissingField,
        "compensation.verification",
    );
}

#[test]
fn approval_and_who_gives_it() {
    // A9 B1 G1 G5
    let rules = |text: &str| match &one(text).approval {
        Approval::Never => None,
        Approval::Always(rules) => Some(rules.clone()),
    };
    let any = Some(ApprovalRules::default());
    assert_eq!(rules(&reader("")), None);
    assert_eq!(rules(&reader("approval: never")), None);
    assert_eq!(rules(&reader("approval: always")), any);
    assert_eq!(rules(&reader("approval: {}")), any);
    assert_eq!(rules(&reader("approval: {required: true}")), any);
    let all = "approval: {roles: [finance, x], quorum: 2, timeout: 15m, on_timeout: escalate, escalate_to: [cfo, ceo]}";
    let expected = ApprovalRules {
        roles: vec!["finance".to_owned(), "x".to_owned()],
        quorum: 2,
        timeout_ms: Some(900_000),
        on_timeout: OnTimeout::Escalate,
        escalate_to: vec!["cfo".to_owned(), "ceo".to_owned()],
    };
    assert_eq!(rules(&reader(all)), Some(expected));
    // B5 G8 - where to escalate may come from the policy
    assert_eq!(rules(&reader("approval: {timeout: 1h}")).unwrap().on_timeout, OnTimeout::Deny);
    assert!(rules(&reader("approval: {on_timeout: escalate}")).is_some());
    // G4
    assert_eq!(rules(&reader("approval: {required: false, roles: [a]}")), None);
    // A9 J2 G4
    let irreversible = "tool: t\neffect: irreversible\npermission: p\n";
    assert_eq!(rules(irreversible), any);
    assert_eq!(rules(&format!("{irreversible}approval: {{roles: [a]}}")).unwrap().roles, ["a"]);
    refused(&format!("{irreversible}approval: never"), Code::ApprovalForced, "approval");
    refused(&format!("{irreversible}approval: {{required: false}}"), Code::ApprovalForced, "approval");
    // D6
    assert_eq!(rules(&(undoable("reversible", "") + "approval: always")), any);
    // G3 J8
    one(&reader("approval: {quorum: 1}"));
    one(&reader("approval: {quorum: 10, roles: [a]}"));
    for wrong in ["0", "11", "1.5"] {
        refused(&reader(&format!("approval: {{roles: [a], quorum: {wrong}}}")), Code::OutOfRange, "approval.quorum");
    }
    refused(&reader("approval: {quorum: 2}"), Code::QuorumNeedsRoles, "approval.quorum");
    refused(&reader("approval: {quorum: 2, roles: []}"), Code::QuorumNeedsRoles, "approval.quorum");
    refused(&reader("approval: {quorum: 2, roles: a}"), Code::WrongType, "approval.roles");
    refused(&reader("approval: sometimes"), Code::UnknownValue, "approval");
    refused(&reader("approval: true"), Code::WrongType, "approval");
    refused(&reader("approval: {on_timeout: allow}"), Code::UnknownValue, "approval.on_timeout");
    refused(&reader("approval: {required: yes}"), Code::WrongType, "approval.required");
    refused(&reader("approval: {escalate_to: cfo}"), Code::WrongType, "approval.escalate_to");
}

#[test]
fn requires_and_idempotency() {
    // A11 J3
    let m = one(&reader("requires: [a, {tool: b, status: succeeded}, {tool: c}]"));
    assert_eq!(m.requires.iter().map(reversi_proto::ids::ToolName::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
    refused(&reader("requires: [a, {tool: a}]"), Code::DuplicateRequire, "requires[1]");
    refused(&reader("requires: [a, t]"), Code::SelfReference, "requires[1]");
    refused(&reader("requires: [{tool: t}]"), Code::SelfReference, "requires[0].tool");
    refused(&reader("requires: [{tool: a, status: failed}]"), Code::UnknownValue, "requires[0].status");
    refused(&reader("requires: [{status: succeeded}]"), Code::MissingField, "requires[0]");
    refused(&reader("requires: [5]"), Code::WrongType, "requires[0]");
    refused(&reader("requires: a"), Code::WrongType, "requires");
    // A19 H1 H3 B10
    let m = one(&reader("idempotency: {key: \"charge-{{args.order.id}}\"}"));
    assert_eq!(m.idempotency.as_ref().unwrap().scope, IdempotencyScope::Run);
    for (word, scope) in IdempotencyScope::WORDS {
        let m = one(&reader(&format!("idempotency: {{key: \"{{{{args.a}}}}\", scope: {word}}}")));
        assert_eq!(m.idempotency.as_ref().unwrap().scope, *scope);
    }
    refused(&reader("idempotency: {key: constant}"), Code::BadTemplate, "idempotency.key");
    refused(&reader("idempotency: {key: \"{{result.id}}\"}"), Code::BadTemplate, "idempotency.key");
    refused(&reader("idempotency: {key: \"{{args.id\"}"), Code::BadTemplate, "idempotency.key");
    refused(&reader("idempotency: {scope: run}"), Code::MissingField, "idempotency");
    refused(&reader("idempotency: {key: \"{{args.a}}\", scope: team}"), Code::UnknownValue, "idempotency.scope");
}

#[test]
fn all_errors_are_reported_in_order() {
    // J10
    let text = "- tool: a b\n  effect: efect\n  permision: p\n  version: 0\n- tool: t\n  effect: reversible\n  permission: p\n  \
                compensation:\n    tool: undo\n    kind: inverse\n    residue: [x]\n    verification: {tool: look, expect: {}}\n    \
                argument_map: {id: 5}\n- 7\n";
    let errors = load("m.yaml", text.as_bytes()).unwrap_err();
    let found: Vec<_> = errors.iter().map(|e| (e.line, e.code, e.path.as_str())).collect();
    assert_eq!(
        found,
        [
            (1, Code::MissingField, "[0]"),
            (1, Code::BadText, "[0].tool"),
            (2, Code::UnknownValue, "[0].effect"),
            (3, Code::UnknownField, "[0].permision"),
            (4, Code::OutOfRange, "[0].version"),
            (11, Code::InverseResidue, "[1].compensation.residue"),
            (12, Code::ExpectEmpty, "[1].compensation.verification.expect"),
            (13, Code::BadReference, "[1].compensation.argument_map.id"),
            (14, Code::WrongType, "[2]"),
        ]
    );
}

/// One file per text: `a.yaml`, `b.yaml`, ...
fn set(texts: &[&str]) -> Result<ManifestSet, Vec<(Code, String)>> {
    let mut manifests = Vec::new();
    for (text, name) in texts.iter().zip(["a.yaml", "b.yaml", "c.yaml"]) {
        manifests.extend(load(name, text.as_bytes()).unwrap().into_iter().map(|m| (name.to_owned(), m)));
    }
    ManifestSet::new(manifests).map_err(|errors| {
        let place =
            |e: &reversi_proto::manifest::Diagnostic| format!("{}:{}:{} {}", e.source, e.line, e.column, e.path);
        errors.iter().map(|e| (e.code, place(e))).collect()
    })
}

#[test]
fn tools_that_are_named_must_exist() {
    // J9 F1 A14
    let undo = "[{tool: undo, effect: idempotent, permission: p}, {tool: look, effect: read_only, permission: p}]";
    let tool = verified("    expect: {a: 1}\nrequires: [undo]\nreplaced_by: look");
    let whole = set(&[&tool, undo]).unwrap();
    assert_eq!(whole.len(), 3);
    assert!(whole.get(&"undo".parse().unwrap()).is_some() && whole.get(&"other".parse().unwrap()).is_none());
    let names: Vec<_> = whole.iter().map(|m| m.tool.to_string()).collect();
    assert_eq!(names, ["look", "t", "undo"]);
    let errors = set(&[&tool]).unwrap_err();
    let at = |place: &str| (Code::UnknownTool, format!("a.yaml:{place}"));
    assert_eq!(
        errors,
        [
            at("5:9 compensation.tool"),
            at("7:11 compensation.verification.tool"),
            at("9:12 requires[0]"),
            at("10:14 replaced_by"),
        ]
    );
    let writer = "[{tool: undo, effect: idempotent, permission: p}, {tool: look, effect: idempotent, permission: p}]";
    let errors = set(&[&tool, writer]).unwrap_err();
    let place = "a.yaml:7:11 compensation.verification.tool".to_owned();
    assert_eq!(errors, [(Code::VerificationNotReadOnly, place)]);
}

#[test]
fn a_tool_has_one_manifest() {
    // J9
    let errors = set(&[&reader(""), &reader(""), "[{tool: u, effect: read_only, permission: p}]"]).unwrap_err();
    assert_eq!(errors, [(Code::DuplicateTool, "b.yaml:1:7 tool".to_owned())]);
}

#[test]
fn near_names_of_tools_are_suggested() {
    let text = "[{tool: mail.send, effect: read_only, permission: p}, {tool: t, effect: read_only, permission: p, \
                requires: [mail.sned]}]";
    let manifests = load("m.yaml", text.as_bytes()).unwrap();
    let errors = ManifestSet::new(manifests.into_iter().map(|m| ("m.yaml".to_owned(), m)).collect()).unwrap_err();
    assert_eq!(errors[0].hint.as_deref(), Some("did you mean `mail.send`?"));
    assert_eq!(errors[0].path, "[1].requires[0]");
    // What it is called itself is never what was meant.
    let text = "[{tool: mail.send, effect: read_only, permission: p, requires: [mail.sned]}]";
    let manifests = load("m.yaml", text.as_bytes()).unwrap();
    let errors = ManifestSet::new(manifests.into_iter().map(|m| ("m.yaml".to_owned(), m)).collect()).unwrap_err();
    assert_eq!(errors[0].hint, None);
    for (wrong, meant) in
        [("readonly", "read_only"), ("Irreversible", "irreversible"), ("compensatable", "compensable")]
    {
        let errors = load("m.yaml", format!("{{tool: t, effect: {wrong}, permission: p}}").as_bytes()).unwrap_err();
        assert_eq!(errors[0].hint, Some(format!("did you mean `{meant}`?")));
    }
}

#[test]
fn the_checksum_of_a_set_is_over_names_versions_and_checksums() {
    let one = set(&[&reader(""), "{tool: u, effect: read_only, permission: p}"]).unwrap();
    let rows: Vec<_> = one.iter().map(|m| (m.tool.clone(), m.version, m.checksum())).collect();
    let text = reversi_proto::canonical::Canonical::of(&rows).unwrap();
    let expected = <sha2::Sha256 as sha2::Digest>::digest(text.as_str().as_bytes());
    assert_eq!(one.checksum().0, <[u8; 32]>::from(expected));
    let swapped = set(&["{tool: u, effect: read_only, permission: p}", &reader("")]).unwrap();
    assert_eq!(one.checksum(), swapped.checksum());
    let other = set(&[&reader("version: 2"), "{tool: u, effect: read_only, permission: p}"]).unwrap();
    assert_ne!(one.checksum(), other.checksum());
}
