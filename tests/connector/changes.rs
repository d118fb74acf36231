//! Every change can be taken back, once, and not over somebody else's newer change.
use std::fs;

use reversi::connector::Outcome;
use serde_json::json;

use super::harness::{Sandbox, changes, token};

fn every_change_goes_there_and_back(sandbox: &Sandbox) {
    let mut connector = sandbox.connector();
    for (number, (tool, args)) in changes().into_iter().enumerate() {
        let before = sandbox.hash();
        let token = token(&connector.ok(tool, &args, None));
        assert_ne!(sandbox.hash(), before, "{tool} {args} changed nothing");
        assert!(!connector.matches_before(&token));

        let key = format!("undo:{number}");
        let restored = connector.restore(&token, Some(&key));
        assert_eq!(restored["already"], json!(false));
        assert_eq!(sandbox.hash(), before, "{tool} {args} was not taken back");
        assert!(connector.matches_before(&token));

        assert_eq!(connector.restore(&token, Some(&key)), restored, "the same key gives the same answer");
        assert_eq!(connector.restore(&token, None)["already"], json!(true));
        assert_eq!(sandbox.hash(), before);
        assert_eq!(sandbox.executed(&key), 1);
    }
}

#[test]
fn every_change_can_be_taken_back() {
    every_change_goes_there_and_back(&Sandbox::new());
}

#[test]
fn every_change_can_be_taken_back_over_a_filesystem_border() {
    if let Some(sandbox) = Sandbox::across_filesystems() {
        every_change_goes_there_and_back(&sandbox);
    }
}

#[test]
fn a_series_of_changes_is_taken_back_newest_first() {
    let sandbox = Sandbox::new();
    let before = sandbox.hash();
    let mut connector = sandbox.connector();
    let series = [
        ("fs.make_dir", json!({ "path": "new" })),
        ("fs.write_file", json!({ "path": "new/x", "content": "1" })),
        ("fs.append_file", json!({ "path": "new/x", "content": "2" })),
        ("fs.move", json!({ "from": "docs/a.txt", "to": "new/a.txt" })),
        ("fs.write_file", json!({ "path": "docs/a.txt", "content": "again" })),
        ("fs.delete", json!({ "path": "docs", "recursive": true })),
    ];
    let tokens: Vec<String> = series.iter().map(|(tool, args)| token(&connector.ok(tool, args, None))).collect();
    for token in tokens.iter().rev() {
        connector.restore(token, None);
    }
    assert_eq!(sandbox.hash(), before);
}

#[test]
fn a_newer_change_is_not_overwritten() {
    for (tool, args) in changes() {
        let sandbox = Sandbox::new();
        let mut connector = sandbox.connector();
        let answer = connector.ok(tool, &args, None);
        let touched = args["to"].as_str().or(args["path"].as_str()).unwrap();
        let path = sandbox.root().join(touched);
        if path.is_dir() {
            fs::write(path.join("newer"), "newer").unwrap();
        } else {
            fs::write(&path, "newer").unwrap();
        }
        let changed = sandbox.hash();
        let why = connector.refused("fs.restore", &json!({ "undo_token": token(&answer) }), Some("k"));
        assert!(why.contains("has changed since"), "{why}");
        assert_eq!(sandbox.hash(), changed);
        assert_eq!(sandbox.executed("k"), 0);
    }
}

#[test]
fn what_somebody_else_took_back_counts_as_restored() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    let answer = connector.ok("fs.write_file", &json!({ "path": "docs/a.txt", "content": "other" }), None);
    fs::write(sandbox.root().join("docs/a.txt"), "alpha").unwrap();
    assert_eq!(connector.restore(&token(&answer), None)["already"], json!(true));
}

#[test]
fn a_key_stands_for_one_call() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    let args = json!({ "path": "docs/a.txt", "content": "+" });
    let first = connector.ok("fs.append_file", &args, Some("k1"));
    drop(connector);
    let mut connector = sandbox.connector();
    assert_eq!(connector.ok("fs.append_file", &args, Some("k1")), first);
    assert_eq!(fs::read_to_string(sandbox.root().join("docs/a.txt")).unwrap(), "alpha+");
    let other = json!({ "path": "docs/a.txt", "content": "-" });
    assert!(connector.refused("fs.append_file", &other, Some("k1")).contains("key"));
    assert_eq!(fs::read_to_string(sandbox.root().join("docs/a.txt")).unwrap(), "alpha+");
    let outcomes: Vec<Outcome> = sandbox.calls().iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Executed, Outcome::Deduplicated, Outcome::Refused]);
}

#[test]
fn every_call_is_on_record() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    let token = token(&connector.ok("fs.make_dir", &json!({ "path": "d" }), Some("k")));
    connector.ok("fs.list_dir", &json!({}), None);
    connector.refused("fs.make_dir", &json!({ "path": "d" }), None);
    let calls = sandbox.calls();
    assert_eq!(calls.iter().map(|call| call.n).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((calls[0].key.as_deref(), calls[0].token.as_deref()), (Some("k"), Some(token.as_str())));
    assert_eq!(calls[1].outcome, Outcome::Read);
    assert_eq!(calls[2].outcome, Outcome::Refused);
}

#[test]
fn a_torn_line_of_the_record_is_cut_off() {
    let sandbox = Sandbox::new();
    sandbox.connector().ok("fs.make_dir", &json!({ "path": "d" }), None);
    let file = sandbox.state().join("calls.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{whole}{{\"n\":2,\"to")).unwrap();
    sandbox.connector().ok("fs.make_dir", &json!({ "path": "e" }), None);
    assert_eq!(sandbox.calls().iter().map(|call| call.n).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_counters_execute_every_call() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector_with(&["--non-idempotent"]);
    let args = json!({ "name": "n", "by": 5 });
    assert_eq!(connector.ok("fs.counter_add", &args, Some("k"))["value"], json!(5));
    assert_eq!(connector.ok("fs.counter_add", &args, Some("k"))["value"], json!(10));
    assert_eq!(connector.ok("fs.counter_sub", &json!({ "name": "n", "by": 3 }), Some("k"))["value"], json!(7));
    assert_eq!(sandbox.executed("k"), 3);
    assert_eq!(sandbox.connector().error_code("fs.counter_add", &args), -32602);
}

#[test]
fn two_connectors_of_one_root_agree() {
    let sandbox = Sandbox::new();
    let before = sandbox.hash();
    let mut agents = sandbox.connector();
    let mut daemons = sandbox.connector();
    let made = token(&agents.ok("fs.write_file", &json!({ "path": "x", "content": "1" }), Some("k")));
    assert_eq!(token(&daemons.ok("fs.write_file", &json!({ "path": "x", "content": "1" }), Some("k"))), made);
    daemons.restore(&made, None);
    assert_eq!(agents.restore(&made, None)["already"], json!(true));
    assert_eq!(sandbox.hash(), before);
    let numbers: Vec<u64> = sandbox.calls().iter().map(|call| call.n).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[test]
fn a_state_directory_serves_one_root() {
    let (one, two) = (Sandbox::new(), Sandbox::new());
    one.connector().ok("fs.list_dir", &json!({}), None);
    let root = two.root();
    let args = ["connector", "fs", "--root", root.to_str().unwrap(), "--state", one.state().to_str().unwrap()];
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    assert!(!super::harness::Connector::start(&args, None).close());
}
