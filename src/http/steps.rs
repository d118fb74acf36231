//! Steps: begin, complete, resolve.
use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::service::{NewStep, StepOutcome};
use reversi_proto::event::v1::{Finding, Outcome, Target};
use reversi_proto::ids::{ApprovalId, StepNo};
use reversi_proto::run::{BeginAnswer, CompleteAnswer, DecisionWord};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Shared;
use super::extract::{Caller, InRun, InStep, JsonBody, RawMembers, ResultBody, RetryHeaders, parsed, present};
use super::problem::Problem;
use super::reply::{Answer, json, mark_replayed};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BeginRequest<'a> {
    #[serde(borrow)]
    tool: Cow<'a, str>,
    reason: String,
    /// As it came: a parsed value would hide keys that stand twice.
    #[serde(borrow)]
    args: &'a RawValue,
    #[serde(borrow, default)]
    approval_id: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct BeginReply<'a> {
    decision: &'static str,
    step: StepNo,
    reasons: Vec<&'a str>,
    codes: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<&'a ApprovalId>,
    notes: &'a [String],
    result_paths: &'a [String],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompleteRequest<'a> {
    status: Outcome,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    result_omitted: bool,
    #[serde(borrow, default)]
    result_values: Option<RawMembers<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveRequest<'a> {
    target: Target,
    status: Outcome,
    note: String,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct CompleteReply<'a> {
    step: StepNo,
    status: &'static str,
    recoverable: bool,
    missing: &'a [String],
}

impl<'a> BeginReply<'a> {
    fn of(answer: &'a BeginAnswer) -> Self {
        let BeginAnswer { decision, step, findings, approval, notes, result_paths, replayed: _ } = answer;
        let decision = match decision {
            DecisionWord::Allow => "allow",
            DecisionWord::Block => "block",
        };
        let (reasons, codes) = findings.iter().map(|Finding { code, text }| (&**text, &**code)).unzip();
        Self { decision, step: *step, reasons, codes, approval_id: approval.as_ref(), notes, result_paths }
    }
}

impl<'a> CompleteReply<'a> {
    fn of(answer: &'a CompleteAnswer) -> Self {
        // A dispute never gets here: it is a conflict.
        let CompleteAnswer { step, status, recoverable, missing, disputed: _ } = answer;
        Self { step: *step, status, recoverable: *recoverable, missing }
    }
}

impl CompleteRequest<'_> {
    fn outcome(self) -> Result<StepOutcome, Problem> {
        let Self { status, result, error, result_omitted, result_values } = self;
        if result_omitted && result.is_some() {
            return Err(Problem::field("result", "leave it out when result_omitted is true"));
        }
        if !result_omitted && result_values.is_some() {
            return Err(Problem::field("result_values", "only with result_omitted: true"));
        }
        let values = result_omitted.then(|| result_values.unwrap_or_default());
        let result_values = values.map(|RawMembers(members)| {
            let owned = members.into_iter().map(|(path, value)| (path.into_owned(), value.get().to_owned()));
            owned.collect::<BTreeMap<_, _>>()
        });
        Ok(StepOutcome { status, result: result.map(|raw| raw.get().to_owned()), error, result_values })
    }
}

/// `POST /v1/runs/{run}/steps`. A block is a decision, not an error.
pub(super) async fn begin(
    State(edge): State<Shared>,
    Caller(who): Caller,
    InRun(run): InRun,
    retry: RetryHeaders,
    body: JsonBody,
) -> Answer {
    let BeginRequest { tool, reason, args, approval_id } = body.parse()?;
    let approval_id = approval_id.map(|text| parsed("approval_id", &text)).transpose()?;
    let step = NewStep { tool: parsed("tool", &tool)?, reason, args: object("args", args)?, approval_id };
    let answer = edge.service.begin(&who, &run, step, retry.of(&body)).await?;
    Ok(mark_replayed(json(StatusCode::OK, &BeginReply::of(&answer))?, answer.replayed))
}

/// `POST /v1/runs/{run}/steps/{step}/complete`
pub(super) async fn complete(
    State(edge): State<Shared>,
    Caller(who): Caller,
    InStep(run, step): InStep,
    body: ResultBody,
) -> Answer {
    let outcome = body.parse::<CompleteRequest<'_>>()?.outcome()?;
    let answer = edge.service.complete(&who, &run, step, outcome).await?;
    json(StatusCode::OK, &CompleteReply::of(&answer))
}

/// `POST /v1/runs/{run}/steps/{step}/resolve`
pub(super) async fn resolve(
    State(edge): State<Shared>,
    Caller(who): Caller,
    InStep(run, step): InStep,
    body: JsonBody,
) -> Answer {
    let ResolveRequest { target, status, note, result } = body.parse()?;
    let settled = (status, note, result.map(|raw| raw.get().to_owned()));
    let answer = edge.service.resolve(&who, &run, (step, target), settled).await?;
    json(StatusCode::OK, &CompleteReply::of(&answer))
}

/// The text of an object, whatever is in it.
fn object(field: &'static str, raw: &RawValue) -> Result<String, Problem> {
    let text = raw.get();
    if text.starts_with('{') { Ok(text.to_owned()) } else { Err(Problem::field(field, "expected an object")) }
}
