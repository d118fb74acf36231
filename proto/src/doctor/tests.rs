//! Each violation on its own, beside the story that it spoils.
use serde_json::{Value, json};

use super::{Counts, Doctor, Invariant, Violation};
use crate::canonical::Canonical;
use crate::hash::Hash;
use crate::ids::{Actor, LedgerId, RunId};
use crate::ledger::{Draft, Line, leaf};
use crate::time::Timestamp;

const RUN: &str = "run_a";
const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const CLAIM: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const APPROVAL: &str = "apr_000102030405060708090a0b0c0d0e0f";
const KEY: &str = "k0123456789ab";

/// Records on their way to a doctor; the time is the position in seconds.
#[derive(Default)]
struct Story {
    doctor: Doctor,
    seq: u64,
    streams: Vec<String>,
}

impl Story {
    /// A run with `steps` succeeded steps of `files.write` on one upstream.
    fn run(steps: u32) -> Self {
        let mut story = Self::default();
        story.start(RUN);
        for step in 1..=steps {
            story.step(RUN, step, &json!({}));
        }
        story
    }

    /// The same, being rolled back.
    fn rolling_back(steps: u32) -> Self {
        let mut story = Self::run(steps);
        story.rollback('1', None);
        story
    }

    fn add(&mut self, run: &str, kind: &str, body: &Value) -> &mut Self {
        let id: Option<RunId> = run.parse().ok();
        let body = Canonical::of(body).unwrap();
        let place = (id.as_ref(), self.seq);
        let draft = Draft::new(LedgerId([1; 16]), &Actor::system(), kind, &body, place, [0; 16]).unwrap();
        let mut text = Vec::new();
        let ts = Timestamp::from_micros(i64::try_from(self.seq).unwrap() * 1_000_000);
        draft.stamp(self.seq, Hash::default(), Hash::default(), ts, &mut text);
        let line = Line::parse(&text).unwrap();
        let streams: Vec<&str> = self.streams.iter().map(String::as_str).collect();
        self.doctor.feed(&line, leaf(&text), &streams);
        self.seq += 1;
        self
    }

    fn start(&mut self, run: &str) {
        self.add(run, "run.started", &json!({"mode": "enforce", "permissions": ["files:write"]}));
    }

    fn begin(&mut self, run: &str, step: u32, more: &Value) {
        let mut body = json!({
            "args": ZEROS, "config": 0, "effect": "reversible", "reason": "asked for", "step": step,
            "tool": "files.write", "undo": {"approval": false, "kind": "inverse", "tool": "files.restore"},
        });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        self.add(run, "step.begun", &body);
    }

    fn step(&mut self, run: &str, step: u32, more: &Value) {
        self.begin(run, step, more);
        self.add(run, "step.succeeded", &json!({"step": step}));
    }

    fn rollback(&mut self, id: char, steps: Option<&[u32]>) {
        let mut body = json!({"executor": "daemon", "rollback": rollback(id), "upstreams": {"files.restore": "fs"}});
        if let Some(steps) = steps {
            body["steps"] = json!(steps);
        }
        self.add(RUN, "rollback.started", &body);
    }

    fn attempt(&mut self, id: char, step: u32, attempt: u32) -> &mut Self {
        let body = json!({
            "args": ZEROS, "attempt": attempt, "executor": "daemon", "over_by": time(900), "rollback": rollback(id),
            "step": step, "tool": "files.restore",
        });
        self.add(RUN, "undo.attempted", &body)
    }

    fn undone(&mut self, step: u32, attempt: u32) -> &mut Self {
        self.add(RUN, "undo.succeeded", &json!({"attempt": attempt, "step": step}))
    }

    /// A run that asked for an approval.
    fn asked(quorum: u32, deadline: Timestamp) -> Self {
        let mut story = Self::run(0);
        let body = json!({
            "approval": APPROVAL, "args": ZEROS, "deadline": deadline, "fingerprint": ZEROS, "quorum": quorum,
            "roles": [], "step": 1, "tool": "files.write",
        });
        story.add(RUN, "approval.requested", &body);
        story
    }

    /// A run whose approval was granted by one vote.
    fn granted() -> Self {
        let mut story = Self::asked(1, time(900));
        story.vote("fred").add(RUN, "approval.granted", &json!({"approval": APPROVAL, "use_by": time(900)}));
        story
    }

    fn vote(&mut self, person: &str) -> &mut Self {
        self.add(RUN, "approval.voted", &json!({"approval": APPROVAL, "key": KEY, "person": person}))
    }

    fn finish(&mut self, complete: bool) -> &mut Self {
        self.add(RUN, "rollback.finished", &json!({"complete": complete, "rollback": rollback('1'), "verified": true}))
    }

    fn violations(self) -> Vec<Violation> {
        self.doctor.finish().0
    }

    #[track_caller]
    fn sound(self) -> Counts {
        let (violations, counts) = self.doctor.finish();
        assert_eq!(violations, []);
        counts
    }

    /// One violation, of that invariant, at the last record but `back`, that says so.
    #[track_caller]
    fn violates(self, invariant: Invariant, back: u64, words: &str) {
        let seq = self.seq - 1 - back;
        let violations = self.violations();
        let found = violations.iter().find(|violation| violation.invariant == invariant && violation.seq == seq);
        let found = found.unwrap_or_else(|| panic!("{invariant} at seq {seq} is missing from {violations:?}"));
        assert!(found.detail.contains(words), "{found}");
    }
}

fn rollback(id: char) -> String {
    format!("rbk_{}", id.to_string().repeat(32))
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

#[test]
fn a_run_undone_newest_first_sound() {
    let mut story = Story::rolling_back(3);
    for step in [3, 2, 1] {
        story.attempt('1', step, 1).undone(step, 1);
    }
    story.finish(true);
    let counts = story.sound();
    let expected = Counts { records: 15, runs: 1, steps: 3, undo_attempts: 3, open_intents: 0, violations: 0 };
    assert_eq!(counts, expected);
}

#[test]
fn open_intents_are_sound_and_counted() {
    let mut story = Story::rolling_back(1);
    story.start("run_b");
    story.begin("run_b", 1, &json!({}));
    story.attempt('1', 1, 1);
    assert_eq!(story.sound().open_intents, 2);
}

#[test]
fn retries_read_backs_and_resolutions_are_sound() {
    let mut story = Story::rolling_back(2);
    let at = time(5);
    story.attempt('1', 2, 1).add(RUN, "undo.failed", &json!({"attempt": 1, "retry_at": at, "step": 2}));
    story.attempt('1', 2, 2).add(RUN, "undo.succeeded", &json!({"attempt": 2, "read_at": at, "step": 2}));
    let mismatch =
        |next: Value| json!({"attempt": 2, "mismatch": ZEROS, "next": next, "path": "a", "read": 1, "step": 2});
    story.add(RUN, "undo.mismatched", &mismatch(json!({"do": "read", "at": at})));
    story.add(RUN, "undo.verified", &json!({"attempt": 2, "matched": true, "step": 2}));
    story.attempt('1', 1, 1);
    story.add(RUN, "undo.uncertain", &json!({"attempt": 1, "next": {"do": "read", "at": at}, "step": 1}));
    story.add(RUN, "undo.uncertain", &json!({"attempt": 1, "next": {"do": "operator"}, "step": 1}));
    story.add(RUN, "step.resolved", &json!({"note": "seen", "status": "failed", "step": 1, "target": "undo"}));
    story.finish(false);
    story.rollback('2', None);
    story.attempt('2', 1, 2).undone(1, 2);
    story.sound();
}

#[test]
fn positions_are_dense() {
    let mut story = Story::run(1);
    story.seq += 1;
    story.start("run_b");
    story.violates(Invariant::I5, 0, "expected seq 3, found 4");
}

#[test]
fn unknown_types_and_bodies_are_named() {
    let mut story = Story::run(1);
    story.add(RUN, "step.vanished", &json!({}));
    story.violates(Invariant::Decode, 0, "step.vanished");
    let mut story = Story::run(1);
    story.add(RUN, "step.failed", &json!({"stop": 1}));
    story.violates(Invariant::Decode, 0, "step.failed");
}

#[test]
fn events_meet_a_state_that_accepts_them() {
    let mut story = Story::default();
    story.begin(RUN, 1, &json!({}));
    story.violates(Invariant::Fold, 0, "the first record");
    let mut story = Story::run(1);
    story.start(RUN);
    story.violates(Invariant::Fold, 0, "and no other");
    let mut story = Story::run(1);
    story.begin(RUN, 3, &json!({}));
    story.violates(Invariant::Fold, 0, "expected step 2");
    let mut story = Story::rolling_back(1);
    story.begin(RUN, 2, &json!({}));
    story.violates(Invariant::Fold, 0, "rolling_back");
    let mut story = Story::run(1);
    story.add(RUN, "step.succeeded", &json!({"step": 2}));
    story.violates(Invariant::Fold, 0, "never began");
    let mut story = Story::rolling_back(1);
    story.rollback('2', None);
    story.violates(Invariant::Fold, 0, "a rollback starts");
    let mut story = Story::run(1);
    story.begin(RUN, 2, &json!({}));
    story.add(RUN, "run.sealed", &json!({"records": 4, "run_root": ZEROS}));
    story.violates(Invariant::Fold, 0, "step 2 is in_flight");
    let mut story = Story::run(1);
    story.add("", "step.failed", &json!({"step": 1}));
    story.violates(Invariant::Fold, 0, "step.failed");
}

#[test]
fn a_rollback_that_claims_too_much_is_caught() {
    let mut story = Story::rolling_back(2);
    story.attempt('1', 2, 1).undone(2, 1).finish(true);
    story.violates(Invariant::Fold, 0, "step 1 is not undone");
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).finish(false);
    story.violates(Invariant::I3, 0, "undo of step 1 is open");
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).add(RUN, "undo.failed", &json!({"attempt": 1, "retry_at": time(1), "step": 1}));
    story.finish(false);
    story.violates(Invariant::I3, 0, "undo of step 1 is waiting for its next attempt");
}

#[test]
fn a_step_ends_once() {
    let mut story = Story::run(1);
    story.add(RUN, "step.failed", &json!({"step": 1}));
    story.violates(Invariant::I3, 0, "ends a second time");
    let mut story = Story::run(1);
    story.add(RUN, "step.resolved", &json!({"note": "", "status": "failed", "step": 1, "target": "step"}));
    story.violates(Invariant::I3, 0, "succeeded already");
    let mut story = Story::run(1);
    story.add(RUN, "step.disputed", &json!({"status": "failed", "step": 1}));
    story.violates(Invariant::I3, 0, "nobody had resolved it");
}

#[test]
fn an_attempt_ends_once() {
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).undone(1, 1).add(RUN, "undo.failed", &json!({"attempt": 1, "step": 1}));
    story.violates(Invariant::I3, 0, "attempt 1 failed, but the undo is done");
    let mut story = Story::rolling_back(1);
    story.undone(1, 1);
    story.violates(Invariant::I3, 0, "attempt 1 succeeded, but the undo is idle");
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).undone(1, 2);
    story.violates(Invariant::I3, 0, "attempt 2 succeeded, but the undo is open at attempt 1");
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).attempt('1', 1, 2);
    story.violates(Invariant::I3, 0, "while attempt 1 is open");
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 2);
    story.violates(Invariant::I3, 0, "expected attempt 1");
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).add(RUN, "undo.verified", &json!({"attempt": 1, "matched": true, "step": 1}));
    story.violates(Invariant::I3, 0, "a read-back ends");
}

#[test]
fn an_inverse_is_never_blind() {
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).undone(1, 1).attempt('1', 1, 2).undone(1, 2);
    let violations = story.violations();
    let details: Vec<&str> = violations.iter().map(|violation| violation.detail.as_str()).collect();
    assert!(details.iter().any(|detail| detail.contains("a second inverse while the undo is done")), "{details:?}");
    assert!(details.iter().any(|detail| detail.contains("succeeded a second time")), "{details:?}");

    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1);
    story.add(RUN, "undo.uncertain", &json!({"attempt": 1, "next": {"do": "operator"}, "step": 1}));
    story.attempt('1', 1, 2);
    story.violates(Invariant::I4, 0, "of unknown outcome");

    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).add(RUN, "undo.failed", &json!({"attempt": 1, "step": 1})).attempt('1', 1, 2);
    story.violates(Invariant::I4, 0, "had given it up");

    let mut story = Story::rolling_back(1);
    let at = time(1);
    story.attempt('1', 1, 1);
    story.add(RUN, "undo.uncertain", &json!({"attempt": 1, "next": {"do": "again", "at": at}, "step": 1}));
    story.attempt('1', 1, 2).add(RUN, "undo.failed", &json!({"attempt": 2, "step": 1}));
    story.violates(Invariant::I3, 0, "ends as failed, though");
}

#[test]
fn steps_of_one_upstream_are_undone_newest_first() {
    let mut story = Story::rolling_back(3);
    story.attempt('1', 1, 1);
    story.violates(Invariant::I4, 0, "step 1 is undone before step 2");
    let mut story = Story::rolling_back(2);
    story.attempt('1', 2, 1).attempt('1', 1, 1);
    story.violates(Invariant::I4, 0, "step 1 is undone before step 2");
    // A step of unknown outcome holds back what is below it, one that is not selected does not.
    let mut story = Story::run(1);
    story.begin(RUN, 2, &json!({}));
    story.rollback('1', None);
    story.attempt('1', 1, 1);
    story.violates(Invariant::I4, 0, "before step 2");
    let mut story = Story::run(2);
    story.rollback('1', Some(&[1]));
    story.attempt('1', 1, 1);
    story.sound();
}

#[test]
fn a_required_step_is_undone_after_those_that_required_it() {
    let undo = |tool: &str| json!({"approval": false, "kind": "inverse", "tool": tool});
    let story = |first_done: &[u32]| {
        let mut story = Story::default();
        story.start(RUN);
        story.step(RUN, 1, &json!({"tool": "login", "undo": undo("logout")}));
        story.step(RUN, 2, &json!({"tool": "look", "effect": "read_only", "undo": null, "requires": ["login"]}));
        story.step(RUN, 3, &json!({"requires": ["look"]}));
        let body = json!({"executor": "daemon", "rollback": rollback('1'), "upstreams": {"files.restore": "fs", "logout": "auth"}});
        story.add(RUN, "rollback.started", &body);
        for step in first_done {
            story.attempt('1', *step, 1).undone(*step, 1);
        }
        let body = json!({
            "args": ZEROS, "attempt": 1, "executor": "daemon", "over_by": time(900), "rollback": rollback('1'), "step": 1,
            "tool": "logout",
        });
        story.add(RUN, "undo.attempted", &body);
        story
    };
    story(&[3]).sound();
    story(&[]).violates(Invariant::I4, 0, "step 1 is undone before step 3");
}

#[test]
fn inverses_belong_to_a_rollback_and_a_step() {
    let mut story = Story::run(1);
    story.attempt('1', 1, 1);
    story.violates(Invariant::I4, 0, "in a run that is active");
    let mut story = Story::rolling_back(1);
    story.attempt('2', 1, 1);
    story.violates(Invariant::I4, 0, &rollback('2'));
    let mut story = Story::run(2);
    story.rollback('1', Some(&[1]));
    story.attempt('1', 2, 1);
    story.violates(Invariant::I4, 0, "not selected");
    let mut story = Story::run(0);
    story.step(RUN, 1, &json!({"undo": {"approval": false, "kind": "inverse", "tool": "files.remove"}}));
    story.rollback('1', None);
    story.attempt('1', 1, 1);
    story.violates(Invariant::I4, 0, "files.remove is declared");
}

#[test]
fn no_timer_fires_early() {
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).add(RUN, "undo.failed", &json!({"attempt": 1, "retry_at": time(800), "step": 1}));
    story.attempt('1', 1, 2);
    story.violates(Invariant::I7, 0, "is due at 1970-01-01T00:13:20");
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).add(RUN, "undo.succeeded", &json!({"attempt": 1, "read_at": time(800), "step": 1}));
    story.add(RUN, "undo.verified", &json!({"attempt": 1, "matched": true, "step": 1}));
    story.violates(Invariant::I7, 0, "read-back is due");
}

#[test]
fn a_claim_has_one_holder() {
    let claim = json!({"claim": CLAIM});
    let mut story = Story::run(0);
    story.start("run_b");
    story.step(RUN, 1, &claim);
    story.begin("run_b", 1, &claim);
    story.violates(Invariant::I8, 0, "that step 1 of run run_a holds");
    // A failure frees it, and so does the end of an undo.
    let mut story = Story::run(0);
    story.start("run_b");
    story.begin("run_b", 1, &claim);
    story.add("run_b", "step.failed", &json!({"step": 1}));
    story.step(RUN, 1, &claim);
    story.rollback('1', None);
    story.attempt('1', 1, 1).undone(1, 1);
    story.begin("run_b", 2, &claim);
    story.sound();
}

#[test]
fn an_approval_is_consumed_once() {
    let approval = json!({"approval": APPROVAL});
    let mut story = Story::granted();
    story.step(RUN, 1, &approval);
    story.sound();
    let mut story = Story::granted();
    story.step(RUN, 1, &approval);
    story.step(RUN, 2, &approval);
    story.violates(Invariant::I9, 1, "which seq 4 had consumed");
    let mut story = Story::asked(2, time(900));
    story.step(RUN, 1, &approval);
    story.violates(Invariant::I9, 1, "which is not granted");
    let mut story = Story::run(0);
    story.step(RUN, 1, &approval);
    story.violates(Invariant::I9, 1, "which nobody asked for");
    let mut story = Story::granted();
    story.start("run_b");
    story.step("run_b", 1, &approval);
    story.violates(Invariant::I9, 1, "of run run_a");
    let mut story = Story::granted();
    story.add(RUN, "approval.denied", &json!({"approval": APPROVAL, "key": KEY, "person": "carl"}));
    story.step(RUN, 1, &approval);
    story.violates(Invariant::I9, 1, "which is not granted");
}

#[test]
fn an_undo_that_needs_approval_has_one() {
    let undo = json!({"undo": {"approval": true, "kind": "inverse", "tool": "files.restore"}});
    let mut story = Story::run(0);
    story.step(RUN, 1, &undo);
    story.rollback('1', None);
    story.attempt('1', 1, 1);
    story.violates(Invariant::I9, 0, "without the approval that its undo needs");
}

#[test]
fn a_grant_needs_its_votes_and_a_timer_its_time() {
    let mut story = Story::asked(2, time(900));
    story.vote("fred").add(RUN, "approval.granted", &json!({"approval": APPROVAL, "use_by": time(900)}));
    story.violates(Invariant::Fold, 0, "granted with 1 of 2 votes");
    let mut story = Story::asked(2, time(900));
    story.vote("fred").vote("fred");
    story.violates(Invariant::Fold, 0, "fred votes twice");
    for kind in ["approval.expired", "approval.escalated"] {
        for (deadline, early) in [(time(900), true), (time(1), false)] {
            let mut story = Story::asked(1, deadline);
            let mut body = json!({"approval": APPROVAL});
            if kind == "approval.escalated" {
                (body["deadline"], body["level"]) = (json!(time(901)), json!(1));
            }
            story.add(RUN, kind, &body);
            if early {
                story.violates(Invariant::I7, 0, "before its time");
            } else {
                story.sound();
            }
        }
    }
}

#[test]
fn records_advance_the_streams_that_guard_them() {
    let mut story = Story::rolling_back(1);
    story.streams = vec!["run/run_a".to_owned()];
    story.attempt('1', 1, 1);
    story.violates(Invariant::I6, 0, "undo/run_a/1");
    let mut story = Story::run(0);
    story.streams = vec!["run/run_a".to_owned(), format!("claim/{CLAIM}")];
    story.begin(RUN, 1, &json!({"claim": CLAIM}));
    story.streams.pop();
    story.add(RUN, "step.failed", &json!({"step": 1}));
    story.violates(Invariant::I6, 0, &format!("claim/{CLAIM}"));
}

#[test]
fn violations_are_kept_up_to_a_limit_and_all_counted() {
    let mut story = Story::run(1);
    for _ in 0..super::VIOLATIONS_MAX + 5 {
        story.add(RUN, "step.failed", &json!({"step": 1}));
    }
    let (violations, counts) = story.doctor.finish();
    // Only the first of them met a step that had succeeded; the others met a failed one, which is as wrong.
    assert_eq!((violations.len(), counts.violations), (super::VIOLATIONS_MAX, super::VIOLATIONS_MAX as u64 + 5));
}

#[test]
fn a_dispute_takes_its_claim_back_only_from_nobody() {
    let claim = json!({"claim": CLAIM});
    let mut story = Story::run(0);
    story.start("run_b");
    story.begin(RUN, 1, &claim);
    story.add(RUN, "step.resolved", &json!({"note": "", "status": "failed", "step": 1, "target": "step"}));
    story.begin("run_b", 1, &claim);
    story.add(RUN, "step.disputed", &json!({"claim": CLAIM, "status": "succeeded", "step": 1}));
    story.violates(Invariant::I8, 0, "that step 1 of run run_b holds");
}

#[test]
fn a_deferred_undo_waits_for_its_turn_again() {
    let mut story = Story::rolling_back(1);
    let at = time(1);
    story.attempt('1', 1, 1).add(RUN, "undo.failed", &json!({"attempt": 1, "retry_at": at, "step": 1}));
    story.add(RUN, "undo.deferred", &json!({"attempt": 1, "step": 1})).attempt('1', 1, 2);
    story.sound();
    let mut story = Story::rolling_back(1);
    story.attempt('1', 1, 1).add(RUN, "undo.deferred", &json!({"attempt": 1, "step": 1}));
    story.violates(Invariant::I3, 0, "put back, but the undo is open");
}
