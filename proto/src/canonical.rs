//! Strict canonical JSON. (Base version: replaced by the complete one.)
use serde::{Deserialize, Serialize};

/// A JSON text in its one canonical spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Canonical(String);

/// Why a text has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not canonical: {0}")]
pub struct CanonicalError(pub String);

impl Canonical {
    /// Parses JSON and writes its canonical form.
    pub fn parse(json: &[u8]) -> Result<Self, CanonicalError> {
        let value: serde_json::Value = serde_json::from_slice(json).map_err(|e| CanonicalError(e.to_string()))?;
        Self::of(&value)
    }
    /// The canonical form of a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, CanonicalError> {
        let value = serde_json::to_value(value).map_err(|e| CanonicalError(e.to_string()))?;
        Ok(Self(value.to_string()))
    }
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The value.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or(serde_json::Value::Null)
    }
}
