//! Real processes that die: SIGKILL at every failpoint (feature `failpoints`), and syncs that fail. Each test starts this
//! very binary again as the victim, and then looks at what it left.
#![allow(clippy::unwrap_used)]
mod kit;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use kit::{Bed, Run, picture};
use reversi_actors::journal::{AppendError, CheckpointSink, Config, DiskJournal, Journal};
use reversi_proto::ids::{Seq, StreamId};
use reversi_proto::wake::Wake;

const DIR: &str = "REVERSI_TEST_VICTIM_DIR";
const ROUNDS: &str = "REVERSI_TEST_VICTIM_ROUNDS";

/// A bed whose directory a victim can share.
fn bed_in(root: &Path) -> Bed {
    let mut bed = Bed::new();
    let Bed { config, .. } = &mut bed;
    *config = Config { dir: root.join("data"), checkpoint_records: 3, ..config.clone() };
    config.sink = Some(CheckpointSink::File(root.join("checkpoints")));
    bed
}

/// Not a test of its own: what the other tests kill. Appends, and writes down what was acknowledged.
#[tokio::test]
#[ignore = "started by the other tests in a process of its own"]
async fn victim() {
    let Ok(root) = std::env::var(DIR) else { return };
    let rounds: u32 = std::env::var(ROUNDS).unwrap().parse().unwrap();
    let mut bed = bed_in(Path::new(&root));
    bed.config.fatal = Config::new("").fatal;
    let journal = bed.open();
    let mut acked = std::fs::File::options().append(true).create(true).open(Path::new(&root).join("acked")).unwrap();
    let started = journal.head();
    for round in 0..rounds {
        let mut run = Run::new(&journal, &format!("run-{started}-{round}"));
        for _ in 0..3 {
            let mut request = run.request(Wake::Now, &[vec![(StreamId::Claim([1; 32]), Wake::None)]], 1500);
            request.read_at = journal.head();
            match journal.append(request).await {
                Ok(appended) => {
                    run.took(&appended);
                    // In one write: a line cut in two by a kill would run into the next victim's first.
                    let line = format!("{} {}\n", appended[0].seq, appended[0].leaf);
                    acked.write_all(line.as_bytes()).unwrap();
                }
                // A full disk is no reason to fall over.
                Err(AppendError::Full) => std::fs::write(Path::new(&root).join("full"), "").unwrap(),
                Err(other) => panic!("{other}"),
            }
        }
    }
    journal.close().await.unwrap();
}

/// Runs the victim; says whether it ended by itself and well.
fn run_victim(root: &Path, rounds: u32, env: &[(&str, &str)]) -> std::process::ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored"])
        .env(DIR, root)
        .env(ROUNDS, rounds.to_string())
        .envs(env.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
}

/// Everything acknowledged is there, and sled agrees with the segments.
fn check(root: &Path, what: &str) {
    let journal: DiskJournal = bed_in(root).open();
    let acked = std::fs::read_to_string(root.join("acked")).unwrap_or_default();
    let lines = picture(&journal).lines;
    for line in acked.lines() {
        let (seq, leaf) = line.split_once(' ').unwrap();
        let seq: Seq = seq.parse().unwrap();
        let stored = lines.get(usize::try_from(seq).unwrap());
        let stored = stored.map(|line| reversi_proto::ledger::leaf(line.as_bytes()).to_string());
        assert_eq!(stored.as_deref(), Some(leaf), "{what}: record {seq} was acknowledged");
    }
    let state = picture(&journal);
    drop(journal);
    std::fs::remove_dir_all(root.join("data/db")).unwrap();
    assert_eq!(picture(&bed_in(root).open()), state, "{what}: a rebuilt store says the same");
}

#[test]
fn an_undisturbed_victim_ends_well() {
    let root = tempfile::tempdir().unwrap();
    assert!(run_victim(root.path(), 20, &[]).success());
    assert!(root.path().join("data/clean-stop").exists());
    check(root.path(), "undisturbed");
}

#[cfg(feature = "failpoints")]
#[test]
fn a_kill_at_every_failpoint_loses_nothing_acknowledged() {
    use std::os::unix::process::ExitStatusExt;
    let ours = |name: &&&str| ["journal.", "keys.", "boot.", "checkpoint."].iter().any(|own| name.starts_with(own));
    for name in reversi_actors::failpoint::FAILPOINTS.iter().filter(ours) {
        for pass in [1, 2, 7] {
            let root = tempfile::tempdir().unwrap();
            let what = format!("{name}:{pass}");
            // Points of the boot need something to recover from.
            let first = run_victim(root.path(), 3, &[("REVERSI_KILL_AT", "journal.before_reply:5")]);
            assert_eq!(first.signal(), Some(9));
            let died = run_victim(root.path(), 20, &[("REVERSI_KILL_AT", &what)]).signal() == Some(9);
            assert!(died || pass > 1, "{what} was never passed");
            // Again, inside the recovery.
            run_victim(root.path(), 2, &[("REVERSI_KILL_AT", &what)]);
            check(root.path(), &what);
            assert!(run_victim(root.path(), 2, &[]).success(), "{what}: goes on");
            check(root.path(), &what);
        }
    }
}

/// Needs the preload library `failsync.so` of the fault tools, named by `REVERSI_FAILSYNC`.
#[test]
fn a_failed_sync_ends_the_process_and_loses_nothing_acknowledged() {
    use std::os::unix::process::ExitStatusExt;
    let Ok(library) = std::env::var("REVERSI_FAILSYNC") else {
        eprintln!("skipped: REVERSI_FAILSYNC does not name failsync.so");
        return;
    };
    for (number, once) in (2..24).step_by(3).flat_map(|number| [(number, "1"), (number, "0")]) {
        let root = tempfile::tempdir().unwrap();
        assert!(run_victim(root.path(), 1, &[]).success());
        for filter in ["/data/ledger/", "/data/private.keys"] {
            let after = number.to_string();
            let env = [("LD_PRELOAD", library.as_str()), ("FAILSYNC_AFTER", &after), ("FAILSYNC_ONCE", once)];
            let status = run_victim(root.path(), 60, &[&env[..], &[("FSFILTER", filter)]].concat());
            assert!(!status.success() || number > 60, "sync {number} of {filter} failed and nobody minded");
            assert!(status.signal() == Some(6) || status.code().is_some(), "{status}");
            check(root.path(), &format!("sync {number} of {filter}, once {once}"));
        }
    }
}

/// Needs the preload library, as above.
#[test]
fn writes_without_room_are_refused_and_lose_nothing_acknowledged() {
    let Ok(library) = std::env::var("REVERSI_FAILSYNC") else {
        eprintln!("skipped: REVERSI_FAILSYNC does not name failsync.so");
        return;
    };
    for number in [1, 2, 9, 40, 41, 42] {
        let root = tempfile::tempdir().unwrap();
        assert!(run_victim(root.path(), 1, &[]).success());
        for filter in ["/data/ledger/", "/data/private.keys"] {
            let after = number.to_string();
            let env = [("LD_PRELOAD", library.as_str()), ("NOSPC_AFTER", &after), ("FSFILTER", filter)];
            let status = run_victim(root.path(), 60, &env);
            assert!(status.success() && root.path().join("full").exists(), "write {number} of {filter}: {status}");
            std::fs::remove_file(root.path().join("full")).unwrap();
            check(root.path(), &format!("write {number} of {filter}"));
        }
    }
}
