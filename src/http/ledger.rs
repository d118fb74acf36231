//! The ledger: how it stands, its lines, its newest checkpoint.
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::StatusCode;
use hyper::body::Frame;
use reversi_actors::error::ServiceError;
use reversi_actors::service::Service;
use reversi_proto::access::Principal;
use reversi_proto::ids::Seq;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::Shared;
use super::extract::{Caller, InRun, Params};
use super::reply::{Answer, join_lines, json, with_type};

const JSONL: &str = "application/jsonl";
/// Bytes of an export that are read at once.
const PAGE_BYTES: usize = 256 << 10;
/// Pages that wait for a slow reader.
const PAGES_AHEAD: usize = 2;

#[derive(Serialize)]
struct LedgerReply<'a> {
    ledger: &'a str,
    head: Seq,
    checkpoint: u64,
    lag: u64,
    disk_low: bool,
    sink_errors: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportParams {
    #[serde(default)]
    from: Seq,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointParams {
    #[serde(default)]
    fresh: bool,
}

/// `GET /v1/ledger`
pub(super) async fn status(State(edge): State<Shared>, Caller(who): Caller) -> Answer {
    let status = edge.service.status(&who)?;
    let reply = LedgerReply {
        ledger: &status.ledger,
        head: status.head,
        checkpoint: status.checkpoint,
        lag: status.lag,
        disk_low: status.disk_low,
        sink_errors: status.sink_errors,
    };
    json(StatusCode::OK, &reply)
}

/// `GET /v1/ledger/checkpoint`
pub(super) async fn checkpoint(
    State(edge): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<CheckpointParams>,
) -> Answer {
    let signed = edge.service.checkpoint(&who, params.fresh).await?;
    Ok(with_type(StatusCode::OK, "text/plain; charset=utf-8", Body::from(signed.note)))
}

/// `GET /v1/runs/{run}/records`
pub(super) async fn run_records(State(edge): State<Shared>, Caller(who): Caller, InRun(run): InRun) -> Answer {
    let lines = edge.service.records(&who, &run).await?;
    Ok(with_type(StatusCode::OK, JSONL, Body::from(join_lines(lines.iter().map(|line| &**line)))))
}

/// `GET /v1/ledger/records`: everything that is durable when the export starts.
pub(super) async fn records(
    State(edge): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<ExportParams>,
) -> Answer {
    let mut export = Export { service: edge.service.clone(), who, next: params.from, head: edge.service.stats().head };
    // The first page comes before the status line, so that a refusal is a problem and not a broken body.
    let first = export.page().await?;
    let (sender, pages) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(export.send(first, sender));
    Ok(with_type(StatusCode::OK, JSONL, Body::new(Pages(pages))))
}

struct Export {
    service: Service,
    who: Principal,
    next: Seq,
    head: Seq,
}

impl Export {
    /// The next lines; empty at the end.
    async fn page(&mut self) -> Result<Bytes, ServiceError> {
        let mut lines = self.service.lines(&self.who, self.next, PAGE_BYTES).await?;
        let left = self.head.saturating_sub(self.next);
        lines.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        self.next += lines.len() as Seq;
        Ok(join_lines(lines.iter().map(Arc::as_ref)))
    }

    /// Ends when everything was sent, the reader is gone, or a page can't be read: then the body breaks off.
    async fn send(mut self, first: Bytes, sender: mpsc::Sender<Result<Bytes, ServiceError>>) {
        let mut page = Ok(first);
        while !page.as_ref().is_ok_and(Bytes::is_empty) {
            let failed = page.is_err();
            if sender.send(page).await.is_err() || failed {
                return;
            }
            page = self.page().await;
        }
    }
}

/// A body of pages, as they come.
struct Pages(mpsc::Receiver<Result<Bytes, ServiceError>>);

impl HttpBody for Pages {
    type Data = Bytes;
    type Error = ServiceError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ServiceError>>> {
        self.0.poll_recv(context).map(|page| page.map(|page| page.map(Frame::data)))
    }
}
