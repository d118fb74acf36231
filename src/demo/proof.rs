//! The demo's checks: the world against the ledger, and the ledger against a stranger's eyes.
use std::collections::BTreeMap;
use std::fs;

use reversi_proto::hash::Hash;
use serde_json::Value;

use super::daemon::Stage;
use super::{Tale, restores};
use crate::connector::tree::tree_hash;

/// Each inverse ran once, and the folder is as it was.
pub(super) fn of_the_world(
    stage: &Stage,
    report: &Value,
    (before, run): (Hash, &str),
    tale: &mut Tale,
) -> anyhow::Result<()> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for key in restores(&stage.connector_state()?)? {
        *times.entry(key).or_default() += 1;
    }
    let undone = report["compensated"].as_array().map_or(0, Vec::len);
    let of_run = times.keys().all(|key| key.contains(run));
    let once = of_run && times.len() == undone && times.values().all(|count| *count == 1);
    tale.claim(once, &format!("by the connector's own record each of {undone} inverses ran exactly once"));
    tale.claim(report["complete"] == true, "the report says complete: nothing was left undone");
    tale.claim(report["verified"] == true, "the report says verified: every read-back matched");
    let after = tree_hash(&stage.sandbox())?;
    let text = format!("the sandbox is what it was before the session (tree {})", after.short(12));
    tale.claim(after == before, &text);
    Ok(())
}

/// The ledger verifies against its checkpoint, and a copy that lost its tail doesn't.
pub(super) fn of_the_ledger(stage: &Stage, exported: &str, key: &str, tale: &mut Tale) -> anyhow::Result<()> {
    let (data, checkpoints) = (stage.data(), stage.checkpoints());
    let (data, checkpoints) = (data.display().to_string(), checkpoints.display().to_string());
    let strict = ["--checkpoint", &checkpoints, "--require-checkpoint", "--trust", key];
    let (code, out, err) = stage.reversi(&[&["verify", &data][..], &strict].concat())?;
    for line in out.lines().chain(err.lines()) {
        tale.say(&format!("| {line}"));
    }
    tale.claim(code == 0, "reversi verify accepts the ledger, signature and checkpoint included");
    let (code, _, _) = stage.reversi(&["doctor", &data])?;
    tale.claim(code == 0, "reversi doctor finds every invariant kept");

    let lines: Vec<&str> = exported.lines().collect();
    let cut = stage.data().with_extension("cut.jsonl");
    fs::write(&cut, lines[..lines.len().saturating_sub(3)].join("\n") + "\n")?;
    let (plain, _, _) = stage.reversi(&["verify", &cut.display().to_string()])?;
    let (code, out, err) = stage.reversi(&[&["verify", &cut.display().to_string()][..], &strict].concat())?;
    tale.say(&format!(
        "a copy without its last 3 records: by its chain alone exit {plain}, against the checkpoint exit {code}"
    ));
    for line in out.lines().chain(err.lines()).filter(|line| line.contains("completeness")) {
        tale.say(&format!("| {line}"));
    }
    tale.claim(code == 1, "the cut tail is caught");
    Ok(())
}
