//! Random lives of a run and its undos. The world's invariants are looked at after every append; here stands what must
//! hold of whole sequences.
#![allow(clippy::unwrap_used, clippy::panic)]
use proptest::prelude::*;
use reversi_proto::access::Principal;
use reversi_proto::aggregate::Aggregate as _;
use reversi_proto::approval::ApprovalStatus;
use reversi_proto::event::v1::{Mode, Outcome, Role, Target};
use reversi_proto::event::{Event, UndoEvent};
use reversi_proto::ids::{ApprovalId, ToolName};
use reversi_proto::run::{Report, RunCommand, RunEffect, RunStatus};
use reversi_proto::testing::{World, json, tool};
use reversi_proto::undo::{CallEnd, Phase, ReadEnd, UndoCommand};

const TOOLS: &[&str] = &[
    "fs.write_file",
    "fs.write_file",
    "order.create",
    "order.create_checked",
    "note.add",
    "job.start",
    "job.start",
    "mail.send",
    "first.open",
    "second.check",
    "third.use",
    "vault.put",
    "vault.put",
    "safe.put",
    "safe.put",
    "book.read",
    "book.read",
    "money.tip",
    "money.wire",
    "fs.stat",
    "draft.tool",
    "unheard.of",
];
const ARGS: &[&str] = &[r#"{"name":"n","job":"j","key":"k"}"#, r#"{"job":"other"}"#, "{}"];
const RESULTS: &[&str] = &[r#"{"id":"o","undo_token":"u"}"#, r#"{"id":"o","undo_token":"u"}"#, "{}", ""];

/// One thing that may happen. Steps are picked modulo how many there are.
#[derive(Debug, Clone)]
enum Op {
    Begin(usize, usize),
    Retry(usize, bool),
    Complete(u32, Outcome, usize),
    Resolve(bool, u32, Outcome, usize),
    Seal,
    Rollback(bool, u32),
    Settle,
    Attempt(u32),
    AttemptReady,
    CallEnds(u32, u8),
    Lose(u32),
    ReadEnds(u32, u8),
    StaleCallEnds(u32),
    Wait(u64),
    WaitForTimer(u32),
    Serve(bool),
    Over(bool),
    OtherRunTakes(u32),
    PreApprove(usize),
    Vote(usize, usize, Word),
    Fire(usize),
    Rekey(bool),
    CallGranted(usize),
}

/// What a person says to an approval.
#[derive(Debug, Clone, Copy)]
enum Word {
    Yes,
    No,
    Withdraw,
    Revoke,
    BreakGlass,
    Review,
}

/// Tools of [`TOOLS`] that ask people, or whose undo does.
const ASKING: &[&str] = &["vault.put", "safe.put", "book.read", "money.tip", "money.wire"];
/// Persons of the stories who may have a say, and one who has none; more of those who can make a quorum.
const VOTERS: &[&str] = &["fred", "fiona", "fred", "fiona", "carl", "anna", "greta", "ada", "owner"];
/// The operator who says yes in advance is another one than who starts rollbacks.
const IN_ADVANCE: &[&str] = &["book.read", "vault.remove", "safe.clear", "money.tip"];

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        12 => Just(Word::Yes),
        1 => Just(Word::No),
        1 => Just(Word::Withdraw),
        1 => Just(Word::Revoke),
        1 => Just(Word::BreakGlass),
        1 => Just(Word::Review),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![4 => Just(Outcome::Succeeded), 2 => Just(Outcome::Failed), 1 => Just(Outcome::Uncertain)]
}

fn op() -> impl Strategy<Value = Op> {
    let (step, result) = (0..12_u32, 0..RESULTS.len());
    prop_oneof![
        6 => (0..TOOLS.len(), 0..ARGS.len()).prop_map(|(tool, args)| Op::Begin(tool, args)),
        1 => (0..12_usize, any::<bool>()).prop_map(|(call, same)| Op::Retry(call, same)),
        6 => (step.clone(), outcome(), result.clone()).prop_map(|(step, end, result)| Op::Complete(step, end, result)),
        4 => (any::<bool>(), step.clone(), outcome(), result).prop_map(|(a, b, c, d)| Op::Resolve(a, b, c, d)),
        1 => Just(Op::Seal),
        2 => (prop::bool::weighted(0.3), step.clone()).prop_map(|(selected, step)| Op::Rollback(selected, step)),
        2 => Just(Op::Settle),
        2 => step.clone().prop_map(Op::Attempt),
        5 => Just(Op::AttemptReady),
        6 => (step.clone(), 0..4_u8).prop_map(|(step, end)| Op::CallEnds(step, end)),
        1 => step.clone().prop_map(Op::Lose),
        5 => (step.clone(), 0..4_u8).prop_map(|(step, end)| Op::ReadEnds(step, end)),
        1 => step.clone().prop_map(Op::StaleCallEnds),
        1 => (0..20_000_u64).prop_map(Op::Wait),
        4 => step.clone().prop_map(Op::WaitForTimer),
        1 => any::<bool>().prop_map(Op::Serve),
        1 => any::<bool>().prop_map(Op::Over),
        1 => step.prop_map(Op::OtherRunTakes),
        1 => (0..IN_ADVANCE.len()).prop_map(Op::PreApprove),
        16 => (0..12_usize, 0..VOTERS.len(), word()).prop_map(|(id, who, word)| Op::Vote(id, who, word)),
        1 => (0..12_usize).prop_map(Op::Fire),
        1 => any::<bool>().prop_map(Op::Rekey),
        4 => (0..12_usize).prop_map(Op::CallGranted),
    ]
}

/// Mostly what asks people and what they answer, so that grants are used, and not only asked for.
fn asking_op() -> impl Strategy<Value = Op> {
    let asking: Vec<usize> = (0..TOOLS.len()).filter(|tool| ASKING.contains(&TOOLS[*tool])).collect();
    let some = 0..12_usize;
    prop_oneof![
        3 => op(),
        3 => prop::sample::select(asking).prop_map(|tool| Op::Begin(tool, 0)),
        6 => (some.clone(), 0..4_usize).prop_map(|(id, who)| Op::Vote(id, who, Word::Yes)),
        2 => some.clone().prop_map(Op::CallGranted),
        3 => (0..12_u32).prop_map(|step| Op::Complete(step, Outcome::Succeeded, 0)),
        1 => Just(Op::Rollback(false, 0)),
        4 => Just(Op::Settle),
        4 => Just(Op::AttemptReady),
        2 => (0..12_u32).prop_map(Op::Attempt),
        1 => prop::bool::weighted(0.3).prop_map(Op::Rekey),
        3 => (0..12_u32).prop_map(|step| Op::CallEnds(step, 0)),
    ]
}

/// A run's life and the calls that were made in it.
struct Life {
    world: World,
    otto: Principal,
    calls: Vec<reversi_proto::run::BeginCall>,
    rollbacks: u8,
}

impl Life {
    fn new(mode: Mode) -> Self {
        let mut world = World::asking(mode);
        let otto = world.give_key("otto", "otto", &[Role::Operator], &["finance"]);
        Self { world, otto, calls: vec![], rollbacks: 0 }
    }

    fn step(&self, pick: u32) -> u32 {
        let steps = u32::try_from(self.world.run.steps().len()).unwrap();
        if steps == 0 { 1 } else { pick % steps + 1 }
    }

    /// A step whose undo is in that kind of phase, if there is one.
    fn undo_in(&self, pick: u32, wanted: fn(&Phase) -> bool) -> Option<u32> {
        let all: Vec<u32> = self.world.undos.iter().filter(|(_, u)| wanted(u.phase())).map(|(no, _)| *no).collect();
        (!all.is_empty()).then(|| all[pick as usize % all.len()])
    }

    /// Lets it happen; refusals are fine, as long as they leave no trace.
    fn apply(&mut self, op: &Op) {
        let before = self.world.log.len();
        let refused = !self.try_op(op);
        assert!(!refused || self.world.log.len() == before, "refused and yet something was written: {op:?}");
    }

    fn try_op(&mut self, op: &Op) -> bool {
        let step = |pick: &u32| self.step(*pick);
        match op {
            Op::Begin(..) | Op::Retry(..) => self.try_begin(op),
            Op::Complete(pick, status, result) => {
                let step = step(pick);
                self.world.complete(step, *status, RESULTS[*result]).is_ok()
            }
            Op::Resolve(undo, pick, status, result) => {
                let (step, target) = (step(pick), if *undo { Target::Undo } else { Target::Step });
                self.world.resolve(target, step, *status, RESULTS[*result]).is_ok()
            }
            Op::Seal => self.world.command(&RunCommand::Seal).is_ok(),
            Op::Rollback(selected, pick) => {
                let selection = selected.then(|| vec![self.step(*pick)]);
                self.rollbacks += 1;
                self.world.rollback_of(self.rollbacks, selection).is_ok()
            }
            Op::Settle => {
                self.world.settle();
                true
            }
            Op::Wait(ms) => {
                self.world.wait(*ms);
                true
            }
            Op::Serve(all) => {
                self.world.unserved =
                    if *all { [].into() } else { ["fs.stat", "order.get", "job.get"].map(tool).into() };
                true
            }
            Op::Over(over) => {
                self.world.calls_are_over = *over;
                true
            }
            Op::OtherRunTakes(pick) => {
                let claim = self.world.run.step(step(pick)).and_then(|step| step.claim);
                if let Some(claim) = claim.filter(|claim| self.world.claim(*claim).holder.is_none()) {
                    self.world.let_another_run_take(claim);
                }
                true
            }
            Op::PreApprove(_) | Op::Vote(..) | Op::Fire(_) | Op::Rekey(_) | Op::CallGranted(_) => self.try_approval(op),
            Op::Attempt(_)
            | Op::AttemptReady
            | Op::CallEnds(..)
            | Op::Lose(_)
            | Op::ReadEnds(..)
            | Op::StaleCallEnds(_)
            | Op::WaitForTimer(_) => self.try_undo(op),
        }
    }

    fn try_begin(&mut self, op: &Op) -> bool {
        let call = match op {
            Op::Begin(tool, args) => self.world.call(TOOLS[*tool], ARGS[*args]),
            Op::Retry(call, same) if !self.calls.is_empty() => {
                let mut call = self.calls[call % self.calls.len()].clone();
                call.attempt = call.attempt.filter(|_| *same);
                call
            }
            _ => return true,
        };
        if self.world.run.steps().len() >= 12 {
            return true;
        }
        self.calls.push(call.clone());
        self.world.begin_call(call).is_ok()
    }

    /// One that may still change if there is one.
    fn approval(&self, pick: usize) -> Option<ApprovalId> {
        let all = || self.world.run.approvals();
        let alive: Vec<_> = all().filter(|approval| approval.status().is_alive()).map(|a| a.id().clone()).collect();
        let some = if alive.is_empty() { all().map(|approval| approval.id().clone()).collect() } else { alive };
        (!some.is_empty()).then(|| some[pick % some.len()].clone())
    }

    fn try_approval(&mut self, op: &Op) -> bool {
        match op {
            Op::PreApprove(tool) => {
                // Ids of requests are counted from 1 on.
                let n = 255 - u8::try_from(self.world.run.approvals().count()).unwrap();
                self.world.pre_approve(n, IN_ADVANCE[*tool], self.otto.clone()).is_ok()
            }
            Op::Vote(pick, who, word) => {
                let (Some(id), who) = (self.approval(*pick), VOTERS[*who]) else { return true };
                match word {
                    Word::Yes => self.world.approve(&id, who).is_ok(),
                    Word::No => self.world.deny(&id, who).is_ok(),
                    Word::Withdraw => self.world.withdraw(&id, who).is_ok(),
                    Word::Revoke => self.world.revoke(&id, who).is_ok(),
                    Word::BreakGlass => self.world.break_glass(&id, "greta").is_ok(),
                    Word::Review => self.world.review(&id, who).is_ok(),
                }
            }
            Op::Fire(pick) => {
                let id = self.approval(*pick);
                let due = id.and_then(|id| Some((self.world.approval(&id).deadline()?.0, id)));
                if let Some((at, id)) = due {
                    self.world.now = self.world.now.max(at);
                    assert!(self.world.fire(&id) > 0, "a timer that comes to nothing would fire for ever");
                }
                true
            }
            Op::CallGranted(pick) => {
                let granted = self.world.run.approvals().filter(|it| it.status() == ApprovalStatus::Approved);
                let tools: Vec<ToolName> = granted.filter_map(|it| Some(it.ask()?.tool.clone())).collect();
                let wanted = (!tools.is_empty()).then(|| tools[pick % tools.len()].clone());
                // Which of them it was granted for stands in no public record.
                for args in ARGS {
                    if let Some(tool) = wanted.as_ref().filter(|_| self.world.run.steps().len() < 12) {
                        let call = self.world.call(tool.as_str(), args);
                        if self.world.begin_call(call).is_err() {
                            return false;
                        }
                    }
                }
                true
            }
            Op::Rekey(void) => {
                // Whose vote counted may have no say any more, and gets it back.
                if *void {
                    self.world.revoke_key("fiona");
                } else {
                    self.world.give_key("fiona", "fiona", &[Role::Approver], &["finance"]);
                }
                true
            }
            _ => true,
        }
    }

    fn try_undo(&mut self, op: &Op) -> bool {
        match op {
            Op::Attempt(pick) => {
                let step = self.step(*pick);
                let buildable =
                    self.world.run.step(step).is_some_and(|step| step.recoverable() && step.undo_pin.is_some());
                !buildable || self.world.undo(step, &UndoCommand::Attempt).is_ok()
            }
            Op::AttemptReady => self.world.ready().first().copied().is_none_or(|step| {
                self.world.undo(step, &UndoCommand::Attempt).unwrap();
                assert!(matches!(self.world.phase(step), Phase::Calling { .. }), "driven for nothing");
                true
            }),
            Op::CallEnds(pick, end) => {
                if let Some(step) = self.undo_in(*pick, |phase| matches!(phase, Phase::Calling { .. })) {
                    self.world.call_ended(step, call_end(*end));
                }
                true
            }
            Op::Lose(pick) => {
                let step = self.undo_in(*pick, |phase| matches!(phase, Phase::Calling { .. }));
                step.is_none_or(|step| self.world.undo(step, &UndoCommand::LoseAttempt).is_ok())
            }
            Op::ReadEnds(pick, end) => {
                if let Some(step) = self.undo_in(*pick, |phase| matches!(phase, Phase::Reading { .. })) {
                    self.world.read(step, read_end(*end));
                }
                true
            }
            Op::StaleCallEnds(pick) => self.undo_in(*pick, |_| true).is_none_or(|step| {
                let attempt = self.world.undos[&step].attempts() - 1;
                self.world.undo(step, &UndoCommand::CallEnded { attempt, end: CallEnd::Success }).is_ok()
            }),
            Op::WaitForTimer(pick) => {
                let waiting = self.undo_in(*pick, |phase| matches!(phase, Phase::Waiting { .. }));
                waiting.is_none_or(|step| {
                    let (at, command) = self.world.undos[&step].deadline().unwrap();
                    self.world.now = self.world.now.max(at);
                    let before = self.world.log.len();
                    self.world.undo(step, &command).unwrap();
                    assert!(self.world.log.len() > before, "a timer that comes to nothing would fire for ever");
                    true
                })
            }
            _ => true,
        }
    }

    /// Everybody does their part from now on, and everything works.
    fn end_well(&mut self) {
        self.world.unserved.clear();
        for _ in 0..200 {
            let before = self.world.log.len();
            for pick in 0..12 {
                self.try_undo(&Op::CallEnds(pick, 0));
                self.try_undo(&Op::ReadEnds(pick, 0));
                self.try_undo(&Op::WaitForTimer(pick));
            }
            self.try_undo(&Op::AttemptReady);
            self.world.settle();
            if self.world.log.len() == before {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn resolve_everything(&mut self) {
        for no in 1..=u32::try_from(self.world.run.steps().len()).unwrap() {
            let step = self.world.run.step(no).unwrap();
            if step.is_open() {
                self.world.resolve(Target::Step, no, Outcome::Failed, "").unwrap();
            } else if step.disputed {
                self.world.resolve(Target::Step, no, step.resolved.unwrap(), "").unwrap();
            }
            if self.world.phase(no) == Phase::Uncertain {
                self.world.resolve(Target::Undo, no, Outcome::Succeeded, "").unwrap();
            }
        }
    }
}

fn call_end(end: u8) -> CallEnd {
    match end {
        0 => CallEnd::Success,
        1 => CallEnd::KnownFailure("connection refused".to_owned()),
        _ => CallEnd::Unknown("timeout".to_owned()),
    }
}

fn read_end(end: u8) -> ReadEnd {
    match end {
        0 => ReadEnd::Match,
        1 => ReadEnd::Unavailable("no answer".to_owned()),
        _ => ReadEnd::Mismatch { path: "a".to_owned(), expected: json("1"), got: None },
    }
}

/// Every step stands in exactly one list, `complete` says that all lists of what is left are empty, and the journaled
/// end of the rollback says the same.
fn assert_report_is_true(world: &World) {
    let report: Report = world.run.report(&world.archive);
    if report.rollback_id.is_none() {
        return;
    }
    let left = [
        &report.failed,
        &report.deferred,
        &report.awaiting_approval,
        &report.not_undoable,
        &report.unrecoverable,
        &report.unresolved,
        &report.undo_uncertain,
        &report.conflict,
        &report.abandoned,
    ];
    let done = [&report.compensated, &report.skipped, &report.in_progress];
    let mut listed: Vec<u32> = left.iter().chain(&done).flat_map(|list| list.iter().map(|entry| entry.step)).collect();
    listed.sort_unstable();
    assert_eq!(listed, world.run.steps().iter().map(|step| step.no).collect::<Vec<_>>());
    let over = matches!(world.run.status(), RunStatus::RolledBack | RunStatus::PartlyRolledBack);
    let empty = left.iter().all(|list| list.is_empty()) && report.disputed.is_empty() && report.in_progress.is_empty();
    assert_eq!(report.complete, over && empty, "{report:#?}");
    assert!(!report.verified || report.compensated.iter().all(|entry| entry.verified != Some(false)));
    assert!(world.run.status() != RunStatus::RolledBack || report.complete);
}

/// Where an undo needs a yes, its first attempt used a grant up, and no later one used another.
fn assert_no_undo_without_its_grant(world: &World) {
    let mut attempted = std::collections::BTreeSet::new();
    for logged in &world.log {
        let Event::Undo(UndoEvent::Attempted(body, ())) = &logged.event else { continue };
        let needs = world.run.step(body.step).unwrap().undo_pin.as_ref().unwrap().approval;
        let first = attempted.insert(body.step);
        assert_eq!(body.approval.is_some(), needs && first, "step {} attempt {}", body.step, body.attempt);
    }
}

fn assert_folds_alike(world: &World) {
    let (run, undos) = world.refold();
    assert_eq!(run, world.run);
    assert_eq!(undos, world.undos);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn random_lives_keep_every_invariant(enforce: bool, over: bool, random: u64, ops in prop::collection::vec(op(), 1..90)) {
        let mut life = Life::new(if enforce { Mode::Enforce } else { Mode::Observe });
        (life.world.calls_are_over, life.world.random) = (over, random);
        for op in &ops {
            life.apply(op);
            assert_report_is_true(&life.world);
        }
        assert_folds_alike(&life.world);
    }

    #[test]
    fn lives_full_of_approvals_keep_every_invariant(ops in prop::collection::vec(asking_op(), 1..90)) {
        let mut life = Life::new(Mode::Enforce);
        for op in &ops {
            life.apply(op);
            assert_report_is_true(&life.world);
        }
        assert_folds_alike(&life.world);
        assert_no_undo_without_its_grant(&life.world);
    }

    #[test]
    fn every_life_can_end_well(random: u64, ops in prop::collection::vec(op(), 1..70)) {
        let mut life = Life::new(Mode::Observe);
        life.world.random = random;
        for op in &ops {
            life.apply(op);
        }
        life.end_well();
        prop_assert!(life.world.run.status() != RunStatus::RollingBack, "{:?}", life.world.run.effects());
        life.resolve_everything();
        life.end_well();
        life.rollbacks += 1;
        let started = life.world.rollback_of(life.rollbacks, None).is_ok();
        life.end_well();
        assert_report_is_true(&life.world);
        prop_assert!(!life.world.run.effects().contains(&RunEffect::FinishRollback));
        // Whatever happened: what is left is what no inverse can reach, and it is named.
        let report = life.world.run.report(&life.world.archive);
        prop_assert!(started || life.world.run.status() == RunStatus::RolledBack);
        prop_assert!(report.unresolved.is_empty() && report.undo_uncertain.is_empty() && report.disputed.is_empty());
        prop_assert!(report.in_progress.is_empty());
        life.world.command(&RunCommand::Seal).unwrap();
        assert_folds_alike(&life.world);
    }
}
