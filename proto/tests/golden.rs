//! Encodings are frozen: one file per record type. `UPDATE_GOLDEN=1` rewrites them; a changed file means that journals
//! written before can't be read any more.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::BTreeMap;
use std::path::PathBuf;

use reversi_proto::event::{Event, KINDS};
use reversi_proto::hash::hex;
use reversi_proto::testing::sample_events;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// Body and private half of a golden file.
fn parts(text: &str) -> (&str, Vec<u8>) {
    let inner = text.strip_prefix("{\"body\":").and_then(|text| text.strip_suffix("\"}\n")).unwrap();
    let (body, private) = inner.rsplit_once(",\"private\":\"").unwrap();
    (body, bytes_of(private))
}

fn text_of(event: &Event) -> String {
    let encoded = event.encode().unwrap();
    format!("{{\"body\":{},\"private\":\"{}\"}}\n", encoded.body.as_str(), hex(&encoded.private))
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn every_kind_has_one_sample() {
    let mut kinds: BTreeMap<&str, u32> = KINDS.iter().map(|kind| (*kind, 0)).collect();
    for event in sample_events() {
        *kinds.get_mut(event.kind()).unwrap() += 1;
    }
    assert!(kinds.values().all(|count| *count == 1), "{kinds:?}");
}

#[test]
fn encodings_are_what_they_were() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = vec![];
    for event in sample_events() {
        let (path, text) = (folder().join(format!("{}.json", event.kind())), text_of(&event));
        if update {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        match std::fs::read_to_string(&path) {
            Ok(golden) if golden == text => {}
            Ok(golden) => wrong.push(format!("{} was\n{golden}and is\n{text}", event.kind())),
            Err(error) => wrong.push(format!("{}: {error}; UPDATE_GOLDEN=1 writes a new file", event.kind())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_golden_file_is_read_as_its_event() {
    let mut read = 0;
    let samples: BTreeMap<&str, Event> = sample_events().into_iter().map(|event| (event.kind(), event)).collect();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let (body, private) = parts(&text);
        assert_eq!(Event::decode(kind, body, &private).unwrap(), samples[kind], "{kind}");
        read += 1;
    }
    assert_eq!(read, KINDS.len(), "a golden file too many or too few");
}

/// Fields that came later are optional and left out while they say nothing: what was written without them is read, and
/// written again as the same text.
#[test]
fn what_was_written_before_a_field_came_is_still_the_same_text() {
    let mut read = 0;
    for entry in std::fs::read_dir(folder().with_file_name("v1-older")).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let (body, private) = parts(&text);
        assert_eq!(text_of(&Event::decode(kind, body, &private).unwrap()), text, "{kind}");
        read += 1;
    }
    assert!(read > 0);
}
