//! Is it up, is it ready, how is it doing.
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::error::Code;

use super::Shared;
use super::extract::Caller;
use super::problem::Problem;
use super::reply::{Answer, json, with_type};

/// Records that the event store may be behind before the daemon calls itself not ready.
const LAG_MAX: u64 = 100_000;

/// `GET /healthz`: the process answers, nothing more.
pub(super) async fn alive() -> Answer {
    Ok(with_type(StatusCode::OK, "text/plain; charset=utf-8", Body::from("ok\n")))
}

/// `GET /readyz`: the journal answers, there is room on the disk, and the event store keeps up.
pub(super) async fn ready(State(edge): State<Shared>) -> Answer {
    let stats = edge.service.stats();
    if stats.disk_low {
        return Err(Problem::of(Code::DiskFull, "the disk is nearly full: new calls are refused, outcomes are taken"));
    }
    if stats.lag > LAG_MAX {
        let detail = format!("the event store is {} records behind, more than {LAG_MAX}", stats.lag);
        return Err(Problem::of(Code::Busy, detail));
    }
    // The probe can read from disk.
    let service = edge.service.clone();
    match tokio::task::spawn_blocking(move || service.ready()).await {
        Ok(true) => Ok(with_type(StatusCode::OK, "text/plain; charset=utf-8", Body::from("ready\n"))),
        Ok(false) | Err(_) => Err(Problem::of(Code::Busy, "the journal does not answer a probe; the log says why")),
    }
}

/// `GET /v1/status`
pub(super) async fn status(State(edge): State<Shared>, Caller(who): Caller) -> Answer {
    json(StatusCode::OK, &edge.service.status(&who)?)
}
