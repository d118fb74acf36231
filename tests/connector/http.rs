//! The MCP client over HTTP, against a small server that answers as it is told.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use reversi::adapters::upstreams::{UpstreamConfig, Upstreams};
use reversi_actors::ports::ToolCaller;
use serde_json::{Value, json};

use super::client::{call, known, success, unknown};

type Seen = Arc<Mutex<Vec<(Option<String>, Value)>>>;

/// Answers `tools/call` by the tool's name: `ok`, `status_<code>`, `error_<code>`, `moved`, `garbage`, `empty`.
async fn answer(State(seen): State<Seen>, headers: HeaderMap, body: String) -> Response {
    let request: Value = serde_json::from_str(&body).unwrap();
    let Some(id) = request.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let result = match request["method"].as_str().unwrap() {
        "initialize" => json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                                "serverInfo": { "name": "test", "version": "1" } }),
        "tools/list" => {
            let names = "ok status_401 status_403 status_404 status_405 status_429 status_500 error_-32601 error_-32000 \
                         moved garbage empty";
            let schema = json!({ "type": "object" });
            let tools: Vec<Value> =
                names.split_whitespace().map(|name| json!({ "name": name, "inputSchema": schema })).collect();
            json!({ "tools": tools })
        }
        _ => {
            let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
            let name = request["params"]["name"].as_str().unwrap().to_owned();
            seen.lock().unwrap().push((key, request.clone()));
            if let Some(code) = name.strip_prefix("status_") {
                return StatusCode::from_u16(code.parse().unwrap()).unwrap().into_response();
            }
            if let Some(code) = name.strip_prefix("error_") {
                let error = json!({ "code": code.parse::<i64>().unwrap(), "message": "no" });
                return json_reply(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            match name.as_str() {
                "moved" => return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/mcp")]).into_response(),
                "garbage" => return ([(header::CONTENT_TYPE, "application/json")], "{\"x\"").into_response(),
                "empty" => json!({}),
                _ => json!({ "content": [{ "type": "text", "text": "{\"id\":7}" }] }),
            }
        }
    };
    json_reply(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn json_reply(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_http_answer_proves() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let seen = Seen::default();
    let app = Router::new().route("/mcp", post(answer)).with_state(seen.clone());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let state = tempfile::tempdir().unwrap();
    let config = UpstreamConfig {
        name: "web".to_owned(),
        command: None,
        args: Vec::new(),
        env: BTreeMap::new(),
        url: Some(url),
        prefix: Some("web.".to_owned()),
    };
    let upstreams = Upstreams::start(vec![config], state.path()).await.unwrap();
    assert!(upstreams.settled(Duration::from_secs(30)).await);
    let calls = async |name: &str| upstreams.call(call(&format!("web.{name}"), &json!({}), Some("k:1"), 10_000)).await;

    assert_eq!(success(calls("ok").await), json!({ "id": 7 }));
    {
        let seen = seen.lock().unwrap();
        let (header, request) = seen.last().unwrap();
        assert_eq!(header.as_deref(), Some("k:1"));
        assert_eq!(request["params"]["_meta"]["reversi/idempotency-key"], json!("k:1"));
    }
    for name in ["status_401", "status_403", "status_404", "status_405", "status_429", "error_-32601"] {
        known(calls(name).await);
    }
    for name in ["status_500", "error_-32000", "garbage", "empty"] {
        unknown(calls(name).await);
    }
    let before = seen.lock().unwrap().len();
    unknown(calls("moved").await);
    assert_eq!(seen.lock().unwrap().len(), before + 1, "a redirect was followed");
    assert!(!upstreams.earlier_calls_are_over(&"web.ok".parse().unwrap()));

    server.abort();
    let _ = server.await;
    let why = known(calls("ok").await);
    assert!(why.contains("refused"), "{why}");
    upstreams.shutdown().await;
}
