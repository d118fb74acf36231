//! The rules that one manifest can break by itself. Must not know other manifests or an upstream.
use super::finding::{Code, Found};
use crate::manifest::{
    Approval, Compensation, CompensationKind, Effect, EvidenceExport, Manifest, Reference, Status, index_path, key_path,
};

pub(super) fn check(manifest: &Manifest, found: &mut Found) {
    if manifest.effect.is_mutating() {
        mutating(manifest, found);
    }
    if manifest.effect == Effect::Irreversible {
        irreversible(manifest, found);
    }
    if let Some(compensation) = &manifest.compensation {
        undo(manifest, compensation, found);
        promises(manifest, compensation, found);
    }
    match manifest.status {
        Status::Draft => {
            let message = "the manifest is a draft: every call is blocked, and a registry does not load it";
            found.add(manifest, Code::L024, "status", message, "review it and set `status: approved`");
        }
        Status::Approved | Status::Deprecated => {}
    }
    redaction(manifest, found);
}

fn mutating(manifest: &Manifest, found: &mut Found) {
    if manifest.description.is_none() {
        let message = "mutating tool has no description: reviewers cannot tell what it changes";
        found.add(manifest, Code::L010, "", message, "say in `description` what the tool changes");
    }
    if manifest.owner.is_none() {
        let message = "mutating tool has no owner: nobody is named to ask when it misbehaves";
        found.add(manifest, Code::L011, "", message, "name who answers for it in `owner`");
    }
    if manifest.risk.data_class.is_none() {
        let message = "no risk.data_class: policy and retention cannot treat sensitive data differently";
        let fix = "set `risk.data_class`, such as pii, financial or internal";
        found.add(manifest, Code::L012, "risk.data_class", message, fix);
    }
    if manifest.timeout_ms.is_none() {
        let message = "no timeout_ms: a hung call is only bounded by the gateway default";
        found.add(manifest, Code::L022, "", message, "set `timeout_ms` to the longest that a call may take, like 30s");
    }
}

fn irreversible(manifest: &Manifest, found: &mut Found) {
    // Who is asked after a timeout is no approver: a request without roles is answered by anybody before that.
    let approvers = match &manifest.approval {
        Approval::Never => false,
        Approval::Always(rules) => !rules.roles.is_empty(),
    };
    if manifest.risk.blast_radius.is_none() && !approvers {
        let message = "irreversible with no risk.blast_radius and no approvers: anybody may approve what cannot be \
                       undone, without knowing how far it reaches";
        let fix = "set `risk.blast_radius`, or say in `approval.roles` who may approve";
        found.add(manifest, Code::L015, "risk.blast_radius", message, fix);
    }
    if manifest.audit.evidence_export != Some(EvidenceExport::Required) {
        let message = "irreversible without audit.evidence_export: required: nobody has to keep the proof of what \
                       cannot be undone";
        found.add(manifest, Code::L021, "audit.evidence_export", message, "set `audit.evidence_export: required`");
    }
}

fn undo(manifest: &Manifest, compensation: &Compensation, found: &mut Found) {
    if compensation.verification.is_none() {
        let message = "the undo is not verified: one that answers ok and does nothing counts as done";
        let fix = "add a `compensation.verification` that reads back with a read_only tool";
        found.add(manifest, Code::L016, "compensation", message, fix);
    }
    if compensation.argument_map.is_empty() {
        let message = "the compensation takes no arguments from the call: it cannot know what to undo";
        let fix = "name what the undo needs in `compensation.argument_map`, such as `id: $result.id`";
        found.add(manifest, Code::L032, "compensation.argument_map", message, fix);
    }
}

/// Whether the effect, the kind of the undo and its residue say the same.
fn promises(manifest: &Manifest, compensation: &Compensation, found: &mut Found) {
    let Compensation { kind, residue, .. } = compensation;
    match (manifest.effect, kind, residue.is_empty()) {
        (Effect::Compensable, CompensationKind::Compensation, true) => {
            let message = "compensable but no residue declared: a reviewer of a rollback cannot see what it leaves \
                           behind";
            let fix = "list in `compensation.residue` what the undo cannot take back; if that is nothing, the tool is \
                       reversible";
            found.add(manifest, Code::L013, "compensation.residue", message, fix);
        }
        (Effect::Reversible, CompensationKind::Compensation | CompensationKind::Inverse, false) => {
            let message = "declared reversible but the compensation lists residue: what leaves residue has no true \
                           inverse";
            found.add(manifest, Code::L030, "compensation.residue", message, "set `effect: compensable`");
        }
        (Effect::Compensable, CompensationKind::Inverse, _) => {
            let message = "declared compensable but the compensation is an exact inverse: plans warn of residue that \
                           there is not";
            let fix = "set `effect: reversible`, or `kind: compensation` and its residue";
            found.add(manifest, Code::L031, "compensation.kind", message, fix);
        }
        (Effect::Compensable, CompensationKind::Compensation, false)
        | (Effect::Reversible, CompensationKind::Compensation | CompensationKind::Inverse, true)
        // The validator lets no other effect have a compensation.
        | (Effect::ReadOnly | Effect::Idempotent | Effect::Irreversible, _, _) => {}
    }
}

/// What is hidden from people is kept nevertheless, if the undo needs it.
fn redaction(manifest: &Manifest, found: &mut Found) {
    let Some(compensation) = &manifest.compensation else { return };
    for (index, hidden) in manifest.audit.redaction.iter().enumerate() {
        let needed = needs(compensation).find(|(_, reference)| overlap(hidden, reference));
        let Some((place, reference)) = needed else { continue };
        let message = format!(
            "audit.redaction hides {hidden}, but {place} needs {reference}: the value is kept for the undo all the same"
        );
        let fix = "let the undo work with something that need not be hidden, such as an id from the result, or remove \
                   the redaction";
        found.add(manifest, Code::L101, &index_path("audit.redaction", index), message, fix);
    }
}

/// Every reference that the undo resolves, with the field that it stands in.
pub(super) fn needs(compensation: &Compensation) -> impl Iterator<Item = (String, &Reference)> {
    let map = std::iter::repeat("compensation.argument_map").zip(&compensation.argument_map);
    let verification = compensation.verification.iter().flat_map(|verification| &verification.arguments);
    let verification = std::iter::repeat("compensation.verification.arguments").zip(verification);
    map.chain(verification).map(|(field, (name, reference))| (key_path(field, name), reference))
}

/// Whether one value is the other or a part of it.
fn overlap(a: &Reference, b: &Reference) -> bool {
    a.root == b.root && a.path.segments().iter().zip(b.path.segments()).all(|(a, b)| a == b)
}
