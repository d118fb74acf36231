//! The tools that only read. They change nothing, not even the state directory.
use std::io::{Read, Seek, SeekFrom};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::AtFlags;
use serde_json::{Map, Value, json};

use super::engine::{Engine, afters, befores};
use super::error::ToolError;
use super::root::RelPath;
use super::tree::{self, Kind};
use super::writes::must_exist;

/// One answer stays well below the line length that clients accept, even if every character has to be escaped twice.
pub(crate) const READ_BYTES_MAX: u64 = 1024 * 1024;
pub(crate) const ENTRIES_MAX: usize = 10_000;

impl Engine {
    pub(crate) fn read_file(&self, path: &RelPath, offset: u64, max: u64, base64: bool) -> Result<Value, ToolError> {
        let place = self.root.place(path)?;
        match must_exist(&place)? {
            Kind::File => {}
            Kind::Dir => return Err(ToolError::Refused(format!("`{path}` is a directory; use fs.list_dir."))),
            Kind::Link | Kind::Other => return Err(ToolError::Refused(format!("`{path}` is no regular file."))),
        }
        let failed = |e: std::io::Error| ToolError::io(&format!("read `{path}`"), &e);
        let mut file = tree::open_file(place.dir(), place.name()).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(max.min(READ_BYTES_MAX)).read_to_end(&mut bytes).map_err(failed)?;
        let cut = offset + (bytes.len() as u64) < size;
        if cut && !base64 {
            drop_split_character(&mut bytes);
        }
        let end = offset + bytes.len() as u64;
        let (content, encoding) = match String::from_utf8(bytes) {
            Ok(text) if !base64 => (text, "utf8"),
            Ok(text) => (STANDARD.encode(text), "base64"),
            Err(e) => (STANDARD.encode(e.as_bytes()), "base64"),
        };
        let next = if cut { json!(end) } else { Value::Null };
        Ok(
            json!({ "path": path.to_string(), "content": content, "encoding": encoding, "size": size, "next_offset": next }),
        )
    }

    pub(crate) fn list_dir(&self, path: &RelPath, max: usize) -> Result<Value, ToolError> {
        let dir = self.root.dir(path)?;
        let names = tree::names(&dir, 0).map_err(|e| ToolError::io(&format!("list `{path}`"), &e))?;
        let more = names.len() > max;
        let mut entries = Vec::new();
        for name in names.into_iter().take(max) {
            // An entry that is gone by now isn't listed.
            let Ok(stat) = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = Kind::of(stat.st_mode);
            let mut entry = json!({ "name": name.to_string_lossy(), "kind": kind });
            if kind == Kind::File {
                entry["size"] = json!(stat.st_size);
            }
            if name.to_str().is_none() {
                // Such a name can't be passed to a tool, so it must not look as if it could.
                entry["addressable"] = json!(false);
            }
            entries.push(entry);
        }
        Ok(json!({ "path": path.to_string(), "entries": entries, "truncated": more }))
    }

    pub(crate) fn stat(&self, path: Option<&RelPath>, token: Option<&str>) -> Result<Value, ToolError> {
        let mut answer = Map::new();
        if let Some(path) = path {
            answer.extend(self.stat_path(path)?);
        }
        if let Some(token) = token {
            answer.extend(self.stat_token(token)?);
        }
        Ok(Value::Object(answer))
    }

    fn stat_path(&self, path: &RelPath) -> Result<Map<String, Value>, ToolError> {
        let mut answer = Map::new();
        answer.insert("path".to_owned(), json!(path.to_string()));
        let found = if path.is_root() {
            let dir = self.root.dir(path)?;
            rustix::fs::statat(&dir, ".", AtFlags::empty())
        } else {
            let place = self.root.place(path)?;
            rustix::fs::statat(place.dir(), place.name(), AtFlags::SYMLINK_NOFOLLOW)
        };
        let stat = match found {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => {
                answer.insert("exists".to_owned(), json!(false));
                return Ok(answer);
            }
            Err(e) => return Err(ToolError::io(&format!("look at `{path}`"), &e.into())),
        };
        let kind = Kind::of(stat.st_mode);
        answer.insert("exists".to_owned(), json!(true));
        answer.insert("kind".to_owned(), json!(kind));
        answer.insert("mode".to_owned(), json!(format!("{:04o}", stat.st_mode & 0o7777)));
        if kind == Kind::File {
            answer.insert("size".to_owned(), json!(stat.st_size));
            let place = self.root.place(path)?;
            let hash = tree::open_file(place.dir(), place.name()).and_then(|file| tree::content_hash(&file));
            let hash = hash.map_err(|e| ToolError::io(&format!("read `{path}`"), &e))?;
            answer.insert("sha256".to_owned(), json!(hash));
        }
        Ok(answer)
    }

    fn stat_token(&self, token: &str) -> Result<Map<String, Value>, ToolError> {
        let change = self.known(token)?;
        let now = self.now(&change).map_err(|e| ToolError::io("look at the present state", &e))?;
        let paths: Vec<Value> = change
            .slots
            .iter()
            .zip(&now)
            .map(|(slot, now)| {
                json!({ "path": slot.path, "exists": now.is_some(), "kind": now.map(|digest| digest.kind),
                        "matches_before": *now == slot.before })
            })
            .collect();
        let mut answer = Map::new();
        answer.insert("undo_token".to_owned(), json!(token));
        answer.insert("matches_before".to_owned(), json!(now == befores(&change)));
        answer.insert("matches_after".to_owned(), json!(now == afters(&change)));
        answer.insert("restored".to_owned(), json!(change.restored));
        answer.insert("paths".to_owned(), json!(paths));
        Ok(answer)
    }
}

/// A read that ends inside a character gives the bytes of it to the next read.
fn drop_split_character(bytes: &mut Vec<u8>) {
    if let Err(e) = std::str::from_utf8(bytes)
        && e.error_len().is_none()
        && e.valid_up_to() > 0
    {
        bytes.truncate(e.valid_up_to());
    }
}
