//! From nodes to manifests: the fields of the top level and the rules that join several of them. Everything wrong is
//! reported; a manifest is made only if nothing was.
use super::build_parts as parts;
use super::diagnostic::{Code, Pos, Report};
use super::model::{
    Approval, ApprovalRules, Compensation, Effect, Fields, Idempotency, Manifest, Named, Places, Retry, Status,
};
use super::node::{Kind, Node, WHOLE_MAX};
use super::places::Spots;
use super::walk::{Field, Object, document_path, index_path};
use crate::ids::ToolName;

/// Which of the two forms is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// What people write: `approval` may be an object.
    Authored,
    /// What we wrote ourselves: `approval` is a word, its rules stand in `approval_rules`.
    Normalized,
}

/// The manifests of all documents, the right ones and what is known of the others.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) broken: Vec<Named>,
    /// One has mistakes and does not say whose it is.
    pub(crate) unnamed: bool,
}

/// Reads the manifests of all documents.
pub(crate) fn manifests(documents: &[Node], form: Form, report: &mut Report) -> Found {
    let mut found = Found::default();
    for (number, document) in documents.iter().enumerate() {
        let path = document_path(number);
        match &document.kind {
            // An empty document, as between two `---` or in a file of comments.
            Kind::Null => {}
            Kind::List(items) if form == Form::Authored => {
                for (index, item) in items.iter().enumerate() {
                    if report.is_full() {
                        found.unnamed = true;
                        break;
                    }
                    found.manifest(&Field::new(item, index_path(&path, index)), form, report);
                }
            }
            Kind::Bool(_)
            | Kind::Whole(_)
            | Kind::Fraction(_)
            | Kind::Bad
            | Kind::Text(_)
            | Kind::List(_)
            | Kind::Map(_) => {
                found.manifest(&Field::new(document, path), form, report);
            }
        }
    }
    found
}

impl Found {
    fn manifest(&mut self, field: &Field<'_>, form: Form, report: &mut Report) {
        let before = report.count();
        let Some(mut object) = Object::open(field, report, "a manifest (an object)") else {
            self.unnamed = true;
            return;
        };
        let draft = Draft::read(&mut object, form, report);
        object.finish(report);
        if report.asks_rules() {
            draft.check(&object, report);
        }
        let tool = draft.tool.clone();
        if report.count() == before
            && let Some(fields) = draft.fields()
        {
            match Manifest::seal(fields, places(&object, field, report.source())) {
                Ok(manifest) => return self.manifests.push(manifest),
                Err(error) => {
                    field.wrong(report, Code::NotCanonical, format!("the manifest has no canonical form: {error}"));
                }
            }
        }
        match (tool, object.peek("tool")) {
            (Some(tool), Some(Field { node, path })) => self.broken.push(Named { tool, path, pos: node.pos }),
            (None, _) | (_, None) => self.unnamed = true,
        }
    }
}

/// The fields as far as they could be read; `None` is absent or reported.
struct Draft {
    tool: Option<ToolName>,
    effect: Option<Effect>,
    permission: Option<String>,
    approval: Option<Approval>,
    compensation: Option<Compensation>,
    retry: Option<Retry>,
    idempotency: Option<Idempotency>,
    requires: Vec<ToolName>,
    replaced_by: Option<ToolName>,
    plain: Plain,
}

/// The fields that no rule joins with others.
struct Plain {
    description: Option<String>,
    version: u64,
    status: Status,
    owner: Option<String>,
    oncall: Option<String>,
    risk: super::model::Risk,
    timeout_ms: Option<u64>,
    audit: super::model::Audit,
    schema_hash: Option<String>,
}

impl Draft {
    fn read(object: &mut Object<'_>, form: Form, report: &mut Report) -> Self {
        Self {
            tool: object.need("tool", report, Field::tool_name),
            effect: object.need("effect", report, |field, report| field.choice(report, Effect::WORDS)),
            permission: object.need("permission", report, Field::word),
            approval: match form {
                Form::Authored => object.read("approval", report, parts::approval),
                Form::Normalized => parts::normalized_approval(object, report),
            },
            compensation: object.read("compensation", report, parts::compensation),
            retry: object.read("retry", report, parts::retry),
            idempotency: object.read("idempotency", report, parts::idempotency),
            requires: object.read("requires", report, parts::requires).unwrap_or_default(),
            replaced_by: object.read("replaced_by", report, Field::tool_name),
            plain: Plain::read(object, report),
        }
    }

    /// The rules that join fields. Each is skipped where a part of it could not be read: that was reported.
    fn check(&self, object: &Object<'_>, report: &mut Report) {
        if let Some(effect) = self.effect {
            check_effect(effect, object, report);
            self.check_approval(effect, object, report);
        }
        if let Some(tool) = &self.tool {
            check_self(tool, object, report);
        }
    }

    fn check_approval(&self, effect: Effect, object: &Object<'_>, report: &mut Report) {
        let Some(field) = object.peek("approval") else { return };
        if effect == Effect::Irreversible && self.approval == Some(Approval::Never) {
            let message = "an irreversible tool always needs approval, it cannot be never";
            field.wrong_hint(report, Code::ApprovalForced, message, "remove the field, or say who approves");
        }
    }

    /// All fields with their defaults; `None` only if something is missing, which was reported.
    fn fields(self) -> Option<Fields> {
        let Self { tool, effect, permission, approval, compensation, retry, idempotency, requires, replaced_by, plain } =
            self;
        let Plain { description, version, status, owner, oncall, risk, timeout_ms, audit, schema_hash } = plain;
        let effect = effect?;
        let approval = approval.unwrap_or_else(|| match effect {
            Effect::Irreversible => Approval::Always(ApprovalRules::default()),
            Effect::ReadOnly | Effect::Idempotent | Effect::Reversible | Effect::Compensable => Approval::Never,
        });
        Some(Fields {
            tool: tool?,
            description,
            effect,
            permission: permission?,
            approval,
            compensation,
            requires,
            version,
            status,
            replaced_by,
            owner,
            oncall,
            risk,
            timeout_ms,
            retry,
            idempotency,
            audit,
            schema_hash,
        })
    }
}

impl Plain {
    fn read(object: &mut Object<'_>, report: &mut Report) -> Self {
        let version_max = WHOLE_MAX.unsigned_abs();
        let version = object.read("version", report, |field, report| field.whole(report, 1..=version_max));
        let status = object.read("status", report, |field, report| field.choice(report, Status::WORDS));
        Self {
            description: object.read("description", report, Field::text),
            version: version.unwrap_or(1),
            status: status.unwrap_or(Status::Approved),
            owner: object.read("owner", report, Field::text),
            oncall: object.read("oncall", report, Field::text),
            risk: object.read("risk", report, parts::risk).unwrap_or_default(),
            timeout_ms: object.read("timeout_ms", report, |field, report| field.duration(report, 1)),
            audit: object.read("audit", report, parts::audit).unwrap_or_default(),
            schema_hash: object.read("schema_hash", report, Field::word),
        }
    }
}

/// That a tool does not name itself. Reads the nodes and not what was made of them: an object with another mistake has
/// made nothing.
fn check_self(tool: &ToolName, object: &Object<'_>, report: &mut Report) {
    let is_self = |field: &Field<'_>| matches!(&field.node.kind, Kind::Text(text) if **text == *tool.as_str());
    if let Some(field) = object.peek("compensation").and_then(|field| field.inside("tool"))
        && is_self(&field)
    {
        field.wrong(report, Code::SelfReference, "a tool cannot compensate itself");
    }
    let requires = object.peek("requires");
    for item in requires.iter().flat_map(Field::children) {
        let field = item.inside("tool").unwrap_or(item);
        if is_self(&field) && !report.is_full() {
            field.wrong(report, Code::SelfReference, "a tool cannot require itself");
        }
    }
    if let Some(field) = object.peek("replaced_by")
        && is_self(&field)
    {
        field.wrong(report, Code::SelfReference, "a tool cannot replace itself");
    }
}

/// Which fields an effect allows and demands.
fn check_effect(effect: Effect, object: &Object<'_>, report: &mut Report) {
    match object.peek("compensation") {
        None if effect.has_undo() => {
            let message = format!("a tool that is {effect} must declare its compensation");
            let hint = "say which tool undoes it, or declare it irreversible";
            report.add_hint(object.pos(), object.path(), Code::CompensationMissing, message, hint);
        }
        Some(field) if !effect.has_undo() => {
            let message = format!("a tool that is {effect} cannot have a compensation");
            let hint = "only reversible and compensable tools have one";
            field.wrong_hint(report, Code::CompensationForbidden, message, hint);
        }
        None | Some(_) => {}
    }
    if let Some(field) = object.peek("retry")
        && !effect.may_retry()
    {
        let message = format!("a tool that is {effect} cannot be retried: that could repeat its effect");
        field.wrong_hint(report, Code::RetryForbidden, message, "only read_only and idempotent tools can");
    }
}

fn required_place(item: &Field<'_>) -> (Pos, &'static str) {
    match item.inside("tool") {
        Some(tool) => (tool.node.pos, ".tool"),
        None => (item.node.pos, ""),
    }
}

/// Where the names of other tools, and all fields, stand.
fn places(object: &Object<'_>, field: &Field<'_>, source: &str) -> Places {
    let pos = |field: Option<Field<'_>>| field.map(|field| field.node.pos).unwrap_or_default();
    let compensation = || object.peek("compensation");
    let verification = || compensation().and_then(|field| field.inside("verification"));
    let requires = object.peek("requires");
    Places {
        path: field.path.clone(),
        tool: pos(object.peek("tool")),
        compensation_tool: pos(compensation().and_then(|field| field.inside("tool"))),
        verification_tool: pos(verification().and_then(|field| field.inside("tool"))),
        replaced_by: pos(object.peek("replaced_by")),
        requires: requires.iter().flat_map(Field::children).map(|item| required_place(&item)).collect(),
        spots: Spots::of(field, source),
    }
}
