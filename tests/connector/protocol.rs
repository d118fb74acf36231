//! What a client sees of the connector: handshake, tool list, errors, reads, withheld answers, the end.
use serde_json::{Value, json};

use super::harness::{Sandbox, token};

#[test]
fn the_handshake_agrees_on_a_version() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    for (asked, got) in [("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")] {
        connector.send("initialize", &json!({ "protocolVersion": asked, "capabilities": {} }));
        assert_eq!(connector.receive().unwrap()["result"]["protocolVersion"], json!(got));
    }
    connector.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    connector.send("ping", &json!({}));
    assert_eq!(connector.receive().unwrap()["result"], json!({}));
    assert!(connector.close(), "the end of the input ends the connector");
}

#[test]
fn nine_tools_are_listed_with_closed_schemas() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    connector.send("tools/list", &json!({}));
    let answer = connector.receive().unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let wanted =
        "fs.read_file fs.list_dir fs.stat fs.write_file fs.append_file fs.make_dir fs.move fs.delete fs.restore";
    let mut wanted: Vec<&str> = wanted.split(' ').collect();
    wanted.sort_unstable();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, wanted);
    for tool in tools {
        assert_eq!(tool["inputSchema"]["additionalProperties"], json!(false));
        let reads = ["fs.read_file", "fs.list_dir", "fs.stat"].contains(&tool["name"].as_str().unwrap());
        assert_eq!(tool["annotations"]["readOnlyHint"], json!(reads));
    }
}

#[test]
fn wrong_calls_execute_nothing() {
    let sandbox = Sandbox::new();
    let before = sandbox.hash();
    let mut connector = sandbox.connector();
    for (tool, args) in [
        ("fs.write_file", json!({ "path": "x", "content": "y", "mode": 7 })),
        ("fs.write_file", json!({ "path": "x" })),
        ("fs.write_file", json!({ "path": "x", "content": 7 })),
        ("fs.write_file", json!({ "path": "x", "content": "!", "encoding": "base64" })),
        ("fs.write_file", json!({ "path": "x", "content": "y", "encoding": "latin1" })),
        ("fs.delete", json!({ "path": "docs", "recursive": "yes" })),
        ("fs.stat", json!({})),
        ("fs.read_file", json!({ "path": "run.sh", "max_bytes": 99_000_000 })),
        ("fs.chmod", json!({ "path": "run.sh" })),
    ] {
        assert_eq!(connector.error_code(tool, &args), -32602, "{tool} {args}");
    }
    connector.send("tools/explode", &json!({}));
    assert_eq!(connector.receive().unwrap()["error"]["code"], json!(-32601));
    for (line, code) in [("{", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600)] {
        connector.send_line(line);
        assert_eq!(connector.receive().unwrap()["error"]["code"], json!(code), "{line}");
    }
    let key = json!({ "name": "fs.make_dir", "arguments": { "path": "d" }, "_meta": { "reversi/idempotency-key": 7 } });
    connector.send("tools/call", &key);
    assert_eq!(connector.receive().unwrap()["error"]["code"], json!(-32602));
    assert_eq!(sandbox.hash(), before);
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_next_one_read() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    connector.send_line(&format!("{{\"x\":\"{}\"}}", "x".repeat(17 * 1024 * 1024)));
    assert_eq!(connector.receive().unwrap()["error"]["code"], json!(-32600));
    connector.send("ping", &json!({}));
    assert_eq!(connector.receive().unwrap()["result"], json!({}));
}

#[test]
fn what_the_world_refuses_is_a_sentence() {
    let sandbox = Sandbox::new();
    let before = sandbox.hash();
    let mut connector = sandbox.connector();
    for (tool, args, part) in [
        ("fs.read_file", json!({ "path": "none" }), "nothing at `none`"),
        ("fs.read_file", json!({ "path": "docs" }), "is a directory"),
        ("fs.write_file", json!({ "path": "no/x", "content": "" }), "no directory `no`"),
        ("fs.write_file", json!({ "path": "docs", "content": "" }), "is a directory"),
        ("fs.write_file", json!({ "path": "run.sh/x", "content": "" }), "no directory"),
        ("fs.move", json!({ "from": "run.sh", "to": "docs/a.txt" }), "stands at"),
        ("fs.move", json!({ "from": "docs", "to": "docs/deep/docs" }), "below it"),
        ("fs.move", json!({ "from": "none", "to": "x" }), "nothing at `none`"),
        ("fs.make_dir", json!({ "path": "docs" }), "stands at"),
        ("fs.delete", json!({ "path": "docs" }), "recursive"),
        ("fs.delete", json!({ "path": "none" }), "nothing at `none`"),
    ] {
        let why = connector.refused(tool, &args, None);
        assert!(why.contains(part), "{tool} {args}: {why}");
    }
    assert_eq!(sandbox.hash(), before);
}

#[test]
fn files_are_read_in_parts() {
    let sandbox = Sandbox::new();
    let mut connector = sandbox.connector();
    connector.ok("fs.write_file", &json!({ "path": "x", "content": "aäöü" }), None);
    let part = connector.ok("fs.read_file", &json!({ "path": "x", "max_bytes": 4 }), None);
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("aä"), &json!(3)));
    let rest = connector.ok("fs.read_file", &json!({ "path": "x", "offset": 3 }), None);
    assert_eq!((&rest["content"], &rest["next_offset"]), (&json!("öü"), &Value::Null));
    connector.ok("fs.write_file", &json!({ "path": "x", "content": "/wA=", "encoding": "base64" }), None);
    let binary = connector.ok("fs.read_file", &json!({ "path": "x" }), None);
    assert_eq!((&binary["content"], &binary["encoding"]), (&json!("/wA="), &json!("base64")));
    let list = connector.ok("fs.list_dir", &json!({ "path": "docs" }), None);
    let kinds: Vec<&str> = list["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["file", "dir", "link"]);
    let stat = connector.ok("fs.stat", &json!({ "path": "run.sh" }), None);
    assert_eq!((&stat["exists"], &stat["kind"], &stat["mode"]), (&json!(true), &json!("file"), &json!("0755")));
    assert_eq!(connector.ok("fs.stat", &json!({ "path": "none" }), None)["exists"], json!(false));
}

#[test]
fn an_executed_call_can_be_left_without_an_answer() {
    let sandbox = Sandbox::new();
    let before = sandbox.hash();
    let made = token(&sandbox.connector().ok("fs.write_file", &json!({ "path": "x", "content": "1" }), None));
    let mut holding = sandbox.connector_with(&["--hold-after", "fs.restore"]);
    holding.send_call("fs.restore", &json!({ "undo_token": made }), Some("k"));
    holding.send("ping", &json!({}));
    // Answers come in order, so the restore has none.
    assert_eq!(holding.receive().unwrap()["id"], json!(2));
    assert_eq!((sandbox.hash(), sandbox.executed("k")), (before, 1));
    // The repeated call is answered: it executes nothing.
    assert_eq!(holding.restore(&made, Some("k"))["already"], json!(false));
    assert_eq!(sandbox.executed("k"), 1);
    assert!(holding.close());
}
