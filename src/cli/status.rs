//! `reversi status`: how a daemon is doing.
use std::process::ExitCode;

use super::api::{Api, ServerArgs};
use super::failure::Failure;
use super::out::{Out, Tone};
use super::when::instant;
use super::wire::Status;

/// Shows how the daemon is doing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  reversi status --key-file reversi-data/admin.key
  reversi status --json | jq .head")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StatusArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let (value, status): (_, Status) = Api::new(&args.server)?.get("/status")?;
    if args.json {
        out.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    for_people(out, &status)?;
    out.line(format!("{:12}{}", "ledger", status.ledger))?;
    out.line(format!("{:12}{}", "started", status.started_at))?;
    let behind = status.head.saturating_sub(status.checkpoint);
    out.line(format!("{:12}{}, {behind} of them not signed yet", "records", status.head))?;
    out.line(format!("{:12}{} records behind", "event store", status.lag))?;
    out.line(format!("{:12}{} runs, {} undos", "live", status.runs_live, status.undos_live))?;
    let manifests = status.manifests.as_deref().unwrap_or("none: every call is blocked");
    out.line(format!("{:12}{manifests}", "manifests"))?;
    let tools: Vec<String> = status.tools.iter().map(|(tool, upstream)| format!("{tool} ({upstream})")).collect();
    let tools = if tools.is_empty() { "none is served by an upstream".to_owned() } else { tools.join(", ") };
    out.paragraph("tools", 12, &tools)?;
    for (bad, text) in [
        (status.disk_low, "the disk is nearly full: new work is refused until there is room".to_owned()),
        (status.sink_errors > 0, format!("{} checkpoints could not be written outside", status.sink_errors)),
        (
            status.rollbacks_parked,
            "the ledger is a restored copy: rollbacks wait until the file restored-copy is deleted".to_owned(),
        ),
        (!status.quarantined.is_empty(), format!("left alone after failures: {}", status.quarantined.join(", "))),
    ] {
        if bad {
            let mark = out.paint(Tone::Bad, "problem");
            out.line(format!("{mark}     {}", super::out::clean(&text)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What waits for a person stands first.
fn for_people(out: &mut Out, status: &Status) -> Result<(), Failure> {
    for halt in &status.halts {
        let mark = out.paint(Tone::Bad, &format!("{:12}", "HALTED"));
        let what = if halt.scope == "all" { "every call".to_owned() } else { format!("calls of {}", halt.scope) };
        out.paragraph(&mark, 12, &format!("{what} since {} by {}: {}", instant(&halt.since), halt.by, halt.reason))?;
    }
    for (count, name, text) in [
        (status.approvals_open, "approvals", "open, pending or granted and not used: reversi approvals list"),
        (status.reviews_owed, "reviews", "owed after emergency grants: reversi approvals reviews"),
    ] {
        if count > 0 {
            let mark = out.paint(Tone::Doubtful, &format!("{name:12}"));
            out.line(format!("{mark}{count} {text}"))?;
        }
    }
    Ok(())
}
