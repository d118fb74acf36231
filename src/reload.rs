//! Other manifests for a running daemon: read the files, then hand the set to the Service. Must not know who asks, over
//! which protocol. Of the settings nothing else is read again.
use std::sync::Arc;

use reversi_actors::error::ServiceError;
use reversi_actors::service::{ReloadBy, Reloaded, Service};
use tokio::sync::Mutex;

use crate::manifests::{ManifestsError, Source};

/// Why the manifests stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There are mistakes in them.
    #[error("{0}")]
    Manifests(ManifestsError),
    /// The ledger does not take them.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A thread of ours.
    #[error("the thread that read the manifests ended by itself; this is a defect")]
    Task(#[from] tokio::task::JoinError),
}

/// Reloads the manifests of one daemon, one reload after the other: a set that was read earlier never replaces one that
/// was read later.
pub struct Reloader {
    service: Service,
    source: Source,
    turn: Arc<Mutex<()>>,
}

impl Reloader {
    /// For a daemon whose manifests are there.
    pub fn new(service: Service, source: Source) -> Self {
        Self { service, source, turn: Arc::default() }
    }

    /// Reads the files and puts their set in force. With a mistake in any of them nothing changes.
    pub async fn reload(&self, by: &ReloadBy) -> Result<Reloaded, ReloadError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let source = self.source.clone();
        // The turn goes with the thread: if nobody waits any more, the next one still waits until the files are read.
        let (turn, read) = tokio::task::spawn_blocking(move || (turn, source.read())).await?;
        let reloaded = self.service.reload_manifests(by, &read.map_err(ReloadError::Manifests)?).await?;
        drop(turn);
        let Reloaded { changed, count, checksum, seq, added, removed, updated } = &reloaded;
        if *changed {
            let (added, removed, updated) = (added.len(), removed.len(), updated.len());
            tracing::info!(count, %checksum, seq, added, removed, updated, "other manifests are in force");
        } else {
            tracing::info!(count, %checksum, "the manifests were read again: nothing has changed");
        }
        Ok(reloaded)
    }

    /// As [`Self::reload`], where nobody waits for the answer: the log gets it.
    pub async fn reload_and_log(&self, by: &ReloadBy) {
        match self.reload(by).await {
            Ok(_) => {}
            Err(ReloadError::Manifests(mistakes)) => {
                mistakes.lines().for_each(|line| tracing::error!("{line}"));
                let count = mistakes.count();
                tracing::error!("the manifests were not reloaded, those in force stay: {count}");
            }
            Err(error @ (ReloadError::Service(_) | ReloadError::Task(_))) => {
                tracing::error!(%error, "the manifests were not reloaded, those in force stay");
            }
        }
    }
}
