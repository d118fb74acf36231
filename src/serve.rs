//! `reversi serve`: from arguments to a running daemon and back. Must not know how one is put together.
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::{App, Options, write_atomically};
use crate::config::Config;
use crate::{http, log};

/// Runs the daemon.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  reversi serve
  reversi serve --config /etc/reversi/reversi.config.yaml --json-logs
  reversi serve --data ./ledger --listen 127.0.0.1:8080")]
pub struct ServeArgs {
    /// Settings [default: reversi.config.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
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
    log::start(args.json_logs, args.log.as_deref()).context("--log or RUST_LOG is not a log level")?;
    // Before anything takes long, so that a signal during the start is not lost.
    let signals = Signals::listen().context("signals can't be listened for")?;
    let mut config = Config::find(args.config.as_deref(), Path::new("."))?;
    if let Some(data) = args.data {
        config.data_dir = data;
    }
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    let options = Options {
        accept_clock: args.accept_clock,
        accept_restored_storage: args.accept_restored_storage,
        limits: http::Limits::default(),
    };
    let app = App::start(config, options).await?;
    eprintln!("listening on http://{}", app.addr());
    if let Some(file) = &args.ready_file {
        let written = write_atomically(file, format!("{}\n", app.addr()).as_bytes());
        written.with_context(|| format!("the ready file {} can't be written", file.display()))?;
    }
    app.run_until(signals.any()).await?;
    Ok(ExitCode::SUCCESS)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn any(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
