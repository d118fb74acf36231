//! The values that an undo needs: picked out when the tool returns, put together when the undo is called. Pure lookup.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::model::Manifest;
use super::reference::{Reference, Root};

/// What was found when the tool returned. Only this is kept of the arguments and the result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Captured {
    /// Reference, as its text, to value. A path that was there with the value null is here as null.
    pub values: BTreeMap<String, Value>,
    /// The references that lead nowhere, in order. Not empty: the step is unrecoverable.
    pub missing: Vec<String>,
}

/// References whose values were not captured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot build the arguments: no value was kept for {}", references.join(", "))]
pub struct Missing {
    /// As text, in order.
    pub references: Vec<String>,
}

impl Manifest {
    /// Everything that `argument_map` and `verification.arguments` name.
    pub fn undo_references(&self) -> BTreeSet<&Reference> {
        let Some(compensation) = &self.compensation else { return BTreeSet::new() };
        let verification = compensation.verification.iter().flat_map(|verification| verification.arguments.values());
        compensation.argument_map.values().chain(verification).collect()
    }
}

/// Picks the values out of a call. Without a result nothing of it resolves.
pub fn undo_values(manifest: &Manifest, args: &Value, result: Option<&Value>) -> Captured {
    let mut captured = Captured::default();
    for reference in manifest.undo_references() {
        let root = match reference.root {
            Root::Args => Some(args),
            Root::Result => result,
        };
        match root.and_then(|root| reference.path.resolve(root)) {
            Some(value) => {
                captured.values.insert(reference.to_string(), value.clone());
            }
            None => captured.missing.push(reference.to_string()),
        }
    }
    captured
}

/// The arguments of the undo, or of its read-back, from captured values. A missing one is never sent as null.
pub fn build_arguments(
    arguments: &BTreeMap<String, Reference>,
    captured: &BTreeMap<String, Value>,
) -> Result<Map<String, Value>, Missing> {
    let mut built = Map::new();
    let mut missing = BTreeSet::new();
    for (name, reference) in arguments {
        let text = reference.to_string();
        match captured.get(&text) {
            Some(value) => {
                built.insert(name.clone(), value.clone());
            }
            None => {
                missing.insert(text);
            }
        }
    }
    if missing.is_empty() { Ok(built) } else { Err(Missing { references: missing.into_iter().collect() }) }
}
