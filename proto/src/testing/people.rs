//! The persons of the stories. Must not know what they are asked.
use super::{at, hash, id};
use crate::access::{Access, Principal};
use crate::event::v1::{KeyCreated, KeyCreatedPrivate, Role};
use crate::event::{AccessEvent, Meta};
use crate::ids::{Actor, ActorKind, KeyId};

/// The person behind the agent of the stories.
pub const OWNER: &str = "owner";

/// Name, roles, groups. Two of finance, one cfo, and one who may only approve; one who may break the glass.
const PEOPLE: [(&str, &[Role], &[&str]); 8] = [
    ("fred", &[Role::Approver], &["finance"]),
    ("fiona", &[Role::Approver], &["finance"]),
    ("carl", &[Role::Approver], &["cfo"]),
    ("anna", &[Role::Approver, Role::Auditor], &[]),
    ("olga", &[Role::Operator], &[]),
    ("greta", &[Role::Breakglass], &[]),
    ("ada", &[Role::Admin], &[]),
    (OWNER, &[Role::Approver], &["finance"]),
];

/// The key of a person.
pub fn key_id(person: &str) -> KeyId {
    id(&format!("k{:0<12}", person.to_lowercase()))
}

/// Everybody's keys.
pub fn people() -> Access {
    let mut access = Access::default();
    for (person, roles, groups) in PEOPLE {
        let body = KeyCreated {
            actor: id(person),
            allow_observe: false,
            expires_at: None,
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            key: key_id(person),
            kind: ActorKind::Human,
            person: Some(person.to_owned()),
            roles: roles.to_vec(),
        };
        let meta = Meta { seq: 0, ts: at(0), leaf: hash(1), actor: Actor::system() };
        access.evolve(&meta, None, &AccessEvent::KeyCreated(body, KeyCreatedPrivate { secret: hash(2) }).into());
    }
    access
}

/// What a person shows at the door.
pub fn principal(person: &str) -> Principal {
    let (_, roles, groups) = PEOPLE.iter().find(|(name, ..)| *name == person).expect("one of the stories' persons");
    Principal {
        key: key_id(person),
        actor: Actor { id: id(person), kind: ActorKind::Human },
        person: Some(person.to_owned()),
        roles: roles.to_vec(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        allow_observe: false,
    }
}
