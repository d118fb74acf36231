//! `reversi approvals`: what a person sees before they decide, and what is sent in their name.
use serde_json::{Value, json};

use crate::http::{Daemon, KEY};
use crate::program::{command, said};
use crate::terminal::answering;
use crate::transcript::Transcript;

pub(crate) const ID: &str = "apr_0199f3a0c0de7abc8def0123456789ab";
const OTHER: &str = "apr_0199f3a0c0df7abc8def0123456789ab";

/// A pending request whose agent tries what it can to look like something else.
pub(crate) fn request() -> Value {
    let arguments = serde_json::to_string_pretty(&json!({
        "amount": 5, "card_token": "[redacted]",
        "memo": format!("\u{1b}[2J{}fingerprint  000000000000", "x".repeat(61)),
    }));
    json!({
        "approval_id": ID, "run_id": "support:4821", "step": 7, "target": "step", "status": "pending",
        "tool": "stripe.create_charge", "requested_by": "bot-1", "requested_at": "2026-10-01T00:00:02.000000Z",
        "roles": ["finance", "cfo"], "quorum": 2, "level": 1,
        "votes": [{"person": "fred", "on_behalf_of": "fiona", "note": "checked\u{202e} the ticket",
                   "at": "2026-10-01T00:01:00.000000Z"}],
        "deadline": "2026-10-01T00:15:30.000000Z", "at_deadline": "it expires and the call stays refused",
        "ended_by": null, "end_note": null, "break_glass": null, "fingerprint": "abcdef012345",
        "preview": {
            "sentence": "bot-1 wants to call stripe.create_charge, which can be made good but leaves a trace",
            "description": "Charge a card.", "effect": "compensable", "undo": "stripe.refund",
            "residue": ["the charge still appears on the customer's statement"],
            "data_class": "financial", "blast_radius": "high",
            "agents_reason": "the customer asked\nstatus       approved\nfingerprint  000000000000\u{7}",
            "arguments": arguments.unwrap().replace("\\u001b", "\u{1b}"), "redacted_values": 1, "hidden_characters": 0,
            "asked_by": ["manifest of stripe.create_charge"],
        },
    })
}

fn with(mut value: Value, members: &Value) -> Value {
    for (name, member) in members.as_object().unwrap() {
        value[name] = member.clone();
    }
    value
}

fn page(items: &[Value]) -> Value {
    json!({"items": items, "next_cursor": null})
}

fn approved() -> Value {
    let votes = json!([{"person": "fred", "at": "2026-10-01T00:01:00.000000Z"},
                       {"person": "carl", "at": "2026-10-01T00:03:00.000000Z"}]);
    let changed = json!({"status": "approved", "votes": votes, "deadline": "2026-10-01T00:18:00.000000Z",
                         "at_deadline": "the grant is void if it was not used"});
    with(request(), &changed)
}

#[test]
fn a_request_is_shown_whole_and_in_the_lists() {
    let emergency = json!({
        "status": "approved", "votes": [], "deadline": "2026-10-01T00:18:00.000000Z",
        "at_deadline": "the grant is void if it was not used",
        "break_glass": {"person": "greta", "at": "2026-10-01T00:03:00.000000Z", "reason": "the shop is down and nobody answers",
                        "review_by": "2026-10-04T00:03:00.000000Z", "overdue": false, "reviewed_by": null, "review": null},
    });
    let denied = json!({"status": "denied", "deadline": null, "at_deadline": null, "ended_by": "carl",
                        "end_note": "the customer did not ask"});
    let long = json!({"approval_id": OTHER, "tool": "warehouse.inventory.adjust_stock_level", "level": 0,
                      "deadline": null, "requested_by": "a-bot-with-a-rather-long-name"});
    let listed = page(&[request(), with(request(), &long)]);
    let owed = json!({"items": [
        {"approval": ID, "run_id": "support:4821", "person": "greta", "reason": "the shop is down and nobody answers",
         "review_by": "2026-10-04T00:03:00.000000Z", "overdue": false},
        {"approval": OTHER, "run_id": null, "person": "greta", "reason": "again\u{1b}[1A the shop was down",
         "review_by": "2026-09-30T00:03:00.000000Z", "overdue": true}]});
    let mut story = Transcript::default();
    for (args, answers) in [
        (&["approvals", "list"][..], vec![listed.clone()]),
        (&["approvals", "list", "--mine", "--status", "approved"], vec![page(&[])]),
        (&["approvals", "show", ID], vec![request()]),
        (&["approvals", "show", ID, "--json"], vec![request()]),
        (&["approvals", "show", ID], vec![with(request(), &emergency)]),
        (&["approvals", "show", ID], vec![with(request(), &denied)]),
        (&["approvals", "reviews"], vec![owed]),
        (&["approvals", "reviews"], vec![json!({"items": []})]),
        (&["approvals", "approve", ID, "--yes", "--note", "checked the ticket"], vec![request(), approved()]),
        (&["approvals", "approve", "0199f3a0c0de", "-y"], vec![listed.clone(), request(), request()]),
        (&["approvals", "deny", ID, "--yes"], vec![request(), with(request(), &denied)]),
        (
            &["approvals", "break-glass", ID, "--yes", "--reason", "the shop is down and nobody answers"],
            vec![request(), with(request(), &emergency)],
        ),
        (&["approvals", "break-glass", ID, "--yes", "--reason", "it is urgent"], vec![]),
        (&["approvals", "approve", ID], vec![]),
        (&["approvals", "show", "apr_0199"], vec![]),
        (&["approvals", "show", "0199f3a0"], vec![page(&[]), page(&[])]),
        (&["approvals", "show", "apr_0199f3a0"], vec![listed]),
    ] {
        let daemon = Daemon::json(answers);
        let said = daemon.tell(args);
        if args.contains(&"--json") {
            assert_eq!(said.json(), request());
        } else {
            story.add(args, &said);
        }
    }
    story.is("approvals.txt");
}

#[test]
fn what_an_agent_wrote_stays_behind_its_mark() {
    let shown = Daemon::json([request()]).tell(&["approvals", "show", ID]).exits(0).out;
    let faked: Vec<&str> = shown.lines().filter(|line| line.contains("000000000000")).collect();
    assert!(faked.len() >= 2 && faked.iter().all(|line| line.trim_start().starts_with(['>', ':', '|'])), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.starts_with("status")).count(), 1, "{shown}");
    assert!(shown.contains("\\u{1b}[2J") && shown.contains("checked\\u{202e} the ticket"), "{shown}");
    assert!(shown.trim_end().ends_with("fingerprint  abcdef012345"), "{shown}");
}

#[test]
fn a_list_asks_for_what_was_typed_and_says_how_to_go_on() {
    let daemon = Daemon::json([json!({"items": [request()], "next_cursor": ID})]);
    let said = daemon.tell(&["approvals", "list", "--mine", "--status", "all", "--limit", "1", "--cursor", OTHER]);
    assert_eq!(said.exits(0).err, format!("there are more: add --cursor {ID}\n"));
    let expected = format!("GET /v1/approvals?status=all&limit=1&mine=true&cursor={OTHER} HTTP/1.1");
    assert_eq!(daemon.asked()[0].line, expected);
}

#[test]
fn each_word_is_sent_with_the_fingerprint_that_was_seen() {
    let reason = "the shop is down and nobody answers";
    for (args, path, body) in [
        (&["approve", ID, "--note", "seen"][..], "approve", json!({"reason": "seen", "fingerprint": "abcdef012345"})),
        (&["approve", ID], "approve", json!({"fingerprint": "abcdef012345"})),
        (&["deny", ID, "--note", "no"], "deny", json!({"reason": "no", "fingerprint": "abcdef012345"})),
        (&["withdraw", ID], "withdraw", json!({"fingerprint": "abcdef012345"})),
        (&["revoke", ID, "--reason", "x"], "revoke", json!({"reason": "x", "fingerprint": "abcdef012345"})),
        (
            &["break-glass", ID, "--reason", reason],
            "break-glass",
            json!({"reason": reason, "fingerprint": "abcdef012345"}),
        ),
        (&["review", ID, "--note", "fine"], "review", json!({"reason": "fine", "fingerprint": "abcdef012345"})),
    ] {
        let daemon = Daemon::json([request(), approved()]);
        let args: Vec<&str> =
            ["approvals"].into_iter().chain(args.iter().copied()).chain(["--yes", "--json"]).collect();
        assert_eq!(daemon.tell(&args).exits(0).json(), approved());
        let asked = daemon.asked();
        assert_eq!(asked[0].line, format!("GET /v1/approvals/{ID} HTTP/1.1"));
        assert_eq!(asked[1].line, format!("POST /v1/approvals/{ID}/{path} HTTP/1.1"));
        assert_eq!(asked[1].body, body);
        assert!(asked[1].has("idempotency-key: cli-"));
    }
}

#[test]
fn a_changed_request_is_refused_and_said() {
    let detail = "approval apr_x has the fingerprint bbbbbbbbbbbb, not abcdef012345: look at it again before you vote";
    let problem = json!({"status": 409, "detail": detail, "code": "approval.fingerprint_differs", "request_id": "r"});
    let daemon = Daemon::answering(vec![
        (200, "application/json", request().to_string()),
        (409, "application/problem+json", problem.to_string()),
    ]);
    let said = daemon.tell(&["approvals", "approve", ID, "--yes"]).exits(1);
    assert_eq!(said.err, format!("error: {detail} (approval.fingerprint_differs)\n"));
}

#[test]
fn a_beginning_names_one_open_request_or_nothing() {
    let daemon = Daemon::json([page(&[]), page(&[approved()]), approved(), approved()]);
    daemon.tell(&["approvals", "withdraw", "APR_0199f3a0c0de".to_lowercase().as_str(), "--yes"]).exits(0);
    let lines: Vec<String> = daemon.asked().into_iter().map(|asked| asked.line).collect();
    let before = "apr_0199f3a0c0ddffffffffffffffffffff";
    assert_eq!(lines[0], format!("GET /v1/approvals?status=pending&limit=2&cursor={before} HTTP/1.1"));
    assert_eq!(lines[1], format!("GET /v1/approvals?status=approved&limit=2&cursor={before} HTTP/1.1"));
    assert_eq!(lines[2], format!("GET /v1/approvals/{ID} HTTP/1.1"));
    // A page begins before the digits and may end behind them.
    let daemon = Daemon::json([page(&[with(request(), &json!({"approval_id": OTHER}))]), page(&[])]);
    let said = daemon.tell(&["approvals", "show", "apr_0199f3a0c0de"]).exits(1);
    assert!(said.err.contains("no open request begins with apr_0199f3a0c0de"), "{}", said.err);
    let reviews = json!({"items": [{"approval": ID, "person": "greta"}]});
    let daemon = Daemon::json([reviews, approved(), approved()]);
    daemon.tell(&["approvals", "review", "apr_0199f3a0c0de", "--note", "fine", "--yes"]).exits(0);
    assert_eq!(daemon.asked()[0].line, "GET /v1/reviews HTTP/1.1");
}

#[test]
fn without_a_terminal_nobody_is_asked_and_nothing_is_sent() {
    for word in [&["approve", ID][..], &["deny", ID], &["withdraw", ID], &["revoke", ID, "--reason", "x"]] {
        let daemon = Daemon::json([request(), approved()]);
        let args: Vec<&str> = ["approvals"].into_iter().chain(word.iter().copied()).collect();
        let said = daemon.tell(&args).exits(64);
        assert!(said.err.contains("say --yes") && daemon.asked().is_empty(), "{said:?}");
    }
}

#[test]
fn at_a_terminal_the_request_is_shown_before_the_question() {
    let question = format!("\nApprove {ID} with fingerprint abcdef012345? [y/N] ");
    for (answer, code, requests) in
        [("y\n", 0, 2), ("YES\n", 0, 2), ("n\n", 1, 1), ("\n", 1, 1), ("yep\n", 1, 1), ("\u{4}", 1, 1)]
    {
        let daemon = Daemon::json([request(), approved()]);
        let said = answering(&mut daemon.command(&["approvals", "approve", ID]), "[y/N] ", answer);
        assert_eq!((said.code, daemon.asked().len()), (code, requests), "{answer:?}: {said:?}");
        let (shown, rest) = said.err.split_once(&question).unwrap_or_else(|| panic!("{said:?}"));
        assert!(shown.contains("wants to call stripe.create_charge") && shown.contains("> the customer asked"));
        assert_eq!(rest.contains("nothing was done"), code == 1, "{rest}");
        assert_eq!(said.out.contains("the same call may be made once"), code == 0, "{}", said.out);
    }
}

#[test]
fn a_key_that_is_not_shown_the_request_can_not_decide() {
    let daemon = Daemon::json([json!({"approval_id": ID, "status": "pending", "deadline": null})]);
    let said = daemon.tell(&["approvals", "approve", ID, "--yes"]).exits(1);
    assert!(said.err.contains("is not shown what") && daemon.asked().len() == 1, "{said:?}");
}

#[test]
fn an_operator_says_yes_in_advance() {
    let mut answer = approved();
    (answer["step"], answer["fingerprint"], answer["quorum"]) = (Value::Null, Value::Null, json!(1));
    let daemon = Daemon::json([answer.clone(), answer.clone()]);
    let args = ["runs", "approve", "support:4821", "mail.send", "--note", "she is on the phone"];
    let said = daemon.tell(&args).exits(0);
    assert!(
        said.words().contains(
            "the next call of stripe.create_charge, or undo by it, may be made until 2026-10-01 00:18:00 UTC"
        ),
        "{said:?}"
    );
    assert_eq!(daemon.tell(&["runs", "approve", "r", "mail.send", "--json"]).exits(0).json(), answer);
    let asked = daemon.asked();
    assert_eq!(asked[0].line, "POST /v1/runs/support%3A4821/approvals HTTP/1.1");
    assert_eq!(asked[0].body, json!({"tool": "mail.send", "note": "she is on the phone"}));
    assert_eq!(asked[1].body, json!({"tool": "mail.send"}));
}

#[test]
fn a_run_and_its_report_say_who_approved_what_and_when() {
    let by = json!([{"person": "fred", "at": "2026-10-01T00:01:00.000000Z", "on_behalf_of": "fiona"},
                    {"person": "greta", "at": "2026-10-01T00:02:00.000000Z", "break_glass": true}]);
    let run = json!({"run_id": "r", "status": "active", "mode": "enforce", "permissions": [], "actor": "bot-1",
        "started_at": "2026-10-01T00:00:00.000000Z",
        "steps": [{"step": 1, "tool": "stripe.create_charge", "status": "succeeded", "approval_id": ID, "approved_by": by}]});
    let expected = format!(
        "approval {ID}, approved by fred in the place of fiona, 2026-10-01 00:01:00 UTC; by greta \
                            alone, in an emergency, 2026-10-01 00:02:00 UTC"
    );
    let shown = Daemon::json([run]).tell(&["runs", "show", "r"]).exits(0);
    assert!(shown.words().contains(&expected), "{shown:?}");
    let report = json!({"run_id": "r", "status": "rolled_back", "complete": true, "verified": true, "compensated": [
        {"step": 1, "tool": "vault.put", "attempts": 1, "reason": "undone", "approval": ID, "approved_by": by}]});
    let shown = Daemon::json([report]).tell(&["runs", "report", "r"]).exits(0);
    assert!(shown.words().contains(&expected), "{shown:?}");
}

#[test]
fn the_command_line_of_another_machine_needs_no_terminal_but_a_key() {
    let said = said(command(["approvals", "list"]).env("REVERSI_URL", "http://127.0.0.1:1")).exits(64);
    assert!(said.err.contains("or keep one with `reversi login`") && !said.err.contains(KEY), "{}", said.err);
}
