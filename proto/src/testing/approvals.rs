//! What the stories of approvals are told with: tools that ask, and what people do. Must not decide anything.
use std::sync::LazyLock;

use super::manifests::set_of;
use super::{MANIFESTS, World, at, hash, id, key_id, operator, principal};
use crate::access::Principal;
use crate::approval::{Approval, ApprovalCommand, ApprovalReject, ApprovalStatus, Say};
use crate::event::v1::{
    Delegated, DelegationEnded, GroupDeleted, GroupSet, Halted, KeyCreated, KeyCreatedPrivate, KeyRevoked, Mode,
    Resumed, Role,
};
use crate::event::{AccessEvent, HaltEvent};
use crate::ids::{Actor, ActorKind, ApprovalId, DelegationId, KeyId, StreamId};
use crate::manifest::ManifestSet;
use crate::run::{PreApprove, RunCommand, RunReject};

/// Tools that ask: two of finance with two levels; one of finance; anybody, without a deadline; one whose undo asks
/// two of finance; one that changes nothing and asks all the same; one with a claim.
pub const APPROVAL_TOOLS: &str = r#"
- tool: money.wire
  description: Wire money.
  effect: irreversible
  permission: payments:write
  risk: { data_class: financial, blast_radius: high }
  audit: { redaction: [$args.card.token, $args.names.0] }
  approval: { roles: [finance], quorum: 2, timeout: 10m, on_timeout: escalate, escalate_to: [cfo, board] }
- tool: money.tip
  effect: irreversible
  permission: payments:write
  approval: { roles: [finance], timeout: 10m }
- {tool: book.read, effect: read_only, permission: payments:read, approval: always}
- tool: seat.take
  effect: compensable
  permission: payments:write
  approval: { roles: [finance] }
  idempotency: { key: "{{args.seat}}" }
  compensation: { tool: seat.free, argument_map: { seat: $args.seat } }
- {tool: seat.free, effect: idempotent, permission: payments:write}
- tool: safe.put
  effect: reversible
  permission: vault:write
  compensation: { tool: safe.clear, argument_map: { key: $args.key }, requires_approval: true }
- tool: safe.clear
  effect: idempotent
  permission: vault:write
  retry: { attempts: 3, base_ms: 100, max_ms: 1000 }
  approval: { roles: [finance], quorum: 2, timeout: 10m }
"#;

/// A person's word with their own key, and nothing beside it.
pub fn say(person: &str) -> Say {
    Say { who: principal(person), note: None, fingerprint: None }
}

fn both(of_approvals: &str) -> ManifestSet {
    set_of(&format!("{MANIFESTS}{of_approvals}"))
}

impl World {
    /// A run that was just started, with tools that ask.
    pub fn asking(mode: Mode) -> Self {
        static SET: LazyLock<ManifestSet> = LazyLock::new(|| both(APPROVAL_TOOLS));
        let mut world = Self::new(mode);
        world.load(&SET);
        world
    }

    /// The tools that ask are declared otherwise from now on: `from` is replaced by `to` in [`APPROVAL_TOOLS`].
    #[track_caller]
    pub fn redeclare(&mut self, from: &str, to: &str) {
        assert!(APPROVAL_TOOLS.contains(from), "{from:?} does not stand there");
        self.load(&both(&APPROVAL_TOOLS.replace(from, to)));
    }

    /// A call that is blocked because somebody must be asked, and the request for it.
    #[track_caller]
    pub fn asked(&mut self, tool: &str, args: &str) -> ApprovalId {
        let answer = self.begin(tool, args);
        assert_eq!(super::codes(&answer.findings), ["approval.required"]);
        answer.approval.expect("somebody is asked")
    }

    /// One approval.
    pub fn approval(&self, id: &ApprovalId) -> &Approval {
        &self.approvals[id]
    }

    /// Where one stands.
    pub fn standing(&self, id: &ApprovalId) -> ApprovalStatus {
        self.approval(id).status()
    }

    /// A person's no.
    pub fn deny(&mut self, id: &ApprovalId, person: &str) -> Result<(), ApprovalReject> {
        self.say(id, &ApprovalCommand::Deny(say(person)))
    }

    /// A person takes their yes back.
    pub fn withdraw(&mut self, id: &ApprovalId, person: &str) -> Result<(), ApprovalReject> {
        self.say(id, &ApprovalCommand::Withdraw(principal(person)))
    }

    /// A person takes the request or the grant away.
    pub fn revoke(&mut self, id: &ApprovalId, person: &str) -> Result<(), ApprovalReject> {
        self.say(id, &ApprovalCommand::Revoke(principal(person), "a mistake".to_owned()))
    }

    /// A person grants it in an emergency.
    pub fn break_glass(&mut self, id: &ApprovalId, person: &str) -> Result<(), ApprovalReject> {
        let reason = "the plant is on fire and nobody answers".to_owned();
        self.say(id, &ApprovalCommand::BreakGlass(principal(person), reason))
    }

    /// A person looks at a broken glass.
    pub fn review(&mut self, id: &ApprovalId, person: &str) -> Result<(), ApprovalReject> {
        self.say(id, &ApprovalCommand::Review(principal(person), "it was right".to_owned()))
    }

    /// The request's timer fires; how many records that made.
    pub fn fire(&mut self, id: &ApprovalId) -> usize {
        let before = self.log.len();
        self.say(id, &ApprovalCommand::Fire).expect("a timer is never refused");
        self.log.len() - before
    }

    /// An operator's yes in advance.
    pub fn pre_approve(&mut self, n: u8, tool: &str, who: Principal) -> Result<ApprovalId, RunReject> {
        let approval = super::approval_id(n);
        let pre = PreApprove { approval: approval.clone(), tool: id(tool), who, note: None };
        self.command(&RunCommand::PreApprove(pre)).map(|_| approval)
    }

    /// A new key; what its holder shows at the door.
    pub fn give_key(&mut self, name: &str, person: &str, roles: &[Role], groups: &[&str]) -> Principal {
        let kind = if roles.contains(&Role::Agent) { ActorKind::Agent } else { ActorKind::Human };
        let actor = Actor { id: id(name), kind };
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let body = KeyCreated {
            actor: actor.id.clone(),
            allow_observe: false,
            expires_at: None,
            groups: groups.clone(),
            key: key_of(name),
            kind,
            person: Some(person.to_owned()),
            roles: roles.to_vec(),
        };
        let event = AccessEvent::KeyCreated(body, KeyCreatedPrivate { secret: hash(3) });
        self.record(&admin(), event, StreamId::Access);
        let (key, roles) = (key_of(name), roles.to_vec());
        Principal { key, actor, person: Some(person.to_owned()), roles, groups, allow_observe: false }
    }

    /// The key of that name is void.
    pub fn revoke_key(&mut self, name: &str) {
        self.record(&admin(), AccessEvent::KeyRevoked(KeyRevoked { key: key_of(name) }, ()), StreamId::Access);
    }

    /// These are the members of a group from now on.
    pub fn set_group(&mut self, group: &str, members: &[&str]) {
        let members = members.iter().map(|member| (*member).to_owned()).collect();
        let event = AccessEvent::GroupSet(GroupSet { group: group.to_owned(), members }, ());
        self.record(&admin(), event, StreamId::Access);
    }

    /// There is no such group any more.
    pub fn delete_group(&mut self, group: &str) {
        let event = AccessEvent::GroupDeleted(GroupDeleted { group: group.to_owned() }, ());
        self.record(&admin(), event, StreamId::Access);
    }

    /// Somebody lends roles to somebody else, from and until so many milliseconds after the beginning of time.
    pub fn delegate(&mut self, n: u8, (from, to): (&str, &str), roles: &[&str], (start, end): (u64, u64)) {
        let body = Delegated {
            delegation: delegation_id(n),
            end: at(end),
            from: from.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            start: at(start),
            to: to.to_owned(),
        };
        self.record(&admin(), AccessEvent::Delegated(body, ()), StreamId::Access);
    }

    /// A delegation is over before its time.
    pub fn end_delegation(&mut self, n: u8) {
        let event = AccessEvent::DelegationEnded(DelegationEnded { delegation: delegation_id(n) }, ());
        self.record(&admin(), event, StreamId::Access);
    }

    /// Calls of that scope are halted.
    pub fn halt(&mut self, scope: &str) {
        let body = Halted { reason: "something is wrong".to_owned(), scope: scope.parse().unwrap() };
        self.record(&operator(), HaltEvent::Halted(body, ()), StreamId::Halt);
    }

    /// They may begin again.
    pub fn resume(&mut self, scope: &str) {
        let body = Resumed { reason: None, scope: scope.parse().unwrap() };
        self.record(&operator(), HaltEvent::Resumed(body, ()), StreamId::Halt);
    }
}

/// Names of actors may have signs that a key's id may not.
fn key_of(name: &str) -> KeyId {
    key_id(&name.replace('-', ""))
}

fn admin() -> Actor {
    principal("ada").actor
}

fn delegation_id(n: u8) -> DelegationId {
    id(&format!("dlg_{n:032x}"))
}
