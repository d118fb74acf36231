//! Every way to tamper with a ledger that must be caught, each beside an untouched twin that passes.
#![allow(clippy::unwrap_used)]
mod kit;

use ed25519_dalek::SigningKey;
use kit::{Book, join, known_type, rehash, signer, values};
use proptest::prelude::*;
use reversi_proto::canonical::Canonical;
use reversi_proto::ledger::verify::{Authenticity, Code, Completeness, Freshness, Options, Report, Verifier};
use reversi_proto::ledger::{LINE_BYTES_MAX, Signer, VerifierKey};
use serde_json::{Value, json};

const OPTIONS: Options<'static> =
    Options { known_type: &known_type, lenient: false, checkpoint: None, require_checkpoint: false, trust: None };

fn verify(text: &[u8], options: Options<'_>) -> Report {
    let mut verifier = Verifier::new(options);
    verifier.feed(text);
    verifier.finish()
}

/// Verified by the chain alone.
fn alone(text: &[u8]) -> Report {
    verify(text, OPTIONS)
}

/// Verified against a note and the small ledger's own key.
fn anchored(text: &[u8], note: &str) -> Report {
    let signer = signer(&Book::small(1).log());
    verify(text, Options { checkpoint: Some(note.as_bytes()), trust: Some(signer.verifier()), ..OPTIONS })
}

fn small() -> (Vec<u8>, String) {
    let book = Book::small(1);
    (book.text(), book.note(book.lines.len()))
}

/// Edits the untouched lines, and expects the chain alone to name the line (from 1) and the code.
#[track_caller]
fn caught(name: &str, line: u64, code: Code, edit: impl FnOnce(&mut Vec<Vec<u8>>)) {
    let mut lines = Book::small(1).lines;
    let untouched = lines.clone();
    assert!(alone(&join(&lines)).is_ok(), "{name}: the untouched twin");
    edit(&mut lines);
    assert_ne!(lines, untouched, "{name}: nothing was changed");
    let bad = alone(&join(&lines)).first_bad;
    let found = bad.as_ref().map(|bad| (bad.line, bad.code));
    assert_eq!(found, Some((line, code)), "{name}: {bad:?}");
}

/// Replaces text in the line with this number, from 1.
fn replace(line: usize, from: &str, to: &str) -> impl FnOnce(&mut Vec<Vec<u8>>) {
    move |lines| {
        let text = String::from_utf8(lines[line - 1].clone()).unwrap();
        assert!(text.contains(from), "{from} not in {text}");
        lines[line - 1] = text.replacen(from, to, 1).into_bytes();
    }
}

fn replace_owned(line: usize, from: &'static str, to: String) -> impl FnOnce(&mut Vec<Vec<u8>>) {
    move |lines| replace(line, from, &to)(lines)
}

/// A record with another value somewhere, in canonical form but with its old hashes.
fn edited(line: &[u8], edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut record: Value = serde_json::from_slice(line).unwrap();
    edit(&mut record);
    Canonical::of(&record).unwrap().as_str().as_bytes().to_vec()
}

#[test]
fn the_untouched_ledger_states_four_facts() {
    let (text, note) = small();
    let report = anchored(&text, &note);
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.records, 14);
    assert_eq!(report.bytes, text.len() as u64);
    assert_eq!((report.runs, report.runs_open), (2, 0));
    assert_eq!(report.last_ts.as_deref(), Some("2026-10-01T00:00:00.013000Z"));
    assert_eq!(report.completeness, Completeness::Covered { size: 14 });
    assert_eq!(report.freshness, Freshness::Current);
    assert!(matches!(report.authenticity, Authenticity::Trusted { .. }));
    let unpinned = verify(&text, Options { checkpoint: Some(note.as_bytes()), ..OPTIONS });
    assert!(unpinned.is_ok());
    let Authenticity::UnknownKey { keys } = unpinned.authenticity else { panic!("{unpinned:?}") };
    assert_eq!(keys, [signer(&Book::small(1).log()).verifier().short()]);
    let bare = alone(&text);
    assert!(bare.is_ok());
    assert_eq!(
        (bare.authenticity, bare.completeness, bare.freshness),
        (Authenticity::NoCheckpoint, Completeness::Unknown, Freshness::Unknown)
    );
}

/// The form of lines and notes never drifts: both files also pass an implementation that shares no code with this one.
#[test]
fn the_golden_ledger_is_written_and_verified() {
    let (text, note) = small();
    assert_eq!(String::from_utf8(text).unwrap(), include_str!("data/golden_ledger.jsonl"));
    assert_eq!(note, include_str!("data/golden_ledger.note"));
    assert!(anchored(include_bytes!("data/golden_ledger.jsonl"), include_str!("data/golden_ledger.note")).is_ok());
}

#[test]
fn every_flipped_bit_is_caught() {
    let (text, note) = small();
    assert!(anchored(&text, &note).is_ok());
    let last_line = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for at in 0..text.len() {
        let mut text = text.clone();
        text[at] ^= 1 << (at % 7);
        assert!(!anchored(&text, &note).is_ok(), "byte {at}");
        // The chain alone can't see a change in the newest record: nothing follows on it.
        assert!(at >= last_line || alone(&text).first_bad.is_some(), "byte {at}, by the chain alone");
    }
}

#[test]
fn an_edited_record_is_caught() {
    caught("ts backwards", 5, Code::TimeBackwards, replace(5, "00:00:00.004000Z", "00:00:00.002999Z"));
    caught("ts forwards", 6, Code::PrevMismatch, replace(5, ".004000Z", ".004500Z"));
    caught("type", 6, Code::PrevMismatch, replace(5, "step.begun", "step.blocked"));
    caught("unknown type", 5, Code::UnknownType, replace(5, "step.begun", "step_begun"));
    caught("run", 5, Code::RunSeqMismatch, replace(5, "run_a", "run_c"));
    caught("run_seq", 5, Code::RunSeqMismatch, replace(5, r#""run_seq":1"#, r#""run_seq":2"#));
    caught("actor", 6, Code::PrevMismatch, replace(5, "bot-1", "bot-2"));
    caught("actor kind", 6, Code::PrevMismatch, replace(5, "agent", "human"));
    caught("commitment", 6, Code::PrevMismatch, replace(5, r#""args":""#, r#""args":"0"#));
    caught("salt", 6, Code::PrevMismatch, |lines| lines[4] = edited(&lines[4], |r| r["salt"] = json!("00".repeat(16))));
    caught("ledger", 5, Code::OtherLedger, |lines| {
        lines[4] = edited(&lines[4], |r| r["ledger"] = json!("02".repeat(16)));
    });
    caught("prev", 5, Code::PrevMismatch, |lines| lines[4] = edited(&lines[4], |r| r["prev"] = json!("00".repeat(32))));
    caught("run_prev", 5, Code::RunPrevMismatch, |lines| {
        lines[4] = edited(&lines[4], |r| r["run_prev"] = json!("00".repeat(32)));
    });
    caught("seq", 5, Code::SeqMismatch, replace(5, r#""seq":4"#, r#""seq":5"#));
    caught("v", 5, Code::UnknownVersion, replace(5, r#""v":1"#, r#""v":2"#));
    caught("member added", 5, Code::WrongMembers, replace(5, r#""v":1"#, r#""v":1,"w":1"#));
    caught("member removed", 5, Code::WrongMembers, replace(5, r#","v":1"#, ""));
    caught("body member added", 6, Code::PrevMismatch, replace(5, r#""tool":"#, r#""t":1,"tool":"#));
    caught("12.5 -> 12.50", 10, Code::NotCanonical, replace(10, "12.5", "12.50"));
    caught("NFC -> NFD", 4, Code::PrevMismatch, replace(3, "\u{e9}", "e\u{301}"));
}

#[test]
fn dropped_inserted_and_moved_records_are_caught() {
    caught("middle dropped", 5, Code::SeqMismatch, |lines| drop(lines.remove(4)));
    caught("first dropped", 1, Code::SeqMismatch, |lines| drop(lines.remove(0)));
    caught("inserted", 6, Code::PrevMismatch, |lines| {
        let forged = edited(&lines[4], |r| r["seq"] = json!(5));
        lines.insert(5, forged);
    });
    caught("swapped", 5, Code::SeqMismatch, |lines| lines.swap(4, 5));
    caught("doubled", 6, Code::SeqMismatch, |lines| lines.insert(5, lines[4].clone()));
    caught("spliced from another ledger", 5, Code::OtherLedger, |lines| lines[4] = Book::small(2).lines[4].clone());
    caught("spliced and renamed", 5, Code::PrevMismatch, |lines| {
        lines[4] = edited(&Book::small(2).lines[4], |r| r["ledger"] = json!("01".repeat(16)));
    });
    caught("a whole run dropped", 4, Code::SeqMismatch, |lines| {
        lines.retain(|line| !String::from_utf8_lossy(line).contains(r#""run":"run_b""#));
    });
    caught("all dropped", 1, Code::EmptyLedger, Vec::clear);
    caught("no opening", 1, Code::OpeningMisplaced, |lines| {
        *lines = rehash(values(&lines[1..]));
    });
    caught("a second opening", 5, Code::OpeningMisplaced, |lines| {
        let mut records = values(lines);
        records.insert(4, records[0].clone());
        records[4]["ts"] = records[3]["ts"].clone();
        *lines = rehash(records);
    });
}

#[test]
fn a_seal_that_lies_is_caught() {
    // The forger redoes the hashes after the seal, so that nothing but the seal itself is wrong.
    let reseal = |at: usize, edit: fn(&mut Value)| {
        move |lines: &mut Vec<Vec<u8>>| {
            let record = edited(&lines[at], |record| edit(&mut record["body"]));
            lines.truncate(at);
            lines.push(record);
        }
    };
    caught("records", 9, Code::SealMismatch, reseal(8, |body| body["records"] = json!(2)));
    caught("root", 9, Code::SealMismatch, reseal(8, |body| body["run_root"] = json!("00".repeat(32))));
    caught("root left out", 9, Code::SealMismatch, reseal(8, |body| *body = json!({"records": 3})));
    caught("second seal", 13, Code::SealMismatch, reseal(12, |body| body["records"] = json!(1)));
    caught("a seal of no run", 14, Code::SealMismatch, |lines| {
        // It states the right numbers, but the records of no run have no end.
        let mut book = Book::small(1);
        book.seal("");
        lines[13] = edited(&lines[13], |record| record["type"] = json!("run.sealed"));
        assert_eq!(alone(&book.text()).first_bad.unwrap().code, Code::SealMismatch);
    });
}

#[test]
fn other_bytes_for_the_same_value_are_caught() {
    caught("key order", 10, Code::NotCanonical, replace(10, r#""a":12.5,"z":1"#, r#""z":1,"a":12.5"#));
    caught("1.0", 10, Code::NotCanonical, replace(10, r#""z":1"#, r#""z":1.0"#));
    caught("1.25e1", 10, Code::NotCanonical, replace(10, "12.5", "1.25e1"));
    caught("white space", 10, Code::NotCanonical, replace(10, r#""z":1"#, r#""z": 1"#));
    caught("white space at the end", 10, Code::NotCanonical, |lines| lines[9].push(b' '));
    caught("escaped é", 3, Code::NotCanonical, replace(3, "\u{e9}", "\\u00e9"));
    caught("escaped slash", 3, Code::NotCanonical, replace(3, ":write", "\\/write"));
    caught("doubled key", 10, Code::NotCanonical, replace(10, r#""z":1"#, r#""z":1,"z":1"#));
    caught("smuggled key", 10, Code::NotCanonical, replace(10, r#""z":1"#, r#""\u007a":2,"z":1"#));
    caught("doubled member", 5, Code::NotCanonical, replace(5, r#","v":1"#, r#","v":1,"v":1"#));
    caught("-0", 10, Code::NotCanonical, replace(10, r#""z":1"#, r#""z":-0"#));
    caught("latin-1", 3, Code::NotCanonical, |lines| {
        let at = lines[2].iter().position(|byte| *byte == 0xc3).unwrap();
        lines[2][at] = 0xe9;
    });
    caught("CR", 5, Code::CarriageReturn, |lines| lines[4].push(b'\r'));
    caught("CR everywhere", 1, Code::CarriageReturn, |lines| lines.iter_mut().for_each(|line| line.push(b'\r')));
    caught("BOM", 1, Code::ByteOrderMark, |lines| drop(lines[0].splice(0..0, *b"\xef\xbb\xbf")));
    caught("blank line", 5, Code::BlankLine, |lines| lines.insert(4, Vec::new()));
    caught("blank line at the end", 15, Code::BlankLine, |lines| lines.push(Vec::new()));
    caught("an array", 5, Code::WrongMembers, |lines| lines[4] = b"[1]".to_vec());
    caught("no JSON", 5, Code::NotCanonical, |lines| lines[4] = b"# a comment".to_vec());
    let (text, _) = small();
    for cut in [1, 2, 300] {
        let bad = alone(&text[..text.len() - cut]).first_bad.unwrap();
        assert_eq!((bad.line, bad.code), (14, Code::HalfLine), "{cut} bytes of the last line cut");
    }
}

#[test]
fn what_a_chain_is_blind_to_is_caught_by_the_checkpoint() {
    let (untouched, note) = small();
    assert!(anchored(&untouched, &note).is_ok());
    let forged = |name: &str, lines: &[Vec<u8>], code: Code| {
        assert!(alone(&join(lines)).is_ok(), "{name}: the chain alone sees nothing");
        let report = anchored(&join(lines), &note);
        assert_eq!(report.codes(), [code], "{name}: {report:?}");
    };
    let book = Book::small(1);
    let mut records = values(&book.lines);
    records[9]["body"]["plan"]["cost"]["a"] = json!(1.25);
    forged("re-hashed after an edit", &rehash(records), Code::CheckpointRootMismatch);
    let mut records = values(&book.lines);
    records.retain(|record| record["run"] != "run_b");
    forged("a whole run dropped and re-hashed", &rehash(records), Code::TailCut);
    forged("tail cut", &book.lines[..13], Code::TailCut);
    forged("tail cut to the opening", &book.lines[..1], Code::TailCut);
    let mut last = book.lines.clone();
    last[13] = edited(&last[13], |record| record["body"]["clean"] = json!(false));
    forged("newest record edited", &last, Code::CheckpointRootMismatch);
    forged("file replaced", &Book::small(2).lines, Code::CheckpointOtherLedger);
    let mut replaced = values(&Book::small(2).lines);
    for record in &mut replaced {
        record["ledger"] = json!("01".repeat(16));
    }
    forged("file replaced under the same ledger id", &rehash(replaced), Code::CheckpointRootMismatch);
}

#[test]
fn an_appended_forgery_is_caught_or_shown() {
    let (untouched, note) = small();
    assert_eq!(anchored(&untouched, &note).freshness, Freshness::Current);
    caught("appended without the hashes", 15, Code::PrevMismatch, |lines| {
        lines.push(edited(&lines[13], |record| record["seq"] = json!(14)));
    });
    // A forger who chains it can't make the checkpoint cover it.
    let mut forged = Book::small(1);
    forged.add("", "daemon.started", &json!({"boot": 9}));
    let report = anchored(&forged.text(), &note);
    assert!(report.is_ok());
    assert_eq!(report.freshness, Freshness::Unanchored { records: 1 });
    // And a checkpoint made after it covers what was really written.
    let mut real = Book::small(1);
    real.add("", "daemon.started", &json!({"boot": 2}));
    assert_eq!(anchored(&forged.text(), &real.note(15)).codes(), [Code::CheckpointRootMismatch]);
    assert!(anchored(&real.text(), &real.note(15)).is_ok());
}

#[test]
fn a_wrong_signature_is_caught() {
    let (text, note) = small();
    let book = Book::small(1);
    assert!(anchored(&text, &note).is_ok());
    let caught = |name: &str, note: &str, code: Code| {
        let report = anchored(&text, note);
        assert_eq!(report.codes().first(), Some(&code), "{name}: {report:?}");
        assert!(matches!(report.authenticity, Authenticity::Failed { .. }), "{name}: {report:?}");
    };
    let with = |name: &str, seed: u8| Signer::new(name, SigningKey::from_bytes(&[seed; 32])).unwrap();
    caught(
        "other key, same name",
        &with(&book.log(), 8).sign(&book.checkpoint(14)).unwrap().to_string(),
        Code::CheckpointOtherKey,
    );
    let mut elsewhere = book.checkpoint(14);
    elsewhere.origin = "reversi.example/other".to_owned();
    caught("other origin", &signer(&book.log()).sign(&elsewhere).unwrap().to_string(), Code::CheckpointOtherOrigin);
    caught("origin edited", &note.replacen("example/main", "example/mine", 1), Code::CheckpointBadSignature);
    caught("size edited", &note.replace("\n14\n", "\n13\n"), Code::CheckpointBadSignature);
    caught("signature line dropped", note.split_once('\u{2014}').unwrap().0, Code::CheckpointMalformed);
    caught("empty", "", Code::CheckpointMalformed);
    caught("a fourth line", &note.replace("\n\n", "\nmore\n\n"), Code::CheckpointMalformed);
    let blob = note.rsplit_once(' ').unwrap().1.trim_end().len();
    let start = note.len() - 1 - blob;
    for at in 0..blob {
        let mut flipped = note.clone().into_bytes();
        flipped[start + at] = if flipped[start + at] == b'A' { b'B' } else { b'A' };
        let report = anchored(&text, std::str::from_utf8(&flipped).unwrap());
        assert!(!report.is_ok(), "base64 character {at}");
    }
    // The edited size is caught without any key: the root is another one.
    let edited = note.replace("\n14\n", "\n13\n");
    let report = verify(&text, Options { checkpoint: Some(edited.as_bytes()), ..OPTIONS });
    assert_eq!(report.codes(), [Code::CheckpointRootMismatch]);
}

#[test]
fn a_stale_note_is_an_unanchored_tail_and_no_tampering() {
    let book = Book::small(1);
    let report = anchored(&book.text(), &book.note(9));
    assert!(report.is_ok());
    assert_eq!(report.completeness, Completeness::Covered { size: 9 });
    assert_eq!(report.freshness, Freshness::Unanchored { records: 5 });
    assert!(anchored(&book.text(), &book.note(0)).is_ok());
}

#[test]
fn a_removed_checkpoint_is_caught_where_one_is_required() {
    let (text, note) = small();
    let required = Options { require_checkpoint: true, ..OPTIONS };
    assert_eq!(verify(&text, required).codes(), [Code::CheckpointMissing]);
    let required = Options { require_checkpoint: true, checkpoint: Some(note.as_bytes()), ..OPTIONS };
    assert!(verify(&text, required).is_ok());
}

#[test]
fn a_broken_ledger_still_says_what_its_checkpoint_covers() {
    let book = Book::small(1);
    let mut lines = book.lines.clone();
    lines[11] = edited(&lines[11], |record| record["body"]["step"] = json!(2));
    let early = anchored(&join(&lines), &book.note(9));
    assert_eq!(early.codes(), [Code::PrevMismatch]);
    assert_eq!(early.completeness, Completeness::Covered { size: 9 });
    assert_eq!(early.freshness, Freshness::Unknown);
    let late = anchored(&join(&lines), &book.note(14));
    assert_eq!(late.completeness, Completeness::NotReached { size: 14, verified: 12 });
}

#[test]
fn a_key_that_anybody_signs_for_can_not_be_trusted() {
    let key: Result<VerifierKey, _> = "x+00000000+AQEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".parse();
    assert!(key.unwrap_err().to_string().ends_with("it is a weak key, for which anybody can sign"));
    let good = signer("x").verifier().to_string();
    assert!(good.parse::<VerifierKey>().is_ok());
}

#[test]
fn a_lenient_verification_warns_about_what_is_new() {
    let mut book = Book::small(1);
    book.add("", "weather.changed", &json!({}));
    assert_eq!(alone(&book.text()).first_bad.unwrap().code, Code::UnknownType);
    let report = verify(&book.text(), Options { lenient: true, ..OPTIONS });
    assert!(report.is_ok());
    assert_eq!((report.warnings_total, report.warnings[0].line, report.warnings[0].code), (1, 15, Code::UnknownType));
    let mut records = values(&book.lines);
    records[4]["v"] = json!(2);
    records[4]["mood"] = json!("new");
    let text = join(&rehash(records));
    assert_eq!(alone(&text).first_bad.unwrap().code, Code::UnknownVersion);
    let report = verify(&text, Options { lenient: true, ..OPTIONS });
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.warnings.iter().map(|w| w.code).collect::<Vec<_>>(), [Code::UnknownVersion, Code::UnknownType]);
}

#[test]
fn hostile_lines_are_findings_and_no_crashes() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let into_plan = |json: String| replace_owned(10, r#""z":1"#, format!(r#""z":{json}"#));
    caught("depth 128", 10, Code::NotCanonical, into_plan(nested(124)));
    caught("depth 30,000", 10, Code::NotCanonical, into_plan(nested(30_000)));
    caught("depth 10^6", 10, Code::LineTooLong, into_plan(nested(1_000_000)));
    caught("60,000 digits", 10, Code::NotCanonical, into_plan("1".repeat(60_000)));
    caught("60,000 digits behind the point", 10, Code::NotCanonical, into_plan(format!("0.{}", "1".repeat(60_000))));
    caught("10^6 digits", 10, Code::LineTooLong, into_plan("1".repeat(1_000_000)));
    caught("one byte too long", 10, Code::LineTooLong, |lines| lines[9].resize(LINE_BYTES_MAX + 1, b' '));
    caught("as long as it may be", 10, Code::NotCanonical, |lines| lines[9].resize(LINE_BYTES_MAX, b' '));
    let mut verifier = Verifier::new(OPTIONS);
    let chunk = vec![b'x'; 1 << 20];
    let taken = (0..1024).take_while(|_| verifier.feed(&chunk)).count();
    assert!(taken < 8, "a line of 1 GiB was read for {taken} MiB");
    assert_eq!(verifier.finish().codes(), [Code::LineTooLong]);
}

#[test]
fn the_depth_of_a_line_counts_its_own_levels() {
    // plan.cost.z is inside four objects, so 123 more levels reach 127.
    let nested = format!("{}{}", "[".repeat(123), "]".repeat(123));
    caught("depth 127", 11, Code::PrevMismatch, replace_owned(10, r#""z":1"#, format!(r#""z":{nested}"#)));
}

#[test]
fn a_bad_line_is_named_wherever_the_batches_end() {
    let mut book = Book::new(1);
    for n in 0..9_000 {
        book.add(["", "run_a", "run_b"][n % 3], "step.begun", &json!({"n": n, "filler": "x".repeat(n % 200)}));
    }
    let (text, note) = (book.text(), book.note(book.lines.len()));
    assert!(text.len() > 4 << 20, "the ledger must take more than one batch, it is {} bytes", text.len());
    assert!(anchored(&text, &note).is_ok());
    for line in [2, 150, 4_321, 8_999] {
        let mut lines = book.lines.clone();
        lines[line] = edited(&lines[line], |record| record["body"]["n"] = json!(-1));
        let bad = alone(&join(&lines)).first_bad.unwrap();
        assert_eq!((bad.line, bad.code), (line as u64 + 2, Code::PrevMismatch));
        lines[line].push(b' ');
        let bad = alone(&join(&lines)).first_bad.unwrap();
        assert_eq!((bad.line, bad.code), (line as u64 + 1, Code::NotCanonical));
    }
}

proptest! {
    #[test]
    fn the_report_is_the_same_for_every_chunking(
        cuts in prop::collection::vec(1_usize..900, 1..20),
        at in any::<prop::sample::Index>(),
        damage in any::<bool>(),
    ) {
        let (mut text, note) = small();
        if damage {
            let at = at.index(text.len());
            text[at] ^= 4;
        }
        let whole = anchored(&text, &note);
        let signer = signer(&Book::small(1).log());
        let options = Options { checkpoint: Some(note.as_bytes()), trust: Some(signer.verifier()), ..OPTIONS };
        let mut verifier = Verifier::new(options);
        let mut rest = &text[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*cut));
            verifier.feed(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(verifier.finish(), whole);
    }

    #[test]
    fn no_bytes_crash_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!alone(&bytes).is_ok());
    }
}
