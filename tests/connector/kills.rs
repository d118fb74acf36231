//! kill -9 at every named point of a change and of its undo, also twice in a row and inside recovery. Whatever the
//! moment: either nothing happened, or the change is there with a token that takes it back; and nothing runs twice.
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
