//! What a client can't make the daemon do: wait for ever, or take on more than it can hold.
use std::time::Duration;

use reversi::http::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::Daemon;

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
