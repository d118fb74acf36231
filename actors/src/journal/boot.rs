//! Opening a directory: what can be trusted, what was never acknowledged, what is damage. Looks first and refuses before
//! anything is changed; must not start threads.
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use reversi_proto::hash::Hash;
use reversi_proto::ids::{LedgerId, Seq};
use reversi_proto::ledger::{Checkpoint, Signer};
use reversi_proto::time::Timestamp;

use super::applier::Feed;
use super::checkpoint;
use super::files;
use super::frame::{self, Chain, PAGE_BYTES};
use super::index::{self, Index};
use super::keys::KeyFile;
use super::prepare::Preparer;
use super::segment::{self, OpenSegment, Pages, Rest, Scan, Segments};
use super::{CheckpointSink, Config, JournalError, MissingKeys, NewRecord, signing, writer};
use crate::clock::Clock;
use crate::failpoint::failpoint;

/// Says that the ledger is a restored copy.
const PARKED_NAME: &str = "restored-copy";
/// How far ahead of the wall clock the newest record may be.
const AHEAD_MS_MAX: u64 = 24 * 3600 * 1000;

/// An opened directory.
pub(crate) struct Booted {
    pub(crate) lock: File,
    pub(crate) ledger: LedgerId,
    pub(crate) open: OpenSegment,
    pub(crate) chain: Chain,
    pub(crate) segments: Segments,
    pub(crate) keys: KeyFile,
    pub(crate) signer: Signer,
    pub(crate) index: Index,
    /// An older copy of the storage was accepted.
    pub(crate) restored: bool,
}

/// What the segments hold.
struct Found {
    firsts: Vec<Seq>,
    pages: Pages,
    path: PathBuf,
    scan: Scan,
}

/// `clean-stop`: left by an orderly end, removed by the next start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) boot_id: String,
    pub(crate) head: Seq,
    pub(crate) leaf: Hash,
    /// Names and lengths of the event store's files.
    pub(crate) store: String,
}

impl Mark {
    fn path(config: &Config) -> PathBuf {
        config.dir.join("clean-stop")
    }

    /// Leaves the mark.
    pub(crate) fn leave(&self, config: &Config) -> Result<(), JournalError> {
        let path = Self::path(config);
        let text = format!("{}\n{}\n{}\n{}\n", self.boot_id, self.head, self.leaf, self.store);
        files::replace(&path, text.as_bytes()).map_err(JournalError::io("write", &path))
    }

    fn read(config: &Config) -> Result<Option<Self>, JournalError> {
        let path = Self::path(config);
        let text = files::read_if_there(&path).map_err(JournalError::io("read", &path))?;
        let parse = |text: String| {
            let mut lines = text.lines();
            let boot_id = lines.next()?.to_owned();
            let (head, leaf) = (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
            Some(Self { boot_id, head, leaf, store: lines.next()?.to_owned() })
        };
        Ok(text.and_then(parse))
    }
}

/// Opens the directory, or makes a new ledger in it.
pub(crate) fn boot(
    config: &Config,
    clock: &dyn Clock,
    genesis: impl FnOnce(LedgerId, &str) -> NewRecord,
) -> Result<Booted, JournalError> {
    config.check()?;
    let ledger_dir = config.ledger_dir();
    std::fs::create_dir_all(&ledger_dir).map_err(JournalError::io("create", &ledger_dir))?;
    let (lock, last_boot) = lock(&config.dir)?;
    for stray in [segment::PREPARED_NAME, "open.rewrite"] {
        files::remove_if_there(&ledger_dir.join(stray)).map_err(JournalError::io("remove", &ledger_dir))?;
    }
    if segment::list(&ledger_dir)?.is_empty() {
        begin(config, clock, genesis)?;
    }
    let mark = Mark::read(config)?;
    let found = look(config, segment::list(&ledger_dir)?)?;
    let ledger = found.pages.header.ledger;
    let signer = signing::open(&config.dir.join("keys"), &config.origin, ledger)?;
    let mut keys = KeyFile::open(&config.keys_file(), false)?;
    // Everything up to here, and these checks, only looked.
    let (clean, cut) = mark_holds(config, &found, mark.as_ref())?;
    let boot_id = boot_id(config);
    let untouched = clean && mark.is_some_and(|mark| mark.store == index::files_of(&config.store_dir()));
    let same_boot = !boot_id.is_empty() && last_boot.as_deref() == Some(&boot_id);
    let (store, behind) = trusted_store(config, &found, untouched, clean || same_boot)?;
    let restored = cut | behind | witness_is_ahead(config, &found, &signer)?;
    check_clock(config, clock, found.scan.chain.ts)?;

    // Before anything that lets a later start find nothing wrong.
    let restored = park(config, restored)?;
    files::remove_if_there(&Mark::path(config)).map_err(JournalError::io("remove", &config.dir))?;
    if !clean {
        keys.rewrite()?;
    }
    let open = continue_segment(config, &found, clean)?;
    let segments = Segments::new(ledger_dir, ledger, found.firsts);
    let chain = found.scan.chain;
    clock.raise_to(chain.ts);
    let fresh = store.is_none();
    let index = match store {
        Some(index) => index,
        None => new_store(config, ledger)?,
    };
    write_lock(&lock, &config.dir, &boot_id)?;
    catch_up(config, &index, &segments, ledger, (&chain, fresh))?;
    check_keys(config, &index, &keys)?;
    Ok(Booted { lock, ledger, open, chain, segments, keys, signer, index, restored })
}

/// The kernel's id of this boot: unsynced pages don't outlive it.
pub(crate) fn boot_id(config: &Config) -> String {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    config.boot_id.clone().unwrap_or_else(kernel)
}

/// Takes the lock; gives the boot id that the last holder wrote down.
fn lock(dir: &Path) -> Result<(File, Option<String>), JournalError> {
    let path = dir.join("lock");
    let options = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = options.map_err(JournalError::io("open", &path))?;
    let taken = file.try_lock();
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(JournalError::io("read", &path))?;
    let (holder, last_boot) = text.split_once('\n').unwrap_or((text.as_str(), ""));
    match taken {
        Ok(()) => Ok((file, last_boot.lines().next().map(str::to_owned))),
        Err(std::fs::TryLockError::WouldBlock) => {
            let holder = if holder.is_empty() { "unknown process" } else { holder }.to_owned();
            Err(JournalError::Locked { path, holder })
        }
        Err(std::fs::TryLockError::Error(source)) => Err(JournalError::Io { what: "lock", path, source }),
    }
}

/// Writes down who holds the lock and in which boot of the kernel. Only once no store of an earlier boot is left.
fn write_lock(lock: &File, dir: &Path, boot_id: &str) -> Result<(), JournalError> {
    let text = format!("process {}\n{boot_id}\n", std::process::id());
    let write = || {
        lock.set_len(0)?;
        lock.write_all_at(text.as_bytes(), 0)?;
        lock.sync_all()
    };
    write().map_err(JournalError::io("write", &dir.join("lock")))
}

/// First start: keys, then the first segment with the first record in it, in place as a whole.
fn begin(
    config: &Config,
    clock: &dyn Clock,
    genesis: impl FnOnce(LedgerId, &str) -> NewRecord,
) -> Result<(), JournalError> {
    let (dir, keys_path) = (config.ledger_dir(), config.keys_file());
    let keys = KeyFile::open(&keys_path, true)?;
    if keys.ring().has_runs() || config.store_dir().exists() || Mark::path(config).exists() {
        return Err(JournalError::Damage {
            path: dir,
            offset: 0,
            what: "the segments are gone, but other files show that there were some".to_owned(),
            advice: "put the segments back, or give the daemon an empty data directory",
        });
    }
    let ledger = LedgerId(signing::random(&dir)?);
    let signer = signing::create(&config.dir.join("keys"), &config.origin, ledger)?;
    let record = genesis(ledger, &signer.verifier().to_string());
    let start = Chain::start(ledger);
    let batch = writer::first_batch(ledger, record, clock.now(), &mut start.clone());
    let prepared = Preparer::path(config);
    let write = || {
        let file = files::create_private(&prepared)?;
        files::zero(&file, 0, config.segment_bytes)?;
        file.write_all_at(&batch, PAGE_BYTES as u64)?;
        OpenSegment::write_header(&file, ledger, &start)?;
        OpenSegment::place(&prepared, file, &dir, ledger, 0)?;
        files::sync_dir(&config.dir)
    };
    write().map_err(JournalError::io("create", &prepared))
}

/// Reads all pages and the open segment's batches.
fn look(config: &Config, firsts: Vec<Seq>) -> Result<Found, JournalError> {
    let dir = config.ledger_dir();
    let damage = |path: &Path, offset, what: String| JournalError::Damage {
        path: path.to_owned(),
        offset,
        what,
        advice: segment::RESTORE_FILE,
    };
    let mut before: Option<Chain> = None;
    let mut last: Option<(PathBuf, Pages)> = None;
    for first in &firsts {
        let path = segment::path_of(&dir, *first);
        let pages = segment::read_pages(&path, *first)?;
        let ledger = pages.header.ledger;
        let expected = before.take().unwrap_or_else(|| Chain::start(ledger));
        if pages.header.chain != expected || last.as_ref().is_some_and(|(_, last)| last.header.ledger != ledger) {
            let what = format!("the segment does not continue the one before, which ends at seq {}", expected.next);
            return Err(damage(&path, 0, what));
        }
        before = pages.footer.as_ref().map(|footer| footer.chain.clone());
        if before.is_none() && Some(first) != firsts.last() {
            return Err(damage(&path, pages.end, "the footer of a closed segment is not what was written".to_owned()));
        }
        last = Some((path, pages));
    }
    let Some((path, pages)) = last else { return Err(damage(&dir, 0, "there are no segments".to_owned())) };
    let scan = segment::scan(&path, &pages, None)?;
    if let Rest::Later(at) = scan.rest {
        let what = format!("the batch after record {} is not what was written, but one at {at} is", scan.chain.next);
        return Err(damage(&path, scan.at, what));
    }
    if pages.footer.as_ref().is_some_and(|footer| footer.end != scan.at || footer.chain != scan.chain) {
        return Err(damage(&path, scan.at, "the segment's footer says that it goes on here".to_owned()));
    }
    Ok(Found { firsts, pages, path, scan })
}

impl Found {
    fn cut_off(&self, witness: &str, known: Seq) -> JournalError {
        JournalError::Restored {
            head: self.scan.chain.next,
            known,
            witness: witness.to_owned(),
            path: self.path.clone(),
            offset: self.scan.at,
        }
    }
}

/// Whether the last stop was clean and left exactly these segments, and whether it left more of them.
fn mark_holds(config: &Config, found: &Found, mark: Option<&Mark>) -> Result<(bool, bool), JournalError> {
    let Some(mark) = mark else { return Ok((false, false)) };
    let chain = &found.scan.chain;
    let cut = mark.head > chain.next;
    if cut && !config.accept_restored_storage {
        return Err(found.cut_off("the clean-stop mark", mark.head));
    }
    Ok((mark.head == chain.next && mark.leaf == chain.leaf && found.scan.rest == Rest::Zeros, cut))
}

/// An accepted copy stays one: it lacks the same undos after a crash, a restart or an upgrade. So a file says that it is
/// one until a person, who has looked, takes it away.
fn park(config: &Config, restored: bool) -> Result<bool, JournalError> {
    let path = config.dir.join(PARKED_NAME);
    if restored {
        let text = "This ledger is a copy that lacks its newest records, so rollbacks are parked: an undo that was done \
                    could be done again.\nOnce every run that may be rolled back has been checked, stop the daemon and \
                    delete this file.\n";
        files::replace(&path, text.as_bytes()).map_err(JournalError::io("write", &path))?;
    }
    let parked = path.try_exists().map_err(JournalError::io("read", &path))?;
    if parked {
        tracing::warn!(file = %path.display(), "rollbacks are parked until this file is deleted and the daemon restarted");
    }
    Ok(parked)
}

/// The event store, if it can be trusted, and whether it has seen records that are gone now.
fn trusted_store(
    config: &Config,
    found: &Found,
    untouched: bool,
    kept: bool,
) -> Result<(Option<Index>, bool), JournalError> {
    let path = config.store_dir();
    if !path.exists() {
        return Ok((None, false));
    }
    let Some(index) = Index::open(&path, config.cache_bytes)? else { return Ok((None, false)) };
    // Whatever became of the rest of it: it said `applied` only after that many records were durable.
    let Ok(Some(meta)) = index.meta() else { return Ok((None, false)) };
    let ours = meta.ledger == found.pages.header.ledger;
    if ours && meta.applied > found.scan.chain.next {
        if config.accept_restored_storage {
            return Ok((None, true));
        }
        return Err(found.cut_off("the event store", meta.applied));
    }
    // After a clean stop it was synced; after a kill in this boot of the kernel its pages are still there.
    let whole = ours && (untouched || (kept && index.is_whole()));
    Ok((whole.then_some(index), false))
}

/// Whether a checkpoint outside the data directory covers more, or other, records than there are.
fn witness_is_ahead(config: &Config, found: &Found, signer: &Signer) -> Result<bool, JournalError> {
    let Some(sink) = &config.sink else { return Ok(false) };
    let CheckpointSink::File(path) = sink;
    let Some(Checkpoint { size, root, .. }) = checkpoint::newest_in(sink, signer)? else { return Ok(false) };
    let error = if size > found.scan.chain.next {
        found.cut_off(&format!("the checkpoint in {}", path.display()), size)
    } else if root_at(config, found, size)? != root {
        JournalError::Contradicted { size, path: path.clone() }
    } else {
        return Ok(false);
    };
    if config.accept_restored_storage {
        tracing::warn!(%error, "accepted by --accept-restored-storage");
        return Ok(true);
    }
    Err(error)
}

/// The Merkle root over the first `size` records.
fn root_at(config: &Config, found: &Found, size: Seq) -> Result<Hash, JournalError> {
    if size == found.scan.chain.next {
        return Ok(found.scan.chain.frontier.root());
    }
    let first = found.firsts.iter().rev().find(|first| **first <= size).copied().unwrap_or(0);
    let path = segment::path_of(&config.ledger_dir(), first);
    let scan = segment::scan(&path, &segment::read_pages(&path, first)?, Some(size))?;
    Ok(scan.chain.frontier.root())
}

fn check_clock(config: &Config, clock: &dyn Clock, last: Timestamp) -> Result<(), JournalError> {
    let wall = clock.wall();
    if last.ms_since(wall) > AHEAD_MS_MAX && !config.accept_clock {
        return Err(JournalError::ClockAhead { last, wall });
    }
    Ok(())
}

/// Opens the last segment for appending. After anything but a clean stop its valid bytes go into a fresh file first: the
/// page cache can show bytes that the disk lacks, and what is acted on must survive the next power cut.
fn continue_segment(config: &Config, found: &Found, clean: bool) -> Result<OpenSegment, JournalError> {
    let (path, at) = (&found.path, found.scan.at);
    let len = found.pages.end + PAGE_BYTES as u64;
    // An empty segment gets the size that is configured now, so that a request which fits one always fits it.
    let resize = at == PAGE_BYTES as u64 && len != config.segment_bytes;
    if !clean || resize || found.scan.rest != Rest::Zeros || found.pages.footer.is_some() {
        failpoint!("boot.rewrite.before");
        let len = if resize { config.segment_bytes } else { len };
        rewrite(path, at, len).map_err(JournalError::io("rewrite", path))?;
        failpoint!("boot.rewrite.after");
    }
    let header = &found.pages.header;
    let file = files::open_existing(path).map_err(JournalError::io("open", path))?;
    let end = file.metadata().map_err(JournalError::io("read", path))?.len() - PAGE_BYTES as u64;
    let seed = frame::segment_seed(header.ledger, header.first);
    Ok(OpenSegment { file, path: path.clone(), first: header.first, at, end, seed })
}

fn rewrite(path: &Path, valid: u64, len: u64) -> std::io::Result<()> {
    let aside = path.with_file_name("open.rewrite");
    let mut fresh = files::create_private(&aside)?;
    std::io::copy(&mut File::open(path)?.take(valid), &mut fresh)?;
    fresh.flush()?;
    files::zero(&fresh, valid, len)?;
    fresh.sync_all()?;
    std::fs::rename(&aside, path)?;
    path.parent().map_or(Ok(()), files::sync_dir)
}

/// An empty store in place of whatever is there.
fn new_store(config: &Config, ledger: LedgerId) -> Result<Index, JournalError> {
    let path = config.store_dir();
    let remove = || {
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        files::sync_dir(&config.dir)
    };
    remove().map_err(JournalError::io("remove", &path))?;
    let Some(index) = Index::open(&path, config.cache_bytes)? else {
        return Err(JournalError::Damage {
            path,
            offset: 0,
            what: "the event store can't be created".to_owned(),
            advice: "check that the disk has room and can be written, then start again",
        });
    };
    index.begin(ledger)?;
    Ok(index)
}

/// Brings the store up to the segments' end; a new one by reading, and verifying, everything.
fn catch_up(
    config: &Config,
    index: &Index,
    segments: &Segments,
    ledger: LedgerId,
    (chain, fresh): (&Chain, bool),
) -> Result<(), JournalError> {
    let mut applied = index.meta()?.map_or(0, |meta| meta.applied);
    let mut feed = if fresh { Feed::verifying(segments, ledger)? } else { Feed::new(segments, applied)? };
    if fresh && chain.next > 1 {
        tracing::info!(records = chain.next, "the event store is rebuilt from the ledger");
    }
    while applied < chain.next {
        failpoint!("boot.catchup");
        (applied, _) = feed.apply(index, segments, chain.next, config.apply_records.max(1))?;
        if let Some(progress) = &config.progress {
            progress(applied, chain.next);
        }
    }
    index.flush()
}

fn check_keys(config: &Config, index: &Index, keys: &KeyFile) -> Result<(), JournalError> {
    if config.missing_keys == MissingKeys::Report {
        return Ok(());
    }
    let ring = keys.ring();
    for run in index.keyed_runs() {
        if let Ok(run) = run?.parse()
            && ring.run(&run).is_none()
        {
            return Err(JournalError::MissingKey { run, path: keys.path.clone() });
        }
    }
    Ok(())
}
