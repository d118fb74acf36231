//! In which places two JSON values differ, for people. Knows no case.
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::manifest::same_value;
use crate::manifest::walk::{index_path, key_path};

/// Most places that are told, and longest value that is shown whole, in characters.
const PLACES_MAX: usize = 20;
const SHOWN_MAX: usize = 200;

/// A place where two values differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Where; empty for the whole value.
    pub path: String,
    /// What was expected there; `None`: nothing.
    pub expected: Option<Value>,
    /// What was there; `None`: nothing.
    pub got: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "expected {}, got {}", shown(self.expected.as_ref()), shown(self.got.as_ref()))
    }
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    if text.chars().count() <= SHOWN_MAX {
        return text;
    }
    text.chars().take(SHOWN_MAX).chain("...".chars()).collect()
}

/// The places where the two differ, the first twenty; none if they are the same value. Numbers are compared by value, the
/// order of an object's fields does not matter.
pub fn differences(expected: &Value, got: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(String::new(), Some(expected), Some(got), &mut found);
    found
}

fn compare(path: String, expected: Option<&Value>, got: Option<&Value>, found: &mut Vec<Difference>) {
    if found.len() >= PLACES_MAX {
        return;
    }
    match (expected, got) {
        (Some(expected), Some(got)) if same_value(expected, got) => {}
        (Some(Value::Object(expected)), Some(Value::Object(got))) => {
            let added = got.keys().filter(|key| !expected.contains_key(*key));
            for key in expected.keys().chain(added) {
                compare(key_path(&path, key), expected.get(key), got.get(key), found);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(got))) => {
            for index in 0..expected.len().max(got.len()) {
                compare(index_path(&path, index), expected.get(index), got.get(index), found);
            }
        }
        (expected, got) => found.push(Difference { path, expected: expected.cloned(), got: got.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(expected: &Value, got: &Value) -> Vec<String> {
        differences(expected, got).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_value_has_no_difference() {
        assert!(told(&json!({"a": 1, "b": [true]}), &json!({"b": [true], "a": 1.0})).is_empty());
    }

    #[test]
    fn each_place_is_told_with_both_values() {
        let (expected, got) = (json!({"id": "ch_1", "n": 2500, "l": [1, {"x": null}]}), json!({"n": "2500", "l": [2]}));
        assert_eq!(
            told(&expected, &got),
            [
                r#"id: expected "ch_1", got nothing"#,
                "l[0]: expected 1, got 2",
                r#"l[1]: expected {"x":null}, got nothing"#,
                r#"n: expected 2500, got "2500""#,
            ]
        );
        assert_eq!(told(&json!({"a": {}}), &json!({"a": {"b c": 1}})), [r#"a["b c"]: expected nothing, got 1"#]);
        assert_eq!(told(&json!({}), &json!([])), ["expected {}, got []"]);
    }

    #[test]
    fn long_values_and_many_places_are_cut() {
        let (expected, got) = (json!(vec![0; 1000]), json!(vec![1; 1000]));
        assert_eq!(told(&expected, &got).len(), PLACES_MAX);
        assert!(told(&json!("x".repeat(10_000)), &json!(1))[0].chars().count() < 300);
    }
}
