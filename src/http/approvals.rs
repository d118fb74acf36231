//! Approvals: list, show (and wait), say something, approve in advance; and the reviews that are owed.
use std::borrow::Cow;

use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::error::Code;
use reversi_actors::service::{ApprovalFilter, ApprovalShown, Word};
use reversi_proto::access::OwedReview;
use reversi_proto::approval::ApprovalView;
use reversi_proto::ids::ApprovalId;
use reversi_proto::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::extract::{Caller, InRun, JsonBody, Named, Params, parsed};
use super::problem::Problem;
use super::reply::{Answer, json};

/// Approvals of a page where the caller names no number.
const LIMIT_DEFAULT: usize = 50;
/// Most approvals of a page.
const LIMIT_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    status: Option<String>,
    #[serde(default)]
    mine: bool,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowParams {
    wait: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct SayRequest {
    reason: Option<String>,
    fingerprint: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreApproveRequest<'a> {
    #[serde(borrow)]
    tool: Cow<'a, str>,
    note: Option<String>,
}

#[derive(Serialize)]
struct Page<'a> {
    items: &'a [ApprovalView],
    next_cursor: Option<&'a ApprovalId>,
}

/// What the agent that asked may know.
#[derive(Serialize)]
struct OwnReply<'a> {
    approval_id: &'a ApprovalId,
    status: &'static str,
    deadline: Option<Timestamp>,
}

#[derive(Serialize)]
struct Reviews<'a> {
    items: &'a [OwedReview],
}

/// `GET /v1/approvals`
pub(super) async fn list(
    State(edge): State<Shared>,
    Caller(who): Caller,
    Params(params): Params<ListParams>,
) -> Answer {
    let ListParams { status, mine, limit, cursor } = params;
    let filter = match status.as_deref() {
        None | Some("pending") => ApprovalFilter::Pending,
        Some("approved") => ApprovalFilter::Approved,
        Some("all") => ApprovalFilter::All,
        Some(_) => return Err(Problem::field("status", "expected pending, approved or all")),
    };
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::field("limit", format!("expected 1 to {LIMIT_MAX}")));
    }
    let after = cursor.map(|text| parsed("cursor", &text)).transpose()?;
    // One more than shown tells whether there is a next page.
    let found = edge.service.approvals(&who, (filter, mine), after, limit + 1).await?;
    let shown = &found[..found.len().min(limit)];
    let next_cursor = if found.len() > limit { shown.last().map(|view| &view.approval_id) } else { None };
    json(StatusCode::OK, &Page { items: shown, next_cursor })
}

/// `GET /v1/approvals/{id}?wait=25s`
pub(super) async fn show(
    State(edge): State<Shared>,
    Caller(who): Caller,
    Named(id): Named,
    Params(ShowParams { wait }): Params<ShowParams>,
) -> Answer {
    let id = approval(&id)?;
    let shown = match wait {
        None => edge.service.approval(&who, &id).await?,
        Some(wait) => edge.service.approval_once_decided(&who, &id, wait_ms(&wait)?).await?,
    };
    match &shown {
        ApprovalShown::Full(view) => json(StatusCode::OK, view),
        ApprovalShown::Own { approval_id, status, deadline } => {
            json(StatusCode::OK, &OwnReply { approval_id, status, deadline: *deadline })
        }
    }
}

/// `POST /v1/approvals/{id}/approve`
pub(super) async fn approve(edge: State<Shared>, who: Caller, id: Named, body: JsonBody) -> Answer {
    say(edge, who, id, Word::Approve, body).await
}

/// `POST /v1/approvals/{id}/deny`
pub(super) async fn deny(edge: State<Shared>, who: Caller, id: Named, body: JsonBody) -> Answer {
    say(edge, who, id, Word::Deny, body).await
}

/// `POST /v1/approvals/{id}/withdraw`
pub(super) async fn withdraw(edge: State<Shared>, who: Caller, id: Named, body: JsonBody) -> Answer {
    say(edge, who, id, Word::Withdraw, body).await
}

/// `POST /v1/approvals/{id}/revoke`
pub(super) async fn revoke(edge: State<Shared>, who: Caller, id: Named, body: JsonBody) -> Answer {
    say(edge, who, id, Word::Revoke, body).await
}

/// `POST /v1/approvals/{id}/break-glass`
pub(super) async fn break_glass(edge: State<Shared>, who: Caller, id: Named, body: JsonBody) -> Answer {
    say(edge, who, id, Word::BreakGlass, body).await
}

/// `POST /v1/approvals/{id}/review`
pub(super) async fn review(edge: State<Shared>, who: Caller, id: Named, body: JsonBody) -> Answer {
    say(edge, who, id, Word::Review, body).await
}

async fn say(State(edge): State<Shared>, Caller(who): Caller, Named(id): Named, word: Word, body: JsonBody) -> Answer {
    let id = approval(&id)?;
    let SayRequest { reason, fingerprint } = body.parse_or_default()?;
    let view = edge.service.say(&who, &id, word, (reason, fingerprint)).await?;
    json(StatusCode::OK, &view)
}

/// `POST /v1/runs/{run}/approvals`
pub(super) async fn pre_approve(
    State(edge): State<Shared>,
    Caller(who): Caller,
    InRun(run): InRun,
    body: JsonBody,
) -> Answer {
    let PreApproveRequest { tool, note } = body.parse()?;
    let view = edge.service.pre_approve(&who, &run, parsed("tool", &tool)?, note).await?;
    json(StatusCode::CREATED, &view)
}

/// `GET /v1/reviews`
pub(super) async fn reviews(State(edge): State<Shared>, Caller(who): Caller) -> Answer {
    json(StatusCode::OK, &Reviews { items: &edge.service.reviews(&who)? })
}

/// A text that is no approval id names no approval.
fn approval(text: &str) -> Result<ApprovalId, Problem> {
    let none = |_| Problem::of(Code::ApprovalNotFound, "no approval has this id (expected apr_ and 32 hex digits)");
    text.parse().map_err(none)
}

/// `25s`, `500ms` or whole seconds.
fn wait_ms(text: &str) -> Result<u64, Problem> {
    let number = |digits: &str, unit_ms: u64| digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_ms));
    let ms = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => number(digits, 1),
        (None, Some(digits)) => number(digits, 1000),
        (None, None) => number(text, 1000),
    };
    ms.ok_or_else(|| Problem::field("wait", "expected a duration like 25s or 500ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_durations() {
        let read = |text| wait_ms(text).ok();
        assert_eq!((read("25s"), read("500ms"), read("3")), (Some(25_000), Some(500), Some(3_000)));
        assert_eq!((read("soon"), read("-1s"), read("1.5s"), read("99999999999999999999")), (None, None, None, None));
    }
}
