//! `reversi groups` and `reversi delegations`: whose word counts, and who may speak for whom. Must not know how votes are
//! counted.
use std::process::ExitCode;

use clap::Subcommand;
use reversi_proto::ids::DelegationId;
use serde::Serialize;
use serde_json::Value;

use super::api::{Api, ServerArgs, segment};
use super::failure::Failure;
use super::out::{Out, clean, tell};
use super::when::instant;
use super::wire_people::{Delegation, Group, List};

/// Groups of persons that approval rules can name.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  reversi groups list
  reversi groups set finance fred@example.com fiona@example.com"
)]
pub(super) struct GroupsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: GroupsCommand,
}

#[derive(Debug, Subcommand)]
enum GroupsCommand {
    /// Lists the groups with their members.
    #[command(after_help = "Example:\n  reversi groups list")]
    List,
    /// Makes a group, or replaces all its members.
    #[command(after_help = "Example:\n  reversi groups set finance fred@example.com fiona@example.com")]
    Set {
        /// Which group
        group: String,
        /// Its persons, as keys name them with --person
        #[arg(required = true, value_name = "MEMBER")]
        members: Vec<String>,
    },
    /// Deletes a group; what it alone entitled to is gone with it, for votes that were given too.
    #[command(after_help = "Example:\n  reversi groups delete finance")]
    Delete {
        /// Which group
        group: String,
    },
}

#[derive(Serialize)]
struct GroupBody<'a> {
    group: &'a str,
    members: &'a [String],
}

pub(super) fn groups(args: &GroupsArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let (api, json) = (Api::new(&args.server)?, args.json);
    let value: Value = match &args.command {
        GroupsCommand::List => {
            let (value, groups): (_, List<Group>) = api.get("/groups")?;
            if !json {
                if groups.items.is_empty() {
                    tell!("there are no groups");
                }
                groups.items.iter().try_for_each(|it| group(it, out))?;
            }
            value
        }
        GroupsCommand::Set { group: name, members } => {
            let (value, set): (_, Group) = api.post("/groups", &GroupBody { group: name, members })?;
            if !json {
                group(&set, out)?;
            }
            value
        }
        GroupsCommand::Delete { group } => {
            let (value, _): (_, Value) = api.delete(&format!("/groups/{}", segment(group)?))?;
            if !json {
                out.line(clean(&format!("group {group} is gone")))?;
            }
            value
        }
    };
    if json {
        out.json(&value)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn group(group: &Group, out: &mut Out) -> Result<(), Failure> {
    let members = if group.members.is_empty() { "nobody".to_owned() } else { group.members.join(", ") };
    out.paragraph("", 0, &format!("{}: {members}", group.name))
}

/// Votes that are lent for a while.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  reversi delegations list
  reversi delegations add --to fiona@example.com --role finance --until 2026-10-14T00:00:00Z
  reversi delegations end dlg_0199f3a0c0de7abc8def0123456789ab"
)]
pub(super) struct DelegationsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: DelegationsCommand,
}

#[derive(Debug, Subcommand)]
enum DelegationsCommand {
    /// Lists the delegations that are not over.
    #[command(after_help = "Example:\n  reversi delegations list")]
    List,
    /// Lends a vote: the other person may say yes in its place, for the roles or groups that are named.
    #[command(after_help = "\
An approver lends their own vote, an admin anybody's. It lasts 30 days at most. The two count as one
vote, and what was lent can't be lent on.

Examples:
  reversi delegations add --to fiona@example.com --role finance --until 2026-10-14T00:00:00Z
  reversi delegations add --from fred@example.com --to fiona@example.com --role finance --role cfo \\
      --start 2026-10-01T00:00:00Z --until 2026-10-14T00:00:00Z")]
    Add {
        /// Who may vote
        #[arg(long, value_name = "PERSON")]
        to: String,
        /// A role or group that is lent; may be given several times
        #[arg(long = "role", value_name = "ROLE", required = true)]
        roles: Vec<String>,
        /// When it ends, like 2026-10-14T00:00:00Z
        #[arg(long, value_name = "TIME")]
        until: String,
        /// Whose vote; yours by default
        #[arg(long, value_name = "PERSON")]
        from: Option<String>,
        /// When it begins; now by default
        #[arg(long, value_name = "TIME")]
        start: Option<String>,
    },
    /// Ends a delegation before its time.
    #[command(after_help = "Example:\n  reversi delegations end dlg_0199f3a0c0de7abc8def0123456789ab")]
    End {
        /// Which delegation
        id: DelegationId,
    },
}

#[derive(Serialize)]
struct DelegationBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    to: &'a str,
    roles: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<&'a str>,
    end: &'a str,
}

pub(super) fn delegations(args: &DelegationsArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let (api, json) = (Api::new(&args.server)?, args.json);
    let value: Value = match &args.command {
        DelegationsCommand::List => {
            let (value, list): (_, List<Delegation>) = api.get("/delegations")?;
            if !json {
                if list.items.is_empty() {
                    tell!("no vote is lent");
                }
                list.items.iter().try_for_each(|it| delegation(it, out))?;
            }
            value
        }
        DelegationsCommand::Add { to, roles, until, from, start } => {
            let body = DelegationBody { from: from.as_deref(), to, roles, start: start.as_deref(), end: until };
            let (value, made): (_, Delegation) = api.post("/delegations", &body)?;
            if !json {
                delegation(&made, out)?;
            }
            value
        }
        DelegationsCommand::End { id } => {
            let (value, _): (_, Value) = api.delete(&format!("/delegations/{id}"))?;
            if !json {
                out.line(format!("delegation {id} is over"))?;
            }
            value
        }
    };
    if json {
        out.json(&value)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn delegation(it: &Delegation, out: &mut Out) -> Result<(), Failure> {
    out.line(clean(&it.id))?;
    let (start, end) = (instant(&it.start), instant(&it.end));
    let text =
        format!("{} may vote in the place of {} as {} from {start} to {end}", it.to, it.from, it.roles.join(", "));
    out.paragraph("", 2, &text)
}
