//! Nothing outside the root can be read or changed.
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::RenameFlags;
use serde_json::{Value, json};

use super::harness::{Connector, Sandbox, token};

/// Every tool that takes a path, called with this one.
fn all_with(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("fs.read_file", json!({ "path": path })),
        ("fs.list_dir", json!({ "path": path })),
        ("fs.stat", json!({ "path": path })),
        ("fs.write_file", json!({ "path": path, "content": "x" })),
        ("fs.append_file", json!({ "path": path, "content": "x" })),
        ("fs.move", json!({ "from": path, "to": "taken" })),
        ("fs.move", json!({ "from": "run.sh", "to": path })),
        ("fs.make_dir", json!({ "path": path })),
        ("fs.delete", json!({ "path": path, "recursive": true })),
    ]
}

#[test]
fn paths_that_leave_the_root_are_wrong_calls() {
    let sandbox = Sandbox::new();
    let (before, outside) = (sandbox.hash(), sandbox.outside_hash());
    let mut connector = sandbox.connector();
    let absolute = sandbox.outside().join("secret");
    for path in ["../outside/secret", "docs/../../outside/secret", "..", absolute.to_str().unwrap(), "/etc/passwd"] {
        for (tool, args) in all_with(path) {
            assert_eq!(connector.error_code(tool, &args), -32602, "{tool} {path}");
        }
    }
    assert_eq!((sandbox.hash(), sandbox.outside_hash()), (before, outside));
}

#[test]
fn links_to_directories_are_not_followed() {
    let sandbox = Sandbox::new();
    symlink(sandbox.outside(), sandbox.root().join("out")).unwrap();
    symlink("docs", sandbox.root().join("in")).unwrap();
    let (before, outside) = (sandbox.hash(), sandbox.outside_hash());
    let mut connector = sandbox.connector();
    for path in ["out/secret", "out/new", "in/a.txt", "in/deep/b.txt"] {
        for (tool, args) in all_with(path) {
            let why = connector.refused(tool, &args, None);
            assert!(why.contains("link"), "{tool} {path}: {why}");
        }
    }
    assert!(connector.refused("fs.list_dir", &json!({ "path": "out" }), None).contains("link"));
    assert_eq!((sandbox.hash(), sandbox.outside_hash()), (before, outside));
}

#[test]
fn links_to_files_are_not_followed_and_can_be_deleted() {
    let sandbox = Sandbox::new();
    symlink(sandbox.outside().join("secret"), sandbox.root().join("out")).unwrap();
    let (before, outside) = (sandbox.hash(), sandbox.outside_hash());
    let mut connector = sandbox.connector();
    connector.refused("fs.read_file", &json!({ "path": "out" }), None);
    connector.refused("fs.write_file", &json!({ "path": "out", "content": "x" }), None);
    connector.refused("fs.append_file", &json!({ "path": "out", "content": "x" }), None);
    let stat = connector.ok("fs.stat", &json!({ "path": "out" }), None);
    assert_eq!((&stat["kind"], stat.get("size")), (&json!("link"), None));
    let token = token(&connector.ok("fs.delete", &json!({ "path": "out" }), None));
    assert_eq!(sandbox.outside_hash(), outside);
    connector.restore(&token, None);
    assert_eq!((sandbox.hash(), sandbox.outside_hash()), (before, outside));
}

/// Exchanges two names of the root all the time while `calls` runs.
fn while_swapping(sandbox: &Sandbox, names: [&str; 2], calls: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    let dir = fs::File::open(sandbox.root()).unwrap();
    std::thread::scope(|scope| {
        // Also when `calls` panics: the scope waits for the thread.
        let _stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(&dir, names[0], &dir, names[1], RenameFlags::EXCHANGE).unwrap();
            }
        });
        calls();
    });
}

#[test]
fn a_directory_swapped_for_a_link_during_calls_leads_nowhere() {
    let sandbox = Sandbox::new();
    let outside = sandbox.outside_hash();
    fs::create_dir(sandbox.root().join("real")).unwrap();
    symlink(sandbox.outside(), sandbox.root().join("trap")).unwrap();
    let mut connector = sandbox.connector();
    let (mut written, mut refused) = (0, 0);
    while_swapping(&sandbox, ["real", "trap"], || {
        for number in 0..150 {
            let args = json!({ "path": format!("real/{number}"), "content": "x" });
            let answer = connector.try_call("fs.write_file", &args, None).unwrap();
            if answer["result"]["isError"] == json!(false) { written += 1 } else { refused += 1 }
        }
    });
    assert_eq!(sandbox.outside_hash(), outside);
    assert!(written > 0 && refused > 0, "the race was not one: {written} written, {refused} refused");
}

#[test]
fn a_file_swapped_for_a_link_during_calls_shows_nothing() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.root().join("real"), "public").unwrap();
    symlink(sandbox.outside().join("secret"), sandbox.root().join("trap")).unwrap();
    let mut connector = sandbox.connector();
    let (mut read, mut refused) = (0, 0);
    while_swapping(&sandbox, ["real", "trap"], || {
        for _ in 0..600 {
            let answer = connector.try_call("fs.read_file", &json!({ "path": "real" }), None).unwrap();
            assert!(!answer.to_string().contains("s3cret"), "{answer}");
            if answer["result"]["isError"] == json!(false) { read += 1 } else { refused += 1 }
        }
    });
    assert!(read > 0 && refused > 0, "the race was not one: {read} read, {refused} refused");
}

#[test]
fn undo_tokens_are_no_paths() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    for token in ["../../outside", "undo_../../../x", "undo_", ""] {
        assert_eq!(connector.error_code("fs.restore", &json!({ "undo_token": token })), -32602);
        assert_eq!(connector.error_code("fs.stat", &json!({ "undo_token": token })), -32602);
    }
    let unknown = format!("undo_{}", "0".repeat(32));
    assert!(connector.refused("fs.restore", &json!({ "undo_token": unknown }), None).contains("no undo token"));
}

#[test]
fn state_and_root_must_not_contain_each_other() {
    let sandbox = Sandbox::new();
    let root = sandbox.root();
    let before = sandbox.hash();
    for state in [root.join("state"), root.clone(), root.parent().unwrap().to_owned()] {
        let args = ["connector", "fs", "--root", root.to_str().unwrap(), "--state", state.to_str().unwrap()];
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert!(!Connector::start(&args, None).close(), "{}", state.display());
    }
    assert_eq!(sandbox.hash(), before, "a refused start left something in the tree");
}

#[test]
fn the_root_itself_stays() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    for path in ["", ".", "./"] {
        connector.refused("fs.delete", &json!({ "path": path, "recursive": true }), None);
        connector.refused("fs.move", &json!({ "from": path, "to": "x" }), None);
    }
}
