//! What a read-back must answer: dotted paths and expected values, and when two JSON values are the same. Knows no call.
use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Number, Value};

use super::node::whole_of;
use super::path::ValuePath;

/// Paths with the values that must stand there; never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectations(BTreeMap<ValuePath, Value>);

/// A path whose value is not the expected one.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// The path as it stands in the manifest.
    pub path: String,
    /// What was expected.
    pub expected: Value,
    /// What stood there; `None` if nothing did (which is not null).
    pub got: Option<Value>,
}

impl Expectations {
    /// `None` if there is nothing to expect.
    pub(crate) fn new(entries: BTreeMap<ValuePath, Value>) -> Option<Self> {
        if entries.is_empty() { None } else { Some(Self(entries)) }
    }

    /// The paths and values, in the order in which they are compared.
    pub fn iter(&self) -> impl Iterator<Item = (&ValuePath, &Value)> {
        self.0.iter()
    }

    /// The first path, in the order of the paths (not of the file), whose value differs.
    pub fn first_mismatch(&self, answer: &Value) -> Option<Mismatch> {
        self.0.iter().find_map(|(path, expected)| {
            let got = path.resolve(answer);
            if got.is_some_and(|got| same_value(expected, got)) {
                return None;
            }
            Some(Mismatch { path: path.to_string(), expected: expected.clone(), got: got.cloned() })
        })
    }
}

impl Serialize for Expectations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (path, value) in &self.0 {
            map.serialize_entry(&path.to_string(), value)?;
        }
        map.end()
    }
}

/// Deep equality of JSON values. Numbers are equal when they are the same number (`1` and `1.0`), objects regardless
/// of the order of their fields; no type is converted into another (`1` is not `"1"`, null is not absent).
pub fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b)))
        }
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
            _,
        ) => false,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a.as_f64() == b.as_f64(),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The whole number that this is, exactly, where 128 bits and the double's own form hold it.
fn whole(number: &Number) -> Option<i128> {
    let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    integer.or_else(|| {
        let double = number.as_f64()?;
        // Doubles from 2^63 on that a u64 could equal: halve exactly, twice at most.
        whole_of(double).map(i128::from).or_else(|| whole_of(double / 4.0).map(|quarter| i128::from(quarter) * 4))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expect(entries: &[(&str, Value)]) -> Expectations {
        let entries = entries.iter().map(|(path, value)| (path.parse().unwrap(), value.clone())).collect();
        Expectations::new(entries).unwrap()
    }

    // F3
    #[test]
    fn compares_deeply_and_by_number() {
        let same = [
            (json!(1), json!(1.0)),
            (json!({"a": [1, 2.5], "b": null}), json!({"b": null, "a": [1.0, 2.5]})),
            (json!(18_446_744_073_709_551_615_u64), json!(18_446_744_073_709_551_615_u64)),
            (json!(9_223_372_036_854_775_808_u64), json!(9_223_372_036_854_775_808.0)),
            (json!(-0.0), json!(0)),
        ];
        for (a, b) in same {
            assert!(same_value(&a, &b) && same_value(&b, &a), "{a} {b}");
        }
        let other = [
            (json!(1), json!("1")),
            (json!(true), json!(1)),
            (json!(null), json!(false)),
            (json!([1]), json!([1, 1])),
            (json!({"a": 1}), json!({"a": 1, "b": 1})),
            (json!({"a": 1}), json!({"b": 1})),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992.0)),
            (json!(0.1), json!(0.2)),
            (json!(0.5), json!(0)),
        ];
        for (a, b) in other {
            assert!(!same_value(&a, &b) && !same_value(&b, &a), "{a} {b}");
        }
    }

    // F3
    #[test]
    fn names_the_first_path_that_differs() {
        let wanted = expect(&[("refunded", json!(true)), ("items.0.id", json!("a"))]);
        assert_eq!(wanted.first_mismatch(&json!({"refunded": true, "items": [{"id": "a", "more": 1}]})), None);
        let mismatch = wanted.first_mismatch(&json!({"refunded": false, "items": []})).unwrap();
        assert_eq!((mismatch.path.as_str(), mismatch.got), ("items.0.id", None));
        let mismatch = wanted.first_mismatch(&json!({"refunded": 1, "items": [{"id": "a"}]})).unwrap();
        assert_eq!((mismatch.path.as_str(), mismatch.got), ("refunded", Some(json!(1))));
    }

    #[test]
    fn an_expected_null_must_be_there() {
        let wanted = expect(&[("deleted_at", json!(null))]);
        assert_eq!(wanted.first_mismatch(&json!({"deleted_at": null})), None);
        assert!(wanted.first_mismatch(&json!({})).is_some());
    }
}
