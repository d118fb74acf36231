//! The daemon over HTTP: where it is, which key opens it, requests and refusals. The one place that says in which order
//! address and key are looked for: command line, environment, profile. Must not know what an answer means.
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use reqwest::{Method, Response, StatusCode, Url};
use reversi_proto::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;
use super::profile::{self, Profile};

/// Where a daemon answers that was told nothing.
const URL_DEFAULT: &str = "http://127.0.0.1:7421";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer, from the request's first byte to the last of the body. Exports have no such limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A silence of this length ends an export.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the daemon is and who asks.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ServerArgs {
    /// Where the daemon answers; else the profile's, else <http://127.0.0.1:7421>
    #[arg(long, value_name = "URL", env = "REVERSI_URL", global = true, help_heading = "Daemon")]
    url: Option<String>,
    /// File that holds the key (mode 0600), like `DATA/admin.key`; else `REVERSI_KEY`, else the profile's
    #[arg(long, value_name = "FILE", global = true, help_heading = "Daemon")]
    pub(super) key_file: Option<PathBuf>,
    /// Send the key unencrypted to another machine
    #[arg(long, global = true, help_heading = "Daemon")]
    pub(super) allow_plain_http: bool,
}

impl ServerArgs {
    /// The address, if one was given.
    fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    /// The address to log in at: the profile has no say in what replaces it.
    pub(super) fn login_url(&self) -> &str {
        self.url().unwrap_or(URL_DEFAULT)
    }
}

/// Which daemon, by which key.
struct Found {
    base: Url,
    key: String,
    /// For people: where the key was found.
    key_from: String,
}

/// Command line, environment, profile, in this order, for each of the two.
fn find(args: &ServerArgs) -> Result<Found, Failure> {
    let key = match &args.key_file {
        Some(file) => Some((key_from_file(file)?, file.display().to_string())),
        None => key_from_env().map(|key| (key, "REVERSI_KEY".to_owned())),
    };
    let profile = if args.url().is_none() || key.is_none() { profile::load()? } else { None };
    choose(args, key, profile)
}

fn choose(args: &ServerArgs, key: Option<(String, String)>, profile: Option<Profile>) -> Result<Found, Failure> {
    let home = profile.as_ref().map(|profile| base_url("the profile's url", &profile.url, true)).transpose()?;
    let base = match (args.url(), &profile, &home) {
        (Some(url), ..) => {
            // What was agreed to at the login needs no second word.
            let agreed = profile.as_ref().is_some_and(|profile| profile.allow_plain_http);
            let known = agreed && base_url("--url", url, true).ok() == home;
            base_url("--url", url, args.allow_plain_http || known)?
        }
        (None, Some(profile), _) => {
            base_url("the profile's url", &profile.url, args.allow_plain_http || profile.allow_plain_http)?
        }
        (None, None, _) => base_url("--url", URL_DEFAULT, false)?,
    };
    match (key, profile) {
        (Some((key, key_from)), _) => Ok(Found { base, key, key_from }),
        (None, Some(profile)) if home.as_ref() == Some(&base) => {
            Ok(Found { base, key: profile.key, key_from: "the profile".to_owned() })
        }
        // A key that is sent to another daemon than its own is that daemon's key from then on.
        (None, Some(profile)) => Err(Failure::Usage(format!(
            "the key in the profile is for {} and is not sent to {base}: name the file of a key for that daemon with \
             --key-file, set REVERSI_KEY, or log in there with `reversi login`",
            profile.url
        ))),
        (None, None) => {
            let text = "no key was given: set REVERSI_KEY, or name the file that holds one with --key-file (the daemon \
                        writes the first one to admin.key in its data directory), or keep one with `reversi login`";
            Err(Failure::Usage(text.to_owned()))
        }
    }
}

fn key_from_env() -> Option<String> {
    let key = std::env::var("REVERSI_KEY").unwrap_or_default().trim().to_owned();
    Some(key).filter(|key| !key.is_empty())
}

/// A daemon that can be asked.
pub(super) struct Api {
    base: Url,
    key: String,
    key_from: String,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    /// The daemon's clock, as its last answer told it: deadlines are its instants, not this machine's.
    now: Cell<Option<Timestamp>>,
}

impl Api {
    pub(super) fn new(args: &ServerArgs) -> Result<Self, Failure> {
        Self::open(find(args)?)
    }

    /// With what is about to become the profile.
    pub(super) fn of_profile(profile: &Profile) -> Result<Self, Failure> {
        let base = base_url("--url", &profile.url, profile.allow_plain_http)?;
        Self::open(Found { base, key: profile.key.clone(), key_from: "the profile".to_owned() })
    }

    fn open(Found { base, key, key_from }: Found) -> Result<Self, Failure> {
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
        Ok(Self { base, key, key_from, client, runtime, now: Cell::new(None) })
    }

    /// What the daemon's clock showed when it answered last, to the second.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.now.get()
    }

    /// Where the daemon is.
    pub(super) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Where the key was found.
    pub(super) fn key_from(&self) -> &str {
        &self.key_from
    }

    /// Is that the public half of the key that is used?
    pub(super) fn uses_key(&self, id: &str) -> bool {
        self.key.strip_prefix("rvk_").and_then(|rest| rest.split_once('_')).is_some_and(|(own, _)| own == id)
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

    /// Asks for something to be gone.
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<(Value, T), Failure> {
        self.json(Method::DELETE, path, None)
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
        let url = format!("{}/v1{path}", self.base());
        let mut request = self.client.request(method, url).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.header("Idempotency-Key", request_key()?);
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        }
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let date = response.headers().get(reqwest::header::DATE).and_then(|date| date.to_str().ok());
        self.now.set(date.and_then(instant).or(self.now.get()));
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

/// Of the header Date.
fn instant(date: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok().map(Timestamp::from_micros)
}

/// One part of a path. `.` and `..` are steps of the path for every URL library.
pub(super) fn segment(text: &str) -> Result<String, Failure> {
    if matches!(text, "" | "." | "..") {
        return Err(Failure::Usage(format!("something named {text:?} can't be addressed over HTTP")));
    }
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing into a String can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Ok(escaped)
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
fn base_url(name: &str, text: &str, allow_plain: bool) -> Result<Url, Failure> {
    let wrong = |why: &str| Failure::Usage(format!("{name} {text}: {why}"));
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
pub(super) fn key_from_file(path: &Path) -> Result<String, Failure> {
    let text = read_private(path, "key file")?.ok_or_else(|| {
        let none = std::io::Error::from(std::io::ErrorKind::NotFound);
        Failure::io("read", path, &none)
    })?;
    key_of(&text).ok_or_else(|| Failure::Input(format!("{} holds no key; a key starts with rvk_", path.display())))
}

/// The text without what surrounds a key in files; None if it is not one.
pub(super) fn key_of(text: &str) -> Option<String> {
    let key = text.trim();
    (key.starts_with("rvk_") && key.bytes().all(|byte| byte.is_ascii_graphic())).then(|| key.to_owned())
}

/// A file that nobody else may read; None if there is none.
pub(super) fn read_private(path: &Path, what: &str) -> Result<Option<String>, Failure> {
    let failed = |error: &std::io::Error| Failure::io("read", path, error);
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    // Of the open file: the name could lead to another one by now.
    let mode = file.metadata().map_err(|error| failed(&error))?.permissions().mode();
    if mode & 0o077 != 0 {
        let path = path.display();
        let text = format!("{path}: others can read this {what}; make it yours alone: chmod 600 {path}");
        return Err(Failure::Input(text));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| failed(&error))?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine() {
        for url in ["http://127.0.0.1:7421", "http://localhost", "http://[::1]:80", "https://reversi.example"] {
            assert!(base_url("--url", url, false).is_ok(), "{url}");
        }
        for url in
            ["http://192.168.0.1", "http://127.0.0.1.example.com", "ftp://localhost", "http://u:p@localhost", "x"]
        {
            assert!(matches!(base_url("--url", url, false), Err(Failure::Usage(_))), "{url}");
        }
        assert!(base_url("--url", "http://reversi.internal:7421", true).is_ok());
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

    fn args(url: Option<&str>) -> ServerArgs {
        ServerArgs { url: url.map(str::to_owned), key_file: None, allow_plain_http: false }
    }

    fn profile(url: &str, allow_plain_http: bool) -> Profile {
        Profile { url: url.to_owned(), key: "rvk_mine".to_owned(), allow_plain_http }
    }

    #[test]
    fn the_command_line_comes_before_the_profile_and_the_default_last() {
        let found = |url, key: Option<&str>, profile| {
            let key = key.map(|key| (key.to_owned(), "REVERSI_KEY".to_owned()));
            choose(&args(url), key, profile).map(|found| (found.base.to_string(), found.key))
        };
        let is = |url: &str, key: &str| (url.to_owned(), key.to_owned());
        let home = || Some(profile("https://reversi.example", false));
        assert_eq!(found(None, Some("rvk_env"), None).unwrap(), is("http://127.0.0.1:7421/", "rvk_env"));
        assert_eq!(found(None, None, home()).unwrap(), is("https://reversi.example/", "rvk_mine"));
        assert_eq!(found(None, Some("rvk_env"), home()).unwrap(), is("https://reversi.example/", "rvk_env"));
        let other = Some("https://other.example");
        assert_eq!(found(other, Some("rvk_env"), home()).unwrap(), is("https://other.example/", "rvk_env"));
        assert_eq!(found(Some("https://reversi.example/"), None, home()).unwrap().1, "rvk_mine");
        assert!(matches!(found(None, None, None), Err(Failure::Usage(_))));
    }

    #[test]
    fn the_profiles_key_goes_to_no_other_daemon() {
        for url in ["https://reversi.example.evil", "https://reversi.example:444", "http://127.0.0.1:7421"] {
            let told = choose(&args(Some(url)), None, Some(profile("https://reversi.example", false))).err().unwrap();
            assert!(told.to_string().contains("is not sent to"), "{told}");
        }
    }

    #[test]
    fn plain_http_to_another_machine_is_agreed_to_once_a_login() {
        let plain = "http://10.0.0.1:7421";
        assert!(choose(&args(None), None, Some(profile(plain, true))).is_ok());
        assert!(choose(&args(Some(plain)), None, Some(profile(plain, true))).is_ok());
        assert!(choose(&args(None), None, Some(profile(plain, false))).is_err());
        assert!(choose(&args(Some("http://10.0.0.2:7421")), None, Some(profile(plain, true))).is_err());
    }

    #[test]
    fn names_are_one_part_of_a_path() {
        assert_eq!(segment("fin/ance \u{e9}?").unwrap(), "fin%2Fance%20%C3%A9%3F");
        assert!(segment("..").is_err() && segment("").is_err());
    }

    #[test]
    fn the_daemons_clock_is_read_from_its_answers() {
        let read = |text| instant(text).map(|at| at.to_string());
        assert_eq!(read("Thu, 01 Oct 2026 00:00:02 GMT").as_deref(), Some("2026-10-01T00:00:02.000000Z"));
        assert_eq!(read("soon"), None);
    }
}
