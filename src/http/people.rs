//! Groups, delegations and the kill switch.
use std::borrow::Cow;

use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::error::Code;
use reversi_actors::service::NewDelegation;
use reversi_proto::event::v1::Delegated;
use reversi_proto::halt::{HaltInForce, HaltScope};
use reversi_proto::ids::DelegationId;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::extract::{Caller, JsonBody, Named, parsed};
use super::keys::instant;
use super::problem::Problem;
use super::reply::{Answer, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupRequest {
    group: String,
    members: Vec<String>,
}

#[derive(Serialize)]
struct Group<'a> {
    group: &'a str,
    members: &'a [String],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelegationRequest {
    from: Option<String>,
    to: String,
    roles: Vec<String>,
    start: Option<String>,
    end: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HaltRequest<'a> {
    reason: String,
    #[serde(borrow, default)]
    scope: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ResumeRequest<'a> {
    reason: Option<String>,
    #[serde(borrow, default)]
    scope: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct List<T> {
    items: Vec<T>,
}

#[derive(Serialize)]
struct Halts<'a> {
    halted: bool,
    items: &'a [HaltInForce],
}

/// Nothing more to say.
#[derive(Serialize)]
struct Done {}

/// `GET /v1/groups`
pub(super) async fn groups(State(edge): State<Shared>, Caller(who): Caller) -> Answer {
    let groups = edge.service.groups(&who)?;
    json(StatusCode::OK, &List { items: groups.iter().map(|(group, members)| Group { group, members }).collect() })
}

/// `POST /v1/groups`
pub(super) async fn set_group(State(edge): State<Shared>, Caller(who): Caller, body: JsonBody) -> Answer {
    let GroupRequest { group, members } = body.parse()?;
    edge.service.set_group(&who, group.clone(), members.clone()).await?;
    json(StatusCode::OK, &Group { group: &group, members: &members })
}

/// `DELETE /v1/groups/{name}`
pub(super) async fn delete_group(State(edge): State<Shared>, Caller(who): Caller, Named(group): Named) -> Answer {
    edge.service.delete_group(&who, &group).await?;
    json(StatusCode::OK, &Done {})
}

/// `GET /v1/delegations`
pub(super) async fn delegations(State(edge): State<Shared>, Caller(who): Caller) -> Answer {
    json(StatusCode::OK, &List::<Delegated> { items: edge.service.delegations(&who)? })
}

/// `POST /v1/delegations`
pub(super) async fn delegate(State(edge): State<Shared>, Caller(who): Caller, body: JsonBody) -> Answer {
    let DelegationRequest { from, to, roles, start, end } = body.parse()?;
    let start = start.map(|text| instant("start", &text)).transpose()?;
    let new = NewDelegation { from, to, roles, start, end: instant("end", &end)? };
    json(StatusCode::CREATED, &edge.service.delegate(&who, new).await?)
}

/// `DELETE /v1/delegations/{name}`
pub(super) async fn end_delegation(State(edge): State<Shared>, Caller(who): Caller, Named(id): Named) -> Answer {
    let none = |_| Problem::of(Code::DelegationNotFound, "no delegation has this id (expected dlg_ and 32 hex digits)");
    let id: DelegationId = id.parse().map_err(none)?;
    edge.service.end_delegation(&who, &id).await?;
    json(StatusCode::OK, &Done {})
}

/// `GET /v1/halt`
pub(super) async fn halts(State(edge): State<Shared>, Caller(who): Caller) -> Answer {
    halted(&edge.service.halts(&who)?)
}

/// `POST /v1/halt`
pub(super) async fn halt(State(edge): State<Shared>, Caller(who): Caller, body: JsonBody) -> Answer {
    let HaltRequest { reason, scope } = body.parse()?;
    halted(&edge.service.halt(&who, scope_of(scope)?, reason).await?)
}

/// `POST /v1/resume`
pub(super) async fn resume(State(edge): State<Shared>, Caller(who): Caller, body: JsonBody) -> Answer {
    let ResumeRequest { reason, scope } = body.parse_or_default()?;
    halted(&edge.service.resume(&who, scope_of(scope)?, reason).await?)
}

fn halted(items: &[HaltInForce]) -> Answer {
    json(StatusCode::OK, &Halts { halted: !items.is_empty(), items })
}

fn scope_of(scope: Option<Cow<'_, str>>) -> Result<HaltScope, Problem> {
    scope.map_or(Ok(HaltScope::All), |text| parsed("scope", &text))
}
