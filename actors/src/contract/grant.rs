//! The one place where approvals are taken out of a case's way. What a case tests is the manifest, not the patience of
//! its approvers, so a harness says yes for them, unless the case expects a refusal.
//!
//! Until a grant lifts the refusal of a begin, this stands in for votes: the manifests are loaded as if they asked for no
//! approval. An irreversible tool always asks for one; its call is let through in observe mode, and what else speaks
//! against it is read from its step. With votes, `manifests` and `mode` go, and `grant` says yes to the request that the
//! begin opened, in the names of as many invented people with the listed roles as the quorum asks, and begins again.
use std::sync::Arc;

use reversi_proto::canonical::Canonical;
use reversi_proto::contract::Case;
use reversi_proto::event::v1::{Finding, Mode};
use reversi_proto::ids::StepNo;
use reversi_proto::manifest::{Effect, Manifest, ManifestSet};
use serde_json::Value;

use super::play::{PlayError, Table};

/// The code of the finding that only people can lift.
const NEEDS_APPROVAL: &str = "approval.required";

impl Table {
    /// What still speaks against a call that was let through, once people have said yes to it.
    pub(super) async fn grant(&self, step: StepNo) -> Result<Vec<Finding>, PlayError> {
        if self.mode == Mode::Enforce {
            return Ok(Vec::new());
        }
        let state = self.service.run(&self.agent, &self.run).await?;
        let findings = state.step_views.into_iter().find(|view| view.step == step).map(|view| view.findings);
        Ok(findings.unwrap_or_default().into_iter().filter(|finding| finding.code != NEEDS_APPROVAL).collect())
    }
}

/// Observe where the manifest can't be freed of its approval.
pub(super) fn mode(manifests: &[&Arc<Manifest>], case: &Case) -> Mode {
    let tested = manifests.iter().find(|manifest| manifest.tool == case.tool);
    match tested.map(|manifest| manifest.effect) {
        Some(Effect::Irreversible) if case.expect.blocked.is_none() => Mode::Observe,
        Some(
            Effect::Irreversible | Effect::ReadOnly | Effect::Idempotent | Effect::Reversible | Effect::Compensable,
        )
        | None => Mode::Enforce,
    }
}

/// The manifests without their approvals. The tested tool keeps its own where the case expects a refusal.
pub(super) fn manifests(manifests: &[&Arc<Manifest>], case: &Case) -> ManifestSet {
    let lift = |manifest: &Arc<Manifest>| {
        let tested = manifest.tool == case.tool;
        let kept = tested && (case.expect.blocked.is_some() || manifest.effect == Effect::Irreversible);
        if kept { Manifest::clone(manifest) } else { lifted(manifest).unwrap_or_else(|| Manifest::clone(manifest)) }
    };
    ManifestSet::restore(manifests.iter().copied().map(lift).collect())
}

/// The same manifest asking nobody. Of an irreversible one that only comes before, the effect does not matter.
fn lifted(manifest: &Manifest) -> Option<Manifest> {
    let Value::Object(mut fields) = manifest.canonical().value() else { return None };
    fields.remove("approval_rules");
    fields.insert("approval".to_owned(), "never".into());
    if manifest.effect == Effect::Irreversible {
        fields.insert("effect".to_owned(), Effect::Idempotent.as_str().into());
    }
    if let Some(Value::Object(compensation)) = fields.get_mut("compensation") {
        compensation.insert("requires_approval".to_owned(), false.into());
    }
    Manifest::from_canonical(&Canonical::of(&fields).ok()?).ok()
}
