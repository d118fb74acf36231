//! `reversi keys`: access keys of a daemon. Must not know how a key is minted.
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use super::api::{Api, ServerArgs};
use super::failure::Failure;
use super::out::Out;
use super::wire::NewKey;

/// Makes access keys.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  reversi keys create --role agent --actor support-bot"
)]
pub(super) struct KeysArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Makes a key and prints it, once.
    #[command(after_help = "\
The key goes to stdout, everything else to stderr:
  (umask 077; reversi keys create --role agent --actor support-bot > support-bot.key)
  reversi keys create --role operator --role approver --actor olga --person olga@example.com")]
    Create {
        /// What it may do; several are allowed, but agent stands alone
        #[arg(long = "role", required = true, value_name = "ROLE")]
        roles: Vec<RoleWord>,
        /// For whom
        #[arg(long, value_name = "NAME")]
        actor: String,
        /// The person behind it; votes count by person
        #[arg(long, value_name = "NAME")]
        person: Option<String>,
        /// It may start runs in the modes observe and advise
        #[arg(long)]
        allow_observe: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum RoleWord {
    /// Its own runs
    Agent,
    /// Votes on requests
    Approver,
    /// Reads and exports everything
    Auditor,
    /// Auditor, and plans, rolls back, resolves
    Operator,
    /// Operator, and keys
    Admin,
    /// Grants one request in an emergency
    Breakglass,
}

#[derive(Serialize)]
struct KeyRequest<'a> {
    actor: &'a str,
    roles: &'a [RoleWord],
    #[serde(skip_serializing_if = "Option::is_none")]
    person: Option<&'a str>,
    allow_observe: bool,
}

pub(super) fn run(args: KeysArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let KeysCommand::Create { roles, actor, person, allow_observe } = args.command;
    let body = KeyRequest { actor: &actor, roles: &roles, person: person.as_deref(), allow_observe };
    let (value, key): (_, NewKey) = Api::new(&args.server)?.post("/keys", &body)?;
    if args.json {
        out.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(&key.key)?;
    out.flush()?;
    eprintln!("this is the only time that key {} is shown", key.key_id);
    Ok(ExitCode::SUCCESS)
}
