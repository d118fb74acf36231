//! Persons behind keys: who may vote on what, in whose place, and how votes are counted. Must not know an approval.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Access, KeyState, OwedReview};
use crate::event::v1::{Delegated, Role};
use crate::ids::{ActorId, DelegationId, KeyId};
use crate::time::Timestamp;

/// By what right somebody votes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Their own.
    Own,
    /// In the place of this person, who delegated it.
    For(String),
}

/// A key as a list shows it; never its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyView {
    /// Public half.
    pub key: KeyId,
    /// Whose it is.
    pub actor: ActorId,
    /// The person behind it.
    pub person: Option<String>,
    /// What it may do.
    pub roles: Vec<Role>,
    /// Groups of the person, as the key was created.
    pub groups: Vec<String>,
    /// May start runs in observe or advise mode.
    pub allow_observe: bool,
    /// Not valid from then on.
    pub expires_at: Option<Timestamp>,
    /// Void.
    pub revoked: bool,
}

impl KeyState {
    pub(super) fn person(&self) -> &str {
        self.created.person.as_deref().unwrap_or(self.created.actor.as_str())
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        !self.revoked && self.created.expires_at.is_none_or(|at| now < at)
    }

    fn view(&self) -> KeyView {
        let created = self.created.clone();
        KeyView {
            key: created.key,
            actor: created.actor,
            person: created.person,
            roles: created.roles,
            groups: created.groups,
            allow_observe: created.allow_observe,
            expires_at: created.expires_at,
            revoked: self.revoked,
        }
    }
}

impl Access {
    /// All keys, by their id.
    pub fn keys(&self) -> impl Iterator<Item = KeyView> {
        self.keys.values().map(KeyState::view)
    }

    /// One key.
    pub fn key(&self, key: &KeyId) -> Option<KeyView> {
        self.keys.get(key).map(KeyState::view)
    }

    /// Valid keys with the role admin.
    pub fn admins(&self, now: Timestamp) -> usize {
        self.keys.values().filter(|key| key.is_valid(now) && key.created.roles.contains(&Role::Admin)).count()
    }

    /// The groups with their persons.
    pub fn groups(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.groups
    }

    /// Delegations that are not over by themselves or by a record.
    pub fn delegations(&self, now: Timestamp) -> impl Iterator<Item = &Delegated> {
        self.delegations.values().filter(move |delegation| now < delegation.end)
    }

    /// One delegation.
    pub fn delegation(&self, id: &DelegationId) -> Option<&Delegated> {
        self.delegations.get(id)
    }

    /// Reviews that are owed.
    pub fn reviews(&self) -> impl Iterator<Item = &OwedReview> {
        self.reviews.values()
    }

    /// Somebody owes a review, by now overdue, of what this person did.
    pub fn has_overdue_review(&self, person: &str) -> bool {
        self.reviews.values().any(|review| review.overdue && review.person == person)
    }

    /// Persons who hold a valid key with the role approver.
    pub fn approvers(&self, now: Timestamp) -> BTreeSet<&str> {
        let approvers =
            self.keys.values().filter(|key| key.is_valid(now) && key.created.roles.contains(&Role::Approver));
        approvers.map(KeyState::person).collect()
    }

    /// Does the person hold one of the listed roles or groups now, by valid keys? An empty list asks for nothing.
    pub fn holds(&self, person: &str, listed: &[String], now: Timestamp) -> bool {
        if listed.is_empty() {
            return true;
        }
        let by_group = |name: &String| self.groups.get(name).is_some_and(|members| members.contains(person));
        let by_key = |name: &String| {
            self.keys_of(person, now).any(|key| {
                key.created.groups.contains(name) || key.created.roles.iter().any(|role| role.as_str() == name)
            })
        };
        listed.iter().any(|name| by_group(name) || by_key(name))
    }

    /// May the person vote where one of the listed roles or groups is asked for, and the `barred` persons are not?
    /// A delegation lends what its lender holds now, and no more than it names.
    pub fn standing(&self, person: &str, listed: &[String], barred: &[&str], now: Timestamp) -> Option<Standing> {
        if barred.contains(&person) || !self.is_approver(person, now) {
            return None;
        }
        if self.holds(person, listed, now) {
            return Some(Standing::Own);
        }
        let lends = |delegation: &&Delegated| {
            let lent: Vec<String> = listed.iter().filter(|name| delegation.roles.contains(name)).cloned().collect();
            let in_force = delegation.start <= now && now < delegation.end && delegation.to == person;
            let holds = !lent.is_empty() && self.is_approver(&delegation.from, now);
            in_force && holds && self.holds(&delegation.from, &lent, now) && !barred.contains(&delegation.from.as_str())
        };
        self.delegations.values().find(lends).map(|delegation| Standing::For(delegation.from.clone()))
    }

    fn is_approver(&self, person: &str, now: Timestamp) -> bool {
        self.keys_of(person, now).any(|key| key.created.roles.contains(&Role::Approver))
    }

    fn keys_of(&self, person: &str, now: Timestamp) -> impl Iterator<Item = &KeyState> {
        let keys = self.by_person.get(person).into_iter().flatten().filter_map(|key| self.keys.get(key));
        keys.filter(move |key| key.is_valid(now))
    }

    /// Can so many distinct persons vote there at all?
    pub fn can_reach(&self, quorum: u32, listed: &[String], barred: &[&str], now: Timestamp) -> bool {
        let approvers = self.approvers(now).into_iter();
        let may = approvers.filter(|person| !barred.contains(person) && self.holds(person, listed, now));
        may.take(quorum as usize).count() >= quorum as usize
    }

    /// How many votes these persons make: two between whom a delegation is in force make one.
    pub fn count<'p>(&self, persons: impl IntoIterator<Item = &'p str>, now: Timestamp) -> usize {
        let mut camps: Vec<BTreeSet<&str>> = Vec::new();
        for person in persons {
            let linked = |camp: &BTreeSet<&str>| camp.iter().any(|other| self.are_linked(person, other, now));
            let (joined, others): (Vec<_>, Vec<_>) = camps.into_iter().partition(linked);
            let mut camp = BTreeSet::from([person]);
            camp.extend(joined.into_iter().flatten());
            camps = others;
            camps.push(camp);
        }
        camps.len()
    }

    fn are_linked(&self, a: &str, b: &str, now: Timestamp) -> bool {
        let between = |delegation: &Delegated| {
            let pair = (delegation.from.as_str(), delegation.to.as_str());
            delegation.start <= now && now < delegation.end && (pair == (a, b) || pair == (b, a))
        };
        a == b || self.delegations.values().any(between)
    }
}
