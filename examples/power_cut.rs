//! The two sides of the power-cut test. `power_cut write DIR` starts a daemon on DIR, begins and completes steps over
//! HTTP, and prints each acknowledged one; `power_cut check DIR "RUN STEP"` starts a daemon on what a cut left of DIR and
//! fails if anything acknowledged is missing.
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use reversi::demo::api::Api;
use reversi::demo::daemon::{Setting, Stage};
use serde_json::json;

/// A run gets this many steps, so that runs are started all the time too.
const STEPS: u32 = 50;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let dir = PathBuf::from(args.get(2).context("usage: power_cut write|check DIR [ACKED]")?);
    std::fs::create_dir_all(&dir)?;
    let binary = binary()?;
    let stage = Stage::new(&dir, &binary, &[("fs.yaml", include_str!("../manifests/demo/fs.yaml"))])?;
    match args.get(1).map(String::as_str) {
        Some("write") => write(&stage).await,
        Some("check") => check(&stage, args.get(3).map_or("", String::as_str)).await,
        _ => bail!("usage: power_cut write|check DIR [ACKED]"),
    }
}

/// The daemon's binary stands beside the folder of examples.
fn binary() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.parent().and_then(Path::parent).context("the example is not in a target folder")?;
    Ok(target.join("reversi"))
}

async fn write(stage: &Stage) -> anyhow::Result<()> {
    let daemon = stage.start(&Setting::default())?;
    let bot = stage.admin(&daemon)?.with_role("bot-1", "agent").await?;
    loop {
        let run = bot.must("/v1/runs", &json!({ "permissions": ["fs:read"] })).await?;
        let run = run["run_id"].as_str().context("no run_id")?;
        for _ in 0..STEPS {
            let body = json!({ "tool": "fs.read_file", "reason": "a test", "args": { "path": "a" } });
            let begun = bot.must(&format!("/v1/runs/{run}/steps"), &body).await?;
            let step = &begun["step"];
            bot.must(&format!("/v1/runs/{run}/steps/{step}/complete"), &json!({ "status": "succeeded" })).await?;
            println!("{run} {step}");
        }
    }
}

async fn check(stage: &Stage, acked: &str) -> anyhow::Result<()> {
    let daemon = stage.start(&Setting::default())?;
    let Some((run, step)) = acked.split_once(' ') else {
        println!("nothing had been acknowledged");
        return Ok(());
    };
    let admin = stage.admin(&daemon)?;
    let found = Api::read(&admin, &format!("/v1/runs/{run}")).await?;
    let steps = found["steps"].as_array().context("no steps")?;
    let step: usize = step.parse()?;
    ensure!(steps.len() >= step, "step {step} was acknowledged, the run has {}", steps.len());
    for step in &steps[..step] {
        ensure!(step["status"] == "succeeded", "an acknowledged outcome is missing: {step}");
    }
    ensure!(daemon.stop()?.success(), "the daemon does not stop cleanly");
    let data = stage.data().display().to_string();
    let checkpoints = stage.checkpoints().display().to_string();
    for args in [vec!["doctor", data.as_str()], vec!["verify", data.as_str(), "--checkpoint", checkpoints.as_str()]] {
        let (code, out, err) = stage.reversi(&args)?;
        ensure!(code == 0, "{args:?} exits with {code}: {out}{err}");
    }
    println!("{step} steps of the last run are there");
    Ok(())
}
