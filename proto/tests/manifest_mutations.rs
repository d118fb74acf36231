//! Files that nobody would write: random texts, and files that are right but for some bytes. Never a panic; what is
//! refused has a place, what is accepted means something.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use proptest::prelude::*;
use reversi_proto::manifest::{Code, Diagnostic, Loaded, Manifest, ManifestSet, load};
use serde_json::{Value, json};

const PAYMENTS: &str = include_str!("../../manifests/payments.yaml");

/// Any JSON with what JSON allows in texts and keys.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_000_000_i64..1_000_000).prop_map(Value::from),
        (-1e6..1e6_f64).prop_filter("canonical", |x| x.abs() > 1e-3).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[ -~\\t\\n\"\\\\:#{},&*!|>%@`'-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ -~]{0,8}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// The fixture files and the example of the page.
fn seeds() -> &'static [Vec<u8>] {
    static SEEDS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    SEEDS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/manifests");
        let mut seeds = vec![PAYMENTS.as_bytes().to_vec()];
        for entry in std::fs::read_dir(folder).unwrap() {
            let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
            let right: Vec<&Value> =
                cases.iter().filter(|case| case.get("normalized").is_some()).map(|case| &case["input"]).collect();
            let inputs: Vec<&Value> = cases.iter().map(|case| &case["input"]).collect();
            seeds.push(serde_json::to_vec_pretty(&right[..right.len().min(8)]).unwrap());
            seeds.push(serde_json::to_vec(&inputs).unwrap());
        }
        seeds
    })
}

fn judged_soundly(file: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    let loaded = Loaded::of(file, bytes);
    let whole = load(file, bytes);
    prop_assert_eq!(whole.as_ref().err().map_or(&[][..], Vec::as_slice), loaded.diagnostics());
    let _set = ManifestSet::of_files(vec![loaded]);
    match whole {
        Ok(list) => {
            prop_assert!(!list.is_empty());
            for manifest in list {
                let back = Manifest::from_canonical(&manifest.canonical());
                prop_assert_eq!(back.as_ref().ok(), Some(&manifest), "{:?}", back.as_ref().err());
            }
        }
        Err(errors) => {
            prop_assert!(!errors.is_empty());
            let text = String::from_utf8_lossy(bytes);
            let lines: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
            for Diagnostic { source, line, column, code, message, .. } in &errors {
                prop_assert_eq!((source.as_str(), message.is_empty()), (file, false));
                if *line == 0 {
                    prop_assert!(matches!(code, Code::Empty | Code::TooMany), "no place: {}", message);
                    continue;
                }
                // One beyond the end of the line, where the text stops too early; a line break of its own is `\r` too.
                let on_line = lines.get(*line as usize - 1).copied();
                let returns = text.contains('\r');
                prop_assert!(
                    returns || on_line.is_some_and(|length| *column as usize <= length + 1),
                    "{line}:{column} {message}"
                );
                prop_assert!(*column > 0);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_panics_on_mutated_bytes(
        changes in prop::collection::vec((0..PAYMENTS.len(), any::<u8>(), 0..4_u8), 1..12), json in any::<bool>(),
    ) {
        let mut bytes = PAYMENTS.as_bytes().to_vec();
        for (at, byte, change) in changes {
            let at = at.min(bytes.len().saturating_sub(1));
            match change {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => { bytes.remove(at); }
                _ => bytes.insert(at, b"[]{}&*!|>'\"%@`#:-?, \n\t"[usize::from(byte) % 22]),
            }
        }
        let _either = load(if json { "m.json" } else { "m.yaml" }, &bytes);
    }

    #[test]
    fn never_panics_on_any_text(text in "[\\[\\]{}&*!|>'\"%@#:?, \n\tab-]{0,60}") {
        let _either = load("m.yaml", text.as_bytes());
    }

    /// Fixture files with bytes flipped, deleted, spliced from elsewhere and repeated: never a panic, and what is said
    /// points into the text; what is accepted is the same when its normalized form is read back.
    #[test]
    fn mutated_fixtures_are_refused_at_a_place_or_mean_something(
        which in 0..16_usize, from in any::<prop::sample::Index>(), length in 40..1200_usize,
        changes in prop::collection::vec(
            (0..6_u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..24_usize, any::<u8>()), 0..8,
        ),
    ) {
        let texts = seeds();
        let text = &texts[which % texts.len()];
        let start = from.index(text.len());
        // Half of the time a whole file, which may still be right after a change or two.
        let whole = which < 8;
        let mut bytes = if whole { text.clone() } else { text[start..(start + length).min(text.len())].to_vec() };
        for (change, at, other, count, byte) in changes {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            let end = (at + count).min(bytes.len());
            match change {
                0 => if let Some(found) = bytes.get_mut(at) { *found ^= 1 << (byte % 8) },
                1 => { bytes.drain(at..end); }
                2 => {
                    let chunk = bytes[at..end].repeat(1 + usize::from(byte % 40));
                    bytes.splice(at..at, chunk);
                }
                3 => {
                    let taken = other.index(text.len());
                    bytes.splice(at..end, text[taken..(taken + count).min(text.len())].iter().copied());
                }
                4 => bytes.insert(at, b"[]{}&*!|>'\"%@`#:-?, \n\t\r\\<~"[usize::from(byte) % 26]),
                _ => { bytes.splice(at..at, "\u{85}\u{2028}\u{feff}\u{e9}\\ud800".bytes().take(count)); }
            }
        }
        for file in ["m.json", "m.yaml"] {
            judged_soundly(file, &bytes)?;
        }
    }

    /// What JSON says must come out, in either layout.
    #[test]
    fn json_values_come_out_as_they_went_in(value in any_json(), pretty in any::<bool>()) {
        let manifest = json!({"tool": "t", "effect": "reversible", "permission": "p",
            "compensation": {"tool": "u", "verification": {"tool": "v", "expect": {"x": value}}}});
        let text = if pretty { serde_json::to_string_pretty(&manifest) } else { serde_json::to_string(&manifest) }.unwrap();
        let list = load("m.json", text.as_bytes()).map_err(|errors| TestCaseError::fail(format!("{errors:#?}\n{text}")))?;
        let expect = &list[0].compensation.as_ref().unwrap().verification.as_ref().unwrap().expect;
        prop_assert_eq!(expect.first_mismatch(&json!({"x": value})), None);
    }
}
