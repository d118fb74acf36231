//! `reversi demo`: a governed run on a real tool server, undone across a `kill -9` of its own daemon. Says what it does
//! as it goes, checks every claim against the world, and fails if any of them is untrue.
pub mod agent;
pub mod api;
pub mod daemon;
mod proof;

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::connector::tree::tree_hash;
use crate::connector::{Outcome, read_calls};
use agent::Agent;
use api::Api;
use daemon::{Setting, Stage};

/// How long the demo waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays an agent's session on a sandbox folder, undoes it across a crash of the daemon, and checks the result.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  reversi demo
  reversi demo --keep ./demo   # keeps sandbox, ledger and logs to look at")]
pub struct DemoArgs {
    /// Where sandbox, data and logs go; they are kept. Without it a temporary folder is used and removed.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// Runs the demo: exit code 0 if every claim held, 1 if one didn't.
pub async fn demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let temporary = tempfile::tempdir()?;
    let dir = match &args.keep {
        Some(dir) => {
            let used = fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
            ensure!(!used, "{} is not empty; name an empty or a new folder", dir.display());
            fs::create_dir_all(dir)?;
            fs::canonicalize(dir)?
        }
        None => fs::canonicalize(temporary.path())?,
    };
    let mut tale = Tale::new();
    match story(&dir, &mut tale).await {
        Ok(()) if tale.untrue == 0 => {
            tale.farewell(args.keep.as_deref());
            Ok(ExitCode::SUCCESS)
        }
        Ok(()) => {
            println!("\n{} claim(s) did not hold.", tale.untrue);
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            println!("\nThe demo could not go on: {error:#}");
            if let Ok(log) = fs::read_to_string(dir.join("daemon.log")) {
                println!("The daemon's last lines:\n{}", log.lines().rev().take(8).collect::<Vec<_>>().join("\n"));
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

/// What the demo tells, and which of its claims held.
pub(crate) struct Tale {
    colour: bool,
    untrue: u32,
}

impl Tale {
    fn new() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colour, untrue: 0 }
    }

    fn chapter(&self, title: &str) {
        if self.colour {
            println!("\n\x1b[1m{title}\x1b[0m");
        } else {
            println!("\n{title}");
        }
    }

    #[allow(clippy::unused_self)] // told by whoever tells the tale
    pub(crate) fn say(&self, text: &str) {
        println!("  {text}");
    }

    /// A claim, checked.
    pub(crate) fn claim(&mut self, holds: bool, text: &str) {
        let (mark, code) = if holds { ("ok", "32") } else { ("NOT SO", "31") };
        if self.colour {
            println!("  \x1b[{code}m{mark}\x1b[0m  {text}");
        } else {
            println!("  {mark}  {text}");
        }
        self.untrue += u32::from(!holds);
    }

    fn farewell(&self, kept: Option<&Path>) {
        self.chapter("What to try next");
        match kept {
            Some(dir) => {
                self.say(&format!(
                    "reversi serve --config {}   # the same daemon, still there",
                    dir.join("reversi.config.yaml").display()
                ));
                self.say(&format!(
                    "reversi verify {} --checkpoint {}",
                    dir.join("data").display(),
                    dir.join("checkpoints").display()
                ));
                self.say(&format!("reversi doctor {}", dir.join("data").display()));
            }
            None => self.say("reversi demo --keep DIR   # keeps sandbox, ledger and logs to look at"),
        }
        self.say("reversi serve             # an empty daemon on http://127.0.0.1:7421; README.md shows a first call");
        self.say("reversi --help");
    }
}

async fn story(dir: &Path, tale: &mut Tale) -> anyhow::Result<()> {
    let binary = std::env::current_exe().context("the demo can't find its own binary")?;
    let manifests = [
        ("fs.yaml", include_str!("../../manifests/demo/fs.yaml")),
        ("mail.yaml", include_str!("../../manifests/demo/mail.yaml")),
    ];
    let stage = Stage::new(dir, &binary, &manifests)?;
    fill(&stage.sandbox())?;
    let before = tree_hash(&stage.sandbox())?;

    tale.chapter("1. A daemon, and an agent that works under it");
    // The connector will execute the inverse, record it, and never answer: that is the moment to kill the daemon.
    let holding = Setting { hold_after: Some("fs.restore".to_owned()), ..Setting::default() };
    let daemon = stage.start(&holding)?;
    let admin = stage.admin(&daemon)?;
    let operator = admin.with_role("olga", "operator").await?;
    let bot = admin.with_role("bot-1", "agent").await?;
    // Whom the mail waits for; it never gets an answer.
    admin.with_role("anna", "approver").await?;
    tale.say(&format!("daemon on {}, sandbox {} (tree {})", daemon.url, stage.sandbox().display(), before.short(12)));
    let pinned = pin_key(&operator).await?;
    tale.say(&format!("an auditor pins the ledger's key on the first day: {pinned}"));
    let upstream = stage.fs_upstream(&Setting::default());
    let agent = Agent::start(bot, vec![upstream], &dir.join("agent"), &["fs:read", "fs:write", "mail:send"]).await?;
    let forgotten = session(&agent, tale).await?;
    agent.leave().await;
    let run = agent.run().to_owned();
    let changed = tree_hash(&stage.sandbox())?;
    tale.claim(changed != before, &format!("the sandbox has changed (tree {})", changed.short(12)));

    tale.chapter("2. What a rollback would do");
    show_plan(&operator.read(&format!("/v1/runs/{run}/plan")).await?, tale);

    tale.chapter("3. The rollback starts, and the daemon dies in the middle of it");
    operator.must(&format!("/v1/runs/{run}/rollback"), &json!({})).await?;
    let record = stage.connector_state()?;
    wait_for("the first inverse to be executed", || Ok(restores(&record)?.first().cloned())).await?;
    daemon.kill()?;
    tale.say("the connector executed the first inverse and withheld its answer; then: kill -9 of the daemon");
    tale.say("nobody has recorded how that inverse ended");

    tale.chapter("4. A new daemon on the same data");
    let daemon = stage.start(&Setting::default())?;
    let operator = Api::new(&daemon.url, operator.key())?;
    let report = settled(&operator, &run).await?;
    tale.say("it found the open attempt, read the file system back, and went on without a second call");
    show_report(&report, tale);
    let waits = report["unresolved"].as_array().is_some_and(|steps| steps.len() == 1);
    tale.claim(waits && report["complete"] == false, "it stops at the step whose outcome nobody knows");

    tale.chapter("5. The operator settles that step");
    let note = "the file is there: the call happened";
    let body = json!({ "target": "step", "status": "succeeded", "note": note, "result": forgotten.result });
    operator.must(&format!("/v1/runs/{run}/steps/{}/resolve", forgotten.step), &body).await?;
    tale.say(&format!("step {}: succeeded, {note}", forgotten.step));
    let report = settled(&operator, &run).await?;
    show_report(&report, tale);

    tale.chapter("6. Is it true?");
    proof::of_the_world(&stage, &report, (before, &run), tale)?;
    let exported = operator.text("/v1/ledger/records?from=0").await?;
    let status = daemon.stop()?;
    tale.claim(status.success(), "the daemon stops cleanly on SIGTERM");
    proof::of_the_ledger(&stage, &exported, &pinned, tale)
}

/// The key that the ledger's first record names. What an auditor pins early can't be replaced later.
async fn pin_key(operator: &Api) -> anyhow::Result<String> {
    let exported = operator.text("/v1/ledger/records?from=0").await?;
    let first: Value = serde_json::from_str(exported.lines().next().context("the ledger is empty")?)?;
    Ok(first["body"]["verifier_key"].as_str().context("the first record names no key")?.to_owned())
}

fn fill(sandbox: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(sandbox.join("reports"))?;
    fs::write(sandbox.join("notes.txt"), "milk\nbread\n")?;
    fs::write(sandbox.join("todo.md"), "- water the plants\n")?;
    fs::write(sandbox.join("reports/january.csv"), "day,sum\n1,120\n2,80\n")?;
    fs::write(sandbox.join("reports/old.csv"), "day,sum\n")?;
    Ok(())
}

/// Ten calls: reads, writes, a move, a delete, one that needs a person, and one whose outcome is never told.
async fn session(agent: &Agent, tale: &mut Tale) -> anyhow::Result<agent::Called> {
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    agent.call("fs.read_file", json!({ "path": "notes.txt" })).await?;
    agent.call("fs.write_file", write("summary.md", "# Summary\n")).await?;
    agent.call("fs.write_file", write("notes.txt", "milk\nbread\nbutter\n")).await?;
    let forgotten = agent.call_and_fall_silent("fs.append_file", write("todo.md", "- call the bank\n")).await?;
    agent.call("fs.make_dir", json!({ "path": "archive" })).await?;
    agent.call("fs.move", json!({ "from": "reports/january.csv", "to": "archive/january.csv" })).await?;
    agent.call("fs.delete", json!({ "path": "reports/old.csv" })).await?;
    agent.call("fs.write_file", write("summary.md", "# Summary\n\nAll done.\n")).await?;
    let mail = agent.call("mail.send", json!({ "to": "everybody@example.com", "text": "All done." })).await?;
    agent.call("fs.delete", json!({ "path": "notes.txt" })).await?;
    tale.say("10 calls: 1 read, 3 writes, 1 append, 1 new folder, 1 move, 2 deletes, 1 mail");
    tale.say(&format!("step {}: the agent fell silent after the call, its outcome is unknown", forgotten.step));
    let blocked = mail.decision["decision"] == "block" && mail.decision["approval_id"].is_string();
    let reason = mail.decision["reasons"][0].as_str().unwrap_or("no reason was given");
    tale.claim(blocked, &format!("step {}: mail.send did not run: {reason}", mail.step));
    Ok(forgotten)
}

fn show_plan(plan: &Value, tale: &Tale) {
    for step in plan["steps"].as_array().into_iter().flatten() {
        let (no, tool) = (step["step"].as_u64().unwrap_or(0), step["tool"].as_str().unwrap_or("?"));
        let action = step["action"].as_str().unwrap_or("?").replace('_', " ");
        let detail = match (step["undo_tool"].as_str(), step["reason"].as_str()) {
            (_, Some(reason)) => reason.to_owned(),
            (Some(undo), None) => {
                let verified = if step["will_be_verified"] == true { ", then read back" } else { "" };
                format!("by {undo}{verified}")
            }
            (None, None) => String::new(),
        };
        tale.say(&format!("{no:>3}  {tool:<16} {action:<12} {detail}"));
    }
    tale.say(&format!("verdict: {}", plan["verdict"].as_str().unwrap_or("?").replace('_', " ")));
}

fn show_report(report: &Value, tale: &Tale) {
    let lists = ["compensated", "failed", "deferred", "unresolved", "undo_uncertain", "not_undoable", "unrecoverable"];
    for list in lists {
        let entries: Vec<&Value> = report[list].as_array().into_iter().flatten().collect();
        if entries.is_empty() {
            continue;
        }
        let steps: Vec<String> = entries.iter().map(|entry| entry["step"].to_string()).collect();
        tale.say(&format!("{:<14} step {}", list.replace('_', " "), steps.join(", ")));
    }
    let word = |name: &str| if report[name] == true { "yes" } else { "no" };
    tale.say(&format!(
        "status {}, complete: {}, verified: {}",
        report["status"].as_str().unwrap_or("?"),
        word("complete"),
        word("verified")
    ));
}

/// Inverses that the connector executed, by its own record.
pub(crate) fn restores(state: &Path) -> anyhow::Result<Vec<String>> {
    let executed = |call: &crate::connector::CallRecord| call.tool == "fs.restore" && call.outcome == Outcome::Executed;
    let calls = read_calls(state)?;
    Ok(calls.into_iter().filter(executed).map(|call| call.key.unwrap_or_default()).collect())
}

/// The report, once the rollback needs a person or is over.
pub async fn settled(operator: &Api, run: &str) -> anyhow::Result<Value> {
    let since = Instant::now();
    loop {
        let report = operator.read(&format!("/v1/runs/{run}/rollback")).await?;
        if report["status"] != "rolling_back" {
            return Ok(report);
        }
        if since.elapsed() > PATIENCE {
            bail!("the rollback does not settle: {report}");
        }
        pause().await;
    }
}

/// Polls until there is something.
pub async fn wait_for<T>(what: &str, mut look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if since.elapsed() > PATIENCE {
            bail!("waited in vain for {what}");
        }
        pause().await;
    }
}

#[allow(clippy::disallowed_methods, reason = "a pause between two looks at another process")]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
