//! From bytes to cases, as strictly as manifests are read and by the same means: every mistake is reported with its
//! place. Must not know the manifests that the cases are about.
use serde_json::{Map, Value};

use super::{Before, Case, Ending, Expected};
use crate::manifest::Diagnostic;
use crate::manifest::diagnostic::{Code, Pos, Report};
use crate::manifest::load::documents;
use crate::manifest::node::{Kind, Node};
use crate::manifest::walk::{Field, Object, document_path, index_path};
use crate::run::PlanAction;

/// What a file of something else most likely lacks, all of it.
const TELLING: [&str; 6] = ["name", "tool", "args", "result", "fail", "expect_plan"];

/// What cannot be seen of a call that must be refused.
const AFTER_THE_CALL: [&str; 5] =
    ["expect_handle", "expect_verification", "verify_with", "expect_verified", "expect_duplicate"];

/// Reads the cases of one file: one object, an array of them, or several YAML documents of either kind. All mistakes of
/// the file are reported, in the order of the text.
pub fn load(file_name: &str, bytes: &[u8]) -> Result<Vec<Case>, Vec<Diagnostic>> {
    let mut report = Report::new(file_name);
    let documents = documents(file_name, bytes, &mut report).map(|documents| documents.nodes).unwrap_or_default();
    let mut cases = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        cases.extend(of_document(file_name, document, document_path(number), &mut report));
    }
    if cases.is_empty() && report.count() == 0 {
        let message = "the file holds no contract test";
        report.add_hint(Pos::default(), "", Code::Empty, message, "write at least one case, or remove the file");
    }
    report.finish().map(|()| cases)
}

fn of_document(source: &str, document: &Node, path: String, report: &mut Report) -> Vec<Case> {
    match &document.kind {
        // An empty document, as between two `---` or in a file of comments.
        Kind::Null => Vec::new(),
        Kind::List(items) => {
            let items = items.iter().enumerate().map(|(index, item)| Field::new(item, index_path(&path, index)));
            items.filter_map(|item| case(source, &item, report)).collect()
        }
        Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) | Kind::Bad | Kind::Text(_) | Kind::Map(_) => {
            case(source, &Field::new(document, path), report).into_iter().collect()
        }
    }
}

fn case(source: &str, field: &Field<'_>, report: &mut Report) -> Option<Case> {
    let before = report.count();
    let mut object = Object::open(field, report, "a contract test (an object with `name` and `tool`)")?;
    if TELLING.iter().all(|name| object.peek(name).is_none()) {
        let hint = "a case has `name` and `tool`; move other files out of tests/, or name the test files when you call";
        field.wrong_hint(report, Code::MissingField, "this is not a contract test", hint);
        return None;
    }
    let name = object.need("name", report, Field::text);
    let tool = object.need("tool", report, Field::tool_name);
    let args = object.read("args", report, members).unwrap_or_default();
    let ending = ending(&mut object, report);
    let after = object.read("after", report, |field, report| field.list(report, earlier));
    let expect = expected(&mut object, report);
    object.finish(report);
    if report.count() > before {
        return None;
    }
    let line = field.node.pos.line;
    Some(Case { source: source.to_owned(), line, name: name?, tool: tool?, args, ending, after, expect })
}

/// Without `result` and `fail` the call succeeds and returns nothing.
fn ending(object: &mut Object<'_>, report: &mut Report) -> Ending {
    let result = object.read("result", report, |field, _| Some(field.node.to_value()));
    let fails = object.optional("fail");
    match fails {
        None => Ending::Succeeds(result),
        Some(field) => {
            if result.is_some() {
                let message = "`result` and `fail` exclude each other: the call returns something, or it fails";
                field.wrong_hint(report, Code::UnknownField, message, "keep one of them");
            }
            Ending::Fails(field.text(report).unwrap_or_default())
        }
    }
}

fn expected(object: &mut Object<'_>, report: &mut Report) -> Expected {
    let with = object.read("verify_with", report, |field, _| Some(field.node.to_value()));
    let accepted = object.read("expect_verified", report, Field::boolean);
    let expect = Expected {
        plan: object.read("expect_plan", report, |field, report| field.choice(report, PlanAction::WORDS)),
        handle: object.read("expect_handle", report, members),
        verification: object.read("expect_verification", report, members),
        verified: with.zip(accepted),
        duplicate: object.read("expect_duplicate", report, Field::boolean),
        blocked: object.read("expect_blocked", report, Field::text),
    };
    let both = [("verify_with", "expect_verified"), ("expect_verified", "verify_with")];
    for (name, other) in both {
        if let (Some(field), None) = (object.peek(name), object.peek(other)) {
            let message = format!("`{name}` needs `{other}` beside it");
            field.wrong_hint(report, Code::MissingField, message, "say what is read back, and whether that is good");
        }
    }
    if object.peek("expect_blocked").is_some() {
        for field in AFTER_THE_CALL.iter().filter_map(|name| object.peek(name)) {
            let message = "a call that must be refused is never made, so this can't be seen";
            field.wrong_hint(report, Code::UnknownField, message, "write a case of its own for it");
        }
    }
    expect
}

/// A tool's name, or an object with its call.
fn earlier(item: &Field<'_>, report: &mut Report) -> Option<Before> {
    match item.node.kind {
        Kind::Text(_) => Some(Before { tool: item.tool_name(report)?, args: None, result: None }),
        Kind::Map(_) => {
            let mut object = Object::open(item, report, "an object")?;
            let tool = object.need("tool", report, Field::tool_name);
            let args = object.read("args", report, members);
            let result = object.read("result", report, |field, _| Some(field.node.to_value()));
            object.finish(report);
            Some(Before { tool: tool?, args, result })
        }
        Kind::Null | Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) | Kind::Bad | Kind::List(_) => {
            item.wrong_type(report, "a tool name or an object with `tool`");
            None
        }
    }
}

fn members(field: &Field<'_>, report: &mut Report) -> Option<Map<String, Value>> {
    match field.node.to_value() {
        Value::Object(members) => Some(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            field.wrong_type(report, "an object");
            None
        }
    }
}
