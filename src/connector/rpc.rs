//! MCP over lines of JSON-RPC, as much of it as a tool server needs. Knows no files.
use std::io::{self, BufRead, Read, Write};

use serde_json::{Map, Value, json};

use super::error::ToolError;

/// Longest request line; a longer one is refused without being kept.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Newest first: what a client is offered that asks for a version unknown here.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

/// What a server does with calls.
pub(crate) trait Tools {
    /// The answer to `tools/list`.
    fn list(&self) -> Value;
    /// Executes a call; `None` withholds the answer.
    fn call(&mut self, tool: &str, args: Value, key: Option<String>) -> Result<Option<Value>, ToolError>;
}

enum Line {
    End,
    TooLong,
    Text(Vec<u8>),
}

/// Answers requests until the input ends.
pub(crate) fn serve(mut input: impl BufRead, mut output: impl Write, tools: &mut impl Tools) -> anyhow::Result<()> {
    loop {
        let reply = match read_line(&mut input)? {
            Line::End => return Ok(()),
            Line::TooLong => Some(failure(&Value::Null, INVALID_REQUEST, "The request line is longer than 16 MiB.")),
            Line::Text(line) if line.trim_ascii().is_empty() => None,
            Line::Text(line) => handle(&line, tools)?,
        };
        if let Some(reply) = reply {
            let mut line = serde_json::to_vec(&reply)?;
            line.push(b'\n');
            output.write_all(&line)?;
            output.flush()?;
        }
    }
}

fn read_line(input: &mut impl BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(Line::End);
    }
    if line.last() == Some(&b'\n') || (line.len() as u64) < LINE_BYTES_MAX {
        return Ok(Line::Text(line));
    }
    while line.last().is_some_and(|byte| *byte != b'\n') {
        line.clear();
        input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    }
    Ok(Line::TooLong)
}

fn handle(line: &[u8], tools: &mut impl Tools) -> Result<Option<Value>, ToolError> {
    let Ok(request) = serde_json::from_slice::<Value>(line) else {
        return Ok(Some(failure(&Value::Null, PARSE_ERROR, "The line is no JSON.")));
    };
    let (Some(method), id) = (request.get("method").and_then(Value::as_str), request.get("id")) else {
        // A response needs no answer: this server asks nothing.
        let response = request.get("result").is_some() || request.get("error").is_some();
        let wrong = "One JSON-RPC request per line is expected; batches are not supported.";
        return Ok((!response).then(|| failure(&Value::Null, INVALID_REQUEST, wrong)));
    };
    let Some(id) = id else {
        return Ok(None);
    };
    if !id.is_string() && !id.is_number() {
        return Ok(Some(failure(&Value::Null, INVALID_REQUEST, "`id` must be a string or a number.")));
    }
    let params = request.get("params").cloned().unwrap_or_else(|| json!({}));
    Ok(match method {
        "initialize" => Some(success(id, &initialize(&params))),
        "ping" => Some(success(id, &json!({}))),
        "tools/list" => Some(success(id, &tools.list())),
        "tools/call" => call(id, params, tools)?,
        _ => Some(failure(id, METHOD_NOT_FOUND, &format!("There is no method {method:?} here."))),
    })
}

fn initialize(params: &Value) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = VERSIONS.into_iter().find(|version| Some(*version) == asked).unwrap_or(VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "reversi-fs", "version": env!("CARGO_PKG_VERSION") },
        "instructions": "Files below one root. Every change returns an undo token; fs.restore takes it back.",
    })
}

fn call(id: &Value, params: Value, tools: &mut impl Tools) -> Result<Option<Value>, ToolError> {
    let called = parse_call(params).and_then(|(tool, args, key)| tools.call(&tool, args, key));
    Ok(match called {
        Ok(None) => None,
        Ok(Some(answer)) => Some(success(id, &tool_result(&answer))),
        Err(ToolError::Params(why)) => Some(failure(id, INVALID_PARAMS, &why)),
        Err(ToolError::Refused(why)) => {
            let content = json!([{ "type": "text", "text": why }]);
            Some(success(id, &json!({ "content": content, "isError": true })))
        }
        Err(fatal @ ToolError::Fatal(_)) => return Err(fatal),
    })
}

fn parse_call(params: Value) -> Result<(String, Value, Option<String>), ToolError> {
    let wrong = |why: &str| ToolError::Params(why.to_owned());
    let Value::Object(mut params) = params else {
        return Err(wrong("The params of tools/call must be an object."));
    };
    let Some(Value::String(tool)) = params.remove("name") else {
        return Err(wrong("tools/call needs `name`, the tool's name."));
    };
    let args = match params.remove("arguments") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(args @ Value::Object(_)) => args,
        Some(_) => return Err(wrong("`arguments` must be an object.")),
    };
    let key = match params.get("_meta").and_then(|meta| meta.get("reversi/idempotency-key")) {
        None => None,
        Some(Value::String(key)) if (1..=1024).contains(&key.len()) => Some(key.clone()),
        Some(_) => return Err(wrong("`_meta[\"reversi/idempotency-key\"]` must be a string of 1 to 1024 bytes.")),
    };
    Ok((tool, args, key))
}

fn tool_result(answer: &Value) -> Value {
    let text = answer.to_string();
    json!({ "content": [{ "type": "text", "text": text }], "structuredContent": answer, "isError": false })
}

fn success(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn failure(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}
