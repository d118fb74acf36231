//! What a case needs before it can be played: the manifests it touches, the calls that come first and arguments for them.
//! Must not call anything.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reversi_proto::contract::{Before, Case};
use reversi_proto::ids::ToolName;
use reversi_proto::manifest::{Expectations, KeyTemplate, Manifest, ManifestSet, Segment, ValuePath, same_value};
use serde_json::{Map, Value};

/// The manifests that can play a part: of ten thousand a case touches a handful, and journals those alone.
pub(super) fn touched<'m>(manifests: &'m ManifestSet, case: &Case) -> Vec<&'m Arc<Manifest>> {
    let before = case.after.iter().flatten().map(|before| &before.tool);
    let mut open: Vec<ToolName> = before.chain([&case.tool]).cloned().collect();
    let mut found = BTreeMap::new();
    while let Some(tool) = open.pop() {
        let Some(manifest) = manifests.get(&tool) else { continue };
        if found.insert(tool, manifest).is_some() {
            continue;
        }
        open.extend(manifest.requires.iter().cloned());
        if let Some(compensation) = &manifest.compensation {
            open.push(compensation.tool.clone());
            open.extend(compensation.verification.iter().map(|verification| verification.tool.clone()));
        }
    }
    found.into_values().collect()
}

/// The calls that come first, in an order in which each has what it requires; in a cycle of requirements some call has
/// not, and will be refused. Those that a case lists are made in its order.
pub(super) fn before(manifests: &ManifestSet, case: &Case) -> Vec<Before> {
    let mut order = Order { manifests, done: BTreeSet::new(), calls: Vec::new() };
    match &case.after {
        Some(listed) => {
            for before in listed {
                order.requirements(&before.tool);
                order.done.insert(before.tool.clone());
                order.calls.push(before.clone());
            }
        }
        None => order.requirements(&case.tool),
    }
    let mut calls = order.calls;
    for (number, call) in calls.iter_mut().enumerate() {
        if call.args.is_none() {
            let template = manifests.get(&call.tool).and_then(|manifest| manifest.idempotency.as_ref());
            call.args = template.map(|idempotency| arguments(&idempotency.key, number));
        }
    }
    calls
}

struct Order<'m> {
    manifests: &'m ManifestSet,
    done: BTreeSet<ToolName>,
    calls: Vec<Before>,
}

impl Order<'_> {
    /// Everything that the tool requires, and what that requires, before it. A stack of its own: chains can be long.
    fn requirements(&mut self, tool: &ToolName) {
        let required = |tool: &ToolName| self.manifests.get(tool).map(|m| m.requires.clone()).unwrap_or_default();
        let mut entered = BTreeSet::from([tool.clone()]);
        let mut stack = vec![(None, required(tool).into_iter())];
        while let Some((of, rest)) = stack.last_mut() {
            match rest.next() {
                Some(next) if !self.done.contains(&next) && entered.insert(next.clone()) => {
                    let its = required(&next).into_iter();
                    stack.push((Some(next), its));
                }
                Some(_) => {}
                None => {
                    if let Some(tool) = of.take() {
                        self.done.insert(tool.clone());
                        self.calls.push(Before { tool, args: None, result: None });
                    }
                    stack.pop();
                }
            }
        }
    }
}

/// Arguments for which the key can be rendered, other ones for each call.
fn arguments(template: &KeyTemplate, number: usize) -> Map<String, Value> {
    let mut args = Value::Object(Map::new());
    for path in template.fields() {
        put(&mut args, path.segments(), &Value::String(format!("call-{number}")));
    }
    match args {
        Value::Object(args) => args,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// An answer that is as expected, if any can be.
pub(super) fn satisfying(expect: &Expectations) -> Value {
    let mut answer = Value::Object(Map::new());
    // A path comes before those below it.
    for (path, value) in expect.iter() {
        if !found_as(&answer, path, value) {
            put(&mut answer, path.segments(), value);
        }
    }
    answer
}

fn found_as(answer: &Value, path: &ValuePath, value: &Value) -> bool {
    path.resolve(answer).is_some_and(|found| same_value(found, value))
}

/// Puts a value at a path. Indices become names of fields: a path finds those as well.
fn put(place: &mut Value, segments: &[Segment], value: &Value) {
    let Some((first, rest)) = segments.split_first() else {
        *place = value.clone();
        return;
    };
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    if let Value::Object(members) = place {
        put(members.entry(first.as_str()).or_insert(Value::Null), rest, value);
    }
}

#[cfg(test)]
mod tests {
    use reversi_proto::{contract, manifest};

    use super::*;

    const MANIFESTS: &str = r#"
- {tool: a, effect: read_only, permission: p}
- {tool: b, effect: idempotent, permission: p, requires: [a], idempotency: {key: "{{args.x.0.id}}-{{args.y}}"}}
- {tool: c, effect: idempotent, permission: p, requires: [a, b]}
- {tool: d, effect: idempotent, permission: p, requires: [c, b]}
- {tool: r1, effect: idempotent, permission: p, requires: [r2]}
- {tool: r2, effect: idempotent, permission: p, requires: [r1]}
"#;

    fn set() -> ManifestSet {
        let manifests = manifest::load("m.yaml", MANIFESTS.as_bytes()).unwrap();
        ManifestSet::new(manifests.into_iter().map(|manifest| (String::new(), manifest)).collect()).unwrap()
    }

    fn order(case: &str) -> Vec<String> {
        let case = contract::load("c.yaml", case.as_bytes()).unwrap().remove(0);
        before(&set(), &case).iter().map(|before| before.tool.to_string()).collect()
    }

    #[test]
    fn what_is_required_comes_first_and_once() {
        assert_eq!(order("{name: n, tool: d}"), ["a", "b", "c"]);
        assert_eq!(order("{name: n, tool: d, after: [d, b]}"), ["a", "b", "c", "d", "b"]);
        assert!(order("{name: n, tool: d, after: []}").is_empty());
        assert_eq!(order("{name: n, tool: r1}"), ["r2"], "a cycle ends");
        assert!(order("{name: n, tool: unknown}").is_empty());
    }

    #[test]
    fn only_what_can_play_a_part_is_touched() {
        let case = contract::load("c.yaml", b"{name: n, tool: c}").unwrap().remove(0);
        let tools: Vec<String> = touched(&set(), &case).iter().map(|manifest| manifest.tool.to_string()).collect();
        assert_eq!(tools, ["a", "b", "c"]);
    }

    #[test]
    fn made_up_arguments_render_the_key_and_differ() {
        let template: KeyTemplate = "{{args.x.0.id}}-{{args.y}}".parse().unwrap();
        let key = |number| template.render(&Value::Object(arguments(&template, number))).unwrap();
        assert_ne!(key(1), key(2));
    }

    #[test]
    fn an_answer_as_expected_is_made_up() {
        for expect in ["{ok: true}", "{a.b: 1, a.c: null, d.0.e: [1]}", "{a: {b: 1}, a.b: 1}", "{a: [7], a.0: 7}"] {
            let text = format!(
                "[{{tool: t, effect: reversible, permission: p, compensation: {{tool: u, argument_map: {{}}, \
                 verification: {{tool: v, arguments: {{}}, expect: {expect}}}}}}}]"
            );
            let manifest = manifest::load("m.yaml", text.as_bytes()).unwrap().remove(0);
            let verification = manifest.compensation.as_ref().and_then(|it| it.verification.as_ref()).unwrap();
            let answer = satisfying(&verification.expect);
            assert_eq!(verification.expect.first_mismatch(&answer), None, "{expect}: {answer}");
        }
    }
}
