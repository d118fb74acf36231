//! Strict canonical JSON: RFC 8785 and the rules that RFC leaves open (duplicate keys, lone surrogates, number ranges,
//! depth). Must not know ledgers, events or arguments, nor depend on the order in which `serde_json` keeps a map.
mod error;
mod number;
mod order;
mod rewrite;
pub(crate) mod scan;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

pub use error::{CanonicalCode, CanonicalError};

use crate::hash::Hash;
use number::Profile;
use scan::Scanner;

/// How deep arrays and objects may nest.
pub const DEPTH_MAX: usize = 127;

/// A JSON text in its one canonical spelling: the strict profile, so that every implementation reads the same value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Canonical(String);

impl Canonical {
    /// Parses JSON (UTF-8, any spelling) and writes its canonical form.
    pub fn parse(json: &[u8]) -> Result<Self, CanonicalError> {
        let text = utf8(json)?;
        // Most texts were written by a canonicaliser already; those are copied, not rewritten.
        if scan::text_is_canonical(text) {
            return Ok(Self(text.to_owned()));
        }
        rewrite::rewrite(text, Profile::Strict).map(Self)
    }

    /// The canonical form of a value. What `serde_json` writes as null (NaN, infinities) is null here too.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, CanonicalError> {
        // The detour over text, not over `serde_json::Value`: a `Value` drops duplicate keys silently.
        let not_serializable = |_| CanonicalError { code: CanonicalCode::NotSerializable, offset: 0 };
        let json = serde_json::to_vec(value).map_err(not_serializable)?;
        Self::parse(&json)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value.
    pub fn value(&self) -> serde_json::Value {
        // Can't fail: the profile is narrower than what serde_json reads (a test holds the depth to that).
        serde_json::from_str(&self.0).unwrap_or(serde_json::Value::Null)
    }
}

impl<'de> Deserialize<'de> for Canonical {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        is_canonical(text.as_bytes()).map_err(serde::de::Error::custom)?;
        Ok(Self(text))
    }
}

/// The canonical form by RFC 8785 alone: as [`Canonical::parse`], but without the strict profile's number ranges.
pub fn jcs(json: &[u8]) -> Result<String, CanonicalError> {
    rewrite::rewrite(utf8(json)?, Profile::Jcs)
}

/// SHA-256 of the strict canonical form: the public helper that every SDK has. No commitment: a short value can be
/// guessed back from it.
pub fn hash_payload(json: &[u8]) -> Result<Hash, CanonicalError> {
    let canonical = Canonical::parse(json)?;
    Ok(Hash(Sha256::digest(canonical.as_str()).into()))
}

/// Whether a text is its own canonical form. Allocates only to explain a "no".
pub fn is_canonical(text: &[u8]) -> Result<(), CanonicalError> {
    let text = utf8(text)?;
    if scan::text_is_canonical(text) {
        return Ok(());
    }
    let canonical = rewrite::rewrite(text, Profile::Strict)?;
    if canonical == text {
        return Ok(());
    }
    let same = canonical.bytes().zip(text.bytes()).take_while(|(expected, got)| expected == got).count();
    Err(CanonicalError { code: CanonicalCode::NotCanonical, offset: same })
}

/// Whether the value may stand `depth` levels inside another one without breaking the profile's depth.
pub(crate) fn fits_at_depth(canonical: &Canonical, depth: usize) -> bool {
    Scanner::new(canonical.as_str()).value(depth)
}

fn utf8(json: &[u8]) -> Result<&str, CanonicalError> {
    std::str::from_utf8(json).map_err(|e| CanonicalError { code: CanonicalCode::InvalidUtf8, offset: e.valid_up_to() })
}
