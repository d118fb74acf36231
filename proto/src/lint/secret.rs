//! L103: literals that look like secrets. A manifest is copied into repositories, journals and reviews, and names what a
//! call needs instead of holding it. Must not put the literal into a finding.
use serde_json::Value;

use super::finding::{Code, Found};
use super::pattern::secret_kind;
use crate::manifest::{Approval, Manifest, Segment, ValuePath, index_path, key_path};

/// Looks at every text that people write into a manifest; names of tools and paths have forms of their own, and
/// `schema_hash` is one.
pub(super) fn check(manifest: &Manifest, found: &mut Found) {
    let mut texts = Texts { manifest, found };
    texts.described();
    texts.approved();
    texts.undone();
    if let Some(idempotency) = &manifest.idempotency {
        idempotency.key.literals().for_each(|text| texts.text("idempotency.key", text, None));
    }
}

struct Texts<'a, 'f> {
    manifest: &'a Manifest,
    found: &'f mut Found,
}

impl Texts<'_, '_> {
    fn text(&mut self, field: &str, text: &str, name: Option<&str>) {
        let Some(kind) = secret_kind(text, name) else { return };
        let message = format!("{field} holds what looks like {kind}: manifests are kept and read in many places");
        let fix = "take it out, and replace the secret if it is a real one: who has seen the file has seen it";
        self.found.add(self.manifest, Code::L103, field, message, fix);
    }

    fn described(&mut self) {
        let manifest = self.manifest;
        let risk = &manifest.risk;
        for (field, text) in [
            ("description", &manifest.description),
            ("owner", &manifest.owner),
            ("oncall", &manifest.oncall),
            ("risk.data_class", &risk.data_class),
            ("risk.environment", &risk.environment),
        ] {
            if let Some(text) = text {
                self.text(field, text, None);
            }
        }
        self.text("permission", &manifest.permission, None);
    }

    fn approved(&mut self) {
        let Approval::Always(rules) = &self.manifest.approval else { return };
        for (field, texts) in [("approval.roles", &rules.roles), ("approval.escalate_to", &rules.escalate_to)] {
            for (index, text) in texts.iter().enumerate() {
                self.text(&index_path(field, index), text, None);
            }
        }
    }

    fn undone(&mut self) {
        let Some(compensation) = &self.manifest.compensation else { return };
        for (index, text) in compensation.residue.iter().enumerate() {
            self.text(&index_path("compensation.residue", index), text, None);
        }
        let Some(verification) = &compensation.verification else { return };
        for (path, value) in verification.expect.iter() {
            let field = key_path("compensation.verification.expect", &path.to_string());
            self.value(&field, value, last_name(path));
        }
    }

    /// One finding for an expected value, wherever in it the secret is.
    fn value(&mut self, field: &str, value: &Value, name: Option<&str>) {
        if let Some((text, name)) = first_secret(value, name) {
            self.text(field, text, name);
        }
    }
}

/// The field that a path leads to; an index is in the list of a field.
fn last_name(path: &ValuePath) -> Option<&str> {
    path.segments().iter().rev().find(|segment| segment.index().is_none()).map(Segment::as_str)
}

/// Values are as deep as a file may be, which is not deep.
fn first_secret<'v>(value: &'v Value, name: Option<&'v str>) -> Option<(&'v str, Option<&'v str>)> {
    match value {
        Value::String(text) => secret_kind(text, name).map(|_| (text.as_str(), name)),
        Value::Array(items) => items.iter().find_map(|item| first_secret(item, name)),
        Value::Object(map) => map.iter().find_map(|(key, value)| first_secret(value, Some(key))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}
