//! Readers of request parts that answer with problems instead of axum's plain text. Must not know any endpoint.
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use reversi_actors::error::Code;
use reversi_actors::service::Retry;
use reversi_proto::access::Principal;
use reversi_proto::ids::{IdError, RunId, StepNo};
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Shared;
use super::problem::{Mistake, Problem};

/// Largest body of most endpoints, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Largest body of a completion, in bytes: it carries what a tool returned.
const RESULT_BYTES_MAX: usize = 16 << 20;
/// How much of a body that is too large is read and dropped, so that its sender gets to read the answer.
const DRAIN_BYTES_MAX: usize = 32 << 20;
/// Longest piece of a request that a problem repeats, in characters.
const ECHO_CHARS_MAX: usize = 64;

/// Whoever holds the key of the request.
pub(super) struct Caller(pub(super) Principal);

impl FromRequestParts<Shared> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Shared) -> Result<Self, Problem> {
        let value = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = value.and_then(bearer).ok_or_else(|| {
            Problem::of(Code::KeyInvalid, "send an access key with the header Authorization: Bearer rvk_...")
        })?;
        Ok(Self(edge.service.authenticate(key)?))
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// The run of the path. A text that is no run id names no run.
pub(super) struct InRun(pub(super) RunId);

impl FromRequestParts<Shared> for InRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Shared) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, edge).await.map_err(|_| no_run())?;
        Ok(Self(param(&params, "run").and_then(|run| run.parse().ok()).ok_or_else(no_run)?))
    }
}

/// The run and the step of the path.
pub(super) struct InStep(pub(super) RunId, pub(super) StepNo);

impl FromRequestParts<Shared> for InStep {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Shared) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, edge).await.map_err(|_| no_run())?;
        let run = param(&params, "run").and_then(|run| run.parse().ok()).ok_or_else(no_run)?;
        let step = param(&params, "step").and_then(|step| step.parse().ok());
        let step = step.ok_or_else(|| Problem::of(Code::StepNotFound, "steps are numbered from 1"))?;
        Ok(Self(run, step))
    }
}

/// The last named part of the path that is neither a run nor a step, as text.
pub(super) struct Named(pub(super) String);

impl FromRequestParts<Shared> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, edge: &Shared) -> Result<Self, Problem> {
        let wrong = || Problem::field("path", "the name in the path is not UTF-8 text");
        let params = RawPathParams::from_request_parts(parts, edge).await.map_err(|_| wrong())?;
        param(&params, "name").map(|name| Self(name.to_owned())).ok_or_else(wrong)
    }
}

fn param<'p>(params: &'p RawPathParams, name: &str) -> Option<&'p str> {
    params.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
}

fn no_run() -> Problem {
    Problem::of(Code::RunNotFound, "no run has this id (allowed: 1 to 128 of A-Z a-z 0-9 _ . : -)")
}

/// The query string, all of it known.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let parsed = Query::<T>::try_from_uri(&parts.uri);
        parsed.map(|Query(params)| Self(params)).map_err(|rejection| {
            // The innermost error is serde's own text; the layers around it are axum's.
            let mut source: &dyn std::error::Error = &rejection;
            while let Some(inner) = source.source() {
                source = inner;
            }
            let detail = without_values(&source.to_string());
            let mistake = Mistake { field: Cow::Borrowed("query"), detail: detail.clone(), ..Mistake::default() };
            Problem::malformed(format!("the query string can't be read: {detail}"), mistake)
        })
    }
}

/// Headers of a retried request.
pub(super) struct RetryHeaders {
    key: Option<HeaderValue>,
    attempt: Option<HeaderValue>,
}

impl RetryHeaders {
    /// With the body that the key stands for.
    pub(super) fn of<'a, const MAX: usize>(&'a self, body: &'a JsonBody<MAX>) -> Retry<'a> {
        // Checked when they were taken.
        let text = |value: &'a Option<HeaderValue>| value.as_ref().and_then(|value| value.to_str().ok());
        Retry { key: text(&self.key), attempt: text(&self.attempt), body: body.text() }
    }
}

impl FromRequestParts<Shared> for RetryHeaders {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let key = one_text(&parts.headers, "idempotency-key", "Idempotency-Key")?;
        let attempt = one_text(&parts.headers, "reversi-attempt", "Reversi-Attempt")?;
        Ok(Self { key, attempt })
    }
}

/// Two values would make it a matter of taste which one counts.
fn one_text(headers: &HeaderMap, name: &str, shown: &'static str) -> Result<Option<HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::field(shown, "send this header once"));
    }
    if value.to_str().is_err() {
        return Err(Problem::field(shown, "use visible ASCII characters"));
    }
    Ok(Some(value.clone()))
}

/// A body that says it is JSON; parsed by [`JsonBody::parse`] in place, so that values can be borrowed as they came.
pub(super) struct JsonBody<const MAX: usize = BODY_BYTES_MAX> {
    bytes: Bytes,
    /// The memory that a large body takes is counted until it is gone.
    _room: Option<OwnedSemaphorePermit>,
}

/// The body of a completion.
pub(super) type ResultBody = JsonBody<RESULT_BYTES_MAX>;

impl<const MAX: usize> JsonBody<MAX> {
    /// The body as it came.
    pub(super) fn text(&self) -> &str {
        // Checked when it was read.
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// The request in it.
    pub(super) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        serde_json::from_str(self.text()).map_err(|error| json_problem(&error))
    }

    /// The request in it; an empty body asks for the defaults.
    pub(super) fn parse_or_default<'a, T: Deserialize<'a> + Default>(&'a self) -> Result<T, Problem> {
        if self.bytes.is_empty() { Ok(T::default()) } else { self.parse() }
    }
}

impl<const MAX: usize> FromRequest<Shared> for JsonBody<MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, edge: &Shared) -> Result<Self, Problem> {
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(says_json);
        let body = request.into_body();
        if body.is_end_stream() {
            return Ok(Self { bytes: Bytes::new(), _room: None });
        }
        let room = room_for(&body, MAX, edge)?;
        let read = timeout(edge.limits.body_timeout, read(body, MAX)).await;
        let bytes = read.map_err(|_| Problem::slow_body())??;
        if !is_json {
            return Err(Problem::not_json());
        }
        if let Err(error) = std::str::from_utf8(&bytes) {
            let detail = format!("the bytes from {} on are not UTF-8", error.valid_up_to());
            let mistake = Mistake { detail, ..Mistake::default() };
            return Err(Problem::malformed("the body is not JSON: it is not UTF-8 text", mistake));
        }
        Ok(Self { bytes, _room: room })
    }
}

/// Many small bodies fit into memory; of large ones, and of those that don't say how large they are, only a few.
fn room_for(body: &Body, max: usize, edge: &Shared) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let small = body.size_hint().upper().is_some_and(|bytes| bytes <= BODY_BYTES_MAX as u64);
    if small || max <= BODY_BYTES_MAX {
        return Ok(None);
    }
    Arc::clone(&edge.large_bodies).try_acquire_owned().map(Some).map_err(|_| {
        edge.counted.refused();
        Problem::of(Code::Busy, "the daemon holds as many large bodies as it may; nothing was done, so try again")
    })
}

fn says_json(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

async fn read(body: Body, max: usize) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > max as u64 {
        drain(body).await;
        return Err(Problem::too_large(max));
    }
    let mut limited = Limited::new(body, max);
    match (&mut limited).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::too_large(max)),
        Err(_) => Err(Problem::broken_body()),
    }
}

/// Reads and drops, up to a limit: a connection that is closed on unread bytes is reset, and a reset discards the answer.
async fn drain(body: Body) {
    let mut limited = Limited::new(body, DRAIN_BYTES_MAX);
    while let Some(Ok(_)) = limited.frame().await {}
}

/// What is wrong with a JSON text, without repeating a value of it.
fn json_problem(error: &serde_json::Error) -> Problem {
    let full = error.to_string();
    let text = full.rsplit_once(" at line ").map_or(full.as_str(), |(text, _)| text);
    let detail = without_values(text);
    let (line, column) = (Some(error.line()), Some(error.column()));
    let mistake = Mistake { detail: detail.clone(), line, column, ..Mistake::default() };
    let what = match error.classify() {
        Category::Data => "the body is not what this endpoint takes",
        Category::Syntax | Category::Eof | Category::Io => "the body is not valid JSON",
    };
    Problem::malformed(format!("{what}: {detail} (line {}, column {})", error.line(), error.column()), mistake)
}

/// serde's messages repeat what stood there; only names of members and what was expected are kept.
fn without_values(text: &str) -> String {
    let names_a_member = ["unknown field `", "missing field `", "duplicate field `"];
    if names_a_member.iter().any(|start| text.starts_with(start)) {
        return shorten_name(text);
    }
    let repeats_a_value = ["invalid type: ", "invalid value: ", "unknown variant `", "invalid length "];
    if !repeats_a_value.iter().any(|start| text.starts_with(start)) {
        // What is left: the parser's own fixed sentences, and those of the readers below.
        return text.to_owned();
    }
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => "a member has a wrong type or value".to_owned(),
    }
}

/// A member's name is the client's text: it is cut where it is too long to be one.
fn shorten_name(text: &str) -> String {
    let Some((start, rest)) = text.split_once('`') else { return text.to_owned() };
    let Some((name, end)) = rest.split_once('`') else { return text.to_owned() };
    let shown: String = name.chars().take(ECHO_CHARS_MAX).collect();
    format!("{start}`{shown}`{end}")
}

/// An id or a number in a member.
pub(super) fn parsed<T: std::str::FromStr<Err = IdError>>(field: &'static str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: IdError| Problem::field(field, format!("expected {}", error.allowed)))
}

/// A member that is there counts, even when it is null.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Values by name, as they came. A name that stands twice is refused: readers disagree about which one counts.
#[derive(Debug, Default)]
pub(super) struct RawMembers<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor(PhantomData))
    }
}

struct MembersVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for MembersVisitor<'a> {
    type Value = RawMembers<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = map.next_key::<Text<'a>>()? {
            members.push((key.0, map.next_value()?));
        }
        let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(A::Error::custom("an object has the same member twice"));
        }
        Ok(RawMembers(members))
    }
}

/// A text, borrowed where it holds no escape.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_serde_lose_their_values() {
        let secret = r#"invalid type: string "s3cret, expected `", expected a map"#;
        assert_eq!(without_values(secret), "expected a map");
        assert_eq!(without_values("unknown variant `s3cret`, expected `a` or `b`"), "expected `a` or `b`");
        assert_eq!(without_values("unknown variant `s3cret`"), "a member has a wrong type or value");
        assert_eq!(without_values("unknown field `x`, expected `a`"), "unknown field `x`, expected `a`");
        let long = format!("unknown field `{}`, there are no fields", "x".repeat(500));
        assert!(without_values(&long).len() < 120);
        assert_eq!(without_values("trailing comma"), "trailing comma");
    }

    #[test]
    fn every_message_of_a_wrong_member_is_free_of_its_value() {
        #[derive(Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code)]
        struct Wanted<'a> {
            text: Option<String>,
            number: Option<u32>,
            flag: Option<bool>,
            list: Option<Vec<u32>>,
            mode: Option<reversi_proto::event::v1::Mode>,
            #[serde(borrow, default)]
            members: RawMembers<'a>,
        }
        for member in ["text", "number", "flag", "list", "mode", "members"] {
            for value in [r#""s3cret""#, "31337.5", "-31337", r#"["s3cret"]"#, r#"{"s3cret":31337}"#] {
                let text = format!(r#"{{"{member}":{value}}}"#);
                if let Err(error) = serde_json::from_str::<Wanted<'_>>(&text) {
                    let shown = format!("{:?}", json_problem(&error));
                    assert!(!shown.contains("s3cret") && !shown.contains("31337"), "{text}: {shown}");
                }
            }
        }
    }

    #[test]
    fn a_member_that_stands_twice_is_refused() {
        let twice = serde_json::from_str::<RawMembers<'_>>(r#"{"a":1,"\u0061":2}"#);
        assert!(twice.unwrap_err().to_string().contains("twice"));
        let once: RawMembers<'_> = serde_json::from_str(r#"{"a": 1.0 ,"b":null}"#).unwrap();
        assert_eq!((once.0[0].1.get(), once.0[1].1.get()), ("1.0", "null"));
    }

    #[test]
    fn keys_come_as_bearers() {
        assert_eq!(bearer("Bearer rvk_x"), Some("rvk_x"));
        assert_eq!(bearer("bearer  rvk_x "), Some("rvk_x"));
        assert_eq!(bearer("Basic rvk_x"), None);
        assert_eq!(bearer("rvk_x"), None);
    }
}
