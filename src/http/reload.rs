//! Reads the manifest files again. Must not know where they are.
use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::error::Code;
use reversi_actors::service::ReloadBy;
use serde::Deserialize;

use super::Shared;
use super::extract::{Caller, JsonBody};
use super::problem::{Mistake, Problem};
use super::reply::{Answer, json};
use crate::manifests::ManifestsError;
use crate::reload::ReloadError;

/// There is nothing to choose: which files are read is a matter of the settings.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReloadRequest {}

/// `POST /v1/reload`. Asked twice it does the same as once, so it needs no `Idempotency-Key`.
pub(super) async fn reload(State(edge): State<Shared>, Caller(who): Caller, body: JsonBody) -> Answer {
    let by = ReloadBy::admin(&who)?;
    let ReloadRequest {} = body.parse_or_default()?;
    match edge.reloader.reload(&by).await {
        Ok(reloaded) => json(StatusCode::OK, &reloaded),
        Err(ReloadError::Manifests(mistakes)) => Err(invalid(&mistakes)),
        Err(ReloadError::Service(error)) => Err(error.into()),
        Err(error @ ReloadError::Task(_)) => {
            tracing::error!(%error, "a reload failed");
            Err(Problem::of(Code::Internal, "the daemon failed to read the manifests; its log says why"))
        }
    }
}

fn invalid(mistakes: &ManifestsError) -> Problem {
    let detail = format!("the manifests stay as they were: {} in the files", mistakes.count());
    let errors = mistakes.diagnostics().iter().map(Mistake::from).collect();
    Problem::with_errors(Code::ManifestsInvalid, detail, errors)
}
