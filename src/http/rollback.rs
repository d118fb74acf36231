//! Plan, rollback, report.
use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::error::Code;
use reversi_actors::service::NewRollback;
use reversi_proto::event::v1::Executor;
use reversi_proto::ids::StepNo;
use serde::Deserialize;

use super::Shared;
use super::extract::{Caller, InRun, JsonBody, RetryHeaders};
use super::problem::Problem;
use super::reply::{Answer, json};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RollbackRequest {
    #[serde(default)]
    executor: Executor,
    to_step: Option<StepNo>,
    steps: Option<Vec<StepNo>>,
    tool: Option<String>,
    with_dependents: Option<bool>,
    #[serde(default)]
    dry_run: bool,
}

impl RollbackRequest {
    fn rollback(self) -> Result<NewRollback, Problem> {
        if self.tool.is_some() || self.with_dependents.is_some() {
            let detail = "tool and with_dependents are not supported yet; name the steps with steps or to_step";
            return Err(Problem::of(Code::RequestInvalid, detail));
        }
        if self.dry_run && (self.steps.is_some() || self.to_step.is_some()) {
            let detail = "a dry run shows the plan of the whole run; leave out steps and to_step";
            return Err(Problem::of(Code::RequestInvalid, detail));
        }
        Ok(NewRollback { executor: self.executor, steps: self.steps, to_step: self.to_step })
    }
}

/// `GET /v1/runs/{run}/plan`
pub(super) async fn plan(State(edge): State<Shared>, Caller(who): Caller, InRun(run): InRun) -> Answer {
    json(StatusCode::OK, &edge.service.plan(&who, &run).await?)
}

/// `POST /v1/runs/{run}/rollback`: the report so far, or for a dry run the plan.
pub(super) async fn start(
    State(edge): State<Shared>,
    Caller(who): Caller,
    InRun(run): InRun,
    retry: RetryHeaders,
    body: JsonBody,
) -> Answer {
    let request: RollbackRequest = body.parse_or_default()?;
    let dry_run = request.dry_run;
    let rollback = request.rollback()?;
    if dry_run {
        return json(StatusCode::OK, &edge.service.plan(&who, &run).await?);
    }
    json(StatusCode::ACCEPTED, &edge.service.rollback(&who, &run, rollback, retry.of(&body)).await?)
}

/// `GET /v1/runs/{run}/rollback`
pub(super) async fn report(State(edge): State<Shared>, Caller(who): Caller, InRun(run): InRun) -> Answer {
    json(StatusCode::OK, &edge.service.report(&who, &run).await?)
}
