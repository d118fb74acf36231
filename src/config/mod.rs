//! Settings of the daemon: `reversi.config.yaml`, with a default for everything. Must not read the environment.
mod yaml;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

pub use yaml::Mistake;
use yaml::{Node, Report};

use crate::adapters::upstreams::UpstreamConfig;
use crate::manifests::Source;

/// The file that is read when none is named and it is there.
pub const FILE_NAME: &str = "reversi.config.yaml";
const PORT: u16 = 7421;
const FIELDS: [&str; 8] =
    ["data_dir", "listen", "metrics_listen", "allow_plain_http", "manifests", "upstreams", "checkpoint", "origin"];
const UPSTREAM_FIELDS: [&str; 6] = ["name", "command", "args", "env", "url", "prefix"];

/// Settings, with paths that need no other folder to be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the ledger lives.
    pub data_dir: PathBuf,
    /// Where the API is served.
    pub listen: SocketAddr,
    /// Where the metrics are served, if not beside the API.
    pub metrics_listen: Option<SocketAddr>,
    /// Plain HTTP on an address that other machines can reach.
    pub allow_plain_http: bool,
    /// Manifest files and folders of them.
    pub manifests: Source,
    /// MCP servers.
    pub upstreams: Vec<UpstreamConfig>,
    /// Where checkpoints go; None: beside the data directory.
    pub checkpoint_file: Option<PathBuf>,
    /// What checkpoints are signed as.
    pub origin: String,
}

/// Why settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("the settings {path} can't be read")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is wrong in it, all of it.
    #[error("{}", listed(.path, .mistakes))]
    Mistakes {
        /// Which file.
        path: PathBuf,
        /// In the order of the text.
        mistakes: Vec<Mistake>,
    },
    /// Others could read keys and arguments on their way.
    #[error(
        "{field} is {address}, which other machines can reach, and keys would cross the network unencrypted: \
         listen on 127.0.0.1 behind a proxy that speaks TLS, or set allow_plain_http: true"
    )]
    PlainHttp {
        /// `listen` or `metrics_listen`.
        field: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// Whoever replaces the data directory would replace the checkpoints too.
    #[error(
        "the checkpoint file {file} lies in the data directory {data_dir}, where it can't witness anything: \
         choose a place outside, best on another disk"
    )]
    CheckpointInside {
        /// The file.
        file: PathBuf,
        /// The directory.
        data_dir: PathBuf,
    },
}

fn listed(path: &Path, mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|mistake| format!("{}:{mistake}", path.display())).collect();
    lines.join("\n")
}

impl Config {
    /// The defaults, for a folder.
    pub fn defaults(folder: &Path) -> Self {
        Self {
            data_dir: folder.join("reversi-data"),
            listen: (Ipv4Addr::LOCALHOST, PORT).into(),
            metrics_listen: None,
            allow_plain_http: false,
            manifests: Source::Default(folder.join("manifests")),
            upstreams: Vec::new(),
            checkpoint_file: None,
            origin: "reversi".to_owned(),
        }
    }

    /// The named file; where none is named, the one in the folder, or the defaults.
    pub fn find(file: Option<&Path>, folder: &Path) -> Result<Self, ConfigError> {
        if let Some(file) = file {
            return Self::load(file);
        }
        let file = folder.join(FILE_NAME);
        if file.exists() { Self::load(&file) } else { Ok(Self::defaults(folder)) }
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            Some(_) | None => Path::new("."),
        };
        Self::parse(&text, folder).map_err(|mistakes| ConfigError::Mistakes { path: path.to_owned(), mistakes })
    }

    /// Reads a text; relative paths are understood from `folder` on. All mistakes are reported.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Vec<Mistake>> {
        let mut config = Self::defaults(folder);
        let Some(root) = yaml::parse(text).map_err(|mistake| vec![mistake])? else { return Ok(config) };
        let mut report = Report::default();
        config.read(&root, folder, &mut report);
        let Report(mut mistakes) = report;
        mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    fn read(&mut self, root: &Node, folder: &Path, report: &mut Report) {
        const ADDRESS: &str = "an IP address and a port, like 127.0.0.1:7421";
        for (name, node) in report.fields(root, "the file", &FIELDS) {
            match &*name {
                "data_dir" => set(&mut self.data_dir, path(node, &name, folder, report)),
                "listen" => set(&mut self.listen, report.parsed(node, &name, ADDRESS)),
                "metrics_listen" => self.metrics_listen = report.parsed(node, &name, ADDRESS),
                "allow_plain_http" => set(&mut self.allow_plain_http, report.flag(node, &name)),
                "origin" => set(&mut self.origin, origin(node, report)),
                "manifests" => {
                    let texts = report.texts(node, &name);
                    self.manifests = Source::Named(texts.iter().map(|text| folder.join(text)).collect());
                }
                "upstreams" => {
                    let nodes = report.list(node, &name);
                    self.upstreams = nodes.iter().map(|node| upstream(node, folder, report)).collect();
                }
                "checkpoint" => {
                    for (name, node) in report.fields(node, "checkpoint", &["file"]) {
                        if name == "file" {
                            self.checkpoint_file = path(node, "checkpoint.file", folder, report);
                        }
                    }
                }
                // Reported as unknown.
                _ => {}
            }
        }
    }

    /// Where checkpoints go.
    pub fn checkpoint_file(&self) -> PathBuf {
        self.checkpoint_file.clone().unwrap_or_else(|| {
            let mut name = self.data_dir.file_name().unwrap_or_default().to_owned();
            name.push(".checkpoints");
            self.data_dir.with_file_name(name)
        })
    }

    /// Refuses what is well-formed and unsafe all the same. Asked again after options have changed something.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bound = [("listen", Some(self.listen)), ("metrics_listen", self.metrics_listen)];
        for (field, address) in bound {
            if let Some(address) = address
                && !address.ip().is_loopback()
                && !self.allow_plain_http
            {
                return Err(ConfigError::PlainHttp { field, address });
            }
        }
        let (file, data_dir) = (self.checkpoint_file(), self.data_dir.clone());
        if plain(&file).starts_with(plain(&data_dir)) {
            return Err(ConfigError::CheckpointInside { file, data_dir });
        }
        Ok(())
    }
}

/// Absolute and without `.` and `..`, so that two spellings of one place compare as equal. Links are not followed: the
/// place need not exist yet.
fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        if part == std::path::Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn path(node: &Node, name: &str, folder: &Path, report: &mut Report) -> Option<PathBuf> {
    let text = report.text(node, name)?;
    if text.is_empty() {
        report.add(node.pos, format!("{name}: expected a path"));
        return None;
    }
    Some(folder.join(text))
}

/// It becomes the first part of a checkpoint's first line, so it must hold no space and no plus sign (C2SP signed-note).
fn origin(node: &Node, report: &mut Report) -> Option<String> {
    let text = report.text(node, "origin")?;
    let good = (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'+');
    if !good {
        report.add(node.pos, "origin: expected 1 to 128 visible ASCII characters without +, like a host name");
        return None;
    }
    Some(text)
}

fn upstream(node: &Node, folder: &Path, report: &mut Report) -> UpstreamConfig {
    let before = report.0.len();
    let mut upstream = UpstreamConfig {
        name: String::new(),
        command: None,
        args: Vec::new(),
        env: std::collections::BTreeMap::new(),
        url: None,
        prefix: None,
    };
    for (name, node) in report.fields(node, "an upstream", &UPSTREAM_FIELDS) {
        match &*name {
            "name" => set(&mut upstream.name, report.text(node, &name)),
            "command" => upstream.command = report.text(node, &name).map(|text| program(&text, folder)),
            "args" => upstream.args = report.texts(node, &name),
            "env" => {
                let members = report.members(node, &name).into_iter();
                upstream.env = members.filter_map(|(key, node)| Some((key, report.text(node, "env")?))).collect();
            }
            "url" => upstream.url = report.text(node, &name),
            "prefix" => upstream.prefix = report.text(node, &name),
            // Reported as unknown.
            _ => {}
        }
    }
    if upstream.name.is_empty() && report.0.len() == before {
        report.add(node.pos, "an upstream needs a name");
    }
    if upstream.command.is_some() == upstream.url.is_some() && report.0.len() == before {
        report.add(node.pos, "an upstream needs either a command or a url");
    }
    upstream
}

/// A program's bare name is looked up in PATH; one with a slash is a path like all others.
fn program(text: &str, folder: &Path) -> String {
    if !text.contains('/') {
        return text.to_owned();
    }
    folder.join(text).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
