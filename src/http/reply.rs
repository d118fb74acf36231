//! Answers that are no errors. Must not know any endpoint.
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use reversi_actors::error::Code;
use serde::Serialize;

use super::problem::Problem;

/// What every handler returns.
pub(super) type Answer = Result<Response, Problem>;

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A JSON body.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Answer {
    // Most answers are short; one allocation holds them.
    let mut body = Vec::with_capacity(256);
    if let Err(error) = serde_json::to_writer(&mut body, value) {
        tracing::error!(%error, "an answer could not be written as JSON");
        return Err(Problem::of(Code::Internal, "the daemon failed to write its answer; its log says why"));
    }
    Ok(with_type(status, "application/json", Body::from(body)))
}

/// A body of some type.
pub(super) fn with_type(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Marks an answer that was given before.
pub(super) fn mark_replayed(mut response: Response, replayed: bool) -> Response {
    if replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// Ledger lines, each with its LF.
pub(super) fn join_lines<'a>(lines: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Bytes {
    let bytes = lines.clone().map(<[u8]>::len).sum::<usize>() + lines.len();
    let mut joined = Vec::with_capacity(bytes);
    for line in lines {
        joined.extend_from_slice(line);
        joined.push(b'\n');
    }
    joined.into()
}
