//! The commands that ask a daemon, against one that gives answers from a script.
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::ledger::arg;
use crate::program::{Said, command, said};

pub(crate) const KEY: &str = "rvk_abcdefghijkl_000000000000000000000000000000000000000000000000";

/// The daemon's clock.
const NOW: &str = "Thu, 01 Oct 2026 00:03:00 GMT";

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    headers: Vec<String>,
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn has(&self, header: &str) -> bool {
        self.headers.iter().any(|line| line.to_lowercase().starts_with(&header.to_lowercase()))
    }
}

/// Gives the answers in their order, one a connection.
pub(crate) struct Daemon {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Daemon {
    pub(crate) fn answering(answers: Vec<(u16, &'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (status, kind, body) in answers {
                let (stream, _) = listener.accept().unwrap();
                let request = read(&stream);
                seen.lock().unwrap().push(request);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
                     date: {NOW}\r\nconnection: close\r\n"
                );
                let extra = if status == 302 { "location: http://127.0.0.1:1/\r\n" } else { "" };
                (&stream).write_all(format!("{head}{extra}\r\n{body}").as_bytes()).unwrap();
            }
        });
        Self { url, asked }
    }

    pub(crate) fn json(answers: impl IntoIterator<Item = Value>) -> Self {
        let answer = |value: Value| (200, "application/json", value.to_string());
        Self::answering(answers.into_iter().map(answer).collect())
    }

    pub(crate) fn problem(status: u16, body: &Value) -> Self {
        Self::answering(vec![(status, "application/problem+json", body.to_string())])
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("REVERSI_URL", &self.url).env("REVERSI_KEY", KEY);
        command
    }

    pub(crate) fn tell(&self, args: &[&str]) -> Said {
        said(&mut self.command(args))
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let length = lines.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Asked { line: lines.remove(0), headers: lines, body }
}

fn entry(step: u32, reason: &str) -> Value {
    json!({"step": step, "tool": "files.write", "attempts": 1, "residue": [], "reason": reason})
}

fn report(status: &str, complete: bool, lists: &Value) -> Value {
    let mut report = json!({
        "run_id": "support:4821", "rollback_id": "rbk_00000000000000000000000000000001", "status": status,
        "complete": complete, "verified": true, "compensated": [], "in_progress": [], "failed": [],
    });
    for (name, list) in lists.as_object().unwrap() {
        report[name] = list.clone();
    }
    report
}

#[test]
fn runs_are_listed_at_80_columns_with_the_way_to_the_next_page() {
    let run = |id: &str, status: &str| {
        json!({"run_id": id, "mode": "enforce", "status": status, "permissions": ["a"], "actor": "bot-1",
               "reason": "\u{1b}[31ma refund for a very unhappy customer", "started_at": "2026-10-01T00:00:02.000000Z",
               "step_count": 12, "unresolved": 1})
    };
    let page = json!({"items": [run("support:4821", "active"), run("support:4822", "partly_rolled_back")], "next_cursor": "support:4822"});
    let daemon = Daemon::json([page]);
    let said = daemon.tell(&["runs", "list", "--limit", "2"]).exits(0);
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert!(said.out.contains("support:4822  partly_rolled_back  12, 1 open  2026-10-01 00:00"), "{}", said.out);
    assert!(!said.out.contains('\u{1b}'));
    assert_eq!(said.err, "there are more: reversi runs list --limit 2 --cursor support:4822\n");
    let asked = &daemon.asked()[0];
    assert_eq!(asked.line, "GET /v1/runs?limit=2 HTTP/1.1");
    assert!(asked.has(&format!("authorization: Bearer {KEY}")), "{asked:?}");
}

#[test]
fn a_run_is_shown_with_what_needs_a_person() {
    let body = json!({
        "run_id": "support:4821", "mode": "enforce", "status": "active", "permissions": ["files:write"], "actor": "bot-1",
        "reason": null, "started_at": "2026-10-01T00:00:02.000000Z", "step_count": 2, "unresolved": 1,
        "steps": [
            {"step": 1, "tool": "files.write", "status": "in_flight", "unresolved": true, "reason": "asked for",
             "begun_at": "2026-10-01T00:00:03.000000Z", "effect": "reversible", "recoverable": false, "missing": [],
             "findings": [], "approval_id": null, "disputed": false, "undo_attempts": 0},
            {"step": 2, "tool": "mail.send", "status": "blocked", "unresolved": false, "reason": "tell her",
             "begun_at": "2026-10-01T00:00:04.000000Z", "effect": null, "recoverable": false, "missing": [],
             "findings": [{"code": "approval.required", "text": "a person must approve mail.send"}],
             "approval_id": "apr_1", "disputed": false, "undo_attempts": 0},
        ],
    });
    let daemon = Daemon::json([body.clone(), body.clone()]);
    let said = daemon.tell(&["runs", "show", "support:4821"]).exits(0);
    for words in
        ["   1  in_flight", "! nobody knows whether it happened", "approval.required: a person must", "approval apr_1"]
    {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    assert_eq!(daemon.asked()[0].line, "GET /v1/runs/support%3A4821 HTTP/1.1");
    assert_eq!(daemon.tell(&["runs", "show", "support:4821", "--json"]).exits(0).json(), body);
}

#[test]
fn a_plan_and_a_dry_run_are_the_same_text() {
    let plan = json!({
        "run_id": "support:4821", "verdict": "partly_undoable",
        "steps": [
            {"step": 2, "tool": "stripe.create_charge", "action": "compensate", "undo_tool": "stripe.refund",
             "kind": "compensation", "residue": ["the charge still appears on the statement"], "requires_approval": true,
             "will_be_verified": true, "reason": null},
            {"step": 1, "tool": "stripe.get_charge", "action": "skip", "undo_tool": null, "kind": null, "residue": [],
             "requires_approval": false, "will_be_verified": false, "reason": "read_only"},
        ],
    });
    let daemon = Daemon::json([plan.clone(), plan]);
    let said = daemon.tell(&["runs", "plan", "support:4821"]).exits(0);
    let expected = "\
run support:4821 can be undone in part; newest step first:
   2  compensate      stripe.create_charge
      by stripe.refund (compensation), read back afterwards, after an approval
      stays: the charge still appears on the statement
   1  skip            stripe.get_charge: read_only
";
    assert_eq!(said.out, expected);
    assert_eq!(daemon.tell(&["runs", "rollback", "support:4821", "--dry-run"]).exits(0).out, expected);
    assert_eq!(daemon.asked()[1].body, json!({"dry_run": true}));
}

#[test]
fn a_rollback_is_followed_to_its_end() {
    let moving = report("rolling_back", false, &json!({"in_progress": [entry(2, "its turn has come")]}));
    let done = report("rolled_back", true, &json!({"compensated": [entry(2, "undone"), entry(1, "undone")]}));
    let daemon = Daemon::json([moving.clone(), moving, done]);
    let said = daemon.tell(&["runs", "rollback", "support:4821", "--wait"]).exits(0);
    for words in [
        "status    rolled_back",
        "complete  yes: nothing was left undone",
        "compensated (2)\n   2  files.write  1 undo attempt",
    ] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    let asked = daemon.asked();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    let (post, get) =
        ("POST /v1/runs/support%3A4821/rollback HTTP/1.1", "GET /v1/runs/support%3A4821/rollback HTTP/1.1");
    assert_eq!(lines, [post, get, get]);
    assert!(asked[0].has("idempotency-key: cli-"), "{asked:?}");
}

#[test]
fn a_rollback_that_leaves_something_is_1_and_one_that_waits_for_a_person_ends_the_wait() {
    let left =
        json!({"failed": [entry(2, "the undo failed")], "deferred": [entry(1, "a later step must be undone first")]});
    let daemon = Daemon::json([report("partly_rolled_back", false, &left)]);
    let said = daemon.tell(&["runs", "rollback", "support:4821", "--wait"]).exits(1);
    assert!(said.out.contains("failed: known not to be undone (1)"), "{}", said.out);
    let waiting = report("rolling_back", false, &json!({"awaiting_approval": [entry(1, "a person must approve")]}));
    let daemon = Daemon::json(vec![waiting; 3]);
    let said = daemon.tell(&["runs", "rollback", "support:4821", "--wait", "--steps", "3,5"]).exits(1);
    assert!(said.out.contains("awaiting approval (1)"), "{}", said.out);
    assert_eq!(daemon.asked()[0].body, json!({"steps": [3, 5]}));
}

#[test]
fn the_wait_ends_when_the_time_is_up() {
    let moving = report("rolling_back", false, &json!({"in_progress": [entry(2, "its turn has come")]}));
    let daemon = Daemon::json(vec![moving; 20]);
    let said =
        daemon.tell(&["runs", "rollback", "support:4821", "--wait", "--timeout", "0", "--to-step", "4"]).exits(1);
    assert!(said.err.contains("the time is up"), "{}", said.err);
    assert_eq!(daemon.asked()[0].body, json!({"to_step": 4}));
}

#[test]
fn without_wait_a_rollback_is_started_and_left_alone() {
    let moving = report("rolling_back", false, &json!({"in_progress": [entry(2, "its turn has come")]}));
    let daemon = Daemon::json([moving]);
    let said = daemon.tell(&["runs", "rollback", "support:4821"]).exits(0);
    assert!(said.err.contains("see `reversi runs report support:4821`"), "{}", said.err);
}

#[test]
fn a_resolution_says_what_was_seen() {
    let answer = json!({"step": 7, "status": "succeeded", "recoverable": true, "missing": []});
    let daemon = Daemon::json([answer.clone(), answer]);
    let args = [
        "runs",
        "resolve",
        "support:4821",
        "7",
        "succeeded",
        "--note",
        "charge ch_12 exists",
        "--result",
        r#"{"id":"ch_12"}"#,
    ];
    assert_eq!(daemon.tell(&args).exits(0).out, "step 7 is succeeded\n");
    daemon.tell(&["runs", "resolve", "support:4821", "7", "failed", "--undo", "--note", "gone"]).exits(0);
    let asked = daemon.asked();
    assert_eq!(asked[0].line, "POST /v1/runs/support%3A4821/steps/7/resolve HTTP/1.1");
    let expected =
        json!({"target": "step", "status": "succeeded", "note": "charge ch_12 exists", "result": {"id": "ch_12"}});
    assert_eq!(asked[0].body, expected);
    assert_eq!(asked[1].body, json!({"target": "undo", "status": "failed", "note": "gone"}));
    daemon.tell(&["runs", "resolve", "r", "1", "failed", "--note", "x", "--result", "{"]).exits(64);
}

#[test]
fn a_key_is_printed_once_and_alone() {
    let daemon = Daemon::json([json!({"key_id": "abcdefghijkl", "key": KEY, "actor": "bot", "roles": ["agent"]})]);
    let said = daemon.tell(&["keys", "create", "--role", "agent", "--actor", "bot", "--allow-observe"]).exits(0);
    assert_eq!(said.out, format!("{KEY}\n"));
    assert!(!said.err.contains(KEY) && said.err.contains("the only time"), "{}", said.err);
    let expected = json!({"actor": "bot", "roles": ["agent"], "allow_observe": true});
    assert_eq!(daemon.asked()[0].body, expected);
}

#[test]
fn the_status_names_problems() {
    let status = json!({
        "ledger": "07", "head": 300, "lag": 2, "checkpoint": 256, "runs_live": 1, "undos_live": 0,
        "quarantined": ["run/bad"], "tools": {"files.restore": "fs"}, "manifests": "ab",
        "started_at": "2026-10-01T00:00:02.000000Z", "disk_low": true, "sink_errors": 3,
    });
    let daemon = Daemon::json([status]);
    let said = daemon.tell(&["status"]).exits(0);
    for words in
        ["300, 44 of them not signed yet", "files.restore (fs)", "the disk is nearly full", "3 checkpoints", "run/bad"]
    {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
}

#[test]
fn an_export_is_whole_or_not_there() {
    let lines = "{\"a\":1}\n{\"a\":2}\n";
    let answer = |body: &str| (200, "application/jsonl", body.to_owned());
    let daemon = Daemon::answering(vec![answer(lines), answer(lines), answer("{\"a\":1}\n{\"a\"")]);
    let said = daemon.tell(&["ledger", "export", "--from", "3"]).exits(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), (lines, "2 records\n"));
    assert_eq!(daemon.asked()[0].line, "GET /v1/ledger/records?from=3 HTTP/1.1");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ledger.jsonl");
    daemon.tell(&["ledger", "export", "-o", arg(&file)]).exits(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), lines);
    let torn = dir.path().join("torn.jsonl");
    let said = daemon.tell(&["ledger", "export", "-o", arg(&torn)]).exits(1);
    assert!(said.err.contains("broke off within a record"), "{}", said.err);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a part of an export was left behind");
}

#[test]
fn a_checkpoint_is_printed_as_it_is() {
    let note = "ledger.example/07\n3\nAAAA\n\n\u{2014} ledger.example/07 AAAA\n";
    let daemon = Daemon::answering(vec![(200, "text/plain; charset=utf-8", note.to_owned())]);
    assert_eq!(daemon.tell(&["ledger", "checkpoint", "--fresh"]).exits(0).out, note);
    assert_eq!(daemon.asked()[0].line, "GET /v1/ledger/checkpoint?fresh=true HTTP/1.1");
}

#[test]
fn a_refusal_is_a_sentence_with_its_code() {
    let problem = |status: u16, code: &str, detail: &str| {
        let body =
            json!({"type": "x", "title": "X", "status": status, "detail": detail, "code": code, "request_id": "req_1"});
        Daemon::problem(status, &body)
    };
    let said = problem(404, "run.not_found", "run x does not exist").tell(&["runs", "show", "x"]).exits(1);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", "error: run x does not exist (run.not_found)\n"));
    let said = problem(401, "key.invalid", "the access key is revoked").tell(&["status"]).exits(1);
    assert!(said.err.contains("(key.invalid)\nGive a key that is in force"), "{}", said.err);
    let said = problem(500, "server.internal", "the daemon failed").tell(&["status"]).exits(70);
    assert!(said.err.contains("(server.internal, request req_1)"), "{}", said.err);
    let said = Daemon::answering(vec![(200, "text/html", "<html>".to_owned())]).tell(&["status"]).exits(70);
    assert!(said.err.contains("not what this version expects"), "{}", said.err);
}

#[test]
fn a_redirect_is_not_followed() {
    let daemon = Daemon::answering(vec![(302, "text/plain", String::new())]);
    let said = daemon.tell(&["status"]).exits(1);
    assert!(said.err.contains("a redirect, which is not followed"), "{}", said.err);
}

#[test]
fn keys_stay_private_and_proxies_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin.key");
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let daemon = Daemon::json([json!({"items": [], "next_cursor": null})]);
    let with_file = |daemon: &Daemon| {
        let mut command = daemon.command(&["runs", "list", "--key-file", arg(&file)]);
        command
            .env_remove("REVERSI_KEY")
            .env("http_proxy", "http://127.0.0.1:1")
            .env("ALL_PROXY", "http://127.0.0.1:1");
        said(&mut command)
    };
    let refused = with_file(&daemon).exits(1);
    assert!(refused.err.contains("chmod 600"), "{}", refused.err);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = with_file(&daemon).exits(0);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", "there are no runs here\n"));
    assert!(daemon.asked()[0].has(&format!("authorization: Bearer {KEY}")));
}

#[test]
fn without_a_key_or_a_daemon_the_way_to_one_is_said() {
    let told = said(&mut command(["status"])).exits(64);
    assert!(told.err.contains("set REVERSI_KEY, or name the file"), "{}", told.err);
    let told = said(command(["status", "--url", "http://127.0.0.1:1"]).env("REVERSI_KEY", KEY)).exits(1);
    assert!(told.err.contains("is it running? Start it with `reversi serve`"), "{}", told.err);
    let told = said(command(["status", "--url", "http://10.0.0.1:7421"]).env("REVERSI_KEY", KEY)).exits(64);
    assert!(told.err.contains("unencrypted"), "{}", told.err);
}
