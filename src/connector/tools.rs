//! The tools as a client sees them: names, schemas, hints, and the strict parsing of their arguments. Executes
//! nothing.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ToolError;
use super::reads::{ENTRIES_MAX, READ_BYTES_MAX};
use super::root::RelPath;
use super::writes::Content;

/// A call whose arguments are checked.
pub(crate) enum Request {
    ReadFile { path: RelPath, offset: u64, max: u64, base64: bool },
    ListDir { path: RelPath, max: usize },
    Stat { path: Option<RelPath>, token: Option<String> },
    Write { path: RelPath, content: Content },
    Move { from: RelPath, to: RelPath },
    MakeDir { path: RelPath },
    Delete { path: RelPath, recursive: bool },
    Restore { token: String },
    Count { name: String, by: i64 },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Utf8,
    Base64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    path: String,
    offset: Option<u64>,
    max_bytes: Option<u64>,
    encoding: Option<Encoding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    path: Option<String>,
    max_entries: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatArgs {
    path: Option<String>,
    undo_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    path: String,
    content: String,
    encoding: Option<Encoding>,
    executable: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendArgs {
    path: String,
    content: String,
    encoding: Option<Encoding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveArgs {
    from: String,
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathArgs {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteArgs {
    path: String,
    recursive: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreArgs {
    undo_token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountArgs {
    name: String,
    by: i64,
}

impl Request {
    /// Checks a call. An unknown tool and arguments that don't fit are the caller's mistakes: nothing is executed.
    pub(crate) fn parse(tool: &str, args: Value, test_tools: bool) -> Result<Self, ToolError> {
        match tool {
            "fs.read_file" => {
                let ReadArgs { path, offset, max_bytes, encoding } = read(tool, args)?;
                let max = bounded(tool, "max_bytes", max_bytes.unwrap_or(READ_BYTES_MAX), READ_BYTES_MAX)?;
                let base64 = matches!(encoding, Some(Encoding::Base64));
                Ok(Self::ReadFile { path: RelPath::parse(&path)?, offset: offset.unwrap_or(0), max, base64 })
            }
            "fs.list_dir" => {
                let ListArgs { path, max_entries } = read(tool, args)?;
                let max = bounded(tool, "max_entries", max_entries.unwrap_or(1000), ENTRIES_MAX)?;
                Ok(Self::ListDir { path: RelPath::parse(path.as_deref().unwrap_or("."))?, max })
            }
            "fs.stat" => {
                let StatArgs { path, undo_token } = read(tool, args)?;
                if path.is_none() && undo_token.is_none() {
                    return Err(ToolError::Params("fs.stat needs `path`, `undo_token`, or both.".to_owned()));
                }
                let path = path.map(|path| RelPath::parse(&path)).transpose()?;
                Ok(Self::Stat { path, token: undo_token.map(token).transpose()? })
            }
            "fs.write_file" => {
                let WriteArgs { path, content, encoding, executable } = read(tool, args)?;
                let content = Content { bytes: decode(content, encoding.as_ref())?, append: false, executable };
                Ok(Self::Write { path: RelPath::parse(&path)?, content })
            }
            "fs.append_file" => {
                let AppendArgs { path, content, encoding } = read(tool, args)?;
                let content = Content { bytes: decode(content, encoding.as_ref())?, append: true, executable: None };
                Ok(Self::Write { path: RelPath::parse(&path)?, content })
            }
            "fs.move" => {
                let MoveArgs { from, to } = read(tool, args)?;
                Ok(Self::Move { from: RelPath::parse(&from)?, to: RelPath::parse(&to)? })
            }
            "fs.make_dir" => Ok(Self::MakeDir { path: RelPath::parse(&read::<PathArgs>(tool, args)?.path)? }),
            "fs.delete" => {
                let DeleteArgs { path, recursive } = read(tool, args)?;
                Ok(Self::Delete { path: RelPath::parse(&path)?, recursive: recursive.unwrap_or(false) })
            }
            "fs.restore" => Ok(Self::Restore { token: token(read::<RestoreArgs>(tool, args)?.undo_token)? }),
            "fs.counter_add" | "fs.counter_sub" if test_tools => counter(tool, args),
            _ => Err(ToolError::Params(format!("There is no tool {tool:?} here; tools/list names them."))),
        }
    }
}

fn counter(tool: &str, args: Value) -> Result<Request, ToolError> {
    let CountArgs { name, by } = read(tool, args)?;
    if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(ToolError::Params(format!("{tool}: `name` must be 1 to 64 letters, digits and underscores.")));
    }
    let by = if tool == "fs.counter_sub" { by.checked_neg() } else { Some(by) };
    let by = by.ok_or_else(|| ToolError::Params(format!("{tool}: `by` is too small to be negated.")))?;
    Ok(Request::Count { name, by })
}

fn read<'de, T: Deserialize<'de>>(tool: &str, args: Value) -> Result<T, ToolError> {
    T::deserialize(args).map_err(|e| ToolError::Params(format!("The arguments of {tool} don't fit its schema: {e}.")))
}

fn bounded<T: Copy + PartialOrd + std::fmt::Display>(tool: &str, name: &str, got: T, most: T) -> Result<T, ToolError> {
    if got > most {
        return Err(ToolError::Params(format!("{tool}: `{name}` is at most {most}, got {got}.")));
    }
    Ok(got)
}

fn decode(content: String, encoding: Option<&Encoding>) -> Result<Vec<u8>, ToolError> {
    match encoding {
        None | Some(Encoding::Utf8) => Ok(content.into_bytes()),
        Some(Encoding::Base64) => {
            STANDARD.decode(content).map_err(|e| ToolError::Params(format!("`content` is no valid base64: {e}.")))
        }
    }
}

/// A token becomes a directory name, so only what this connector mints is let through.
fn token(text: String) -> Result<String, ToolError> {
    let minted = text.strip_prefix("undo_").is_some_and(|hex| reversi_proto::hash::unhex::<16>(hex).is_ok());
    if minted { Ok(text) } else { Err(ToolError::Params("An undo token is `undo_` and 32 hex digits.".to_owned())) }
}

#[derive(Clone, Copy)]
enum Hint {
    /// Reads only.
    Read,
    /// Adds, and takes nothing away.
    Add,
    /// Can replace or remove something.
    Replace,
    /// Can be repeated without a further effect.
    Repeatable,
}

/// What `tools/list` answers.
pub(crate) fn list(test_tools: bool) -> Value {
    let mut tools = reading();
    tools.extend(changing());
    if test_tools {
        let count = json!({ "name": text("Letters, digits and underscores."), "by": { "type": "integer" } });
        for (name, what) in [("fs.counter_add", "Adds to"), ("fs.counter_sub", "Subtracts from")] {
            let about = format!("{what} a number in the file `<name>.counter`. For tests: every call executes.");
            tools.push(tool(name, &about, &count, &["name", "by"], Hint::Replace));
        }
    }
    json!({ "tools": tools })
}

fn reading() -> Vec<Value> {
    let path = text("Path relative to the root.");
    vec![
        tool(
            "fs.read_file",
            "Reads a file, up to 1 MiB at a time. Content that is no text comes as base64.",
            &json!({ "path": path, "offset": whole(0, None), "max_bytes": whole(0, Some(READ_BYTES_MAX)),
                     "encoding": { "enum": ["utf8", "base64"] } }),
            &["path"],
            Hint::Read,
        ),
        tool(
            "fs.list_dir",
            "Lists a directory.",
            &json!({ "path": path, "max_entries": whole(0, Some(ENTRIES_MAX as u64)) }),
            &[],
            Hint::Read,
        ),
        tool(
            "fs.stat",
            "Tells what stands at a path, and whether the paths of an undo token are as they were before its change.",
            &json!({ "path": path, "undo_token": text("A token that a change returned.") }),
            &[],
            Hint::Read,
        ),
    ]
}

fn changing() -> Vec<Value> {
    let path = text("Path relative to the root.");
    let content = text("The content, as text or as base64.");
    let encoding = json!({ "enum": ["utf8", "base64"] });
    vec![
        tool(
            "fs.write_file",
            "Creates a file or replaces its content. Returns an undo token.",
            &json!({ "path": path, "content": content, "encoding": encoding, "executable": { "type": "boolean" } }),
            &["path", "content"],
            Hint::Replace,
        ),
        tool(
            "fs.append_file",
            "Adds to the end of a file, creating it if needed. Returns an undo token.",
            &json!({ "path": path, "content": content, "encoding": encoding }),
            &["path", "content"],
            Hint::Add,
        ),
        tool(
            "fs.move",
            "Moves a file or directory to a path where nothing stands. Returns an undo token.",
            &json!({ "from": path, "to": path }),
            &["from", "to"],
            Hint::Replace,
        ),
        tool(
            "fs.make_dir",
            "Makes a directory in an existing one. Returns an undo token.",
            &json!({ "path": path }),
            &["path"],
            Hint::Add,
        ),
        tool(
            "fs.delete",
            "Deletes a file or a directory. Returns an undo token.",
            &json!({ "path": path, "recursive": { "type": "boolean" } }),
            &["path"],
            Hint::Replace,
        ),
        tool(
            "fs.restore",
            "Takes back the change of an undo token. Doing it again does nothing.",
            &json!({ "undo_token": text("A token that a change returned.") }),
            &["undo_token"],
            Hint::Repeatable,
        ),
    ]
}

fn tool(name: &str, about: &str, properties: &Value, required: &[&str], hint: Hint) -> Value {
    let (read_only, destructive, idempotent) = match hint {
        Hint::Read => (true, false, true),
        Hint::Add => (false, false, false),
        Hint::Replace => (false, true, false),
        Hint::Repeatable => (false, true, true),
    };
    json!({
        "name": name,
        "description": about,
        "inputSchema": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        },
        "annotations": {
            "readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": idempotent,
            "openWorldHint": false,
        },
    })
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn whole(least: u64, most: Option<u64>) -> Value {
    let mut schema = json!({ "type": "integer", "minimum": least });
    if let Some(most) = most {
        schema["maximum"] = json!(most);
    }
    schema
}
