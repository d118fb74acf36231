//! verify and doctor on a data directory that a real journal and real actors left behind.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reversi_actors::clock::SimClock;
use reversi_actors::ids::SeededIds;
use reversi_actors::journal::{CheckpointSink, Config, DiskJournal};
use reversi_actors::ports::{CallOutcome, ToolCall, ToolCaller};
use reversi_actors::service::{NewKey, NewRollback, NewRun, NewStep, Retry, Service, StepOutcome};
use reversi_actors::system::{Parts, System, genesis};
use reversi_proto::access::Principal;
use reversi_proto::event::v1::{Mode, Outcome, Role};
use reversi_proto::ids::ToolName;
use reversi_proto::manifest::{ManifestSet, load};
use reversi_proto::time::Timestamp;

use crate::ledger::arg;
use crate::program::reversi;

const MANIFESTS: &str = "
- tool: doc.write
  effect: reversible
  permission: docs:write
  idempotency: { key: 'write-{{args.name}}', scope: global }
  compensation: { tool: doc.restore, kind: inverse, argument_map: { token: $result.token } }
- { tool: doc.restore, effect: idempotent, permission: docs:write }
";

/// Every call succeeds.
struct Tools;

#[async_trait]
impl ToolCaller for Tools {
    fn upstream_of(&self, tool: &ToolName) -> Option<String> {
        self.tools().get(tool).cloned()
    }
    fn tools(&self) -> BTreeMap<ToolName, String> {
        BTreeMap::from([("doc.restore".parse().unwrap(), "docs".to_owned())])
    }
    async fn call(&self, _call: ToolCall) -> CallOutcome {
        CallOutcome::Success { result: None }
    }
    fn earlier_calls_are_over(&self, _tool: &ToolName) -> bool {
        true
    }
    async fn shutdown(&self) {}
}

/// A daemon's core on a disk.
struct Daemon {
    folder: tempfile::TempDir,
    clock: Arc<SimClock>,
    system: System,
}

impl Daemon {
    async fn start() -> (Self, Principal) {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        let settings = Config {
            sink: Some(CheckpointSink::File(folder.path().join("notes"))),
            origin: "ledger.example".to_owned(),
            segment_bytes: 128 << 10,
            free_space: Some(Arc::new(|| u64::MAX)),
            ..Config::new(folder.path().join("data"))
        };
        let ids = Arc::new(SeededIds::new(7));
        let opening = Arc::clone(&ids);
        let journal = DiskJournal::open(settings, Arc::clone(&clock) as _, |ledger, key| {
            genesis(ledger, key, &*opening).unwrap()
        })
        .unwrap();
        let manifests = load("manifests.yaml", MANIFESTS.as_bytes()).unwrap();
        let named = manifests.into_iter().map(|manifest| ("manifests.yaml".to_owned(), manifest)).collect();
        let manifests = ManifestSet::new(named).unwrap();
        let (journal, tools) = (Arc::new(journal) as _, Arc::new(Tools) as _);
        let parts = Parts {
            journal,
            clock: Arc::clone(&clock) as _,
            ids,
            tools,
            notifier: Arc::new(reversi::adapters::notify::LogNotifier),
            manifests,
        };
        let mut admin = String::new();
        let keep = |key: &str| {
            key.clone_into(&mut admin);
            Ok(())
        };
        let system = System::start(parts, keep).await.unwrap();
        let admin = system.service().authenticate(&admin).unwrap();
        (Self { folder, clock, system }, admin)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

async fn agent(service: &Service, admin: &Principal) -> Principal {
    let (actor, roles) = ("bot-1".parse().unwrap(), vec![Role::Agent]);
    let key = NewKey { actor, roles, person: None, groups: vec![], allow_observe: false, expires_at: None };
    let (_, text) = service.create_key(admin, key).await.unwrap();
    service.authenticate(&text).unwrap()
}

/// Runs of three writes, undone; the next one writes the same names, because their claims are free.
async fn story(daemon: &Daemon, admin: &Principal, runs: usize) {
    let service = daemon.system.service();
    let agent = agent(&service, admin).await;
    for _ in 0..runs {
        let permissions = vec!["docs:write".to_owned()];
        let run = NewRun { run_id: None, permissions, mode: Mode::Enforce, reason: None };
        let run = service.start_run(&agent, run, Retry::default()).await.unwrap().0.run_id;
        for name in ["a", "b", "c"] {
            let (reason, args) = ("x".repeat(1_500), format!(r#"{{"name":"{name}"}}"#));
            let step = NewStep { tool: "doc.write".parse().unwrap(), reason, args, approval_id: None };
            let step = service.begin(&agent, &run, step, Retry::default()).await.unwrap().step;
            let result = Some(format!(r#"{{"token":"{name}"}}"#));
            let outcome = StepOutcome { status: Outcome::Succeeded, result, error: None, result_values: None };
            service.complete(&agent, &run, step, outcome).await.unwrap();
        }
        service.rollback(admin, &run, NewRollback::default(), Retry::default()).await.unwrap();
        let begun = Instant::now();
        loop {
            let report = service.report(admin, &run).await.unwrap();
            if report.status != "rolling_back" {
                assert!(report.complete, "{report:?}");
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the rollback never ends: {report:?}");
            tokio::task::yield_now().await;
            if let Some(next) = daemon.clock.next_sleeper() {
                daemon.clock.advance_to(next);
            }
        }
    }
}

fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(tree(&path));
        } else {
            files.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_verifies_running_and_stopped_and_is_left_alone() {
    let (daemon, admin) = Daemon::start().await;
    story(&daemon, &admin, 2).await;
    let data = daemon.data();
    reversi(["verify", arg(&data)]).exits(0);
    let said = reversi(["doctor", arg(&data)]).exits(0);
    assert!(said.err.contains("a daemon has the directory open"), "{}", said.err);

    let Daemon { folder, system, .. } = daemon;
    system.stop().await.unwrap();
    let before = tree(&data);
    let (notes, key) = (folder.path().join("notes"), data.join("keys/ledger.pub"));
    let strict = ["verify", arg(&data), "--checkpoint", arg(&notes), "--require-checkpoint", "--trust", arg(&key)];
    let said = reversi(strict).exits(0);
    assert!(said.out.contains("result        verified"), "{}", said.out);
    assert!(said.out.contains("freshness     ok: the checkpoint covers the last record"), "{}", said.out);
    let said = reversi(["doctor", arg(&data)]).exits(0);
    assert!(said.err.contains("2 runs, 6 steps, 6 undo attempts; 0 intents are open"), "{}", said.err);
    assert!(!said.err.contains("note:"), "the event store was not compared: {}", said.err);
    assert_eq!(tree(&data), before, "something was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_cut_data_directory_is_caught() {
    let (daemon, admin) = Daemon::start().await;
    story(&daemon, &admin, 2).await;
    let data = daemon.data();
    let Daemon { folder, system, .. } = daemon;
    system.stop().await.unwrap();
    let segment = data.join("ledger/00000000000000000000.seg");
    let whole = std::fs::read(&segment).unwrap();
    let place = whole.windows(8).position(|bytes| bytes == b"step.beg").unwrap();

    // A flipped bit in the middle.
    let mut flipped = whole.clone();
    flipped[place] ^= 1;
    std::fs::write(&segment, &flipped).unwrap();
    for command in ["verify", "doctor"] {
        let said = reversi([command, arg(&data)]).exits(1);
        assert!(said.words().contains(".seg is damaged at byte"), "{}", said.out);
    }
    let json = reversi(["verify", arg(&data), "--json"]).exits(1).json();
    assert_eq!(json["codes"][0], "segment_damaged");

    // A tail of zeros: the mark of the clean stop knows better, and without the mark the checkpoint and the store do.
    let mut cut = whole.clone();
    let end = cut.len() - 4096;
    cut[place - 200..end].fill(0);
    let start = whole[..place].windows(4).rposition(|bytes| bytes == [0xb5, b'R', b'V', 1]).unwrap();
    cut[start..end].fill(0);
    std::fs::write(&segment, &cut).unwrap();
    for later in std::fs::read_dir(data.join("ledger")).unwrap().map(|entry| entry.unwrap().path()) {
        if later != segment {
            std::fs::remove_file(later).unwrap();
        }
    }
    // The segment may be closed; a forger would remove the footer as well.
    cut[end..].fill(0);
    std::fs::write(&segment, &cut).unwrap();
    reversi(["verify", arg(&data)]).exits(1);
    std::fs::remove_file(data.join("clean-stop")).unwrap();
    reversi(["verify", arg(&data)]).exits(0);
    let said = reversi(["verify", arg(&data), "--checkpoint", arg(&folder.path().join("notes"))]).exits(1);
    assert!(said.out.contains("tail_cut"), "{}", said.out);
    let said = reversi(["doctor", arg(&data)]).exits(1);
    assert!(said.words().contains("its tail was cut"), "{}", said.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_is_noted_and_no_damage() {
    let (daemon, admin) = Daemon::start().await;
    story(&daemon, &admin, 1).await;
    let data = daemon.data();
    daemon.system.stop().await.unwrap();
    std::fs::remove_file(data.join("clean-stop")).unwrap();
    let newest = tree(&data.join("ledger"))
        .into_keys()
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .max()
        .unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let end = bytes[..bytes.len() - 4096].iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end + 3..end + 10].copy_from_slice(&[0xb5, b'R', b'V', 1, 7, 7, 7]);
    std::fs::write(&newest, &bytes).unwrap();
    let said = reversi(["verify", arg(&data)]).exits(0);
    assert!(said.words().contains("ends in bytes that are no whole batch"), "{}", said.out);
    let said = reversi(["doctor", arg(&data)]).exits(0);
    assert!(said.err.contains("ends in bytes that are no whole batch"), "{}", said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_store_that_disagrees_is_found() {
    let (short, admin) = Daemon::start().await;
    story(&short, &admin, 1).await;
    let (long, admin) = Daemon::start().await;
    story(&long, &admin, 2).await;
    let (from, to) = (short.data().join("db"), long.data().join("db"));
    short.system.stop().await.unwrap();
    long.system.stop().await.unwrap();
    std::fs::remove_dir_all(&to).unwrap();
    std::fs::rename(from, &to).unwrap();
    let said = reversi(["doctor", arg(&to.with_file_name(""))]).exits(1);
    assert!(said.out.lines().any(|line| line.starts_with("I6      violated")), "{}", said.out);
    assert!(said.words().contains("as the last record of"), "{}", said.out);
}
