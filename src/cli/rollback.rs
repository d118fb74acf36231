//! `reversi runs rollback`: starts one, and follows it to its end. Must not know what a rollback does.
use std::process::ExitCode;
use std::time::{Duration, Instant};

use reversi_proto::ids::{RunId, StepNo};
use serde_json::{Value, json};

use super::api::{Api, ServerArgs};
use super::failure::{Failure, exit};
use super::out::{Out, tell};
use super::runs::path;
use super::wire::{Plan, Report};
use super::{progress, render};

const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_LAST: Duration = Duration::from_secs(2);
/// So many looks in a row must show nothing moving: between two steps of a rollback nothing moves for a moment.
const STILL_LOOKS: u32 = 3;

/// Undoes a run, newest step first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --wait the exit code is 0 if nothing was left undone, and 1 otherwise.

Examples:
  reversi runs rollback support:4821 --dry-run
  reversi runs rollback support:4821 --wait
  reversi runs rollback support:4821 --steps 3,5
  reversi runs rollback support:4821 --to-step 4 --wait --timeout 600")]
pub(super) struct RollbackArgs {
    /// Which run
    run: RunId,
    /// Show what would be done, and change nothing
    #[arg(long, conflicts_with_all = ["wait", "steps", "to_step"])]
    dry_run: bool,
    /// Wait until nothing moves any more
    #[arg(long)]
    wait: bool,
    /// With --wait: longest wait, in seconds
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,
    /// Only these steps
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', conflicts_with = "to_step")]
    steps: Option<Vec<StepNo>>,
    /// Only steps from this number on
    #[arg(long, value_name = "N")]
    to_step: Option<StepNo>,
}

pub(super) fn run(args: &RollbackArgs, to: (&ServerArgs, bool), out: &mut Out) -> Result<ExitCode, Failure> {
    let (server, json) = to;
    let api = Api::new(server)?;
    let place = path(&args.run, "/rollback")?;
    if args.dry_run {
        let (value, plan): (_, Plan) = api.post(&place, &json!({"dry_run": true}))?;
        if json {
            out.json(&value)?;
        } else {
            render::plan(out, &plan)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut body = json!({});
    if let Some(steps) = &args.steps {
        body["steps"] = json!(steps);
    }
    if let Some(step) = args.to_step {
        body["to_step"] = json!(step);
    }
    let (mut value, mut report): (Value, Report) = api.post(&place, &body)?;
    let mut in_time = true;
    if args.wait {
        let timeout = args.timeout.map(Duration::from_secs);
        ((value, report), in_time) = follow(&api, &place, (value, report), timeout)?;
    }
    if args.wait && !report.complete {
        out.judged(exit::FAILED);
    }
    if json {
        out.json(&value)?;
    } else {
        render::report(out, &report)?;
    }
    if !args.wait {
        out.flush()?;
        tell!("the rollback goes on by itself: see `reversi runs report {}`", args.run);
        return Ok(ExitCode::SUCCESS);
    }
    if !in_time {
        out.flush()?;
        tell!("the time is up, and the rollback goes on by itself: see `reversi runs report {}`", args.run);
    }
    Ok(ExitCode::from(if report.complete { exit::OK } else { exit::FAILED }))
}

/// Looks until the rollback is over or waits for a person; false if the time was up first.
fn follow(
    api: &Api,
    place: &str,
    mut last: (Value, Report),
    timeout: Option<Duration>,
) -> Result<((Value, Report), bool), Failure> {
    let spinner = progress::spinner("rolling back");
    let (begun, mut pause, mut still) = (Instant::now(), POLL_FIRST, 0);
    loop {
        let report = &last.1;
        spinner.set_message(format!(
            "rolling back: {} undone, {} to go",
            report.list("compensated").len(),
            report.list("in_progress").len() + report.list("deferred").len(),
        ));
        still = if report.is_moving() { 0 } else { still + 1 };
        if report.status != "rolling_back" || still >= STILL_LOOKS {
            spinner.finish_and_clear();
            return Ok((last, true));
        }
        if timeout.is_some_and(|timeout| begun.elapsed() + pause > timeout) {
            spinner.finish_and_clear();
            return Ok((last, false));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_LAST);
        last = api.get(place)?;
    }
}
