//! Runs: start, list, show, seal.
use std::borrow::Cow;

use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::service::{NewRun, RunState, RunSummary};
use reversi_proto::event::v1::Mode;
use reversi_proto::ids::{ActorId, RunId};
use reversi_proto::run::StepView;
use reversi_proto::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::extract::{Caller, InRun, JsonBody, Params, RetryHeaders, parsed};
use super::problem::Problem;
use super::reply::{Answer, json, mark_replayed};

/// Runs of a page where the caller names no number.
const LIMIT_DEFAULT: usize = 50;
/// Most runs of a page.
const LIMIT_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartRequest<'a> {
    permissions: Vec<String>,
    #[serde(borrow, default)]
    run_id: Option<Cow<'a, str>>,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageParams {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// No member.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A run without its steps.
#[derive(Serialize)]
struct RunHead<'a> {
    run_id: &'a RunId,
    mode: Mode,
    status: &'static str,
    permissions: &'a [String],
    actor: &'a ActorId,
    reason: Option<&'a str>,
    started_at: Timestamp,
    step_count: usize,
    unresolved: usize,
}

/// A run with its steps.
#[derive(Serialize)]
struct RunBody<'a> {
    #[serde(flatten)]
    head: RunHead<'a>,
    steps: &'a [StepView],
}

#[derive(Serialize)]
struct Page<'a> {
    items: Vec<RunHead<'a>>,
    next_cursor: Option<&'a RunId>,
}

impl<'a> RunHead<'a> {
    fn of(summary: &'a RunSummary) -> Self {
        let RunSummary { run_id, status, mode, permissions, actor, reason, started_at, steps, unresolved } = summary;
        Self {
            run_id,
            mode: *mode,
            status,
            permissions,
            actor,
            reason: reason.as_deref(),
            started_at: *started_at,
            step_count: *steps,
            unresolved: *unresolved,
        }
    }
}

/// `POST /v1/runs`
pub(super) async fn start(
    State(edge): State<Shared>,
    Caller(who): Caller,
    retry: RetryHeaders,
    body: JsonBody,
) -> Answer {
    let StartRequest { permissions, run_id, mode, reason } = body.parse()?;
    let run_id = run_id.map(|text| parsed("run_id", &text)).transpose()?;
    let run = NewRun { run_id, permissions, mode, reason };
    let (summary, replayed) = edge.service.start_run(&who, run, retry.of(&body)).await?;
    Ok(mark_replayed(json(StatusCode::CREATED, &RunHead::of(&summary))?, replayed))
}

/// `GET /v1/runs`
pub(super) async fn list(State(edge): State<Shared>, Caller(who): Caller, Params(page): Params<PageParams>) -> Answer {
    let limit = page.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::field("limit", format!("expected 1 to {LIMIT_MAX}")));
    }
    let after = page.cursor.map(|text| parsed("cursor", &text)).transpose()?;
    // One more than shown tells whether there is a next page.
    let runs = edge.service.runs(&who, after, limit + 1).await?;
    let next_cursor = if runs.len() > limit { runs.get(limit - 1).map(|run| &run.run_id) } else { None };
    json(StatusCode::OK, &Page { items: runs.iter().take(limit).map(RunHead::of).collect(), next_cursor })
}

/// `GET /v1/runs/{run}`
pub(super) async fn show(State(edge): State<Shared>, Caller(who): Caller, InRun(run): InRun) -> Answer {
    let RunState { summary, step_views } = edge.service.run(&who, &run).await?;
    json(StatusCode::OK, &RunBody { head: RunHead::of(&summary), steps: &step_views })
}

/// `POST /v1/runs/{run}/seal`
pub(super) async fn seal(State(edge): State<Shared>, Caller(who): Caller, InRun(run): InRun, body: JsonBody) -> Answer {
    let Nothing {} = body.parse_or_default()?;
    json(StatusCode::OK, &RunHead::of(&edge.service.seal(&who, &run).await?))
}
