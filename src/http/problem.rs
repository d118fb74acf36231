//! Problems (RFC 9457): what went wrong, as a status, a stable code and a sentence. The one place that maps codes to
//! statuses. A problem must never hold an argument value or a secret.
use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reversi_actors::error::{Code, Kind, ServiceError};
use reversi_proto::manifest::Diagnostic;
use serde::Serialize;

/// Where each code is explained.
const TYPE_BASE: &str = "https://reversi.dev/errors/";
/// After how many seconds a request that found no room is worth another try.
const RETRY_AFTER_SECONDS: &str = "1";

/// One thing that is wrong with a request, or with a file that it makes the daemon read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Mistake {
    /// The file, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    /// The member, header or parameter, or the place in the file; empty for the whole body or file.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) field: Cow<'static, str>,
    /// What is wrong.
    pub(super) detail: String,
    /// What kind of mistake, if kinds are told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'static str>,
    /// What to do about it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
    /// Where in the body or file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<usize>,
    /// Where in the line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) column: Option<usize>,
}

impl From<&Diagnostic> for Mistake {
    fn from(diagnostic: &Diagnostic) -> Self {
        let Diagnostic { source, line, column, path, code, message, hint } = diagnostic;
        let known = |n: u32| usize::try_from(n).ok().filter(|n| *n > 0);
        Self {
            file: Some(source.clone()),
            field: Cow::Owned(path.clone()),
            detail: message.clone(),
            code: Some(code.as_str()),
            hint: hint.clone(),
            line: known(*line),
            column: known(*column),
        }
    }
}

/// An answer that is an error. It travels in the response's extensions until `request.rs` renders it, because only there
/// the request's id is known.
#[derive(Debug, Clone)]
pub(super) struct Problem(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    status: StatusCode,
    code: &'static str,
    detail: Cow<'static, str>,
    errors: Vec<Mistake>,
}

#[derive(Serialize)]
struct Rendered<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [Mistake],
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner { status, code, detail: detail.into(), errors: Vec::new() }))
    }

    /// A code of the service's table.
    pub(super) fn of(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status_of(code.kind()), code.as_str(), detail)
    }

    /// A code of the service's table, with everything that is wrong.
    pub(super) fn with_errors(code: Code, detail: impl Into<Cow<'static, str>>, errors: Vec<Mistake>) -> Self {
        let mut problem = Self::of(code, detail);
        problem.0.errors = errors;
        problem
    }

    /// 400: not what the endpoint takes.
    pub(super) fn malformed(detail: impl Into<Cow<'static, str>>, mistake: Mistake) -> Self {
        let mut problem = Self::of(Code::RequestMalformed, detail);
        problem.0.errors.push(mistake);
        problem
    }

    /// 400: one member, parameter or header is not what it must be.
    pub(super) fn field(field: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let mistake = Mistake { field: Cow::Borrowed(field), detail: detail.clone(), ..Mistake::default() };
        Self::malformed(format!("{field}: {detail}"), mistake)
    }

    /// 413.
    pub(super) fn too_large(limit: usize) -> Self {
        let detail = format!(
            "the body is larger than {limit} bytes; a large result is left out with result_omitted and result_values"
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body.too_large", detail)
    }

    /// 415.
    pub(super) fn not_json() -> Self {
        let detail = "send the body as JSON, with the header Content-Type: application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "body.not_json", detail)
    }

    /// 408.
    pub(super) fn slow_body() -> Self {
        let detail = "the body did not arrive in time; nothing was done, so send the request again";
        Self::new(StatusCode::REQUEST_TIMEOUT, "body.slow", detail)
    }

    /// The connection broke while the body arrived; nobody is likely to read this.
    pub(super) fn broken_body() -> Self {
        Self::of(Code::RequestMalformed, "the body ended early; nothing was done, so send the request again")
    }

    pub(super) fn code(&self) -> &'static str {
        self.0.code
    }

    /// The response, with everything that depends on the status.
    pub(super) fn render(&self, request_id: &str) -> Response {
        let Inner { status, code, detail, errors } = &*self.0;
        let title = status.canonical_reason().unwrap_or("Error");
        let r#type = format!("{TYPE_BASE}{code}");
        let rendered = Rendered { r#type, title, status: status.as_u16(), detail, code, request_id, errors };
        // A struct of texts and numbers always has a JSON form.
        let body = serde_json::to_vec(&rendered).unwrap_or_default();
        let mut response = (*status, Body::from(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if *status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"reversi\""));
        }
        if *status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.0.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        Self::of(error.code, error.detail)
    }
}

/// The table: what a caller can do -> HTTP status.
fn status_of(kind: Kind) -> StatusCode {
    match kind {
        Kind::Malformed => StatusCode::BAD_REQUEST,
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Locked => StatusCode::LOCKED,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// 404 of the router.
pub(super) async fn no_route() -> Problem {
    let detail = "no endpoint has this path; the endpoints are under /v1, see the HTTP page of the documentation";
    Problem::new(StatusCode::NOT_FOUND, "route.not_found", detail)
}

/// 405 of the router, which adds the header Allow.
pub(super) async fn no_method(method: Method) -> Problem {
    // An unknown method is the client's text; only the usual ones are repeated.
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
    let name = if known.contains(&method) { method.as_str() } else { "this" };
    let detail = format!("the endpoint does not take the method {name}; the header Allow names those it takes");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method.not_allowed", detail)
}
