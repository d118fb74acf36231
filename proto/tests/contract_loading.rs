//! Test files of manifests: what is read, and that every mistake is told with its place.
#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use reversi_proto::contract::{Ending, load};
use reversi_proto::run::PlanAction;
use serde_json::json;

const PAGE: &str = include_str!("../../examples/contract/tests/payments.test.yaml");

/// Every mistake as a line, without the file's name.
fn mistakes(text: &str) -> Vec<String> {
    mistakes_of("c.yaml", text)
}

fn mistakes_of(file: &str, text: &str) -> Vec<String> {
    let start = format!("{file}:");
    let told = load(file, text.as_bytes()).map(|_| ()).unwrap_err();
    told.iter().map(|told| told.to_string().strip_prefix(&start).unwrap().trim_start().to_owned()).collect()
}

// Q3
#[test]
fn every_field_is_read() {
    let text = r#"
name: all of it
tool: a.b
args: {n: 1.0, l: [null, "1"]}
result: {id: x}
after: [c, {tool: d, args: {e: 1}, result: [2]}]
expect_plan: compensate
expect_handle: {id: x}
expect_verification: {id: 1}
verify_with: null
expect_verified: false
expect_duplicate: true
"#;
    let case = load("c.yaml", text.as_bytes()).unwrap().remove(0);
    assert_eq!(
        (case.name.as_str(), case.tool.as_str(), case.source.as_str(), case.line),
        ("all of it", "a.b", "c.yaml", 2)
    );
    assert_eq!(json!(case.args), json!({"n": 1, "l": [null, "1"]}));
    assert_eq!(case.ending, Ending::Succeeds(Some(json!({"id": "x"}))));
    let after = case.after.unwrap();
    assert_eq!((after[0].tool.as_str(), &after[0].args, &after[0].result), ("c", &None, &None));
    assert_eq!((json!(after[1].args), json!(after[1].result)), (json!({"e": 1}), json!([2])));
    let expect = case.expect;
    assert!(expect.needs_rollback());
    assert_eq!(expect.plan, Some(PlanAction::Compensate));
    assert_eq!((json!(expect.handle), json!(expect.verification)), (json!({"id": "x"}), json!({"id": 1})));
    assert_eq!((expect.verified, expect.duplicate, expect.blocked), (Some((json!(null), false)), Some(true), None));

    let case = load("c.yaml", b"{name: n, tool: t, fail: no, expect_blocked: draft}").unwrap().remove(0);
    assert_eq!((case.ending, case.after), (Ending::Fails("no".to_owned()), None));
    assert_eq!(case.expect.blocked.as_deref(), Some("draft"));
    let case = load("c.yaml", b"{name: n, tool: t}").unwrap().remove(0);
    assert_eq!((case.ending, case.args.len()), (Ending::Succeeds(None), 0));
    let case = load("c.yaml", b"{name: n, tool: t, result: null}").unwrap().remove(0);
    assert_eq!(case.ending, Ending::Succeeds(Some(json!(null))));
    for (word, _) in PlanAction::WORDS {
        load("c.yaml", format!("{{name: n, tool: t, expect_plan: {word}}}").as_bytes()).unwrap();
    }
}

#[test]
fn files_hold_one_case_many_or_documents_of_them() {
    assert_eq!(load("p.yaml", PAGE.as_bytes()).unwrap().len(), 3);
    let several = "name: a\ntool: t\n---\n# nothing\n---\n- {name: b, tool: t}\n- {name: c, tool: t}\n";
    let names: Vec<String> = load("p.yaml", several.as_bytes()).unwrap().into_iter().map(|case| case.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(load("p.json", br#"[{"name": "a", "tool": "t"}]"#).unwrap().len(), 1);
    assert_eq!(mistakes_of("p.json", "[{name: a}]"), ["1:3: this is not valid JSON: key must be a string"]);
    for empty in ["", "# only words\n", "[]", "---\n---\n"] {
        let told = mistakes(empty);
        assert_eq!(
            told,
            ["the file holds no contract test (write at least one case, or remove the file)"],
            "{empty:?}"
        );
    }
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let text = r#"
- name: ""
  tool: "a b"
  arg: {}
- tool: t
  args: [1]
  result: 1
  fail: no
  expect_plan: compensat
- name: n
  expect_handle: x
  verify_with: {a: 1}
  expect_duplicate: yes
- {name: n, tool: t, expect_verified: true}
- {name: n, tool: t, expect_blocked: x, expect_handle: {}, expect_duplicate: true}
- {name: n, tool: t, after: [{tol: x}, 1, "a b"]}
- word
"#;
    assert_eq!(
        mistakes(text),
        [
            "2:9: [0].name: must not be blank (leave it out instead)",
            "3:9: [0].tool: must be a tool name, got \"a b\" (letters, digits and _ . : / -, 1 to 128 characters)",
            "4:3: [0].arg: unknown field \"arg\" (did you mean `args`?)",
            "5:3: [1]: the field `name` is missing",
            "6:9: [1].args: must be an object, got a list",
            "8:9: [1].fail: `result` and `fail` exclude each other: the call returns something, or it fails (keep one of them)",
            "9:16: [1].expect_plan: must be one of compensate, skip, not_undoable, unrecoverable, unresolved, got \
             \"compensat\" (did you mean `compensate`?)",
            "10:3: [2]: the field `tool` is missing",
            "11:18: [2].expect_handle: must be an object, got text",
            "12:16: [2].verify_with: `verify_with` needs `expect_verified` beside it (say what is read back, and whether \
             that is good)",
            "13:21: [2].expect_duplicate: must be a boolean, got the text \"yes\" (write true or false)",
            "14:39: [3].expect_verified: `expect_verified` needs `verify_with` beside it (say what is read back, and \
             whether that is good)",
            "15:56: [4].expect_handle: a call that must be refused is never made, so this can't be seen (write a case of \
             its own for it)",
            "15:78: [4].expect_duplicate: a call that must be refused is never made, so this can't be seen (write a case \
             of its own for it)",
            "16:30: [5].after[0]: the field `tool` is missing",
            "16:31: [5].after[0].tol: unknown field \"tol\" (did you mean `tool`?)",
            "16:40: [5].after[1]: must be a tool name or an object with `tool`, got a number",
            "16:43: [5].after[2]: must be a tool name, got \"a b\" (letters, digits and _ . : / -, 1 to 128 characters)",
            "17:3: [6]: must be a contract test (an object with `name` and `tool`), got text",
        ]
    );
}

#[test]
fn another_kind_of_file_is_told_once() {
    let told = mistakes("version: 2\nservices:\n  web: {image: x}\n");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("1:1: this is not a contract test (a case has `name` and `tool`; move"), "{told:?}");
    assert!(mistakes("a: [1").len() == 1 && mistakes("\u{feff}name: a").len() == 1);
}

proptest! {
    #[test]
    fn no_file_is_too_strange(
        edits in proptest::collection::vec((0..PAGE.len(), prop_oneof![
            Just(String::new()), Just("\n".to_owned()), Just("- ".to_owned()), Just("{".to_owned()), Just("}".to_owned()),
            Just("[".to_owned()), Just(": ".to_owned()), Just("&a ".to_owned()), Just("*a".to_owned()), Just("null".to_owned()),
            Just("---\n".to_owned()), Just("1e999".to_owned()), Just("'".to_owned()), ".{1,3}",
        ], 0..12_usize), 1..6),
        json in any::<bool>(),
    ) {
        let mut bytes = PAGE.as_bytes().to_vec();
        for (at, text, cut) in edits {
            let at = at.min(bytes.len());
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, text.into_bytes());
        }
        match load(if json { "c.json" } else { "c.yaml" }, &bytes) {
            Ok(cases) => prop_assert!(!cases.is_empty()),
            Err(told) => prop_assert!(!told.is_empty()),
        }
    }
}
