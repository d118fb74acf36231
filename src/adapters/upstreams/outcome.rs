//! What an answer of an MCP server proves: pure functions from rmcp's types to the port's. Error texts can hold
//! argument values; they are put into outcomes and never logged.
use std::error::Error;

use reversi_actors::ports::CallOutcome;
use reversi_proto::canonical::Canonical;
use rmcp::model::{CallToolResult, ErrorCode, JsonObject, ServerResult};
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

/// Error texts of servers can be of any length.
const ERROR_CHARS_MAX: usize = 2000;

/// The outcome of a call that got an answer. `wrapped`: the tool's output schema wraps its result.
pub(super) fn of_result(result: ServerResult, wrapped: bool) -> CallOutcome {
    match result {
        ServerResult::CallToolResult(result) if result.is_error == Some(true) => unknown(&error_text(&result)),
        ServerResult::CallToolResult(result) => CallOutcome::Success { result: value(&result, wrapped) },
        // Whatever else it is, it doesn't say that the tool has not run.
        _ => unknown("the server's answer is no tool result"),
    }
}

/// The outcome of a call that failed.
pub(super) fn of_error(error: &ServiceError) -> CallOutcome {
    match error {
        ServiceError::McpError(data) => {
            let text = format!("JSON-RPC error {}: {}", data.code.0, data.message);
            if matches!(data.code, ErrorCode::METHOD_NOT_FOUND | ErrorCode::INVALID_PARAMS) {
                known(&text)
            } else {
                unknown(&text)
            }
        }
        ServiceError::TransportSend(sent) if never_arrived(sent.error.as_ref()) => known(&chain(error)),
        _ => unknown(&chain(error)),
    }
}

/// Whether the connection itself is lost, so that nobody can say any more when the call is over.
pub(super) fn is_lost(error: &ServiceError) -> bool {
    !matches!(error, ServiceError::McpError(_) | ServiceError::UnexpectedResponse)
}

pub(super) fn known(error: &str) -> CallOutcome {
    CallOutcome::KnownFailure { error: bounded(error) }
}

pub(super) fn unknown(error: &str) -> CallOutcome {
    CallOutcome::Unknown { error: bounded(error) }
}

/// An error with its sources, on one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = source(error);
    while let Some(inner) = next {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        next = source(inner);
    }
    text
}

/// rmcp puts some errors into the text of another one without naming them as its source.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(ServiceError::TransportSend(sent)) = error.downcast_ref::<ServiceError>() {
        return Some(sent.error.as_ref());
    }
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(inner)) => Some(inner),
        _ => error.source(),
    }
}

/// Whether an output schema is the wrapper that SDKs put around results that are no objects.
pub(super) fn is_wrapper(schema: Option<&JsonObject>) -> bool {
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    properties.is_some_and(|properties| properties.len() == 1 && properties.contains_key("result"))
}

/// What `$result` is (domain.md, Undo). A value without a canonical form resolves to nothing.
fn value(result: &CallToolResult, wrapped: bool) -> Option<Canonical> {
    if let Some(structured) = &result.structured_content {
        let lone = structured.as_object().filter(|object| wrapped && object.len() == 1);
        return Canonical::of(lone.and_then(|object| object.get("result")).unwrap_or(structured)).ok();
    }
    let texts = result.content.iter().filter_map(|block| block.as_text());
    let mut parsed = texts.filter_map(|text| Canonical::parse(text.text.as_bytes()).ok());
    match (parsed.next(), parsed.next()) {
        (Some(only), None) => Some(only),
        // Two candidates: choosing one would be a guess.
        _ => None,
    }
}

fn error_text(result: &CallToolResult) -> String {
    let texts: Vec<&str> = result.content.iter().filter_map(|block| Some(block.as_text()?.text.as_str())).collect();
    if texts.is_empty() { "the tool reported an error without a text".to_owned() } else { texts.join("\n") }
}

/// Whether a failed HTTP request provably didn't run: no connection, or a status that says so.
fn never_arrived(error: &(dyn Error + 'static)) -> bool {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(http) = error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            return match http {
                StreamableHttpError::Client(e) => e.is_connect() || e.is_builder(),
                StreamableHttpError::AuthRequired(_)
                | StreamableHttpError::InsufficientScope(_)
                | StreamableHttpError::SessionExpired => true,
                StreamableHttpError::HttpStatus(status) => status.status == 429,
                // rmcp keeps the status of other answers in the text only.
                StreamableHttpError::UnexpectedServerResponse(text) => {
                    ["HTTP 401", "HTTP 403", "HTTP 404", "HTTP 405", "HTTP 429"].iter().any(|it| text.starts_with(it))
                }
                _ => false,
            };
        }
        current = source(error);
    }
    false
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn success(result: Value, wrapped: bool) -> Option<String> {
        match of_result(serde_json::from_value(result).unwrap(), wrapped) {
            CallOutcome::Success { result } => result.map(|value| value.as_str().to_owned()),
            CallOutcome::KnownFailure { error } | CallOutcome::Unknown { error } => panic!("no success: {error}"),
        }
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn structured_content_wins_and_only_a_wrapper_is_unwrapped() {
        let plain = json!({ "content": [text("{\"b\":2}")], "structuredContent": { "result": [1] } });
        assert_eq!(success(plain.clone(), true).as_deref(), Some("[1]"));
        assert_eq!(success(plain, false).as_deref(), Some("{\"result\":[1]}"));
        let more = json!({ "content": [], "structuredContent": { "result": 1, "id": 2 } });
        assert_eq!(success(more, true).as_deref(), Some("{\"id\":2,\"result\":1}"));
    }

    #[test]
    fn one_text_block_may_be_json() {
        assert_eq!(success(json!({ "content": [text("{\"id\":7}")] }), false).as_deref(), Some("{\"id\":7}"));
        assert_eq!(success(json!({ "content": [text("done"), text("[7]")] }), false).as_deref(), Some("[7]"));
        assert_eq!(success(json!({ "content": [text("[6]"), text("[7]")] }), false), None);
        assert_eq!(success(json!({ "content": [text("done")] }), false), None);
    }

    #[test]
    fn an_error_result_and_a_strange_one_prove_nothing() {
        for result in [json!({ "content": [text("no")], "isError": true }), json!({ "surprise": 1 }), json!({})] {
            let result: ServerResult = serde_json::from_value(result).unwrap();
            assert!(matches!(of_result(result, false), CallOutcome::Unknown { .. }));
        }
    }

    #[test]
    fn only_two_error_codes_prove_that_nothing_ran() {
        for (code, not_run) in [(-32601, true), (-32602, true), (-32600, false), (-32603, false), (-32000, false)] {
            let error = ServiceError::McpError(rmcp::ErrorData::new(ErrorCode(code), "no", None));
            assert_eq!(matches!(of_error(&error), CallOutcome::KnownFailure { .. }), not_run, "{code}");
        }
    }

    #[test]
    fn a_wrapper_schema_has_the_one_property() {
        let schema = |value: Value| value.as_object().cloned();
        assert!(is_wrapper(schema(json!({ "properties": { "result": {} } })).as_ref()));
        assert!(!is_wrapper(schema(json!({ "properties": { "result": {}, "id": {} } })).as_ref()));
        assert!(!is_wrapper(None));
    }
}
