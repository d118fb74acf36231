//! A YAML or JSON value that remembers where it stood. Knows nothing of manifests. Children are shared, so that an
//! alias costs a pointer and not a copy.
use std::rc::Rc;

use serde_json::Value;

use super::diagnostic::Pos;

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) pos: Pos,
    pub(crate) kind: Kind,
}

/// The JSON types. Numbers are what canonical JSON holds exactly; the loader has refused all others.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    /// A whole number, however it was spelled (`1`, `1.0`, `0x1`).
    Whole(i64),
    Fraction(f64),
    /// A number that was reported and has no value.
    Bad,
    Text(Rc<str>),
    List(Rc<[Node]>),
    Map(Rc<[Entry]>),
}

/// One key of an object, in the order of the text. Keys are unique.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Rc<str>,
    pub(crate) pos: Pos,
    pub(crate) value: Node,
}

impl Node {
    /// The type in words, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Whole(_) | Kind::Fraction(_) | Kind::Bad => "a number",
            Kind::Text(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "an object",
        }
    }

    /// The plain JSON value.
    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null | Kind::Bad => Value::Null,
            Kind::Bool(b) => Value::Bool(*b),
            Kind::Whole(n) => Value::from(*n),
            Kind::Fraction(x) => Value::from(*x),
            Kind::Text(text) => Value::String(text.to_string()),
            Kind::List(items) => items.iter().map(Self::to_value).collect(),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_value())).collect())
            }
        }
    }

    /// From a plain value, which has no places. A number that canonical JSON cannot hold becomes the text of itself
    /// and is then refused where a number was wanted; canonical texts hold none.
    pub(crate) fn of_value(value: &Value) -> Self {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(b) => Kind::Bool(*b),
            Value::Number(number) => {
                number_kind(&number.to_string()).unwrap_or_else(|| Kind::Text(number.to_string().into()))
            }
            Value::String(text) => Kind::Text(text.as_str().into()),
            Value::Array(items) => Kind::List(items.iter().map(Self::of_value).collect()),
            Value::Object(map) => Kind::Map(map.iter().map(|(key, value)| Entry::of_value(key, value)).collect()),
        };
        Self { pos: Pos::default(), kind }
    }
}

impl Entry {
    fn of_value(key: &str, value: &Value) -> Self {
        Self { key: key.into(), pos: Pos::default(), value: Node::of_value(value) }
    }
}

/// The largest whole number that every reader of JSON agrees on.
pub(crate) const WHOLE_MAX: i64 = (1 << 53) - 1;

/// A decimal number as canonical JSON sees it; `None` if that cannot hold it exactly.
pub(crate) fn number_kind(decimal: &str) -> Option<Kind> {
    if let Ok(whole) = decimal.parse::<i64>() {
        return (-WHOLE_MAX..=WHOLE_MAX).contains(&whole).then_some(Kind::Whole(whole));
    }
    let number: f64 = decimal.parse().ok()?;
    if !number.is_finite() {
        return None;
    }
    if number.fract() == 0.0 {
        // Rounding to the double may have made it whole (`0.99999999999999999999`): every reader of JSON does the same.
        return whole_of(number).filter(|whole| (-WHOLE_MAX..=WHOLE_MAX).contains(whole)).map(Kind::Whole);
    }
    (1e-4..1e16).contains(&number.abs()).then_some(Kind::Fraction(number))
}

/// The integer that a whole double is, where an `i64` holds it.
#[allow(clippy::cast_possible_truncation)] // The range was checked: the bounds are exact doubles.
pub(crate) fn whole_of(number: f64) -> Option<i64> {
    const EDGE: f64 = 9_223_372_036_854_775_808.0; // 2^63
    (number.fract() == 0.0 && (-EDGE..EDGE).contains(&number)).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_canonical_json() {
        for (text, whole) in [("1", 1), ("1.0", 1), ("1e2", 100), ("-0.0", 0), ("9007199254740991", WHOLE_MAX)] {
            assert!(matches!(number_kind(text), Some(Kind::Whole(n)) if n == whole), "{text}");
        }
        assert!(matches!(number_kind("12.50"), Some(Kind::Fraction(x)) if x.to_bits() == 12.5_f64.to_bits()));
        for text in ["9007199254740992", "1e16", "1e400", "0.00001", "-1e-5", "123456789012345678901234567890"] {
            assert!(number_kind(text).is_none(), "{text}");
        }
    }
}
