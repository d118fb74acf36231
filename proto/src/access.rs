//! Who may do what: access keys and roles. Must not know HTTP or how a key is minted.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::event::v1::{Delegated, KeyCreated, Role};
use crate::event::{AccessEvent, ApprovalEvent, Event, Meta};
use crate::hash::Hash;
use crate::ids::{Actor, ApprovalId, DelegationId, KeyId, RunId};
use crate::time::Timestamp;

mod people;

pub use people::{KeyView, Standing};

/// Characters of the random part of a key.
pub const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key as its holder shows it: `rvk_<id>_<43 base62><6 checksum>`.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedKey {
    id: KeyId,
    hash: Hash,
}

/// A key that was just made; the text is shown once.
pub struct MintedKey {
    /// What its holder gets.
    pub text: String,
    /// What is kept.
    pub presented: PresentedKey,
}

fn checksum(head: &str) -> String {
    let digest = Sha256::digest(head);
    digest.iter().take(CHECKSUM_CHARS).map(|byte| char::from(BASE62[usize::from(*byte) % 62])).collect()
}

impl PresentedKey {
    /// Reads a key; None if it can't be one (wrong form or checksum), so that typing errors cost no look-up.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix("rvk_")?.split_once('_')?;
        if secret.len() != SECRET_CHARS + CHECKSUM_CHARS || !secret.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let (head, sum) = text.split_at(text.len() - CHECKSUM_CHARS);
        (checksum(head) == sum).then_some(())?;
        Some(Self { id: id.parse().ok()?, hash: Hash(Sha256::digest(text).into()) })
    }

    /// Public half.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// SHA-256 of the whole key.
    pub fn hash(&self) -> Hash {
        self.hash
    }
}

/// Makes a key of an id and random bytes (each below 248 gives one digit without bias; others are skipped).
/// None when the bytes don't suffice.
pub fn mint(id: &KeyId, random: &[u8]) -> Option<MintedKey> {
    let digits = random.iter().filter(|byte| **byte < 248).map(|byte| char::from(BASE62[usize::from(*byte) % 62]));
    let secret: String = digits.take(SECRET_CHARS).collect();
    let head = format!("rvk_{id}_{secret}");
    let text = format!("{head}{}", checksum(&head));
    let presented = PresentedKey::parse(&text)?;
    Some(MintedKey { text, presented })
}

/// What a valid key entitles to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Which key.
    pub key: KeyId,
    /// Who acts.
    pub actor: Actor,
    /// The person behind it.
    pub person: Option<String>,
    /// What it may do.
    pub roles: Vec<Role>,
    /// Groups of the person.
    pub groups: Vec<String>,
    /// May start runs in observe or advise mode.
    pub allow_observe: bool,
}

impl Principal {
    /// Whose votes this key casts: the person behind it, or the actor itself where none was named.
    pub fn person(&self) -> &str {
        self.person.as_deref().unwrap_or(self.actor.id.as_str())
    }

    /// Holds the role, or one that includes it: auditor < operator < admin.
    pub fn has(&self, role: Role) -> bool {
        self.roles.iter().any(|held| includes(*held, role))
    }
}

fn includes(held: Role, wanted: Role) -> bool {
    match held {
        Role::Admin => matches!(wanted, Role::Admin | Role::Operator | Role::Auditor),
        Role::Operator => matches!(wanted, Role::Operator | Role::Auditor),
        Role::Auditor | Role::Agent | Role::Approver | Role::Breakglass => held == wanted,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyState {
    created: KeyCreated,
    secret: Hash,
    revoked: bool,
}

/// Fold of the `access` stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    keys: BTreeMap<KeyId, KeyState>,
    by_person: BTreeMap<String, Vec<KeyId>>,
    groups: BTreeMap<String, BTreeSet<String>>,
    delegations: BTreeMap<DelegationId, Delegated>,
    reviews: BTreeMap<ApprovalId, OwedReview>,
}

/// A review that somebody owes because the glass was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwedReview {
    /// Of which grant.
    pub approval: ApprovalId,
    /// In which run.
    pub run_id: Option<RunId>,
    /// Who broke the glass, and so can't be the one who reviews.
    pub person: String,
    /// Why they did.
    pub reason: String,
    /// When it is due.
    pub review_by: Timestamp,
    /// It was not done by then: the person can't break the glass again until it is.
    pub overdue: bool,
}

impl Access {
    /// Whoever holds this key, if it is known, not revoked and not expired.
    pub fn authenticate(&self, key: &PresentedKey, now: Timestamp) -> Option<Principal> {
        let state = self.keys.get(&key.id)?;
        let differing = state.secret.0.iter().zip(key.hash.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        let valid = differing == 0 && !state.revoked && state.created.expires_at.is_none_or(|at| now < at);
        valid.then(|| {
            let created = state.created.clone();
            Principal {
                key: created.key,
                actor: Actor { id: created.actor, kind: created.kind },
                person: created.person,
                roles: created.roles,
                groups: created.groups,
                allow_observe: created.allow_observe,
            }
        })
    }

    /// Nobody can get in yet.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Is that id taken?
    pub fn contains(&self, key: &KeyId) -> bool {
        self.keys.contains_key(key)
    }

    /// Folds one record of the stream. `run` is the record's run.
    pub fn evolve(&mut self, _meta: &Meta, run: Option<&RunId>, event: &Event) {
        match event {
            Event::Access(event) => self.evolve_access(event),
            Event::Approval(event) => self.evolve_review(run, event),
            Event::System(_)
            | Event::Config(_)
            | Event::Halt(_)
            | Event::Run(_)
            | Event::Step(_)
            | Event::Rollback(_)
            | Event::Undo(_) => {}
        }
    }

    fn evolve_access(&mut self, event: &AccessEvent) {
        match event {
            AccessEvent::KeyCreated(body, private) => {
                let state = KeyState { created: body.clone(), secret: private.secret, revoked: false };
                self.by_person.entry(state.person().to_owned()).or_default().push(body.key.clone());
                self.keys.insert(body.key.clone(), state);
            }
            AccessEvent::KeyRevoked(body, ()) => {
                if let Some(state) = self.keys.get_mut(&body.key) {
                    state.revoked = true;
                }
            }
            AccessEvent::GroupSet(body, ()) => {
                self.groups.insert(body.group.clone(), body.members.iter().cloned().collect());
            }
            AccessEvent::GroupDeleted(body, ()) => drop(self.groups.remove(&body.group)),
            AccessEvent::Delegated(body, ()) => drop(self.delegations.insert(body.delegation.clone(), body.clone())),
            AccessEvent::DelegationEnded(body, ()) => drop(self.delegations.remove(&body.delegation)),
        }
    }

    fn evolve_review(&mut self, run: Option<&RunId>, event: &ApprovalEvent) {
        match event {
            ApprovalEvent::GlassBroken(body, ()) => {
                let review = OwedReview {
                    approval: body.approval.clone(),
                    run_id: run.cloned(),
                    person: body.person.clone(),
                    reason: body.reason.clone(),
                    review_by: body.review_by,
                    overdue: false,
                };
                self.reviews.insert(body.approval.clone(), review);
            }
            ApprovalEvent::Reviewed(body, ()) => drop(self.reviews.remove(&body.approval)),
            ApprovalEvent::ReviewOverdue(body, ()) => {
                if let Some(review) = self.reviews.get_mut(&body.approval) {
                    review.overdue = true;
                }
            }
            ApprovalEvent::Requested(..)
            | ApprovalEvent::PreApproved(..)
            | ApprovalEvent::Voted(..)
            | ApprovalEvent::Granted(..)
            | ApprovalEvent::Denied(..)
            | ApprovalEvent::Withdrawn(..)
            | ApprovalEvent::Escalated(..)
            | ApprovalEvent::Expired(..)
            | ApprovalEvent::Revoked(..)
            | ApprovalEvent::Cancelled(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::v1::KeyCreatedPrivate;

    fn minted() -> MintedKey {
        mint(&"k0123456789ab".parse().unwrap(), &[7; 64]).unwrap()
    }

    fn access(key: &MintedKey, expires_at: Option<Timestamp>) -> Access {
        let body = KeyCreated {
            actor: "bot-1".parse().unwrap(),
            allow_observe: false,
            expires_at,
            groups: vec![],
            key: key.presented.id().clone(),
            kind: crate::ids::ActorKind::Agent,
            person: None,
            roles: vec![Role::Operator],
        };
        let event = AccessEvent::KeyCreated(body, KeyCreatedPrivate { secret: key.presented.hash() });
        let meta = Meta { seq: 1, ts: Timestamp::default(), leaf: Hash::default(), actor: crate::ids::Actor::system() };
        let mut access = Access::default();
        access.evolve(&meta, None, &event.into());
        access
    }

    #[test]
    fn a_minted_key_lets_in_and_another_does_not() {
        let key = minted();
        let access = access(&key, None);
        let principal = access.authenticate(&key.presented, Timestamp::default()).unwrap();
        assert!(principal.has(Role::Auditor) && principal.has(Role::Operator) && !principal.has(Role::Admin));
        let other = mint(key.presented.id(), &[8; 64]).unwrap();
        assert_eq!(access.authenticate(&other.presented, Timestamp::default()), None);
    }

    #[test]
    fn an_expired_key_does_not() {
        let key = minted();
        let access = access(&key, Some(Timestamp::from_micros(10)));
        assert!(access.authenticate(&key.presented, Timestamp::from_micros(9)).is_some());
        assert!(access.authenticate(&key.presented, Timestamp::from_micros(10)).is_none());
    }

    #[test]
    fn a_typing_error_is_seen_by_the_checksum() {
        let text = minted().text;
        assert!(PresentedKey::parse(&text).is_some());
        assert!(PresentedKey::parse(&text.replace('7', "8")).is_none());
        assert!(PresentedKey::parse(&text[..text.len() - 1]).is_none());
        assert!(PresentedKey::parse("rvk_x_y").is_none());
    }
}
