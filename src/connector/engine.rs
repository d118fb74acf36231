//! Changes the tree so that a kill at any moment leaves either no change, or a change with an undo token whose
//! saved content is right: save, journal the intent, change with one rename, commit. Knows no arguments and no
//! protocol; what is to be changed is prepared by `writes`.
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use reversi_proto::hash::{Hash, hex};
use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use serde_json::Value;

use super::error::ToolError;
use super::failpoint;
use super::root::{Place, RelPath, Root, errno};
use super::state::{Answered, CallRecord, Change, Op, Outcome, Pending, Slot, State};
use super::tree::{self, Digest};

/// Names inside a token's directory: content before the change, staged new content, staged restored content, and
/// a copy that isn't complete yet.
pub(crate) const BEFORE: &str = "before";
pub(crate) const NEW: &str = "new";
pub(crate) const BACK: &str = "back";
const PART: &str = "before.part";

/// One call of a tool, as far as deduplication and the record need it.
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) key: Option<String>,
    pub(crate) fingerprint: Hash,
    pub(crate) deduplicates: bool,
}

/// What a call gave.
pub(crate) struct Done {
    pub(crate) answer: Value,
    pub(crate) outcome: Outcome,
}

/// A change that is being prepared: its token and the directory for its saved content.
pub(crate) struct Draft {
    pub(crate) token: String,
    pub(crate) dir: OwnedFd,
}

/// A prepared change.
pub(crate) struct Plan {
    pub(crate) op: Op,
    pub(crate) slots: Vec<Slot>,
    pub(crate) answer: Value,
}

/// The governed tree together with its state.
pub(crate) struct Engine {
    pub(crate) root: Root,
    pub(crate) state: State,
}

impl Engine {
    /// Finishes or drops a change that a killed process left behind. Needs the lock.
    pub(crate) fn recover(&self) -> io::Result<()> {
        if let Some(pending) = self.state.pending()? {
            failpoint::pass("recovering");
            self.settle(&pending)?;
        }
        Ok(())
    }

    /// Prepares a change, makes it and commits it. Needs the lock.
    pub(crate) fn change(
        &self,
        call: &Call,
        prepare: impl FnOnce(&Draft) -> Result<Plan, ToolError>,
    ) -> Result<Done, ToolError> {
        let token = new_token()?;
        let dir = self.state.make_token_dir(&token).map_err(|e| ToolError::io("make room for the undo data", &e))?;
        let draft = Draft { token, dir };
        let prepared = prepare(&draft).and_then(|plan| {
            rustix::fs::fsync(&draft.dir).map_err(|e| ToolError::io("save the undo data", &e.into()))?;
            Ok(plan)
        });
        let plan = match prepared {
            Ok(plan) => plan,
            Err(e) => {
                self.state.remove_token(&draft.token).map_err(ToolError::Fatal)?;
                return Err(e);
            }
        };
        failpoint::pass("saved");
        let Plan { op, slots, answer } = plan;
        let change = Change { token: draft.token, tool: call.tool.clone(), op, slots, restored: false };
        self.execute(call, change, answer, false)
    }

    /// Takes a change back: the tree must show it exactly. Needs the lock.
    pub(crate) fn undo(&self, call: &Call, change: Change, answer: Value) -> Result<Done, ToolError> {
        self.execute(call, change, answer, true)
    }

    fn execute(&self, call: &Call, change: Change, answer: Value, undoing: bool) -> Result<Done, ToolError> {
        let record = CallRecord {
            n: self.state.last_call().map_err(ToolError::Fatal)? + 1,
            tool: call.tool.clone(),
            key: call.key.clone(),
            outcome: Outcome::Executed,
            token: Some(change.token.clone()),
        };
        let (fingerprint, deduplicates) = (call.fingerprint, call.deduplicates);
        let pending = Pending { record, fingerprint, deduplicates, answer, undoing, change };
        // Durable, then the world.
        if let Err(e) = self.state.set_pending(&pending) {
            return match self.state.pending() {
                Ok(None) => Err(ToolError::io("write the journal", &e)),
                _ => Err(ToolError::Fatal(e)),
            };
        }
        failpoint::pass("prepared");
        let applied = self.apply(&pending);
        failpoint::pass("changed");
        let happened = match &applied {
            Ok(()) => self.commit(&pending).map(|()| true),
            Err(_) => self.settle(&pending),
        };
        match (happened.map_err(ToolError::Fatal)?, applied) {
            (false, Err(e)) => Err(refusal(&pending.change, &e)),
            _ => Ok(Done { answer: pending.answer, outcome: Outcome::Executed }),
        }
    }

    /// Decides what became of a prepared change by looking at the tree, and brings state and tree in line with it.
    fn settle(&self, pending: &Pending) -> io::Result<bool> {
        let happened = self.happened(pending)?;
        let scratch = scratch_name(&pending.change.token);
        for slot in &pending.change.slots {
            if let Some(place) = self.reachable(slot) {
                tree::remove_at(place.dir(), &scratch)?;
                rustix::fs::fsync(place.dir())?;
            }
        }
        if happened {
            self.commit(pending)?;
        } else {
            self.state.clear_pending()?;
            if !pending.undoing {
                self.state.remove_token(&pending.change.token)?;
            }
        }
        Ok(happened)
    }

    fn happened(&self, pending: &Pending) -> io::Result<bool> {
        let change = &pending.change;
        let (now, before, after) = (self.now(change)?, befores(change), afters(change));
        let moved_away = match self.state.token_dir(&change.token) {
            Ok(dir) => rustix::fs::statat(&dir, BEFORE, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
            Err(_) => false,
        };
        Ok(match (pending.undoing, change.op) {
            // Without the saved content the entry went missing by another hand, and the token couldn't be used.
            (false, Op::Delete) => moved_away && now != before,
            // Neither state: somebody changed the entry after it. The token's saved content is right, so it is kept.
            (false, Op::Write | Op::Move | Op::MakeDir) => now == after || now != before,
            (true, Op::Delete) => now == before || (now != after && !moved_away),
            (true, Op::Write | Op::Move | Op::MakeDir) => now == before,
        })
    }

    /// Makes everything that follows from a change durable, in an order that a second run can repeat.
    fn commit(&self, pending: &Pending) -> io::Result<()> {
        let change = Change { restored: pending.undoing, ..pending.change.clone() };
        self.state.set_change(&change)?;
        failpoint::pass("flagged");
        if let (true, Some(key)) = (pending.deduplicates, &pending.record.key) {
            let token = pending.record.token.clone();
            let answered = Answered { fingerprint: pending.fingerprint, answer: pending.answer.clone(), token };
            self.state.set_answered(key, &answered)?;
            failpoint::pass("keyed");
        }
        if self.state.last_call()? < pending.record.n {
            self.state.append_call(&pending.record)?;
        }
        failpoint::pass("recorded");
        self.state.clear_pending()?;
        failpoint::pass("committed");
        // What is left only costs space, so a failure here is no failure of the call.
        if let Ok(dir) = self.state.token_dir(&change.token) {
            let spent: &[&str] = if change.restored { &[NEW, BACK, PART, BEFORE] } else { &[NEW, BACK, PART] };
            for name in spent {
                let _ = tree::remove_at(dir.as_fd(), OsStr::new(name));
            }
        }
        Ok(())
    }

    fn apply(&self, pending: &Pending) -> io::Result<()> {
        let change = &pending.change;
        let saved = self.state.token_dir(&change.token)?;
        let scratch = scratch_name(&change.token);
        let places = change.slots.iter().map(|slot| self.place(slot)).collect::<io::Result<Vec<Place>>>()?;
        let (first, last) = match places.as_slice() {
            [one] => (one, one),
            [from, to] => (from, to),
            _ => return Err(io::Error::other("a change touches one or two paths")),
        };
        let existed = change.slots.first().is_some_and(|slot| slot.before.is_some());
        let saved = saved.as_fd();
        match (pending.undoing, change.op) {
            (false, Op::Write) => install((saved, NEW), first, existed, &scratch),
            (false, Op::Delete) => take_away(first, saved, &scratch),
            (false, Op::Move) => rename_new((first.dir(), first.name()), (last.dir(), last.name())),
            (false, Op::MakeDir) => {
                rustix::fs::mkdirat(first.dir(), first.name(), Mode::from_raw_mode(0o777)).map_err(io::Error::from)
            }
            (true, Op::Write) if existed => install((saved, BACK), first, true, &scratch),
            (true, Op::Write) => unlink(first, AtFlags::empty()),
            (true, Op::Delete) => install((saved, BEFORE), first, false, &scratch),
            (true, Op::Move) => rename_new((last.dir(), last.name()), (first.dir(), first.name())),
            (true, Op::MakeDir) => unlink(first, AtFlags::REMOVEDIR),
        }?;
        places.iter().try_for_each(|place| rustix::fs::fsync(place.dir()).map_err(io::Error::from))
    }

    /// What stands at each of a change's paths now.
    pub(crate) fn now(&self, change: &Change) -> io::Result<Vec<Option<Digest>>> {
        let parse = |slot: &Slot| RelPath::parse(&slot.path).map_err(io::Error::other);
        change.slots.iter().map(|slot| self.root.digest(&parse(slot)?)).collect()
    }

    fn place(&self, slot: &Slot) -> io::Result<Place> {
        let path = RelPath::parse(&slot.path).map_err(io::Error::other)?;
        self.root.place(&path).map_err(io::Error::other)
    }

    fn reachable(&self, slot: &Slot) -> Option<Place> {
        self.place(slot).ok()
    }
}

pub(crate) fn befores(change: &Change) -> Vec<Option<Digest>> {
    change.slots.iter().map(|slot| slot.before).collect()
}

pub(crate) fn afters(change: &Change) -> Vec<Option<Digest>> {
    change.slots.iter().map(|slot| slot.after).collect()
}

/// Only one call is prepared at a time, so the name belongs to it alone; recovery removes it.
fn scratch_name(token: &str) -> OsString {
    OsString::from(format!(".reversi-{token}"))
}

/// Puts prepared content at a place with one rename; over a filesystem border it is copied beside the place first.
fn install(from: (BorrowedFd<'_>, &str), to: &Place, replace: bool, scratch: &OsStr) -> io::Result<()> {
    let put = |dir: BorrowedFd<'_>, name: &OsStr| {
        if replace {
            rustix::fs::renameat(dir, name, to.dir(), to.name()).map_err(io::Error::from)
        } else {
            rename_new((dir, name), (to.dir(), to.name()))
        }
    };
    let from = (from.0, OsStr::new(from.1));
    match put(from.0, from.1) {
        Err(e) if errno(&e) == Some(Errno::XDEV) => {
            tree::copy_at(from, (to.dir(), scratch))?;
            failpoint::pass("copied");
            put(to.dir(), scratch)
        }
        other => other,
    }
}

/// Moves an entry into the saved content with one rename; over a filesystem border it is copied first, then renamed
/// aside, so that it disappears at once, and removed.
fn take_away(from: &Place, saved: BorrowedFd<'_>, scratch: &OsStr) -> io::Result<()> {
    match rename_new((from.dir(), from.name()), (saved, OsStr::new(BEFORE))) {
        Err(e) if errno(&e) == Some(Errno::XDEV) => {
            tree::copy_at((from.dir(), from.name()), (saved, OsStr::new(PART)))?;
            rustix::fs::renameat(saved, PART, saved, BEFORE)?;
            rustix::fs::fsync(saved)?;
            failpoint::pass("copied");
            rustix::fs::renameat(from.dir(), from.name(), from.dir(), scratch)?;
            rustix::fs::fsync(from.dir())?;
            failpoint::pass("aside");
            tree::remove_at(from.dir(), scratch)
        }
        other => {
            other?;
            Ok(rustix::fs::fsync(saved)?)
        }
    }
}

fn rename_new(from: (BorrowedFd<'_>, &OsStr), to: (BorrowedFd<'_>, &OsStr)) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE)?)
}

fn unlink(place: &Place, flags: AtFlags) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(place.dir(), place.name(), flags)?)
}

fn refusal(change: &Change, error: &io::Error) -> ToolError {
    let paths: Vec<String> = change.slots.iter().map(|slot| format!("`{}`", slot.path)).collect();
    let why = match errno(error) {
        Some(Errno::XDEV) => "the paths are on different filesystems; copy and delete instead".to_owned(),
        Some(Errno::INVAL) if change.op == Op::Move => "a directory can't be moved into itself".to_owned(),
        Some(Errno::EXIST) => "something was put there in the meantime".to_owned(),
        _ => error.to_string(),
    };
    ToolError::Refused(format!("Could not change {}: {why}. Nothing was changed.", paths.join(" and ")))
}

fn new_token() -> Result<String, ToolError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| ToolError::Refused(format!("No random numbers: {e}. Nothing was changed.")))?;
    Ok(format!("undo_{}", hex(&bytes)))
}
