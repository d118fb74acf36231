//! Persons behind keys: who may vote on what, in whose place, and how votes are counted. Must not know an approval.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Access, KeyState, OwedReview, includes};
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

    /// Somebody owes a review, by now overdue, of what this person did. By the instant, not by the record of it: that
    /// comes late where the daemon was down.
    pub fn has_overdue_review(&self, person: &str, now: Timestamp) -> bool {
        let overdue = |review: &OwedReview| review.overdue || review.review_by <= now;
        self.reviews.values().any(|review| overdue(review) && review.person == person)
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

    /// Does the person hold a valid key with that role, or with one that includes it?
    pub fn has_role(&self, person: &str, role: Role, now: Timestamp) -> bool {
        self.keys_of(person, now).any(|key| key.created.roles.iter().any(|held| includes(*held, role)))
    }

    fn is_approver(&self, person: &str, now: Timestamp) -> bool {
        self.keys_of(person, now).any(|key| key.created.roles.contains(&Role::Approver))
    }

    fn keys_of(&self, person: &str, now: Timestamp) -> impl Iterator<Item = &KeyState> {
        let keys = self.by_person.get(person).into_iter().flatten().filter_map(|key| self.keys.get(key));
        keys.filter(move |key| key.is_valid(now))
    }

    /// Can so many votes come together there at all? Who votes in another's place adds nothing to that: the other could
    /// vote too, and the two count once.
    pub fn can_reach(&self, quorum: u32, listed: &[String], barred: &[&str], now: Timestamp) -> bool {
        let approvers = self.approvers(now).into_iter();
        let may = approvers.filter(|person| !barred.contains(person) && self.holds(person, listed, now));
        self.count(may.map(|person| (person, Standing::Own)), now) >= quorum as usize
    }

    /// How many votes these make, each by a person and by what right: two between whom a delegation is in force make one,
    /// and so do two who vote in the place of the same third.
    pub fn count<'p>(&self, votes: impl IntoIterator<Item = (&'p str, Standing)>, now: Timestamp) -> usize {
        let in_force = |delegation: &&Delegated| delegation.start <= now && now < delegation.end;
        let pairs = self.delegations.values().filter(in_force);
        let pairs: BTreeSet<(&str, &str)> = pairs.map(|pair| (pair.from.as_str(), pair.to.as_str())).collect();
        let mut left: BTreeMap<&str, Standing> = votes.into_iter().collect();
        let mut apart = 0;
        // As many as possible without a link between any two of them: who has the fewest links first.
        while let Some(next) = least_linked(&left, &pairs) {
            let Some(standing) = left.remove(next) else { break };
            apart += 1;
            left.retain(|other, theirs| !are_linked((next, &standing), (other, theirs), &pairs));
        }
        apart
    }
}

/// Whoever has no link is as good as the one with the fewest, and is found at once.
fn least_linked<'p>(votes: &BTreeMap<&'p str, Standing>, pairs: &BTreeSet<(&str, &str)>) -> Option<&'p str> {
    if pairs.is_empty() {
        return votes.keys().next().copied();
    }
    let links = |one: (&&str, &Standing)| {
        votes.iter().filter(|(other, theirs)| are_linked((one.0, one.1), (other, theirs), pairs)).count()
    };
    votes.iter().min_by_key(|(person, standing)| links((person, standing))).map(|(person, _)| *person)
}

fn are_linked(one: (&str, &Standing), other: (&str, &Standing), pairs: &BTreeSet<(&str, &str)>) -> bool {
    let rights = [one, other].map(|(person, standing)| match standing {
        Standing::Own => [person, person],
        Standing::For(lender) => [person, lender.as_str()],
    });
    let [mine, theirs] = rights;
    mine.iter().any(|a| theirs.iter().any(|b| a == b || pairs.contains(&(*a, *b)) || pairs.contains(&(*b, *a))))
}
