//! Boots and stops a daemon: journal, what is in force, supervisor tree. Must not know files but the journal's.
use std::sync::Arc;

use ractor::{Actor, ActorRef};
use reversi_proto::event::v1::{DaemonStarted, DaemonStopped, LedgerOpened, Role};
use reversi_proto::event::{Event, SystemEvent};
use reversi_proto::ids::{Actor as Who, LedgerId, StreamId};
use reversi_proto::manifest::ManifestSet;
use reversi_proto::wake::Wake;

use crate::clock::Clock;
use crate::codec::{CodecError, Place, decode, encode};
use crate::error::ServiceError;
use crate::host::HostError;
use crate::ids::IdSource;
use crate::journal::{AppendError, Journal, JournalError, NewRecord, PublishedRecord};
use crate::ports::{Notifier, ToolCaller};
use crate::root::{Never, Root};
use crate::service::{NewKey, Service, put_in_force};
use crate::world::World;

/// Name and version that records carry.
pub const SOFTWARE: &str = concat!("reversi ", env!("CARGO_PKG_VERSION"));

/// Why a daemon can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A global stream can't be read.
    #[error("the ledger's global records can't be read")]
    Globals(#[source] HostError<std::convert::Infallible>),
    /// Journaled manifests can't be read by this version.
    #[error("the manifests of record {seq} can't be read by this version: {why}")]
    Manifests {
        /// Which record.
        seq: u64,
        /// Why.
        why: String,
    },
    /// The first records can't be written.
    #[error("the daemon's first records can't be written")]
    Append(#[from] AppendError),
    /// The supervisor tree.
    #[error("the supervisor tree can't be started")]
    Tree(#[source] ractor::SpawnErr),
    /// The first admin key.
    #[error("the first admin key can't be made: {0}")]
    AdminKey(ServiceError),
    /// Its file.
    #[error("the first admin key can't be kept")]
    AdminKeyFile(#[source] std::io::Error),
}

/// What a daemon is made of.
pub struct Parts {
    /// Open.
    pub journal: Arc<dyn Journal>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness and ids.
    pub ids: Arc<dyn IdSource>,
    /// Upstreams.
    pub tools: Arc<dyn ToolCaller>,
    /// Tells people.
    pub notifier: Arc<dyn Notifier>,
    /// Manifests of today.
    pub manifests: ManifestSet,
}

/// A running daemon.
pub struct System {
    world: Arc<World>,
    root: ActorRef<Never>,
    service: Service,
}

/// The record that opens a ledger.
pub fn genesis(ledger: LedgerId, verifier_key: &str, ids: &dyn IdSource) -> Result<NewRecord, CodecError> {
    let body = LedgerOpened { software: SOFTWARE.to_owned(), verifier_key: verifier_key.to_owned() };
    let event: Event = SystemEvent::LedgerOpened(body, ()).into();
    // There is nothing private in it, so nothing is sealed.
    let place = Place { ledger, run: None, seal: &[0; 32] };
    encode(place, &Who::system(), &event, vec![(StreamId::Ledger, Wake::None)], ids)
}

impl System {
    /// Boots: folds what is in force, journals that it came up and which manifests hold now, then starts the actors.
    /// A new ledger's first admin key is handed to `keep_admin_key` before it is journaled.
    pub async fn start(
        parts: Parts,
        keep_admin_key: impl FnOnce(&str) -> std::io::Result<()> + Send,
    ) -> Result<Self, StartError> {
        let parked = parts.journal.was_restored();
        if parked {
            tracing::warn!(
                "the ledger is a restored copy: rollbacks are parked, because finished undos could be repeated"
            );
        }
        let world = Arc::new(World {
            boot: parts.clock.now(),
            journal: parts.journal,
            clock: parts.clock,
            ids: parts.ids,
            tools: parts.tools,
            notifier: parts.notifier,
            parked,
            globals: std::sync::RwLock::default(),
            runs: crate::directory::Directory::default(),
            undos: crate::directory::Directory::default(),
            approvals: crate::directory::Directory::default(),
            asked: crate::approvals::Asked::default(),
            counters: crate::world::Counters::default(),
            calling: std::sync::Mutex::default(),
        });
        world.load_globals().map_err(StartError::Globals)?;
        world.asked.load(&*world.journal).map_err(StartError::Globals)?;
        if let Some((seq, why)) = world.globals().archive.unreadable().first().cloned() {
            return Err(StartError::Manifests { seq, why });
        }
        let publisher = Arc::downgrade(&world);
        world.journal.publish_to(Arc::new(move |batch: Arc<[PublishedRecord]>| {
            if let Some(world) = publisher.upgrade() {
                world.publish(&batch);
            }
        }));
        let started = DaemonStarted { clean: stopped_cleanly(&world)?, software: SOFTWARE.to_owned() };
        world.append_system(SystemEvent::DaemonStarted(started, ()).into()).await?;
        put_in_force(&world, &Who::system(), &parts.manifests).await?;
        let service = Service::new(Arc::clone(&world));
        first_admin_key(&world, &service, keep_admin_key).await?;
        let root = Root { world: Arc::clone(&world) };
        let (root, _) = Actor::spawn(None, root, ()).await.map_err(StartError::Tree)?;
        Ok(Self { world, root, service })
    }

    /// The handle for edges.
    pub fn service(&self) -> Service {
        self.service.clone()
    }

    /// Stops: no more actors, then the upstreams, then the journal with its mark of a clean stop.
    pub async fn stop(self) -> Result<(), JournalError> {
        self.root.stop(None);
        let _ = self.root.wait(None).await;
        self.world.tools.shutdown().await;
        if let Err(error) = self.world.append_system(SystemEvent::DaemonStopped(DaemonStopped {}, ()).into()).await {
            tracing::warn!(%error, "the stop could not be journaled");
        }
        self.world.journal.close().await
    }
}

/// The last thing that the daemon journaled about itself is that it stopped.
fn stopped_cleanly(world: &World) -> Result<bool, StartError> {
    let Some(seq) = world.journal.version(&StreamId::Ledger)? else { return Ok(false) };
    let last = world.journal.load(&StreamId::Ledger, seq)?;
    let Some(last) = last.last() else { return Ok(false) };
    let decoded = decode(&*world.journal, last).map_err(|error| StartError::Globals(error.into()))?;
    Ok(matches!(decoded.event, Event::System(SystemEvent::DaemonStopped(..))))
}

/// A ledger without keys gets its admin key. The file comes first: if the record is lost, the next boot makes another.
async fn first_admin_key(
    world: &World,
    service: &Service,
    keep: impl FnOnce(&str) -> std::io::Result<()>,
) -> Result<(), StartError> {
    if !world.globals().access.is_empty() {
        return Ok(());
    }
    let key = NewKey {
        actor: "admin".parse().map_err(|_| StartError::AdminKey(no_actor()))?,
        roles: vec![Role::Admin],
        person: Some("admin".to_owned()),
        groups: Vec::new(),
        allow_observe: false,
        expires_at: None,
    };
    let minted = service.mint_key(&key).map_err(StartError::AdminKey)?;
    keep(&minted.text).map_err(StartError::AdminKeyFile)?;
    service.add_minted(&Who::system(), key, &minted).await.map_err(StartError::AdminKey)
}

fn no_actor() -> ServiceError {
    ServiceError::new(crate::error::Code::Internal, "the name admin is no actor")
}
