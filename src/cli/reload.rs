//! `reversi reload`: has a daemon read its manifests again. Must not read them itself: the daemon's files can be others.
use std::process::ExitCode;

use serde_json::json;

use super::api::{Api, ServerArgs};
use super::failure::Failure;
use super::out::{Out, Tone, clean};
use super::wire::Reloaded;

/// Has the daemon read its manifests again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs an admin's key. With a mistake in any file nothing changes, and all of them are listed.
Steps that have begun keep the manifests they began under. Of the settings nothing else is read
again; SIGHUP does the same without a key.

Examples:
  reversi reload --key-file reversi-data/admin.key
  reversi reload --json | jq .updated")]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReloadArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let (value, reloaded): (_, Reloaded) = Api::new(&args.server)?.post("/reload", &json!({}))?;
    if args.json {
        out.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Reloaded { changed, count, seq, added, removed, updated } = reloaded;
    let ok = out.paint(Tone::Good, "ok");
    let (noun, are) = if count == 1 { ("manifest", "is") } else { ("manifests", "are") };
    if !changed {
        out.line(format!("{ok}: nothing has changed, {count} tool {noun} {are} in force"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let record = seq.map(|seq| format!(" as of record {seq}")).unwrap_or_default();
    out.line(format!("{ok}: {count} tool {noun} {are} in force{record}"))?;
    for (word, tools) in [("added", added), ("removed", removed), ("updated", updated)] {
        tools.iter().try_for_each(|tool| out.line(format!("{word:9}{}", clean(tool))))?;
    }
    Ok(ExitCode::SUCCESS)
}
