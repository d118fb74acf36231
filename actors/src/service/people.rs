//! Keys, groups, delegations and the kill switch for edges: who may change them, and the record that does. Must not know
//! any protocol.
use std::sync::Arc;

use reversi_proto::access::{Access, KeyView, MintedKey, OwedReview, Principal, mint};
use reversi_proto::event::v1::{
    Delegated, DelegationEnded, GroupDeleted, GroupSet, Halted, KeyCreated, KeyCreatedPrivate, KeyRevoked, Resumed,
    Role,
};
use reversi_proto::event::{AccessEvent, Event, HaltEvent};
use reversi_proto::halt::{Halt, HaltInForce, HaltScope};
use reversi_proto::ids::{Actor, ActorKind, DelegationId, KeyId, StreamId};
use reversi_proto::time::Timestamp;

use super::approvals::need_one;
use super::types::{NewDelegation, NewKey, PeopleFigures};
use super::{Result, Service, check_text, need, unexpected};
use crate::error::{Code, ServiceError};
use crate::ids::Mint as _;
use crate::journal::AppendError;

/// Longest delegation, in milliseconds: 30 days.
const DELEGATION_MS_MAX: u64 = 30 * 86_400_000;
/// Most members of a group, and longest name of a group or person, in characters.
const MEMBERS_MAX: usize = 10_000;
const NAME_CHARS_MAX: usize = 128;
/// Rounds of reading and deciding again, after which a request is told to come back later.
const ROUNDS_MAX: u32 = 16;

impl Service {
    fn access(&self) -> Arc<Access> {
        self.world.globals().access
    }

    /// Reads, decides, appends; again if somebody else was faster. No events: nothing to do.
    async fn change<T>(
        &self,
        by: &Actor,
        stream: StreamId,
        decide: impl Fn(&Access, &Halt, Timestamp) -> Result<(Vec<Event>, T)>,
    ) -> Result<T> {
        for _ in 0..ROUNDS_MAX {
            let globals = self.world.globals();
            let version = match stream {
                StreamId::Halt => globals.halt_version,
                StreamId::Access
                | StreamId::Run(_)
                | StreamId::Undo(..)
                | StreamId::Approval(_)
                | StreamId::Claim(_)
                | StreamId::Config
                | StreamId::Ledger => globals.access_version,
            };
            let (events, answer) = decide(&globals.access, &globals.halt, self.world.clock.now())?;
            if events.is_empty() {
                return Ok(answer);
            }
            match self.world.append_globals(by, events, Some((stream.clone(), version))).await {
                Ok(_) => return Ok(answer),
                Err(AppendError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(AppendError::Conflict { stream, expected: None, found: None }.into())
    }

    // --- keys

    /// Makes a key; its text is shown once.
    pub async fn create_key(&self, who: &Principal, key: NewKey) -> Result<(KeyId, String)> {
        need(who, Role::Admin)?;
        let minted = self.mint_key(&key)?;
        self.add_minted(&who.actor, key, &minted).await?;
        Ok((minted.presented.id().clone(), minted.text))
    }

    pub(crate) fn mint_key(&self, key: &NewKey) -> Result<MintedKey> {
        if key.roles.is_empty() {
            return Err(ServiceError::new(Code::RequestInvalid, "a key needs at least one role"));
        }
        if key.roles.contains(&Role::Agent) && key.roles.len() > 1 {
            return Err(ServiceError::new(Code::RequestInvalid, "a key with the role agent has no other role"));
        }
        key.groups.iter().chain(&key.person).try_for_each(|name| check_name(name))?;
        let random: [u8; 128] = self.world.ids.random();
        mint(&self.world.ids.key_id(), &random).ok_or_else(unexpected)
    }

    pub(crate) async fn add_minted(&self, by: &Actor, key: NewKey, minted: &MintedKey) -> Result<()> {
        let event = created(key, minted);
        self.change(by, StreamId::Access, |_, _, _| Ok((vec![event.clone()], ()))).await
    }

    /// All keys, without their secrets.
    pub fn keys(&self, who: &Principal) -> Result<Vec<KeyView>> {
        need(who, Role::Admin)?;
        Ok(self.access().keys().collect())
    }

    /// A key is void at once. The last admin's key can't be: nobody could make another.
    pub async fn revoke_key(&self, who: &Principal, key: &KeyId) -> Result<KeyView> {
        need(who, Role::Admin)?;
        self.change(&who.actor, StreamId::Access, |access, _, now| {
            let mut view = known_key(access, key)?;
            if view.revoked {
                return Ok((Vec::new(), view));
            }
            let valid = view.expires_at.is_none_or(|at| now < at);
            if valid && view.roles.contains(&Role::Admin) && access.admins(now) == 1 {
                let detail = "this is the last admin key: make another one before it is revoked";
                return Err(ServiceError::new(Code::LastAdmin, detail));
            }
            view.revoked = true;
            Ok((vec![AccessEvent::KeyRevoked(KeyRevoked { key: key.clone() }, ()).into()], view))
        })
        .await
    }

    /// A new key in the place of an old one, which is void at once.
    pub async fn rotate_key(&self, who: &Principal, key: &KeyId) -> Result<(KeyId, String, KeyView)> {
        need(who, Role::Admin)?;
        let random: [u8; 128] = self.world.ids.random();
        let minted = mint(&self.world.ids.key_id(), &random).ok_or_else(unexpected)?;
        let old = self.change(&who.actor, StreamId::Access, |access, _, _| {
            let old = known_key(access, key)?;
            let view = old.clone();
            if old.revoked {
                return Err(ServiceError::new(Code::KeyRevoked, format!("key {key} is revoked; make a new one")));
            }
            let new = NewKey {
                actor: old.actor,
                roles: old.roles,
                person: old.person,
                groups: old.groups,
                allow_observe: old.allow_observe,
                expires_at: old.expires_at,
            };
            let revoked = AccessEvent::KeyRevoked(KeyRevoked { key: key.clone() }, ()).into();
            Ok((vec![created(new, &minted), revoked], view))
        });
        let view = old.await?;
        Ok((minted.presented.id().clone(), minted.text, view))
    }

    // --- groups

    /// The groups with their persons.
    pub fn groups(&self, who: &Principal) -> Result<Vec<(String, Vec<String>)>> {
        need_one(who, &[Role::Admin, Role::Auditor, Role::Approver])?;
        let access = self.access();
        let groups = access.groups().iter();
        Ok(groups.map(|(group, members)| (group.clone(), members.iter().cloned().collect())).collect())
    }

    /// Makes a group, or replaces its members.
    pub async fn set_group(&self, who: &Principal, group: String, members: Vec<String>) -> Result<()> {
        need(who, Role::Admin)?;
        check_name(&group)?;
        if members.len() > MEMBERS_MAX {
            return Err(ServiceError::new(Code::RequestInvalid, format!("members: at most {MEMBERS_MAX}")));
        }
        members.iter().try_for_each(|name| check_name(name))?;
        let event: Event = AccessEvent::GroupSet(GroupSet { group, members }, ()).into();
        self.change(&who.actor, StreamId::Access, |_, _, _| Ok((vec![event.clone()], ()))).await
    }

    /// A group is gone; what it alone entitled to is gone with it.
    pub async fn delete_group(&self, who: &Principal, group: &str) -> Result<()> {
        need(who, Role::Admin)?;
        self.change(&who.actor, StreamId::Access, |access, _, _| {
            if !access.groups().contains_key(group) {
                return Err(ServiceError::new(Code::GroupNotFound, format!("group {group:?} does not exist")));
            }
            Ok((vec![AccessEvent::GroupDeleted(GroupDeleted { group: group.to_owned() }, ()).into()], ()))
        })
        .await
    }

    // --- delegations

    /// Delegations that are not over.
    pub fn delegations(&self, who: &Principal) -> Result<Vec<Delegated>> {
        need_one(who, &[Role::Admin, Role::Auditor, Role::Approver])?;
        Ok(self.access().delegations(self.world.clock.now()).cloned().collect())
    }

    /// An approver lends their own vote; an admin anybody's.
    pub async fn delegate(&self, who: &Principal, new: NewDelegation) -> Result<Delegated> {
        let admin = who.has(Role::Admin);
        if !admin {
            need(who, Role::Approver)?;
        }
        let from = new.from.unwrap_or_else(|| who.person().to_owned());
        if !admin && from != who.person() {
            let detail = "you can lend your own vote only; an admin can lend others'";
            return Err(ServiceError::new(Code::RoleMissing, detail));
        }
        let start = new.start.unwrap_or_else(|| self.world.clock.now());
        let invalid = |detail: &str| Err(ServiceError::new(Code::RequestInvalid, detail));
        if from == new.to {
            return invalid("to: nobody can lend a vote to themselves");
        }
        if new.roles.is_empty() {
            return invalid("roles: name the roles or groups that are lent");
        }
        if new.end <= start || new.end.ms_since(start) > DELEGATION_MS_MAX {
            return invalid("end: a delegation ends after its start, and at most 30 days after it");
        }
        new.roles.iter().chain([&from, &new.to]).try_for_each(|name| check_name(name))?;
        let delegation = self.world.ids.delegation_id();
        let body = Delegated { delegation, end: new.end, from, roles: new.roles, start, to: new.to };
        let event: Event = AccessEvent::Delegated(body.clone(), ()).into();
        self.change(&who.actor, StreamId::Access, |_, _, _| Ok((vec![event.clone()], ()))).await?;
        Ok(body)
    }

    /// Ends a delegation before its time: the lender, or an admin.
    pub async fn end_delegation(&self, who: &Principal, id: &DelegationId) -> Result<()> {
        need_one(who, &[Role::Approver, Role::Admin])?;
        self.change(&who.actor, StreamId::Access, |access, _, _| {
            let known = access.delegation(id).filter(|it| who.has(Role::Admin) || it.from == who.person());
            if known.is_none() {
                return Err(ServiceError::new(Code::DelegationNotFound, format!("delegation {id} does not exist")));
            }
            Ok((vec![AccessEvent::DelegationEnded(DelegationEnded { delegation: id.clone() }, ()).into()], ()))
        })
        .await
    }

    /// Reviews that are owed because a glass was broken.
    pub fn reviews(&self, who: &Principal) -> Result<Vec<OwedReview>> {
        need_one(who, &[Role::Auditor, Role::Approver])?;
        Ok(self.access().reviews().cloned().collect())
    }

    /// What waits for people, for metrics.
    pub fn people_figures(&self) -> PeopleFigures {
        let globals = self.world.globals();
        let count = |n: usize| n as u64;
        PeopleFigures {
            approvals_open: count(self.world.asked.count()),
            halts: count(globals.halt.iter().count()),
            reviews_owed: count(globals.access.reviews().count()),
            reviews_overdue: count(globals.access.reviews().filter(|review| review.overdue).count()),
        }
    }

    // --- kill switch

    /// What is halted.
    pub fn halts(&self, who: &Principal) -> Result<Vec<HaltInForce>> {
        need_one(who, &[Role::Auditor, Role::Approver])?;
        Ok(self.world.globals().halt.iter().cloned().collect())
    }

    /// Nothing in this scope begins any more. What is in flight can be completed, and rollbacks go on.
    pub async fn halt(&self, who: &Principal, scope: HaltScope, reason: String) -> Result<Vec<HaltInForce>> {
        need(who, Role::Admin)?;
        check_text("reason", &reason)?;
        if reason.trim().is_empty() {
            let detail = "reason: say why, in a sentence; blocked agents are told";
            return Err(ServiceError::new(Code::RequestInvalid, detail));
        }
        self.change(&who.actor, StreamId::Halt, |_, halt, _| {
            let same = halt.get(&scope).is_some_and(|halt| halt.reason == reason);
            let event = HaltEvent::Halted(Halted { reason: reason.clone(), scope: scope.clone() }, ()).into();
            Ok((if same { Vec::new() } else { vec![event] }, ()))
        })
        .await?;
        tracing::warn!(%scope, reason, by = %who.actor.id, "calls are halted");
        self.halts(who)
    }

    /// Calls in this scope may begin again. Halts of other scopes stay.
    pub async fn resume(&self, who: &Principal, scope: HaltScope, reason: Option<String>) -> Result<Vec<HaltInForce>> {
        need(who, Role::Admin)?;
        check_text("reason", reason.as_deref().unwrap_or(""))?;
        self.change(&who.actor, StreamId::Halt, |_, halt, _| {
            let event = HaltEvent::Resumed(Resumed { reason: reason.clone(), scope: scope.clone() }, ()).into();
            Ok((if halt.get(&scope).is_some() { vec![event] } else { Vec::new() }, ()))
        })
        .await?;
        self.halts(who)
    }
}

fn created(key: NewKey, minted: &MintedKey) -> Event {
    let kind = if key.roles.contains(&Role::Agent) { ActorKind::Agent } else { ActorKind::Human };
    let body = KeyCreated {
        actor: key.actor,
        allow_observe: key.allow_observe,
        expires_at: key.expires_at,
        groups: key.groups,
        key: minted.presented.id().clone(),
        kind,
        person: key.person,
        roles: key.roles,
    };
    AccessEvent::KeyCreated(body, KeyCreatedPrivate { secret: minted.presented.hash() }).into()
}

fn known_key(access: &Access, key: &KeyId) -> Result<KeyView> {
    access.key(key).ok_or_else(|| ServiceError::new(Code::KeyNotFound, format!("key {key} does not exist")))
}

/// Names of groups, roles and persons are shown to people, so they hold nothing that can't be seen.
fn check_name(name: &str) -> Result<()> {
    let plain = name.chars().all(|c| !c.is_control() && (c == ' ' || !c.is_whitespace()));
    if plain && !name.trim().is_empty() && name.chars().count() <= NAME_CHARS_MAX {
        return Ok(());
    }
    let detail = format!("names of persons, groups and roles: 1 to {NAME_CHARS_MAX} visible characters");
    Err(ServiceError::new(Code::RequestInvalid, detail))
}
