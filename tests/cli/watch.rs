//! `reversi approvals watch`, against a daemon whose answers are looks at the same requests as time goes on.
use serde_json::{Value, json};

use crate::approvals::{ID, request};
use crate::http::Daemon;
use crate::transcript::Transcript;

const QUICK: [&str; 4] = ["approvals", "watch", "--interval", "0.05"];

fn page(items: &[Value]) -> Value {
    json!({"items": items, "next_cursor": null})
}

fn at(status: &str, votes: &[&str], more: &Value) -> Value {
    let mut value = request();
    value["status"] = json!(status);
    value["votes"] = votes.iter().map(|who| json!({"person": who, "at": "2026-10-01T00:01:00.000000Z"})).collect();
    for (name, member) in more.as_object().unwrap() {
        value[name] = member.clone();
    }
    value
}

/// The looks, and then a key that is void: so the watch ends, with 1.
fn watched(looks: Vec<Value>) -> Daemon {
    let mut answers: Vec<(u16, &'static str, String)> =
        looks.into_iter().map(|look| (200, "application/json", look.to_string())).collect();
    let gone = json!({"status": 401, "detail": "the access key is revoked", "code": "key.invalid"});
    answers.push((401, "application/problem+json", gone.to_string()));
    Daemon::answering(answers)
}

/// Asked, a vote, the next level, granted, used.
fn looks() -> Vec<Value> {
    let none = json!({"level": 0, "roles": ["finance"]});
    let granted = at("approved", &["fred", "carl"], &json!({"deadline": "2026-10-01T00:18:00.000000Z"}));
    vec![
        page(&[]),
        page(&[at("pending", &[], &none)]),
        page(&[at("pending", &["fred"], &json!({}))]),
        page(&[]),
        page(std::slice::from_ref(&granted)),
        page(&[]),
        page(&[granted]),
        page(&[]),
        page(&[]),
        at("consumed", &["fred", "carl"], &json!({"deadline": null})),
    ]
}

#[test]
fn each_request_is_told_once_and_then_what_became_of_it() {
    let mut story = Transcript::default();
    story.add(&QUICK, &watched(looks()).tell(&QUICK));
    let denied = json!({"ended_by": "carl", "end_note": "no\u{1b}[2J", "deadline": null});
    let looks = vec![page(&[request()]), page(&[]), page(&[]), at("denied", &["fred"], &denied), page(&[])];
    let mine = ["approvals", "watch", "--mine", "--interval", "0.05"];
    let daemon = watched(looks);
    story.add(&mine, &daemon.tell(&mine));
    story.is("watch.txt");
    let lines: Vec<String> = daemon.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines[0], "GET /v1/approvals?status=pending&limit=200&mine=true HTTP/1.1");
    assert_eq!(lines[3], format!("GET /v1/approvals/{ID} HTTP/1.1"));
}

#[test]
fn for_scripts_each_change_is_one_line() {
    let args: Vec<&str> = QUICK.into_iter().chain(["--json"]).collect();
    let said = watched(looks()).tell(&args).exits(1);
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<&str> = lines.iter().map(|line| line["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["asked", "escalated", "voted", "approved", "consumed"]);
    assert!(lines.iter().all(|line| line["approval"]["approval_id"] == ID), "{lines:?}");
    assert_eq!(lines[0]["seen_at"], "2026-10-01T00:03:00.000000Z");
}

#[test]
fn all_pages_are_looked_at() {
    let first = json!({"items": [request()], "next_cursor": ID});
    let mut other = request();
    other["approval_id"] = json!("apr_0199f3a0c0df7abc8def0123456789ab");
    let daemon = watched(vec![first, page(&[other])]);
    let said = daemon.tell(&QUICK).exits(1);
    assert_eq!(said.out.matches(" asked ").count(), 2, "{}", said.out);
    assert!(daemon.asked()[1].line.contains(&format!("&cursor={ID} ")));
}

#[test]
fn a_daemon_that_is_away_is_waited_for_and_said_once() {
    let busy = || (503, "application/problem+json", json!({"detail": "busy", "code": "server.busy"}).to_string());
    let ok = |value: Value| (200, "application/json", value.to_string());
    let gone = (401, "application/problem+json", json!({"detail": "revoked", "code": "key.invalid"}).to_string());
    let daemon = Daemon::answering(vec![ok(page(&[])), busy(), busy(), ok(page(&[request()])), gone]);
    let said = daemon.tell(&QUICK).exits(1);
    assert_eq!(said.err.matches("busy; trying again").count(), 1, "{}", said.err);
    assert!(said.out.contains("asked"), "{}", said.out);
    // From the start it is an error like everywhere.
    assert!(Daemon::answering(vec![busy()]).tell(&QUICK).exits(1).err.contains("error: busy"));
}
