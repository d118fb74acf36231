//! Checkpoints: signed off the acknowledgement path by a thread of their own, kept in the event store, and appended to a
//! sink outside the data directory.
//!
//! The sink file holds signed notes (C2SP), each followed by one empty line. A note cut short by a crash is closed by an
//! empty line at the next start; readers pair each block of signature lines with the block before it and skip the rest.
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use reversi_proto::hash::Hash;
use reversi_proto::ids::Seq;
use reversi_proto::ledger::{Checkpoint, SignedNote, Signer};
use tokio::sync::oneshot;

use super::shared::Shared;
use super::signing::origin_of;
use super::{CheckpointSink, JournalError};
use crate::failpoint::failpoint;

/// A signed statement of how many records there are and what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// How many records it covers.
    pub size: Seq,
    /// The Merkle root over them.
    pub root: Hash,
    /// The signed note.
    pub note: String,
}

/// Who waits for a checkpoint.
pub(crate) type Waiter = oneshot::Sender<SignedCheckpoint>;

/// Every well-formed note in a sink's text, oldest first. Signatures are not checked.
pub fn read_notes(text: &str) -> Vec<SignedNote> {
    let blocks: Vec<&str> = text.split("\n\n").map(|block| block.trim_start_matches('\n')).collect();
    let pair = |pair: &[&str]| {
        let signatures = pair[1].starts_with('\u{2014}').then_some(pair[1])?;
        SignedNote::parse(format!("{}\n\n{}\n", pair[0], signatures.trim_end_matches('\n')).as_bytes()).ok()
    };
    blocks.windows(2).filter_map(pair).collect()
}

/// The newest note in the sink that this key signed for this ledger.
pub(crate) fn newest_in(sink: &CheckpointSink, signer: &Signer) -> Result<Option<Checkpoint>, JournalError> {
    let CheckpointSink::File(path) = sink;
    let text = super::files::read_if_there(path).map_err(JournalError::io("read", path))?.unwrap_or_default();
    let ours = |note: &SignedNote| {
        let checkpoint = note.checkpoint().ok().filter(|checkpoint| checkpoint.log() == signer.verifier().name())?;
        match note.verify(signer.verifier()) {
            Ok(()) => Some(checkpoint),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a checkpoint in the sink is not by this ledger's key");
                None
            }
        }
    };
    Ok(read_notes(&text).iter().rev().find_map(ours))
}

/// Signs and writes checkpoints.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    signer: Signer,
    sink: Option<Sink>,
}

struct Sink {
    path: PathBuf,
    /// None after an error: never sync a descriptor again whose sync has failed.
    file: Option<File>,
}

impl Checkpointer {
    pub(crate) fn new(shared: Arc<Shared>, signer: Signer) -> Self {
        let sink = shared.config.sink.clone().map(|CheckpointSink::File(path)| Sink { path, file: None });
        Self { shared, signer, sink }
    }

    /// The thread: waits for a reason to sign, signs everything that is durable then, tells whoever waits.
    pub(crate) fn run(mut self) {
        let mut last = Instant::now();
        while let Some(waiters) = self.wait(last) {
            match self.sign() {
                Ok(signed) => waiters.into_iter().for_each(|waiter| drop(waiter.send(signed.clone()))),
                Err(error) => tracing::error!(%error, "a checkpoint could not be signed"),
            }
            last = Instant::now();
        }
    }

    /// None: the journal stops.
    fn wait(&self, last: Instant) -> Option<Vec<Waiter>> {
        let config = &self.shared.config;
        let mut state = self.shared.checkpoints.lock();
        loop {
            let unsigned = self.shared.head().saturating_sub(self.shared.signed.load(Ordering::SeqCst));
            let old = last.elapsed() >= config.checkpoint_after;
            if !state.waiters.is_empty() || unsigned >= config.checkpoint_records || (unsigned > 0 && old) {
                return Some(std::mem::take(&mut state.waiters));
            }
            if state.stop {
                return None;
            }
            let bell = &self.shared.checkpoints.bell;
            state = if unsigned == 0 {
                bell.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let left = config.checkpoint_after.saturating_sub(last.elapsed());
                bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    /// Signs what is durable now, and writes it everywhere. A sink that fails is counted and tried again next time: the
    /// ledger itself is not in doubt.
    pub(crate) fn sign(&mut self) -> Result<SignedCheckpoint, JournalError> {
        let (size, root) = self.shared.durable_root();
        let origin = origin_of(&self.signer, self.shared.ledger).to_owned();
        let checkpoint = Checkpoint { origin, ledger: self.shared.ledger, size, root };
        let note = self.signer.sign(&checkpoint).map_err(|error| JournalError::SigningKey {
            path: self.shared.config.dir.join("keys/ledger.key"),
            what: error.to_string(),
        })?;
        let signed = SignedCheckpoint { size, root, note: note.to_string() };
        failpoint!("checkpoint.before");
        self.shared.index()?.set_note(&signed.note)?;
        if let Some(sink) = &mut self.sink
            && let Err(error) = sink.append(&signed.note)
        {
            self.shared.sink_errors.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, path = %sink.path.display(), "a checkpoint could not be written to the sink");
        }
        failpoint!("checkpoint.after");
        self.shared.set_checkpoint(signed.clone());
        Ok(signed)
    }
}

impl Sink {
    fn append(&mut self, note: &str) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => open(&self.path)?,
        };
        file.write_all(format!("{note}\n").as_bytes())?;
        file.sync_data()?;
        self.file = Some(file);
        Ok(())
    }
}

/// Opens the sink for appending, and closes a note that was cut short.
fn open(path: &Path) -> io::Result<File> {
    let text = super::files::read_if_there(path)?;
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    match text {
        None => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            file.sync_all()?;
            super::files::sync_dir(dir.unwrap_or(Path::new(".")))?;
        }
        Some(text) if text.is_empty() || text.ends_with("\n\n") => {}
        Some(_) => file.write_all(b"\n\n")?,
    }
    Ok(file)
}
