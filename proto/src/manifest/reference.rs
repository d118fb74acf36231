//! References: `$args.order_id`, `$result.items.0.id`. Pure text and lookup; knows no step.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::diagnostic::quoted;
use super::path::{PathError, ValuePath};

/// Where a reference starts. A closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// The arguments of the original call.
    Args,
    /// What the original call returned.
    Result,
}

impl Root {
    /// Every root.
    pub const ALL: [Self; 2] = [Self::Args, Self::Result];

    /// The root as it is written after the `$`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Args => "args",
            Self::Result => "result",
        }
    }
}

/// A root and a path below it; a root alone is no reference, because an undo must name what it needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Where it starts.
    pub root: Root,
    /// The path below the root.
    pub path: ValuePath,
}

/// Why a text is no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// It does not start with `$`: a literal value, perhaps. It is not repeated, because it may be a secret, and errors
    /// end up in logs.
    #[error("must be a reference, got other text")]
    NotAReference,
    /// A root that there isn't.
    #[error("must start with $args or $result, got {got}")]
    UnknownRoot {
        /// The text, quoted and cut.
        got: String,
    },
    /// A root alone.
    #[error("must name a part of ${root}, got all of it")]
    NoPath {
        /// The root.
        root: &'static str,
    },
    /// What follows the root is no path.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Reference {
    /// The value that is meant. A path that is there with the value null gives null; one that is not there gives
    /// `None`, and is never sent as null.
    pub fn resolve<'v>(&self, args: &'v Value, result: &'v Value) -> Option<&'v Value> {
        let root = match self.root {
            Root::Args => args,
            Root::Result => result,
        };
        self.path.resolve(root)
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;
    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let rest = text.strip_prefix('$').ok_or(ReferenceError::NotAReference)?;
        let (word, path) = rest.split_once('.').map_or((rest, None), |(word, path)| (word, Some(path)));
        let root = Root::ALL.into_iter().find(|root| root.as_str() == word);
        let root = root.ok_or_else(|| ReferenceError::UnknownRoot { got: quoted(text) })?;
        let path = path.ok_or(ReferenceError::NoPath { root: root.as_str() })?.parse()?;
        Ok(Self { root, path })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}.{}", self.root.as_str(), self.path)
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resolves_against_its_own_root() {
        let (args, result) = (json!({"id": 1, "a": {"b": [{"c": null}]}}), json!({"id": "ch_1"}));
        let at = |text: &str| text.parse::<Reference>().unwrap().resolve(&args, &result).cloned();
        assert_eq!(at("$args.id"), Some(json!(1)));
        assert_eq!(at("$result.id"), Some(json!("ch_1")));
        assert_eq!(at("$args.a.b.0.c"), Some(json!(null)));
        assert_eq!(at("$result.a"), None);
    }

    // E6 E11
    #[test]
    fn refuses_everything_else() {
        for text in ["$args.a.b.0.c", "$result.id"] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
        for text in
            ["", "$", "$args", "$result", "$args.", "$result..id", "args.id", "$ctx.x", "$Args.id", "$argsid.x", "usd"]
        {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
        assert_eq!("$result".parse::<Reference>(), Err(ReferenceError::NoPath { root: "result" }));
    }
}
