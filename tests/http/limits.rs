//! What a client can't make the daemon do: wait for ever, or take on more than it can hold.
use std::time::Duration;

use reversi::http::Limits;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Daemon, read};

async fn connect(daemon: &Daemon) -> TcpStream {
    TcpStream::connect(daemon.base.trim_start_matches("http://")).await.unwrap()
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_body_that_does_not_come() {
    let limits = Limits { body_timeout: Duration::from_millis(50), ..Limits::default() };
    let daemon = Daemon::start_with(limits, |_| {}).await;
    let mut stream = connect(&daemon).await;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: 20\r\n\r\n{{",
        daemon.agent
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body.slow"), "{answer}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_gets_its_answer_all_the_same() {
    let daemon = Daemon::start().await;
    let mut stream = connect(&daemon).await;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: 8000000\r\n\r\n",
        daemon.agent
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // All of it, and only then the answer is looked for, as simple clients do.
    stream.write_all(&vec![b' '; 8_000_000]).await.unwrap();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body.too_large"), "{answer}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_header_that_does_not_come() {
    let limits = Limits { header_timeout: Duration::from_millis(50), ..Limits::default() };
    let daemon = Daemon::start_with(limits, |_| {}).await;
    let mut stream = connect(&daemon).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
    assert_eq!(rest(stream).await, "", "closed without an answer");
    assert_eq!(rest(connect(&daemon).await).await, "", "an idle connection too");
    daemon.stop().await;
}

#[tokio::test]
async fn more_requests_than_are_worked_on_at_once() {
    let daemon = Daemon::start_with(Limits { requests: 1, ..Limits::default() }, |_| {}).await;
    // Holds the one place: its body never ends.
    let mut holder = connect(&daemon).await;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: 20\r\n\r\n",
        daemon.agent
    );
    holder.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; 12];
    holder.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100");
    let refused = daemon.get("/v1/me", &daemon.agent).await;
    refused.problem(503, "server.busy");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(daemon.get("/healthz", "").await.text, "ok\n");
    let metrics = daemon.get("/metrics", "").await.text;
    assert!(metrics.contains("\nreversi_http_requests_in_flight 1\n"), "{metrics}");
    assert!(metrics.contains("\nreversi_http_requests_refused_total 1\n"), "{metrics}");
    holder.write_all(br#"{"permissions":[]   "#).await.unwrap();
    drop(holder);
    daemon.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_no_idle_connection() {
    let daemon = Daemon::start().await;
    let idle = connect(&daemon).await;
    daemon.get("/healthz", "").await;
    tokio::time::timeout(Duration::from_secs(5), daemon.stop()).await.expect("the stop ends");
    assert_eq!(rest(idle).await, "");
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time() {
    // The body never ends and may take long, so that nothing but the deadline of the answer ends the request.
    let limits = Limits { request_timeout: Duration::from_millis(50), ..Limits::default() };
    let daemon = Daemon::start().await;
    let hasty = daemon.listen(limits).await;
    let mut stream = TcpStream::connect(hasty.address()).await.unwrap();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: 20\r\n\r\n{{",
        daemon.agent
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("request.lost"), "{answer}");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    hasty.stop().await;
    daemon.stop().await;
}

#[tokio::test]
async fn more_large_bodies_than_fit_into_memory() {
    let daemon = Daemon::start_with(Limits { large_bodies: 0, ..Limits::default() }, |_| {}).await;
    let steps = daemon.new_run("r").await;
    daemon.post(&steps, &daemon.agent, &read()).await.json(200);
    let complete = format!("{steps}/1/complete");
    let large = json!({"status": "succeeded", "result": "x".repeat(1 << 20)});
    daemon.post(&complete, &daemon.agent, &large).await.problem(503, "server.busy");
    daemon.post(&complete, &daemon.agent, &json!({"status": "succeeded"})).await.json(200);
    daemon.stop().await;
}

#[tokio::test]
async fn a_stop_lets_requests_finish() {
    let daemon = Daemon::start().await;
    let mut stream = connect(&daemon).await;
    let body = br#"{"permissions":[]}"#;
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        daemon.agent,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    let address = daemon.base.trim_start_matches("http://").to_owned();
    let stop = tokio::spawn(daemon.stop());
    while TcpStream::connect(&address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(body).await.unwrap();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains("connection: close"), "{answer}");
    stop.await.unwrap();
}
