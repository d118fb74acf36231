//! The JSON Schema beside the shared fixtures: it refuses nothing that the validator accepts, and accepts only what a
//! schema can't refuse. Editors judge by it, so a false alarm there is worse than a miss.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use jsonschema::Validator;
use reversi_proto::manifest::{SCHEMA, load};
use serde_json::Value;

/// A schema can't compare two values with each other, so cases that break only such rules pass it.
const COMPARES_VALUES: [&str; 4] = [
    "manifest.self_reference",
    "manifest.unknown_tool",
    "manifest.duplicate_tool",
    "manifest.verification_not_read_only",
];

/// Single cases that pass: topic, name, why a schema can't say it.
const PASSES: &[(&str, &str, &str)] = &[
    ("fields", "requires: the same tool in both forms", "two spellings of one item are two items"),
    ("fields", "lists and objects 65 deep are not read any further", "a schema doesn't count levels"),
    ("durations", "timeout_ms: '366d' is out of range", "the limit of a text is arithmetic"),
    ("durations", "timeout_ms: '31536000001ms' is out of range", "the limit of a text is arithmetic"),
    ("durations", "timeout_ms: '99999999999999999999999s' is out of range", "the limit of a text is arithmetic"),
    ("durations", "approval.timeout: '366d'", "the limit of a text is arithmetic"),
    ("durations", "compensation.timeout_ms: '366d'", "the limit of a text is arithmetic"),
    ("durations", "retry.base_ms: '366d'", "the limit of a text is arithmetic"),
    ("durations", "retry.max_ms: '366d'", "the limit of a text is arithmetic"),
    ("durations", "compensation.verification.backoff_ms: '366d'", "the limit of a text is arithmetic"),
];

fn schema() -> Validator {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    jsonschema::validator_for(&schema).unwrap()
}

/// Topic and case.
fn cases() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/manifests");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let topic = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let list: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        cases.extend(list.into_iter().map(|case| (topic.clone(), case)));
    }
    cases
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap()
}

// S1
#[test]
fn the_schema_refuses_nothing_that_the_validator_accepts() {
    let schema = schema();
    for (topic, case) in cases().iter().filter(|(_, case)| case.get("normalized").is_some()) {
        if let Err(error) = schema.validate(&case["input"]) {
            panic!("{topic}: {}: {error} at {}", text(case, "name"), error.instance_path());
        }
    }
}

// A2 S1
#[test]
fn the_schema_accepts_only_what_it_cannot_refuse() {
    let (schema, cases) = (schema(), cases());
    let mut unused: BTreeSet<(&str, &str)> = PASSES.iter().map(|(topic, name, _)| (*topic, *name)).collect();
    let mut compared = BTreeSet::new();
    let mut wrong = Vec::new();
    for (topic, case) in &cases {
        let Some(errors) = case.get("errors").and_then(Value::as_array) else { continue };
        let name = text(case, "name");
        let codes: BTreeSet<&str> = errors.iter().map(|error| text(error, "code")).collect();
        let passes = schema.is_valid(&case["input"]);
        let named = unused.remove(&(topic.as_str(), name));
        let compares_only = codes.iter().all(|code| COMPARES_VALUES.contains(code));
        if passes != (named || compares_only) {
            wrong.push(format!("{topic}: {name}: the schema {}", if passes { "accepts it" } else { "refuses it" }));
        }
        if compares_only {
            compared.extend(codes.into_iter().map(str::to_owned));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unused.is_empty(), "no such cases: {unused:?}");
    assert_eq!(compared.len(), COMPARES_VALUES.len(), "each has a case of its own: {compared:?}");
}

#[test]
fn every_field_has_a_description_and_no_object_takes_others() {
    fn check(schema: &Value, path: &str) {
        match schema {
            Value::Object(map) => {
                if let Some(properties) = map.get("properties").and_then(Value::as_object)
                    && map.get("type").is_some()
                    && map.contains_key("additionalProperties")
                {
                    assert_eq!(map["additionalProperties"], Value::Bool(false), "{path}");
                    for (field, value) in properties {
                        let described = value.get("description").is_some() || value.get("$ref").is_some();
                        assert!(described, "{path}.{field} has no description");
                    }
                }
                map.iter().for_each(|(key, value)| check(value, &format!("{path}/{key}")));
            }
            Value::Array(items) => items.iter().for_each(|value| check(value, path)),
            _ => {}
        }
    }
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    check(&schema, "");
    // Every reference leads to something that says what it is.
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        assert!(definition["description"].is_string(), "{name}");
    }
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

/// The normalized form is not what people write, but where it is, both must say so.
#[test]
fn the_example_of_the_page_passes_and_its_normalized_form_does_not() {
    let text = include_str!("../../manifests/payments.yaml");
    let list = load("payments.yaml", text.as_bytes()).unwrap();
    let schema = schema();
    let normalized = serde_json::to_value(&list[1]).unwrap();
    assert!(!schema.is_valid(&normalized));
    assert!(load("m.json", normalized.to_string().as_bytes()).is_err());
    // Without approval rules the two forms are one.
    for manifest in [&list[0], &list[2]] {
        assert!(schema.is_valid(&serde_json::to_value(manifest).unwrap()));
    }
}
