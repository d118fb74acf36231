//! HTTP under /v1: parse, call `Service`, render. Must not know the journal, events, or why anything is decided.
//!
//! A request passes `request.rs` (id, admission, deadline, rendering of problems), then the router, then one handler.
mod approvals;
mod extract;
mod health;
mod keys;
mod ledger;
mod metrics;
mod people;
mod problem;
mod reload;
mod reply;
mod request;
mod rollback;
mod runs;
mod server;
mod steps;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{delete, get, post};
use reversi_actors::service::Service;
use tokio::sync::Semaphore;

pub use server::Server;

use crate::reload::Reloader;

/// Limits of one listener.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections; more wait in the kernel's queue.
    pub connections: usize,
    /// Requests under /v1 that are worked on at once; more get 503. Bounds the mailboxes behind it.
    pub requests: usize,
    /// Large bodies (above 1 MiB) that are held in memory at once; more get 503.
    pub large_bodies: usize,
    /// A connection that sends no complete header for this long is closed, an idle one too.
    pub header_timeout: Duration,
    /// A body must have arrived after this time.
    pub body_timeout: Duration,
    /// An answer must be there after this time.
    pub request_timeout: Duration,
    /// How long a stop waits for requests that are being worked on.
    pub stop_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests: 512,
            large_bodies: 16,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(20),
            request_timeout: Duration::from_secs(30),
            stop_grace: Duration::from_secs(10),
        }
    }
}

/// What is served on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serve {
    /// The API and the health checks, and the metrics.
    Everything,
    /// The API and the health checks; the metrics have a listener of their own.
    WithoutMetrics,
    /// The metrics and the health checks.
    MetricsOnly,
}

/// What all requests share.
pub(crate) struct Edge {
    service: Service,
    reloader: Arc<Reloader>,
    limits: Limits,
    ids: request::RequestIds,
    admission: Semaphore,
    large_bodies: Arc<Semaphore>,
    counted: metrics::Counted,
}

/// The edge's state; cloned per request.
type Shared = Arc<Edge>;

/// The HTTP edge of a daemon; its listeners share limits and counters.
#[derive(Clone)]
pub struct Http {
    edge: Shared,
}

impl Http {
    /// An edge in front of a service.
    pub fn new(service: Service, reloader: Arc<Reloader>, limits: Limits) -> Self {
        let edge = Edge {
            service,
            reloader,
            ids: request::RequestIds::new(),
            admission: Semaphore::new(limits.requests),
            large_bodies: Arc::new(Semaphore::new(limits.large_bodies)),
            counted: metrics::Counted::default(),
            limits,
        };
        Self { edge: Arc::new(edge) }
    }

    /// Listens; port 0 takes any free one.
    pub async fn listen(&self, address: SocketAddr, serve: Serve) -> io::Result<Server> {
        Server::bind(address, Arc::clone(&self.edge), router(&self.edge, serve)).await
    }
}

fn router(edge: &Shared, serve: Serve) -> Router {
    let router = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    let router = match serve {
        Serve::Everything => api(router).route("/metrics", get(metrics::show)),
        Serve::WithoutMetrics => api(router),
        Serve::MetricsOnly => router.route("/metrics", get(metrics::show)),
    };
    router.fallback(problem::no_route).method_not_allowed_fallback(problem::no_method).with_state(Arc::clone(edge))
}

fn api(router: Router<Shared>) -> Router<Shared> {
    router
        .route("/v1/runs", post(runs::start).get(runs::list))
        .route("/v1/runs/{run}", get(runs::show))
        .route("/v1/runs/{run}/seal", post(runs::seal))
        .route("/v1/runs/{run}/plan", get(rollback::plan))
        .route("/v1/runs/{run}/records", get(ledger::run_records))
        .route("/v1/runs/{run}/rollback", post(rollback::start).get(rollback::report))
        .route("/v1/runs/{run}/approvals", post(approvals::pre_approve))
        .route("/v1/runs/{run}/steps", post(steps::begin))
        .route("/v1/runs/{run}/steps/{step}/complete", post(steps::complete))
        .route("/v1/runs/{run}/steps/{step}/resolve", post(steps::resolve))
        .route("/v1/ledger", get(ledger::status))
        .route("/v1/ledger/records", get(ledger::records))
        .route("/v1/ledger/checkpoint", get(ledger::checkpoint))
        .route("/v1/status", get(health::status))
        .route("/v1/me", get(keys::me))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/{name}", get(approvals::show))
        .route("/v1/approvals/{name}/approve", post(approvals::approve))
        .route("/v1/approvals/{name}/deny", post(approvals::deny))
        .route("/v1/approvals/{name}/withdraw", post(approvals::withdraw))
        .route("/v1/approvals/{name}/revoke", post(approvals::revoke))
        .route("/v1/approvals/{name}/break-glass", post(approvals::break_glass))
        .route("/v1/approvals/{name}/review", post(approvals::review))
        .route("/v1/reviews", get(approvals::reviews))
        .route("/v1/delegations", get(people::delegations).post(people::delegate))
        .route("/v1/delegations/{name}", delete(people::end_delegation))
        .route("/v1/groups", get(people::groups).post(people::set_group))
        .route("/v1/groups/{name}", delete(people::delete_group))
        .route("/v1/halt", get(people::halts).post(people::halt))
        .route("/v1/resume", post(people::resume))
        .route("/v1/keys", get(keys::list).post(keys::create))
        .route("/v1/keys/{name}", delete(keys::revoke))
        .route("/v1/keys/{name}/rotate", post(keys::rotate))
        .route("/v1/reload", post(reload::reload))
}
