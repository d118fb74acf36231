//! Runs, plans and reports as text that reads well at 80 columns. Must not ask anybody anything.
use super::failure::Failure;
use super::out::{Out, Tone};
use super::when::instant;
use super::wire::{Approver, Entry, Plan, PlanStep, Report, RunBody, RunHead, Settled, StepView};

/// The lists of a report in the order in which they matter, and what a person should read above each.
const LISTS: [(&str, &str, Tone); 13] = [
    ("failed", "failed: known not to be undone", Tone::Bad),
    ("undo_uncertain", "undo uncertain: check, then resolve with --undo", Tone::Bad),
    ("unresolved", "unresolved: nobody knows whether the step happened; check, then resolve", Tone::Bad),
    ("conflict", "conflict: the world changed since", Tone::Bad),
    ("disputed", "disputed: a late outcome contradicts a resolution", Tone::Bad),
    ("awaiting_approval", "awaiting approval", Tone::Doubtful),
    ("deferred", "deferred: held back by a later step", Tone::Doubtful),
    ("in_progress", "in progress", Tone::Doubtful),
    ("not_undoable", "not undoable", Tone::Doubtful),
    ("unrecoverable", "unrecoverable: a value that the undo needs is missing", Tone::Doubtful),
    ("abandoned", "abandoned", Tone::Doubtful),
    ("compensated", "compensated", Tone::Good),
    ("skipped", "skipped: nothing to undo", Tone::Dim),
];

/// A page of runs.
pub(super) fn runs(out: &mut Out, runs: &[RunHead]) -> Result<(), Failure> {
    let row = |run: &RunHead| {
        let open = if run.unresolved == 0 { String::new() } else { format!(", {} open", run.unresolved) };
        vec![
            run.run_id.clone(),
            run.status.clone(),
            format!("{}{open}", run.step_count),
            minute(&run.started_at),
            run.actor.clone(),
            run.reason.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    out.table(&["RUN", "STATUS", "STEPS", "STARTED", "ACTOR", "REASON"], &rows)
}

/// `2026-10-01 00:00` of `2026-10-01T00:00:02.000000Z`.
fn minute(time: &str) -> String {
    time.chars().take(16).collect::<String>().replace('T', " ")
}

/// A run with its steps.
pub(super) fn run(out: &mut Out, run: &RunBody) -> Result<(), Failure> {
    let RunHead { run_id, status, mode, permissions, actor, reason, started_at, .. } = &run.head;
    out.paragraph("run", 9, run_id)?;
    let painted = out.paint(tone_of(status), status);
    out.line(format!("{:9}{painted}, {mode}", "status"))?;
    out.paragraph("started", 9, &format!("{started_at} by {actor}"))?;
    out.paragraph("scope", 9, &permissions.join(", "))?;
    if let Some(reason) = reason {
        out.paragraph("reason", 9, reason)?;
    }
    if run.steps.is_empty() {
        return out.line("no steps");
    }
    out.line("")?;
    run.steps.iter().try_for_each(|view| step(out, view))
}

fn step(out: &mut Out, step: &StepView) -> Result<(), Failure> {
    let status = out.paint(tone_of(&step.status), &format!("{:20}", step.status));
    let effect = step.effect.as_deref().map_or(String::new(), |effect| format!("  {effect}"));
    out.line(format!("{:>4}  {status}  {}{effect}", step.step, step.tool))?;
    if !step.reason.is_empty() {
        out.paragraph("", 6, &step.reason)?;
    }
    if step.unresolved {
        out.paragraph("", 6, "! nobody knows whether it happened: check, then `reversi runs resolve`")?;
    }
    if step.disputed {
        out.paragraph("", 6, "! a late outcome contradicts the operator's resolution")?;
    }
    for finding in &step.findings {
        out.paragraph("", 6, &format!("{}: {}", finding.code, finding.text))?;
    }
    approval(out, step.approval_id.as_deref(), &step.approved_by)?;
    if !step.missing.is_empty() {
        out.paragraph("", 6, &format!("can't be undone: {} missing", step.missing.join(", ")))?;
    }
    if step.undo_attempts > 0 {
        out.line(format!("      {}", attempts(step.undo_attempts)))?;
    }
    Ok(())
}

/// What a rollback would do.
pub(super) fn plan(out: &mut Out, plan: &Plan) -> Result<(), Failure> {
    let (tone, verdict) = match plan.verdict.as_str() {
        "fully_undoable" => (Tone::Good, "can be undone fully"),
        "partly_undoable" => (Tone::Doubtful, "can be undone in part"),
        "not_undoable" => (Tone::Bad, "can't be undone"),
        other => (Tone::Doubtful, other),
    };
    let verdict = out.paint(tone, verdict);
    out.line(format!("run {} {verdict}; newest step first:", plan.run_id))?;
    if plan.steps.is_empty() {
        return out.line("no steps");
    }
    plan.steps.iter().try_for_each(|step| plan_step(out, step))
}

fn plan_step(out: &mut Out, step: &PlanStep) -> Result<(), Failure> {
    let action = out.paint(tone_of(&step.action), &format!("{:14}", step.action));
    if let ("skip", Some(reason)) = (step.action.as_str(), &step.reason) {
        let text = format!("{}: {reason}", step.tool);
        return out.paragraph(&format!("{:>4}  {action}  ", step.step), 22, &text);
    }
    out.line(format!("{:>4}  {action}  {}", step.step, step.tool))?;
    if step.action == "compensate" {
        let tool = step.undo_tool.as_deref().unwrap_or("an undeclared tool");
        let mut text = format!("by {tool}");
        text.push_str(&step.kind.as_deref().map_or(String::new(), |kind| format!(" ({kind})")));
        text.push_str(if step.will_be_verified { ", read back afterwards" } else { ", not read back" });
        text.push_str(if step.requires_approval { ", after an approval" } else { "" });
        out.paragraph("", 6, &text)?;
    }
    if let Some(reason) = &step.reason {
        out.paragraph("", 6, reason)?;
    }
    residue(out, &step.residue)
}

fn residue(out: &mut Out, residue: &[String]) -> Result<(), Failure> {
    residue.iter().try_for_each(|what| out.paragraph("", 6, &format!("stays: {what}")))
}

/// What a rollback did.
pub(super) fn report(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let rollback = report.rollback_id.as_deref().unwrap_or("none yet");
    let status = out.paint(tone_of(&report.status), &report.status);
    out.line(format!("{:10}{}", "run", report.run_id))?;
    out.line(format!("{:10}{rollback}", "rollback"))?;
    out.line(format!("{:10}{status}", "status"))?;
    let complete = yes(out, report.complete, "nothing was left undone", "something is not undone");
    let verified =
        yes(out, report.verified, "every declared read-back matched", "not every declared read-back matched");
    out.line(format!("{:10}{complete}", "complete"))?;
    out.line(format!("{:10}{verified}", "verified"))?;
    for (name, title, tone) in LISTS {
        list(out, title, tone, &report.list(name))?;
    }
    let known = LISTS.map(|(name, _, _)| name);
    for name in report.other_lists(&known) {
        list(out, name, Tone::Doubtful, &report.list(name))?;
    }
    Ok(())
}

fn yes(out: &Out, is: bool, good: &str, bad: &str) -> String {
    if is {
        format!("{}: {good}", out.paint(Tone::Good, "yes"))
    } else {
        format!("{}: {bad}", out.paint(Tone::Bad, "no"))
    }
}

fn list(out: &mut Out, title: &str, tone: Tone, entries: &[Entry]) -> Result<(), Failure> {
    if entries.is_empty() {
        return Ok(());
    }
    let title = out.paint(tone, &format!("{title} ({})", entries.len()));
    out.line(format!("\n{title}"))?;
    for entry in entries {
        let tried = if entry.attempts == 0 { String::new() } else { format!("  {}", attempts(entry.attempts)) };
        let verified = match entry.verified {
            None => "",
            Some(true) => ", verified",
            Some(false) => ", not verified",
        };
        out.line(format!("{:>4}  {}{tried}{verified}", entry.step, entry.tool))?;
        out.paragraph("", 6, &entry.reason)?;
        residue(out, &entry.residue)?;
        approval(out, entry.approval.as_deref(), &entry.approved_by)?;
    }
    Ok(())
}

/// Which request, and whose yes.
fn approval(out: &mut Out, id: Option<&str>, by: &[Approver]) -> Result<(), Failure> {
    let Some(id) = id else { return Ok(()) };
    let who = |it: &Approver| {
        let place = it.on_behalf_of.as_ref().map_or(String::new(), |who| format!(" in the place of {who}"));
        let alone = if it.break_glass { " alone, in an emergency" } else { "" };
        format!("{}{place}{alone}, {}", it.person, instant(&it.at))
    };
    let by: Vec<String> = by.iter().map(who).collect();
    let by = if by.is_empty() { String::new() } else { format!(", approved by {}", by.join("; by ")) };
    out.paragraph("", 6, &format!("approval {id}{by}"))
}

/// What an operator settled.
pub(super) fn settled(out: &mut Out, settled: &Settled) -> Result<(), Failure> {
    out.line(format!("step {} is {}", settled.step, settled.status))?;
    if settled.missing.is_empty() {
        return Ok(());
    }
    let missing = settled.missing.join(", ");
    out.paragraph("", 0, &format!("it can't be undone, because its undo needs what is missing: {missing}"))
}

fn attempts(count: u32) -> String {
    if count == 1 { "1 undo attempt".to_owned() } else { format!("{count} undo attempts") }
}

fn tone_of(word: &str) -> Tone {
    match word {
        "succeeded" | "compensated" | "rolled_back" | "compensate" | "active" => Tone::Good,
        "blocked" | "uncertain" | "failed" | "compensation_failed" | "undo_uncertain" | "unresolved" => Tone::Bad,
        "skip" | "sealed" => Tone::Dim,
        _ => Tone::Doubtful,
    }
}
