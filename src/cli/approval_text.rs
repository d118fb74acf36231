//! Requests as text that reads well at 80 columns. What agents wrote stands behind a mark on every line, so that it can't
//! pass for something that the daemon says. Must not ask anybody anything.
use reversi_proto::approval::escaped;
use reversi_proto::time::Timestamp;

use super::failure::Failure;
use super::out::{Out, Tone, clean, folded, pieces};
use super::when::{distance, instant, with_distance};
use super::wire_people::{Approval, Glass, Preview, Review, Vote};

/// Columns of the names of fields.
const NAME: usize = 13;
/// Columns of the mark before a foreign line.
const MARK: usize = 2;
/// Fewest digits of an id in a list: those of the millisecond in which it was made.
const SHORT_MIN: usize = 12;

/// A page of requests. The ids are cut to what tells them apart.
pub(super) fn list(out: &mut Out, items: &[Approval], now: Option<Timestamp>) -> Result<(), Failure> {
    let digits = distinct_digits(items);
    let row = |it: &Approval| {
        let alive = it.status == "pending" || it.status == "approved";
        let deadline = it.deadline.as_deref().filter(|_| alive);
        let until = deadline.map(|at| distance(at, now).unwrap_or_else(|| instant(at)));
        vec![
            it.id.chars().take("apr_".len() + digits).collect(),
            match (&it.break_glass, it.level, it.status.as_str()) {
                (Some(_), _, "approved") => "emergency".to_owned(),
                (_, 1.., "pending") => format!("level {}", it.level),
                (_, _, status) => status.to_owned(),
            },
            format!("{}/{}", it.votes.len(), it.quorum),
            until.unwrap_or_else(|| "-".to_owned()),
            it.tool.clone(),
            it.requested_by.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    out.table(&["APPROVAL", "STATUS", "VOTES", "UNTIL", "TOOL", "ASKED BY"], &rows)
}

fn distinct_digits(items: &[Approval]) -> usize {
    let mut ids: Vec<&str> = items.iter().filter_map(|it| it.id.strip_prefix("apr_")).collect();
    ids.sort_unstable();
    let common = |pair: &[&str]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
    ids.windows(2).map(|pair| common(pair) + 1).max().unwrap_or(0).max(SHORT_MIN)
}

fn status(it: &Approval) -> String {
    let level = if it.level > 0 && it.status == "pending" { format!(", level {}", it.level) } else { String::new() };
    let glass = if it.break_glass.is_some() { ", emergency" } else { "" };
    format!("{}{level}{glass}", it.status)
}

fn tone_of(status: &str) -> Tone {
    match status {
        "approved" | "consumed" => Tone::Good,
        "denied" | "revoked" => Tone::Bad,
        "expired" | "cancelled" => Tone::Dim,
        _ => Tone::Doubtful,
    }
}

fn field(out: &mut Out, name: &str, text: &str) -> Result<(), Failure> {
    out.paragraph(name, NAME, &escaped(text))
}

/// A request with everything that a decision needs; the fingerprint stands last, where the question is.
pub(super) fn show(out: &mut Out, it: &Approval, now: Option<Timestamp>) -> Result<(), Failure> {
    field(out, "approval", &it.id)?;
    let painted = out.paint(tone_of(&it.status), &clean(&status(it)));
    out.line(format!("{:NAME$}{painted}", "status"))?;
    if let Some(preview) = &it.preview {
        what(out, it, preview)?;
        who(out, it)?;
    }
    votes(out, it)?;
    if let Some(glass) = &it.break_glass {
        emergency(out, glass, now)?;
    }
    if let Some(by) = &it.ended_by {
        let note = it.end_note.as_deref().map_or(String::new(), |note| format!(": {note}"));
        field(out, "ended", &format!("by {by}{note}"))?;
    }
    if let Some(deadline) = &it.deadline {
        let then = it.at_deadline.as_deref().map_or(String::new(), |then| format!("; then {then}"));
        field(out, "deadline", &format!("{}{then}", with_distance(deadline, now)))?;
    } else if it.status == "pending" {
        field(out, "deadline", "none: it waits until somebody answers")?;
    }
    match &it.fingerprint {
        Some(fingerprint) => field(out, "fingerprint", fingerprint),
        None => Ok(()),
    }
}

fn what(out: &mut Out, it: &Approval, preview: &Preview) -> Result<(), Failure> {
    field(out, "", &preview.sentence)?;
    let effect = preview.effect.as_deref().map_or(String::new(), |effect| format!(" ({effect})"));
    field(out, "tool", &format!("{}{effect}", it.tool))?;
    if let Some(description) = &preview.description {
        field(out, "does", description)?;
    }
    if let Some(undo) = &preview.undo {
        field(out, "undone by", undo)?;
    }
    for residue in &preview.residue {
        field(out, "stays", &format!("{residue} (the undo can't take it back)"))?;
    }
    let class = preview.data_class.as_ref().map(|class| format!("data class {class}"));
    let blast = preview.blast_radius.as_ref().map(|blast| format!("blast radius {blast}"));
    let risk: Vec<String> = class.into_iter().chain(blast).collect();
    if !risk.is_empty() {
        field(out, "risk", &risk.join(", "))?;
    }
    arguments(out, preview)
}

/// The JSON as the daemon redacted it, whole. A line that is too long goes on behind a colon.
fn arguments(out: &mut Out, preview: &Preview) -> Result<(), Failure> {
    let Some(arguments) = &preview.arguments else {
        return field(out, "arguments", "not kept any more, or never known");
    };
    let redacted = counted(preview.redacted_values, "value is", "values are", "hidden by the manifest's redaction");
    let hidden = counted(preview.hidden_characters, "character is", "characters are", "too many and not shown");
    let told: Vec<String> = redacted.into_iter().chain(hidden).collect();
    let told = if told.is_empty() { "all of them:".to_owned() } else { format!("{}:", told.join("; ")) };
    field(out, "arguments", &told)?;
    let width = out.width.saturating_sub(2 * MARK);
    for line in escaped(arguments).lines() {
        for (at, piece) in pieces(&clean(line), width).iter().enumerate() {
            let mark = if at == 0 { '|' } else { ':' };
            out.line(format!("  {mark} {piece}").trim_end())?;
        }
    }
    Ok(())
}

fn counted(count: u64, one: &str, many: &str, rest: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one} {rest}")),
        _ => Some(format!("{count} {many} {rest}")),
    }
}

fn who(out: &mut Out, it: &Approval) -> Result<(), Failure> {
    let step = it.step.map_or(String::new(), |step| {
        if it.target == "undo" { format!(", undo of step {step}") } else { format!(", step {step}") }
    });
    field(out, "run", &format!("{}{step}", it.run_id))?;
    field(out, "asked", &format!("{} by {}", instant(&it.requested_at), it.requested_by))?;
    let Some(preview) = &it.preview else { return Ok(()) };
    if !preview.agents_reason.is_empty() {
        let whose = if preview.asked_by.is_empty() {
            "in the words of whoever allowed it:"
        } else {
            "in the agent's own words, which nobody has checked:"
        };
        field(out, "reason", whose)?;
        for line in folded(&clean(&escaped(&preview.agents_reason)), out.width.saturating_sub(NAME + MARK)) {
            out.line(format!("{:NAME$}> {line}", "").trim_end())?;
        }
    }
    if !preview.asked_by.is_empty() {
        field(out, "required by", &preview.asked_by.join(", "))?;
    }
    let may = if it.roles.is_empty() {
        "any approver".to_owned()
    } else {
        format!("approvers who hold one of: {}", it.roles.join(", "))
    };
    field(out, "who may", &may)
}

fn votes(out: &mut Out, it: &Approval) -> Result<(), Failure> {
    let count = it.votes.len();
    field(out, "votes", &format!("{count} of {}", it.quorum.max(1)))?;
    it.votes.iter().try_for_each(|vote| field(out, "", &voted(vote)))
}

fn voted(vote: &Vote) -> String {
    let place = vote.on_behalf_of.as_ref().map_or(String::new(), |who| format!(", in the place of {who}"));
    let note = vote.note.as_ref().map_or(String::new(), |note| format!(": {note}"));
    format!("{}, {}{place}{note}", vote.person, instant(&vote.at))
}

fn emergency(out: &mut Out, glass: &Glass, now: Option<Timestamp>) -> Result<(), Failure> {
    let at = glass.at.as_deref().map_or(String::new(), |at| format!(", {}", instant(at)));
    let reason = glass.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    field(out, "emergency", &format!("granted by {} alone{at}{reason}", glass.person))?;
    let review = match (&glass.reviewed_by, &glass.review_by) {
        (Some(by), _) => format!("by {by}: {}", glass.review.as_deref().unwrap_or_default()),
        (None, Some(due)) if glass.overdue => format!("overdue since {}", instant(due)),
        (None, Some(due)) => format!("owed by another person until {}", with_distance(due, now)),
        (None, None) => return Ok(()),
    };
    field(out, "review", &review)
}

/// What became of it, in a sentence or two.
pub(super) fn outcome(out: &mut Out, it: &Approval, now: Option<Timestamp>) -> Result<(), Failure> {
    let (count, quorum) = (it.votes.len(), it.quorum as usize);
    let until = it.deadline.as_deref().map_or(String::new(), |at| format!(" until {}", with_distance(at, now)));
    let text = match it.status.as_str() {
        "pending" if count < quorum => format!("{count} of {quorum} votes; {} to go{until}", quorum - count),
        "pending" => format!("waits for votes{until}"),
        "approved" if it.target == "undo" => format!("the undo goes on by itself{until}"),
        "approved" if it.fingerprint.is_none() => {
            format!("the next call of {}, or undo by it, may be made{until}", it.tool)
        }
        "approved" => format!("the same call may be made once{until}"),
        _ => it.end_note.clone().unwrap_or_default(),
    };
    let text = if text.is_empty() { text } else { format!(": {text}") };
    out.paragraph("", 0, &escaped(&format!("{} is {}{text}", it.id, status(it))))?;
    match &it.break_glass {
        Some(Glass { review_by: Some(due), .. }) => {
            let text = format!("another person owes a review until {}", with_distance(due, now));
            out.paragraph("", 0, &text)
        }
        Some(Glass { reviewed_by: Some(by), .. }) => {
            out.paragraph("", 0, &escaped(&format!("the emergency grant was reviewed by {by}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// The reviews that are owed.
pub(super) fn reviews(out: &mut Out, items: &[Review], now: Option<Timestamp>) -> Result<(), Failure> {
    for it in items {
        let due = if it.overdue { "overdue since" } else { "due" };
        let due = format!("{due} {}", with_distance(&it.due, now));
        let tone = if it.overdue { Tone::Bad } else { Tone::Doubtful };
        let due = out.paint(tone, &due);
        out.line(clean(&it.approval))?;
        out.line(format!("  {due}"))?;
        let run = it.run_id.as_ref().map_or(String::new(), |run| format!(" in run {run}"));
        out.paragraph("", 2, &escaped(&format!("{} granted it alone{run}: {}", it.person, it.reason)))?;
    }
    Ok(())
}
