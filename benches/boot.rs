//! Boot with a million events and ten thousand parked runs: with the event store intact, and when it must be rebuilt.
//! `cargo bench --bench boot` (some minutes: the events are made first); `-- RUNS` for another number of runs.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use reversi::adapters::notify::LogNotifier;
use reversi::demo::daemon::{Setting, Stage};
use reversi_actors::clock::{Clock, RealClock};
use reversi_actors::ids::OsIds;
use reversi_actors::journal::{CheckpointSink, Config, DiskJournal};
use reversi_actors::ports::NoTools;
use reversi_actors::service::{NewKey, NewRollback, NewRun, NewStep, Retry, Service, StepOutcome};
use reversi_actors::system::{Parts, System, genesis};
use reversi_proto::access::Principal;
use reversi_proto::event::v1::{Mode, Outcome, Role};
use reversi_proto::manifest::{ManifestSet, load};

const MANIFESTS: &str = include_str!("../manifests/demo/fs.yaml");
/// Calls of a run: with its start, its open step and its rollback about a hundred events.
const CALLS: u32 = 48;

async fn principal(service: &Service, admin: &Principal, actor: &str, role: Role) -> Principal {
    let actor = actor.parse().unwrap();
    let key = NewKey { actor, roles: vec![role], person: None, groups: vec![], allow_observe: false, expires_at: None };
    let (_, text) = service.create_key(admin, key).await.unwrap();
    service.authenticate(&text).unwrap()
}

/// A run of many calls whose last one is open, so that its rollback waits for a person: parked.
async fn parked_run(service: Service, agent: Principal, operator: Principal) {
    let permissions = vec!["fs:write".to_owned(), "fs:read".to_owned()];
    let run = NewRun { run_id: None, permissions, mode: Mode::Enforce, reason: None };
    let run = service.start_run(&agent, run, Retry::default()).await.unwrap().0.run_id;
    for call in 0..=CALLS {
        let step = NewStep {
            tool: "fs.write_file".parse().unwrap(),
            reason: "a bench".to_owned(),
            args: format!(r#"{{"path":"{call}","content":"day,sum"}}"#),
            approval_id: None,
        };
        let begun = service.begin(&agent, &run, step, Retry::default()).await.unwrap();
        if call < CALLS {
            let result = Some(r#"{"undo_token":"0123456789abcdef"}"#.to_owned());
            let outcome = StepOutcome { status: Outcome::Succeeded, result, error: None, result_values: None };
            service.complete(&agent, &run, begun.step, outcome).await.unwrap();
        }
    }
    service.rollback(&operator, &run, NewRollback::default(), Retry::default()).await.unwrap();
}

async fn fill(stage: &Stage, runs: usize) {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::start());
    let mut config = Config::new(stage.data());
    config.sink = Some(CheckpointSink::File(stage.checkpoints()));
    let journal = DiskJournal::open(config, Arc::clone(&clock), |ledger, key| genesis(ledger, key, &OsIds).unwrap());
    let manifests = load("fs.yaml", MANIFESTS.as_bytes()).unwrap();
    let manifests = manifests.into_iter().map(|manifest| ("fs.yaml".to_owned(), manifest)).collect();
    let manifests = ManifestSet::new(manifests).unwrap();
    let parts = Parts {
        journal: Arc::new(journal.unwrap()),
        clock,
        ids: Arc::new(OsIds),
        tools: Arc::new(NoTools),
        notifier: Arc::new(LogNotifier),
        manifests,
    };
    let mut admin = String::new();
    let system = System::start(parts, |key| {
        key.clone_into(&mut admin);
        std::fs::write(stage.data().join("admin.key"), key)
    });
    let system = system.await.unwrap();
    let service = system.service();
    let admin = service.authenticate(&admin).unwrap();
    let agent = principal(&service, &admin, "bot-1", Role::Agent).await;
    let operator = principal(&service, &admin, "olga", Role::Operator).await;
    let mut open = tokio::task::JoinSet::new();
    for _ in 0..runs {
        if open.len() == 128 {
            open.join_next().await.unwrap().unwrap();
        }
        open.spawn(parked_run(service.clone(), agent.clone(), operator.clone()));
    }
    while let Some(ended) = open.join_next().await {
        ended.unwrap();
    }
    system.stop().await.unwrap();
}

fn resident_megabytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn boot(stage: &Stage, what: &str) {
    let began = Instant::now();
    let daemon = stage.start(&Setting::default()).unwrap();
    let (took, megabytes) = (began.elapsed(), resident_megabytes(daemon.pid()));
    println!("boot {what}: {:.2} s, {megabytes} MB resident", took.as_secs_f64());
    assert!(daemon.stop().unwrap().success());
}

fn main() {
    let runs = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(10_000);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let stage = Stage::new(dir.path(), Path::new(env!("CARGO_BIN_EXE_reversi")), &[("fs.yaml", MANIFESTS)]).unwrap();
    let began = Instant::now();
    tokio::runtime::Runtime::new().unwrap().block_on(fill(&stage, runs));
    println!("{runs} parked runs of {CALLS} calls each were made in {:.0} s", began.elapsed().as_secs_f64());
    boot(&stage, "after a clean stop");
    std::fs::remove_dir_all(stage.data().join("db")).unwrap();
    boot(&stage, "with the event store rebuilt from the segments");
}
