//! The direction of dependencies, `src -> actors -> proto`, and what an edge must not see.
#![allow(clippy::unwrap_used)]
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each crate of the workspace may depend on, among the crates whose place the architecture decides.
const ALLOWED: &[(&str, &[&str])] = &[
    ("reversi-proto", &["bincode", "ed25519-dalek", "serde", "serde_json", "sha2"]),
    (
        "reversi-actors",
        &[
            "bincode",
            "ed25519-dalek",
            "ractor",
            "reversi-proto",
            "serde",
            "serde_json",
            "sha2",
            "sled",
            "tokio",
            "tracing",
            "uuid",
        ],
    ),
    (
        "reversi",
        &["axum", "clap", "reversi-actors", "reversi-proto", "serde", "serde_json", "sha2", "tokio", "tracing"],
    ),
];

/// Crates whose place the architecture decides.
const DECIDED: &[&str] = &[
    "axum",
    "bincode",
    "clap",
    "ed25519-dalek",
    "ractor",
    "reversi",
    "reversi-actors",
    "reversi-proto",
    "serde",
    "serde_json",
    "sha2",
    "sled",
    "tokio",
    "tracing",
    "uuid",
];

/// What the edges must not name: storage, the journal, raw events.
const BANNED_IN_EDGES: &[&str] = &["sled", "ractor", "bincode", "reversi_proto::event", "reversi_actors::journal"];

/// The exceptions, each with a reason.
const ALLOWED_IN_EDGES: &[(&str, &str)] = &[
    ("reversi_proto::event::v1", "words of the wire: Mode, Outcome, Role, Executor, Target"),
    ("reversi_proto::event::KINDS", "verify knows the record types"),
    ("reversi_actors::journal::offline", "reads a data directory without a daemon"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Normal (not dev, not build) dependencies of each crate of the workspace.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let normal = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies.filter(|d| d["kind"].is_null()).map(|d| d["name"].as_str().unwrap().to_owned()).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (package["name"].as_str().unwrap().to_owned(), normal(package))).collect()
}

#[test]
fn dependencies_point_inwards() {
    let dependencies = dependencies();
    for (name, allowed) in ALLOWED {
        for dependency in dependencies[*name].iter().filter(|name| DECIDED.contains(&name.as_str())) {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
    }
}

fn sources(dir: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(dir), &mut found);
    found
}

#[test]
fn edges_see_the_service_and_not_what_is_behind_it() {
    let files: Vec<PathBuf> =
        ["cli", "http", "mcp", "console"].iter().flat_map(|e| sources(&format!("src/{e}"))).collect();
    assert!(!files.is_empty(), "no edge was found: has it moved?");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let allowed = ALLOWED_IN_EDGES.iter().any(|(path, _)| line.contains(path));
            for banned in BANNED_IN_EDGES.iter().filter(|_| !allowed) {
                let names = line.contains(&format!("{banned}::")) || line.contains(&format!("use {banned}"));
                assert!(!names, "{}:{}: an edge must not see {banned}: {line}", file.display(), index + 1);
            }
        }
    }
}

#[test]
fn the_http_edge_reads_no_files() {
    // A file can keep its reader waiting; whoever reads one does it on a thread that may wait (src/reload.rs).
    for file in sources("src/http") {
        let text = fs::read_to_string(&file).unwrap();
        for banned in ["std::fs", "tokio::fs", "manifests::read", ".read_at_start("] {
            assert!(!text.contains(banned), "{} must not use {banned}", file.display());
        }
    }
}

#[test]
fn proto_is_pure() {
    for file in sources("proto/src") {
        let text = fs::read_to_string(&file).unwrap();
        for banned in ["std::fs", "std::net", "std::thread", "SystemTime", "Instant::now", "getrandom", "tokio::"] {
            assert!(!text.contains(banned), "{} must not use {banned}", file.display());
        }
    }
}

#[test]
fn every_source_file_says_what_it_is() {
    for file in ["src", "actors/src", "proto/src"].into_iter().flat_map(sources) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} must start with a line of //!", file.display());
    }
}

#[test]
fn every_code_is_documented() {
    let page = fs::read_to_string(root().join("docs/errors/README.md")).unwrap();
    let mut codes: Vec<String> = reversi_actors::error::Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    // The edge's own, and those of blocked calls: string literals of the form `word.word` where they are made.
    for file in ["src/http/problem.rs", "proto/src/run/begin.rs"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let code = |part: &&str| {
            let (Some((head, tail)), false) = (part.split_once('.'), part.contains(' ')) else { return false };
            let word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            word(head) && word(tail)
        };
        codes.extend(text.split('"').skip(1).step_by(2).filter(code).map(str::to_owned));
    }
    assert!(codes.len() > 30, "{codes:?}");
    for code in codes {
        assert!(page.contains(&format!("| `{code}` |")), "docs/errors/README.md lacks {code}");
    }
}
