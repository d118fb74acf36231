//! `reversi login`, `logout`, `whoami`: a key of one's own, kept so that nobody pastes keys into commands. Must not know
//! where address and key are looked for otherwise: that is `api`.
use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use super::api::{Api, ServerArgs, key_from_file, key_of};
use super::failure::Failure;
use super::out::{Out, clean, tell};
use super::profile::{self, Profile};
use super::terminal::Terminal;
use super::wire_people::Me;

/// Longest key with what surrounds it, in bytes.
const KEY_BYTES_MAX: u64 = 4096;

/// Checks a key and keeps it, so that later commands need none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The key is read from --key-file, from a terminal without being shown, or from stdin. It is kept with
the address in $XDG_CONFIG_HOME/reversi/profile.json (or ~/.config/reversi/profile.json, mode 0600),
and sent to that daemon only. --url, --key-file, REVERSI_URL and REVERSI_KEY come before the profile.

Examples:
  reversi login
  reversi login --url https://reversi.example.com --key-file olga.key
  pass show reversi | reversi login --url https://reversi.example.com")]
pub(super) struct LoginArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Deletes the kept key.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The key stays valid: an admin makes it void with `reversi keys revoke`.

Example:
  reversi logout")]
pub(super) struct LogoutArgs {}

/// Shows whose key is used, and what it may do.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  reversi whoami
  reversi whoami --json | jq -r .person")]
pub(super) struct WhoamiArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn login(args: &LoginArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let path = profile::must_path()?;
    let server = &args.server;
    let mut profile =
        Profile { url: server.login_url().to_owned(), key: String::new(), allow_plain_http: server.allow_plain_http };
    // An address that can't be meant is said before a key is typed.
    Api::of_profile(&profile)?;
    profile.key = match &server.key_file {
        Some(file) => key_from_file(file)?,
        None => typed_key(&profile.url)?,
    };
    let api = Api::of_profile(&profile)?;
    let (_, me): (_, Me) = api.get("/me")?;
    api.base().clone_into(&mut profile.url);
    profile::store(&path, &profile)?;
    out.line(clean(&format!("logged in at {} as {}", api.base(), me.sentence())))?;
    out.flush()?;
    tell!("the key is kept in {}; `reversi logout` deletes it", path.display());
    for name in ["REVERSI_URL", "REVERSI_KEY"] {
        if std::env::var_os(name).is_some_and(|value| !value.is_empty()) {
            tell!("note: {name} is set and comes before the profile");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn typed_key(url: &str) -> Result<String, Failure> {
    let text = if std::io::stdin().is_terminal() {
        let nobody =
            || Failure::Usage("the key can't be asked for, because nobody would see it: use --key-file".into());
        Terminal::open().ok_or_else(nobody)?.secret(&format!("Key for {} (not shown): ", clean(url)))?
    } else {
        let mut text = String::new();
        let read = std::io::stdin().take(KEY_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| Failure::Input(format!("stdin can't be read: {error}")))?;
        text
    };
    if text.trim().is_empty() {
        let text = "no key came in: type it at the prompt, pipe it into stdin, or name its file with --key-file";
        return Err(Failure::Usage(text.to_owned()));
    }
    key_of(&text).ok_or_else(|| Failure::Input("what came in is no key; a key starts with rvk_".to_owned()))
}

pub(super) fn logout(_: &LogoutArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let path = profile::must_path()?;
    let said = if profile::delete(&path)? { "logged out: the kept key is deleted" } else { "nobody was logged in" };
    out.line(said)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn whoami(args: &WhoamiArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.server)?;
    let (value, me): (_, Me) = api.get("/me")?;
    if args.json {
        out.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    out.paragraph("actor", 12, &format!("{} ({})", me.actor, me.kind))?;
    out.paragraph("person", 12, me.person.as_deref().unwrap_or("none is named: votes count for the actor"))?;
    out.paragraph("roles", 12, &me.roles.join(", "))?;
    if !me.groups.is_empty() {
        out.paragraph("groups", 12, &me.groups.join(", "))?;
    }
    out.paragraph("key", 12, &format!("{}, from {}", me.key_id, api.key_from()))?;
    out.paragraph("daemon", 12, api.base())?;
    Ok(ExitCode::SUCCESS)
}
