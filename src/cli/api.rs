//! The daemon over HTTP: where it is, which key opens it, requests and refusals. Must not know what an answer means.
use std::fmt::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer, from the request's first byte to the last of the body. Exports have no such limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A silence of this length ends an export.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the daemon is and who asks.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ServerArgs {
    /// Where the daemon answers
    #[arg(
        long,
        value_name = "URL",
        env = "REVERSI_URL",
        default_value = "http://127.0.0.1:7421",
        global = true,
        help_heading = "Daemon"
    )]
    url: String,
    /// File that holds the key (mode 0600), like `DATA/admin.key`; `REVERSI_KEY` is used without it
    #[arg(long, value_name = "FILE", global = true, help_heading = "Daemon")]
    key_file: Option<PathBuf>,
    /// Send the key unencrypted to another machine
    #[arg(long, global = true, help_heading = "Daemon")]
    allow_plain_http: bool,
}

/// A daemon that can be asked.
pub(super) struct Api {
    base: Url,
    key: String,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

impl Api {
    pub(super) fn new(args: &ServerArgs) -> Result<Self, Failure> {
        let base = base_url(&args.url, args.allow_plain_http)?;
        let key = match &args.key_file {
            Some(file) => key_from_file(file)?,
            None => std::env::var("REVERSI_KEY").unwrap_or_default().trim().to_owned(),
        };
        if key.is_empty() {
            let text = "no key was given: set REVERSI_KEY, or name the file that holds one with --key-file (the daemon \
                        writes the first one to admin.key in its data directory)";
            return Err(Failure::Usage(text.to_owned()));
        }
        // Two of them would be one too many, and the first one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("reversi-cli/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| Failure::Internal(format!("no HTTP client can be made: {error}")))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Internal(format!("the runtime can't be started: {error}")))?;
        Ok(Self { base, key, client, runtime })
    }

    /// Asks for something; `path` starts behind `/v1`.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<(Value, T), Failure> {
        self.json(Method::GET, path, None)
    }

    /// Asks for something to be done.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<(Value, T), Failure> {
        let body = serde_json::to_string(body)
            .map_err(|error| Failure::Internal(format!("the request has no JSON form: {error}")))?;
        self.json(Method::POST, path, Some(body))
    }

    /// Asks for a text.
    pub(super) fn text(&self, path: &str) -> Result<String, Failure> {
        self.runtime.block_on(async {
            let response = self.send(Method::GET, path, None, Some(ANSWER_TIMEOUT)).await?;
            response.text().await.map_err(|error| self.lost(&error))
        })
    }

    /// Asks for something long, and hands it on as it comes.
    pub(super) fn stream(&self, path: &str, mut on: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let mut response = self.send(Method::GET, path, None, None).await?;
            let broken =
                |error| Failure::Unreachable(format!("{}: the answer broke off ({})", self.base, root(&error)));
            while let Some(chunk) = response.chunk().await.map_err(broken)? {
                on(&chunk)?;
            }
            Ok(())
        })
    }

    /// The answer as it came, for scripts, and as what it should be.
    fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(Value, T), Failure> {
        let text = self.runtime.block_on(async {
            let response = self.send(method, path, body, Some(ANSWER_TIMEOUT)).await?;
            response.text().await.map_err(|error| self.lost(&error))
        })?;
        let unreadable = |error: serde_json::Error| {
            let text = "the answer is not what this version expects; is the daemon of another version?";
            Failure::Internal(format!("{text} ({error})"))
        };
        let value: Value = serde_json::from_str(&text).map_err(unreadable)?;
        let typed = T::deserialize(&value).map_err(unreadable)?;
        Ok((value, typed))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        timeout: Option<Duration>,
    ) -> Result<Response, Failure> {
        let url = format!("{}/v1{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.header("Idempotency-Key", request_key()?);
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        }
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            let text = "the answer is a redirect, which is not followed because it could lead the key elsewhere: give \
                        the daemon's own address";
            return Err(Failure::Input(format!("{}: {text}", self.base)));
        }
        Err(refused(status, &response.text().await.unwrap_or_default()))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let base = &self.base;
        if error.is_builder() {
            return Failure::Usage("the key holds characters that no key has".to_owned());
        }
        if error.is_connect() {
            let advice = "is it running? Start it with `reversi serve`, or give its address with --url or REVERSI_URL";
            return Failure::Unreachable(format!("the daemon can't be reached at {base} ({}): {advice}", root(error)));
        }
        self.lost(error)
    }

    fn lost(&self, error: &reqwest::Error) -> Failure {
        let (base, why) = (&self.base, root(error));
        let text =
            "the answer got lost, so it is not known whether the request was carried out: look before asking again";
        Failure::Unreachable(format!("{base}: {text} ({why})"))
    }
}

/// The innermost cause: reqwest's own words only repeat the URL.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A request of this process: the daemon does it once, however often the network repeats it.
fn request_key() -> Result<String, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::Internal(format!("the system gives no random bytes: {error}")))?;
    Ok(format!("cli-{}", reversi_proto::hash::hex(&random)))
}

/// An error answer: a problem (RFC 9457) of the daemon, or whatever stands in its place.
fn refused(status: StatusCode, body: &str) -> Failure {
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    let member = |name: &str| problem[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let name = status.canonical_reason().unwrap_or("an error");
    let detail = member("detail").or_else(|| member("title"));
    let mut detail = detail.unwrap_or_else(|| {
        format!("the answer was {} ({name}) and no answer of a Reversi daemon; is --url right?", status.as_u16())
    });
    for error in problem["errors"].as_array().into_iter().flatten() {
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let (field, more) = (text("field"), text("detail"));
        // Writing into a String can't fail.
        if error["file"].is_string() {
            let _ = write!(detail, "\n  {}", in_file(error));
        } else if !more.is_empty() && !detail.contains(&more) {
            let _ = write!(detail, "\n  {field}: {more}");
        }
    }
    Failure::Refused { status: status.as_u16(), code: member("code"), detail, request_id: member("request_id") }
}

/// A mistake in one of the daemon's files, as the commands that read files themselves show it.
fn in_file(error: &Value) -> String {
    let text = |name: &str| error[name].as_str().filter(|text| !text.is_empty());
    let mut line = text("file").unwrap_or_default().to_owned();
    if let (Some(at), Some(column)) = (error["line"].as_u64(), error["column"].as_u64()) {
        let _ = write!(line, ":{at}:{column}");
    }
    for more in [text("field"), text("detail")].into_iter().flatten() {
        let _ = write!(line, ": {more}");
    }
    if let Some(hint) = text("hint") {
        let _ = write!(line, " ({hint})");
    }
    line
}

/// Keys cross other networks than this machine's own only encrypted.
fn base_url(text: &str, allow_plain: bool) -> Result<Url, Failure> {
    let wrong = |why: &str| Failure::Usage(format!("--url {text}: {why}"));
    let url: Url = text.parse().map_err(|_| wrong("this is no URL; give one like http://127.0.0.1:7421"))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("give scheme, host and port only; the key comes from REVERSI_KEY or --key-file"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_plain || is_loopback(&url) => Ok(url),
        "http" => Err(wrong("the key would cross the network unencrypted; use https, or say --allow-plain-http")),
        _ => Err(wrong("the scheme must be http or https")),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A key that others can read is not one any more.
fn key_from_file(path: &Path) -> Result<String, Failure> {
    let mode = std::fs::metadata(path).map_err(|error| Failure::io("read", path, &error))?.permissions().mode();
    if mode & 0o077 != 0 {
        let text = "others can read this key file; make it yours alone";
        return Err(Failure::Input(format!("{0}: {text}: chmod 600 {0}", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io("read", path, &error))?;
    match text.trim() {
        key if key.starts_with("rvk_") && !key.contains(char::is_whitespace) => Ok(key.to_owned()),
        _ => Err(Failure::Input(format!("{} holds no key; a key starts with rvk_", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine() {
        for url in ["http://127.0.0.1:7421", "http://localhost", "http://[::1]:80", "https://reversi.example"] {
            assert!(base_url(url, false).is_ok(), "{url}");
        }
        for url in
            ["http://192.168.0.1", "http://127.0.0.1.example.com", "ftp://localhost", "http://u:p@localhost", "x"]
        {
            assert!(matches!(base_url(url, false), Err(Failure::Usage(_))), "{url}");
        }
        assert!(base_url("http://reversi.internal:7421", true).is_ok());
    }

    #[test]
    fn a_problem_becomes_a_sentence() {
        let body = r#"{"code":"run.not_found","detail":"run x does not exist","request_id":"req_1",
                       "errors":[{"field":"limit","detail":"expected 1 to 200"}]}"#;
        let Failure::Refused { status, code, detail, .. } = refused(StatusCode::NOT_FOUND, body) else { panic!() };
        assert_eq!((status, code.as_deref()), (404, Some("run.not_found")));
        assert_eq!(detail, "run x does not exist\n  limit: expected 1 to 200");
        let Failure::Refused { code, detail, .. } = refused(StatusCode::BAD_GATEWAY, "<html>") else { panic!() };
        assert_eq!(code, None);
        assert!(detail.contains("502 (Bad Gateway)"), "{detail}");
    }
}
