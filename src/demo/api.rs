//! A small client of the daemon's HTTP interface, for the demo and for tests that start a real daemon.
use anyhow::{Context, bail};
use serde_json::Value;

/// One key's view of a daemon.
#[derive(Clone)]
pub struct Api {
    base: String,
    key: String,
    http: reqwest::Client,
}

/// Status and body of an answer.
pub type Answer = (u16, Value);

impl Api {
    /// A client that shows `key` to the daemon at `base`, like `http://127.0.0.1:7421`.
    pub fn new(base: &str, key: &str) -> anyhow::Result<Self> {
        // reqwest wants a provider even where only plain http is spoken; a second installation is harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { base: base.to_owned(), key: key.to_owned(), http })
    }

    /// The key, to show it to another daemon on the same data.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// GET, whatever the status.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let request = self.http.get(format!("{}{path}", self.base));
        self.send(request).await
    }

    /// GET of a text.
    pub async fn text(&self, path: &str) -> anyhow::Result<String> {
        let request = self.http.get(format!("{}{path}", self.base)).bearer_auth(&self.key);
        Ok(request.send().await?.error_for_status()?.text().await?)
    }

    /// POST, whatever the status; `headers` beside the key.
    pub async fn post(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
        let mut request = self.http.post(format!("{}{path}", self.base)).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }

    /// POST that must succeed.
    pub async fn must(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        match self.post(path, body, &[]).await? {
            (200..300, body) => Ok(body),
            (status, body) => bail!("POST {path} answered {status}: {body}"),
        }
    }

    /// GET that must succeed.
    pub async fn read(&self, path: &str) -> anyhow::Result<Value> {
        match self.get(path).await? {
            (200..300, body) => Ok(body),
            (status, body) => bail!("GET {path} answered {status}: {body}"),
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Answer> {
        let response = request.bearer_auth(&self.key).send().await.context("the daemon does not answer")?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        let body =
            if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(Value::String(text)) };
        Ok((status, body))
    }

    /// Makes a key of a role and gives its client. Needs an admin's key.
    pub async fn with_role(&self, actor: &str, role: &str) -> anyhow::Result<Self> {
        let body = serde_json::json!({ "actor": actor, "roles": [role] });
        let made = self.must("/v1/keys", &body).await?;
        Self::new(&self.base, made["key"].as_str().context("the answer holds no key")?)
    }
}
