//! What a daemon does about a data directory that is not as it left it: rebuild what can be rebuilt, refuse the rest.
use std::fs;
use std::path::{Path, PathBuf};

use reversi::demo::daemon::{Setting, Stage};

use crate::driver::Driver;

/// A stopped or killed daemon's stage after a session that was undone.
async fn after_a_run(clean: bool) -> (Driver, String) {
    let mut driver = Driver::new(&[]).await;
    driver.up().await;
    let run = driver.session().await;
    driver.roll_back(&run).await;
    driver.end(clean);
    (driver, run)
}

fn refused(stage: &Stage) -> String {
    let from = fs::metadata(stage.log()).map_or(0, |meta| usize::try_from(meta.len()).unwrap());
    let mut child = stage.spawn(&Setting::default()).unwrap();
    let since = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if since.elapsed().as_secs() > 30 {
            child.kill().unwrap();
            panic!("it was not refused: {}", fs::read_to_string(stage.log()).unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(1), "a refusal exits with 1");
    fs::read_to_string(stage.log()).unwrap()[from..].to_owned()
}

fn segments(stage: &Stage) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(stage.data().join("ledger"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_event_store_is_rebuilt() {
    for damage in [remove as fn(&Path), truncate, scribble] {
        let (mut driver, run) = after_a_run(true).await;
        let report = driver.report(&run).await;
        driver.end(true);
        damage(&driver.stage.data().join("db"));
        assert_eq!(driver.report(&run).await, report, "the same state from the segments alone");
        driver.assert_nothing_happened(&report);
    }
}

fn remove(db: &Path) {
    fs::remove_dir_all(db).unwrap();
}
fn truncate(db: &Path) {
    let file = fs::OpenOptions::new().write(true).open(db.join("db")).unwrap();
    file.set_len(file.metadata().unwrap().len() / 3).unwrap();
}
fn scribble(db: &Path) {
    let mut bytes = fs::read(db.join("db")).unwrap();
    for byte in bytes.iter_mut().step_by(97) {
        *byte ^= 0x5a;
    }
    fs::write(db.join("db"), bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_below_the_head_is_refused_with_offset_and_advice() {
    let (driver, _) = after_a_run(false).await;
    let segment = segments(&driver.stage).remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(11).position(|window| window == b"run.started").unwrap();
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let said = refused(&driver.stage);
    assert!(said.contains("damaged at byte"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_tail_is_refused() {
    for clean in [true, false] {
        let mut driver = Driver::new(&[]).await;
        driver.up().await;
        let run = driver.session().await;
        driver.roll_back(&run).await;
        // What nobody outside the segments ever heard of can't be missed: the mark of a clean stop knows, or a checkpoint.
        if !clean {
            driver.sign_checkpoint().await;
        }
        driver.end(clean);
        cut_the_tail_of(&driver.stage);
        let said = refused(&driver.stage);
        assert!(said.contains("records were cut off") || said.contains("damaged at byte"), "{said}");
    }
}

fn cut_the_tail_of(stage: &Stage) {
    let segment = segments(stage).pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let from = last - 6_000.min(last / 2);
    bytes[from..].fill(0);
    fs::write(&segment, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_under_a_newer_checkpoint_is_refused_and_parks_rollbacks_when_accepted() {
    let mut driver = Driver::new(&[]).await;
    driver.up().await;
    let undone = driver.session().await;
    driver.end(true);
    let (data, old) = (driver.stage.data(), driver.stage.data().with_extension("old"));
    copy(&data, &old);
    driver.up().await;
    let run = driver.short_session("run-later").await;
    driver.end(true);
    fs::remove_dir_all(&data).unwrap();
    copy(&old, &data);
    let said = refused(&driver.stage);
    assert!(said.contains("--accept-restored-storage"), "{said}");
    assert!(!run.is_empty());
    let flags = vec!["--accept-restored-storage".to_owned()];
    driver.stage.start(&Setting { test_tools: true, flags, ..Setting::default() }).unwrap().kill().unwrap();
    // The next start knows it too, although nothing is newer than the ledger any more.
    driver.up().await;
    assert_eq!(driver.status().await["rollbacks_parked"], true);
    driver.ask_for_rollback(&undone).await;
    for _ in 0..100 {
        assert_eq!(driver.report(&undone).await["status"], "rolling_back");
    }
    assert_eq!(driver.executions("fs.restore"), 0, "a parked rollback called an inverse");
    driver.end(true);
    fs::remove_file(data.join("restored-copy")).unwrap();
    let since = std::time::Instant::now();
    let report = loop {
        let report = driver.report(&undone).await;
        if report["status"] != "rolling_back" {
            break report;
        }
        assert!(since.elapsed().as_secs() < 120, "a rollback stays parked for ever: {report}");
    };
    driver.assert_nothing_happened(&report);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_the_directory_says_so() {
    let mut driver = Driver::new(&[]).await;
    driver.up().await;
    let said = refused(&driver.stage);
    assert!(said.contains("another daemon"), "{said}");
}
