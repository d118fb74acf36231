//! Every id of the product: one newtype each, printed with its prefix. Ids are values: nothing here mints one.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hash::{hex, unhex};

/// Position of a record in the ledger, dense from 0.
pub type Seq = u64;

/// Number of a step in its run, dense from 1.
pub type StepNo = u32;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind}: {got:?} (allowed: {allowed})")]
pub struct IdError {
    /// Which id was expected.
    pub kind: &'static str,
    /// What stood there (at most 80 characters of it).
    pub got: String,
    /// The rule in words.
    pub allowed: &'static str,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $allowed:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdError { kind: $kind, got: text.chars().take(80).collect(), allowed: $allowed })
                }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.0)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

fn word(text: &str, extra: &[u8], longest: usize) -> bool {
    (1..=longest).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || extra.contains(&byte))
}

/// `prefix` followed by a UUID's 32 hex digits.
fn minted(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| unhex::<16>(rest).is_ok())
}

text_id!(
    /// A run: chosen by the caller or minted as `run_` and a time-ordered UUID in hex.
    RunId, "run id", "1 to 128 of A-Z a-z 0-9 _ . : -", |text| word(text, b"_.:-", 128)
);
text_id!(
    /// A tool's name. Valid names can be hostile as file names (`..`, `a/../b`): never use one raw as a path.
    ToolName, "tool name", "1 to 128 of A-Z a-z 0-9 _ . : / -", |text| word(text, b"_.:/-", 128)
);
text_id!(
    /// An approval request, `apr_` and 32 hex digits.
    ApprovalId, "approval id", "apr_ and 32 hex digits", |text| minted(text, "apr_")
);
text_id!(
    /// A rollback of a run, `rbk_` and 32 hex digits.
    RollbackId, "rollback id", "rbk_ and 32 hex digits", |text| minted(text, "rbk_")
);
text_id!(
    /// A delegation of votes, `dlg_` and 32 hex digits.
    DelegationId, "delegation id", "dlg_ and 32 hex digits", |text| minted(text, "dlg_")
);
text_id!(
    /// Who acts: the name that a key was created for.
    ActorId, "actor", "1 to 128 of A-Z a-z 0-9 _ . : @ -", |text| word(text, b"_.:@-", 128)
);
text_id!(
    /// An access key's public half, the middle part of `rvk_<id>_<secret>`.
    KeyId, "key id", "12 to 32 of a-z 0-9", |text| text.len() >= 12 && word(text, b"", 32)
);

/// 128 random bits that name a ledger; in every record, so that a splice from another ledger dies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerId(pub [u8; 16]);

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}
impl fmt::Debug for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerId({self})")
    }
}
impl FromStr for LedgerId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        unhex(text).map(Self).map_err(|e| IdError {
            kind: "ledger id",
            got: e.got,
            allowed: "32 lower-case hex digits",
        })
    }
}

/// Who made a record happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actor {
    /// The key's actor, or `reversi` for the daemon itself.
    pub id: ActorId,
    /// What kind of actor that is.
    pub kind: ActorKind,
}

/// The three kinds of actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// An AI agent's key.
    Agent,
    /// A person's key.
    Human,
    /// The daemon.
    System,
}

impl Actor {
    /// The daemon itself.
    pub fn system() -> Self {
        Self { id: ActorId("reversi".to_owned()), kind: ActorKind::System }
    }
}

/// What a version is counted for. Printed as `run/<run>`, `undo/<run>/<step>`, `approval/<id>`, `claim/<hex>`,
/// `halt`, `config`, `access`; a run id holds no `/`, so the text is unambiguous.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamId {
    /// One run; every record of the run advances it.
    Run(RunId),
    /// The undo of one step.
    Undo(RunId, StepNo),
    /// One approval request.
    Approval(ApprovalId),
    /// One claimed idempotency key, as an HMAC under a ledger key.
    Claim([u8; 32]),
    /// The kill switch.
    Halt,
    /// Manifests and policy.
    Config,
    /// Keys, people, roles, groups.
    Access,
    /// The ledger's own life: opened, started, stopped, clock.
    Ledger,
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => write!(f, "run/{run}"),
            Self::Undo(run, step) => write!(f, "undo/{run}/{step}"),
            Self::Approval(id) => write!(f, "approval/{id}"),
            Self::Claim(mac) => write!(f, "claim/{}", hex(mac)),
            Self::Halt => f.write_str("halt"),
            Self::Config => f.write_str("config"),
            Self::Access => f.write_str("access"),
            Self::Ledger => f.write_str("ledger"),
        }
    }
}

impl FromStr for StreamId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError {
            kind: "stream id",
            got: text.chars().take(80).collect(),
            allowed: "run/<run>, undo/<run>/<step>, approval/<id>, claim/<hex>, halt, config, access, ledger",
        };
        let stream = match text.split_once('/') {
            None => match text {
                "halt" => Self::Halt,
                "config" => Self::Config,
                "access" => Self::Access,
                "ledger" => Self::Ledger,
                _ => return Err(wrong()),
            },
            Some(("run", run)) => Self::Run(run.parse()?),
            Some(("undo", rest)) => {
                let (run, step) = rest.split_once('/').ok_or_else(wrong)?;
                Self::Undo(run.parse()?, step.parse().map_err(|_| wrong())?)
            }
            Some(("approval", id)) => Self::Approval(id.parse()?),
            Some(("claim", mac)) => Self::Claim(unhex(mac).map_err(|_| wrong())?),
            Some(_) => return Err(wrong()),
        };
        Ok(stream)
    }
}

macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
text_serde!(LedgerId);
text_serde!(StreamId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_print_and_parse() {
        let run: RunId = "support:4821".parse().unwrap();
        for stream in [
            StreamId::Run(run.clone()),
            StreamId::Undo(run, 7),
            StreamId::Approval("apr_000102030405060708090a0b0c0d0e0f".parse().unwrap()),
            StreamId::Claim([9; 32]),
            StreamId::Halt,
            StreamId::Config,
            StreamId::Access,
            StreamId::Ledger,
        ] {
            assert_eq!(stream.to_string().parse(), Ok(stream));
        }
        assert!("undo/r".parse::<StreamId>().is_err());
        assert!("elsewhere/r".parse::<StreamId>().is_err());
    }

    #[test]
    fn ids_refuse_what_they_must() {
        assert!("a b".parse::<RunId>().is_err());
        assert!("a/b".parse::<RunId>().is_err());
        assert!("x".repeat(129).parse::<RunId>().is_err());
        assert!("".parse::<ToolName>().is_err());
        assert!("é".parse::<ToolName>().is_err());
        assert!("a/../b:c.d-e".parse::<ToolName>().is_ok());
        assert!("apr_1".parse::<ApprovalId>().is_err());
    }
}
