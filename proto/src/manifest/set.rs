//! All manifests together: what a single one cannot know, whether the tools that it names exist.
use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::diagnostic::{Code, Diagnostic, Pos, Report, quoted};
use super::model::{Effect, Manifest};
use super::walk::key_path;
use crate::hash::Hash;
use crate::ids::ToolName;

/// Manifests that fit together: every tool that one of them names has a manifest here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManifestSet {
    by_tool: BTreeMap<ToolName, Arc<Manifest>>,
}

impl ManifestSet {
    /// Checks the manifests of all sources together; `source` names a file in the findings.
    pub fn new(manifests: Vec<(String, Manifest)>) -> Result<Self, Vec<Diagnostic>> {
        let mut report = Report::new("");
        let mut by_tool: BTreeMap<ToolName, (String, Arc<Manifest>)> = BTreeMap::new();
        for (source, manifest) in manifests {
            report.set_source(&source);
            if let Some((first, other)) = by_tool.get(&manifest.tool) {
                duplicate(&manifest, first, other.places().tool, &mut report);
            } else {
                by_tool.insert(manifest.tool.clone(), (source, Arc::new(manifest)));
            }
        }
        for (source, manifest) in by_tool.values() {
            report.set_source(source);
            Links { manifest, by_tool: &by_tool, report: &mut report }.check();
        }
        report.finish()?;
        Ok(Self { by_tool: by_tool.into_iter().map(|(tool, (_, manifest))| (tool, manifest)).collect() })
    }

    /// A set that was in force once, from the journal: it followed the rules of its day, so they are not asked again.
    pub fn restore(manifests: Vec<Manifest>) -> Self {
        Self { by_tool: manifests.into_iter().map(|manifest| (manifest.tool.clone(), Arc::new(manifest))).collect() }
    }

    /// The manifest of a tool.
    pub fn get(&self, tool: &ToolName) -> Option<&Arc<Manifest>> {
        self.by_tool.get(tool)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.by_tool.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.by_tool.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_tool.is_empty()
    }

    /// SHA-256 of the canonical list of `[tool, version, checksum]`, in the order of the names.
    pub fn checksum(&self) -> Hash {
        // Written by hand: names and checksums hold no character that JSON escapes, versions are whole numbers.
        let rows: Vec<String> =
            self.iter().map(|m| format!("[\"{}\",{},\"{}\"]", m.tool, m.version, m.checksum())).collect();
        Hash(Sha256::digest(format!("[{}]", rows.join(","))).into())
    }
}

fn duplicate(manifest: &Manifest, first: &str, first_at: Pos, report: &mut Report) {
    let places = manifest.places();
    let place = if first_at.line > 0 { format!("{first}:{}", first_at.line) } else { first.to_owned() };
    let message = format!("the tool {} has two manifests, the other in {place}", quoted(manifest.tool.as_str()));
    let path = key_path(&places.path, "tool");
    report.add_hint(places.tool, &path, Code::DuplicateTool, message, "keep one of them");
}

/// The check of one manifest's links to others.
struct Links<'a> {
    manifest: &'a Manifest,
    by_tool: &'a BTreeMap<ToolName, (String, Arc<Manifest>)>,
    report: &'a mut Report,
}

impl Links<'_> {
    fn check(&mut self) {
        let manifest = self.manifest;
        let places = manifest.places();
        if let Some(compensation) = &manifest.compensation {
            self.exists("compensation.tool", places.compensation_tool, &compensation.tool);
            if let Some(verification) = &compensation.verification {
                self.reads_only("compensation.verification.tool", places.verification_tool, &verification.tool);
            }
        }
        for (index, tool) in manifest.requires.iter().enumerate() {
            let pos = places.requires.get(index).copied().unwrap_or_default();
            self.exists(&format!("requires[{index}]"), pos, tool);
        }
        if let Some(tool) = &manifest.replaced_by {
            self.exists("replaced_by", places.replaced_by, tool);
        }
    }

    fn path(&self, field: &str) -> String {
        let path = &self.manifest.places().path;
        if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
    }

    fn exists(&mut self, field: &str, pos: Pos, tool: &ToolName) -> Option<Effect> {
        if let Some((_, found)) = self.by_tool.get(tool) {
            return Some(found.effect);
        }
        let message = format!("the tool {} has no manifest", quoted(tool.as_str()));
        let known = self.by_tool.keys().map(ToolName::as_str);
        let path = self.path(field);
        self.report.add_near(pos, &path, Code::UnknownTool, message, tool.as_str(), known);
        None
    }

    fn reads_only(&mut self, field: &str, pos: Pos, tool: &ToolName) {
        match self.exists(field, pos, tool) {
            None | Some(Effect::ReadOnly) => {}
            Some(effect @ (Effect::Idempotent | Effect::Reversible | Effect::Compensable | Effect::Irreversible)) => {
                let message = format!("the verification tool must be read_only, {} is {effect}", quoted(tool.as_str()));
                let path = self.path(field);
                self.report.add(pos, &path, Code::VerificationNotReadOnly, message);
            }
        }
    }
}
