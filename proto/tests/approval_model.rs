//! Random histories of requests against a model that was written from the rules alone: lists, loops and brute force.
//! After each step both must agree on everything that can be seen, and everything must fold again from the log.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use reversi_proto::access::{Access, Principal};
use reversi_proto::aggregate::Aggregate as _;
use reversi_proto::approval::{Approval, ApprovalCommand, Glass, REVIEW_WITHIN_MS, Say, USE_WITHIN_MS};
use reversi_proto::event::v1::{Mode, Role};
use reversi_proto::halt::Halt;
use reversi_proto::ids::{ApprovalId, StreamId};
use reversi_proto::run::DecisionWord;
use reversi_proto::testing::{OWNER, World, at, people, principal};
use reversi_proto::time::Timestamp;

const PERSONS: [&str; 8] = ["fred", "fiona", "carl", "anna", "olga", "greta", "ada", OWNER];
const GROUPS: [&str; 3] = ["finance", "cfo", "board"];
const CALLS: [(&str, &str); 4] =
    [("money.wire", r#"{"n":1}"#), ("money.wire", r#"{"n":2}"#), ("money.tip", r#"{"n":1}"#), ("mail.send", "{}")];
const TEN_MINUTES: u64 = 600_000;
const WAITS: &[u64] = &[1, 60_000, TEN_MINUTES - 1, TEN_MINUTES, USE_WITHIN_MS, REVIEW_WITHIN_MS];

/// One thing that may happen. Everything is picked modulo how much of it there is.
#[derive(Debug, Clone)]
enum Op {
    Begin(usize),
    BeginNaming(usize, usize),
    Approve(usize, usize),
    Deny(usize, usize),
    Withdraw(usize, usize),
    Revoke(usize, usize),
    BreakGlass(usize, usize),
    Review(usize, usize),
    /// The same vote, sent again at once.
    ApproveTwice(usize, usize),
    Fire(usize),
    Wait(u64),
    StepBack(u64),
    GiveKey(usize, u8),
    RevokeKey(usize),
    SetGroup(usize, u8),
    DeleteGroup(usize),
    Delegate(u8, usize, usize, usize, u64),
    EndDelegation(u8),
    Halt(bool),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let (n, key) = (0..6_usize, 0..24_usize);
    prop_oneof![
        8 => (0..CALLS.len()).prop_map(Op::Begin),
        2 => ((0..CALLS.len()), n.clone()).prop_map(|(call, n)| Op::BeginNaming(call, n)),
        // The first keys are those of finance and of the cfo.
        8 => (n.clone(), 0..4_usize).prop_map(|(n, key)| Op::Approve(n, key)),
        4 => (n.clone(), key.clone()).prop_map(|(n, key)| Op::Approve(n, key)),
        1 => (n.clone(), key.clone()).prop_map(|(n, key)| Op::ApproveTwice(n, key)),
        1 => (n.clone(), key.clone()).prop_map(|(n, key)| Op::Deny(n, key)),
        2 => (n.clone(), key.clone()).prop_map(|(n, key)| Op::Withdraw(n, key)),
        1 => (n.clone(), key.clone()).prop_map(|(n, key)| Op::Revoke(n, key)),
        1 => (n.clone(), Just(5_usize)).prop_map(|(n, key)| Op::BreakGlass(n, key)),
        1 => (n.clone(), key.clone()).prop_map(|(n, key)| Op::BreakGlass(n, key)),
        1 => (n.clone(), key.clone()).prop_map(|(n, key)| Op::Review(n, key)),
        3 => n.prop_map(Op::Fire),
        4 => proptest::sample::select(WAITS).prop_map(Op::Wait),
        1 => prop_oneof![Just(1), Just(3_600_000)].prop_map(Op::StepBack),
        2 => (0..PERSONS.len(), 0..4_u8).prop_map(|(person, kind)| Op::GiveKey(person, kind)),
        1 => key.prop_map(Op::RevokeKey),
        1 => (0..GROUPS.len(), any::<u8>()).prop_map(|(group, members)| Op::SetGroup(group, members)),
        1 => (0..GROUPS.len()).prop_map(Op::DeleteGroup),
        2 => (0..4_u8, 0..5_usize, 0..5_usize, 0..GROUPS.len(), prop_oneof![Just(0), Just(TEN_MINUTES)])
            .prop_map(|(n, from, to, role, start)| Op::Delegate(n, from, to, role, start)),
        1 => (0..4_u8).prop_map(Op::EndDelegation),
        1 => any::<bool>().prop_map(Op::Halt),
        1 => Just(Op::Restart),
    ]
}

// --- the model

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Pending,
    Approved,
    Consumed,
    Denied,
    Expired,
    Revoked,
}

/// What can be seen of a request, in milliseconds since the beginning of time.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    call: usize,
    state: State,
    level: usize,
    deadline: Option<u64>,
    use_by: Option<u64>,
    yes: Vec<String>,
    denied_by: Option<String>,
    /// Who broke the glass, until when a review is owed, was it late, is it done.
    glass: Option<(String, u64, bool, bool)>,
}

#[derive(Debug, Clone)]
struct Key {
    shown: Principal,
    valid: bool,
}

struct Delegation {
    from: String,
    to: String,
    role: &'static str,
    start: u64,
    end: u64,
}

#[derive(Default)]
struct Model {
    now: u64,
    keys: Vec<Key>,
    groups: BTreeMap<&'static str, BTreeSet<String>>,
    delegations: BTreeMap<u8, Delegation>,
    requests: Vec<Request>,
    halted: bool,
}

/// (quorum, roles, levels, timeout)
fn rules(call: usize) -> (usize, Vec<&'static str>, Vec<&'static str>, Option<u64>) {
    match CALLS[call].0 {
        "money.wire" => (2, vec!["finance"], vec!["cfo", "board"], Some(TEN_MINUTES)),
        "money.tip" => (1, vec!["finance"], vec![], Some(TEN_MINUTES)),
        _ => (1, vec![], vec![], None),
    }
}

impl Model {
    fn new() -> Self {
        let keys = PERSONS.iter().map(|person| Key { shown: principal(person), valid: true }).collect();
        Self { keys, ..Self::default() }
    }

    fn holds(&self, person: &str, name: &str) -> bool {
        let member = self.groups.get(name).is_some_and(|members| members.contains(person));
        let keys = self.keys.iter().filter(|key| key.valid && key.shown.person() == person);
        member || keys.into_iter().any(|key| key.shown.groups.iter().any(|group| group == name))
    }

    fn approver(&self, person: &str) -> bool {
        self.keys
            .iter()
            .any(|key| key.valid && key.shown.person() == person && key.shown.roles.contains(&Role::Approver))
    }

    fn listed(call: usize, level: usize) -> Vec<&'static str> {
        let (_, roles, levels, _) = rules(call);
        if roles.is_empty() { roles } else { roles.into_iter().chain(levels.into_iter().take(level)).collect() }
    }

    /// In whose name the person votes there: their own, or a lender's besides; nobody's if they may not.
    fn names(&self, person: &str, call: usize, level: usize) -> Option<Vec<String>> {
        if person == OWNER || !self.approver(person) {
            return None;
        }
        let listed = Self::listed(call, level);
        if listed.is_empty() || listed.iter().any(|name| self.holds(person, name)) {
            return Some(vec![person.to_owned()]);
        }
        for lent in self.delegations.values() {
            let in_force = lent.start <= self.now && self.now < lent.end && lent.to == person;
            let lender = lent.from != OWNER && self.approver(&lent.from) && self.holds(&lent.from, lent.role);
            if in_force && lender && listed.contains(&lent.role) {
                return Some(vec![person.to_owned(), lent.from.clone()]);
            }
        }
        None
    }

    fn linked(&self, a: &[String], b: &[String]) -> bool {
        let pair = |x: &str, y: &str| {
            let between = |lent: &Delegation| (lent.from == x && lent.to == y) || (lent.from == y && lent.to == x);
            x == y
                || self.delegations.values().any(|lent| lent.start <= self.now && self.now < lent.end && between(lent))
        };
        a.iter().any(|x| b.iter().any(|y| pair(x, y)))
    }

    /// Are there so many among these that no two of them are linked? By trying all choices.
    fn enough(&self, persons: &[&str], call: usize, level: usize) -> bool {
        let names: Vec<Vec<String>> = persons.iter().filter_map(|person| self.names(person, call, level)).collect();
        (0..1_u32 << names.len()).any(|choice| {
            let chosen: Vec<&Vec<String>> =
                names.iter().enumerate().filter(|(n, _)| choice >> n & 1 == 1).map(|(_, names)| names).collect();
            let apart = chosen.iter().enumerate().all(|(n, a)| chosen[n + 1..].iter().all(|b| !self.linked(a, b)));
            apart && chosen.len() >= rules(call).0
        })
    }

    fn quorum(&self, n: usize) -> bool {
        let request = &self.requests[n];
        let yes: Vec<&str> = request.yes.iter().map(String::as_str).collect();
        self.enough(&yes, request.call, request.level)
    }

    /// Nothing can be said about it any more.
    fn over(&self, n: usize) -> bool {
        let request = &self.requests[n];
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= self.now);
        match request.state {
            State::Pending => passed(request.deadline) && request.level >= rules(request.call).2.len(),
            State::Approved => passed(request.use_by),
            State::Consumed | State::Denied | State::Expired | State::Revoked => true,
        }
    }

    fn is_another(&self, key: usize) -> bool {
        let who = &self.keys[key].shown;
        !who.roles.contains(&Role::Agent) && who.person() != OWNER && who.actor.id.as_str() != "bot-1"
    }

    fn may_vote(&self, n: usize, key: usize) -> bool {
        let (request, who) = (&self.requests[n], &self.keys[key].shown);
        let names = self.names(who.person(), request.call, request.level);
        self.is_another(key) && who.roles.contains(&Role::Approver) && names.is_some()
    }

    fn grant(&mut self, n: usize) {
        self.requests[n].state = State::Approved;
        self.requests[n].use_by = Some(self.now + USE_WITHIN_MS);
    }

    fn approve(&mut self, n: usize, key: usize) -> bool {
        let person = self.keys[key].shown.person().to_owned();
        let already = self.requests[n].yes.contains(&person);
        if already && matches!(self.requests[n].state, State::Approved | State::Consumed) {
            return true;
        }
        if self.requests[n].state != State::Pending || self.over(n) || !self.may_vote(n, key) {
            return false;
        }
        if !already {
            self.requests[n].yes.push(person);
        }
        if self.quorum(n) {
            self.grant(n);
        }
        true
    }

    fn deny(&mut self, n: usize, key: usize) -> bool {
        let person = self.keys[key].shown.person().to_owned();
        if self.requests[n].state == State::Denied {
            return self.requests[n].denied_by == Some(person);
        }
        let fine = !self.over(n) && self.may_vote(n, key);
        if fine {
            (self.requests[n].state, self.requests[n].denied_by) = (State::Denied, Some(person));
        }
        fine
    }

    fn withdraw(&mut self, n: usize, key: usize) -> bool {
        let who = self.keys[key].shown.clone();
        let over = self.over(n);
        let request = &mut self.requests[n];
        if over || who.roles.contains(&Role::Agent) || !request.yes.iter().any(|yes| yes == who.person()) {
            return false;
        }
        request.yes.retain(|yes| yes != who.person());
        if request.state == State::Approved && request.glass.is_none() {
            (request.state, request.use_by) = (State::Pending, None);
        }
        true
    }

    fn revoke(&mut self, n: usize, key: usize) -> bool {
        let (over, who) = (self.over(n), &self.keys[key].shown);
        let request = &self.requests[n];
        let voted = request.yes.iter().any(|yes| yes == who.person());
        let broke = request.glass.as_ref().is_some_and(|(by, .., reviewed)| by == who.person() && !reviewed);
        let may = voted || broke || who.roles.contains(&Role::Admin);
        let fine = !over && may && !who.roles.contains(&Role::Agent);
        if fine {
            self.requests[n].state = State::Revoked;
        }
        fine
    }

    fn break_glass(&mut self, n: usize, key: usize) -> bool {
        let who = self.keys[key].shown.clone();
        let late = |(by, due, _, done): &(String, u64, bool, bool)| by == who.person() && !done && *due <= self.now;
        let recorded = |(by, _, late, done): &(String, u64, bool, bool)| by == who.person() && !done && *late;
        let owes = self.requests.iter().filter_map(|request| request.glass.as_ref()).any(|g| late(g) || recorded(g));
        let open = self.requests[n].state == State::Pending && !self.over(n);
        let fine = open && who.roles.contains(&Role::Breakglass) && self.is_another(key) && !self.halted && !owes;
        if fine {
            self.grant(n);
            self.requests[n].glass = Some((who.person().to_owned(), self.now + REVIEW_WITHIN_MS, false, false));
        }
        fine
    }

    fn review(&mut self, n: usize, key: usize) -> bool {
        let (another, who) = (self.is_another(key), self.keys[key].shown.person().to_owned());
        let Some((by, .., done)) = &mut self.requests[n].glass else { return false };
        let fine = another && !*done && *by != who;
        *done |= fine;
        fine
    }

    fn fire(&mut self, n: usize) {
        let now = self.now;
        let (_, _, levels, timeout) = rules(self.requests[n].call);
        let request = &mut self.requests[n];
        if let Some((_, due, late @ false, false)) = &mut request.glass
            && *due <= now
        {
            *late = true;
            return;
        }
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= now);
        match request.state {
            State::Pending if passed(request.deadline) && request.level < levels.len() => {
                request.level += 1;
                request.deadline = timeout.map(|ms| now + ms);
            }
            State::Pending if passed(request.deadline) => request.state = State::Expired,
            State::Approved if passed(request.use_by) => request.state = State::Expired,
            State::Pending | State::Approved | State::Consumed | State::Denied | State::Expired | State::Revoked => {}
        }
    }

    fn usable(&self, n: usize) -> bool {
        let request = &self.requests[n];
        request.state == State::Approved && !self.over(n) && (request.glass.is_some() || self.quorum(n))
    }

    /// Asks anew where enough people could answer.
    fn ask(&mut self, call: usize, stale: Option<usize>) {
        let (_, _, levels, within) = rules(call);
        if !self.enough(&PERSONS, call, levels.len()) {
            return;
        }
        if let Some(n) = stale {
            self.requests[n].state = State::Revoked;
        }
        let deadline = within.map(|added| self.now + added);
        self.requests.push(Request {
            call,
            state: State::Pending,
            level: 0,
            deadline,
            use_by: None,
            yes: vec![],
            denied_by: None,
            glass: None,
        });
    }

    /// May the call be made?
    fn begin(&mut self, call: usize, named: Option<usize>) -> bool {
        if self.halted || named.is_some_and(|n| self.requests[n].call != call) {
            return false;
        }
        let last = named.or_else(|| self.requests.iter().rposition(|request| request.call == call));
        let Some(n) = last else {
            self.ask(call, None);
            return false;
        };
        match self.requests[n].state {
            State::Approved if self.usable(n) => {
                self.requests[n].state = State::Consumed;
                return true;
            }
            State::Approved if named.is_some() && self.over(n) => {}
            State::Approved => self.ask(call, Some(n)),
            State::Pending | State::Denied => {}
            State::Consumed | State::Expired | State::Revoked if named.is_some() => {}
            State::Consumed | State::Expired | State::Revoked => self.ask(call, None),
        }
        false
    }
}

// --- both together

struct Both {
    world: World,
    model: Model,
    /// The requests' ids, in the order in which they were asked.
    ids: Vec<ApprovalId>,
}

fn ms(time: Timestamp) -> u64 {
    let since = time.micros() - at(0).micros();
    u64::try_from(since / 1000).unwrap()
}

impl Both {
    fn new() -> Self {
        Self { world: World::asking(Mode::Enforce), model: Model::new(), ids: vec![] }
    }

    /// The request and the key of that number, if there are any.
    fn picked(&self, n: usize, key: usize) -> Option<(usize, usize)> {
        let key = key % self.model.keys.len();
        // Whoever shows a void key does not get in.
        if self.ids.is_empty() || !self.model.keys[key].valid {
            return None;
        }
        Some((self.ids.len() - 1 - n % self.ids.len(), key))
    }

    fn say(
        &mut self,
        picked: Option<(usize, usize)>,
        command: impl Fn(Principal) -> ApprovalCommand,
        model: impl Fn(&mut Model, usize, usize) -> bool,
    ) {
        let Some((n, key)) = picked else { return };
        let command = command(self.model.keys[key].shown.clone());
        let said = self.world.say(&self.ids[n], &command);
        assert_eq!(said.is_ok(), model(&mut self.model, n, key), "{command:?}: {said:?}");
    }

    fn begin(&mut self, call: usize, named: Option<usize>) {
        let (tool, args) = CALLS[call];
        let mut wanted = self.world.call(tool, args);
        wanted.approval = named.map(|n| self.ids[n].clone());
        let answer = self.world.begin_call(wanted).unwrap();
        let expected = self.model.begin(call, named);
        assert_eq!(answer.decision == DecisionWord::Allow, expected, "{answer:?}");
        let new = self.world.approvals.keys().filter(|id| !self.ids.contains(id)).cloned();
        self.ids.extend(new.collect::<Vec<_>>());
    }

    fn people(&mut self, op: &Op) {
        match *op {
            Op::GiveKey(person, kind) => {
                let (roles, groups): (&[Role], &[&str]) = match kind {
                    0 => (&[Role::Approver], &["finance"]),
                    1 => (&[Role::Approver], &["cfo"]),
                    2 => (&[Role::Approver, Role::Breakglass], &[]),
                    _ => (&[Role::Agent], &["finance"]),
                };
                let name = format!("x{}", self.model.keys.len());
                let shown = self.world.give_key(&name, PERSONS[person], roles, groups);
                self.model.keys.push(Key { shown, valid: true });
            }
            Op::RevokeKey(key) => {
                let key = key % self.model.keys.len();
                self.world.revoke_key(self.model.keys[key].shown.actor.id.as_str());
                self.model.keys[key].valid = false;
            }
            Op::SetGroup(group, members) => {
                let members: Vec<&str> = PERSONS
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| members >> n & 1 == 1)
                    .map(|(_, person)| *person)
                    .collect();
                self.world.set_group(GROUPS[group], &members);
                self.model.groups.insert(GROUPS[group], members.iter().map(|member| (*member).to_owned()).collect());
            }
            Op::DeleteGroup(group) => {
                self.world.delete_group(GROUPS[group]);
                self.model.groups.remove(GROUPS[group]);
            }
            Op::Delegate(n, from, to, role, start) if from != to => {
                let (from, to, role) = (PERSONS[from], PERSONS[to], GROUPS[role]);
                let (start, end) = (self.model.now + start, self.model.now + start + 2 * TEN_MINUTES);
                self.world.delegate(n, (from, to), &[role], (start, end));
                let (from, to) = (from.to_owned(), to.to_owned());
                self.model.delegations.insert(n, Delegation { from, to, role, start, end });
            }
            Op::EndDelegation(n) => {
                self.world.end_delegation(n);
                self.model.delegations.remove(&n);
            }
            _ => {}
        }
    }

    fn step(&mut self, op: &Op) {
        let say = |who: Principal| Say { who, note: None, fingerprint: None };
        match *op {
            Op::Begin(call) => self.begin(call, None),
            Op::BeginNaming(call, n) => {
                let named = self.ids.len().checked_sub(1).map(|last| last - n % self.ids.len());
                self.begin(call, named);
            }
            Op::Approve(n, key) => {
                self.say(self.picked(n, key), |who| ApprovalCommand::Approve(say(who)), Model::approve);
            }
            Op::ApproveTwice(n, key) => {
                for _ in 0..2 {
                    self.say(self.picked(n, key), |who| ApprovalCommand::Approve(say(who)), Model::approve);
                }
            }
            Op::Deny(n, key) => self.say(self.picked(n, key), |who| ApprovalCommand::Deny(say(who)), Model::deny),
            Op::Withdraw(n, key) => self.say(self.picked(n, key), ApprovalCommand::Withdraw, Model::withdraw),
            Op::Revoke(n, key) => {
                self.say(self.picked(n, key), |who| ApprovalCommand::Revoke(who, "so".to_owned()), Model::revoke);
            }
            Op::BreakGlass(n, key) => {
                let reason = "the plant is on fire and nobody answers".to_owned();
                self.say(
                    self.picked(n, key),
                    |who| ApprovalCommand::BreakGlass(who, reason.clone()),
                    Model::break_glass,
                );
            }
            Op::Review(n, key) => {
                self.say(self.picked(n, key), |who| ApprovalCommand::Review(who, "so".to_owned()), Model::review);
            }
            Op::Fire(n) => {
                if let Some((n, _)) = self.picked(n, 7).or(self.picked(n, 6)) {
                    self.world.fire(&self.ids[n]);
                    self.model.fire(n);
                }
            }
            Op::Wait(ms) => {
                self.world.wait(ms);
                self.model.now += ms;
            }
            Op::StepBack(ms) => {
                self.model.now = self.model.now.saturating_sub(ms);
                self.world.now = at(self.model.now);
            }
            Op::Halt(true) => {
                self.world.halt("all");
                self.model.halted = true;
            }
            Op::Halt(false) => {
                self.world.resume("all");
                self.model.halted = false;
            }
            Op::Restart => self.restart(),
            Op::GiveKey(..)
            | Op::RevokeKey(_)
            | Op::SetGroup(..)
            | Op::DeleteGroup(_)
            | Op::Delegate(..)
            | Op::EndDelegation(_) => {
                self.people(op);
            }
        }
    }

    /// Everything is folded again from the log, and must be what it was.
    fn restart(&mut self) {
        let (run, _) = self.world.refold();
        assert_eq!(run, self.world.run);
        let mut approvals: BTreeMap<ApprovalId, Approval> = BTreeMap::new();
        let (mut access, mut halt): (Access, Halt) = (people(), Halt::default());
        for logged in &self.world.log {
            for stream in &logged.streams {
                match stream {
                    StreamId::Approval(id) => {
                        let fresh = || Approval::new(run.id().clone(), id.clone());
                        approvals.entry(id.clone()).or_insert_with(fresh).evolve(&logged.meta, &logged.event);
                    }
                    StreamId::Access => access.evolve(&logged.meta, Some(run.id()), &logged.event),
                    StreamId::Halt => halt.evolve(&logged.meta, &logged.event),
                    StreamId::Run(_)
                    | StreamId::Undo(..)
                    | StreamId::Claim(_)
                    | StreamId::Config
                    | StreamId::Ledger => {}
                }
            }
        }
        assert_eq!(approvals, self.world.approvals);
        assert_eq!((&access, &halt), (&self.world.access, &self.world.halt));
        (self.world.run, self.world.approvals, self.world.access, self.world.halt) = (run, approvals, access, halt);
    }

    fn seen(&self, n: usize) -> Request {
        let approval = &self.world.approvals[&self.ids[n]];
        let ask = approval.ask().unwrap();
        let args = self.model.requests[n].call;
        assert_eq!(ask.tool.as_str(), CALLS[args].0);
        let state = match approval.status().as_str() {
            "pending" => State::Pending,
            "approved" => State::Approved,
            "consumed" => State::Consumed,
            "denied" => State::Denied,
            "expired" => State::Expired,
            "revoked" => State::Revoked,
            other => panic!("{other}"),
        };
        // What became of the glass is compared as far as both know it.
        let known = self.model.requests[n].glass.clone();
        let glass = match approval.glass() {
            Glass::Whole => None,
            Glass::Broken { person, review_by, overdue, .. } => Some((person.clone(), ms(*review_by), *overdue, false)),
            Glass::Reviewed { person, .. } => known.map(|(_, due, late, _)| (person.clone(), due, late, true)),
        };
        let denied_by = approval.end().filter(|_| state == State::Denied).map(|(who, _)| who.to_owned());
        let deadline = if state == State::Pending {
            approval.deadline().map(|(at, _)| ms(at))
        } else {
            self.model.requests[n].deadline
        };
        Request {
            call: args,
            state,
            level: approval.level() as usize,
            deadline,
            use_by: approval.use_by().map(ms),
            yes: approval.votes().iter().map(|vote| vote.person.clone()).collect(),
            denied_by,
            glass,
        }
    }

    fn compare(&self) {
        assert_eq!(self.ids.len(), self.model.requests.len(), "requests");
        for (n, expected) in self.model.requests.iter().enumerate() {
            assert_eq!(self.seen(n), *expected, "request {n}");
        }
        let owed: BTreeSet<&ApprovalId> = self.world.access.reviews().map(|review| &review.approval).collect();
        let model = self.model.requests.iter().enumerate();
        let expected =
            model.filter(|(_, request)| matches!(request.glass, Some((.., false)))).map(|(n, _)| &self.ids[n]);
        assert_eq!(owed, expected.collect(), "reviews");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_aggregate_and_the_model_agree_after_each_step(ops in prop::collection::vec(op(), 1..40)) {
        let mut both = Both::new();
        for op in &ops {
            both.step(op);
            both.compare();
        }
        both.restart();
    }
}

/// Agreement on histories in which nothing happens would be worth nothing.
#[test]
fn the_histories_reach_every_record_of_approvals() {
    let mut runner = TestRunner::deterministic();
    let histories = prop::collection::vec(op(), 40);
    let mut seen = BTreeSet::new();
    for _ in 0..128 {
        let mut both = Both::new();
        for op in &histories.new_tree(&mut runner).unwrap().current() {
            both.step(op);
        }
        seen.extend(both.world.kinds_after(0));
    }
    let kinds = [
        "requested",
        "voted",
        "granted",
        "denied",
        "withdrawn",
        "escalated",
        "expired",
        "revoked",
        "break_glass",
        "reviewed",
        "review_overdue",
    ];
    for kind in kinds {
        assert!(seen.contains(format!("approval.{kind}").as_str()), "no approval.{kind}: {seen:?}");
    }
    assert!(seen.contains("step.begun"), "no grant is used");
}
