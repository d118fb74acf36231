//! The same request twice: replays, other bodies, other attempts, and races.
use serde_json::{Value, json};

use crate::harness::{Daemon, PERMISSIONS, create, read};

#[tokio::test]
async fn a_run_is_started_once() {
    let daemon = Daemon::start().await;
    let body = json!({"permissions": PERMISSIONS});
    let first = daemon.post_retry("/v1/runs", &body, "k1", None).await;
    assert_eq!(first.header("idempotent-replayed"), None);
    let again = daemon.post_retry("/v1/runs", &body, "k1", None).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(first.json(201), again.json(201));
    let other = daemon.post_retry("/v1/runs", &body, "k2", None).await.json(201);
    assert_ne!(first.json(201)["run_id"], other["run_id"]);
    let changed = json!({"permissions": []});
    daemon.post_retry("/v1/runs", &changed, "k1", None).await.problem(422, "idempotency.key_reused");
    daemon.stop().await;
}

#[tokio::test]
async fn a_stored_allow_is_given_again_to_its_attempt_only() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    let first = daemon.post_retry(&steps, &create("1"), "k", Some("a1")).await;
    assert_eq!((first.json(200)["decision"].clone(), first.header("idempotent-replayed")), (json!("allow"), None));
    let same = daemon.post_retry(&steps, &create("1"), "k", Some("a1")).await;
    assert_eq!(same.header("idempotent-replayed"), Some("true"));
    let same = same.json(200);
    assert_eq!((&same["decision"], &same["step"]), (&json!("allow"), &json!(1)));
    for attempt in [Some("a2"), None] {
        let other = daemon.post_retry(&steps, &create("1"), "k", attempt).await;
        assert_eq!(other.header("idempotent-replayed"), Some("true"));
        let other = other.json(200);
        assert_eq!((&other["decision"], &other["codes"]), (&json!("block"), &json!(["step.already_begun"])));
    }
    daemon.post_retry(&steps, &create("2"), "k", Some("a1")).await.problem(422, "idempotency.key_reused");
    assert_eq!(daemon.get("/v1/runs/r", &daemon.agent).await.json(200)["step_count"], 1);
    daemon.stop().await;
}

#[tokio::test]
async fn without_an_attempt_an_allow_is_never_given_again() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    assert_eq!(daemon.post_retry(&steps, &read(), "k", None).await.json(200)["decision"], "allow");
    let again = daemon.post_retry(&steps, &read(), "k", None).await.json(200);
    assert_eq!((&again["decision"], &again["codes"]), (&json!("block"), &json!(["step.already_begun"])));
    daemon.stop().await;
}

#[tokio::test]
async fn keys_belong_to_a_run() {
    let daemon = Daemon::start().await;
    for run in ["r1", "r2"] {
        let steps = daemon.new_run(run).await;
        let begun = daemon.post_retry(&steps, &read(), "k", Some("a")).await;
        assert_eq!((begun.json(200)["decision"].clone(), begun.header("idempotent-replayed")), (json!("allow"), None));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn headers_that_can_not_be_meant() {
    let daemon = Daemon::start().await;
    let steps = daemon.new_run("r").await;
    let long = "x".repeat(256);
    daemon.post_retry(&steps, &read(), &long, None).await.problem(422, "request.invalid");
    let twice = daemon.request("POST", &steps, &daemon.agent).json(&read());
    let twice = twice.header("Idempotency-Key", "a").header("Idempotency-Key", "b").send().await.unwrap();
    crate::harness::Reply::of(twice).await.problem(400, "request.malformed");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_calls_racing_with_one_global_key_one_is_allowed() {
    let daemon = Daemon::start().await;
    let steps = [daemon.new_run("r1").await, daemon.new_run("r2").await];
    // All at once: of one pair alone, the first is durable before the second is even read.
    let mut racing = tokio::task::JoinSet::new();
    for (round, steps) in (0..32).flat_map(|round| steps.iter().map(move |steps| (round, steps))) {
        let request = daemon.request("POST", steps, &daemon.agent).json(&create(&format!("order-{round}")));
        racing.spawn(async move { (round, request.send().await.unwrap().json::<Value>().await.unwrap()) });
    }
    let mut answers = racing.join_all().await;
    answers.sort_by_key(|(round, _)| *round);
    for pair in answers.chunks(2) {
        let (allowed, blocked): (Vec<_>, Vec<_>) = pair.iter().partition(|(_, answer)| answer["decision"] == "allow");
        assert_eq!((allowed.len(), blocked.len()), (1, 1), "{pair:?}");
        assert_eq!(blocked[0].1["codes"], json!(["duplicate.call"]), "{pair:?}");
    }
    daemon.stop().await;
}
