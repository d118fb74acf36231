//! Back from the normalized form. The same walker reads it and is strict about the shape: fields, types, words, grammars,
//! and that nothing is lost. It does not ask the limits and rules of today, because the text is of a manifest that was
//! in force under those of its day, and a journal must stay readable when a rule is tightened. For the same reason the
//! grammars (tool names, references, paths, templates) may be widened and never narrowed.
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::build::{Form, manifests};
use super::diagnostic::{Diagnostic, Report};
use super::model::Manifest;
use super::node::Node;
use crate::canonical::Canonical;

/// Why a text is not the normalized form of a manifest.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RestoreError {
    /// It has another shape: fields, types or words that manifests don't have.
    #[error("not a valid normalized manifest: {}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Invalid(Vec<Diagnostic>),
    /// It is a valid manifest in another form than the normalized one, so its checksum would change.
    #[error("not in normalized form: expected {expected}, got {got}")]
    NotNormalized {
        /// The normalized form.
        expected: String,
        /// What was given.
        got: String,
    },
}

impl Manifest {
    /// Restores a manifest from its journaled text. It has the same text and checksum again. Rules are not asked again:
    /// what is new comes in through [`load`](super::load).
    pub fn from_canonical(text: &Canonical) -> Result<Self, RestoreError> {
        let mut report = Report::of_shape("normalized manifest");
        let document = Node::of_value(&text.value());
        let found = manifests(&[document], Form::Normalized, &mut report);
        report.finish().map_err(RestoreError::Invalid)?;
        let manifest = found.manifests.into_iter().next().ok_or_else(|| RestoreError::Invalid(Vec::new()))?;
        let expected = manifest.canonical();
        if expected == *text {
            Ok(manifest)
        } else {
            let (expected, got) = (expected.as_str().to_owned(), text.as_str().to_owned());
            Err(RestoreError::NotNormalized { expected, got })
        }
    }
}

impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let text = Canonical::of(&value).map_err(D::Error::custom)?;
        Self::from_canonical(&text).map_err(D::Error::custom)
    }
}
