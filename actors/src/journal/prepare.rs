//! Keeps one zero-filled segment ready, so that the writer's syncs carry data and no metadata, and watches the disk's
//! free space. The filling is paced by what the writer uses up: unpaced it tripled the writer's p99.
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::config::Config;
use super::error::is_full;
use super::files::{self, PIECE_BYTES};
use super::segment::PREPARED_NAME;
use super::shared::Shared;

/// A pause after a piece while the writer is not in a hurry: 5 MiB/s.
const PAUSE: Duration = Duration::from_millis(50);
/// How often free space is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Dirty zeros are synced in portions, so that no sync of the writer has to wait for all of them.
const PORTION_BYTES: u64 = 4 << 20;

pub(crate) struct Preparer {
    state: Mutex<State>,
    bell: Condvar,
    low: AtomicBool,
    /// Bytes that the writer has used of its segment.
    used: AtomicU64,
}

#[derive(Default)]
struct State {
    ready: Option<File>,
    /// The last attempt failed for want of room (or an error); it is repeated.
    full: bool,
    hurry: bool,
    stop: bool,
}

impl Preparer {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            state: Mutex::default(),
            bell: Condvar::new(),
            low: AtomicBool::new(is_low(config)),
            used: AtomicU64::new(0),
        }
    }

    /// Where the prepared segment stands.
    pub(crate) fn path(config: &Config) -> PathBuf {
        config.ledger_dir().join(PREPARED_NAME)
    }

    /// Free space is below what is kept for outcomes.
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// There is no next segment and no room for one.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.lock();
        state.full && state.ready.is_none()
    }

    /// The next segment is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.lock().ready.is_some()
    }

    /// Told after each batch.
    pub(crate) fn set_used(&self, bytes: u64) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    /// Waits for the next segment; false if there is no room for one.
    pub(crate) fn wait_ready(&self) -> bool {
        let mut state = self.lock();
        state.hurry = true;
        self.bell.notify_all();
        while state.ready.is_none() && !state.full && !state.stop {
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.hurry = false;
        state.ready.is_some()
    }

    /// Takes the next segment's file.
    pub(crate) fn take(&self) -> Option<File> {
        self.used.store(0, Ordering::Relaxed);
        self.lock().ready.take()
    }

    /// The next segment could not be begun after all.
    pub(crate) fn put_back(&self, file: File) {
        self.lock().ready = Some(file);
    }

    /// The prepared file has been renamed, so the next one can be made under its name.
    pub(crate) fn taken(&self) {
        self.bell.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.bell.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for at most `time` while nothing happens; false: the journal stops.
    fn pause(&self, time: Duration) -> bool {
        let state = self.lock();
        if state.stop {
            return false;
        }
        let state = self.bell.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        !state.stop
    }
}

/// The thread.
pub(crate) fn run(shared: &Arc<Shared>) {
    let (config, preparer) = (&shared.config, &shared.preparer);
    let path = Preparer::path(config);
    loop {
        preparer.low.store(is_low(config), Ordering::Relaxed);
        // The file is renamed by the writer between `take` and its next batch: `rolls` and `ready` say when it is gone.
        if preparer.lock().ready.is_none() && !path.exists() {
            match fill(shared) {
                Ok(Some(file)) => {
                    let mut state = preparer.lock();
                    (state.ready, state.full) = (Some(file), false);
                }
                Ok(None) => return,
                Err(error) => {
                    let _ = files::remove_if_there(&path);
                    if !is_full(&error) {
                        tracing::warn!(%error, path = %path.display(), "the next segment could not be prepared");
                    }
                    preparer.lock().full = true;
                }
            }
            preparer.bell.notify_all();
        }
        if !preparer.pause(LOOK) {
            return;
        }
    }
}

/// None: the journal stops.
fn fill(shared: &Shared) -> io::Result<Option<File>> {
    let (config, preparer) = (&shared.config, &shared.preparer);
    let file = files::create_private(&Preparer::path(config))?;
    let bytes = config.segment_bytes;
    let (mut at, mut synced) = (0, 0);
    while at < bytes {
        let to = bytes.min(at + PIECE_BYTES as u64);
        files::zero(&file, at, to)?;
        at = to;
        if at - synced >= PORTION_BYTES {
            file.sync_data()?;
            synced = at;
        }
        // Twice as fast as the writer, so that it is ready when half of the open segment is used.
        let behind = at < preparer.used.load(Ordering::Relaxed).saturating_mul(2);
        let hurry = behind || preparer.lock().hurry;
        if preparer.lock().stop || (!hurry && at < bytes && !preparer.pause(PAUSE)) {
            return Ok(None);
        }
    }
    file.sync_all()?;
    Ok(Some(file))
}

fn is_low(config: &Config) -> bool {
    let free = match &config.free_space {
        Some(free) => free(),
        None => match rustix::fs::statvfs(&config.dir) {
            Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
            Err(_) => u64::MAX,
        },
    };
    free < config.free_bytes_min
}
