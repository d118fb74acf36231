//! What a connector remembers, in a directory outside the governed tree: one prepared change at most, undo tokens,
//! answers by idempotency key, and the record of calls. Everything is read from disk under a lock, so that several
//! connectors of one root (the agent's and the daemon's) agree. Must not know how a tree is changed.
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context;
use reversi_proto::hash::{Hash, hex};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::tree::{self, Digest};

const PENDING: &str = "pending.json";
const CALLS: &str = "calls.jsonl";
const CHANGE: &str = "change.json";
/// A line of the call record is far shorter; more is read only to find the last one.
const TAIL_BYTES: u64 = 64 * 1024;

/// How a call ended, for the call record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It changed something.
    Executed,
    /// The same call was answered before, or its token is restored already: nothing was done.
    Deduplicated,
    /// It was refused and changed nothing.
    Refused,
    /// It only read.
    Read,
}

/// One line of `calls.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRecord {
    /// Number of the call, dense from 1 over all processes.
    pub n: u64,
    /// The tool.
    pub tool: String,
    /// The idempotency key that came with it.
    pub key: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// The undo token that it made or used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// What kind of change a token undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    Write,
    Delete,
    Move,
    MakeDir,
}

/// One path that a change touches, and what stands there before and after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slot {
    pub(crate) path: String,
    pub(crate) before: Option<Digest>,
    pub(crate) after: Option<Digest>,
}

/// A change and all that is needed to say whether it is there and to take it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) token: String,
    pub(crate) tool: String,
    pub(crate) op: Op,
    pub(crate) slots: Vec<Slot>,
    pub(crate) restored: bool,
}

/// The journal's one entry: written before the tree is touched, removed after everything about it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pending {
    pub(crate) record: CallRecord,
    pub(crate) fingerprint: Hash,
    /// False for the tools that execute every call whatever its key.
    pub(crate) deduplicates: bool,
    pub(crate) answer: Value,
    /// True when the change is being taken back.
    pub(crate) undoing: bool,
    pub(crate) change: Change,
}

/// A remembered answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answered {
    pub(crate) fingerprint: Hash,
    pub(crate) answer: Value,
    pub(crate) token: Option<String>,
}

/// The open state directory.
pub(crate) struct State {
    dir: OwnedFd,
    tokens: OwnedFd,
    keys: OwnedFd,
}

/// Proof that this process alone works on the state; dropping it lets others in.
pub(crate) struct Lock(#[allow(dead_code, reason = "held for its lock")] File);

impl State {
    /// Opens or makes the state directory of `root` (both canonical).
    pub(crate) fn open(path: &Path, root: &Path) -> anyhow::Result<Self> {
        let inside = future_path(path)?;
        // Before anything is made: a refused start must not leave directories in the governed tree.
        anyhow::ensure!(
            !inside.starts_with(root) && !root.starts_with(&inside),
            "the state directory {} and the root {} must not contain each other; give another --state",
            inside.display(),
            root.display()
        );
        for dir in [&inside, &inside.join("tokens"), &inside.join("keys")] {
            match rustix::fs::mkdirat(rustix::fs::CWD, dir, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e).with_context(|| format!("could not make the directory {}", dir.display())),
            }
        }
        let open = |dir: PathBuf| -> anyhow::Result<OwnedFd> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&dir, flags, Mode::empty()).with_context(|| format!("could not open {}", dir.display()))
        };
        let (tokens, keys) = (open(inside.join("tokens"))?, open(inside.join("keys"))?);
        let state = Self { dir: open(inside)?, tokens, keys };
        state.belongs_to(root)?;
        state.calls()?;
        rustix::fs::fsync(&state.dir)?;
        Ok(state)
    }

    /// Tokens name paths relative to one root: with another root they would restore the wrong files.
    fn belongs_to(&self, root: &Path) -> anyhow::Result<()> {
        let _lock = self.lock()?;
        let root = root.to_string_lossy().into_owned();
        match read_json::<String>(self.dir.as_fd(), OsStr::new("root.json"))? {
            Some(known) => anyhow::ensure!(
                known == root,
                "this state directory belongs to the root {known}, got {root}; give another --state"
            ),
            None => write_json(self.dir.as_fd(), OsStr::new("root.json"), &root)?,
        }
        Ok(())
    }

    /// Waits until no other connector of this root is working.
    pub(crate) fn lock(&self) -> io::Result<Lock> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::openat(&self.dir, "lock", flags, Mode::RUSR | Mode::WUSR)?);
        file.lock()?;
        Ok(Lock(file))
    }

    pub(crate) fn pending(&self) -> io::Result<Option<Pending>> {
        read_json(self.dir.as_fd(), OsStr::new(PENDING))
    }

    pub(crate) fn set_pending(&self, pending: &Pending) -> io::Result<()> {
        write_json(self.dir.as_fd(), OsStr::new(PENDING), pending)
    }

    pub(crate) fn clear_pending(&self) -> io::Result<()> {
        rustix::fs::unlinkat(&self.dir, PENDING, rustix::fs::AtFlags::empty())?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// Makes the directory that holds a token's saved content.
    pub(crate) fn make_token_dir(&self, token: &str) -> io::Result<OwnedFd> {
        rustix::fs::mkdirat(&self.tokens, token, Mode::RWXU)?;
        rustix::fs::fsync(&self.tokens)?;
        self.token_dir(token)
    }

    pub(crate) fn token_dir(&self, token: &str) -> io::Result<OwnedFd> {
        tree::open_dir(self.tokens.as_fd(), OsStr::new(token))
    }

    pub(crate) fn remove_token(&self, token: &str) -> io::Result<()> {
        tree::remove_at(self.tokens.as_fd(), OsStr::new(token))
    }

    /// The change that a token undoes; `None` for a token that was never handed out.
    pub(crate) fn change(&self, token: &str) -> io::Result<Option<Change>> {
        match self.token_dir(token) {
            Ok(dir) => read_json(dir.as_fd(), OsStr::new(CHANGE)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn set_change(&self, change: &Change) -> io::Result<()> {
        write_json(self.token_dir(&change.token)?.as_fd(), OsStr::new(CHANGE), change)
    }

    /// Removes token directories whose change was never prepared: their tokens are known to nobody. Only while
    /// nothing is pending.
    pub(crate) fn sweep_tokens(&self) -> io::Result<()> {
        for token in tree::names(&self.tokens, 0)? {
            let dir = tree::open_dir(self.tokens.as_fd(), &token)?;
            if read_bytes(dir.as_fd(), OsStr::new(CHANGE))?.is_none() {
                tree::remove_at(self.tokens.as_fd(), &token)?;
            }
        }
        Ok(())
    }

    pub(crate) fn answered(&self, key: &str) -> io::Result<Option<Answered>> {
        read_json(self.keys.as_fd(), OsStr::new(&key_file(key)))
    }

    pub(crate) fn set_answered(&self, key: &str, answered: &Answered) -> io::Result<()> {
        write_json(self.keys.as_fd(), OsStr::new(&key_file(key)), answered)
    }

    /// Number of the last call on record. A line torn by a kill is cut off: its call was never answered.
    pub(crate) fn last_call(&self) -> io::Result<u64> {
        let mut file = self.calls()?;
        let length = file.metadata()?.len();
        let start = length.saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < tail.len() {
            file.set_len(start + whole as u64)?;
            file.sync_all()?;
        }
        let Some(line) = tail[..whole].split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()) else {
            return Ok(0);
        };
        Ok(serde_json::from_slice::<CallRecord>(line)?.n)
    }

    /// Adds one call to the record and waits until it is on disk.
    pub(crate) fn append_call(&self, record: &CallRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut file = self.calls()?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(&line)?;
        file.sync_all()
    }

    fn calls(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(File::from(rustix::fs::openat(&self.dir, CALLS, flags, Mode::RUSR | Mode::WUSR)?))
    }
}

/// Reads the record of calls of a state directory, oldest first.
pub fn read_calls(state: &Path) -> io::Result<Vec<CallRecord>> {
    let text = std::fs::read_to_string(state.join(CALLS))?;
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

/// The canonical path of something that may not exist yet.
fn future_path(path: &Path) -> anyhow::Result<PathBuf> {
    if let Ok(found) = path.canonicalize() {
        return Ok(found);
    }
    let path = std::path::absolute(path).context("could not find the working directory")?;
    let (parent, name) = path.parent().zip(path.file_name()).context("the state directory needs a name")?;
    let found = parent.canonicalize().with_context(|| format!("could not find the directory {}", parent.display()))?;
    Ok(found.join(name))
}

/// Keys come from outside and can be hostile as file names.
fn key_file(key: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    format!("{}.json", hex(&hash))
}

fn read_bytes(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match tree::open_file(dir, name) {
        Ok(mut file) => file.read_to_end(&mut bytes).map(|_| Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn read_json<T: DeserializeOwned>(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<T>> {
    let bytes = read_bytes(dir, name)?;
    bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from)).transpose()
}

/// Replaces a file whole: after a crash either the old or the new content is there.
fn write_json<T: Serialize>(dir: BorrowedFd<'_>, name: &OsStr, value: &T) -> io::Result<()> {
    let new = OsStr::new("new.tmp");
    tree::remove_at(dir, new)?;
    let mut file = tree::create_file(dir, new, 0o600)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    rustix::fs::renameat(dir, new, dir, name)?;
    Ok(rustix::fs::fsync(dir)?)
}
