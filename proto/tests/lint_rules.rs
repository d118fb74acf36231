//! Every rule of lint: one manifest that breaks it and a near twin that does not; cycles; the documentation; and that
//! nothing panics or depends on the order of files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::subsequence;
use reversi_proto::lint::{Code, Counts, Finding, Level, UpstreamTools, lint, lint_upstream, schema_hash};
use reversi_proto::manifest::{Diagnostic, ManifestSet, load};
use serde_json::json;

fn try_set(files: &[(&str, &str)]) -> Result<ManifestSet, Vec<Diagnostic>> {
    let mut manifests = Vec::new();
    for (name, text) in files {
        manifests.extend(load(name, text.as_bytes())?.into_iter().map(|manifest| ((*name).to_owned(), manifest)));
    }
    ManifestSet::new(manifests)
}

#[track_caller]
fn set(text: &str) -> ManifestSet {
    try_set(&[("m.yaml", text)]).unwrap_or_else(|errors| panic!("{errors:#?}\nin\n{text}"))
}

fn codes(findings: &[Finding]) -> BTreeSet<Code> {
    findings.iter().map(|finding| finding.code).collect()
}

#[track_caller]
fn the(findings: &[Finding], code: Code) -> Finding {
    let of_code: Vec<_> = findings.iter().filter(|finding| finding.code == code).collect();
    assert_eq!(of_code.len(), 1, "{code}: {findings:#?}");
    of_code[0].clone()
}

/// A whole manifest of an idempotent tool `t`, which has no findings, with one field more or another value.
fn tool(change: &str) -> String {
    let plain = "tool: t\ndescription: Does it.\neffect: idempotent\npermission: p:write\nowner: o\n\
                 risk: {data_class: internal, blast_radius: low}\ntimeout_ms: 30s\naudit: {evidence_export: required}\n";
    let name = change.split(':').next().unwrap();
    let kept = plain.lines().filter(|line| !line.starts_with(&format!("{name}:")));
    format!("{}\n{change}\n", kept.collect::<Vec<_>>().join("\n"))
}

fn without(field: &str) -> String {
    tool(&format!("{field}:")).replace(&format!("{field}:\n"), "")
}

/// A whole manifest of a tool with an undo, changed the same way inside of its compensation.
fn undoable(effect: &str, change: &str) -> String {
    let plain = "tool: undo\nargument_map: {id: $result.id}\nverification: {tool: look, expect: {gone: true}}\n";
    let name = change.split(':').next().unwrap();
    let kept = plain.lines().filter(|line| name.is_empty() || !line.starts_with(&format!("{name}:")));
    let inside: Vec<String> = kept.chain([change]).map(|line| format!("  {line}")).collect();
    let others = "---\n{tool: look, effect: read_only, permission: p:read}\n---\n";
    let undo = tool("tool: undo");
    format!("{}compensation:\n{}\n{others}{undo}", tool(&format!("effect: {effect}")), inside.join("\n"))
}

fn cases() -> Vec<(Code, String, String)> {
    let compensable = || undoable("compensable", "residue: [a trace]");
    let irreversible = |more: &str| tool("effect: irreversible").replace(", blast_radius: low", "") + more;
    let reader = |more: &str| format!("---\n{{tool: r, effect: read_only, permission: {more}}}\n");
    let undo_is = |effect: &str| {
        let undo = tool("tool: undo");
        compensable().replace(&undo, &undo.replace("effect: idempotent", &format!("effect: {effect}")))
    };
    let hidden =
        |path: &str| undoable("reversible", "").replace("audit: {", &format!("audit: {{redaction: [{path}], "));
    vec![
        (Code::L010, without("description"), tool("description: x")),
        (Code::L011, without("owner") + "oncall: n\n", tool("owner: x")),
        (Code::L012, tool("risk: {blast_radius: low}"), tool("risk: {data_class: pii}")),
        (Code::L013, undoable("compensable", ""), compensable()),
        (Code::L013, undoable("compensable", "residue: []"), undoable("compensable", "kind: inverse")),
        (Code::L014, undo_is("irreversible"), compensable()),
        (Code::L014, undo_is("reversible\ncompensation: {tool: t}"), undo_is("read_only")),
        (Code::L015, irreversible(""), irreversible("approval: {roles: [boss]}\n")),
        (Code::L015, irreversible("approval: {escalate_to: [boss]}\n"), tool("effect: irreversible")),
        (
            Code::L016,
            undoable("reversible", "verification:").replace("  verification:\n", ""),
            undoable("reversible", ""),
        ),
        (Code::L019, tool("tool: t") + &reader("p:write"), tool("tool: t") + &reader("p:read")),
        (Code::L021, tool("effect: irreversible").replace("required", "optional"), tool("effect: irreversible")),
        (Code::L022, without("timeout_ms"), tool("timeout_ms: 1")),
        (
            Code::L023,
            tool("requires: [r]") + &reader("p:read, requires: [t]"),
            tool("requires: [r]") + &reader("p:read"),
        ),
        (Code::L024, tool("status: draft"), tool("status: deprecated")),
        (Code::L030, undoable("reversible", "residue: [a trace]"), compensable()),
        (Code::L031, undoable("compensable", "kind: inverse"), undoable("reversible", "kind: inverse")),
        (Code::L032, undoable("reversible", "argument_map: {}"), undoable("reversible", "argument_map: {a: $args.a}")),
        (Code::L101, hidden("$result.id.part"), hidden("$result.ids")),
        (Code::L101, hidden("$result.id"), hidden("$args.id")),
        (Code::L102, undo_is("irreversible"), undo_is("idempotent")),
        (Code::L104, undo_is("read_only"), undo_is("idempotent")),
        (Code::L103, tool("description: AKIAIOSFODNN7EXAMPLE"), tool("description: AKIAIOSFODNN7")),
        (
            Code::L103,
            tool("idempotency: {key: \"AKIAIOSFODNN7EXAMPLE/{{args.a}}\"}"),
            tool("schema_hash: Zm9vYmFyMTIzNDU2Nzg5MGFi"),
        ),
    ]
}

// P7 A8
#[test]
fn each_rule_fires_and_spares_its_near_twin() {
    for (code, fires, spared) in cases() {
        let findings = lint(&set(&fires));
        let finding = findings.iter().find(|finding| finding.code == code);
        let finding = finding.unwrap_or_else(|| panic!("{code} did not fire: {findings:#?}\nin\n{fires}"));
        assert_eq!((finding.source.as_str(), finding.level), ("m.yaml", code.level()));
        assert!(finding.line > 0 && finding.column > 0, "no place: {finding:#?}");
        assert!(finding.message.len() > 20 && finding.fix.len() > 10, "{finding:#?}");
        assert!(!finding.message.contains('\n') && !finding.message.ends_with('.'), "{finding:#?}");
        let findings = lint(&set(&spared));
        assert!(!codes(&findings).contains(&code), "{findings:#?}\nin\n{spared}");
    }
    // What the cases are made of is otherwise without findings, so that a rule which fires too often is seen.
    assert_eq!(lint(&set(&tool("owner: o"))), []);
    assert_eq!(lint(&set(&undoable("reversible", "kind: inverse"))), []);
}

// P7
#[test]
fn the_codes_have_the_levels_of_the_page() {
    let level = |wanted| -> Vec<&str> {
        Code::ALL.iter().filter(|code| code.level() == wanted).map(|code| code.as_str()).collect()
    };
    assert_eq!(level(Level::Error), ["L017", "L020", "L023"]);
    assert_eq!(level(Level::Info), ["L016", "L021", "L022", "L027", "L032"]);
    let warnings = [
        "L010", "L011", "L012", "L013", "L014", "L015", "L019", "L024", "L030", "L031", "L033", "L034", "L035", "L101",
        "L102", "L103", "L104",
    ];
    assert_eq!(level(Level::Warning), warnings);
}

// P1 P2 P3
#[test]
fn the_example_of_the_page_has_exactly_its_three_findings() {
    let findings = lint(&set(include_str!("../../manifests/payments.yaml")));
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let page = [
        "warning L011 stripe.refund: mutating tool has no owner: nobody is named to ask when it misbehaves",
        "warning L012 stripe.refund: no risk.data_class: policy and retention cannot treat sensitive data differently",
        "info L022 stripe.refund: no timeout_ms: a hung call is only bounded by the gateway default",
    ];
    assert_eq!(lines, page);
    assert_eq!(Counts::of(&findings).to_string(), "0 errors, 2 warnings, 1 notes");
    let places: BTreeSet<_> = findings.iter().map(|finding| (finding.path.as_str(), finding.line)).collect();
    assert_eq!(places, [("[2]", 41)].into());
}

#[test]
fn findings_point_at_what_they_are_about() {
    let text = format!("{}---\n{}", tool("requires: [u]"), tool("tool: u").replace("effect", "requires: [t]\neffect"));
    let finding = the(&lint(&set(&text)), Code::L023);
    assert_eq!((finding.tool.as_str(), finding.path.as_str()), ("t", "requires[0]"));
    assert_eq!(text.lines().nth(finding.line as usize - 1), Some("requires: [u]"));
    let text = undoable("reversible", "verification: {tool: look, expect: {api_key: hunter2hunter2}}");
    let finding = the(&lint(&set(&text)), Code::L103);
    assert_eq!(finding.path, "compensation.verification.expect.api_key");
    assert!(text.lines().nth(finding.line as usize - 1).unwrap().contains("hunter2"), "{finding:#?}");
    // A value goes by the name that it has itself.
    for (expected, fires) in
        [("{x: [{password: hunter2hunter2}]}", true), ("{password: {hint: hunter2hunter2}}", false)]
    {
        let text = undoable("reversible", &format!("verification: {{tool: look, expect: {expected}}}"));
        assert_eq!(codes(&lint(&set(&text))).contains(&Code::L103), fires, "{expected}");
    }
    let sets = try_set(&[("a.yaml", &tool("tool: a")), ("b.yaml", &tool("tool: b\nstatus: draft"))]).unwrap();
    let finding = the(&lint(&sets), Code::L024);
    assert_eq!((finding.tool.as_str(), finding.source.as_str(), finding.path.as_str()), ("b", "b.yaml", "status"));
}

#[test]
fn a_set_from_the_journal_has_findings_without_places() {
    let restored = set(&without("owner"))
        .iter()
        .map(|m| reversi_proto::manifest::Manifest::from_canonical(&m.canonical()).unwrap())
        .collect();
    let finding = the(&lint(&ManifestSet::restore(restored)), Code::L011);
    assert_eq!((finding.source.as_str(), finding.line, finding.path.as_str()), ("", 0, ""));
}

#[test]
fn secrets_are_never_repeated() {
    let secret = "wJalrXUtnFEMI7K7MDENGbPxRfiCYEXAMPLEKEY";
    let expect = format!("verification: {{tool: look, expect: {{a: [{{deep: {secret}}}]}}}}");
    let texts = [
        tool(&format!("description: Use {secret}.")),
        tool(&format!("owner: {secret}")),
        tool(&format!("oncall: {secret}")),
        tool(&format!("permission: {secret}")),
        tool(&format!("risk: {{data_class: {secret}}}")),
        tool(&format!("risk: {{data_class: x, environment: {secret}}}")),
        tool(&format!("approval: {{roles: [{secret}]}}")),
        tool(&format!("approval: {{roles: [a], escalate_to: [b, {secret}]}}")),
        tool(&format!("idempotency: {{key: \"{secret}-{{{{args.a}}}}\"}}")),
        undoable("compensable", &format!("residue: [a, {secret}]")),
        undoable("reversible", &expect),
    ];
    for text in texts {
        let finding = the(&lint(&set(&text)), Code::L103);
        assert!(finding.message.contains("a random key"), "{finding:#?}");
        assert!(!serde_json::to_string(&finding).unwrap().contains(&secret[8..20]), "{finding:#?}");
        let line = text.lines().nth(finding.line as usize - 1).unwrap();
        assert!(line.contains(secret), "{finding:#?}\n{text}");
    }
}

// --- cycles

fn chain(count: usize, last: &str) -> String {
    let mut text = String::new();
    for n in 0..count {
        let next = if n + 1 == count { last.to_owned() } else { format!("requires: [t{:05}]", n + 1) };
        writeln!(text, "- {{tool: t{n:05}, effect: read_only, permission: p, {next}}}").unwrap();
    }
    text
}

// P7
#[test]
fn ten_thousand_in_a_chain_are_no_cycle_and_in_a_ring_one() {
    assert_eq!(lint(&set(&chain(10_000, ""))), []);
    let findings = lint(&set(&chain(10_000, "requires: [t00000]")));
    let finding = the(&findings, Code::L023);
    assert_eq!((finding.tool.as_str(), findings.len()), ("t00000", 1));
    assert!(finding.message.contains("t00000 -> t00001 -> "), "{}", finding.message);
    assert!(finding.message.contains(" -> (9980 more) -> t00000: "), "{}", finding.message);
}

#[test]
fn each_cycle_is_told_once_from_its_first_tool_on() {
    let graph = |edges: &[(&str, &str)]| {
        let mut text = String::new();
        for (tool, requires) in edges {
            writeln!(text, "- {{tool: {tool}, effect: read_only, permission: p, requires: [{requires}]}}").unwrap();
        }
        let findings = lint(&set(&text));
        let cycle = |finding: &Finding| finding.message.split([',', ':']).nth(1).unwrap().trim().to_owned();
        findings.iter().map(cycle).collect::<Vec<_>>()
    };
    assert_eq!(graph(&[("c", "a"), ("b", "c"), ("a", "b")]), ["a -> b -> c -> a"]);
    // Two that share a tool, one that hangs on them, and one apart.
    let knot = [("a", "b"), ("b", "a, c"), ("c", "b"), ("d", "a"), ("x", "y"), ("y", "x")];
    assert_eq!(graph(&knot), ["a -> b -> a", "b -> c -> b", "x -> y -> x"]);
    assert_eq!(graph(&[("a", "b, c"), ("b", "d"), ("c", "d"), ("d", "")]), [""; 0]);
    // All require all: no more than can be read.
    let names: Vec<String> = (0..60).map(|n| format!("t{n:02}")).collect();
    let others = |own: &str| names.iter().filter(|name| *name != own).cloned().collect::<Vec<_>>().join(", ");
    let all: Vec<(&str, String)> = names.iter().map(|name| (name.as_str(), others(name))).collect();
    let all: Vec<(&str, &str)> = all.iter().map(|(name, others)| (*name, others.as_str())).collect();
    assert_eq!(graph(&all).len(), 20);
}

#[test]
fn a_shared_permission_names_few_tools() {
    let mut text = "- {tool: r, effect: read_only, permission: p}\n".to_owned();
    (0..9).for_each(|n| writeln!(text, "- {{tool: c{n}, effect: idempotent, permission: p}}").unwrap());
    let finding = the(&lint(&set(&text)), Code::L019);
    assert!(
        finding.message.contains("permission p with tools that change things (c0, c1, c2 and 6 more)"),
        "{finding}"
    );
}

// --- upstream

fn tools(value: &serde_json::Value) -> UpstreamTools {
    UpstreamTools::parse(value.to_string().as_bytes()).unwrap()
}

fn one_tool(properties: &serde_json::Value) -> UpstreamTools {
    let schema = json!({"type": "object", "properties": properties});
    let names = ["t", "undo", "look"].map(|name| json!({"name": name, "inputSchema": schema}));
    tools(&json!({"tools": names}))
}

// P7
#[test]
fn arguments_that_the_schema_lacks() {
    let upstream = one_tool(&json!({"card": {"type": "object", "properties": {"number": {"type": "string"}}}}));
    let undo = |reference: &str| undoable("reversible", &format!("argument_map: {{n: {reference}}}"));
    let look = |reference: &str| {
        undoable(
            "reversible",
            &format!("verification: {{tool: look, arguments: {{n: {reference}}}, expect: {{a: 1}}}}"),
        )
    };
    let key = |path: &str| tool(&format!("idempotency: {{key: \"k-{{{{args.{path}}}}}\"}}"));
    let hide = |reference: &str| tool(&format!("audit: {{redaction: [$result.x, {reference}]}}"));
    for (code, fires, spared, path, near) in [
        (
            Code::L017,
            undo("$args.crad.number"),
            undo("$args.card.number"),
            "compensation.argument_map.n",
            "$args.card.number",
        ),
        (
            Code::L017,
            look("$args.card.nunber"),
            look("$result.nunber"),
            "compensation.verification.arguments.n",
            "$args.card.number",
        ),
        (Code::L020, key("card.numbr"), key("card.number"), "idempotency.key", "args.card.number"),
        (Code::L033, hide("$args.kard"), hide("$args.card"), "audit.redaction[1]", "$args.card"),
    ] {
        let finding = the(&lint_upstream(&set(&fires), &upstream), code);
        assert_eq!(finding.path, path);
        assert!(finding.message.contains(&format!("(did you mean {near}?)")), "{finding}");
        assert!(finding.line > 0);
        let findings = lint_upstream(&set(&spared), &upstream);
        assert!(!codes(&findings).contains(&code), "{findings:#?}");
    }
    // Nothing was meant.
    let finding = the(&lint_upstream(&set(&undo("$args.customer")), &upstream), Code::L017);
    assert!(finding.message.contains("lacks: steps"), "{finding}");
}

// P7 K4
#[test]
fn tools_on_one_side_only_and_hashes() {
    let upstream = one_tool(&json!({"b": {}, "a": {}}));
    let hash = &upstream.get("t").unwrap().schema_hash;
    let findings = lint_upstream(&set(&tool("tool: t")), &upstream);
    let finding = the(&findings, Code::L027);
    assert!(finding.fix.contains(&format!("`schema_hash: \"{hash}\"`")), "{finding:#?}");
    let missing: Vec<_> = findings.iter().filter(|f| f.code == Code::L035).map(|f| f.tool.as_str()).collect();
    assert_eq!(missing, ["look", "undo"]);
    // A hash that differs is drift, and not lint's business.
    for with in [format!("schema_hash: \"{hash}\""), "schema_hash: other".to_owned()] {
        assert!(!codes(&lint_upstream(&set(&tool(&with)), &upstream)).contains(&Code::L027));
    }
    let findings = lint_upstream(&set(&tool("tool: loook")), &upstream);
    let finding = the(&findings, Code::L034);
    assert_eq!((finding.tool.as_str(), finding.path.as_str()), ("loook", "tool"));
    assert!(finding.message.contains("(did you mean look?)"), "{finding}");
    assert!(!codes(&findings).contains(&Code::L027));
    let hostile = tools(&json!([{"name": "a b\u{1b}[2J\n", "inputSchema": {}}]));
    let finding = the(&lint_upstream(&set(&tool("tool: t")), &hostile), Code::L035);
    assert_eq!(finding.tool, "\"a b\\u{1b}[2J\\n\"");
}

// K1
#[test]
fn the_schema_hash_is_of_the_canonical_form() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 18_446_744_073_709_551_615_u64}}});
    let text = r#"[{"inputSchema": {"properties":{"a":{"maximum":18446744073709551615, "type":"integer"}},"type":"object"}, "name":"t"}]"#;
    let upstream = UpstreamTools::parse(text.as_bytes()).unwrap();
    assert_eq!(upstream.get("t").unwrap().schema_hash, schema_hash(&schema).unwrap());
    // printf '{"type":"object"}' | sha256sum
    assert_eq!(schema_hash(&json!({"type": "object"})).unwrap(), "a2c799262a3c");
    let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(schema_hash(&deep).is_err());
}

#[test]
fn a_list_of_tools_comes_in_three_forms() {
    let list = json!([{"name": "t", "description": "x", "inputSchema": {"type": "object"}}]);
    let result = json!({"tools": list, "nextCursor": null});
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": list, "nextCursor": ""}});
    let read = [&list, &result, &response].map(tools);
    assert!(read.iter().all(|tools| *tools == read[0] && tools.len() == 1 && !tools.is_empty()));
    assert_eq!(tools(&json!([])).len(), 0);
}

#[test]
fn what_is_no_list_of_tools_is_named_with_its_place() {
    let tool = r#"{"name":"t","inputSchema":{}}"#;
    for (text, said) in [
        ("", "line 1, column 1: this is not JSON"),
        ("[{]", "line 1, column 3: this is not JSON"),
        ("\n [\"\u{1}\"]", "line 2, column"),
        ("{\"tools\": [],\n \"tools\": []}", "line 2, column 2: "),
        ("5", "got a number"),
        ("{}", "got another object"),
        (r#"{"result":{"content":[]}}"#, "got a response with another result"),
        (r#"{"result":null}"#, "got a response with another result"),
        (r#"{"error":{"code":-32601,"message":"no such method"}}"#, "(\"no such method\")"),
        (r#"{"tools":{}}"#, "tools must be a list of tools, got an object"),
        (r#"{"result":{"tools":null}}"#, "result.tools must be a list of tools, got null"),
        (r#"{"result":{"tools":[],"nextCursor":"x"}}"#, "result.nextCursor says that the list goes on"),
        (r#"{"tools":[],"nextCursor":5}"#, "nextCursor says that the list goes on"),
        (r#"{"tools":[5]}"#, "tools[0] must be a tool (an object), got a number"),
        (&format!("[{tool},{{\"inputSchema\":{{}}}}]"), "tools[1].name must be the name of a tool, got nothing"),
        (r#"[{"name":" ","inputSchema":{}}]"#, "tools[0].name must be the name of a tool, got an empty text"),
        (r#"[{"name":"t"}]"#, "tools[0].inputSchema must be a JSON Schema (an object), got nothing"),
        (
            r#"{"result":{"tools":[{"name":"t","inputSchema":true}]}}"#,
            "result.tools[0].inputSchema must be a JSON Schema (an object), got a boolean",
        ),
        (&format!("[{tool},{tool}]"), "tools[1].name is \"t\", which is the name of an earlier tool, too"),
    ] {
        let error = UpstreamTools::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(said), "{text}\n{error}\n{said}");
    }
    assert!(UpstreamTools::parse(b"[\"\xff\"]").is_err());
}

// --- the documentation

/// Code to the fenced blocks of its section.
fn sections() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let (mut section, mut block) = (None, None);
    for line in include_str!("../../docs/lint.md").lines() {
        if let Some(name) = line.strip_prefix("## ") {
            assert!(sections.insert(name.to_owned(), BTreeMap::new()).is_none(), "{name} has two sections");
            section = Some(name);
        } else if let Some(language) = line.strip_prefix("```") {
            block = if block.is_none() { Some(language) } else { None };
        } else if let (Some(section), Some(block)) = (section, block) {
            let text = sections.get_mut(section).unwrap().entry(block.to_owned()).or_default();
            writeln!(text, "{line}").unwrap();
        }
    }
    sections
}

// P7
#[test]
fn each_code_has_a_section_whose_example_fires_it() {
    let mut sections = sections();
    for code in Code::ALL {
        let blocks = sections.remove(code.as_str()).unwrap_or_else(|| panic!("{code} has no section"));
        let manifests = set(&blocks["yaml"]);
        let findings = match blocks.get("json") {
            Some(json) => lint_upstream(&manifests, &UpstreamTools::parse(json.as_bytes()).unwrap()),
            None => lint(&manifests),
        };
        assert!(codes(&findings).contains(code), "the example of {code} gives {findings:#?}");
    }
    assert!(sections.is_empty(), "sections of codes that there are not: {:?}", sections.keys());
}

#[test]
fn the_documentation_names_no_other_code() {
    let known: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    // The ends of ranges.
    let bounds = ["L001", "L099", "L100"];
    for word in include_str!("../../docs/lint.md").split(|c: char| !c.is_ascii_alphanumeric()) {
        let is_code = word.len() == 4 && word.starts_with('L') && word[1..].bytes().all(|b| b.is_ascii_digit());
        assert!(!is_code || known.contains(word) || bounds.contains(&word), "{word}");
    }
}

// --- anything

const FIELDS: &[&str] = &[
    "description: d",
    "owner: o",
    "oncall: AKIAIOSFODNN7EXAMPLE",
    "timeout_ms: 1",
    "status: draft",
    "status: deprecated",
    "risk: {data_class: x}",
    "risk: {blast_radius: low}",
    "schema_hash: a",
    "audit: {evidence_export: required, redaction: [$args.a, $result.b]}",
    "audit: {redaction: [$args.a.b]}",
    "idempotency: {key: \"{{args.a}}-{{args.q}}\"}",
    "approval: {roles: [r]}",
    "retry: {}",
    "requires: [t0, t2]",
    "requires: [t1]",
    "requires: [{tool: t3}, t4]",
];
const UNDO_FIELDS: &[&str] = &[
    "kind: inverse",
    "residue: [a]",
    "argument_map: {a: $args.a, b: $result.b.c}",
    "requires_approval: true",
    "verification: {tool: look, arguments: {x: $args.z.0}, expect: {a.0: [{token: abcdefgh1}]}}",
];

prop_compose! {
    fn any_manifest(name: usize)(
        effect in 0..5_usize,
        fields in subsequence(FIELDS, 0..8),
        undo in 0..6_usize,
        undo_fields in subsequence(UNDO_FIELDS, 0..5),
        permission in 0..3_usize,
    ) -> String {
        let effect = ["read_only", "idempotent", "reversible", "compensable", "irreversible"][effect];
        let mut lines = vec![format!("tool: t{name}"), format!("effect: {effect}"), format!("permission: p{permission}")];
        lines.extend(fields.iter().map(|field| (*field).to_owned()));
        if ["reversible", "compensable"].contains(&effect) {
            lines.push("compensation:".to_owned());
            lines.push(format!("  tool: t{undo}"));
            lines.extend(undo_fields.iter().map(|field| format!("  {field}")));
        }
        lines.join("\n") + "\n"
    }
}

/// One manifest each; not all follow the rules.
fn any_files() -> impl Strategy<Value = Vec<String>> {
    (0..6).map(any_manifest).collect::<Vec<_>>()
}

fn any_schema() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!(false)),
        Just(json!({"type": "string"})),
        Just(json!(5)),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/properties/a"})),
        Just(json!({"type": "object"})),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::btree_map("[a-c]", inner.clone(), 0..3).prop_map(|p| json!({"properties": p})),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| json!({"allOf": list})),
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|list| json!({"anyOf": list, "type": ["object", "null"]})),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| json!({"items": list})),
            inner.clone().prop_map(|s| json!({"additionalProperties": s, "items": s})),
            inner.prop_map(|s| json!({"if": s, "then": s, "properties": {"a": s}})),
        ]
    })
}

proptest! {
    // P1
    #[test]
    fn never_panics_and_never_minds_the_order_of_files(
        files in any_files(), schema in any_schema(), turn in 0..7_usize,
    ) {
        let look = "tool: look\neffect: read_only\npermission: p0\n".to_owned();
        // Files with mistakes (a status twice, a tool that requires itself) are not linted.
        let good = |text: &String| load("m.yaml", text.as_bytes()).is_ok();
        let mut files: Vec<(String, String)> = files.into_iter().chain([look]).enumerate().map(|(n, text)| {
            let text = if good(&text) { text } else { format!("tool: t{n}\neffect: read_only\npermission: p0\n") };
            (format!("f{n}.yaml"), text)
        }).collect();
        let set_of = |files: &[(String, String)]| {
            try_set(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>())
        };
        let first = set_of(&files).unwrap_or_else(|errors| panic!("{errors:#?}\n{files:#?}"));
        files.rotate_left(turn);
        let second = set_of(&files).unwrap();
        prop_assert_eq!(lint(&first), lint(&second));
        let names = ["t0", "t1", "t2", "x"].map(|name| json!({"name": name, "inputSchema": if schema.is_object() { schema.clone() } else { json!({}) }}));
        let upstream = tools(&json!({"tools": names}));
        let findings = lint_upstream(&first, &upstream);
        prop_assert_eq!(&findings, &lint_upstream(&second, &upstream));
        prop_assert!(findings.is_sorted());
    }

    #[test]
    fn no_text_makes_the_search_for_secrets_panic(text in "\\PC{1,60}", url in "[a-z]{0,3}://[\\PC]{0,20}@[a-z]{0,3}") {
        let value = json!({"tool": "t", "effect": "read_only", "permission": "p", "description": format!("x{text}{url}")});
        if let Ok(list) = load("m.json", value.to_string().as_bytes()) {
            let named = list.into_iter().map(|manifest| ("m.json".to_owned(), manifest)).collect();
            let _findings = lint(&ManifestSet::new(named).unwrap());
        }
    }

    #[test]
    fn no_bytes_make_the_list_of_tools_panic(text in "[\\[\\]{}\",:a-z0-9 \n]{0,40}", bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        let _either = UpstreamTools::parse(text.as_bytes());
        let _either = UpstreamTools::parse(&bytes);
    }
}
