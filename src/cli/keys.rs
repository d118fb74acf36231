//! `reversi keys`: access keys of a daemon. Must not know how a key is minted.
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use reversi_proto::ids::KeyId;
use serde::Serialize;
use serde_json::json;

use super::api::{Api, ServerArgs};
use super::failure::Failure;
use super::out::{Out, clean, tell};
use super::when::instant;
use super::wire::NewKey;
use super::wire_people::{Key, List};

/// Makes, lists, rotates and revokes access keys.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  reversi keys create --role agent --actor support-bot
  reversi keys list
  reversi keys revoke 0199f3a0c0de7abc"
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
        /// A group that the key belongs to; may be given several times
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Not valid from then on, like 2026-10-01T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// It may start runs in the modes observe and advise
        #[arg(long)]
        allow_observe: bool,
    },
    /// Lists all keys, without their secrets.
    #[command(after_help = "\
Examples:
  reversi keys list
  reversi keys list --json | jq -r '.items[] | select(.revoked | not) | .key'")]
    List,
    /// Makes a key void, at once.
    #[command(after_help = "\
The last valid admin key can't be revoked: make another one first.

Example:
  reversi keys revoke 0199f3a0c0de7abc")]
    Revoke {
        /// The key's id, the middle part of `rvk_ID_...`
        #[arg(value_name = "KEY_ID")]
        key: KeyId,
    },
    /// Makes a new key in the place of an old one, which is void at once.
    #[command(after_help = "\
The new key goes to stdout, everything else to stderr:
  (umask 077; reversi keys rotate 0199f3a0c0de7abc > support-bot.key)")]
    Rotate {
        /// The old key's id, the middle part of `rvk_ID_...`
        #[arg(value_name = "KEY_ID")]
        key: KeyId,
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
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<&'a str>,
    allow_observe: bool,
}

pub(super) fn run(args: &KeysArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let (api, json) = (Api::new(&args.server)?, args.json);
    match &args.command {
        KeysCommand::Create { roles, actor, person, groups, expires, allow_observe } => {
            let (person, expires_at, allow_observe) = (person.as_deref(), expires.as_deref(), *allow_observe);
            let body = KeyRequest { actor, roles, person, groups, expires_at, allow_observe };
            let answer = api.post("/keys", &body)?;
            new_key(answer, json, out)?;
        }
        KeysCommand::List => {
            let (value, keys): (_, List<Key>) = api.get("/keys")?;
            if json { out.json(&value)? } else { list(&keys.items, out)? }
        }
        KeysCommand::Revoke { key } => {
            let (value, view): (_, Key) = api.delete(&format!("/keys/{key}"))?;
            if json {
                out.json(&value)?;
            } else {
                out.line(clean(&format!("key {key} of {} is void", view.actor)))?;
            }
            say_if_own(&api, key, out)?;
        }
        KeysCommand::Rotate { key } => {
            let answer = api.post(&format!("/keys/{key}/rotate"), &json!({}))?;
            new_key(answer, json, out)?;
            tell!("key {key} is void");
            say_if_own(&api, key, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn new_key((value, key): (serde_json::Value, NewKey), json: bool, out: &mut Out) -> Result<(), Failure> {
    if json {
        return out.json(&value);
    }
    out.line(&key.key)?;
    out.flush()?;
    tell!("this is the only time that key {} is shown", key.key_id);
    Ok(())
}

fn say_if_own(api: &Api, key: &KeyId, out: &mut Out) -> Result<(), Failure> {
    out.flush()?;
    if api.uses_key(key.as_str()) {
        tell!("it was the key of this command, from {}: the next command needs another one", api.key_from());
    }
    Ok(())
}

fn list(keys: &[Key], out: &mut Out) -> Result<(), Failure> {
    let row = |key: &Key| {
        let state = match (&key.expires_at, key.revoked) {
            (_, true) => "void".to_owned(),
            (Some(at), false) => format!("until {}", instant(at)),
            (None, false) => "valid".to_owned(),
        };
        let observes = if key.allow_observe { "+observe" } else { "" };
        let groups = if key.groups.is_empty() { String::new() } else { format!(" in {}", key.groups.join(", ")) };
        let person = key.person.as_ref().filter(|person| **person != key.actor);
        let person = person.map_or(String::new(), |person| format!(" ({person})"));
        vec![
            key.id.clone(),
            state,
            format!("{}{observes}", key.roles.join(",")),
            format!("{}{person}{groups}", key.actor),
        ]
    };
    let rows: Vec<Vec<String>> = keys.iter().map(row).collect();
    out.table(&["KEY", "STATE", "ROLES", "WHOSE"], &rows)
}
