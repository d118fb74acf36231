//! The calls that undo a step, built from what was captured when it ran. Must not make them.
use std::collections::BTreeMap;

use super::Step;
use crate::canonical::{Canonical, CanonicalError};
use crate::config::Archive;
use crate::ids::ToolName;
use crate::manifest::{Effect, Manifest, Reference};
use crate::undo::{ReadBack, UndoSpec};

/// Longest wait for an upstream where no manifest says otherwise, in milliseconds.
pub const CALL_TIMEOUT_MS: u64 = 60_000;

/// Why the undo of a step can't be built.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The run has no such step.
    #[error("step {step} does not exist")]
    NoStep {
        /// Which step.
        step: u32,
    },
    /// The manifest that the step pinned is not in the archive.
    #[error("the manifest of {tool} that step {step} pinned is not in the journal")]
    NoManifest {
        /// Which step.
        step: u32,
        /// Which tool.
        tool: ToolName,
    },
    /// A value that the plan counted on is gone, as after an erasure.
    #[error("the value of {reference} that the undo of step {step} needs is gone")]
    Missing {
        /// Which step.
        step: u32,
        /// Which value.
        reference: String,
    },
    /// The arguments have no canonical form.
    #[error("the arguments of the undo of step {step} have no canonical form")]
    Canonical {
        /// Which step.
        step: u32,
        /// Why.
        #[source]
        source: CanonicalError,
    },
}

impl Step {
    /// What to call, as the pinned manifests say. `served` tells whether some upstream serves a tool now.
    pub fn undo_spec(&self, archive: &Archive, served: &dyn Fn(&ToolName) -> bool) -> Result<UndoSpec, SpecError> {
        let missing = |tool: &ToolName| SpecError::NoManifest { step: self.no, tool: tool.clone() };
        let manifest = archive.get(self.config, &self.tool).ok_or_else(|| missing(&self.tool))?;
        let compensation = manifest.compensation.as_ref().ok_or_else(|| missing(&self.tool))?;
        let undo = archive.get(self.config, &compensation.tool).ok_or_else(|| missing(&compensation.tool))?;
        let read_back = match &compensation.verification {
            None => None,
            Some(verification) => {
                let reader = archive.get(self.config, &verification.tool);
                Some(ReadBack {
                    tool: verification.tool.clone(),
                    args: self.arguments(&verification.arguments)?,
                    expect: verification.expect.clone(),
                    retries: verification.retries,
                    backoff_ms: verification.backoff_ms,
                    timeout_ms: reader.and_then(|reader| reader.timeout_ms).unwrap_or(CALL_TIMEOUT_MS),
                    possible: served(&verification.tool),
                })
            }
        };
        Ok(UndoSpec {
            tool: compensation.tool.clone(),
            args: self.arguments(&compensation.argument_map)?,
            idempotent: undo.effect == Effect::Idempotent,
            timeout_ms: compensation.timeout_ms.or(undo.timeout_ms).unwrap_or(CALL_TIMEOUT_MS),
            attempts_max: retry(undo).0,
            base_ms: retry(undo).1,
            max_ms: retry(undo).2,
            read_back,
        })
    }

    /// A missing value is an error, never sent as null.
    fn arguments(&self, map: &BTreeMap<String, Reference>) -> Result<Canonical, SpecError> {
        let mut arguments = serde_json::Map::new();
        for (name, reference) in map {
            let text = reference.to_string();
            let Some(value) = self.values.get(&text) else {
                return Err(SpecError::Missing { step: self.no, reference: text });
            };
            arguments.insert(name.clone(), value.value());
        }
        Canonical::of(&arguments).map_err(|source| SpecError::Canonical { step: self.no, source })
    }
}

/// (attempts, base, max) of the undo tool, the page's defaults where it declares none (checklist B4).
fn retry(undo: &Manifest) -> (u32, u64, u64) {
    undo.retry.as_ref().map_or((3, 200, 5000), |retry| (retry.attempts, retry.base_ms, retry.max_ms))
}
