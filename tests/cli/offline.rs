//! verify, doctor, validate and keygen on files.
use std::os::unix::fs::PermissionsExt as _;

use reversi_proto::ledger::note::key_from_seed;

use crate::ledger::{Book, LOG, arg, verifier_key};
use crate::program::{reversi, reversi_fed};

// --- verify

#[test]
fn an_untouched_ledger_verifies_in_four_facts() {
    let book = Book::undone();
    let ledger = book.file("ledger.jsonl", &book.lines);
    let said = reversi(["verify", arg(&ledger)]).exits(0);
    for (fact, words) in [
        ("integrity", "ok: 14 records and 1 runs"),
        ("authenticity", "nobody vouches for it"),
        ("completeness", "unknown: without a checkpoint"),
        ("freshness", "unknown"),
        ("result", "nothing speaks against it, but without --checkpoint"),
    ] {
        assert!(said.out.lines().any(|line| line.starts_with(fact) && line.contains(words)), "{fact}: {}", said.out);
    }
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert_eq!(said.err, "");
    let piped = reversi_fed(&["verify", "-"], &std::fs::read(&ledger).unwrap()).exits(0);
    assert_eq!(piped.out, said.out);
}

#[test]
fn a_pinned_key_and_a_checkpoint_make_it_verified() {
    let book = Book::undone();
    let ledger = book.file("ledger.jsonl", &book.lines);
    // As a sink has it: many notes, a cut one at the end; the one that covers most counts.
    let (old, new) = (book.note(3), book.note(14));
    let notes = book.text("notes", &format!("{old}\n{new}\n{}", &new[..40]));
    let unpinned = reversi(["verify", arg(&ledger), "--checkpoint", arg(&notes)]).exits(0);
    assert!(unpinned.out.contains("signed by UNKNOWN key"), "{}", unpinned.out);
    assert!(!unpinned.out.contains("result        verified"), "{}", unpinned.out);

    let texts = key_from_seed(LOG, &[9; 32]).unwrap();
    let vkey = book.text("ledger.vkey", &format!("{}\n", texts.verifier));
    let pem = book.text("ledger.pem", &texts.public);
    for trust in [verifier_key().as_str(), arg(&vkey), arg(&pem)] {
        let args = ["verify", arg(&ledger), "--checkpoint", arg(&notes), "--trust", trust, "--require-checkpoint"];
        let said = reversi(args).exits(0);
        assert!(said.words().contains("ok: signed by the trusted key ledger.example/0707"), "{}", said.out);
        assert!(said.out.contains("covers the first 14 records"), "{}", said.out);
        assert!(said.out.contains("result        verified"), "{}", said.out);
        let json = reversi(args.iter().copied().chain(["--json"])).exits(0).json();
        assert_eq!((&json["ok"], &json["authenticity"]["status"]), (&true.into(), &"trusted".into()));
        assert_eq!((&json["completeness"]["size"], &json["records"]), (&14.into(), &14.into()));
    }
}

#[test]
fn a_changed_line_is_named_with_its_reason() {
    let book = Book::undone();
    let mut lines = book.lines.clone();
    lines[3] = lines[3].replace("asked for", "asked far");
    let bad = book.file("bad.jsonl", &lines);
    let said = reversi(["verify", arg(&bad)]).exits(1);
    assert!(said.out.contains("BROKEN at line 5, seq 4"), "{}", said.out);
    assert!(said.out.contains("NOT VERIFIED (prev_mismatch)"), "{}", said.out);
    let json = reversi(["verify", arg(&bad), "--json"]).exits(1).json();
    assert_eq!(
        (&json["ok"], &json["codes"][0], &json["first_bad"]["line"]),
        (&false.into(), &"prev_mismatch".into(), &5.into())
    );
}

#[test]
fn a_dropped_a_doubled_and_a_half_line_are_caught() {
    let book = Book::undone();
    let mut dropped = book.lines.clone();
    dropped.remove(6);
    let mut doubled = book.lines.clone();
    doubled.insert(6, book.lines[5].clone());
    for (name, lines, code) in [("dropped", dropped, "seq_mismatch"), ("doubled", doubled, "seq_mismatch")] {
        let said = reversi(["verify", arg(&book.file(name, &lines))]).exits(1);
        assert!(said.out.contains(code), "{name}: {}", said.out);
    }
    let half = book.text("half", &book.lines.join("\n")[..2000]);
    assert!(reversi(["verify", arg(&half)]).exits(1).out.contains("half_line"));
    assert!(reversi(["verify", arg(&book.text("empty", ""))]).exits(1).out.contains("empty_ledger"));
}

#[test]
fn a_cut_tail_is_seen_by_the_checkpoint_alone() {
    let book = Book::undone();
    let cut = book.file("cut.jsonl", &book.lines[..11]);
    let notes = book.text("notes", &book.note(14));
    reversi(["verify", arg(&cut)]).exits(0);
    let said = reversi(["verify", arg(&cut), "--checkpoint", arg(&notes)]).exits(1);
    assert!(
        said.out.contains("completeness  FAILED (tail_cut): the checkpoint covers 14 records, here are 11"),
        "{}",
        said.out
    );
    assert!(said.out.contains("NOT VERIFIED (tail_cut)"), "{}", said.out);
}

#[test]
fn a_required_checkpoint_must_be_there_and_a_wrong_one_must_not_pass() {
    let book = Book::undone();
    let ledger = book.file("ledger.jsonl", &book.lines);
    let said = reversi(["verify", arg(&ledger), "--require-checkpoint"]).exits(1);
    assert!(said.out.contains("checkpoint_missing"), "{}", said.out);
    let nonsense = book.text("nonsense", "no note\n");
    let said = reversi(["verify", arg(&ledger), "--checkpoint", arg(&nonsense)]).exits(1);
    assert!(said.out.contains("checkpoint_malformed"), "{}", said.out);
    let other = key_from_seed(LOG, &[8; 32]).unwrap();
    let notes = book.text("notes", &book.note(14));
    let args = ["verify", arg(&ledger), "--checkpoint", arg(&notes), "--trust"];
    let said = reversi(args.iter().copied().chain([other.verifier.to_string().as_str()])).exits(1);
    assert!(said.out.contains("checkpoint_other_key"), "{}", said.out);
    let pem = book.text("other.pem", &other.public);
    let said = reversi(args.iter().copied().chain([arg(&pem)])).exits(1);
    assert!(said.out.contains("checkpoint_other_key"), "{}", said.out);
}

#[test]
fn unknown_types_fail_unless_lenient() {
    let mut book = Book::undone();
    book.add("", "daemon.danced", &serde_json::json!({}));
    let ledger = book.file("ledger.jsonl", &book.lines);
    assert!(reversi(["verify", arg(&ledger)]).exits(1).out.contains("unknown_type"));
    let said = reversi(["verify", arg(&ledger), "--lenient"]).exits(0);
    assert!(said.err.starts_with("warning: line 15: "), "{}", said.err);
}

#[test]
fn what_is_no_ledger_and_no_key_is_said() {
    let book = Book::undone();
    let ledger = book.file("ledger.jsonl", &book.lines);
    let said = reversi(["verify", "/nowhere/ledger.jsonl"]).exits(1);
    assert!(said.err.starts_with("error: /nowhere/ledger.jsonl can't be read"), "{}", said.err);
    let said = reversi(["verify", arg(book.dir.path())]).exits(1);
    assert!(said.err.contains("is no data directory"), "{}", said.err);
    let said = reversi(["verify", arg(&ledger), "--trust", "no-such-key"]).exits(64);
    assert!(said.err.contains("neither a verifier key"), "{}", said.err);
    let private = book.text("ledger.key", &key_from_seed(LOG, &[9; 32]).unwrap().private);
    let said = reversi(["verify", arg(&ledger), "--trust", arg(&private)]).exits(64);
    assert!(said.err.contains("this is a private key"), "{}", said.err);
}

#[test]
fn a_hostile_line_can_not_steer_the_terminal() {
    let book = Book::undone();
    let mut lines = book.lines.clone();
    lines[3] = lines[3].replace("\"type\":\"step.begun\"", "\"type\":\"\\u001b[2J\u{202e}\"");
    let said = reversi(["verify", arg(&book.file("bad.jsonl", &lines))]).exits(1);
    assert!(!said.out.contains(['\u{1b}', '\u{202e}']), "{}", said.out);
}

// --- doctor

#[test]
fn a_sound_export_has_every_invariant() {
    let book = Book::undone();
    let ledger = book.file("ledger.jsonl", &book.lines);
    let said = reversi(["doctor", arg(&ledger)]).exits(0);
    let words: Vec<&str> = said.out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for invariant in ["decode", "fold", "I3", "I4", "I5", "I6", "I7", "I8", "I9"] {
        assert!(words.contains(&invariant), "{invariant}: {}", said.out);
    }
    assert!(!said.out.contains("violated"), "{}", said.out);
    assert!(said.err.contains("14 records, 1 runs, 2 steps, 2 undo attempts; 0 intents are open"), "{}", said.err);
    let json = reversi(["doctor", arg(&ledger), "--json"]).exits(0).json();
    assert_eq!((&json["ok"], json["invariants"].as_array().unwrap().len()), (&true.into(), 9));
}

#[test]
fn a_violated_invariant_is_named_with_its_record() {
    let book = Book::undone_in_the_wrong_order();
    let ledger = book.file("ledger.jsonl", &book.lines);
    let said = reversi(["doctor", arg(&ledger)]).exits(1);
    assert!(said.out.lines().any(|line| line.starts_with("I4      violated")), "{}", said.out);
    assert!(said.out.contains("seq 8: step 1 is undone before step 2"), "{}", said.out);
    assert!(said.out.lines().any(|line| line.starts_with("I5      ok")), "{}", said.out);
    let json = reversi(["doctor", arg(&ledger), "--json"]).exits(1).json();
    assert_eq!(json["invariants"][3]["violations"][0]["seq"], 8);
}

#[test]
fn a_broken_chain_is_the_doctors_business_too() {
    let book = Book::undone();
    let mut lines = book.lines.clone();
    lines.remove(6);
    let said = reversi(["doctor", arg(&book.file("bad.jsonl", &lines))]).exits(1);
    assert!(said.out.lines().any(|line| line.starts_with("I5      violated")), "{}", said.out);
    assert!(said.out.contains("seq_mismatch"), "{}", said.out);
}

// --- keygen

#[test]
fn a_new_key_pair_is_private_pinnable_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys/mf.v2");
    let (key, public) = (dir.path().join("keys/mf.v2.key"), dir.path().join("keys/mf.v2.pub"));
    let said = reversi(["keygen", arg(&path), "--name", "mf.example"]).exits(0);
    assert!(said.out.starts_with("mf.example+") && said.out.lines().count() == 1, "{}", said.out);
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let pem = std::fs::read_to_string(&key).unwrap();
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    let pinned = reversi_proto::ledger::note::public_key_from_pem(&std::fs::read_to_string(&public).unwrap()).unwrap();
    let vkey: reversi_proto::ledger::VerifierKey = said.out.trim().parse().unwrap();
    assert_eq!(vkey.key(), &pinned);
    assert!(!said.err.contains(&pem[30..60]), "the private key was printed");

    let again = reversi(["keygen", arg(&path)]).exits(1);
    assert!(again.err.contains("exists and is not overwritten"), "{}", again.err);
    std::fs::remove_file(&key).unwrap();
    reversi(["keygen", arg(&path)]).exits(1);
    assert!(!key.exists(), "half a pair was made");
    reversi(["keygen", arg(&dir.path().join("x")), "--name", "two words"]).exits(64);
}

// --- validate

// A4
#[test]
fn manifests_are_counted_or_their_mistakes_listed() {
    let said = reversi(["validate", concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/payments.yaml")]).exits(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("ok: 3 tool manifests valid\n", ""));
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("a.yaml", "tool: a\neffect: read_only\npermission: x\n");
    write("ignored.txt", "nonsense");
    assert_eq!(reversi(["validate", arg(dir.path())]).exits(0).out, "ok: 1 tool manifest valid\n");
    write("b.json", "{\"tool\": \"b\", \"efect\": \"read_only\", \"permission\": \"x y\"}");
    let said = reversi(["validate", arg(dir.path())]).exits(1);
    let place = format!("{}:1:15: efect: ", dir.path().join("b.json").display());
    assert!(said.out.lines().any(|line| line.starts_with(&place)), "{}", said.out);
    assert!(said.err.ends_with("mistakes\n"), "{}", said.err);
    let json = reversi(["validate", arg(dir.path()), "--json"]).exits(1).json();
    assert_eq!((&json["ok"], &json["diagnostics"][0]["line"]), (&false.into(), &1.into()));
}

#[test]
fn nothing_to_validate_is_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let said = reversi(["validate", arg(dir.path())]).exits(1);
    assert!(said.out.contains("there is no .yaml, .yml or .json file in this folder"), "{said:?}");
    assert_eq!(said.err, "1 mistake\n");
    reversi(["validate", "/nowhere"]).exits(1);
}
