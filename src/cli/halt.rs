//! `reversi halt`, `resume`, `halts`: the kill switch. Nothing is asked back: who stops agents is in a hurry. Must not
//! know what a halt does.
use std::process::ExitCode;

use reversi_proto::halt::HaltScope;
use serde::Serialize;
use serde_json::Value;

use super::api::{Api, ServerArgs};
use super::failure::Failure;
use super::out::{Out, Tone};
use super::when::instant;
use super::wire_people::Halts;

const SCOPE: &str = "all, run:ID, actor:ID or tool:NAME";

/// Stops agents: no call in the scope begins any more, until it is resumed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs an admin's key. What is in flight can be completed, and rollbacks go on. The halt survives a
restart of the daemon.

Examples:
  reversi halt \"prompt injection in the ticket queue\"
  reversi halt \"refunds are wrong\" --scope tool:stripe.refund
  reversi halt \"it loops\" --scope run:support:4821")]
pub(super) struct HaltArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Why; agents are told, and it stands in the ledger
    reason: String,
    /// What to stop: all, run:ID, actor:ID or tool:NAME
    #[arg(long, value_name = "SCOPE", default_value = "all", value_parser = scope)]
    scope: HaltScope,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

/// Lifts a halt.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each scope is lifted by itself: see `reversi halts`.

Examples:
  reversi resume
  reversi resume --scope tool:stripe.refund --reason \"fixed in 4.2\"")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Which halt to lift: all, run:ID, actor:ID or tool:NAME
    #[arg(long, value_name = "SCOPE", default_value = "all", value_parser = scope)]
    scope: HaltScope,
    /// Why; it stands in the ledger
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

/// Lists what is halted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  reversi halts\n  reversi halts --json | jq .halted")]
pub(super) struct HaltsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

fn scope(text: &str) -> Result<HaltScope, String> {
    text.parse().map_err(|_| format!("expected {SCOPE}"))
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    scope: &'a HaltScope,
}

pub(super) fn halt(args: &HaltArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let body = Body { reason: Some(&args.reason), scope: &args.scope };
    let answer = Api::new(&args.server)?.post("/halt", &body)?;
    show(answer, args.json, out)
}

pub(super) fn resume(args: &ResumeArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let body = Body { reason: args.reason.as_deref(), scope: &args.scope };
    let answer = Api::new(&args.server)?.post("/resume", &body)?;
    show(answer, args.json, out)
}

pub(super) fn halts(args: &HaltsArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let answer = Api::new(&args.server)?.get("/halt")?;
    show(answer, args.json, out)
}

/// All three show what is halted afterwards: one lifted halt may leave another.
fn show((value, halts): (Value, Halts), json: bool, out: &mut Out) -> Result<ExitCode, Failure> {
    if json {
        out.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    if halts.items.is_empty() {
        out.line("nothing is halted")?;
    }
    for halt in &halts.items {
        let mark = out.paint(Tone::Bad, &format!("{:8}", "HALTED"));
        let text = format!("{} since {} by {}: {}", halt.scope, instant(&halt.since), halt.by, halt.reason);
        out.paragraph(&mark, 8, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}
