//! A daemon in a temporary folder and a client for it.
use std::path::Path;

use reqwest::{Client, Method, StatusCode, header::HeaderMap};
use reversi::app::{ADMIN_KEY_FILE, App, Options};
use reversi::config::Config;
use reversi::http::{Http, Limits, Serve, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

const MANIFESTS: &str = r#"
- { tool: crm.read, description: Read., effect: read_only, permission: "crm:read" }
- tool: crm.create
  description: Create.
  effect: compensable
  permission: crm:write
  idempotency: { key: "{{args.order}}", scope: global }
  compensation:
    tool: crm.delete
    kind: compensation
    residue: [the number is used up]
    argument_map: { id: $result.id, order: $args.order }
- { tool: crm.delete, description: Delete., effect: idempotent, permission: "crm:write" }
- { tool: mail.send, description: Send., effect: irreversible, permission: "mail:send", owner: a@b.example, oncall: x }
"#;

pub(crate) const PERMISSIONS: [&str; 3] = ["crm:read", "crm:write", "mail:send"];

/// A value that must never come back.
pub(crate) const MARK: &str = "m4rked-value";

pub(crate) struct Daemon {
    pub(crate) base: String,
    pub(crate) client: Client,
    pub(crate) admin: String,
    pub(crate) agent: String,
    pub(crate) operator: String,
    app: App,
    folder: TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    /// The body, of an answer with this status.
    #[track_caller]
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }

    /// The body of a problem with this status and code; checks what every problem must have.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.json(status);
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(body["status"], status);
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        assert_eq!(body["type"], format!("https://reversi.dev/errors/{code}"));
        assert!(!body["title"].as_str().unwrap().is_empty() && !body["detail"].as_str().unwrap().is_empty());
        assert!(!self.text.contains(MARK), "{body}");
        body
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Daemon {
    pub(crate) async fn start() -> Self {
        Self::start_with(Limits::default(), |_| {}).await
    }

    pub(crate) async fn start_with(limits: Limits, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("manifests")).unwrap();
        std::fs::write(folder.path().join("manifests/tools.yaml"), MANIFESTS).unwrap();
        let (app, base) = Self::boot(folder.path(), limits, change).await;
        let admin = std::fs::read_to_string(folder.path().join("reversi-data").join(ADMIN_KEY_FILE)).unwrap();
        let client = client();
        let mut daemon = Self {
            base,
            client,
            admin: admin.trim().to_owned(),
            agent: String::new(),
            operator: String::new(),
            app,
            folder,
        };
        daemon.agent = daemon.new_key("bot-1", "agent").await;
        daemon.operator = daemon.new_key("olga", "operator").await;
        daemon
    }

    async fn boot(folder: &Path, limits: Limits, change: impl FnOnce(&mut Config)) -> (App, String) {
        let mut config = Config::defaults(folder);
        config.listen = "127.0.0.1:0".parse().unwrap();
        change(&mut config);
        let app = App::start(config, Options { limits, ..Options::default() }).await.unwrap();
        let base = format!("http://{}", app.addr());
        (app, base)
    }

    /// Stops and starts again on the same folder.
    pub(crate) async fn restart(self) -> Self {
        let Self { client, admin, agent, operator, app, folder, .. } = self;
        app.run_until(async {}).await.unwrap();
        let (app, base) = Self::boot(folder.path(), Limits::default(), |_| {}).await;
        Self { base, client, admin, agent, operator, app, folder }
    }

    pub(crate) async fn stop(self) {
        self.app.run_until(async {}).await.unwrap();
    }

    /// The same daemon behind another listener with limits of its own.
    pub(crate) async fn listen(&self, limits: Limits) -> Server {
        let any = "127.0.0.1:0".parse().unwrap();
        Http::new(self.app.service(), self.app.reloader(), limits).listen(any, Serve::Everything).await.unwrap()
    }

    pub(crate) fn data_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("reversi-data")
    }

    pub(crate) fn service(&self) -> reversi_actors::service::Service {
        self.app.service()
    }

    pub(crate) fn manifests_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("manifests")
    }

    pub(crate) async fn new_key(&self, actor: &str, role: &str) -> String {
        let body = json!({"actor": actor, "roles": [role], "person": actor});
        let made = self.post("/v1/keys", &self.admin, &body).await.json(201);
        made["key"].as_str().unwrap().to_owned()
    }

    pub(crate) fn request(&self, method: &str, path: &str, key: &str) -> reqwest::RequestBuilder {
        let method: Method = method.parse().unwrap();
        let request = self.client.request(method, format!("{}{path}", self.base));
        if key.is_empty() { request } else { request.bearer_auth(key) }
    }

    pub(crate) async fn get(&self, path: &str, key: &str) -> Reply {
        Reply::of(self.request("GET", path, key).send().await.unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, key: &str, body: &Value) -> Reply {
        Reply::of(self.request("POST", path, key).json(body).send().await.unwrap()).await
    }

    /// A body as it stands.
    pub(crate) async fn post_text(&self, path: &str, key: &str, body: impl Into<reqwest::Body>) -> Reply {
        let request = self.request("POST", path, key).header("content-type", "application/json");
        Reply::of(request.body(body).send().await.unwrap()).await
    }

    pub(crate) async fn post_retry(&self, path: &str, body: &Value, key: &str, attempt: Option<&str>) -> Reply {
        let mut request = self.request("POST", path, &self.agent).header("Idempotency-Key", key).json(body);
        if let Some(attempt) = attempt {
            request = request.header("Reversi-Attempt", attempt);
        }
        Reply::of(request.send().await.unwrap()).await
    }

    /// A run of the agent, and the path of its steps.
    pub(crate) async fn new_run(&self, run: &str) -> String {
        let body = json!({"run_id": run, "permissions": PERMISSIONS});
        self.post("/v1/runs", &self.agent, &body).await.json(201);
        format!("/v1/runs/{run}/steps")
    }
}

pub(crate) fn client() -> Client {
    // The provider is the process's; a second installation changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

pub(crate) fn create(order: &str) -> Value {
    json!({"tool": "crm.create", "reason": "a test", "args": {"order": order}})
}

pub(crate) fn read() -> Value {
    json!({"tool": "crm.read", "reason": "a test", "args": {}})
}
