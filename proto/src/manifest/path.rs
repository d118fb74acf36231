//! Dotted paths into JSON values: `items.0.id`. Used by references, expectations and key templates.
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::diagnostic::quoted;

const SEGMENTS_MAX: usize = 32;
const LENGTH_MAX: usize = 512;

/// One step of a path: a field of an object, or an index if it meets an array there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(String);

impl Segment {
    /// The segment as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The index that it is in an array. One spelling each: `01` is none.
    pub fn index(&self) -> Option<usize> {
        let canonical = self.0 == "0" || !self.0.starts_with('0');
        let digits = self.0.bytes().all(|b| b.is_ascii_digit());
        if canonical && digits { self.0.parse().ok() } else { None }
    }
}

/// A path of at least one segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValuePath(Vec<Segment>);

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing before, between or after the dots.
    #[error("the path {got} has an empty part")]
    EmptyPart {
        /// The path, quoted and cut.
        got: String,
    },
    /// A character that paths cannot hold.
    #[error("the path {got} holds {character:?}: parts are separated by dots, like items.0.id")]
    Character {
        /// The path, quoted and cut.
        got: String,
        /// The first such character.
        character: char,
    },
    /// Too long to be meant.
    #[error("the path {got} is too long: at most {SEGMENTS_MAX} parts and {LENGTH_MAX} bytes")]
    TooLong {
        /// The path, quoted and cut.
        got: String,
    },
}

impl ValuePath {
    /// The segments, at least one.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The value at the path. A field that is there with the value null gives null; one that is not there gives `None`.
    pub fn resolve<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, segment| match value {
            Value::Object(map) => map.get(segment.as_str()),
            Value::Array(items) => items.get(segment.index()?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }
}

impl FromStr for ValuePath {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        let got = || quoted(text);
        // Brackets and braces would make templates ambiguous and are how other languages write an index.
        let foreign = |c: char| c.is_whitespace() || c.is_control() || "[]{}\"'*".contains(c);
        if text.len() > LENGTH_MAX {
            return Err(PathError::TooLong { got: got() });
        }
        if let Some(character) = text.chars().find(|c| foreign(*c)) {
            return Err(PathError::Character { got: got(), character });
        }
        let segments: Vec<Segment> = text.split('.').map(|part| Segment(part.to_owned())).collect();
        if segments.iter().any(|segment| segment.0.is_empty()) {
            return Err(PathError::EmptyPart { got: got() });
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(PathError::TooLong { got: got() });
        }
        Ok(Self(segments))
    }
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            f.write_str(segment.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // F3
    #[test]
    fn finds_fields_indices_and_explicit_nulls() {
        let value = json!({"items": [{"id": "a"}, {"id": null}], "0": "zero", "n": 5});
        let at = |path: &str| path.parse::<ValuePath>().unwrap().resolve(&value).cloned();
        assert_eq!(at("items.0.id"), Some(json!("a")));
        assert_eq!(at("items.1.id"), Some(json!(null)));
        assert_eq!(at("0"), Some(json!("zero")));
        for path in ["items.2", "items.00", "items.+1", "items.-1", "items.id", "n.x", "items.1.id.x", "gone"] {
            assert_eq!(at(path), None, "{path}");
        }
    }

    #[test]
    fn prints_what_it_parsed_and_refuses_the_rest() {
        for text in ["a", "a.b.0.c", "@type", "naïve.$ref", "x-y_z"] {
            assert_eq!(text.parse::<ValuePath>().unwrap().to_string(), text);
        }
        let long = "a.".repeat(40) + "a";
        let longer = "a".repeat(513);
        for text in ["", ".", "a.", ".a", "a..b", "a b", "a[0]", "a.*", "{{a}}", "a\n", long.as_str(), longer.as_str()]
        {
            assert!(text.parse::<ValuePath>().is_err(), "{text}");
        }
    }
}
