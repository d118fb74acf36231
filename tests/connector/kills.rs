//! kill -9 at every named point of a change and of its undo, also twice in a row and inside recovery. Whatever the
//! moment: either nothing happened, or the change is there with a token that takes it back; and nothing runs twice.
use std::fs;

use serde_json::{Value, json};

use super::harness::{Sandbox, changes, token};

const POINTS: [&str; 9] =
    ["saved", "prepared", "copied", "aside", "changed", "flagged", "keyed", "recorded", "committed"];

/// Kills a connector in the middle of a call; false if the call never passed the point.
fn killed_at(sandbox: &Sandbox, point: &str, tool: &str, args: &Value, key: &str) -> bool {
    sandbox.dying_connector(point).try_call(tool, args, Some(key)).is_none()
}

fn story(sandbox: &Sandbox, point: &str, tool: &str, args: &Value, twice: bool) {
    let context = format!("{tool} {args} killed at {point}");
    let before = sandbox.hash();
    if !killed_at(sandbox, point, tool, args, "do") {
        return;
    }
    if twice {
        // Dies while recovering, if there is anything to recover.
        sandbox.dying_connector("recovering").close();
    }
    let mut connector = sandbox.connector();
    connector.ok("fs.list_dir", &json!({}), None);
    let happened = sandbox.hash() != before;
    assert_eq!(sandbox.executed("do"), usize::from(happened), "{context}: the record disagrees with the tree");
    let token = token(&connector.ok(tool, args, Some("do")));
    let after = sandbox.hash();
    assert_ne!(after, before, "{context}");
    assert_eq!(sandbox.executed("do"), 1, "{context}: executed twice");
    assert!(!connector.matches_before(&token));
    drop(connector);

    let undo = json!({ "undo_token": token });
    let died = killed_at(sandbox, point, "fs.restore", &undo, "undo");
    let mut connector = sandbox.connector();
    connector.ok("fs.list_dir", &json!({}), None);
    let undone = sandbox.hash();
    assert!(undone == before || undone == after, "{context}: half undone");
    assert_eq!(sandbox.executed("undo"), usize::from(undone == before), "{context}: undo and record disagree");
    assert!(died || undone == before);
    connector.restore(&token, Some("undo"));
    assert_eq!(sandbox.hash(), before, "{context}: not undone");
    assert!(connector.matches_before(&token));
    assert_eq!(sandbox.executed("undo"), 1, "{context}: undone twice");
    assert!(connector.close());
}

#[test]
fn a_kill_at_any_point_leaves_all_or_nothing() {
    for point in POINTS {
        for (tool, args) in changes() {
            story(&Sandbox::in_memory(), point, tool, &args, false);
        }
    }
}

#[test]
fn a_kill_inside_recovery_changes_nothing() {
    for point in ["prepared", "changed", "recorded"] {
        for (tool, args) in changes() {
            story(&Sandbox::in_memory(), point, tool, &args, true);
        }
    }
}

#[test]
fn a_kill_over_a_filesystem_border_leaves_all_or_nothing() {
    for point in ["prepared", "copied", "aside", "changed"] {
        for (tool, args) in changes() {
            if let Some(sandbox) = Sandbox::across_filesystems() {
                story(&sandbox, point, tool, &args, true);
            }
        }
    }
}

#[test]
fn what_another_hand_deleted_in_between_was_not_deleted_here() {
    let sandbox = Sandbox::in_memory();
    let args = json!({ "path": "run.sh" });
    assert!(killed_at(&sandbox, "prepared", "fs.delete", &args, "do"));
    fs::remove_file(sandbox.root().join("run.sh")).unwrap();
    let mut connector = sandbox.connector();
    // A token now would promise content that nobody saved.
    assert!(connector.refused("fs.delete", &args, Some("do")).contains("nothing at"));
    assert_eq!(sandbox.executed("do"), 0);
}

#[test]
fn a_change_that_another_hand_went_over_keeps_its_token_and_is_not_restored_over_it() {
    let sandbox = Sandbox::in_memory();
    let args = json!({ "path": "docs/a.txt", "content": "other" });
    assert!(killed_at(&sandbox, "changed", "fs.write_file", &args, "do"));
    fs::write(sandbox.root().join("docs/a.txt"), "newer").unwrap();
    let mut connector = sandbox.connector();
    let token = token(&connector.ok("fs.write_file", &args, Some("do")));
    assert_eq!(sandbox.executed("do"), 1);
    connector.refused("fs.restore", &json!({ "undo_token": token }), None);
    assert_eq!(fs::read_to_string(sandbox.root().join("docs/a.txt")).unwrap(), "newer");
    fs::write(sandbox.root().join("docs/a.txt"), "other").unwrap();
    connector.restore(&token, None);
    assert_eq!(fs::read_to_string(sandbox.root().join("docs/a.txt")).unwrap(), "alpha");
}
