//! Files as they come: YAML, JSON, broken, hostile; and the way back from the normalized form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::Path;

use reversi_proto::canonical::Canonical;
use reversi_proto::manifest::{
    Approval, Code, DEPTH_MAX, Diagnostic, FILE_BYTES_MAX, Loaded, Manifest, ManifestSet, RestoreError,
    build_arguments, load, undo_values,
};
use serde_json::{Value, json};

const PAYMENTS: &str = include_str!("../../manifests/payments.yaml");
const SMALL: &str = "{tool: t, effect: read_only, permission: p}";

fn codes(name: &str, bytes: &[u8]) -> Vec<(u32, u32, Code)> {
    load(name, bytes).expect_err("accepted").iter().map(|e| (e.line, e.column, e.code)).collect()
}

fn errors(text: &str) -> Vec<Diagnostic> {
    load("m.yaml", text.as_bytes()).expect_err(text)
}

#[test]
fn the_example_of_the_page() {
    // A4 A22
    let list = load("payments.yaml", PAYMENTS.as_bytes()).unwrap();
    assert_eq!(list.len(), 3);
    let normalized = serde_json::to_value(&list[1]).unwrap();
    let expected = json!({
        "tool": "stripe.create_charge", "description": "Charge a card.", "effect": "compensable",
        "permission": "payments:write", "owner": "payments-team@example.com", "oncall": "payments-oncall",
        "risk": {"data_class": "financial", "blast_radius": "high", "environment": "prod"}, "timeout_ms": 30_000,
        "idempotency": {"key": "charge-{{args.order_id}}", "scope": "global"},
        "audit": {"retention_days": 2555, "evidence_export": "required", "redaction": ["$args.card_token"]},
        "approval": "always",
        "approval_rules": {"roles": ["finance"], "quorum": 2, "timeout_ms": 900_000, "on_timeout": "escalate",
            "escalate_to": ["cfo"]},
        "compensation": {"tool": "stripe.refund", "kind": "compensation",
            "residue": ["the charge still appears on the customer's statement"], "requires_approval": false,
            "timeout_ms": 20_000, "argument_map": {"charge_id": "$result.id", "amount": "$args.amount"},
            "verification": {"tool": "stripe.get_charge", "arguments": {"charge_id": "$result.id"},
                "expect": {"refunded": true}, "retries": 3, "backoff_ms": 2000}},
        "requires": [], "version": 1, "status": "approved",
    });
    assert_eq!(normalized, expected);
    let refund = json!({"tool": "stripe.refund", "description": "Refund a charge.", "effect": "idempotent",
        "permission": "payments:write", "approval": "never", "requires": [], "version": 1, "status": "approved",
        "retry": {"attempts": 3, "base_ms": 200, "max_ms": 5000}});
    assert_eq!(serde_json::to_value(&list[2]).unwrap(), refund);
}

#[test]
fn every_example_file_and_all_of_them_together() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
    let mut all = Vec::new();
    let entries = [folder.clone(), folder.join("demo")].map(|folder| std::fs::read_dir(folder).unwrap());
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let list = load(&name, &std::fs::read(&path).unwrap()).unwrap_or_else(|errors| panic!("{errors:#?}"));
        all.extend(list.into_iter().map(|manifest| (name.clone(), manifest)));
    }
    let set = ManifestSet::new(all).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let tools = set.iter().filter(|m| m.tool.as_str().starts_with("fs.")).count();
    assert_eq!((set.len(), tools), (13, 9));
    let mail = set.get(&"mail.send".parse().unwrap()).unwrap();
    assert!(matches!(mail.approval, Approval::Always(_)));
}

#[test]
fn one_object_an_array_or_several_documents() {
    // A1
    assert_eq!(load("m.yaml", SMALL.as_bytes()).unwrap().len(), 1);
    assert_eq!(load("m.yaml", format!("[{SMALL}, {SMALL}]").as_bytes()).unwrap().len(), 2);
    let documents = format!("%YAML 1.2\n---\n{SMALL}\n---\n# nothing\n---\n[{SMALL}, {SMALL}]\n...\n");
    assert_eq!(load("m.yaml", documents.as_bytes()).unwrap().len(), 3);
    let found = errors(&format!("{SMALL}\n---\n- {SMALL}\n- {{tool: t, effect: read_only}}\n"));
    assert_eq!((found[0].path.as_str(), found[0].line), ("document[1][1]", 4));
}

#[test]
fn a_broken_document_does_not_hide_the_errors_of_others() {
    let text =
        "tool: 5\neffect: x\npermission: p\n---\nbroken: [1, 2\n---\ntool: t\neffect: read_only\npremission: p\n";
    let found: Vec<_> = errors(text).iter().map(|e| (e.line, e.code)).collect();
    let expected = [
        (1, Code::WrongType),
        (2, Code::UnknownValue),
        (5, Code::Syntax),
        (7, Code::MissingField),
        (9, Code::UnknownField),
    ];
    assert_eq!(found, expected);
}

#[test]
fn json_is_strict_and_has_places() {
    // A1
    let good = b"{\n\t\"tool\": \"t\", \"effect\": \"read_only\", \"permission\": \"\\u0070\\/x\", \"version\": 2e0}\n";
    let list = load("m.json", good).unwrap();
    assert_eq!((list[0].permission.as_str(), list[0].version), ("p/x", 2));
    assert_eq!(codes("m.json", SMALL.as_bytes()), [(1, 2, Code::StrictJson)]);
    assert_eq!(codes("m.JSON", b"[1,]")[0].2, Code::StrictJson);
    let twice = b"{\"tool\": \"t\",\n \"effect\": \"read_only\", \"permission\": \"p\",\n \"to\\u006fl\": \"u\"}";
    assert_eq!(codes("m.json", twice), [(3, 2, Code::DuplicateKey)]);
    let wrong = b"[\n  {\"tool\": \"t\", \"effect\": \"read_only\",\n   \"permission\": 5}\n]";
    assert_eq!(codes("m.json", wrong), [(3, 18, Code::WrongType)]);
    // In a file of any other name the same is YAML, which JSON is a part of.
    assert_eq!(load("m.yml", good).unwrap(), list);
}

#[test]
fn duplicate_keys_are_refused_at_any_depth() {
    let found = errors("tool: t\neffect: read_only\npermission: p\nrisk:\n  data_class: a\n  data_class: b\n");
    assert_eq!((found[0].code, found[0].line, found[0].column), (Code::DuplicateKey, 6, 3));
    assert!(found[0].message.contains("first on line 5"), "{}", found[0].message);
    assert_eq!(found[0].path, "risk");
}

#[test]
fn yaml_is_version_1_2_without_magic() {
    let base = "tool: t\neffect: read_only\npermission: p\n";
    // `no` and `on` are text, not booleans, and not a boolean where one is wanted.
    let list = load("m.yaml", format!("{base}owner: no\noncall: on\n").as_bytes()).unwrap();
    assert_eq!((list[0].owner.as_deref(), list[0].oncall.as_deref()), (Some("no"), Some("on")));
    let found = errors(&format!("{base}approval: {{required: no}}"));
    assert_eq!(found[0].hint.as_deref(), Some("write true or false"));
    let found = errors(&format!("{base}<<: {{owner: a}}"));
    assert!(found[0].hint.as_deref().unwrap().contains("merge keys"));
    assert_eq!(errors(&format!("{base}owner: !secret a"))[0].code, Code::YamlFeature);
    assert_eq!(errors(&format!("{base}version: !!int 3"))[0].code, Code::YamlFeature);
    assert!(load("m.yaml", format!("{base}owner: !!str 5").as_bytes()).is_ok());
    assert_eq!(errors(&format!("%YAML 1.1\n---\n{base}"))[0].code, Code::YamlFeature);
    assert_eq!(errors(&format!("{base}? [a]\n: b"))[0].code, Code::KeyNotText);
    let found = errors("tool: t\n\teffect: read_only\n");
    assert_eq!(found[0].hint.as_deref(), Some("indent with spaces, not with tabs"));
}

/// A JSON file is read by JSON's own rules: what YAML would take otherwise, or not at all, is told as JSON tells it.
#[test]
fn json_is_not_read_as_yaml() {
    // A key and its colon on different lines, a tab as indentation, a text like an anchor: all good JSON.
    let good = "{\"tool\"\n:\t\"t\",\n\t\"effect\": \"read_only\", \"permission\": \"p\", \"owner\": \"&a *b\"}";
    assert_eq!(load("m.json", good.as_bytes()).unwrap()[0].owner.as_deref(), Some("&a *b"));
    let with_owner = |owner: &str| {
        format!("{{\"tool\": \"t\", \"effect\": \"read_only\",\n \"permission\": \"\u{e9}\", \"owner\": {owner}}}")
    };
    // Line and column of the character where JSON stops making sense, counted in characters.
    for (owner, column, says) in [
        ("\"\\ud800\"", 31, "surrogate"),
        ("\"\\udc00\"", 31, "surrogate"),
        ("\"\\ud800\\u0041\"", 37, "surrogate"),
        ("\"\\u12x4\"", 36, "escape"),
        ("\"\\x41\"", 32, "escape"),
        ("\"a\tb\"", 32, "control character"),
        ("01", 31, "number"),
        ("1e400", 34, "out of range"),
        ("nul", 33, "expected"),
        ("'a'", 30, "expected value"),
        ("\"a\"} {", 35, "trailing"),
        ("\"a", 32, "EOF"),
    ] {
        let text = with_owner(owner);
        let found = load("m.json", text.as_bytes()).unwrap_err();
        assert_eq!((found.len(), found[0].code, found[0].line), (1, Code::StrictJson, 2), "{owner}: {found:?}");
        assert!(found[0].message.contains(says), "{owner}: {}", found[0].message);
        assert!(!found[0].message.contains("YAML"), "{owner}: {}", found[0].message);
        assert_eq!(found[0].column, column, "{owner}");
    }
    assert_eq!(codes("m.json", b""), [(1, 1, Code::StrictJson)]);
    assert_eq!(codes("m.json", "{\"a\": \"\u{2028}".as_bytes())[0].2, Code::StrictJson);
    assert_eq!(codes("m.json", b"[0.00001]"), [(1, 2, Code::NumberRange)]);
    // Pairs of surrogates, separators of lines that are none in JSON, the largest and smallest numbers.
    let text = with_owner("\"\\ud83d\\ude00 \u{1f600}\u{2028}\u{feff}\\/\"");
    assert_eq!(
        load("m.json", text.as_bytes()).unwrap()[0].owner.as_deref(),
        Some("\u{1f600} \u{1f600}\u{2028}\u{feff}/")
    );
    // Columns count characters, also of what was read before on the line.
    let text = "[\n {\"owner\": \"\u{e9}\u{e9}\u{1f600}\", \"tool\": 5, \"effect\": \"read_only\", \"permission\": \"p\", \"oncall\": 7}]";
    assert_eq!(codes("m.json", text.as_bytes()), [(2, 27, Code::WrongType), (2, 82, Code::WrongType)]);
    assert_eq!(codes("m.json", text.as_bytes()), codes("m.yaml", text.as_bytes()));
    // Nested too deeply, for us and for the parser.
    for depth in [DEPTH_MAX + 1, 10_000, 1_000_000] {
        assert_eq!(
            codes("m.json", "[".repeat(depth).as_bytes())[0].2,
            if depth > 127 { Code::Depth } else { Code::StrictJson }
        );
        let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(codes("m.json", text.as_bytes())[0].2, Code::Depth, "{depth}");
    }
}

#[test]
fn keys_are_the_same_however_they_are_spelled() {
    for (text, line) in [
        ("tool: t\n\"tool\": u\n", 2),
        ("tool: t\n'tool': u\n", 2),
        ("tool: t\n\"to\\x6fl\": u\n", 2),
        ("tool: t\n? tool\n: u\n", 2),
        ("tool: t\n!!str tool: u\n", 2),
        ("&k tool: t\n*k : u\n", 2),
        ("{tool: t,\n tool: u}", 2),
    ] {
        let found = errors(text);
        let twice: Vec<_> = found.iter().filter(|e| e.code == Code::DuplicateKey).map(|e| e.line).collect();
        assert_eq!(twice, [line], "{text:?}: {found:?}");
    }
    // Of three, two are one too many.
    let found = errors("tool: t\ntool: u\ntool: v\n");
    assert_eq!(found.iter().filter(|e| e.code == Code::DuplicateKey).count(), 2);
}

/// What people write who know YAML 1.1, Windows or another tool; each has an error that says what to do, or works.
#[test]
fn yaml_as_it_comes() {
    let base = "tool: t\neffect: read_only\npermission: p\n";
    let with = |more: &str| load("m.yaml", format!("{base}{more}").as_bytes());
    // Line breaks of other systems, also mixed; the end of the file without one.
    assert_eq!(load("m.yaml", base.replace('\n', "\r\n").as_bytes()).unwrap().len(), 1);
    assert_eq!(load("m.yaml", base.trim_end().as_bytes()).unwrap().len(), 1);
    assert_eq!(with("owner: a\r\noncall: b").unwrap()[0].oncall.as_deref(), Some("b"));
    let found = load("m.yaml", base.replace('\n', "\r\n").replace("read_only", "x").as_bytes()).unwrap_err();
    assert_eq!((found[0].line, found[0].column), (2, 9));
    // Comments and end marks.
    assert_eq!(with("# the end\n...\n").unwrap().len(), 1);
    assert_eq!(with("--- # nothing\n").unwrap().len(), 1);
    // Each is one error with a hint, at its place.
    let deep = "owner: ".to_owned() + &"[".repeat(10_000);
    for (more, line, code, hint) in [
        ("owner:", 4, Code::WrongType, "leave the field out"),
        ("owner: ~", 4, Code::WrongType, "leave the field out"),
        ("owner: null", 4, Code::WrongType, "leave the field out"),
        ("owner: 5", 4, Code::WrongType, "quotes"),
        ("owner: true", 4, Code::WrongType, "quotes"),
        ("version: .nan", 4, Code::NumberRange, "write others as text"),
        ("version: -.inf", 4, Code::NumberRange, "write others as text"),
        ("version: 123456789012345678901234567890", 4, Code::NumberRange, "2^53-1"),
        ("version: 0xFFFFFFFFFFFFFFFFFFFFFF", 4, Code::NumberRange, "2^53-1"),
        ("version: 1e999", 4, Code::NumberRange, "2^53-1"),
        ("version: !!int 1", 4, Code::YamlFeature, "without a tag"),
        ("owner: !!binary aGFsbG8=", 4, Code::YamlFeature, "without a tag"),
        ("owner: !env HOME", 4, Code::YamlFeature, "without a tag"),
        ("risk: !!map {}", 0, Code::Empty, ""),
        ("<<: {owner: a}", 4, Code::UnknownField, "merge keys"),
        ("5: a", 4, Code::KeyNotText, "quotes"),
        ("? [a]\n: b", 4, Code::KeyNotText, "quotes"),
        ("owner: &a [*a]", 4, Code::Alias, ""),
        ("owner: *nobody", 4, Code::Syntax, ""),
        ("owner: \"a", 4, Code::Syntax, ""),
        ("owner: a: b", 4, Code::Syntax, ""),
        ("\towner: a", 3, Code::Syntax, "spaces"),
        ("risk:\n\tdata_class: a", 5, Code::Syntax, "spaces"),
        (deep.as_str(), 4, Code::Depth, "not read"),
    ] {
        let found = match with(more) {
            Ok(list) => {
                assert_eq!((code, list.len()), (Code::Empty, 1), "{more:.40}: accepted");
                continue;
            }
            Err(found) => found,
        };
        let first = found.iter().find(|e| e.code == code).unwrap_or_else(|| panic!("{more:.40}: {found:?}"));
        assert_eq!(first.line, line, "{more:.40}: {first:?}");
        assert!(first.hint.as_deref().unwrap_or_default().contains(hint), "{more:.40}: {first:?}");
    }
    // Bytes that are no text say where.
    assert_eq!(codes("m.yaml", b"tool: t\n\x89PNG\r\n\x1a\n"), [(2, 1, Code::Encoding)]);
    assert_eq!(codes("m.yaml", b"tool: a\0b"), [(1, 8, Code::Encoding)]);
}

/// Mistakes of single files don't hide those between them.
#[test]
fn files_are_judged_together() {
    let of = |files: &[(&str, &str)]| {
        let loaded = files.iter().map(|(name, text)| Loaded::of(name, text.as_bytes())).collect();
        let place = |e: &Diagnostic| (format!("{}:{}:{}", e.source, e.line, e.column), e.code);
        ManifestSet::of_files(loaded).map(|set| set.len()).map_err(|list| list.iter().map(place).collect::<Vec<_>>())
    };
    let at = |place: &str, code: Code| (place.to_owned(), code);
    let undo = "tool: undo\neffect: idempotent\npermission: p\n";
    let needs = "tool: t\neffect: read_only\npermission: p\nrequires:\n  - undo\n  - tool: unod\n";
    let broken = "tool: b\neffect: read_only\npermission: p\nversion: 0\n";
    assert_eq!(
        of(&[
            ("a.yaml", undo),
            ("b.yaml", &needs.replace("unod", "b")),
            ("c.yaml", "tool: b\neffect: read_only\npermission: p")
        ]),
        Ok(3)
    );
    // In the order of the files as they were named, then of the text.
    assert_eq!(
        of(&[("z.yaml", broken), ("a.yaml", needs), ("m.yaml", undo)]),
        Err(vec![at("z.yaml:4:10", Code::OutOfRange), at("a.yaml:6:11", Code::UnknownTool)])
    );
    // What has mistakes counts as there, once.
    assert_eq!(
        of(&[("a.yaml", &needs.replace("unod", "b")), ("b.yaml", broken), ("c.yaml", undo)]),
        Err(vec![at("b.yaml:4:10", Code::OutOfRange)])
    );
    assert_eq!(
        of(&[("a.yaml", undo), ("b.yaml", &broken.replace(": b", ": undo"))]),
        Err(vec![at("b.yaml:1:7", Code::DuplicateTool), at("b.yaml:4:10", Code::OutOfRange)])
    );
    // Where a name may be hidden nothing is called unknown: a text that is not YAML, a field that stands twice, a file
    // that could not be read.
    for (hidden, code, place) in [
        ("tool: [", Code::Syntax, "a.yaml:1:7"),
        ("tool: c\neffect: read_only\npermission: p\ntool: unod\n", Code::DuplicateKey, "a.yaml:4:1"),
    ] {
        assert_eq!(of(&[("a.yaml", hidden), ("b.yaml", needs)]), Err(vec![at(place, code)]), "{hidden}");
    }
    let gone = Diagnostic {
        source: "x".to_owned(),
        line: 0,
        column: 0,
        path: String::new(),
        code: Code::Encoding,
        message: "gone".to_owned(),
        hint: None,
    };
    let files = vec![Loaded::of("b.yaml", needs.as_bytes()), Loaded::unreadable("x", vec![gone.clone()])];
    assert_eq!(ManifestSet::of_files(files), Err(vec![gone]));
    assert_eq!(ManifestSet::of_files(vec![]).map(|set| set.len()), Ok(0));
}

#[test]
fn aliases_are_followed_within_a_budget() {
    let text = "[{tool: t, effect: read_only, permission: p, risk: &r {data_class: pii}}, {tool: u, effect: read_only, \
                permission: p, risk: *r}]";
    assert_eq!(load("m.yaml", text.as_bytes()).unwrap()[1].risk.data_class.as_deref(), Some("pii"));
    let mut bomb = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = format!("*a{}, ", level - 1).repeat(10);
        writeln!(bomb, "b{level}: &a{level} [{items}]").unwrap();
    }
    assert!(errors(&bomb).iter().any(|e| e.code == Code::Alias));
    let long = "y".repeat(1 << 20);
    let wide = format!("a: &a {long}\nb: [{}]", "*a, ".repeat(1000));
    assert!(errors(&wide).iter().any(|e| e.code == Code::Alias));
    assert_eq!(errors("a: &a [*a]")[0].code, Code::Alias);
    assert_eq!(errors("a: *b")[0].code, Code::Syntax);
    // An alias to something high counts its height.
    let mut high = format!("a: &a {}1{}\n", "[".repeat(40), "]".repeat(40));
    write!(high, "b: {}*a{}", "[".repeat(40), "]".repeat(40)).unwrap();
    assert!(errors(&high).iter().any(|e| e.code == Code::Depth));
}

#[test]
fn limits_and_encodings() {
    assert_eq!(codes("m.yaml", &vec![b'#'; FILE_BYTES_MAX + 1]), [(0, 0, Code::FileSize)]);
    let deep = format!("{}1{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
    assert!(errors(&deep).iter().all(|e| e.code == Code::WrongType));
    for opening in ["[", "{a: ", "- "] {
        let deep = opening.repeat(100_000);
        assert_eq!(errors(&deep)[0].code, Code::Depth, "{opening}");
    }
    assert_eq!(codes("m.yaml", b"\xef\xbb\xbftool: t"), [(1, 1, Code::Encoding)]);
    assert_eq!(codes("m.yaml", b"\xff\xfet\0o\0"), [(1, 1, Code::Encoding)]);
    assert_eq!(codes("m.yaml", "tool: é\ntö".as_bytes().split_last().unwrap().1), [(2, 2, Code::Encoding)]);
    assert_eq!(codes("m.yaml", b"tool: t\n\x7fELF\0"), [(2, 1, Code::Encoding)]);
    for empty in ["", "\n", "# only a comment\n", "---\n---\n", "[]", "null"] {
        assert_eq!(errors(empty)[0].code, Code::Empty, "{empty:?}");
    }
    assert_eq!(errors("just text")[0].code, Code::WrongType);
    let storm = "--- [\n".repeat(100_000);
    assert!(errors(&storm).len() <= 1001);
}

#[test]
fn the_normalized_form_is_a_way_back() {
    let mut list = load("payments.yaml", PAYMENTS.as_bytes()).unwrap();
    list.extend(load("m.yaml", b"{tool: t, effect: irreversible, permission: p, approval: {timeout: 1h}}").unwrap());
    for manifest in list {
        let text = manifest.canonical();
        let back = Manifest::from_canonical(&text).unwrap();
        assert_eq!((&back, back.canonical(), back.checksum()), (&manifest, text.clone(), manifest.checksum()));
        assert_eq!(*back, *manifest, "fields");
        let through_serde: Manifest = serde_json::from_value(serde_json::to_value(&manifest).unwrap()).unwrap();
        assert_eq!(through_serde.checksum(), manifest.checksum());
        assert_eq!(serde_json::from_str::<Value>(text.as_str()).unwrap(), serde_json::to_value(&manifest).unwrap());
    }
}

#[test]
fn spelling_does_not_change_the_checksum() {
    let checksum = |text: &str| load("m.yaml", text.as_bytes()).unwrap()[0].checksum();
    let short = checksum(SMALL);
    let long = "permission: p\napproval: {required: false}\nrequires: []\nversion: 1.0\nstatus: approved\nrisk: {}\n\
                audit: {}\neffect: read_only\ntool: t";
    assert_eq!(short, checksum(long));
    assert_ne!(short, checksum("{tool: t, effect: read_only, permission: q}"));
    let always = checksum("{tool: t, effect: read_only, permission: p, approval: always}");
    assert_eq!(
        always,
        checksum("{tool: t, effect: read_only, permission: p, approval: {quorum: 1, on_timeout: deny}}")
    );
}

#[test]
fn what_is_not_the_normalized_form_is_not_restored() {
    let restore = |value: Value| Manifest::from_canonical(&Canonical::of(&value).unwrap());
    let good = serde_json::to_value(&load("m.yaml", SMALL.as_bytes()).unwrap()[0]).unwrap();
    assert!(restore(good.clone()).is_ok());
    let with = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        restore(changed)
    };
    assert!(matches!(with("timeout_ms", json!("30s")), Err(RestoreError::Invalid(_))));
    assert!(matches!(with("requires", json!([{"tool": "a"}])), Err(RestoreError::NotNormalized { .. })));
    assert!(matches!(with("risk", json!({})), Err(RestoreError::NotNormalized { .. })));
    assert!(matches!(with("approval", json!({"quorum": 1})), Err(RestoreError::Invalid(_))));
    assert!(matches!(with("more", json!(1)), Err(RestoreError::Invalid(_))));
    assert!(matches!(with("effect", json!("undoable")), Err(RestoreError::Invalid(_))));
    assert!(matches!(with("schema_hash", json!(5)), Err(RestoreError::Invalid(_))));
    assert!(matches!(with("requires", json!(["a b"])), Err(RestoreError::Invalid(_))));
    assert!(matches!(restore(json!([good])), Err(RestoreError::Invalid(_))));
    assert!(matches!(restore(json!(null)), Err(RestoreError::Invalid(_))));
}

/// What a laxer day accepted must stay readable, with the same text and checksum: the rules are for what comes in.
#[test]
fn a_text_of_laxer_days_is_restored_as_it_was() {
    let base = serde_json::to_value(&load("m.yaml", PAYMENTS.as_bytes()).unwrap()[1]).unwrap();
    let changes: [(&str, Value); 17] = [
        ("/timeout_ms", json!(31_536_000_001_i64)),
        ("/timeout_ms", json!(0)),
        ("/version", json!(0)),
        ("/permission", json!("a b")),
        ("/permission", json!("")),
        ("/owner", json!(" ")),
        ("/description", json!("\u{1b}[0m")),
        ("/effect", json!("read_only")),
        ("/effect", json!("irreversible")),
        ("/approval_rules/quorum", json!(11)),
        ("/approval_rules/roles", json!([])),
        ("/compensation/kind", json!("inverse")),
        ("/compensation/tool", json!("stripe.create_charge")),
        ("/compensation/argument_map", json!({"": "$args.a"})),
        ("/compensation/verification/retries", json!(0)),
        ("/audit/retention_days", json!(36_501)),
        ("/requires", json!(["a", "a"])),
    ];
    for (pointer, value) in changes {
        let mut laxer = base.clone();
        *laxer.pointer_mut(pointer).unwrap() = value;
        let text = Canonical::of(&laxer).unwrap();
        let back = Manifest::from_canonical(&text).unwrap_or_else(|error| panic!("{pointer}: {error}"));
        assert_eq!(back.canonical(), text, "{pointer}");
        // The same said today, in what people write, is refused.
        laxer.as_object_mut().unwrap().remove("approval_rules");
        if pointer.starts_with("/approval_rules") {
            laxer["approval"] = json!({"roles": [], "quorum": 11});
        }
        assert!(load("m.json", laxer.to_string().as_bytes()).is_err(), "{pointer}");
    }
}

#[test]
fn values_of_an_undo() {
    // E6 E8 F2
    let charge = load("payments.yaml", PAYMENTS.as_bytes()).unwrap().remove(1);
    let args = json!({"order_id": "o1", "amount": 2500, "card_token": "secret"});
    let captured = undo_values(&charge, &args, Some(&json!({"id": "ch_1", "more": true})));
    assert_eq!(captured.missing, Vec::<String>::new());
    assert_eq!(serde_json::to_value(&captured.values).unwrap(), json!({"$args.amount": 2500, "$result.id": "ch_1"}));
    let compensation = charge.compensation.as_ref().unwrap();
    let undo = build_arguments(&compensation.argument_map, &captured.values).unwrap();
    assert_eq!(Value::from(undo), json!({"charge_id": "ch_1", "amount": 2500}));
    let read_back = build_arguments(&compensation.verification.as_ref().unwrap().arguments, &captured.values).unwrap();
    assert_eq!(Value::from(read_back), json!({"charge_id": "ch_1"}));
    // A value that is there as null is null; one that is not there is missing and is never sent.
    let captured = undo_values(&charge, &json!({"amount": null}), Some(&json!({})));
    assert_eq!(captured.values["$args.amount"], Value::Null);
    assert_eq!(captured.missing, ["$result.id"]);
    let missing = build_arguments(&compensation.argument_map, &captured.values).unwrap_err();
    assert_eq!(missing.references, ["$result.id"]);
    assert_eq!(undo_values(&charge, &args, None).missing, ["$result.id"]);
}

#[test]
fn ten_thousand_manifests() {
    let mut text = String::new();
    for n in 0..10_000 {
        writeln!(text, "- {{tool: t{n}, effect: reversible, permission: p, compensation: {{tool: undo, argument_map: {{id: $result.id}}}}}}").unwrap();
    }
    text.push_str("- {tool: undo, effect: idempotent, permission: p}\n");
    let list = load("m.yaml", text.as_bytes()).unwrap();
    let set = ManifestSet::new(list.into_iter().map(|m| ("m.yaml".to_owned(), m)).collect()).unwrap();
    assert_eq!(set.len(), 10_001);
}
