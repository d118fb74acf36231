//! Every failpoint, the first and a later pass of it, twice in a row, and inside recovery.
use reversi_actors::failpoint::FAILPOINTS;

use crate::approvals::AT_A_VOTE;
use crate::driver::Driver;

/// Kills as planned, and checks that each planned kill came.
async fn survives(plans: &[&str], deaths: usize) {
    let mut driver = Driver::new(plans).await;
    // Places that are passed once in a while are passed by a longer story.
    if plans.iter().any(|plan| plan.contains("roll") || plan.contains("apply")) {
        driver.reads = 80;
    }
    driver.up().await;
    let run = driver.session().await;
    let report = driver.roll_back(&run).await;
    driver.up().await;
    assert_eq!(driver.deaths, deaths, "the planned places were not all passed: {plans:?}");
    driver.assert_nothing_happened(&report);
}

macro_rules! matrix {
    ($($test:ident: $point:literal at $($pass:literal),+;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $(survives(&[concat!($point, ":", $pass)], 1).await;)+
            }
        )*

        /// Each of these is killed at as the first daemon's fate.
        const AT_WORK: &[&str] = &[$($point,)*];
    };
}

matrix! {
    run_before_append: "run.before_append" at 1, 2, 9;
    run_after_append: "run.after_append" at 1, 2, 9;
    journal_before_append: "journal.before_append" at 5, 12;
    journal_after_write: "journal.after_write" at 5, 12;
    journal_after_sync: "journal.after_sync" at 5, 12;
    journal_before_reply: "journal.before_reply" at 5, 12;
    journal_before_apply: "journal.before_apply" at 1, 3;
    journal_after_apply: "journal.after_apply" at 1, 3;
    journal_roll_before: "journal.roll.before" at 1;
    journal_roll_after: "journal.roll.after" at 1;
    keys_before: "keys.before" at 1;
    keys_after: "keys.after" at 1;
    checkpoint_before: "checkpoint.before" at 1;
    checkpoint_after: "checkpoint.after" at 1;
    undo_before_attempt: "undo.before_attempt" at 1, 4;
    undo_after_attempt: "undo.after_attempt" at 1, 4;
    undo_before_call: "undo.before_call" at 1, 4;
    undo_after_call: "undo.after_call" at 1, 4;
    undo_before_outcome: "undo.before_outcome" at 1, 5;
    undo_after_outcome: "undo.after_outcome" at 1, 5;
    verify_before_call: "verify.before_call" at 1, 3;
    verify_after_call: "verify.after_call" at 1, 3;
}

/// Places that only a second start passes: inside recovery.
const IN_RECOVERY: &[&str] = &["boot.rewrite.before", "boot.rewrite.after", "boot.catchup"];

#[test]
fn every_failpoint_is_in_the_matrix() {
    let mut listed: Vec<&str> = AT_WORK.iter().chain(IN_RECOVERY).chain(AT_A_VOTE).copied().collect();
    listed.sort_unstable();
    assert_eq!(listed, FAILPOINTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_is_killed_too() {
    for point in IN_RECOVERY {
        survives(&["undo.after_call:2", &format!("{point}:1")], 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twice_in_a_row() {
    survives(&["undo.after_call:1", "undo.before_outcome:1"], 2).await;
    survives(&["undo.after_call:3", "verify.after_call:1", "undo.after_call:1"], 3).await;
    survives(&["journal.after_write:6", "journal.after_sync:4"], 2).await;
}
