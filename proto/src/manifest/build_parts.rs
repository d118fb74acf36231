//! The objects inside a manifest, each read with its defaults and its own rules. Must not know the top level.
use std::collections::{BTreeMap, BTreeSet};

use super::diagnostic::{Code, Report, quoted};
use super::expect::Expectations;
use super::model::{
    Approval, ApprovalRules, ArgumentMap, Audit, BlastRadius, Compensation, CompensationKind, EvidenceExport,
    Idempotency, IdempotencyScope, OnTimeout, Retry, Risk, Verification,
};
use super::node::Kind;
use super::path::ValuePath;
use super::reference::Reference;
use super::template::KeyTemplate;
use super::walk::{Field, Object};
use crate::ids::ToolName;

const REFERENCE_HINT: &str = "references look like $args.id or $result.charge_id";
const RETENTION_DAYS_MAX: u32 = 36_500;

/// A word, or an object with rules.
pub(super) fn approval(field: &Field<'_>, report: &mut Report) -> Option<Approval> {
    if let Kind::Map(_) = field.node.kind {
        let mut object = Object::open(field, report, "an object")?;
        let required = object.read("required", report, Field::boolean);
        let rules = rules(&mut object, "timeout", report);
        object.finish(report);
        return Some(if required == Some(false) { Approval::Never } else { Approval::Always(rules) });
    }
    if let Kind::Text(_) = field.node.kind {
        let words = [("never", false), ("always", true)];
        let always = field.choice(report, &words)?;
        return Some(if always { Approval::Always(ApprovalRules::default()) } else { Approval::Never });
    }
    field.wrong_type(report, "never, always or an object with rules");
    None
}

/// The two fields of the normalized form.
pub(super) fn normalized_approval(object: &mut Object<'_>, report: &mut Report) -> Option<Approval> {
    let words = [("never", false), ("always", true)];
    let always = object.need("approval", report, |field, report| field.choice(report, &words))?;
    let rules = object.read("approval_rules", report, |field, report| {
        let mut object = Object::open(field, report, "an object")?;
        let rules = rules(&mut object, "timeout_ms", report);
        object.finish(report);
        Some(rules)
    });
    Some(if always { Approval::Always(rules.unwrap_or_default()) } else { Approval::Never })
}

fn rules(object: &mut Object<'_>, timeout: &'static str, report: &mut Report) -> ApprovalRules {
    let texts = |field: &Field<'_>, report: &mut Report| field.list(report, Field::text);
    let quorum_field = object.optional("quorum");
    let quorum = quorum_field.as_ref().and_then(|field| field.small(report, 1, 10));
    let roles_field = object.optional("roles");
    let roles = roles_field.as_ref().and_then(|field| texts(field, report));
    let roles_given = match &roles_field {
        None => false,
        // Roles that could not be read were reported; whether the quorum fits them cannot be said.
        Some(field) => roles.is_none() || field.children().next().is_some(),
    };
    if let Some(field) = quorum_field
        && let Some(quorum) = quorum
        && quorum > 1
        && !roles_given
        && report.asks_rules()
    {
        let message = format!("a quorum of {quorum} needs roles");
        field.wrong_hint(report, Code::QuorumNeedsRoles, message, "say in `roles` who may approve");
    }
    let on_timeout = object.read("on_timeout", report, |field, report| field.choice(report, OnTimeout::WORDS));
    ApprovalRules {
        roles: roles.unwrap_or_default(),
        quorum: quorum.unwrap_or(1),
        timeout_ms: object.read(timeout, report, |field, report| field.duration(report, 1)),
        on_timeout: on_timeout.unwrap_or(OnTimeout::Deny),
        escalate_to: object.read("escalate_to", report, texts).unwrap_or_default(),
    }
}

pub(super) fn compensation(field: &Field<'_>, report: &mut Report) -> Option<Compensation> {
    let mut object = Object::open(field, report, "an object")?;
    let tool = object.need("tool", report, Field::tool_name);
    let argument_map = object.read("argument_map", report, arguments).unwrap_or_default();
    let kind = object.read("kind", report, |field, report| field.choice(report, CompensationKind::WORDS));
    let kind = kind.unwrap_or(CompensationKind::Compensation);
    let residue_field = object.optional("residue");
    let residue = residue_field.as_ref().and_then(|field| field.list(report, Field::text)).unwrap_or_default();
    if let Some(field) = residue_field
        && kind == CompensationKind::Inverse
        && field.children().next().is_some()
        && report.asks_rules()
    {
        let message = "an inverse restores the exact prior state, it cannot leave residue";
        field.wrong_hint(report, Code::InverseResidue, message, "remove the residue, or make the kind compensation");
    }
    let requires_approval = object.read("requires_approval", report, Field::boolean).unwrap_or(false);
    let timeout_ms = object.read("timeout_ms", report, |field, report| field.duration(report, 1));
    let verification_field = object.optional("verification");
    let verification = verification_field.as_ref().and_then(|field| verification(field, report));
    object.finish(report);
    Some(Compensation { tool: tool?, argument_map, kind, residue, requires_approval, timeout_ms, verification })
}

fn verification(field: &Field<'_>, report: &mut Report) -> Option<Verification> {
    let mut object = Object::open(field, report, "an object")?;
    let tool = object.need("tool", report, Field::tool_name);
    let arguments = object.read("arguments", report, arguments).unwrap_or_default();
    let expect = object.need("expect", report, expectations);
    let retries = object.read("retries", report, |field, report| field.small(report, 1, 10)).unwrap_or(3);
    let backoff_ms = object.read("backoff_ms", report, |field, report| field.duration(report, 0)).unwrap_or(1000);
    object.finish(report);
    Some(Verification { tool: tool?, arguments, expect: expect?, retries, backoff_ms })
}

/// Argument names, flat, with a reference each.
fn arguments(field: &Field<'_>, report: &mut Report) -> Option<ArgumentMap> {
    let mut map = ArgumentMap::new();
    for (entry, value) in field.entries(report, "an object of references")? {
        if report.is_full() {
            break;
        }
        let named = !entry.key.trim().is_empty() && !entry.key.chars().any(char::is_control);
        if !named && report.asks_rules() {
            let message = format!("must be the name of an argument, got {}", quoted(&entry.key));
            report.add(entry.pos, &value.path, Code::BadText, message);
        }
        if let Some(reference) = reference(&value, report) {
            map.insert(entry.key.to_string(), reference);
        }
    }
    Some(map)
}

fn reference(field: &Field<'_>, report: &mut Report) -> Option<Reference> {
    match field.node.kind {
        Kind::Text(_) => return field.parsed(report, Code::BadReference, REFERENCE_HINT),
        // It was reported as what it is.
        Kind::Bad => return None,
        Kind::Null | Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) | Kind::List(_) | Kind::Map(_) => {}
    }
    // The value itself is not repeated: a literal here may be anything, a secret included.
    let message = format!("must be a reference, got {}", field.node.type_name());
    field.wrong_hint(report, Code::BadReference, message, REFERENCE_HINT);
    None
}

fn expectations(field: &Field<'_>, report: &mut Report) -> Option<Expectations> {
    let entries = field.entries(report, "an object of paths and expected values")?;
    if entries.is_empty() {
        let message = "must expect at least one value";
        field.wrong_hint(report, Code::ExpectEmpty, message, "an undo that nothing is expected of is not verified");
        return None;
    }
    let mut expect = BTreeMap::new();
    for (entry, value) in entries {
        match entry.key.parse::<ValuePath>() {
            Ok(path) => {
                expect.insert(path, value.node.to_value());
            }
            Err(error) => report.add(entry.pos, &value.path, Code::BadPath, error.to_string()),
        }
    }
    Expectations::new(expect)
}

pub(super) fn risk(field: &Field<'_>, report: &mut Report) -> Option<Risk> {
    let mut object = Object::open(field, report, "an object")?;
    let risk = Risk {
        data_class: object.read("data_class", report, Field::text),
        blast_radius: object.read("blast_radius", report, |field, report| field.choice(report, BlastRadius::WORDS)),
        environment: object.read("environment", report, Field::text),
    };
    object.finish(report);
    Some(risk)
}

pub(super) fn retry(field: &Field<'_>, report: &mut Report) -> Option<Retry> {
    let mut object = Object::open(field, report, "an object")?;
    let Retry { attempts, base_ms, max_ms } = Retry::default();
    let wait = |field: &Field<'_>, report: &mut Report| field.duration(report, 0);
    let retry = Retry {
        attempts: object.read("attempts", report, |field, report| field.small(report, 1, 10)).unwrap_or(attempts),
        base_ms: object.read("base_ms", report, wait).unwrap_or(base_ms),
        max_ms: object.read("max_ms", report, wait).unwrap_or(max_ms),
    };
    object.finish(report);
    Some(retry)
}

pub(super) fn idempotency(field: &Field<'_>, report: &mut Report) -> Option<Idempotency> {
    const HINT: &str = "keys look like charge-{{args.order_id}}";
    let mut object = Object::open(field, report, "an object")?;
    let key: Option<KeyTemplate> = object.need("key", report, |field, report| {
        field.text(report)?;
        field.parsed(report, Code::BadTemplate, HINT)
    });
    let scope = object.read("scope", report, |field, report| field.choice(report, IdempotencyScope::WORDS));
    object.finish(report);
    Some(Idempotency { key: key?, scope: scope.unwrap_or(IdempotencyScope::Run) })
}

pub(super) fn audit(field: &Field<'_>, report: &mut Report) -> Option<Audit> {
    let mut object = Object::open(field, report, "an object")?;
    let days = |field: &Field<'_>, report: &mut Report| field.small(report, 1, RETENTION_DAYS_MAX);
    let export = |field: &Field<'_>, report: &mut Report| field.choice(report, EvidenceExport::WORDS);
    let audit = Audit {
        retention_days: object.read("retention_days", report, days),
        evidence_export: object.read("evidence_export", report, export),
        redaction: object.read("redaction", report, |field, report| field.list(report, reference)).unwrap_or_default(),
    };
    object.finish(report);
    Some(audit)
}

/// Names, or objects of a name and the status `succeeded`; each tool once, in whichever form.
pub(super) fn requires(field: &Field<'_>, report: &mut Report) -> Option<Vec<ToolName>> {
    let mut tools: Vec<ToolName> = Vec::new();
    let mut seen = BTreeSet::new();
    field.need_list(report)?;
    for item in field.children() {
        if report.is_full() {
            break;
        }
        let Some(tool) = required_tool(&item, report) else { continue };
        if !seen.insert(tool.clone()) && report.asks_rules() {
            let message = format!("the tool {} is required twice", quoted(tool.as_str()));
            item.wrong_hint(report, Code::DuplicateRequire, message, "keep one of them");
        }
        tools.push(tool);
    }
    Some(tools)
}

fn required_tool(item: &Field<'_>, report: &mut Report) -> Option<ToolName> {
    match item.node.kind {
        Kind::Text(_) => item.tool_name(report),
        Kind::Map(_) => {
            let mut object = Object::open(item, report, "an object")?;
            let tool = object.need("tool", report, Field::tool_name);
            let _succeeded = object.read("status", report, |field, report| field.choice(report, &[("succeeded", ())]));
            object.finish(report);
            tool
        }
        Kind::Null | Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) | Kind::Bad | Kind::List(_) => {
            item.wrong_type(report, "a tool name or an object with `tool`");
            None
        }
    }
}
