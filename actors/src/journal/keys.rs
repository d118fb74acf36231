//! `private.keys`: the ledger's keys and one key per run; append-only, durable before the records that need it. Must not
//! know what a key opens.
//!
//! What one sync covers is one frame, whole or torn: `magic 4 | len 4 | crc32c 4 | entry*`, and an entry has a CRC of its
//! own: `kind 1 | name_len 1 | name | key 32 | crc32c 4`.
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use reversi_proto::ids::RunId;

use super::files;
use super::frame::Cursor;
use super::{JournalError, LedgerKeys};
use crate::failpoint::failpoint;

const MAGIC: &[u8; 8] = b"RVKEYS\x00\x01";
const FRAME: [u8; 4] = [0xb5, b'R', b'V', b'K'];
const FRAME_HEAD_BYTES: usize = 12;
const HMAC: u8 = 1;
const SEAL: u8 = 2;
const RUN: u8 = 3;

/// All keys, for lookups.
pub(crate) struct Keyring {
    pub(crate) ledger: LedgerKeys,
    runs: RwLock<HashMap<RunId, [u8; 32]>>,
}

impl Keyring {
    /// A run's key.
    pub(crate) fn run(&self, run: &RunId) -> Option<[u8; 32]> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner).get(run).copied()
    }

    /// Whether it holds any run's key.
    pub(crate) fn has_runs(&self) -> bool {
        !self.runs.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// The file, owned by the writer.
pub(crate) struct KeyFile {
    file: File,
    pub(crate) path: PathBuf,
    at: u64,
    ring: Arc<Keyring>,
}

impl KeyFile {
    /// Reads the file, or makes it with fresh ledger keys. `fresh`: there is no ledger yet, so it may be missing.
    pub(crate) fn open(path: &Path, fresh: bool) -> Result<Self, JournalError> {
        if !path.exists() {
            if !fresh {
                return Err(Self::damage(path, 0, "the file is missing"));
            }
            return Self::create(path);
        }
        let bytes = std::fs::read(path).map_err(JournalError::io("read", path))?;
        let (ledger, runs, at) = parse(path, &bytes)?;
        let file = files::open_existing(path).map_err(JournalError::io("open", path))?;
        let ring = Arc::new(Keyring { ledger, runs: RwLock::new(runs) });
        Ok(Self { file, path: path.to_owned(), at, ring })
    }

    fn create(path: &Path) -> Result<Self, JournalError> {
        let ledger = LedgerKeys { hmac: super::signing::random(path)?, seal: super::signing::random(path)? };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(frame(|out| {
            put(out, HMAC, "", &ledger.hmac);
            put(out, SEAL, "", &ledger.seal);
        }));
        files::replace(path, &bytes).map_err(JournalError::io("write", path))?;
        let file = files::open_existing(path).map_err(JournalError::io("open", path))?;
        let ring = Arc::new(Keyring { ledger, runs: RwLock::new(HashMap::new()) });
        Ok(Self { file, path: path.to_owned(), at: bytes.len() as u64, ring })
    }

    /// After an unclean stop: writes the file anew, without a torn last entry. The page cache can show entries that the
    /// disk lacks, and once others stand behind them the file would count as damaged.
    pub(crate) fn rewrite(&mut self) -> Result<(), JournalError> {
        let mut bytes = std::fs::read(&self.path).map_err(JournalError::io("read", &self.path))?;
        bytes.truncate(usize::try_from(self.at).unwrap_or(usize::MAX));
        files::replace(&self.path, &bytes).map_err(JournalError::io("rewrite", &self.path))?;
        self.file = files::open_existing(&self.path).map_err(JournalError::io("open", &self.path))?;
        Ok(())
    }

    /// The keys in memory.
    pub(crate) fn ring(&self) -> Arc<Keyring> {
        Arc::clone(&self.ring)
    }

    /// Appends keys of new runs and syncs. After an error of the sync the process must end; an error of the write leaves
    /// the file as it was.
    pub(crate) fn append(&mut self, keys: &[(RunId, [u8; 32])]) -> Result<(), KeyError> {
        let bytes = frame(|out| keys.iter().for_each(|(run, key)| put(out, RUN, run.as_str(), key)));
        failpoint!("keys.before");
        self.file.write_all_at(&bytes, self.at).map_err(KeyError::Write)?;
        self.file.sync_data().map_err(KeyError::Sync)?;
        failpoint!("keys.after");
        self.at += bytes.len() as u64;
        let mut runs = self.ring.runs.write().unwrap_or_else(PoisonError::into_inner);
        runs.extend(keys.iter().cloned());
        Ok(())
    }

    fn damage(path: &Path, offset: u64, what: &str) -> JournalError {
        JournalError::Damage {
            path: path.to_owned(),
            offset,
            what: what.to_owned(),
            advice: "put the newest copy of this file back, sealed values can't be read without it",
        }
    }
}

/// Which half of an append failed.
#[derive(Debug)]
pub(crate) enum KeyError {
    Write(io::Error),
    Sync(io::Error),
}

fn frame(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; FRAME_HEAD_BYTES];
    fill(&mut out);
    let (head, entries) = out.split_at_mut(FRAME_HEAD_BYTES);
    head[..4].copy_from_slice(&FRAME);
    head[4..8].copy_from_slice(&u32::try_from(entries.len()).unwrap_or(u32::MAX).to_le_bytes());
    head[8..].copy_from_slice(&crc32c::crc32c(entries).to_le_bytes());
    out
}

fn take_frame<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    if cursor.array::<4>()? != FRAME {
        return None;
    }
    let (len, crc) = (cursor.u32()?, cursor.u32()?);
    let entries = cursor.bytes(len as usize)?;
    (crc == crc32c::crc32c(entries)).then_some(entries)
}

fn put(out: &mut Vec<u8>, kind: u8, name: &str, key: &[u8; 32]) {
    let start = out.len();
    // Run ids have at most 128 bytes.
    out.extend_from_slice(&[kind, u8::try_from(name.len()).unwrap_or(u8::MAX)]);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(key);
    let crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

fn take<'a>(cursor: &mut Cursor<'a>) -> Option<(u8, &'a str, [u8; 32])> {
    let whole = cursor.0;
    let [kind, len] = cursor.array::<2>()?;
    let name = std::str::from_utf8(cursor.bytes(usize::from(len))?).ok()?;
    let key = cursor.array()?;
    let covered = &whole[..whole.len() - cursor.0.len()];
    (cursor.u32()? == crc32c::crc32c(covered)).then_some((kind, name, key))
}

type Parsed = (LedgerKeys, HashMap<RunId, [u8; 32]>, u64);

fn parse(path: &Path, bytes: &[u8]) -> Result<Parsed, JournalError> {
    let rest =
        bytes.strip_prefix(MAGIC).ok_or_else(|| KeyFile::damage(path, 0, "it does not begin like a key file"))?;
    let mut ledger = LedgerKeys { hmac: [0; 32], seal: [0; 32] };
    let (mut seen, mut runs) = (0, HashMap::new());
    let mut cursor = Cursor(rest);
    let mut at = MAGIC.len() as u64;
    while !cursor.0.is_empty() {
        let before = cursor.0;
        let Some(frame) = take_frame(&mut cursor) else {
            // Frames are synced one after the other, so one with a valid frame behind it was acknowledged.
            if (1..before.len()).any(|from| take_frame(&mut Cursor(&before[from..])).is_some()) {
                return Err(KeyFile::damage(path, at, "entries before the last ones are not what was written"));
            }
            break;
        };
        let mut entries = Cursor(frame);
        while !entries.0.is_empty() {
            match take(&mut entries) {
                Some((HMAC, "", key)) => (ledger.hmac, seen) = (key, seen | 1),
                Some((SEAL, "", key)) => (ledger.seal, seen) = (key, seen | 2),
                Some((RUN, run, key)) => {
                    let run = run.parse().map_err(|_| KeyFile::damage(path, at, "an entry names no run"))?;
                    runs.insert(run, key);
                }
                Some(_) | None => return Err(KeyFile::damage(path, at, "an entry can't be read")),
            }
        }
        at = (bytes.len() - cursor.0.len()) as u64;
    }
    if seen != 3 {
        return Err(KeyFile::damage(path, MAGIC.len() as u64, "the ledger's own keys are not in it"));
    }
    Ok((ledger, runs, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunId {
        name.parse().unwrap()
    }

    #[test]
    fn keys_survive_and_a_torn_entry_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private.keys");
        let mut file = KeyFile::open(&path, true).unwrap();
        let ledger = file.ring().ledger;
        file.append(&[(run("a"), [1; 32])]).unwrap();
        file.append(&[(run("b"), [2; 32])]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let second = whole.len() - (FRAME_HEAD_BYTES + 2 + 1 + 32 + 4);
        for cut in second..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut file = KeyFile::open(&path, false).unwrap();
            file.rewrite().unwrap();
            assert_eq!(file.ring().run(&run("a")), Some([1; 32]));
            assert_eq!(file.ring().run(&run("b")), None);
            file.append(&[(run("c"), [3; 32])]).unwrap();
            drop(file);
            let ring = KeyFile::open(&path, false).unwrap().ring();
            assert_eq!((ring.run(&run("c")), ring.ledger == ledger), (Some([3; 32]), true));
        }
    }

    #[test]
    fn a_wrong_byte_before_the_last_entry_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private.keys");
        let mut file = KeyFile::open(&path, true).unwrap();
        file.append(&[(run("a"), [1; 32])]).unwrap();
        file.append(&[(run("b"), [2; 32])]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() - (FRAME_HEAD_BYTES + 2 + 1 + 32 + 4) {
            let mut bad = whole.clone();
            bad[at] ^= 4;
            std::fs::write(&path, &bad).unwrap();
            assert!(matches!(KeyFile::open(&path, false), Err(JournalError::Damage { .. })), "byte {at}");
        }
    }

    #[test]
    fn a_ledger_without_its_keys_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(KeyFile::open(&dir.path().join("private.keys"), false), Err(JournalError::Damage { .. })));
    }
}
