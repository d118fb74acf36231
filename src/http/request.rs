//! What every request passes, whatever its endpoint: an id, admission, a deadline, a guard against panics, and the
//! rendering of problems. No tower layers: each would box a future per request.
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Instant;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Request};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use reversi_actors::error::Code;
use reversi_proto::hash::hex;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;
use tower_service::Service as _;

use super::Shared;
use super::problem::Problem;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Ids of requests: different within a process, and very likely between processes. They are for logs, not secrets.
pub(super) struct RequestIds {
    start: u64,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new() -> Self {
        let mut start = [0; 8];
        // Without randomness ids repeat after a restart, which only makes logs harder to read.
        let _ = getrandom::fill(&mut start);
        Self { start: u64::from_le_bytes(start), next: AtomicU64::new(0) }
    }

    fn next(&self) -> HeaderValue {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        // Odd, so that the product takes every value once.
        let id = self.start.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        HeaderValue::from_str(&hex(&id.to_be_bytes())).unwrap_or(HeaderValue::from_static("unknown"))
    }
}

/// Handles one request; always an answer.
pub(super) async fn handle(edge: Shared, router: Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    let started = Instant::now();
    let id = edge.ids.next();
    let governed = request.uri().path().starts_with("/v1/");
    let mut response = match admit(&edge, governed) {
        Ok(_permit) => route(&edge, router, request).await,
        Err(problem) => problem.into_response(),
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = rendered(&response, &problem, &id);
    }
    edge.counted.request(response.status(), started.elapsed());
    response.headers_mut().insert(REQUEST_ID, id);
    Ok(response)
}

/// Health checks and metrics are let through: they must answer when nothing else does.
fn admit(edge: &Shared, governed: bool) -> Result<Option<SemaphorePermit<'_>>, Problem> {
    if !governed {
        return Ok(None);
    }
    edge.admission.try_acquire().map(Some).map_err(|_| {
        edge.counted.refused();
        Problem::of(Code::Busy, "the daemon works on as many requests as it may; nothing was done, so try again")
    })
}

async fn route(edge: &Shared, mut router: Router, request: Request<Incoming>) -> Response {
    match timeout(edge.limits.request_timeout, caught(router.call(request))).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Ok(Err(never))) => match never {},
        Ok(Err(Panicked)) => {
            Problem::of(Code::Internal, "the daemon failed to handle the request; its log says why").into_response()
        }
        Err(_) => {
            let detail = "no answer in time; what was asked may still happen, so ask with the same Idempotency-Key";
            Problem::of(Code::RequestLost, detail).into_response()
        }
    }
}

struct Panicked;

/// A panic in a handler ends its request, not its connection without an answer.
async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

/// Renders a problem; what the router said beside it (the header Allow) stays.
fn rendered(before: &Response, problem: &Problem, id: &HeaderValue) -> Response {
    let id = id.to_str().unwrap_or_default();
    let mut response = problem.render(id);
    if let Some(allow) = before.headers().get(axum::http::header::ALLOW) {
        response.headers_mut().insert(axum::http::header::ALLOW, allow.clone());
    }
    let (status, code) = (response.status().as_u16(), problem.code());
    // Codes only: a path or a detail is the client's text.
    if response.status().is_server_error() {
        tracing::warn!(request_id = id, status, code, "a request failed");
    } else {
        tracing::debug!(request_id = id, status, code, "a request was refused");
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_in_an_answer() {
        assert!(caught(async { 7 }).await.is_ok_and(|answer| answer == 7));
        let panics = async {
            tokio::task::yield_now().await;
            panic!("on purpose");
        };
        assert!(caught::<std::pin::Pin<Box<dyn Future<Output = ()>>>>(Box::pin(panics)).await.is_err());
    }

    #[test]
    fn ids_of_requests_differ() {
        let ids = RequestIds::new();
        let made: std::collections::BTreeSet<String> =
            (0..1000).map(|_| ids.next().to_str().unwrap().to_owned()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|id| id.len() == 16));
    }
}
