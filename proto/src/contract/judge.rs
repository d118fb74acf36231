//! Did a case see what it expected? A pure comparison; must not know how the case was played.
use serde::Serialize;
use serde_json::{Map, Value};

use super::diff::{Difference, differences};
use super::{Case, Ending, Observed, SeenPlan, SeenUndo};
use crate::event::v1::Finding;
use crate::run::PlanAction;

/// The code of the finding that a duplicate gets.
const DUPLICATE: &str = "duplicate.call";

/// One thing that a case expected and did not see.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// The field of the case, like `expect_handle`; `tool` for the call itself.
    pub field: &'static str,
    /// A sentence without a full stop; it holds expected and got where there are no differences.
    pub message: String,
    /// The places where a value differs.
    pub differences: Vec<Difference>,
}

impl Failure {
    /// A failure in words alone.
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into(), differences: Vec::new() }
    }
}

/// Everything that the case expected and did not see; nothing: it passed.
pub fn judge(case: &Case, seen: &Observed) -> Vec<Failure> {
    let mut failures = Vec::new();
    match seen {
        Observed::Unprepared { tool, findings } => {
            let message =
                format!("expected that {tool} can be called before, got: refused, because {}", told(findings));
            failures.push(Failure::new("after", message));
        }
        Observed::Refused { findings, plan } => {
            failures.extend(refused(case, findings));
            failures.extend(planned(case, plan));
        }
        Observed::Allowed { plan, again, undo } => {
            if let Some(part) = &case.expect.blocked {
                let message = format!("expected that the call is refused because of {part:?}, got: allowed");
                failures.push(Failure::new("expect_blocked", message));
            }
            failures.extend(planned(case, plan));
            failures.extend(repeated(case, again.as_deref()));
            failures.extend(undone(case, plan, undo.as_deref()));
        }
    }
    failures
}

fn refused(case: &Case, findings: &[Finding]) -> Option<Failure> {
    let Some(part) = &case.expect.blocked else {
        let message = format!("expected that the call is allowed, got: refused, because {}", told(findings));
        return Some(Failure::new("tool", message));
    };
    if findings.iter().any(|finding| finding.text.contains(part.as_str())) {
        return None;
    }
    let message = format!("expected a refusal because of {part:?}, got: refused, because {}", told(findings));
    Some(Failure::new("expect_blocked", message))
}

/// A call that failed leaves nothing to undo: that is checked without being asked for.
fn planned(case: &Case, plan: &SeenPlan) -> Option<Failure> {
    let by_itself = match (&case.ending, &case.expect.blocked) {
        (Ending::Fails(_), None) => Some(PlanAction::Skip),
        (Ending::Fails(_) | Ending::Succeeds(_), _) => None,
    };
    let expected = case.expect.plan.or(by_itself)?;
    (plan.action != expected)
        .then(|| Failure::new("expect_plan", format!("expected {}, got {}", expected.as_str(), plan.words())))
}

fn repeated(case: &Case, again: Option<&[Finding]>) -> Option<Failure> {
    let expected = case.expect.duplicate?;
    let findings = again.unwrap_or_default();
    let is_duplicate = findings.iter().any(|finding| finding.code == DUPLICATE);
    if is_duplicate == expected {
        return None;
    }
    let wanted = if expected { "refused as a duplicate" } else { "no duplicate" };
    let got = if findings.is_empty() { "allowed".to_owned() } else { format!("refused, because {}", told(findings)) };
    Some(Failure::new("expect_duplicate", format!("expected that the same call again is {wanted}, got: {got}")))
}

fn undone(case: &Case, plan: &SeenPlan, undo: Option<&SeenUndo>) -> Vec<Failure> {
    let expect = &case.expect;
    let inverse = undo.and_then(|undo| undo.inverse.as_ref()).map(|(tool, args)| (tool.as_str(), args));
    let read_back = undo.and_then(|undo| undo.read_back.as_ref()).map(|(tool, args)| (tool.as_str(), args));
    let why = || match undo {
        // Where the undo is not run, the plan says why.
        None => format!("the plan is {}", plan.words()),
        Some(undo) => undo.reason.clone(),
    };
    let called = |field, what, expected: &Option<Map<String, Value>>, got: Option<(&str, &Value)>| {
        let expected = Value::Object(expected.clone()?);
        let Some((tool, args)) = got else {
            let message = format!("expected that {what} is called with {expected}, got: no call, {}", why());
            return Some(Failure::new(field, message));
        };
        let differences = differences(&expected, args);
        let message = format!("the arguments of {what} {tool} differ");
        (!differences.is_empty()).then_some(Failure { field, message, differences })
    };
    let mut failures = Vec::new();
    failures.extend(called("expect_handle", "the undo", &expect.handle, inverse));
    failures.extend(called("expect_verification", "the read-back", &expect.verification, read_back));
    if let Some((_, expected)) = expect.verified {
        failures.extend(verified(expected, undo, &why()));
    }
    failures
}

fn verified(expected: bool, undo: Option<&SeenUndo>, why: &str) -> Option<Failure> {
    let words = |accepted| if accepted { "accepted" } else { "not accepted" };
    let got = match undo.and_then(|undo| undo.verified) {
        Some(got) if got == expected => return None,
        Some(got) => words(got).to_owned(),
        None => format!("no read-back, {why}"),
    };
    let message = format!("expected that `verify_with` is {}, got: {got}", words(expected));
    let differences = undo.and_then(|undo| undo.mismatch.clone()).into_iter().collect();
    Some(Failure { field: "expect_verified", message, differences })
}

fn told(findings: &[Finding]) -> String {
    findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("; ")
}

impl SeenPlan {
    fn words(&self) -> String {
        let action = self.action.as_str();
        self.reason.as_ref().map_or(action.to_owned(), |reason| format!("{action} ({reason})"))
    }
}
