//! Every testable statement of the customer's page on manifests has a test that names it, or a reason why not. A test
//! names what it proves in a comment of its own line: `// A17 C1`, optionally ` - ` and words. Knows no statement by
//! its meaning, only its number.
#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests are outside of #[test] functions
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The groups of statements that are built, with how many each has: A1 to A22 and so on.
const GROUPS: [(&str, u32); 13] = [
    ("A", 22),
    ("B", 13),
    ("C", 4),
    ("D", 6),
    ("E", 11),
    ("F", 6),
    ("G", 8),
    ("H", 6),
    ("I", 4),
    ("J", 10),
    ("P", 7),
    ("Q", 6),
    ("S", 5),
];

const REGISTRY: &str = "comes with the registry";
const PYTHON: &str = "comes with the Python SDK, which runs the same fixtures";

/// What no test proves yet, and why. An item that a test names must not stand here.
const NOT_COVERED: &[(&str, &str)] = &[
    ("B11", REGISTRY),
    ("I4", REGISTRY),
    ("P6", "live upstreams come with the gateway"),
    ("S2", PYTHON),
    ("S4", PYTHON),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn items() -> BTreeSet<String> {
    GROUPS.iter().flat_map(|(group, last)| (1..=*last).map(move |number| format!("{group}{number}"))).collect()
}

/// Item to the places that name it.
type Marks = BTreeMap<String, Vec<String>>;

fn marks_of(folder: &Path, marks: &mut Marks) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            marks_of(&path, marks);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let place = path.strip_prefix(root()).unwrap().display().to_string();
            for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
                for id in ids_of(line) {
                    marks.entry(id.to_owned()).or_default().push(format!("{place}:{}", number + 1));
                }
            }
        }
    }
}

/// The items that a line names; none if it is not a comment of such names alone.
fn ids_of(line: &str) -> Vec<&str> {
    let Some(text) = line.trim_start().strip_prefix("// ") else { return Vec::new() };
    let ids: Vec<&str> = text.split(" - ").next().unwrap_or(text).split_whitespace().collect();
    if ids.iter().all(|id| is_id(id)) { ids } else { Vec::new() }
}

fn is_id(text: &str) -> bool {
    let letters = text.chars().take_while(char::is_ascii_uppercase).count();
    let (group, number) = text.split_at(letters);
    (1..=2).contains(&group.len()) && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

#[test]
fn every_item_is_named_by_a_test_or_has_a_reason() {
    let mut marks = Marks::new();
    marks_of(&root(), &mut marks);
    let reasons: BTreeMap<&str, &str> = NOT_COVERED.iter().copied().collect();
    assert_eq!(reasons.len(), NOT_COVERED.len(), "an item stands twice");
    let items = items();
    let mut wrong = Vec::new();
    for item in &items {
        match (marks.get(item), reasons.get(item.as_str())) {
            (None, None) => wrong.push(format!("{item} is named by no test")),
            (Some(places), Some(_)) => {
                wrong.push(format!("{item} is named in {} and listed as not covered", places.join(", ")));
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
    }
    for (item, places) in marks.iter().filter(|(item, _)| !items.contains(*item)) {
        let group = item.trim_end_matches(|c: char| c.is_ascii_digit());
        if GROUPS.iter().any(|(known, _)| *known == group) {
            wrong.push(format!("{} names {item}, which there isn't", places.join(", ")));
        }
    }
    wrong.extend(reasons.keys().filter(|item| !items.contains(**item)).map(|item| format!("{item} is no item")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The numbers of a group as the checklist has them: everything of its letter in its section.
fn numbers(checklist: &str, group: &str) -> BTreeSet<u32> {
    let heading = format!("## {group}. ");
    let section = checklist.split("\n## ").map(|part| format!("## {part}"));
    let section = section.filter(|part| part.starts_with(&heading)).collect::<String>();
    let words = section.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| word.strip_prefix(group)?.parse().ok()).collect()
}

#[test]
fn the_groups_are_those_of_the_checklist() {
    let path = root().join("../shared/spec/checklist.md");
    let Ok(checklist) = fs::read_to_string(&path) else {
        eprintln!("skipped: the checklist is not at {}", path.display());
        return;
    };
    for (group, last) in GROUPS {
        assert_eq!(numbers(&checklist, group), (1..=last).collect(), "group {group}");
    }
}

#[test]
fn marks_are_told_from_other_comments() {
    assert_eq!(ids_of("    // A17 C1 - durations"), ["A17", "C1"]);
    assert_eq!(ids_of("// P4"), ["P4"]);
    for other in
        ["// A17, C1", "/// A17", "//! A17", "// A", "// 17", "// see A17", "let a = 1; // A17", "//A17", "// "]
    {
        assert!(ids_of(other).is_empty(), "{other}");
    }
    let text = "# x\n## A. One\nA1. \"B7\" · A2 two\nA3 [A4 ?]\n## B. Two\nB1 x, A9\n";
    assert_eq!(numbers(text, "A"), BTreeSet::from([1, 2, 3, 4]));
    assert_eq!(numbers(text, "B"), BTreeSet::from([1]));
}
