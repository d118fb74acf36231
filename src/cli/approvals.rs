//! `reversi approvals`: look at requests, and say a person's word. Must not know how a request is shown (`approval_text`)
//! or followed (`watch`).
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use reversi_proto::approval::GLASS_REASON_CHARS_MIN;
use reversi_proto::ids::ApprovalId;
use serde::Serialize;
use serde_json::Value;

use super::api::{Api, ServerArgs};
use super::failure::{Failure, exit};
use super::out::{Out, tell};
use super::terminal::Terminal;
use super::wire_people::{Approval, ApprovalPage, Reviews};
use super::{approval_text, watch};

/// Fewest digits of an id by which a request is found.
const PREFIX_MIN: usize = 8;
const DIGITS: usize = 32;

/// Shows what waits for a person's yes, and says yes or no.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
ID is the full id, or at least 8 digits of its beginning where only one open request begins so.

Examples:
  reversi approvals list --mine
  reversi approvals show apr_0199f3a0c0de
  reversi approvals approve apr_0199f3a0c0de --note \"checked the ticket\"
  reversi approvals watch"
)]
pub(super) struct ApprovalsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the daemon's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// Lists requests, the oldest first.
    #[command(after_help = "\
A status of `level 1` means pending, with one more role or group asked since nobody answered in time;
`emergency` means granted by one person alone.

Examples:
  reversi approvals list
  reversi approvals list --mine
  reversi approvals list --status all --limit 200 --json")]
    List {
        /// Only those on which your word counts now
        #[arg(long)]
        mine: bool,
        /// Which ones
        #[arg(long, default_value = "pending", value_name = "STATUS")]
        status: StatusWord,
        /// Most requests to show, 1 to 200
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Go on behind this request, as the last page said
        #[arg(long, value_name = "ID")]
        cursor: Option<ApprovalId>,
    },
    /// Shows a request with all that there is to know before a decision.
    #[command(after_help = "\
Text that can't be seen is written out as \\u{...}. Of arguments, a line that begins with : goes on
from the one above it.

Example:
  reversi approvals show apr_0199f3a0c0de")]
    Show {
        /// Which request
        id: String,
    },
    /// Says yes. At the quorum the call may be made, once.
    #[command(after_help = "\
The request is shown first, and the fingerprint that you saw is sent with your yes. Without a
terminal to ask at, --yes is needed.

Examples:
  reversi approvals approve apr_0199f3a0c0de --note \"checked the ticket\"
  reversi approvals approve apr_0199f3a0c0de7abc8def0123456789ab --yes --json")]
    Approve {
        #[command(flatten)]
        which: Which,
        /// Why; public, it stands in the ledger
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Says no. One no is enough, and ends the request.
    #[command(after_help = "Example:\n  reversi approvals deny apr_0199f3a0c0de --note \"the customer did not ask\"")]
    Deny {
        #[command(flatten)]
        which: Which,
        /// Why; public, it stands in the ledger
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Takes your own yes back, as long as it was not used.
    #[command(after_help = "Example:\n  reversi approvals withdraw apr_0199f3a0c0de")]
    Withdraw {
        #[command(flatten)]
        which: Which,
    },
    /// Takes a request or a grant away for good: whoever voted for it, or an admin.
    #[command(after_help = "Example:\n  reversi approvals revoke apr_0199f3a0c0de --reason \"the wrong account\"")]
    Revoke {
        #[command(flatten)]
        which: Which,
        /// Why; public, it stands in the ledger
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Grants a request alone in an emergency, in place of the quorum.
    #[command(after_help = "\
Needs a key with the role breakglass. Another person must review it within 72 hours; until an overdue
review is done, you can't do it again.

Example:
  reversi approvals break-glass apr_0199f3a0c0de --reason \"shop is down, finance is not reachable\"")]
    BreakGlass {
        #[command(flatten)]
        which: Which,
        /// Why, in 20 characters or more; public, it stands in the ledger
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Says what you found when you looked at somebody's emergency grant.
    #[command(after_help = "\
Example:
  reversi approvals review apr_0199f3a0c0de --note \"the outage was real, finance is informed\"")]
    Review {
        #[command(flatten)]
        which: Which,
        /// What you found; public, it stands in the ledger
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
    Watch(watch::WatchArgs),
    /// Lists the reviews that are owed after emergency grants.
    #[command(after_help = "Example:\n  reversi approvals reviews")]
    Reviews,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Which request
    id: String,
    /// Don't ask, and don't show the request first
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusWord {
    /// Those that wait for votes
    Pending,
    /// Those that are granted and not used yet
    Approved,
    /// All that ever were
    All,
}

impl StatusWord {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::All => "all",
        }
    }
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Approve,
    Deny,
    Withdraw,
    Revoke,
    BreakGlass,
    Review,
}

impl Word {
    /// The last part of its path.
    fn path(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Withdraw => "withdraw",
            Self::Revoke => "revoke",
            Self::BreakGlass => "break-glass",
            Self::Review => "review",
        }
    }

    /// How its question begins.
    fn question(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Deny => "Deny",
            Self::Withdraw => "Withdraw your yes to",
            Self::Revoke => "Revoke",
            Self::BreakGlass => "Break the glass for",
            Self::Review => "Record your review of",
        }
    }
}

/// One word on one request.
struct Saying<'a> {
    which: &'a Which,
    word: Word,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct SayBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
}

pub(super) fn run(args: &ApprovalsArgs, out: &mut Out) -> Result<ExitCode, Failure> {
    let ApprovalsArgs { server, json, command } = args;
    let saying = |which, word, reason| Saying { which, word, reason };
    let saying = match command {
        ApprovalsCommand::List { mine, status, limit, cursor } => {
            let cursor = cursor.as_ref().map(|id| format!("&cursor={id}")).unwrap_or_default();
            let mine = if *mine { "&mine=true" } else { "" };
            let query = format!("?status={}&limit={limit}{mine}{cursor}", status.as_str());
            return list(&Api::new(server)?, &query, *json, out);
        }
        ApprovalsCommand::Show { id } => return show(&Api::new(server)?, id, *json, out),
        ApprovalsCommand::Watch(args) => return watch::run(args, &Api::new(server)?, *json, out),
        ApprovalsCommand::Reviews => return reviews(&Api::new(server)?, *json, out),
        ApprovalsCommand::Approve { which, note } => saying(which, Word::Approve, note.as_deref()),
        ApprovalsCommand::Deny { which, note } => saying(which, Word::Deny, note.as_deref()),
        ApprovalsCommand::Withdraw { which } => saying(which, Word::Withdraw, None),
        ApprovalsCommand::Revoke { which, reason } => saying(which, Word::Revoke, Some(reason)),
        ApprovalsCommand::BreakGlass { which, reason } => {
            if reason.trim().chars().count() < GLASS_REASON_CHARS_MIN {
                let text =
                    format!("--reason: an emergency needs a reason of {GLASS_REASON_CHARS_MIN} characters or more");
                return Err(Failure::Usage(text));
            }
            saying(which, Word::BreakGlass, Some(reason))
        }
        ApprovalsCommand::Review { which, note } => saying(which, Word::Review, Some(note)),
    };
    say(server, &saying, *json, out)
}

fn list(api: &Api, query: &str, json: bool, out: &mut Out) -> Result<ExitCode, Failure> {
    let (value, page): (_, ApprovalPage) = api.get(&format!("/approvals{query}"))?;
    if json {
        out.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    if page.items.is_empty() {
        tell!("there are no such requests");
        return Ok(ExitCode::SUCCESS);
    }
    approval_text::list(out, &page.items, api.now())?;
    if let Some(next) = page.next_cursor {
        out.flush()?;
        tell!("there are more: add --cursor {}", super::out::clean(&next));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(api: &Api, typed: &str, json: bool, out: &mut Out) -> Result<ExitCode, Failure> {
    let id = full_id(api, typed, false)?;
    let (value, approval): (Value, Approval) = api.get(&format!("/approvals/{id}"))?;
    if json {
        out.json(&value)?;
    } else {
        approval_text::show(out, &approval, api.now())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn reviews(api: &Api, json: bool, out: &mut Out) -> Result<ExitCode, Failure> {
    let (value, reviews): (_, Reviews) = api.get("/reviews")?;
    if json {
        out.json(&value)?;
    } else if reviews.items.is_empty() {
        tell!("no review is owed");
    } else {
        approval_text::reviews(out, &reviews.items, api.now())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at the request, lets the person look at it, and sends their word with the fingerprint that they saw.
fn say(server: &ServerArgs, saying: &Saying<'_>, json: bool, out: &mut Out) -> Result<ExitCode, Failure> {
    let Saying { which, word, reason } = saying;
    let terminal = if which.yes { None } else { Some(Terminal::open().ok_or_else(nobody_to_ask)?) };
    let api = Api::new(server)?;
    let id = full_id(&api, &which.id, *word == Word::Review)?;
    let (_, approval): (_, Approval) = api.get(&format!("/approvals/{id}"))?;
    let fingerprint = approval.fingerprint.as_deref();
    if approval.preview.is_none() {
        let text = format!("this key is not shown what {id} asks for, so it can't decide on it: use an approver's key");
        return Err(Failure::Input(text));
    }
    if let Some(terminal) = terminal {
        let mut shown = Out::stderr();
        approval_text::show(&mut shown, &approval, api.now())?;
        shown.flush()?;
        let compared =
            fingerprint.map_or(String::new(), |text| format!(" with fingerprint {}", super::out::clean(text)));
        if !terminal.yes(&format!("\n{} {id}{compared}? [y/N] ", word.question()))? {
            tell!("nothing was done");
            return Ok(ExitCode::from(exit::FAILED));
        }
    }
    let body = SayBody { reason: *reason, fingerprint };
    let (value, now): (_, Approval) = api.post(&format!("/approvals/{id}/{}", word.path()), &body)?;
    if json {
        out.json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    approval_text::outcome(out, &now, api.now())?;
    Ok(ExitCode::SUCCESS)
}

fn nobody_to_ask() -> Failure {
    let text = "there is no terminal to show the request on and to ask at: look at it with `reversi approvals show`, \
                then say --yes";
    Failure::Usage(text.to_owned())
}

/// The full id, or the one request that begins so: pending, else granted, or with a review owed.
fn full_id(api: &Api, typed: &str, review: bool) -> Result<ApprovalId, Failure> {
    let digits = typed.strip_prefix("apr_").unwrap_or(typed).to_ascii_lowercase();
    if let Ok(id) = format!("apr_{digits}").parse() {
        return Ok(id);
    }
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !hex || !(PREFIX_MIN..DIGITS).contains(&digits.len()) {
        let shown = typed.chars().take(80).collect::<String>();
        let text = format!(
            "{shown:?} names no request: give apr_ and {DIGITS} hex digits, or the first {PREFIX_MIN} of them or more"
        );
        return Err(Failure::Usage(text));
    }
    let found = if review {
        let (_, reviews): (_, Reviews) = api.get("/reviews")?;
        reviews.items.into_iter().map(|review| review.approval).filter(|id| begins(id, &digits)).collect()
    } else {
        let pending = beginning(api, "pending", &digits)?;
        if pending.is_empty() { beginning(api, "approved", &digits)? } else { pending }
    };
    match found.as_slice() {
        [one] => one.parse().map_err(|_| Failure::Internal(format!("the daemon lists {one}, which is no id"))),
        [] => {
            let text = format!(
                "no open request begins with apr_{digits}: see `reversi approvals list`; one that is over \
                                is found by its full id"
            );
            Err(Failure::Input(text))
        }
        [a, b, ..] => {
            Err(Failure::Usage(format!("apr_{digits} begins several requests, like {a} and {b}: say more of it")))
        }
    }
}

fn begins(id: &str, digits: &str) -> bool {
    id.strip_prefix("apr_").is_some_and(|rest| rest.starts_with(digits))
}

/// Up to two requests that begin so. Lists are in the order of the ids, so a page that begins right before is enough.
fn beginning(api: &Api, status: &str, digits: &str) -> Result<Vec<String>, Failure> {
    let first = u128::from_str_radix(&format!("{digits:0<DIGITS$}"), 16);
    let before = first.ok().and_then(|first| first.checked_sub(1));
    let cursor = before.map_or(String::new(), |before| format!("&cursor=apr_{before:032x}"));
    let (_, page): (_, ApprovalPage) = api.get(&format!("/approvals?status={status}&limit=2{cursor}"))?;
    Ok(page.items.into_iter().map(|it| it.id).filter(|id| begins(id, digits)).collect())
}
