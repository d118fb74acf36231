//! The shared fixtures of `tests/fixtures/manifests/`: what every validator of manifests, in whatever language, must say.
//! Knows no rule itself. `UPDATE_GOLDEN=1` writes the `normalized` of accepting cases anew, and says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use reversi_proto::canonical::Canonical;
use reversi_proto::manifest::{Code, Diagnostic, Loaded, Manifest, ManifestSet, load};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// What no JSON value can bring about: these belong to texts and files, and have their cases in `manifest_loading.rs`
/// and with the programs that read files.
const NOT_OF_DATA: [&str; 12] = [
    "manifest.unreadable",
    "manifest.no_files",
    "manifest.file_size",
    "manifest.encoding",
    "manifest.syntax",
    "manifest.strict_json",
    "manifest.alias",
    "manifest.yaml_feature",
    "manifest.duplicate_key",
    "manifest.key_not_text",
    // The readers refuse whatever would have none; the code is there so that this is no panic.
    "manifest.not_canonical",
    "manifest.too_many_errors",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    input: Box<RawValue>,
    normalized: Option<Value>,
    errors: Option<Vec<Finding>>,
}

/// Findings are compared as sorted lists of path and code: a validator over parsed JSON has no places to order them by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finding {
    path: String,
    code: String,
}

fn topics() -> Vec<(PathBuf, Vec<Case>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/manifests");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let cases = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, cases)
    };
    paths.into_iter().map(read).collect()
}

/// An array is a set, and asked for the rules of one; a single manifest is not.
fn is_set(input: &str) -> bool {
    input.trim_start().starts_with('[')
}

/// The normalized manifests of the text in a file of that name, or everything that is wrong with it.
fn validate(file: &str, input: &str) -> Result<Vec<Manifest>, Vec<Finding>> {
    let errors = if is_set(input) {
        ManifestSet::of_files(vec![Loaded::of(file, input.as_bytes())]).err()
    } else {
        load(file, input.as_bytes()).err()
    };
    let Some(errors) = errors else { return Ok(load(file, input.as_bytes()).unwrap()) };
    for error in &errors {
        let Diagnostic { source, line, column, path: _, code, message, hint: _ } = error;
        assert_eq!(source, file);
        assert!(*code == Code::Empty || (*line > 0 && *column > 0), "no place: {error:?}");
        let cut = message.ends_with("...");
        assert!(!message.is_empty() && (cut || !message.ends_with('.')) && !message.contains('\n'), "{error:?}");
    }
    let mut found: Vec<Finding> =
        errors.iter().map(|e| Finding { path: e.path.clone(), code: e.code.to_string() }).collect();
    found.sort();
    Err(found)
}

fn normalized_of(input: &str, manifests: &[Manifest]) -> Value {
    let list: Vec<Value> = manifests.iter().map(|manifest| serde_json::to_value(manifest).unwrap()).collect();
    if is_set(input) { Value::from(list) } else { list[0].clone() }
}

// A1 A3 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A15 A16 A17 A18 A19 A20 A21 A22
// B1 B2 B3 B4 B5 B6 B7 B8 B9 B10 C1 C2 C3 C4 D6 E1 E2 E3 E4 E6 E11 F1 F3 F4 G1 G3 G4 G5 G8 H1 H3
// J1 J2 J3 J4 J5 J6 J7 J8 J9 J10 S1 S3 S5 - each in the file of its topic
#[test]
fn every_case_of_every_topic() {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        topics().into_iter().for_each(update);
    }
    let mut wrong = String::new();
    for (path, cases) in topics() {
        assert!(!cases.is_empty(), "{}", path.display());
        for case in cases {
            let input = case.input.get();
            // JSON is a part of YAML, and must mean the same in a file of either kind.
            for file in ["case.json", "case.yaml"] {
                let place = format!("{} {file}: {}", path.file_name().unwrap().display(), case.name);
                match (validate(file, input), &case.normalized, &case.errors) {
                    (Ok(manifests), Some(expected), None) => {
                        let got = Canonical::of(&normalized_of(input, &manifests)).unwrap();
                        let expected = Canonical::of(expected).unwrap();
                        if got != expected {
                            writeln!(wrong, "{place}\n  expected {}\n  got      {}", expected.as_str(), got.as_str())
                                .unwrap();
                        }
                    }
                    (Err(found), None, Some(expected)) => {
                        let mut expected = expected.clone();
                        expected.sort();
                        if found != expected {
                            writeln!(wrong, "{place}\n  expected {expected:?}\n  got      {found:?}").unwrap();
                        }
                    }
                    (got, _, _) => writeln!(wrong, "{place}\n  got {got:?}").unwrap(),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn update((path, cases): (PathBuf, Vec<Case>)) {
    eprintln!("WARNING: {} is written anew; what the validator says now is what the fixtures expect", path.display());
    let lines: Vec<String> = cases
        .iter()
        .map(|case| {
            let (name, input) = (serde_json::to_string(&case.name).unwrap(), case.input.get());
            let rest = match (&case.errors, validate("case.json", input)) {
                (Some(errors), _) => {
                    let one = |e: &Finding| {
                        format!("{{\"path\": {}, \"code\": \"{}\"}}", Value::from(e.path.as_str()), e.code)
                    };
                    format!("\"errors\": [{}]", errors.iter().map(one).collect::<Vec<_>>().join(", "))
                }
                (None, Ok(manifests)) => format!("\"normalized\": {}", normalized_of(input, &manifests)),
                (None, Err(found)) => panic!("{}: {found:?}", case.name),
            };
            format!("  {{\"name\": {name}, \"input\": {input},\n   {rest}}}")
        })
        .collect();
    std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
}

#[test]
fn names_are_unique_in_their_topic() {
    for (path, cases) in topics() {
        let mut names = BTreeSet::new();
        for case in cases {
            assert!(names.insert(case.name.clone()), "{}: {} stands twice", path.display(), case.name);
        }
    }
}

#[test]
fn every_code_that_data_can_bring_about_has_a_rejecting_case() {
    let cases = topics().into_iter().flat_map(|(_, cases)| cases);
    let seen: BTreeSet<String> = cases.filter_map(|case| case.errors).flatten().map(|error| error.code).collect();
    for code in Code::ALL.iter().map(|code| code.as_str()) {
        assert_ne!(seen.contains(code), NOT_OF_DATA.contains(&code), "{code}");
    }
}

#[test]
fn every_normalized_form_is_restored_as_itself() {
    let cases = topics().into_iter().flat_map(|(_, cases)| cases);
    let mut restored = 0;
    for case in cases {
        let Some(normalized) = case.normalized else { continue };
        let list = match normalized {
            Value::Array(list) => list,
            one => vec![one],
        };
        for one in list {
            let text = Canonical::of(&one).unwrap();
            let manifest = Manifest::from_canonical(&text).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            assert_eq!(manifest.canonical(), text, "{}", case.name);
            restored += 1;
        }
    }
    assert!(restored > 100, "{restored}");
}
