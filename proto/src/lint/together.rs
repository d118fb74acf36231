//! The rules about manifests that name each other or share something. Must not know an upstream.
use std::collections::BTreeMap;

use super::finding::{Code, Found};
use crate::manifest::{Effect, Manifest, ManifestSet};

/// How many tools a message names.
const NAMED_MAX: usize = 3;

pub(super) fn check(set: &ManifestSet, found: &mut Found) {
    let changing = changing_tools(set);
    for manifest in set.iter() {
        undo_tool(set, manifest, found);
        if manifest.effect == Effect::ReadOnly
            && let Some(others) = changing.get(manifest.permission.as_str())
        {
            shared_permission(manifest, others, found);
        }
    }
}

/// The tools that change things, by permission.
fn changing_tools(set: &ManifestSet) -> BTreeMap<&str, Vec<&str>> {
    let mut changing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for manifest in set.iter().filter(|manifest| manifest.effect.is_mutating()) {
        changing.entry(&manifest.permission).or_default().push(manifest.tool.as_str());
    }
    changing
}

fn shared_permission(manifest: &Manifest, others: &[&str], found: &mut Found) {
    let named = others[..others.len().min(NAMED_MAX)].join(", ");
    let more = others.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!(
        "read-only tool shares the permission {} with tools that change things ({named}{more}): a run that may read \
         may also change",
        manifest.permission
    );
    let fix = "give reading a permission of its own, such as orders:read beside orders:write";
    found.add(manifest, Code::L019, "permission", message, fix);
}

fn undo_tool(set: &ManifestSet, manifest: &Manifest, found: &mut Found) {
    let Some(compensation) = &manifest.compensation else { return };
    // A set from the journal may lack it.
    let Some(undo) = set.get(&compensation.tool) else { return };
    let (tool, effect) = (&undo.tool, undo.effect);
    match effect {
        // Reading twice is no harm, but it undoes nothing.
        Effect::ReadOnly => {
            let message =
                format!("the undo {tool} is read_only: a rollback would call it, and nothing would be undone");
            let fix = "name the tool that takes the effect back; a tool that only looks belongs into verification";
            found.add(manifest, Code::L104, "compensation.tool", message, fix);
        }
        Effect::Idempotent => {}
        Effect::Reversible | Effect::Compensable | Effect::Irreversible => {
            let message = format!(
                "the compensation tool {tool} is {effect} and not idempotent, but rollback retries it: a retry could \
                 repeat its effect"
            );
            let fix = "make the undo safe to repeat (Reversi sends the same idempotency key with each retry) and \
                       declare it idempotent";
            found.add(manifest, Code::L014, "compensation.tool", message, fix);
        }
    }
    if effect == Effect::Irreversible {
        let message = format!(
            "the undo {tool} is irreversible: each rollback waits for a human, and a wrong undo cannot be taken back"
        );
        let fix = "name an undo that can be repeated or undone, or declare this tool irreversible";
        found.add(manifest, Code::L102, "compensation.tool", message, fix);
    }
}
