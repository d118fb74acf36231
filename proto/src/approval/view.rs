//! A request as a person reads it before they decide. Nothing in it is cut silently, nothing in it can steer a
//! terminal, and no redacted value is in it. Must not know HTTP.
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::{Approval, ApprovalStatus, Ask, Glass};
use crate::config::Archive;
use crate::event::v1::Target;
use crate::ids::{ActorId, ApprovalId, RunId, StepNo, ToolName};
use crate::manifest::{BlastRadius, Effect, Manifest, Root, Segment, ValuePath};
use crate::time::Timestamp;

/// Longest arguments that a preview shows, in characters; what is beyond is counted.
const ARGUMENT_CHARS_MAX: usize = 16_384;
/// What stands in the place of a redacted value.
const REDACTED: &str = "[redacted]";
/// Hex digits of the fingerprint that people compare.
const FINGERPRINT_DIGITS: usize = 12;

/// A request with its votes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovalView {
    /// Its id.
    pub approval_id: ApprovalId,
    /// The run that it belongs to.
    pub run_id: RunId,
    /// The blocked step, or the step to be undone; none for a pre-approval.
    pub step: Option<StepNo>,
    /// A call (`step`) or an undo.
    pub target: Target,
    /// Its status.
    pub status: &'static str,
    /// What would be called.
    pub tool: ToolName,
    /// Who asked.
    pub requested_by: ActorId,
    /// When.
    pub requested_at: Timestamp,
    /// The roles or groups whose word counts now; empty: any approver.
    pub roles: Vec<String>,
    /// How many persons must say yes.
    pub quorum: u32,
    /// Who said yes so far.
    pub votes: Vec<VoteView>,
    /// Levels that it has climbed.
    pub level: u32,
    /// When the next thing happens by itself.
    pub deadline: Option<Timestamp>,
    /// What that is.
    pub at_deadline: Option<String>,
    /// Who ended it.
    pub ended_by: Option<String>,
    /// Their words.
    pub end_note: Option<String>,
    /// One person granted it in an emergency.
    pub break_glass: Option<GlassView>,
    /// What people compare before they vote.
    pub fingerprint: Option<String>,
    /// What would happen.
    pub preview: Preview,
}

/// One yes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VoteView {
    /// Whose.
    pub person: String,
    /// In whose place.
    pub on_behalf_of: Option<String>,
    /// Their words.
    pub note: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// Somebody whose yes let a call or an undo happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Approver {
    /// Who.
    pub person: String,
    /// When they said so.
    pub at: Timestamp,
    /// In whose place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// They alone granted it, in an emergency.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub break_glass: bool,
}

/// A broken glass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GlassView {
    /// Who broke it.
    pub person: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: Option<String>,
    /// Until when another person owes a review; none once it is done.
    pub review_by: Option<Timestamp>,
    /// It was not done by then.
    pub overdue: bool,
    /// Who reviewed it.
    pub reviewed_by: Option<String>,
    /// What they found.
    pub review: Option<String>,
}

/// What would happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// In one sentence.
    pub sentence: String,
    /// What the manifest says that the tool does.
    pub description: Option<String>,
    /// Its effect.
    pub effect: Option<Effect>,
    /// The tool that undoes it.
    pub undo: Option<ToolName>,
    /// What the undo can't take back.
    pub residue: Vec<String>,
    /// What kind of data it touches.
    pub data_class: Option<String>,
    /// How far its damage would reach.
    pub blast_radius: Option<BlastRadius>,
    /// The words of whoever asked: an agent's claim, not a fact.
    pub agents_reason: String,
    /// The arguments as JSON, redacted values replaced, invisible characters escaped; none once they are forgotten.
    pub arguments: Option<String>,
    /// How many values were redacted.
    pub redacted_values: usize,
    /// How many characters of the arguments are not shown.
    pub hidden_characters: usize,
    /// Which rules asked.
    pub asked_by: Vec<String>,
}

impl Approval {
    /// What people compare before they vote: the head of the full fingerprint. None for a pre-approval.
    pub fn fingerprint(&self) -> Option<String> {
        self.fingerprint_of_ask().map(|fingerprint| fingerprint.short(FINGERPRINT_DIGITS))
    }

    pub(super) fn fingerprint_of_ask(&self) -> Option<crate::hash::Hash> {
        self.ask.as_ref().and_then(|ask| ask.fingerprint)
    }

    /// Who said yes: the voters, and whoever broke the glass.
    pub fn approvers(&self) -> Vec<Approver> {
        let voted = self.votes.iter().map(|vote| Approver {
            person: vote.person.clone(),
            at: vote.at,
            on_behalf_of: vote.on_behalf_of.clone(),
            break_glass: false,
        });
        let alone =
            |person: &str, at| Approver { person: person.to_owned(), at, on_behalf_of: None, break_glass: true };
        let broke = match &self.glass {
            Glass::Whole => None,
            Glass::Broken { person, at, .. } | Glass::Reviewed { person, at, .. } => Some(alone(person, *at)),
        };
        voted.chain(broke).collect()
    }

    /// The request as a person reads it; None where there is none.
    pub fn view(&self, archive: &Archive) -> Option<ApprovalView> {
        let ask = self.ask.as_ref()?;
        let (deadline, at_deadline) = self.next();
        let end = self.end();
        let vote = |vote: &super::Vote| VoteView {
            person: vote.person.clone(),
            on_behalf_of: vote.on_behalf_of.clone(),
            note: vote.note.as_deref().map(escaped),
            at: vote.at,
        };
        Some(ApprovalView {
            approval_id: self.id.clone(),
            run_id: self.run.clone(),
            step: ask.fingerprint.is_some().then_some(ask.step),
            target: ask.target,
            status: self.status.as_str(),
            tool: ask.tool.clone(),
            requested_by: ask.actor.clone(),
            requested_at: ask.at,
            roles: ask.rules.listed(self.level),
            quorum: ask.rules.quorum,
            votes: self.votes.iter().map(vote).collect(),
            level: self.level,
            deadline,
            at_deadline,
            ended_by: end.map(|(who, _)| who.to_owned()),
            end_note: end.map(|(_, why)| escaped(why)).filter(|why| !why.is_empty()),
            break_glass: self.glass.view(),
            fingerprint: self.fingerprint(),
            preview: ask.preview(archive),
        })
    }

    /// When something happens by itself, and what.
    fn next(&self) -> (Option<Timestamp>, Option<String>) {
        let Some(ask) = &self.ask else { return (None, None) };
        match self.status {
            ApprovalStatus::Open => {
                let next = ask.rules.escalate_to.get(self.level as usize);
                let what = next.map_or("it expires and the call stays refused".to_owned(), |role| {
                    format!("{} may decide too", escaped(role))
                });
                (self.deadline, self.deadline.map(|_| what))
            }
            ApprovalStatus::Approved => (self.use_by, Some("the grant is void if it was not used".to_owned())),
            ApprovalStatus::Absent
            | ApprovalStatus::Consumed
            | ApprovalStatus::Denied
            | ApprovalStatus::Expired
            | ApprovalStatus::Revoked
            | ApprovalStatus::Cancelled => (None, None),
        }
    }
}

impl Glass {
    fn view(&self) -> Option<GlassView> {
        match self {
            Self::Whole => None,
            Self::Broken { person, at, reason, review_by, overdue } => Some(GlassView {
                person: person.clone(),
                at: *at,
                reason: Some(escaped(reason)),
                review_by: Some(*review_by),
                overdue: *overdue,
                reviewed_by: None,
                review: None,
            }),
            Self::Reviewed { person, at, by, note } => Some(GlassView {
                person: person.clone(),
                at: *at,
                reason: None,
                review_by: None,
                overdue: false,
                reviewed_by: Some(by.clone()),
                review: Some(escaped(note)),
            }),
        }
    }
}

impl Ask {
    fn preview(&self, archive: &Archive) -> Preview {
        let manifest = archive.get(self.config, &self.tool).map(std::convert::AsRef::as_ref);
        let compensation = manifest.and_then(|manifest| manifest.compensation.as_ref());
        let (arguments, redacted_values, hidden_characters) = self.arguments(manifest, archive);
        let actor = &self.actor;
        let tool = &self.tool;
        let sentence = match (self.target, self.fingerprint.is_some()) {
            (_, false) => format!("{actor} allowed the next call of {tool} in advance, whatever its arguments"),
            (Target::Step, true) => format!("{actor} wants to call {tool}{}", consequence(manifest)),
            (Target::Undo, true) => format!("the rollback of {actor} wants to undo step {} with {tool}", self.step),
        };
        let asked_by = if self.fingerprint.is_some() { vec![format!("manifest of {tool}")] } else { Vec::new() };
        Preview {
            sentence,
            description: manifest.and_then(|manifest| manifest.description.as_deref()).map(escaped),
            effect: manifest.map(|manifest| manifest.effect),
            undo: compensation.map(|compensation| compensation.tool.clone()),
            residue: compensation.map(|c| c.residue.iter().map(|text| escaped(text)).collect()).unwrap_or_default(),
            data_class: manifest.and_then(|manifest| manifest.risk.data_class.as_deref()).map(escaped),
            blast_radius: manifest.and_then(|manifest| manifest.risk.blast_radius),
            agents_reason: escaped(&self.reason),
            arguments,
            redacted_values,
            hidden_characters,
            asked_by,
        }
    }

    fn arguments(&self, manifest: Option<&Manifest>, archive: &Archive) -> (Option<String>, usize, usize) {
        let Some(args) = &self.args else { return (None, 0, 0) };
        let mut value = args.value();
        let redaction = manifest.map(|manifest| manifest.audit.redaction.as_slice()).unwrap_or_default();
        let of_args = redaction.iter().filter(|reference| reference.root == Root::Args);
        let mut redacted = of_args.filter(|reference| redact(&mut value, &reference.path)).count();
        if self.target == Target::Undo {
            // What was redacted in the call stays so where its undo takes it over.
            redacted += archive.set(self.config).map(|of| redact_taken_over(&mut value, of, &self.tool)).sum::<usize>();
        }
        // A JSON value always has a JSON text.
        let text = escaped(&serde_json::to_string_pretty(&value).unwrap_or_default());
        let hidden = text.chars().count().saturating_sub(ARGUMENT_CHARS_MAX);
        let shown = if hidden == 0 { text } else { text.chars().take(ARGUMENT_CHARS_MAX).collect() };
        (Some(shown), redacted, hidden)
    }
}

fn consequence(manifest: Option<&Manifest>) -> &'static str {
    match manifest.map(|manifest| manifest.effect) {
        None => "",
        Some(Effect::ReadOnly) => ", which changes nothing",
        Some(Effect::Idempotent) => ", which is safe to repeat",
        Some(Effect::Reversible) => ", which can be undone",
        Some(Effect::Compensable) => ", which can be made good but leaves a trace",
        Some(Effect::Irreversible) => ", which can't be undone",
    }
}

/// Redacts what an undo by that tool takes over of a call of this manifest's; how much that was.
fn redact_taken_over(args: &mut Value, manifest: &Manifest, undo: &ToolName) -> usize {
    let Some(compensation) = manifest.compensation.as_ref().filter(|compensation| compensation.tool == *undo) else {
        return 0;
    };
    let mut redacted = 0;
    for (name, taken) in &compensation.argument_map {
        for hidden in manifest.audit.redaction.iter().filter(|hidden| hidden.root == taken.root) {
            let (hidden, taken) = (hidden.path.segments(), taken.path.segments());
            let Some(place) = args.get_mut(name) else { continue };
            // All of the value is part of what is hidden, or a part of it is.
            let found = if taken.starts_with(hidden) {
                put_mark(place)
            } else if let Some(rest) = hidden.strip_prefix(taken) {
                redact_at(place, rest)
            } else {
                false
            };
            redacted += usize::from(found);
        }
    }
    redacted
}

/// Puts a mark in the place of the value; true if there was one.
fn redact(value: &mut Value, path: &ValuePath) -> bool {
    redact_at(value, path.segments())
}

fn redact_at(value: &mut Value, segments: &[Segment]) -> bool {
    let mut place = value;
    for segment in segments {
        let next = match place {
            Value::Object(map) => map.get_mut(segment.as_str()),
            Value::Array(items) => segment.index().and_then(|index| items.get_mut(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        let Some(next) = next else { return false };
        place = next;
    }
    put_mark(place)
}

/// False where another mark stands already, so that each is counted once.
fn put_mark(place: &mut Value) -> bool {
    let new = place.as_str() != Some(REDACTED);
    *place = Value::String(REDACTED.to_owned());
    new
}

/// The text with everything that can't be seen, or that turns writing around, written as `\u{...}`. Line breaks stay.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            // Writing to a String can't fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Controls, formats and fillers of Unicode 16 that show nothing or move what is around them.
fn is_invisible(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        || (c.is_whitespace() && !matches!(c, ' ' | '\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_seen_is_written_out() {
        assert_eq!(escaped("pay\u{202e}001\u{200b} to\tcaf\u{e9}\n"), "pay\\u{202e}001\\u{200b} to\\u{9}caf\u{e9}\n");
        assert_eq!(escaped("a\u{a0}b\u{e0041}\u{feff}"), "a\\u{a0}b\\u{e0041}\\u{feff}");
    }

    #[test]
    fn redaction_reaches_into_lists_and_counts_what_it_found() {
        let mut value = serde_json::json!({"cards": [{"token": "t1"}, {"token": "t2"}], "amount": 5});
        assert!(redact(&mut value, &"cards.1.token".parse().unwrap()));
        assert!(!redact(&mut value, &"cards.2.token".parse().unwrap()));
        assert!(!redact(&mut value, &"amount.cents".parse().unwrap()));
        let expected = serde_json::json!({"cards": [{"token": "t1"}, {"token": "[redacted]"}], "amount": 5});
        assert_eq!(value, expected);
        assert!(redact(&mut value, &"cards".parse().unwrap()));
        assert_eq!(value, serde_json::json!({"cards": "[redacted]", "amount": 5}));
    }
}
