//! lint on files: what it prints, and how it ends.
use std::path::{Path, PathBuf};

use crate::ledger::arg;
use crate::program::{command, reversi, reversi_fed, said};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What the page shows.
const PAGE: &str = "\
warning L011 stripe.refund: mutating tool has no owner: nobody is named to ask when it misbehaves
warning L012 stripe.refund: no risk.data_class: policy and retention cannot treat sensitive data differently
info L022 stripe.refund: no timeout_ms: a hung call is only bounded by the gateway default
0 errors, 2 warnings, 1 notes
";

/// Without a finding until an upstream is asked.
const QUIET: &str = "tool: t\neffect: read_only\npermission: p\naudit: {redaction: [$args.crad]}\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

// P1 P2 P3 P4
#[test]
fn the_example_of_the_page_is_reproduced_to_the_letter() {
    let said_of = |path: &str| said(command(["lint", path]).current_dir(ROOT));
    for path in ["manifests", "manifests/payments.yaml"] {
        let said = said_of(path).exits(0);
        assert_eq!((said.out.as_str(), said.err.as_str()), (PAGE, ""));
    }
}

// P4
#[test]
fn errors_fail_and_warnings_only_if_strict() {
    let payments = format!("{ROOT}/manifests/payments.yaml");
    assert_eq!(reversi(["lint", &payments, "--strict"]).exits(1).out, PAGE);
    let folder = Folder::of(&[
        ("quiet.yaml", QUIET),
        (
            "cycle.yaml",
            "[{tool: a, effect: read_only, permission: p, requires: [b]}, {tool: b, effect: read_only, permission: p, requires: [a]}]",
        ),
        (
            "note.yaml",
            "- {tool: t, description: d, effect: idempotent, permission: p, owner: o, risk: {data_class: x}}",
        ),
    ]);
    let quiet = folder.path("quiet.yaml");
    assert_eq!(reversi(["lint", arg(&quiet), "--strict"]).exits(0).out, "0 errors, 0 warnings, 0 notes\n");
    // A note is no warning.
    reversi(["lint", arg(&folder.path("note.yaml")), "--strict"]).exits(0);
    let said = reversi(["lint", arg(&folder.path("cycle.yaml"))]).exits(1);
    let line = "error L023 a: requires forms a cycle, a -> b -> a: none of them can ever run";
    assert_eq!(said.out, format!("{line}\n1 errors, 0 warnings, 0 notes\n"));
}

// P5
#[test]
fn json_says_where_and_what_to_do() {
    let payments = format!("{ROOT}/manifests/payments.yaml");
    let json = reversi(["lint", &payments, "--json"]).exits(0).json();
    let counts = ["errors", "warnings", "notes"].map(|level| json[level].as_u64().unwrap());
    assert_eq!((&json["ok"], counts), (&true.into(), [0, 2, 1]));
    let first = serde_json::json!({
        "tool": "stripe.refund", "code": "L011", "level": "warning", "source": payments, "line": 41, "column": 9,
        "path": "[2]", "message": "mutating tool has no owner: nobody is named to ask when it misbehaves",
        "fix": "name who answers for it in `owner`",
    });
    assert_eq!(json["findings"][0], first);
    let strict = reversi(["lint", &payments, "--json", "--strict"]).exits(1).json();
    assert_eq!((&strict["ok"], &strict["findings"]), (&false.into(), &json["findings"]));
}

// P7
#[test]
fn a_saved_list_of_tools_is_asked_too() {
    let tools = r#"{"result": {"tools": [{"name": "t", "inputSchema": {"properties": {"card": {}}}},
                    {"name": "extra", "inputSchema": {}}]}}"#;
    let folder = Folder::of(&[("t.yaml", QUIET), ("tools.json", tools)]);
    let manifest = folder.path("t.yaml");
    let tools_path = folder.path("tools.json");
    let said = reversi(["lint", arg(&manifest), "--upstream-schemas", arg(&tools_path)]).exits(0);
    let expected = "\
warning L035 extra: the upstream offers this tool but it has no manifest: every call of it is blocked
info L027 t: no schema_hash: nobody notices when the upstream changes the tool's arguments
warning L033 t: audit.redaction[0] hides $args.crad, which the input schema lacks (did you mean $args.card?): it hides nothing
0 errors, 2 warnings, 1 notes
";
    assert_eq!((said.out.as_str(), said.err.as_str()), (expected, ""));
    let piped = reversi_fed(&["lint", arg(&manifest), "--upstream-schemas", "-"], tools.as_bytes()).exits(0);
    assert_eq!(piped.out, expected);
    let broken = QUIET.replace("audit: {redaction: [$args.crad]}", "idempotency: {key: \"{{args.x}}\"}");
    std::fs::write(&manifest, broken).unwrap();
    let said = reversi(["lint", arg(&manifest), "--upstream-schemas", arg(&tools_path)]).exits(1);
    assert!(said.out.contains("error L020 t: the idempotency key uses args.x"), "{}", said.out);
}

#[test]
fn a_list_of_tools_that_is_none_is_named_with_its_place() {
    let folder = Folder::of(&[
        ("t.yaml", QUIET),
        ("broken.json", "{\"tools\": [\n  {\"name\": }]}"),
        ("none.json", "{\"prompts\": []}"),
        ("page.json", "{\"tools\": [], \"nextCursor\": \"2\"}"),
    ]);
    let manifest = folder.path("t.yaml");
    let told = |path: &Path| {
        let said = reversi(["lint", arg(&manifest), "--upstream-schemas", arg(path)]).exits(1);
        assert_eq!(said.out, "");
        said.err
    };
    let place = |name: &str| format!("error: {} can't be used: ", folder.path(name).display());
    let err = told(&folder.path("broken.json"));
    assert!(err.starts_with(&(place("broken.json") + "line 2, column 12: this is not JSON")), "{err}");
    let err = told(&folder.path("none.json"));
    assert!(err.starts_with(&(place("none.json") + "expected the answer to tools/list")), "{err}");
    let err = told(&folder.path("page.json"));
    assert!(err.contains("nextCursor says that the list goes on"), "{err}");
    let err = told(Path::new("/nowhere.json"));
    assert!(err.starts_with("error: /nowhere.json can't be read"), "{err}");
    told(folder.0.path());
}

#[test]
fn manifests_that_are_not_valid_are_told_as_validate_tells_them() {
    let folder = Folder::of(&[("t.yaml", "tool: t\nefect: read_only\npermission: p\n")]);
    let path = folder.path("t.yaml");
    for path in [arg(&path), arg(folder.0.path()), "/nowhere"] {
        for more in [&[][..], &["--json"]] {
            let told = |command: &str| reversi([command, path].iter().chain(more)).exits(1);
            let (lint, validate) = (told("lint"), told("validate"));
            assert_eq!((lint.out, lint.err), (validate.out, validate.err));
        }
    }
    reversi(["lint"]).exits(64);
}

#[test]
fn an_upstream_can_not_steer_the_terminal() {
    let tools = r#"[{"name": "t", "inputSchema": {}}, {"name": "\u001b[2J\n\u202e", "inputSchema": {}}]"#;
    let folder = Folder::of(&[("t.yaml", QUIET), ("tools.json", tools)]);
    let schemas = folder.path("tools.json");
    let said = reversi(["lint", arg(&folder.path("t.yaml")), "--upstream-schemas", arg(&schemas)]).exits(0);
    assert!(!said.out.contains(['\u{1b}', '\u{202e}']), "{}", said.out);
    assert_eq!(said.out.lines().count(), 3, "{}", said.out);
}
