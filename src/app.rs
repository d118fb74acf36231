//! The composition root: settings in, a running daemon out. The one place that knows every layer, and decides nothing.
use std::future::Future;
use std::io;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use reversi_actors::clock::{Clock, RealClock};
use reversi_actors::ids::{IdSource, OsIds};
use reversi_actors::journal::{self, CheckpointSink, DiskJournal, JournalError};
use reversi_actors::ports::ToolCaller;
use reversi_actors::service::Service;
use reversi_actors::system::{Parts, StartError, System, genesis};
use reversi_proto::manifest::ManifestSet;

use crate::adapters::notify::LogNotifier;
use crate::adapters::upstreams::{UpstreamError, Upstreams};
use crate::config::{Config, ConfigError};
use crate::http::{Http, Limits, Serve, Server};
use crate::manifests::ManifestsError;
use crate::reload::Reloader;

/// The first admin key's file in the data directory.
pub const ADMIN_KEY_FILE: &str = "admin.key";
/// How long a start waits for upstreams; those that are slower connect later.
const UPSTREAMS_WAIT: Duration = Duration::from_secs(3);

/// What is asked of one start, beside the settings.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Start although the newest record is far ahead of the wall clock.
    pub accept_clock: bool,
    /// Start although the ledger is older than its own witnesses.
    pub accept_restored_storage: bool,
    /// Of the HTTP edge.
    pub limits: Limits,
}

/// Why a daemon doesn't start, or doesn't stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The manifests.
    #[error("{0}\nthe daemon does not start with manifests that have mistakes")]
    Manifests(ManifestsError),
    /// The data directory.
    #[error("the data directory {path} can't be made")]
    DataDir {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The upstreams.
    #[error(transparent)]
    Upstreams(#[from] UpstreamError),
    /// The actors.
    #[error(transparent)]
    System(#[from] StartError),
    /// A listener.
    #[error("cannot listen on {address}: is something else using the port? Choose another with --listen")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread of ours.
    #[error("a part of the start ended by itself; this is a defect")]
    Task(#[from] tokio::task::JoinError),
}

/// A running daemon.
pub struct App {
    system: System,
    reloader: Arc<Reloader>,
    /// The API first.
    servers: Vec<Server>,
    address: SocketAddr,
}

impl App {
    /// Starts everything; returns once requests are answered.
    pub async fn start(config: Config, options: Options) -> Result<Self, AppError> {
        config.check()?;
        let manifests = read_manifests(&config).map_err(AppError::Manifests)?;
        make_data_dir(&config.data_dir)?;
        let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
        // The journal first: it holds the lock that keeps a second daemon from ending the first one's upstreams.
        let journal = open_journal(&config, &options, Arc::clone(&clock)).await?;
        let tools = start_upstreams(&config).await?;
        let parts = Parts {
            journal: Arc::new(journal),
            clock,
            ids: Arc::new(OsIds),
            tools,
            notifier: Arc::new(LogNotifier),
            manifests,
        };
        let key_file = config.data_dir.join(ADMIN_KEY_FILE);
        let system = System::start(parts, move |key| keep_admin_key(&key_file, key)).await?;
        let reloader = Arc::new(Reloader::new(system.service(), config.manifests.clone()));
        let http = Http::new(system.service(), Arc::clone(&reloader), options.limits);
        match listen(&http, &config).await {
            Ok((address, servers)) => Ok(Self { system, reloader, servers, address }),
            Err(error) => {
                system.stop().await?;
                Err(error)
            }
        }
    }

    /// Where the API is served.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The handle that edges call.
    pub fn service(&self) -> Service {
        self.system.service()
    }

    /// Reads the manifests again when asked to.
    pub fn reloader(&self) -> Arc<Reloader> {
        Arc::clone(&self.reloader)
    }

    /// Runs until `signal` ends, then stops: no new requests, those at work finish, and the journal gets its mark of a
    /// clean stop.
    pub async fn run_until(self, signal: impl Future<Output = ()>) -> Result<(), AppError> {
        signal.await;
        tracing::info!("stopping: requests that are being worked on may finish");
        for server in self.servers {
            server.stop().await;
        }
        self.system.stop().await?;
        tracing::info!("stopped");
        Ok(())
    }
}

fn read_manifests(config: &Config) -> Result<ManifestSet, ManifestsError> {
    let manifests = config.manifests.read_at_start()?;
    if manifests.is_empty() {
        tracing::warn!(
            "there are no manifests, so every call is blocked: put some into the folder manifests and reload"
        );
    } else {
        tracing::info!(count = manifests.len(), "manifests are loaded");
    }
    Ok(manifests)
}

/// For its owner only: it holds keys.
fn make_data_dir(path: &Path) -> Result<(), AppError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| AppError::DataDir { path: path.to_owned(), source })
}

async fn open_journal(config: &Config, options: &Options, clock: Arc<dyn Clock>) -> Result<DiskJournal, AppError> {
    let settings = journal::Config {
        origin: config.origin.clone(),
        sink: Some(CheckpointSink::File(config.checkpoint_file())),
        accept_clock: options.accept_clock,
        accept_restored_storage: options.accept_restored_storage,
        progress: Some(rebuild_progress()),
        ..small_segments(journal::Config::new(&config.data_dir))
    };
    let opened = tokio::task::spawn_blocking(move || {
        DiskJournal::open(settings, clock, |ledger, verifier_key| {
            let ids: &dyn IdSource = &OsIds;
            // A short record of fixed form: only a defect could keep it from being written.
            #[allow(clippy::expect_used)]
            genesis(ledger, verifier_key, ids).expect("the first record of a ledger")
        })
    });
    Ok(opened.await??)
}

/// Tests of the roll need segments that fill within a short story.
#[cfg(feature = "failpoints")]
fn small_segments(config: journal::Config) -> journal::Config {
    let asked = std::env::var("REVERSI_SEGMENT_BYTES").ok().and_then(|text| text.parse().ok());
    journal::Config { segment_bytes: asked.unwrap_or(config.segment_bytes), ..config }
}

#[cfg(not(feature = "failpoints"))]
fn small_segments(config: journal::Config) -> journal::Config {
    config
}

/// A bar where somebody looks; the log has its own line.
fn rebuild_progress() -> journal::Progress {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    Arc::new(move |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if done >= all {
            bar.finish_and_clear();
        }
    })
}

async fn start_upstreams(config: &Config) -> Result<Arc<dyn ToolCaller>, AppError> {
    let state_dir = config.data_dir.join("upstreams");
    make_data_dir(&state_dir)?;
    let upstreams = Upstreams::start(config.upstreams.clone(), &state_dir).await?;
    if !upstreams.settled(UPSTREAMS_WAIT).await {
        tracing::warn!("some upstreams are not connected yet; the daemon goes on and keeps trying");
    }
    Ok(Arc::new(upstreams))
}

async fn listen(http: &Http, config: &Config) -> Result<(SocketAddr, Vec<Server>), AppError> {
    let failed = |address| move |source| AppError::Listen { address, source };
    let serve = if config.metrics_listen.is_some() { Serve::WithoutMetrics } else { Serve::Everything };
    let api = http.listen(config.listen, serve).await.map_err(failed(config.listen))?;
    let address = api.address();
    let mut servers = vec![api];
    if let Some(metrics) = config.metrics_listen {
        let server = http.listen(metrics, Serve::MetricsOnly).await.map_err(failed(metrics))?;
        tracing::info!(address = %server.address(), "the metrics have an address of their own");
        servers.push(server);
    }
    Ok((address, servers))
}

/// Durable, and readable by its owner only, before the key is journaled; a key from a start that was cut short is
/// replaced, because it was never in force.
fn keep_admin_key(file: &Path, key: &str) -> io::Result<()> {
    write_atomically(file, format!("{key}\n").as_bytes())?;
    tracing::info!(file = %file.display(), "a new ledger: its admin key was written to this file");
    Ok(())
}

/// The whole file or none, mode 0600, on disk when this returns.
pub(crate) fn write_atomically(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let mut written = tempfile::NamedTempFile::new_in(folder)?;
    written.write_all(bytes)?;
    written.as_file().sync_all()?;
    written.persist(file).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()
}
