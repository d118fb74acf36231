//! `reversi approvals watch`: each request once as it appears, and what becomes of it. Must not decide anything.
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use reversi_proto::approval::escaped;
use reversi_proto::time::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::api::Api;
use super::failure::Failure;
use super::out::{Out, Tone, clean, tell};
use super::when::{time_of_day, with_distance};
use super::wire_people::Approval;

/// Columns before what is told.
const INDENT: usize = 20;
/// Requests of a page.
const PAGE: u32 = 200;

/// Follows requests: tells each one as it appears, and what becomes of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ends with Ctrl-C. With --json each change is one line: {\"change\", \"seen_at\", \"approval\"}; `change` is
asked, voted, withdrawn, escalated, or the request's new status. A daemon that is away for a moment
is waited for.

Examples:
  reversi approvals watch
  reversi approvals watch --mine
  reversi approvals watch --json | jq -c 'select(.change == \"asked\") | .approval.preview.sentence'")]
pub(super) struct WatchArgs {
    /// Only those on which your word counts
    #[arg(long)]
    mine: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    interval: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "expected seconds like 2 or 0.5".to_owned())?;
    let fits = (0.05..=3600.0).contains(&number);
    if fits { Ok(Duration::from_secs_f64(number)) } else { Err("expected 0.05 to 3600 seconds".to_owned()) }
}

/// A request as it was seen: the answer for scripts, and what is read of it.
struct Seen {
    value: Value,
    it: Approval,
}

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    change: &'a str,
    seen_at: Option<Timestamp>,
    approval: &'a Value,
}

/// What is known of the requests that can still change.
struct Watch<'a> {
    api: &'a Api,
    mine: bool,
    json: bool,
    known: BTreeMap<String, Seen>,
}

pub(super) fn run(args: &WatchArgs, api: &Api, json: bool, out: &mut Out) -> Result<ExitCode, Failure> {
    let mut watch = Watch { api, mine: args.mine, json, known: BTreeMap::new() };
    let (mut away, mut first) = (false, true);
    loop {
        match watch.look(out) {
            Ok(()) => (away, first) = (false, false),
            // What is wrong from the start is said; what goes wrong later may be a restart of the daemon.
            Err(error) if first || !passes(&error) => return Err(error),
            Err(error) => {
                if !away {
                    tell!("{}; trying again", clean(&error.to_string()));
                }
                away = true;
            }
        }
        out.flush()?;
        std::thread::sleep(args.interval);
    }
}

fn passes(error: &Failure) -> bool {
    matches!(error, Failure::Unreachable(_) | Failure::Refused { status: 408 | 429 | 503, .. })
}

impl Watch<'_> {
    fn look(&mut self, out: &mut Out) -> Result<(), Failure> {
        let mut alive = self.page_through("pending")?;
        // A grant of somebody else's is looked for only where its request was told.
        if self.known.keys().any(|id| !alive.contains_key(id)) {
            for (id, seen) in self.page_through("approved")? {
                alive.entry(id).or_insert(seen);
            }
        }
        let gone: Vec<String> = self.known.keys().filter(|id| !alive.contains_key(*id)).cloned().collect();
        for id in gone {
            let (value, it) = self.api.get(&format!("/approvals/{id}"))?;
            alive.insert(id, Seen { value, it });
        }
        for (id, seen) in alive {
            let before = self.known.remove(&id);
            let told = changes(before.as_ref().map(|before| &before.it), &seen.it);
            told.into_iter().try_for_each(|change| self.tell(out, change, &seen))?;
            let over = !matches!(seen.it.status.as_str(), "pending" | "approved");
            // A grant that was there before the watch began was never told, and is not followed.
            if !over && (before.is_some() || seen.it.status == "pending") {
                self.known.insert(id, seen);
            }
        }
        Ok(())
    }

    /// All requests of a status. Whose word counts can change while a request is followed, so that only new ones are
    /// asked for by it.
    fn page_through(&self, status: &str) -> Result<BTreeMap<String, Seen>, Failure> {
        let mine = if self.mine && status == "pending" { "&mine=true" } else { "" };
        let (mut all, mut cursor) = (BTreeMap::new(), String::new());
        loop {
            let path = format!("/approvals?status={status}&limit={PAGE}{mine}{cursor}");
            let (value, IgnoredAny) = self.api.get(&path)?;
            for value in value["items"].as_array().into_iter().flatten() {
                if let Ok(it) = Approval::deserialize(value) {
                    all.insert(it.id.clone(), Seen { value: value.clone(), it });
                }
            }
            match value["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={}", super::api::segment(next)?),
                None => return Ok(all),
            }
        }
    }

    fn tell(&self, out: &mut Out, change: &str, seen: &Seen) -> Result<(), Failure> {
        let now = self.api.now();
        if self.json {
            return out.json_line(&Line { change, seen_at: now, approval: &seen.value });
        }
        let tone = match change {
            "approved" | "consumed" => Tone::Good,
            "denied" | "revoked" => Tone::Bad,
            "asked" | "escalated" => Tone::Doubtful,
            _ => Tone::Dim,
        };
        let word = out.paint(tone, &format!("{:11}", clean(change)));
        let time = now.map_or_else(|| "        ".to_owned(), time_of_day);
        out.paragraph(&format!("{time} {word}"), INDENT, &seen.it.id)?;
        out.paragraph("", INDENT, &escaped(&detail(change, &seen.it, now)))
    }
}

/// What happened between two looks, in the order in which it must have.
fn changes<'a>(before: Option<&Approval>, now: &'a Approval) -> Vec<&'a str> {
    let Some(before) = before else {
        return if now.status == "pending" { vec!["asked"] } else { Vec::new() };
    };
    let mut told = Vec::new();
    if now.level > before.level {
        told.push("escalated");
    }
    if now.votes.len() > before.votes.len() && now.status == "pending" {
        told.push("voted");
    }
    if now.votes.len() < before.votes.len() {
        told.push("withdrawn");
    }
    if now.status != before.status {
        told.push(&now.status);
    }
    told
}

fn detail(change: &str, it: &Approval, now: Option<Timestamp>) -> String {
    let until = it.deadline.as_deref().map_or(String::new(), |at| format!(" until {}", with_distance(at, now)));
    let who: Vec<&str> = it.votes.iter().map(|vote| vote.person.as_str()).collect();
    let by = if who.is_empty() { String::new() } else { format!(": {}", who.join(", ")) };
    match change {
        "asked" => {
            let sentence = it.preview.as_ref().map_or(it.tool.as_str(), |preview| &preview.sentence);
            let fingerprint = it.fingerprint.as_deref().unwrap_or("none");
            let roles = if it.roles.is_empty() { "any approver".to_owned() } else { it.roles.join(", ") };
            format!("{sentence}; {} of {} votes by {roles}{until}; fingerprint {fingerprint}", who.len(), it.quorum)
        }
        "escalated" => format!("to level {}: {}{until}", it.level, it.roles.join(", ")),
        "voted" | "withdrawn" | "pending" => format!("{} of {} votes{by}", who.len(), it.quorum),
        "approved" => match &it.break_glass {
            Some(glass) => format!("by {} alone, in an emergency{until}", glass.person),
            None => format!("{} of {} votes{by}; to be used{until}", who.len(), it.quorum),
        },
        "consumed" => format!("the grant was used for {}", it.tool),
        _ => {
            let ended = it.ended_by.as_deref().map_or(String::new(), |by| format!("by {by}"));
            it.end_note.as_deref().map_or(ended.clone(), |note| format!("{ended}: {note}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::wire_people::Vote;

    fn request(status: &str, votes: usize, level: u32) -> Approval {
        let votes = vec![Vote::default(); votes];
        Approval { status: status.to_owned(), votes, level, ..Approval::default() }
    }

    #[test]
    fn between_two_looks_everything_is_told_once_and_in_order() {
        let pending = request("pending", 0, 0);
        assert_eq!(changes(None, &pending), ["asked"]);
        assert_eq!(changes(Some(&pending), &pending), [""; 0]);
        assert_eq!(changes(Some(&pending), &request("pending", 1, 1)), ["escalated", "voted"]);
        assert_eq!(changes(Some(&request("approved", 2, 0)), &request("pending", 1, 0)), ["withdrawn", "pending"]);
        assert_eq!(changes(Some(&request("pending", 1, 0)), &request("approved", 2, 0)), ["approved"]);
        assert_eq!(changes(Some(&request("approved", 2, 0)), &request("consumed", 2, 0)), ["consumed"]);
        assert_eq!(changes(None, &request("approved", 2, 0)), [""; 0]);
    }

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("0").is_err() && seconds("NaN").is_err() && seconds("1e9").is_err() && seconds("x").is_err());
    }
}
