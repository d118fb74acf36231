//! The tools that an upstream offers, as far as lint needs them: names and input schemas, out of a `tools/list` answer of
//! MCP. Must not know where the answer came from.
use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, jcs};
use crate::hash::Hash;
use crate::manifest::quoted;

/// How many hex digits a schema hash has.
const HASH_DIGITS: usize = 12;

/// The tools of an upstream, or of several.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpstreamTools {
    by_name: BTreeMap<String, UpstreamTool>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamTool {
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// That schema's hash, as manifests write it.
    pub schema_hash: String,
}

/// Why a text is no list of tools. The place is a path such as `result.tools[3].name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Not JSON.
    #[error("line {line}, column {column}: this is not JSON: {problem}")]
    Json {
        /// Line from 1.
        line: usize,
        /// Column from 1.
        column: usize,
        /// In words.
        problem: String,
    },
    /// JSON that readers understand differently, such as a key that stands twice.
    #[error("line {line}, column {column}: {problem}")]
    NotStrict {
        /// Line from 1.
        line: usize,
        /// Column from 1.
        column: usize,
        /// In words.
        problem: String,
    },
    /// No form of a list of tools.
    #[error(
        "expected the answer to tools/list: an object with `tools`, a JSON-RPC response with `result.tools`, or a list \
         of tools; got {got}"
    )]
    NoTools {
        /// What it is instead.
        got: String,
    },
    /// An answer that says that there was an error.
    #[error("this is the answer to a request that failed ({message}), not a list of tools")]
    Failed {
        /// The error's own words, quoted and cut.
        message: String,
    },
    /// Only the first tools.
    #[error("{place} says that the list goes on: put the tools of all pages into one list")]
    FirstPage {
        /// Where.
        place: String,
    },
    /// A part of another type.
    #[error("{place} must be {expected}, got {got}")]
    WrongType {
        /// Where.
        place: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        got: &'static str,
    },
    /// A name that stands twice.
    #[error("{place} is {name}, which is the name of an earlier tool, too")]
    Duplicate {
        /// Where.
        place: String,
        /// The name, quoted and cut.
        name: String,
    },
    /// A schema without a canonical form.
    #[error("{place} has no canonical form, so it cannot be hashed")]
    Schema {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: CanonicalError,
    },
}

/// The hash of a tool's input schema that manifests keep in `schema_hash`: the first 12 hex digits of SHA-256 over the
/// schema's canonical JSON (RFC 8785). All of the schema counts, descriptions too: they steer what a model sends.
/// Fails on a schema that is too deep for a canonical form.
pub fn schema_hash(schema: &Value) -> Result<String, CanonicalError> {
    let canonical = jcs(schema.to_string().as_bytes())?;
    Ok(Hash(Sha256::digest(canonical).into()).short(HASH_DIGITS))
}

impl UpstreamTools {
    /// Reads an answer to `tools/list`: its result (`{"tools": [...]}`), the whole JSON-RPC response around it, or the
    /// bare list.
    pub fn parse(json: &[u8]) -> Result<Self, UpstreamError> {
        let value: Value = serde_json::from_slice(json).map_err(|error| {
            let full = error.to_string();
            let problem = full.rsplit_once(" at line ").map_or(full.as_str(), |(problem, _)| problem).to_owned();
            UpstreamError::Json { line: error.line(), column: error.column().max(1), problem }
        })?;
        // A key that stands twice has been dropped above without a word.
        jcs(json).map_err(|error| not_strict(json, error))?;
        let (place, list) = list_of(&value)?;
        let mut tools = Self::default();
        for (index, tool) in list.iter().enumerate() {
            tools.add(&format!("{place}[{index}]"), tool)?;
        }
        Ok(tools)
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&UpstreamTool> {
        self.by_name.get(name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &UpstreamTool)> {
        self.by_name.iter().map(|(name, tool)| (name.as_str(), tool))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds a tool, under the name by which agents call it. The place names it in an error.
    pub fn insert(&mut self, place: &str, name: &str, input_schema: Value) -> Result<(), UpstreamError> {
        if self.by_name.contains_key(name) {
            return Err(UpstreamError::Duplicate { place: format!("{place}.name"), name: quoted(name) });
        }
        let schema_hash = schema_hash(&input_schema)
            .map_err(|source| UpstreamError::Schema { place: format!("{place}.inputSchema"), source })?;
        self.by_name.insert(name.to_owned(), UpstreamTool { input_schema, schema_hash });
        Ok(())
    }

    fn add(&mut self, place: &str, tool: &Value) -> Result<(), UpstreamError> {
        let fields = tool.as_object().ok_or_else(|| wrong(place.to_owned(), "a tool (an object)", Some(tool)))?;
        let (name, schema) = (fields.get("name"), fields.get("inputSchema"));
        let named = name.and_then(Value::as_str).filter(|name| !name.trim().is_empty());
        let named = named.ok_or_else(|| wrong(format!("{place}.name"), "the name of a tool", name))?;
        let object = schema.filter(|schema| schema.is_object());
        let object =
            object.ok_or_else(|| wrong(format!("{place}.inputSchema"), "a JSON Schema (an object)", schema))?;
        self.insert(place, named, object.clone())
    }
}

/// The list, and where it stands.
fn list_of(value: &Value) -> Result<(&'static str, &Vec<Value>), UpstreamError> {
    let no_tools = |got: String| Err(UpstreamError::NoTools { got });
    match value {
        Value::Array(list) => Ok(("tools", list)),
        Value::Object(answer) if answer.contains_key("tools") => tools_of("tools", "nextCursor", answer),
        Value::Object(answer) => match (answer.get("result"), answer.get("error")) {
            (Some(Value::Object(result)), _) if result.contains_key("tools") => {
                tools_of("result.tools", "result.nextCursor", result)
            }
            (Some(_), _) => no_tools("a response with another result".to_owned()),
            (None, Some(error)) => {
                let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
                Err(UpstreamError::Failed { message: quoted(message) })
            }
            (None, None) => no_tools("another object".to_owned()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => no_tools(type_name(value).to_owned()),
    }
}

fn tools_of<'v>(
    place: &'static str,
    cursor: &str,
    answer: &'v Map<String, Value>,
) -> Result<(&'static str, &'v Vec<Value>), UpstreamError> {
    match answer.get("nextCursor") {
        None | Some(Value::Null) => {}
        // Some servers end with an empty cursor instead of none.
        Some(Value::String(cursor)) if cursor.is_empty() => {}
        Some(_) => return Err(UpstreamError::FirstPage { place: cursor.to_owned() }),
    }
    let tools = answer.get("tools");
    let list = tools.and_then(Value::as_array).ok_or_else(|| wrong(place.to_owned(), "a list of tools", tools))?;
    Ok((place, list))
}

fn wrong(place: String, expected: &'static str, got: Option<&Value>) -> UpstreamError {
    UpstreamError::WrongType { place, expected, got: got.map_or("nothing", type_name) }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(text) if text.trim().is_empty() => "an empty text",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn not_strict(json: &[u8], error: CanonicalError) -> UpstreamError {
    let before = &json[..error.offset.min(json.len())];
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let line = before.split(|b| *b == b'\n').count();
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
    let full = error.to_string();
    let problem = full.rsplit_once(" (byte ").map_or(full.as_str(), |(problem, _)| problem).to_owned();
    UpstreamError::NotStrict { line, column, problem }
}
