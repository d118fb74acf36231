//! `reversi runs`: look at runs, undo them, settle what nobody knows. Must not know how a rollback is followed: that is
//! `rollback`.
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use reversi_proto::ids::{RunId, StepNo, ToolName};
use serde::Serialize;
use serde_json::value::RawValue;

use super::api::{Api, ServerArgs};
use super::failure::Failure;
use super::out::{Out, tell};
use super::wire::{Plan, RunBody, RunPage, Settled};
use super::wire_people::Approval;
use super::{approval_text, render, rollback};

/// Lists, shows and undoes runs.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  reversi runs list --limit 20
  reversi runs plan support:4821
  reversi runs rollback support:4821 --wait
  reversi runs resolve support:4821 7 succeeded --note \"the refund is in the ledger of the bank\""
)]
pub(super) struct RunsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// Lists runs in the order of their ids.
    #[command(after_help = "\
Examples:
  reversi runs list
  reversi runs list --limit 200 --json
  reversi runs list --cursor run_0199f3a0c0de7abc8def0123456789ab")]
    List {
        /// Most runs to show, 1 to 200
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Go on behind this run, as the last page said
        #[arg(long, value_name = "RUN")]
        cursor: Option<RunId>,
    },
    /// Shows a run with its steps.
    #[command(after_help = "Example:\n  reversi runs show support:4821")]
    Show {
        /// Which run
        run: RunId,
    },
    /// Shows what a rollback would do; changes nothing.
    #[command(after_help = "Example:\n  reversi runs plan support:4821")]
    Plan {
        /// Which run
        run: RunId,
    },
    Rollback(rollback::RollbackArgs),
    /// Shows what the last rollback of a run did.
    #[command(after_help = "Example:\n  reversi runs report support:4821")]
    Report {
        /// Which run
        run: RunId,
    },
    /// Says yes in advance to the next call of a tool, or to the next undo by it.
    #[command(after_help = "\
One operator's yes: it is enough only where the tool's rules ask for one person and list no role, or
one that you hold. It is good for 15 minutes and for one call, whatever its arguments.

Example:
  reversi runs approve support:4821 mail.send --note \"the customer is on the phone\"")]
    Approve {
        /// Which run
        run: RunId,
        /// Which tool
        tool: ToolName,
        /// Why; public, it stands in the ledger
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Settles a step, or an undo, of which nobody knows whether it happened.
    #[command(after_help = "\
Look first, in the system that the tool changes. Then say what you saw:
  reversi runs resolve support:4821 7 succeeded --note \"charge ch_12 exists\" --result '{\"id\":\"ch_12\"}'
  reversi runs resolve support:4821 7 failed --note \"no such charge\"
  reversi runs resolve support:4821 5 succeeded --undo --note \"the refund is booked\"")]
    Resolve {
        /// Which run
        run: RunId,
        /// Number of the step
        step: StepNo,
        /// Whether it happened
        outcome: OutcomeWord,
        /// What you saw; public, it stands in the ledger
        #[arg(long, value_name = "TEXT")]
        note: String,
        /// Settle the step's undo, not the step
        #[arg(long)]
        undo: bool,
        /// What the tool returned, where known: the undo may need it
        #[arg(long, value_name = "JSON", conflicts_with = "undo")]
        result: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeWord {
    /// It happened
    Succeeded,
    /// It is known to have had no effect
    Failed,
}

#[derive(Serialize)]
struct PreApproval<'a> {
    tool: &'a ToolName,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

#[derive(Serialize)]
struct Resolution<'a> {
    target: &'static str,
    status: OutcomeWord,
    note: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

pub(super) fn run(args: RunsArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let RunsArgs { server, json, command } = args;
    match command {
        RunsCommand::List { limit, cursor } => {
            let cursor = cursor.map(|run| format!("&cursor={}", escaped(&run))).unwrap_or_default();
            let (value, page): (_, RunPage) = Api::new(&server)?.get(&format!("/runs?limit={limit}{cursor}"))?;
            if json {
                out.json(&value)?;
                return Ok(ExitCode::SUCCESS);
            }
            if page.items.is_empty() {
                tell!("there are no runs here");
                return Ok(ExitCode::SUCCESS);
            }
            render::runs(out, &page.items)?;
            if let Some(next) = page.next_cursor {
                out.flush()?;
                tell!("there are more: reversi runs list --limit {limit} --cursor {next}");
            }
        }
        RunsCommand::Show { run } => {
            let (value, body): (_, RunBody) = Api::new(&server)?.get(&path(&run, "")?)?;
            if json { out.json(&value)? } else { render::run(out, &body)? }
        }
        RunsCommand::Plan { run } => {
            let (value, plan): (_, Plan) = Api::new(&server)?.get(&path(&run, "/plan")?)?;
            if json { out.json(&value)? } else { render::plan(out, &plan)? }
        }
        RunsCommand::Rollback(args) => return rollback::run(&args, (&server, json), out),
        RunsCommand::Report { run } => {
            let (value, report) = Api::new(&server)?.get(&path(&run, "/rollback")?)?;
            if json { out.json(&value)? } else { render::report(out, &report)? }
        }
        RunsCommand::Approve { run, tool, note } => {
            let body = PreApproval { tool: &tool, note: note.as_deref() };
            let api = Api::new(&server)?;
            let (value, approval): (_, Approval) = api.post(&path(&run, "/approvals")?, &body)?;
            if json { out.json(&value)? } else { approval_text::outcome(out, &approval, api.now())? }
        }
        RunsCommand::Resolve { run, step, outcome, note, undo, result } => {
            let target = if undo { "undo" } else { "step" };
            let result = result.map(RawValue::from_string).transpose();
            let result = result.map_err(|error| Failure::Usage(format!("--result is not JSON: {error}")))?;
            let body = Resolution { target, status: outcome, note: &note, result };
            let path = path(&run, &format!("/steps/{step}/resolve"))?;
            let (value, settled): (_, Settled) = Api::new(&server)?.post(&path, &body)?;
            if json { out.json(&value)? } else { render::settled(out, &settled)? }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A path below a run. `.` and `..` are run ids by the letter, but every URL library takes them for steps of the path.
pub(super) fn path(run: &RunId, below: &str) -> Result<String, Failure> {
    if matches!(run.as_str(), "." | "..") {
        return Err(Failure::Usage(format!("a run named {run} can't be addressed over HTTP")));
    }
    Ok(format!("/runs/{}{below}", escaped(run)))
}

/// Of what a run id may hold, nothing needs escaping in a URL but the colon, and that only out of caution.
fn escaped(run: &RunId) -> String {
    run.as_str().replace(':', "%3A")
}
