//! A daemon as a child process, with the file connector as its upstream: started, killed, stopped and started again by
//! the demo and by the tests that need a real process.
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::api::Api;
use crate::connector::default_state_dir;

/// How long a daemon may take to come up.
const READY: Duration = Duration::from_secs(60);

/// A folder that holds everything of one daemon: sandbox, configuration, manifests, data, checkpoints.
pub struct Stage {
    dir: PathBuf,
    binary: PathBuf,
}

/// What a daemon is started with.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The connector withholds its answers to this tool.
    pub hold_after: Option<String>,
    /// The connector serves the counter tools, whose inverse is not idempotent.
    pub test_tools: bool,
    /// Environment of the daemon, beside its own.
    pub env: Vec<(String, String)>,
    /// Further options of `reversi serve`.
    pub flags: Vec<String>,
    /// Further upstreams, as they stand in the configuration.
    pub upstreams: Vec<serde_json::Value>,
}

impl Stage {
    /// Lays out a stage below `dir`, for daemons of this binary; manifests are texts by file name.
    pub fn new(dir: &Path, binary: &Path, manifests: &[(&str, &str)]) -> anyhow::Result<Self> {
        let stage = Self { dir: dir.to_owned(), binary: binary.to_owned() };
        std::fs::create_dir_all(stage.sandbox())?;
        std::fs::create_dir_all(dir.join("manifests"))?;
        for (name, text) in manifests {
            std::fs::write(dir.join("manifests").join(name), text)?;
        }
        Ok(stage)
    }

    /// The folder that the file tools govern.
    pub fn sandbox(&self) -> PathBuf {
        self.dir.join("sandbox")
    }

    /// Where the connector keeps undo data and its record of calls.
    pub fn connector_state(&self) -> anyhow::Result<PathBuf> {
        default_state_dir(&self.sandbox())
    }

    /// The daemon's data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The file of signed checkpoints, outside the data directory.
    pub fn checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    /// The binary that is started.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The connector as an upstream of the daemon's configuration.
    pub fn fs_upstream(&self, setting: &Setting) -> serde_json::Value {
        let mut args = vec!["connector".to_owned(), "fs".to_owned(), "--root".to_owned()];
        args.push(self.sandbox().display().to_string());
        if let Some(tool) = &setting.hold_after {
            args.extend(["--hold-after".to_owned(), tool.clone()]);
        }
        if setting.test_tools {
            args.push("--test-tools".to_owned());
        }
        json!({ "name": "fs", "command": self.binary.display().to_string(), "args": args })
    }

    /// Starts a daemon and waits until it answers.
    pub fn start(&self, setting: &Setting) -> anyhow::Result<Daemon> {
        let mut child = self.spawn(setting)?;
        let ready = self.dir.join("ready");
        let since = Instant::now();
        loop {
            if let Ok(address) = std::fs::read_to_string(&ready) {
                return Ok(Daemon { child, url: format!("http://{}", address.trim()) });
            }
            if let Some(status) = child.try_wait()? {
                bail!("the daemon ended before it was ready ({status}); its log is {}", self.log().display());
            }
            if since.elapsed() > READY {
                let _ = child.kill();
                bail!("the daemon did not get ready; its log is {}", self.log().display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a daemon and does not wait.
    pub fn spawn(&self, setting: &Setting) -> anyhow::Result<Child> {
        let mut upstreams = vec![self.fs_upstream(setting)];
        upstreams.extend(setting.upstreams.iter().cloned());
        let config = json!({
            "data_dir": self.data().display().to_string(),
            "listen": "127.0.0.1:0",
            "manifests": [self.dir.join("manifests").display().to_string()],
            "upstreams": upstreams,
            "checkpoint": { "file": self.checkpoints().display().to_string() },
        });
        // JSON is YAML.
        let (path, ready) = (self.dir.join("reversi.config.yaml"), self.dir.join("ready"));
        std::fs::write(&path, serde_json::to_string_pretty(&config)?)?;
        let _ = std::fs::remove_file(&ready);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        Command::new(&self.binary)
            .arg("serve")
            .arg("--config")
            .arg(&path)
            .arg("--ready-file")
            .arg(&ready)
            .args(&setting.flags)
            .envs(setting.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("the daemon can't be started")
    }

    /// What daemons of this stage wrote to stderr.
    pub fn log(&self) -> PathBuf {
        self.dir.join("daemon.log")
    }

    /// A client with the admin key that the first start left in the data directory.
    pub fn admin(&self, daemon: &Daemon) -> anyhow::Result<Api> {
        let key = std::fs::read_to_string(self.data().join("admin.key")).context("the admin key can't be read")?;
        Api::new(&daemon.url, key.trim())
    }

    /// Runs the binary with arguments and gives its exit code, stdout and stderr.
    pub fn reversi(&self, args: &[&str]) -> anyhow::Result<(i32, String, String)> {
        let output = Command::new(&self.binary).args(args).stdin(Stdio::null()).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
    }
}

/// A daemon that answers. Dropping it kills it, as a crash would.
pub struct Daemon {
    child: Child,
    /// Where it answers.
    pub url: String,
}

impl Daemon {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: no destructor, no flush, no goodbye.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, then its exit status.
    pub fn stop(mut self) -> anyhow::Result<ExitStatus> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        Ok(self.child.wait()?)
    }

    /// Waits until it ends by itself, as at a failpoint.
    pub fn wait(mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Has it ended?
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
