//! Prepares the changes that the tools make: looks at what stands there, saves what an undo needs, stages what is
//! new. Nothing here touches the governed tree; `engine` does, after the intent is durable.
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode};
use serde_json::json;

use super::engine::{BACK, BEFORE, Call, Done, Draft, Engine, NEW, Plan, befores};
use super::error::ToolError;
use super::root::{Place, RelPath};
use super::state::{Change, Op, Outcome, Slot};
use super::tree::{self, Digest, Kind};

/// New content for a file.
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    /// Keep what is there and add to it.
    pub(crate) append: bool,
    /// Set or clear the executable bits; otherwise they stay as they are.
    pub(crate) executable: Option<bool>,
}

impl Engine {
    pub(crate) fn write(&self, call: &Call, path: &RelPath, content: &Content) -> Result<Done, ToolError> {
        self.change(call, |draft| {
            let place = self.root.place(path)?;
            let before = save_file(draft, &place)?;
            let after =
                stage(draft, before.is_some(), content).map_err(|e| ToolError::io("stage the new content", &e))?;
            let (size, sha256) = after.1;
            let answer = json!({
                "path": path.to_string(), "undo_token": draft.token, "created": before.is_none(),
                "bytes": content.bytes.len(), "size": size, "sha256": sha256,
            });
            Ok(Plan { op: Op::Write, slots: vec![slot(path, before, after.0)], answer })
        })
    }

    pub(crate) fn delete(&self, call: &Call, path: &RelPath, recursive: bool) -> Result<Done, ToolError> {
        self.change(call, |draft| {
            let place = self.root.place(path)?;
            if !recursive && must_exist(&place)? == Kind::Dir {
                let dir =
                    tree::open_dir(place.dir(), place.name()).map_err(|e| ToolError::io("open the directory", &e))?;
                let names = tree::names(&dir, 0).map_err(|e| ToolError::io("list the directory", &e))?;
                if !names.is_empty() {
                    return refuse(format!(
                        "`{path}` is a directory that isn't empty; pass recursive: true to delete it."
                    ));
                }
            }
            // Synced, because moving away content that is only in memory would save nothing.
            let before = existing(&place, true)?;
            let answer = json!({ "path": path.to_string(), "undo_token": draft.token, "kind": before.kind });
            Ok(Plan { op: Op::Delete, slots: vec![slot(path, Some(before), None)], answer })
        })
    }

    pub(crate) fn rename(&self, call: &Call, from: &RelPath, to: &RelPath) -> Result<Done, ToolError> {
        self.change(call, |draft| {
            if from.contains(to) {
                return refuse(format!("`{from}` can't be moved to `{to}`: that is itself or below it."));
            }
            let (source, target) = (self.root.place(from)?, self.root.place(to)?);
            must_be_free(&target)?;
            let moved = existing(&source, false)?;
            let answer = json!({ "from": from.to_string(), "to": to.to_string(), "undo_token": draft.token });
            Ok(Plan { op: Op::Move, slots: vec![slot(from, Some(moved), None), slot(to, None, Some(moved))], answer })
        })
    }

    pub(crate) fn make_dir(&self, call: &Call, path: &RelPath) -> Result<Done, ToolError> {
        self.change(call, |draft| {
            must_be_free(&self.root.place(path)?)?;
            // An empty directory's digest doesn't depend on where it is, so a staged one tells it.
            rustix::fs::mkdirat(&draft.dir, NEW, Mode::RWXU)
                .map_err(|e| ToolError::io("stage the directory", &e.into()))?;
            let after = digest(draft, NEW)?;
            let answer = json!({ "path": path.to_string(), "undo_token": draft.token });
            Ok(Plan { op: Op::MakeDir, slots: vec![slot(path, None, Some(after))], answer })
        })
    }

    /// Adds to a number in a file. Not deduplicated, on purpose: the tests' example of a tool that can't be repeated.
    pub(crate) fn count(&self, call: &Call, name: &str, by: i64) -> Result<Done, ToolError> {
        let path = RelPath::parse(&format!("{name}.counter"))?;
        self.change(call, |draft| {
            let place = self.root.place(&path)?;
            let before = save_file(draft, &place)?;
            let old = match &before {
                None => 0,
                Some(_) => {
                    saved_text(draft).map_err(|e| ToolError::io("read the counter", &e))?.trim().parse().unwrap_or(0)
                }
            };
            let Some(value) = i64::checked_add(old, by) else {
                return refuse(format!("The counter `{name}` would overflow."));
            };
            let content = Content { bytes: value.to_string().into_bytes(), append: false, executable: None };
            let after = stage(draft, before.is_some(), &content).map_err(|e| ToolError::io("stage the counter", &e))?;
            let answer = json!({ "name": name, "value": value });
            Ok(Plan { op: Op::Write, slots: vec![slot(&path, before, after.0)], answer })
        })
    }

    /// Takes back the change that a token stands for; once, however often it is asked.
    pub(crate) fn restore(&self, call: &Call, token: &str) -> Result<Done, ToolError> {
        let change = self.known(token)?;
        let answer = |already: bool| {
            let paths: Vec<&str> = change.slots.iter().map(|slot| slot.path.as_str()).collect();
            json!({ "undo_token": token, "restored": true, "already": already, "paths": paths })
        };
        if change.restored {
            return Ok(Done { answer: answer(true), outcome: Outcome::Deduplicated });
        }
        let now = self.now(&change).map_err(|e| ToolError::io("look at the present state", &e))?;
        if now == befores(&change) {
            let restored = Change { restored: true, ..change.clone() };
            self.state.set_change(&restored).map_err(ToolError::Fatal)?;
            return Ok(Done { answer: answer(true), outcome: Outcome::Deduplicated });
        }
        if let Some((slot, _)) = change.slots.iter().zip(&now).find(|(slot, now)| slot.after != **now) {
            return refuse(format!(
                "`{}` has changed since: it is neither what the change left nor what stood there before it. Nothing \
                 was restored, so that the newer change isn't lost; settle it by hand.",
                slot.path
            ));
        }
        for slot in &change.slots {
            self.root.place(&RelPath::parse(&slot.path)?)?;
        }
        if change.op == Op::Write && change.slots.iter().all(|slot| slot.before.is_some()) {
            self.stage_back(token).map_err(|e| ToolError::io("stage the saved content", &e))?;
        }
        let reply = answer(false);
        self.undo(call, change, reply)
    }

    /// The change of a token, or a sentence that says there is none.
    pub(crate) fn known(&self, token: &str) -> Result<Change, ToolError> {
        let change = self.state.change(token).map_err(|e| ToolError::io("read the undo data", &e))?;
        change.ok_or_else(|| ToolError::Refused(format!("There is no undo token `{token}` here.")))
    }

    fn stage_back(&self, token: &str) -> io::Result<()> {
        let dir = self.state.token_dir(token)?;
        let dir = dir.as_fd();
        tree::remove_at(dir, OsStr::new(BACK))?;
        tree::copy_at((dir, OsStr::new(BEFORE)), (dir, OsStr::new(BACK)))?;
        Ok(rustix::fs::fsync(dir)?)
    }
}

/// Copies the file at a place into the draft; nothing there is fine, anything but a file is not.
fn save_file(draft: &Draft, place: &Place) -> Result<Option<Digest>, ToolError> {
    match kind_at(place)? {
        None => return Ok(None),
        Some(Kind::File) => {}
        Some(Kind::Dir) => return refuse(format!("`{}` is a directory.", place.path)),
        Some(Kind::Link) => {
            return refuse(format!("`{}` is a link; this connector neither follows nor replaces links.", place.path));
        }
        Some(Kind::Other) => return refuse(format!("`{}` is a pipe, socket or device.", place.path)),
    }
    tree::copy_at((place.dir(), place.name()), (draft.dir.as_fd(), OsStr::new(BEFORE)))
        .map_err(|e| ToolError::io(&format!("save `{}`", place.path), &e))?;
    // Taken from the copy, so that the digest is of what is saved, even if the file changes meanwhile.
    digest(draft, BEFORE).map(Some)
}

/// Writes the new content beside the saved one; its digest, size and SHA-256.
fn stage(draft: &Draft, existed: bool, content: &Content) -> io::Result<(Option<Digest>, (u64, String))> {
    let dir = draft.dir.as_fd();
    let new = OsStr::new(NEW);
    let mut file = tree::create_file(dir, new, if content.executable == Some(true) { 0o777 } else { 0o666 })?;
    if existed {
        let saved = tree::open_file(dir, OsStr::new(BEFORE))?;
        let old = rustix::fs::fstat(&saved)?.st_mode & 0o7777;
        let mode = match content.executable {
            // Whoever may read it may then run it.
            Some(true) => old | ((old & 0o444) >> 2),
            Some(false) => old & !0o111,
            None => old,
        };
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        if content.append {
            io::copy(&mut &saved, &mut file)?;
        }
    }
    file.write_all(&content.bytes)?;
    file.sync_all()?;
    let staged = tree::digest_at(dir, new, false)?;
    let hash = tree::content_hash(&tree::open_file(dir, new)?)?;
    Ok((staged, (file.metadata()?.len(), hash.to_string())))
}

fn saved_text(draft: &Draft) -> io::Result<String> {
    let file: File = tree::open_file(draft.dir.as_fd(), OsStr::new(BEFORE))?;
    io::read_to_string(file)
}

fn digest(draft: &Draft, name: &str) -> Result<Digest, ToolError> {
    match tree::digest_at(draft.dir.as_fd(), OsStr::new(name), false) {
        Ok(Some(digest)) => Ok(digest),
        Ok(None) => refuse("The undo data vanished from the state directory. Nothing was changed.".to_owned()),
        Err(e) => Err(ToolError::io("read the undo data", &e)),
    }
}

/// What kind of entry stands at a place.
pub(crate) fn kind_at(place: &Place) -> Result<Option<Kind>, ToolError> {
    match rustix::fs::statat(place.dir(), place.name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Kind::of(stat.st_mode))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(e) => Err(ToolError::io(&format!("look at `{}`", place.path), &e.into())),
    }
}

/// The kind of an entry that has to be there.
pub(crate) fn must_exist(place: &Place) -> Result<Kind, ToolError> {
    kind_at(place)?.ok_or_else(|| ToolError::Refused(format!("There is nothing at `{}`.", place.path)))
}

fn must_be_free(place: &Place) -> Result<(), ToolError> {
    match kind_at(place)? {
        None => Ok(()),
        Some(_) => refuse(format!("Something stands at `{}` already; delete or move it first.", place.path)),
    }
}

fn existing(place: &Place, sync: bool) -> Result<Digest, ToolError> {
    must_exist(place)?;
    match tree::digest_at(place.dir(), place.name(), sync) {
        Ok(Some(digest)) => Ok(digest),
        Ok(None) => refuse(format!("There is nothing at `{}`.", place.path)),
        Err(e) => Err(ToolError::io(&format!("read `{}`", place.path), &e)),
    }
}

fn slot(path: &RelPath, before: Option<Digest>, after: Option<Digest>) -> Slot {
    Slot { path: path.to_string(), before, after }
}

fn refuse<T>(why: String) -> Result<T, ToolError> {
    Err(ToolError::Refused(why))
}
