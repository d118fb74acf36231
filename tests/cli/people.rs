//! Keys, groups, delegations, the kill switch, and what the status says of them.
use serde_json::{Value, json};

use crate::http::{Daemon, KEY};
use crate::transcript::Transcript;

const DELEGATION: &str = "dlg_0199f3a0c0de7abc8def0123456789ab";

fn key(id: &str, revoked: bool) -> Value {
    json!({"key": id, "actor": "olga", "person": "olga@example.com", "roles": ["operator", "approver"],
           "groups": ["finance"], "allow_observe": true, "expires_at": null, "revoked": revoked})
}

fn delegation() -> Value {
    json!({"delegation": DELEGATION, "from": "fred", "to": "fiona\u{1b}[1A", "roles": ["finance", "cfo"],
           "start": "2026-10-01T00:00:00.000000Z", "end": "2026-10-14T00:00:00.000000Z"})
}

fn halts() -> Value {
    let halt = |scope: &str| {
        json!({"scope": scope, "reason": "prompt injection\u{1b}]0;x in the ticket queue, all of it",
                                    "by": "ada", "since": "2026-10-01T00:00:02.000000Z"})
    };
    json!({"halted": true, "items": [halt("all"), halt("run:support:4821")]})
}

#[test]
fn people_are_looked_after_in_readable_lines() {
    let mut void = key("k23456789012", true);
    void["expires_at"] = json!("2026-10-01T00:00:00.000000Z");
    let new = json!({"key_id": "k34567890123", "key": KEY, "actor": "olga", "roles": ["operator"]});
    let groups =
        json!({"items": [{"group": "finance", "members": ["fred", "fiona"]}, {"group": "nobody", "members": []}]});
    let group = json!({"group": "finance", "members": ["fred"]});
    let none = json!({"halted": false, "items": []});
    let status = json!({"ledger": "07", "head": 1, "started_at": "2026-10-01T00:00:02.000000Z", "approvals_open": 3,
                        "reviews_owed": 1, "halts": halts()["items"]});
    let empty = json!({"items": []});
    let mut story = Transcript::default();
    let add = ["delegations", "add", "--to", "fiona", "--role", "finance", "--until", "2026-10-14T00:00:00Z"];
    for (args, answer) in [
        (&["keys", "list"][..], json!({"items": [key("k12345678901", false), void.clone()]})),
        (&["keys", "revoke", "k23456789012"], void),
        (&["keys", "revoke", "abcdefghijkl"], key("abcdefghijkl", true)),
        (&["keys", "rotate", "k12345678901"], new),
        (&["groups", "list"], groups),
        (&["groups", "list"], empty.clone()),
        (&["groups", "set", "finance", "fred"], group),
        (&["groups", "delete", "finance"], json!({})),
        (&["delegations", "list"], json!({"items": [delegation()]})),
        (&["delegations", "list"], empty),
        (&add, delegation()),
        (&["delegations", "end", DELEGATION], json!({})),
        (&["halt", "prompt injection"], halts()),
        (&["resume"], none.clone()),
        (&["halts"], halts()),
        (&["halts"], none),
        (&["status"], status),
    ] {
        story.add(args, &Daemon::json([answer]).tell(args));
    }
    story.is("people.txt");
}

#[test]
fn each_command_asks_for_what_was_typed() {
    let answer = json!({"items": [], "key_id": "k", "key": KEY});
    for (args, line, body) in [
        (&["keys", "list"][..], "GET /v1/keys", Value::Null),
        (&["keys", "revoke", "k12345678901"], "DELETE /v1/keys/k12345678901", Value::Null),
        (&["keys", "rotate", "k12345678901"], "POST /v1/keys/k12345678901/rotate", json!({})),
        (
            &[
                "keys",
                "create",
                "--role",
                "approver",
                "--actor",
                "f",
                "--group",
                "g",
                "--expires",
                "2026-10-14T00:00:00Z",
            ],
            "POST /v1/keys",
            json!({"actor": "f", "roles": ["approver"], "groups": ["g"], "expires_at": "2026-10-14T00:00:00Z",
                   "allow_observe": false}),
        ),
        (&["groups", "list"], "GET /v1/groups", Value::Null),
        (&["groups", "set", "fin", "a", "b"], "POST /v1/groups", json!({"group": "fin", "members": ["a", "b"]})),
        (&["groups", "delete", "a/b c"], "DELETE /v1/groups/a%2Fb%20c", Value::Null),
        (&["delegations", "list"], "GET /v1/delegations", Value::Null),
        (
            &[
                "delegations",
                "add",
                "--to",
                "b",
                "--role",
                "x",
                "--role",
                "y",
                "--until",
                "T2",
                "--from",
                "a",
                "--start",
                "T1",
            ],
            "POST /v1/delegations",
            json!({"to": "b", "roles": ["x", "y"], "end": "T2", "from": "a", "start": "T1"}),
        ),
        (&["delegations", "end", DELEGATION], &format!("DELETE /v1/delegations/{DELEGATION}"), Value::Null),
        (&["halt", "why"], "POST /v1/halt", json!({"reason": "why", "scope": "all"})),
        (&["halt", "why", "--scope", "run:a:b"], "POST /v1/halt", json!({"reason": "why", "scope": "run:a:b"})),
        (
            &["resume", "--scope", "tool:mail.send", "--reason", "fixed"],
            "POST /v1/resume",
            json!({"reason": "fixed", "scope": "tool:mail.send"}),
        ),
        (&["halts"], "GET /v1/halt", Value::Null),
    ] {
        let daemon = Daemon::json([answer.clone()]);
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        assert_eq!(daemon.tell(&args).exits(0).json(), answer, "{args:?}");
        let asked = &daemon.asked()[0];
        assert_eq!((asked.line.as_str(), &asked.body), (format!("{line} HTTP/1.1").as_str(), &body), "{args:?}");
    }
}
