//! `reversi serve`: from arguments to a running daemon and back. Must not know how one is put together.
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use reversi_actors::service::ReloadBy;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::{App, Options, write_atomically};
use crate::check::check;
use crate::config::{Config, ConfigError};
use crate::reload::Reloader;
use crate::{http, log};

/// Runs the daemon.
#[derive(Debug, Clone, Args)]
#[allow(clippy::struct_excessive_bools)] // each is an option of its own
#[command(after_help = "\
SIGTERM and SIGINT stop it: requests that are being worked on may finish. SIGHUP, like
`reversi reload`, makes it read the manifests again, and nothing else of the settings; with a
mistake in any file those in force stay.

Examples:
  reversi serve
  reversi serve --check && systemctl reload reversi
  reversi serve --config /etc/reversi/reversi.config.yaml --json-logs
  reversi serve --data ./ledger --listen 127.0.0.1:8080")]
pub struct ServeArgs {
    /// Settings [default: reversi.config.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check settings and manifests, say what is wrong, and start nothing
    #[arg(long)]
    pub check: bool,
    /// Where the ledger lives [default: ./reversi-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where the API is served; port 0 takes any free one [default: 127.0.0.1:7421]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Write the address to this file once requests are answered
    #[arg(long, value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
    /// Log JSON lines
    #[arg(long)]
    pub json_logs: bool,
    /// What to log.
    #[arg(long, value_name = "LEVEL", help = "What to log, like debug or info,sled=warn [default: RUST_LOG, or info]")]
    pub log: Option<String>,
    /// Start although the newest record is more than 24 hours ahead of the clock
    #[arg(long)]
    pub accept_clock: bool,
    /// Start on a restored copy of the data directory; rollbacks are parked, because finished undos could be repeated
    #[arg(long)]
    pub accept_restored_storage: bool,
}

/// Serves until SIGTERM or SIGINT.
pub async fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    if args.check {
        return only_check(&args);
    }
    // Before anything else, so that no signal is lost, and a SIGHUP that comes early doesn't end the process.
    let (signals, hangups) = Signals::listen().context("signals can't be listened for")?;
    log::start(args.json_logs, args.log.as_deref()).context("--log or RUST_LOG is not a log level")?;
    let config = settings(&args)?;
    let options = Options {
        accept_clock: args.accept_clock,
        accept_restored_storage: args.accept_restored_storage,
        limits: http::Limits::default(),
    };
    let app = App::start(config, options).await?;
    // A closed stderr must not end a daemon.
    let _ = writeln!(std::io::stderr(), "listening on http://{}", app.addr());
    if let Some(file) = &args.ready_file {
        let written = write_atomically(file, format!("{}\n", app.addr()).as_bytes());
        written.with_context(|| format!("the ready file {} can't be written", file.display()))?;
    }
    let reloads = tokio::spawn(reload_at(hangups, app.reloader()));
    app.run_until(signals.any()).await?;
    reloads.abort();
    Ok(ExitCode::SUCCESS)
}

/// The settings with what the command line says instead.
fn settings(args: &ServeArgs) -> Result<Config, ConfigError> {
    let mut config = Config::find(args.config.as_deref(), Path::new("."))?;
    if let Some(data) = &args.data {
        config.data_dir.clone_from(data);
    }
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    Ok(config)
}

fn only_check(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    match check(&settings(args)?) {
        Ok(count) => {
            let manifests = match count {
                0 => "no manifests, so every call would be blocked".to_owned(),
                1 => "1 tool manifest".to_owned(),
                more => format!("{more} tool manifests"),
            };
            let _ = writeln!(std::io::stdout(), "ok: the daemon can start with these settings and {manifests}");
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => bail!("the check found what is wrong:\n{}", problems.join("\n")),
    }
}

/// Each SIGHUP is a reload; those that come while one is going on are one more together.
async fn reload_at(mut hangups: Signal, reloader: Arc<Reloader>) {
    while hangups.recv().await.is_some() {
        tracing::info!("SIGHUP: the manifests are read again");
        reloader.reload_and_log(&ReloadBy::system()).await;
    }
}

/// Those that stop the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// The one that does not stop it comes first: it must be there as early as possible.
    fn listen() -> std::io::Result<(Self, Signal)> {
        let hangups = signal(SignalKind::hangup())?;
        let stops = Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
        Ok((stops, hangups))
    }

    async fn any(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
