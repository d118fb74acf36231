//! Where the fields of a manifest stood in its file, so that who finds something later can point at it. Must not know
//! what a field means.
use super::diagnostic::Pos;
use super::node::Kind;
use super::walk::{Field, index_path, key_path};

/// How deep fields are remembered: down to `compensation.verification.expect.x`; an expected value is one place.
const DEPTH: usize = 4;

/// The file of a manifest and the places of its fields. Empty for a manifest that came from no file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spots {
    source: String,
    path: String,
    /// Path inside of the manifest and place of the value, sorted by path.
    fields: Vec<(Box<str>, Pos)>,
}

/// One place: everything that a finding says about where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) source: String,
    pub(crate) path: String,
    pub(crate) pos: Pos,
}

impl Spots {
    pub(crate) fn of(manifest: &Field<'_>, source: &str) -> Self {
        if manifest.node.pos == Pos::default() {
            return Self::default();
        }
        let mut fields = Vec::new();
        collect(&Field::new(manifest.node, String::new()), DEPTH, &mut fields);
        fields.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        fields.shrink_to_fit();
        Self { source: source.to_owned(), path: manifest.path.clone(), fields }
    }

    /// The place of a field. One that is not there is where it is missing: in the nearest object around it, and for the
    /// manifest itself that is where its tool is named.
    pub(crate) fn find(&self, field: &str) -> Spot {
        let found = std::iter::successors(Some(field), |field| parent(field)).find_map(|field| {
            let at = self.fields.binary_search_by(|(path, _)| (**path).cmp(field)).ok()?;
            Some((field, self.fields[at].1))
        });
        let (inner, pos) = found.unwrap_or_else(|| ("", self.tool()));
        Spot { source: self.source.clone(), path: self.joined(inner), pos }
    }

    fn tool(&self) -> Pos {
        let at = self.fields.binary_search_by(|(path, _)| (**path).cmp("tool"));
        at.map(|at| self.fields[at].1).unwrap_or_default()
    }

    fn joined(&self, inner: &str) -> String {
        match (self.path.is_empty(), inner.is_empty()) {
            (true, _) => inner.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{inner}", self.path),
        }
    }
}

fn collect(field: &Field<'_>, depth: usize, into: &mut Vec<(Box<str>, Pos)>) {
    let mut child = |node, path: String| {
        let child = Field::new(node, path);
        if depth > 1 {
            collect(&child, depth - 1, into);
        }
        into.push((child.path.into_boxed_str(), node.pos));
    };
    match &field.node.kind {
        Kind::Map(entries) => {
            entries.iter().for_each(|entry| child(&entry.value, key_path(&field.path, &entry.key)));
        }
        Kind::List(items) => {
            items.iter().enumerate().for_each(|(index, item)| child(item, index_path(&field.path, index)));
        }
        Kind::Null | Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) | Kind::Bad | Kind::Text(_) => {}
    }
}

/// The path without its last part; the manifest itself has none.
fn parent(path: &str) -> Option<&str> {
    let at = path.rfind(['.', '['])?;
    Some(&path[..at])
}

#[cfg(test)]
mod tests {
    use crate::manifest::load;

    #[test]
    fn a_field_that_is_missing_is_in_what_is_there() {
        let text = "- tool: a\n  effect: reversible\n  permission: p\n  compensation:\n    tool: b\n    verification:\n      \
                    tool: c\n      expect: {\"x.y\": {z: 1}}\n";
        let list = load("m.yaml", text.as_bytes()).unwrap();
        let at = |field: &str| {
            let spot = list[0].places().spots.find(field);
            assert_eq!(spot.source, "m.yaml");
            (spot.path, spot.pos.line, spot.pos.column)
        };
        assert_eq!(at("effect"), ("[0].effect".to_owned(), 2, 11));
        assert_eq!(at("owner"), ("[0]".to_owned(), 1, 9));
        assert_eq!(at("risk.data_class"), ("[0]".to_owned(), 1, 9));
        assert_eq!(at("compensation.kind"), ("[0].compensation".to_owned(), 5, 5));
        let expected = "[0].compensation.verification.expect[\"x.y\"]";
        assert_eq!(at("compensation.verification.expect[\"x.y\"]"), (expected.to_owned(), 8, 23));
    }
}
