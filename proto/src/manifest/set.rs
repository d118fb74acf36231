//! All manifests together: what a single one cannot know, whether the tools that it names exist.
use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::diagnostic::{Code, Diagnostic, Pos, Report, quoted};
use super::load::Loaded;
use super::model::{Effect, Manifest, Named, Places};
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
        let mut members = Members::default();
        for (source, manifest) in manifests {
            members.add(&source, manifest, &mut report);
        }
        members.check_links(&mut report);
        report.finish().map(|()| members.into_set())
    }

    /// As [`Self::new`] over files that may have mistakes: those, and what is wrong between the manifests, in the order
    /// of the files and of their texts. A manifest with mistakes counts as there. Where it can't be said which tools
    /// there are (a text that is not YAML, a manifest without a name), no tool is called unknown.
    pub fn of_files(files: Vec<Loaded>) -> Result<Self, Vec<Diagnostic>> {
        let mut report = Report::new("");
        let mut members = Members { incomplete: files.iter().any(|file| file.incomplete), ..Members::default() };
        let (mut order, mut diagnostics) = (BTreeMap::new(), Vec::new());
        for (index, file) in files.into_iter().enumerate() {
            diagnostics.extend(file.diagnostics);
            file.manifests.into_iter().for_each(|manifest| members.add(&file.source, manifest, &mut report));
            file.broken.iter().for_each(|named| members.add_broken(&file.source, named, &mut report));
            order.entry(file.source).or_insert(index);
        }
        members.check_links(&mut report);
        diagnostics.extend(report.finish().err().unwrap_or_default());
        if diagnostics.is_empty() {
            return Ok(members.into_set());
        }
        // What was said of a whole file, and what was not listed, comes after its lines.
        let place = |d: &Diagnostic| (order.get(&d.source).copied(), d.code == Code::TooMany, d.line, d.column);
        diagnostics.sort_by_key(place);
        Err(diagnostics)
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

/// Everything that is known to have a manifest, while the links between them are checked.
#[derive(Default)]
struct Members {
    by_tool: BTreeMap<ToolName, Member>,
    /// There may be more of them.
    incomplete: bool,
}

struct Member {
    source: String,
    pos: Pos,
    /// `None`: it has mistakes.
    manifest: Option<Arc<Manifest>>,
}

impl Members {
    fn add(&mut self, source: &str, manifest: Manifest, report: &mut Report) {
        let Places { path, tool: pos, .. } = manifest.places();
        let named = Named { tool: manifest.tool.clone(), path: key_path(path, "tool"), pos: *pos };
        self.insert(source, &named, Some(Arc::new(manifest)), report);
    }

    fn add_broken(&mut self, source: &str, named: &Named, report: &mut Report) {
        self.insert(source, named, None, report);
    }

    fn insert(&mut self, source: &str, named: &Named, manifest: Option<Arc<Manifest>>, report: &mut Report) {
        let Named { tool, path, pos } = named;
        let Some(first) = self.by_tool.get(tool) else {
            let member = Member { source: source.to_owned(), pos: *pos, manifest };
            self.by_tool.insert(tool.clone(), member);
            return;
        };
        let Member { source: first_source, pos: first_pos, manifest: _ } = first;
        let place =
            if first_pos.line > 0 { format!("{first_source}:{}", first_pos.line) } else { first_source.clone() };
        let message = format!("the tool {} has two manifests, the other in {place}", quoted(tool.as_str()));
        report.set_source(source);
        report.add_hint(*pos, path, Code::DuplicateTool, message, "keep one of them");
    }

    fn check_links(&self, report: &mut Report) {
        for Member { source, pos: _, manifest } in self.by_tool.values() {
            if let Some(manifest) = manifest {
                report.set_source(source);
                Links { manifest, members: self, report }.check();
            }
        }
    }

    fn into_set(self) -> ManifestSet {
        let whole = self.by_tool.into_iter().filter_map(|(tool, member)| Some((tool, member.manifest?)));
        ManifestSet { by_tool: whole.collect() }
    }
}

/// The check of one manifest's links to others.
struct Links<'a> {
    manifest: &'a Manifest,
    members: &'a Members,
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
            let (pos, suffix) = places.requires.get(index).copied().unwrap_or_default();
            self.exists(&format!("requires[{index}]{suffix}"), pos, tool);
        }
        if let Some(tool) = &manifest.replaced_by {
            self.exists("replaced_by", places.replaced_by, tool);
        }
    }

    fn path(&self, field: &str) -> String {
        let path = &self.manifest.places().path;
        if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
    }

    /// The effect of the tool, where that is known.
    fn exists(&mut self, field: &str, pos: Pos, tool: &ToolName) -> Option<Effect> {
        if let Some(member) = self.members.by_tool.get(tool) {
            return member.manifest.as_ref().map(|manifest| manifest.effect);
        }
        if self.members.incomplete {
            return None;
        }
        let message = format!("the tool {} has no manifest", quoted(tool.as_str()));
        // Its own name is near where tools are named alike, and never what was meant.
        let own = &self.manifest.tool;
        let known = self.members.by_tool.keys().filter(|name| *name != own).map(ToolName::as_str);
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
