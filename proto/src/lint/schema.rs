//! Whether an input schema knows an argument. Errs on the side of "it may": a schema is only said to lack a path when it
//! lists what there is and the path is not among it. Must not know manifests.
//!
//! A schema lists what there is by `properties` (where neither `additionalProperties`, `unevaluatedProperties` nor
//! `patternProperties` let more in: by the letter of JSON Schema more may come, but a tool that names its arguments has
//! no use for others), by forbidding others, or by a type that has no parts. Several schemas that hold together
//! (`allOf`, `$ref` and what stands beside them) know what one of them knows; of alternatives (`anyOf`, `oneOf`) each
//! may be the one. Conditions (`if`, `then`, `else`, `dependentSchemas`) can only add.
use serde_json::{Map, Value};

use crate::manifest::{Segment, ValuePath};

/// How many schemas are looked at for one path, and how deep. Beyond that it may know the path: hostile schemas refer to
/// themselves without end.
const LOOKS_MAX: u32 = 2000;
const DEPTH_MAX: u32 = 100;

/// A path that a schema lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lack<'s> {
    /// How many segments lead to what the schema knows; the next one is what it lacks.
    pub(super) known_segments: usize,
    /// The names that it knows there.
    pub(super) names: Vec<&'s str>,
}

/// What is wrong with the path, if the schema lacks it.
pub(super) fn lack<'s>(schema: &'s Value, path: &ValuePath) -> Option<Lack<'s>> {
    let segments = path.segments();
    let lack = Lack { known_segments: 0, names: Vec::new() };
    let mut walk = Walk { root: schema, length: segments.len(), looks: LOOKS_MAX, depth: 0, lack };
    match walk.verdict(schema, segments) {
        Verdict::Absent => Some(walk.lack),
        Verdict::Silent | Verdict::Open | Verdict::Declared => None,
    }
}

/// What a schema says of a path, in the order in which one answer beats another where schemas hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Nothing.
    Silent,
    /// It lists what there is, and the path is not among it.
    Absent,
    /// It lets it in without naming it, or cannot be understood.
    Open,
    /// It names it.
    Declared,
}

impl Verdict {
    /// Of alternatives the one that allows most counts, and one that says nothing allows everything.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Declared, _) | (_, Self::Declared) => Self::Declared,
            (Self::Open, _) | (_, Self::Open) => Self::Open,
            (Self::Silent, _) | (_, Self::Silent) => Self::Silent,
            (Self::Absent, Self::Absent) => Self::Absent,
        }
    }

    /// Of a value that is known to be there: what is not said of it is let in.
    fn below(self) -> Self {
        match self {
            Self::Silent => Self::Open,
            Self::Absent | Self::Open | Self::Declared => self,
        }
    }

    /// Of a condition.
    fn adds(self) -> Self {
        match self {
            Self::Silent | Self::Absent => Self::Silent,
            Self::Open | Self::Declared => self,
        }
    }
}

struct Walk<'s> {
    root: &'s Value,
    length: usize,
    looks: u32,
    depth: u32,
    /// The deepest lack so far.
    lack: Lack<'s>,
}

impl<'s> Walk<'s> {
    fn verdict(&mut self, schema: &'s Value, rest: &[Segment]) -> Verdict {
        let Some(looks) = self.looks.checked_sub(1).filter(|_| self.depth < DEPTH_MAX) else { return Verdict::Open };
        self.looks = looks;
        self.depth += 1;
        let verdict = match (schema, rest) {
            (Value::Bool(false), _) => Verdict::Absent,
            (_, []) => Verdict::Declared,
            (Value::Object(keywords), [segment, below @ ..]) => self.keywords(keywords, segment, below, rest),
            // `true`, or no schema at all.
            (Value::Null | Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_), _) => {
                Verdict::Silent
            }
        };
        self.depth -= 1;
        verdict
    }

    fn keywords(
        &mut self,
        keywords: &'s Map<String, Value>,
        segment: &Segment,
        below: &[Segment],
        rest: &[Segment],
    ) -> Verdict {
        let mut verdict = self.own(keywords, segment, below);
        if let Some(reference) = keywords.get("$ref") {
            let referred = self.referred(reference);
            verdict = verdict.max(referred.map_or(Verdict::Open, |schema| self.verdict(schema, rest)));
        }
        if keywords.contains_key("$dynamicRef") || keywords.contains_key("$recursiveRef") {
            verdict = verdict.max(Verdict::Open);
        }
        for schema in list(keywords.get("allOf")) {
            verdict = verdict.max(self.verdict(schema, rest));
        }
        for keyword in ["anyOf", "oneOf"] {
            let alternatives = list(keywords.get(keyword)).iter().map(|schema| self.verdict(schema, rest));
            verdict = verdict.max(alternatives.reduce(Verdict::or).unwrap_or(Verdict::Silent));
        }
        let dependent = keywords.get("dependentSchemas").and_then(Value::as_object);
        let conditions = ["if", "then", "else"].into_iter().filter_map(|keyword| keywords.get(keyword));
        for schema in conditions.chain(dependent.into_iter().flat_map(Map::values)) {
            verdict = verdict.max(self.verdict(schema, rest).adds());
        }
        verdict
    }

    /// What the schema says itself: the path goes on in an object or, if the segment is an index, in an array.
    fn own(&mut self, keywords: &'s Map<String, Value>, segment: &Segment, below: &[Segment]) -> Verdict {
        let object = allows(keywords, "object").then(|| self.property(keywords, segment, below));
        let index = segment.index().filter(|_| allows(keywords, "array"));
        let array = index.map(|index| self.item(keywords, index, below));
        match (object, array) {
            (Some(object), Some(array)) => object.or(array),
            (Some(verdict), None) | (None, Some(verdict)) => verdict,
            (None, None) => {
                self.lacks(below, std::iter::empty());
                Verdict::Absent
            }
        }
    }

    fn property(&mut self, keywords: &'s Map<String, Value>, segment: &Segment, below: &[Segment]) -> Verdict {
        let properties = keywords.get("properties").and_then(Value::as_object);
        if let Some(schema) = properties.and_then(|properties| properties.get(segment.as_str())) {
            return self.verdict(schema, below).below();
        }
        if keywords.get("patternProperties").and_then(Value::as_object).is_some_and(|patterns| !patterns.is_empty()) {
            return Verdict::Open;
        }
        match keywords.get("additionalProperties").or_else(|| keywords.get("unevaluatedProperties")) {
            None if properties.is_none() => Verdict::Silent,
            None | Some(Value::Bool(false)) => {
                self.lacks(below, properties.into_iter().flat_map(Map::keys).map(String::as_str));
                Verdict::Absent
            }
            Some(schema) => self.verdict(schema, below).below(),
        }
    }

    fn item(&mut self, keywords: &'s Map<String, Value>, index: usize, below: &[Segment]) -> Verdict {
        let (first, after) = match keywords.get("items") {
            // The older spelling of a tuple.
            Some(Value::Array(items)) => (items.as_slice(), keywords.get("additionalItems")),
            items => (list(keywords.get("prefixItems")), items),
        };
        match first.get(index).or(after) {
            None => Verdict::Silent,
            Some(Value::Bool(false)) => {
                self.lacks(below, std::iter::empty());
                Verdict::Absent
            }
            Some(schema) => self.verdict(schema, below).below(),
        }
    }

    /// The schema that `#/$defs/...` names; none if it is elsewhere or in another spelling.
    fn referred(&self, reference: &Value) -> Option<&'s Value> {
        let pointer = reference.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    /// Remembers the names beside the segment that is missing, if it is the deepest one.
    fn lacks(&mut self, below: &[Segment], names: impl Iterator<Item = &'s str>) {
        let known_segments = self.length - below.len() - 1;
        if known_segments > self.lack.known_segments {
            self.lack = Lack { known_segments, names: Vec::new() };
        }
        if known_segments == self.lack.known_segments {
            self.lack.names.extend(names);
        }
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn allows(keywords: &Map<String, Value>, wanted: &str) -> bool {
    match keywords.get("type") {
        Some(Value::String(only)) => only == wanted,
        Some(Value::Array(types)) => types.iter().any(|one| one.as_str() == Some(wanted)),
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lacks(schema: &Value, path: &str) -> bool {
        lack(schema, &path.parse().unwrap()).is_some()
    }

    #[test]
    fn properties_list_what_there_is() {
        let schema = json!({"type": "object", "properties": {"card": {"properties": {"number": {"type": "string"}}}}});
        for path in ["card", "card.number"] {
            assert!(!lacks(&schema, path), "{path}");
        }
        for path in ["crad", "card.cvc", "card.number.first"] {
            assert!(lacks(&schema, path), "{path}");
        }
        assert!(lacks(&json!({"type": "object", "properties": {}}), "x"));
        assert!(lacks(&json!({"type": "object", "additionalProperties": false}), "x"));
        assert!(lacks(&json!(false), "x"));
        assert!(lacks(&json!({"properties": {"x": false}}), "x"));
    }

    #[test]
    fn what_lets_more_in_lacks_nothing() {
        for schema in [
            json!({}),
            json!(true),
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "additionalProperties": {"properties": {"y": {}}}}),
            json!({"properties": {"a": {}}, "unevaluatedProperties": {}}),
            json!({"properties": {"a": {}}, "patternProperties": {"^x": {"type": "string"}}}),
            json!({"properties": {"a": {}}, "$ref": "https://example.com/schema.json"}),
            json!({"properties": {"a": {}}, "$ref": "#/nowhere"}),
            json!({"properties": {"a": {}}, "$dynamicRef": "#node"}),
            json!({"properties": {"x": true}}),
        ] {
            assert!(!lacks(&schema, "x.y"), "{schema}");
        }
        assert!(lacks(&json!({"additionalProperties": {"type": "string"}}), "x.y"));
        assert!(lacks(&json!({"additionalProperties": {"properties": {"z": {}}}}), "x.y"));
    }

    #[test]
    fn references_to_definitions_are_followed() {
        let schema = json!({
            "properties": {"to": {"$ref": "#/$defs/a~1b"}},
            "$defs": {"a/b": {"type": "object", "properties": {"city": {}, "next": {"$ref": "#/$defs/a~1b"}}}}
        });
        assert!(!lacks(&schema, "to.city"));
        assert!(!lacks(&schema, "to.next.next.city"));
        assert!(lacks(&schema, "to.town"));
        assert!(lacks(&schema, "to.next.next.town"));
    }

    #[test]
    fn schemas_that_hold_together_know_what_one_of_them_knows() {
        let schema = json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}, {"required": ["a"]}]});
        assert!(!lacks(&schema, "a") && !lacks(&schema, "b"));
        assert!(lacks(&schema, "c"));
        // Of a value that one names and says no more of, everything may be a part.
        assert!(!lacks(&schema, "b.part"));
        let open = json!({"properties": {"a": {}}, "allOf": [{"additionalProperties": true}]});
        assert!(!lacks(&open, "c"));
        let closed = json!({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false});
        assert!(!lacks(&closed, "a") && lacks(&closed, "c"));
    }

    #[test]
    fn of_alternatives_each_may_be_the_one() {
        let schema = json!({"anyOf": [{"properties": {"a": {}}}, {"type": "string"}, {"properties": {"b": {}}}]});
        assert!(!lacks(&schema, "a") && !lacks(&schema, "b"));
        assert!(lacks(&schema, "c"));
        assert!(!lacks(&json!({"oneOf": [{"properties": {"a": {}}}, {"type": "object"}]}), "c"));
        // Alternatives that only demand name nothing.
        let demands = json!({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
        assert!(!lacks(&demands, "b") && lacks(&demands, "c"));
        let nullable = json!({"properties": {"x": {"anyOf": [{"type": "null"}, {"properties": {"y": {}}}]}}});
        assert!(!lacks(&nullable, "x.y") && lacks(&nullable, "x.z"));
    }

    #[test]
    fn conditions_can_only_add() {
        let schema = json!({
            "properties": {"kind": {}},
            "if": {"properties": {"kind": {"const": "card"}}}, "then": {"properties": {"number": {}}},
            "else": {"properties": {"iban": {}}}, "dependentSchemas": {"kind": {"properties": {"more": {}}}}
        });
        for path in ["kind", "number", "iban", "more"] {
            assert!(!lacks(&schema, path), "{path}");
        }
        assert!(lacks(&schema, "nunber"));
    }

    #[test]
    fn indices_lead_into_arrays() {
        let schema = json!({"properties": {
            "items": {"type": "array", "items": {"properties": {"id": {}}}},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"properties": {"b": {}}}], "items": false},
            "old": {"type": "array", "items": [{"properties": {"a": {}}}], "additionalItems": {"properties": {"z": {}}}},
            "bare": {"type": "array"},
        }});
        for path in ["items.0.id", "items.7.id", "pair.0", "pair.1.b", "old.0.a", "old.3.z", "bare.0.x"] {
            assert!(!lacks(&schema, path), "{path}");
        }
        for path in ["items.id", "items.0.ib", "items.00", "pair.0.a", "pair.2", "old.0.z", "bare.x"] {
            assert!(lacks(&schema, path), "{path}");
        }
    }

    #[test]
    fn the_names_beside_the_missing_one_are_told() {
        let schema = json!({"properties": {"card": {"properties": {"number": {}, "cvc": {}}}, "amount": {}}});
        let path: ValuePath = "card.nunber".parse().unwrap();
        assert_eq!(lack(&schema, &path), Some(Lack { known_segments: 1, names: vec!["cvc", "number"] }));
        let path: ValuePath = "amonut.x".parse().unwrap();
        assert_eq!(lack(&schema, &path), Some(Lack { known_segments: 0, names: vec!["amount", "card"] }));
    }

    #[test]
    fn schemas_without_end_end() {
        assert!(!lacks(&json!({"$ref": "#"}), "a"));
        assert!(!lacks(&json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "properties": {}}), "a"));
        let ring = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
        assert!(!lacks(&ring, "a.b.c"));
    }
}
