//! Contract tests of manifests: each field of a case with one that passes and one that fails, by the daemon's own code.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use proptest::prelude::*;
use reversi_actors::contract::run;
use reversi_proto::contract::load;
use reversi_proto::manifest::{self, ManifestSet};

const MANIFESTS: &str = r#"
- {tool: doc.read, effect: read_only, permission: docs:read}
- {tool: doc.restore, effect: idempotent, permission: docs:write}
- {tool: acl.check, effect: read_only, permission: acl:read, approval: always}
- tool: doc.open
  effect: idempotent
  permission: docs:open
  requires: [acl.check]
  idempotency: {key: "{{args.doc}}-{{args.page.0.id}}", scope: global}
- tool: doc.write
  effect: reversible
  permission: docs:write
  requires: [doc.open]
  idempotency: {key: "{{args.name}}", scope: global}
  compensation:
    tool: doc.restore
    kind: inverse
    requires_approval: true
    argument_map: {token: $result.token, name: $args.name}
    verification:
      tool: doc.read
      arguments: {token: $result.token}
      expect: {before: true, "owner.id": 7}
      retries: 10
      backoff_ms: 365d
- tool: doc.append
  effect: compensable
  permission: docs:write
  approval: {roles: [editor], quorum: 3}
  compensation: {tool: doc.restore, argument_map: {token: $result.token}}
- {tool: doc.new, effect: idempotent, permission: docs:write, status: draft}
- tool: mail.send
  effect: irreversible
  permission: mail:send
  requires: [doc.open]
  idempotency: {key: "{{args.to}}"}
- {tool: mail.log, effect: idempotent, permission: mail:log, requires: [mail.send]}
- {tool: ring.a, effect: idempotent, permission: p, requires: [ring.b]}
- {tool: ring.b, effect: idempotent, permission: p, requires: [ring.a]}
"#;

fn set(text: &str) -> ManifestSet {
    let manifests = manifest::load("m.yaml", text.as_bytes()).unwrap();
    ManifestSet::new(manifests.into_iter().map(|manifest| ("m.yaml".to_owned(), manifest)).collect()).unwrap()
}

/// What the case did not see, as lines.
fn failures_with(manifests: &str, case: &str) -> Vec<String> {
    let cases = load("c.yaml", format!("{{name: n, {case}}}").as_bytes()).unwrap();
    let results = run(&set(manifests), &cases);
    let lines = results[0].failures.iter().flat_map(|failure| {
        let places = failure.differences.iter().map(|difference| format!("  {difference}"));
        std::iter::once(format!("{}: {}", failure.field, failure.message)).chain(places).collect::<Vec<_>>()
    });
    lines.collect()
}

fn failures(case: &str) -> Vec<String> {
    failures_with(MANIFESTS, case)
}

#[track_caller]
fn passes(case: &str) {
    let failures = failures(case);
    assert!(failures.is_empty(), "{case}: {failures:#?}");
}

#[track_caller]
fn fails(case: &str, expected: &[&str]) {
    assert_eq!(failures(case), expected, "{case}");
}

const WRITE: &str = "tool: doc.write, args: {name: a}, result: {token: t1}";

fn write(rest: &str) -> String {
    format!("{WRITE}, {rest}")
}

// Q3
#[test]
fn the_call_must_be_allowed_unless_a_refusal_is_expected() {
    passes("tool: doc.read");
    passes(WRITE);
    fails(
        "tool: doc.gone",
        &[
            "tool: expected that the call is allowed, got: refused, because no manifest for doc.gone: declare the tool first",
        ],
    );
    fails(
        "tool: doc.write, args: {}",
        &[
            "tool: expected that the call is allowed, got: refused, because the idempotency key needs the argument name, \
           which is missing",
        ],
    );
}

// Q3 - expect_plan in all its words
#[test]
fn the_plan_is_what_a_rollback_would_do() {
    passes(&write("expect_plan: compensate"));
    passes("tool: doc.read, expect_plan: skip");
    passes("tool: doc.write, args: {name: a}, result: {id: 1}, expect_plan: unrecoverable");
    passes("tool: doc.write, args: {name: a}, expect_plan: unrecoverable");
    passes("tool: mail.send, args: {to: x}, expect_plan: not_undoable");
    passes("tool: doc.write, args: {name: a}, fail: no, expect_plan: skip");
    passes("tool: doc.new, expect_blocked: draft, expect_plan: skip");
    fails(&write("expect_plan: skip"), &["expect_plan: expected skip, got compensate"]);
    fails("tool: doc.read, expect_plan: compensate", &["expect_plan: expected compensate, got skip (read_only)"]);
    fails(
        "tool: doc.write, args: {name: a}, result: {id: 1}, expect_plan: compensate",
        &["expect_plan: expected compensate, got unrecoverable (missing $result.token)"],
    );
    fails(&write("expect_plan: unresolved"), &["expect_plan: expected unresolved, got compensate"]);
}

// Q3 - result and fail
#[test]
fn a_failed_call_leaves_nothing_to_undo() {
    passes("tool: doc.write, args: {name: a}, fail: disk full");
    passes("tool: mail.send, args: {to: x}, fail: bounced");
    fails(
        "tool: doc.write, args: {name: a}, fail: disk full, expect_plan: compensate",
        &["expect_plan: expected compensate, got skip (failed)"],
    );
    fails(
        "tool: doc.write, args: {name: a}, fail: disk full, expect_handle: {}",
        &["expect_handle: expected that the undo is called with {}, got: no call, the plan is skip (failed)"],
    );
}

// Q3 Q5
#[test]
fn the_handle_is_what_the_undo_is_called_with() {
    passes(&write("expect_handle: {token: t1, name: a}"));
    passes("tool: doc.append, result: {token: {deep: [1.0, null]}}, expect_handle: {token: {deep: [1, null]}}");
    fails(
        &write("expect_handle: {token: a, extra: 1}"),
        &[
            "expect_handle: the arguments of the undo doc.restore differ",
            "  extra: expected 1, got nothing",
            r#"  token: expected "a", got "t1""#,
            r#"  name: expected nothing, got "a""#,
        ],
    );
    fails(
        "tool: doc.write, args: {name: a}, result: {}, expect_handle: {token: t1}",
        &[
            r#"expect_handle: expected that the undo is called with {"token":"t1"}, got: no call, the plan is unrecoverable (missing $result.token)"#,
        ],
    );
}

// Q3 Q5
#[test]
fn the_verification_is_what_the_read_back_is_called_with() {
    passes(&write("expect_verification: {token: t1}"));
    fails(
        &write("expect_verification: {token: t2}"),
        &["expect_verification: the arguments of the read-back doc.read differ", r#"  token: expected "t2", got "t1""#],
    );
    fails(
        "tool: doc.append, result: {token: t}, expect_verification: {token: t}",
        &[
            r#"expect_verification: expected that the read-back is called with {"token":"t"}, got: no call, the manifest declares no verification"#,
        ],
    );
}

// Q3 - verify_with and expect_verified. The backoffs of the last one add up to centuries: nobody sleeps.
#[test]
fn a_read_back_is_accepted_or_not() {
    passes(&write("verify_with: {before: true, owner: {id: 7, more: 1}}, expect_verified: true"));
    passes(&write("verify_with: {before: true}, expect_verified: false"));
    passes(&write("verify_with: null, expect_verified: false"));
    fails(
        &write("verify_with: {before: true, owner: {id: 8}}, expect_verified: true"),
        &[
            "expect_verified: expected that `verify_with` is accepted, got: not accepted",
            "  owner.id: expected 7, got 8",
        ],
    );
    fails(
        &write("verify_with: {before: true, owner: {id: 7}}, expect_verified: false"),
        &["expect_verified: expected that `verify_with` is not accepted, got: accepted"],
    );
    for expected in [true, false] {
        let seen = failures(&format!(
            "tool: doc.append, result: {{token: t}}, verify_with: {{}}, expect_verified: {expected}"
        ));
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert!(seen[0].ends_with("got: no read-back, the manifest declares no verification"), "{seen:?}");
    }
}

// Q3 - expect_duplicate, of calls that stand and of one that does not, in both modes
#[test]
fn the_same_call_again_is_a_duplicate_while_the_first_stands() {
    passes(&write("expect_duplicate: true"));
    passes(&write("expect_duplicate: true, expect_plan: compensate, expect_handle: {token: t1, name: a}"));
    passes("tool: doc.write, args: {name: a}, fail: no, expect_duplicate: false");
    passes("tool: mail.send, args: {to: x}, expect_duplicate: true");
    passes("tool: mail.send, args: {to: x}, fail: no, expect_duplicate: false");
    passes("tool: doc.append, expect_duplicate: false");
    fails(
        "tool: doc.append, expect_duplicate: true",
        &["expect_duplicate: expected that the same call again is refused as a duplicate, got: allowed"],
    );
    let seen = failures(&write("expect_duplicate: false"));
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].contains("no duplicate, got: refused, because duplicate of a call that still stands"), "{seen:?}");
}

// Q3 - after, and by default what the manifest requires, with what that requires
#[test]
fn what_comes_first_can_be_chosen() {
    passes(WRITE);
    passes("tool: mail.log");
    passes(&write("after: [doc.open, {tool: doc.open, args: {doc: d, page: [{id: 2}]}, result: {pages: 3}}]"));
    passes(&write("after: [], expect_blocked: requires doc.open to have succeeded"));
    passes(
        "tool: doc.append, after: [{tool: doc.write, args: {name: b}, result: {token: t2}}], result: {token: t1}, expect_handle: {token: t1}",
    );
    fails(
        &write("after: []"),
        &["tool: expected that the call is allowed, got: refused, because doc.write requires doc.open to have \
           succeeded earlier in this run"],
    );
    fails(
        &write("after: [doc.new]"),
        &[
            "after: expected that doc.new can be called before, got: refused, because the manifest of doc.new is a draft",
        ],
    );
    fails(
        &write("after: [{tool: doc.open, args: {}}]"),
        &["after: expected that doc.open can be called before, got: refused, because the idempotency key needs the \
           argument doc, which is missing"],
    );
    let seen = failures("tool: ring.a");
    assert!(seen[0].starts_with("after: expected that ring.b can be called before"), "{seen:?}");
}

// Q3
#[test]
fn a_refusal_is_for_the_reason_that_is_expected() {
    passes("tool: doc.new, expect_blocked: is a draft");
    passes("tool: doc.gone, expect_blocked: no manifest");
    passes("tool: doc.write, args: {}, expect_blocked: needs the argument name");
    fails(
        "tool: doc.new, expect_blocked: halted",
        &[
            r#"expect_blocked: expected a refusal because of "halted", got: refused, because the manifest of doc.new is a draft"#,
        ],
    );
    fails(
        "tool: doc.read, expect_blocked: is a draft",
        &[r#"expect_blocked: expected that the call is refused because of "is a draft", got: allowed"#],
    );
}

// Q6
#[test]
fn approvals_stand_in_nobodys_way_but_can_be_seen() {
    passes("tool: doc.append, result: {token: t}, expect_plan: compensate, expect_handle: {token: t}");
    passes("tool: mail.send, args: {to: x}, expect_plan: not_undoable");
    passes("tool: doc.append, expect_blocked: approval");
    passes("tool: mail.send, args: {to: x}, expect_blocked: approval");
    fails(
        "tool: doc.read, expect_blocked: approval",
        &[r#"expect_blocked: expected that the call is refused because of "approval", got: allowed"#],
    );
    // Saying yes is no yes to anything else that speaks against the call.
    fails(
        "tool: mail.send, args: {to: x}, after: []",
        &["tool: expected that the call is allowed, got: refused, because mail.send requires doc.open to have \
           succeeded earlier in this run"],
    );
}

const PAGE_MANIFESTS: &str = include_str!("../../manifests/payments.yaml");
const PAGE_CASES: &str = include_str!("../../examples/contract/tests/payments.test.yaml");

fn page(manifests: &str) -> Vec<bool> {
    let cases = load("payments.test.yaml", PAGE_CASES.as_bytes()).unwrap();
    run(&set(manifests), &cases).iter().map(reversi_actors::contract::CaseResult::passed).collect()
}

// Q2 Q6
#[test]
fn the_pages_example_passes_and_a_changed_manifest_makes_it_fail() {
    assert_eq!(page(PAGE_MANIFESTS), [true; 3]);
    for (old, new, first, third) in [
        (
            "charge_id: $result.id\n      amount: $args.amount",
            "charge_id: $args.amount\n      amount: $result.id",
            false,
            true,
        ),
        ("charge_id: $result.id\n      amount", "id: $result.id\n      amount", false, true),
        ("arguments: { charge_id: $result.id }", "arguments: { charge_id: $args.order_id }", false, true),
        ("arguments: { charge_id: $result.id }", "arguments: { charge_id: $result.charge }", false, true),
        ("expect: { refunded: true }", "expect: { status.refunded: true }", false, true),
        ("expect: { refunded: true }", "expect: { refunded: \"true\" }", false, true),
        ("charge-{{args.order_id}}", "charge-{{args.customer}}", false, false),
        ("  idempotency: { key: \"charge-{{args.order_id}}\", scope: global }\n", "", true, false),
    ] {
        assert!(PAGE_MANIFESTS.contains(old), "{old}");
        let passed = page(&PAGE_MANIFESTS.replacen(old, new, 1));
        assert_eq!((passed[0], passed[2]), (first, third), "{old} -> {new}");
    }
}

#[test]
fn cases_do_not_see_each_other_and_keep_their_order() {
    // The key is global and the first call of each stands: in one ledger all but one would be duplicates.
    let case = |n: usize| {
        let plan = if n.is_multiple_of(7) { "skip" } else { "compensate" };
        format!("- {{name: case {n}, {WRITE}, expect_plan: {plan}}}\n")
    };
    let cases = load("c.yaml", (0..100).map(case).collect::<String>().as_bytes()).unwrap();
    let results = run(&set(MANIFESTS), &cases);
    assert_eq!(results.len(), 100);
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result.passed(), !n.is_multiple_of(7), "{n}: {:?}", result.failures);
    }
    assert!(run(&set(MANIFESTS), &[]).is_empty());
}

#[test]
fn what_the_daemon_does_not_take_fails_the_case_and_no_other() {
    let tool = |n: usize| format!("- {{tool: t{n}, effect: idempotent, permission: p{n}}}\n");
    let names: Vec<String> = (1..300).map(|n| format!("t{n}")).collect();
    let cases = format!("- {{name: many, tool: t0, after: [{}]}}\n- {{name: few, tool: t0}}", names.join(", "));
    let cases = load("c.yaml", cases.as_bytes()).unwrap();
    let results = run(&set(&(0..300).map(tool).collect::<String>()), &cases);
    assert_eq!(results[0].failures[0].message, "the case can't be played: at most 256 permissions");
    assert!(results[1].passed(), "{:?}", results[1].failures);
}

/// A field with one of these values, or without.
fn field(name: &'static str, values: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::option::of(proptest::sample::select(values))
        .prop_map(move |value| value.map_or(String::new(), |value| format!(", {name}: {value}")))
}

const TOOLS: &[&str] = &[
    "doc.read",
    "doc.restore",
    "acl.check",
    "doc.open",
    "doc.write",
    "doc.append",
    "doc.new",
    "mail.send",
    "mail.log",
    "ring.a",
    "doc.gone",
];
const OBJECTS: &[&str] = &["{}", "{name: a}", "{token: t1}", "{to: x, name: [a]}", "{before: true, owner: {id: 7}}"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_can_be_read_can_be_played(
        tool in proptest::sample::select(TOOLS),
        fields in [
            field("args", OBJECTS).boxed(),
            prop_oneof![field("result", OBJECTS), field("result", &["null", "7"]), field("fail", &["x"])].boxed(),
            field("after", &["[]", "[doc.open, doc.open]", "[ring.b]", "[mail.send]", "[doc.gone]"]).boxed(),
            field("expect_plan", &["compensate", "skip", "unrecoverable", "not_undoable", "unresolved"]).boxed(),
            prop_oneof![
                field("expect_blocked", &["approval", "x"]).boxed(),
                [
                    field("expect_handle", OBJECTS).boxed(),
                    field("expect_verification", OBJECTS).boxed(),
                    field("verify_with", &["null, expect_verified: true", "{before: true}, expect_verified: false"]).boxed(),
                    field("expect_duplicate", &["true", "false"]).boxed(),
                ].prop_map(|fields| fields.concat()).boxed(),
            ].boxed(),
        ],
    ) {
        let text = format!("{{name: n, tool: {tool}{}}}", fields.concat());
        let cases = load("c.yaml", text.as_bytes()).map_err(|told| TestCaseError::fail(format!("{text}: {told:?}")))?;
        for failure in &run(&set(MANIFESTS), &cases)[0].failures {
            prop_assert!(!failure.message.contains("can't be played"), "{text}: {}", failure.message);
        }
    }
}
