//! Access keys: create, list, revoke, rotate; and who am I.
use axum::extract::State;
use axum::http::StatusCode;
use reversi_actors::error::Code;
use reversi_actors::service::NewKey;
use reversi_proto::access::{KeyView, Principal};
use reversi_proto::event::v1::Role;
use reversi_proto::ids::{ActorId, ActorKind, KeyId};
use reversi_proto::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::extract::{Caller, JsonBody, Named, parsed};
use super::problem::Problem;
use super::reply::{Answer, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRequest {
    actor: String,
    roles: Vec<Role>,
    person: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    allow_observe: bool,
    expires_at: Option<String>,
}

/// The one answer that holds a key.
#[derive(Serialize)]
struct KeyReply<'a> {
    key_id: &'a KeyId,
    key: &'a str,
    actor: &'a ActorId,
    roles: &'a [Role],
}

#[derive(Serialize)]
struct Keys {
    items: Vec<KeyView>,
}

#[derive(Serialize)]
struct Me<'a> {
    key_id: &'a KeyId,
    actor: &'a ActorId,
    kind: ActorKind,
    person: Option<&'a str>,
    roles: &'a [Role],
    groups: &'a [String],
    allow_observe: bool,
}

/// `GET /v1/me`
pub(super) async fn me(Caller(who): Caller) -> Answer {
    let Principal { key, actor, person, roles, groups, allow_observe } = &who;
    let (person, allow_observe) = (person.as_deref(), *allow_observe);
    let me = Me { key_id: key, actor: &actor.id, kind: actor.kind, person, roles, groups, allow_observe };
    json(StatusCode::OK, &me)
}

/// `POST /v1/keys`
pub(super) async fn create(State(edge): State<Shared>, Caller(who): Caller, body: JsonBody) -> Answer {
    let KeyRequest { actor, roles, person, groups, allow_observe, expires_at } = body.parse()?;
    let actor: ActorId = parsed("actor", &actor)?;
    let expires_at = expires_at.map(|text| instant("expires_at", &text)).transpose()?;
    let new = NewKey { actor: actor.clone(), roles: roles.clone(), person, groups, allow_observe, expires_at };
    let (key_id, key) = edge.service.create_key(&who, new).await?;
    json(StatusCode::CREATED, &KeyReply { key_id: &key_id, key: &key, actor: &actor, roles: &roles })
}

/// `GET /v1/keys`
pub(super) async fn list(State(edge): State<Shared>, Caller(who): Caller) -> Answer {
    json(StatusCode::OK, &Keys { items: edge.service.keys(&who)? })
}

/// `DELETE /v1/keys/{name}`
pub(super) async fn revoke(State(edge): State<Shared>, Caller(who): Caller, Named(key): Named) -> Answer {
    json(StatusCode::OK, &edge.service.revoke_key(&who, &key_id(&key)?).await?)
}

/// `POST /v1/keys/{name}/rotate`
pub(super) async fn rotate(State(edge): State<Shared>, Caller(who): Caller, Named(key): Named) -> Answer {
    let (key_id, key, view) = edge.service.rotate_key(&who, &key_id(&key)?).await?;
    json(StatusCode::CREATED, &KeyReply { key_id: &key_id, key: &key, actor: &view.actor, roles: &view.roles })
}

/// A text that is no key id names no key.
fn key_id(text: &str) -> Result<KeyId, Problem> {
    text.parse().map_err(|_| Problem::of(Code::KeyNotFound, "no key has this id (expected 12 to 32 of a-z 0-9)"))
}

/// RFC 3339 in UTC, with 0 to 6 digits of a second's fraction; the ledger's own form has exactly 6.
pub(super) fn instant(field: &'static str, text: &str) -> Result<Timestamp, Problem> {
    let wrong = || Problem::field(field, "expected a time in UTC like 2026-10-01T00:00:02Z");
    let head = text.strip_suffix('Z').ok_or_else(wrong)?;
    let (seconds, fraction) = head.split_once('.').unwrap_or((head, ""));
    format!("{seconds}.{fraction:0<6}Z").parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_leave_out_the_fraction() {
        let read = |text| instant("t", text).map(|time| time.to_string()).ok();
        assert_eq!(read("2026-10-01T00:00:02Z").as_deref(), Some("2026-10-01T00:00:02.000000Z"));
        assert_eq!(read("2026-10-01T00:00:02.5Z").as_deref(), Some("2026-10-01T00:00:02.500000Z"));
        assert_eq!(read("2026-10-01T00:00:02.1234567Z"), None);
        assert_eq!(read("2026-10-01T00:00:02+00:00"), None);
        assert_eq!(read("tomorrow"), None);
    }
}
