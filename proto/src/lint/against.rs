//! The rules about manifests and the tools that an upstream offers. Must not know where those come from.
use super::alone::needs;
use super::finding::{Code, Found};
use super::schema::lack;
use super::upstream::{UpstreamTool, UpstreamTools};
use crate::ids::ToolName;
use crate::manifest::{Manifest, ManifestSet, Root, Segment, ValuePath, index_path, quoted};

pub(super) fn check(set: &ManifestSet, tools: &UpstreamTools, found: &mut Found) {
    let names: Vec<&str> = tools.iter().map(|(name, _)| name).collect();
    for manifest in set.iter() {
        match tools.get(manifest.tool.as_str()) {
            Some(tool) => Pair { manifest, tool, found: &mut *found }.check(),
            None => no_such_tool(manifest, &names, found),
        }
    }
    for name in names {
        no_manifest(set, name, found);
    }
}

fn no_such_tool(manifest: &Manifest, names: &[&str], found: &mut Found) {
    let near = found.suggest(manifest.tool.as_str(), names);
    let near = near.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
    let message = format!("no upstream tool has this name{near}: calls of it cannot reach anything");
    let fix = "correct the name, with the upstream's prefix if it has one, or remove the manifest";
    found.add(manifest, Code::L034, "tool", message, fix);
}

fn no_manifest(set: &ManifestSet, name: &str, found: &mut Found) {
    let message = "the upstream offers this tool but it has no manifest: every call of it is blocked";
    match name.parse::<ToolName>() {
        Ok(tool) if set.get(&tool).is_some() => {}
        Ok(tool) => {
            let fix = "write a manifest for it, if agents should call it";
            found.add_foreign(tool.to_string(), Code::L035, message, fix);
        }
        Err(_) => {
            let fix = "rename it upstream if agents should call it: a manifest cannot have this name (letters, digits \
                       and _ . : / -, 1 to 128 characters)";
            found.add_foreign(quoted(name), Code::L035, message, fix);
        }
    }
}

/// A manifest and its tool.
struct Pair<'a, 'f> {
    manifest: &'a Manifest,
    tool: &'a UpstreamTool,
    found: &'f mut Found,
}

impl Pair<'_, '_> {
    fn check(&mut self) {
        let manifest = self.manifest;
        for (field, reference) in manifest.compensation.iter().flat_map(needs) {
            if reference.root == Root::Args {
                self.undo_reads(&field, &reference.path);
            }
        }
        for path in manifest.idempotency.iter().flat_map(|idempotency| idempotency.key.fields()) {
            self.key_uses(path);
        }
        for (index, hidden) in manifest.audit.redaction.iter().enumerate() {
            if hidden.root == Root::Args {
                self.hides(&index_path("audit.redaction", index), &hidden.path);
            }
        }
        if manifest.schema_hash.is_none() {
            let message = "no schema_hash: nobody notices when the upstream changes the tool's arguments";
            // Quoted, because a hash of digits alone, or with one e, would be a number.
            let fix = format!("add `schema_hash: \"{}\"`, the hash of the schema as it is now", self.tool.schema_hash);
            self.found.add(manifest, Code::L027, "", message, fix);
        }
    }

    fn undo_reads(&mut self, field: &str, path: &ValuePath) {
        let Some(near) = self.lacks("$args", path) else { return };
        let message = format!(
            "{field} reads $args.{path}, which the input schema lacks{near}: steps of this tool would be unrecoverable"
        );
        let fix = "name an argument of the tool, or something from $result";
        self.found.add(self.manifest, Code::L017, field, message, fix);
    }

    fn key_uses(&mut self, path: &ValuePath) {
        let Some(near) = self.lacks("args", path) else { return };
        let message = format!(
            "the idempotency key uses args.{path}, which the input schema lacks{near}: every call would be refused"
        );
        let fix = "build the key from arguments that the tool has";
        self.found.add(self.manifest, Code::L020, "idempotency.key", message, fix);
    }

    fn hides(&mut self, field: &str, path: &ValuePath) {
        let Some(near) = self.lacks("$args", path) else { return };
        let message = format!("{field} hides $args.{path}, which the input schema lacks{near}: it hides nothing");
        let fix = "name the argument that is to be hidden, or remove the entry";
        self.found.add(self.manifest, Code::L033, field, message, fix);
    }

    /// If the tool's schema lacks the argument: what may have been meant, for a message.
    fn lacks(&mut self, root: &str, path: &ValuePath) -> Option<String> {
        let lack = lack(&self.tool.input_schema, path)?;
        let mut parts: Vec<&str> = path.segments().iter().map(Segment::as_str).collect();
        let wrong = parts.get(lack.known_segments)?;
        let Some(near) = self.found.suggest(wrong, &lack.names) else { return Some(String::new()) };
        parts[lack.known_segments] = near;
        Some(format!(" (did you mean {root}.{}?)", parts.join(".")))
    }
}
