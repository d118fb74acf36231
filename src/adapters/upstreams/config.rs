//! How upstreams are configured. Knows no process and no connection.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// One MCP server: a program (`command`) or an address (`url`).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// Name in reports and logs.
    pub name: String,
    /// Program of a stdio server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// What its environment holds beside PATH, HOME and the like; the daemon's own environment isn't passed on.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Address of a streamable HTTP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Put before the server's tool names: with `memory.`, its `create_relations` is `memory.create_relations` here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

impl fmt::Debug for UpstreamConfig {
    /// Without the values of arguments and environment, which can be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, command, args, env, url, prefix } = self;
        f.debug_struct("UpstreamConfig")
            .field("name", name)
            .field("command", command)
            .field("args", &args.len())
            .field("env", &env.keys().collect::<Vec<_>>())
            .field("url", &url.is_some())
            .field("prefix", prefix)
            .finish()
    }
}

/// Why upstreams can't be started.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Names tell upstreams apart.
    #[error("two upstreams are named {name:?}: give each a name of its own")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The name can't be shown or filed.
    #[error("invalid upstream name {name:?} (allowed: 1 to 64 of A-Z a-z 0-9 _ -)")]
    BadName {
        /// The name.
        name: String,
    },
    /// It must be clear how to reach it.
    #[error("upstream {name:?} needs either a command or a url, got {got}")]
    CommandOrUrl {
        /// The upstream.
        name: String,
        /// What it has.
        got: &'static str,
    },
    /// Not an address that can be called.
    #[error("upstream {name:?} has an invalid url (expected http:// or https:// and a host)")]
    BadUrl {
        /// The upstream.
        name: String,
    },
    /// Arguments and environment are a program's.
    #[error("upstream {name:?} has a url, so its args and env would be ignored: remove them")]
    UnusedFields {
        /// The upstream.
        name: String,
    },
}

/// Checks everything that can be known without connecting.
pub(super) fn check(configs: &[UpstreamConfig]) -> Result<(), UpstreamError> {
    let mut names = BTreeSet::new();
    for config in configs {
        let name = config.name.clone();
        if !(1..=64).contains(&name.len())
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        {
            return Err(UpstreamError::BadName { name });
        }
        if !names.insert(&config.name) {
            return Err(UpstreamError::DuplicateName { name });
        }
        match (&config.command, &config.url) {
            (Some(_), None) => {}
            (None, Some(url)) => check_url(config, url)?,
            (Some(_), Some(_)) => return Err(UpstreamError::CommandOrUrl { name, got: "both" }),
            (None, None) => return Err(UpstreamError::CommandOrUrl { name, got: "neither" }),
        }
    }
    Ok(())
}

fn check_url(config: &UpstreamConfig, url: &str) -> Result<(), UpstreamError> {
    let name = config.name.clone();
    if !config.args.is_empty() || !config.env.is_empty() {
        return Err(UpstreamError::UnusedFields { name });
    }
    match reqwest::Url::parse(url) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        _ => Err(UpstreamError::BadUrl { name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        let configs: Vec<UpstreamConfig> = serde_json::from_str(json).unwrap();
        check(&configs).unwrap_err().to_string()
    }

    #[test]
    fn each_mistake_is_named() {
        assert!(error(r#"[{"name":"a"}]"#).contains("neither"));
        assert!(error(r#"[{"name":"a","command":"x","url":"http://h"}]"#).contains("both"));
        assert!(error(r#"[{"name":"a","command":"x"},{"name":"a","command":"y"}]"#).contains("two upstreams"));
        assert!(error(r#"[{"name":"a/b","command":"x"}]"#).contains("a/b"));
        assert!(error(r#"[{"name":"a","url":"file:///x"}]"#).contains("invalid url"));
        assert!(error(r#"[{"name":"a","url":"http://h","env":{"A":"1"}}]"#).contains("ignored"));
        assert!(serde_json::from_str::<UpstreamConfig>(r#"{"name":"a","comand":"x"}"#).is_err());
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let config: UpstreamConfig =
            serde_json::from_str(r#"{"name":"a","command":"x","args":["s3cret"],"env":{"KEY":"s3cret"}}"#).unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
