//! What lint has to say, where, and what to do about it. Knows no rule: it only collects, orders and counts.
use std::fmt;

use serde::{Serialize, Serializer};

use crate::manifest::{Manifest, SUGGESTION_WORK_MAX, nearest};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident, $level:ident;)*) => {
        /// The stable code of a finding. `docs/lint.md` has a section for each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The code as text, `L` and three digits.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// How bad it is; the same for all findings of a code.
            pub fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)* }
            }
        }
    };
}

codes! {
    /// A mutating tool has no description.
    L010, Warning;
    /// A mutating tool has no owner.
    L011, Warning;
    /// A mutating tool has no `risk.data_class`.
    L012, Warning;
    /// Compensable but no `residue` declared.
    L013, Warning;
    /// The compensation tool is not idempotent, but rollback retries it.
    L014, Warning;
    /// Irreversible with no `blast_radius` and no approvers.
    L015, Warning;
    /// The undo is not verified.
    L016, Info;
    /// `argument_map` or the verification reads an argument that the upstream's input schema lacks.
    L017, Error;
    /// A read-only tool shares a permission with tools that change things.
    L019, Warning;
    /// The idempotency key uses an argument that the upstream's input schema lacks.
    L020, Error;
    /// Irreversible without `audit.evidence_export: required`.
    L021, Info;
    /// A mutating tool has no `timeout_ms`.
    L022, Info;
    /// `requires` forms a cycle.
    L023, Error;
    /// A draft manifest.
    L024, Warning;
    /// No `schema_hash` although the upstream's schema is known.
    L027, Info;
    /// Declared reversible but the compensation lists residue.
    L030, Warning;
    /// Declared compensable but the compensation is an exact inverse.
    L031, Warning;
    /// The compensation takes no arguments from the call.
    L032, Info;
    /// A redaction path names an argument that the upstream's input schema lacks.
    L033, Warning;
    /// No upstream tool has this name.
    L034, Warning;
    /// The upstream offers a tool with no manifest.
    L035, Warning;
    /// A redacted value that the undo or its read-back needs.
    L101, Warning;
    /// The undo is an irreversible tool.
    L102, Warning;
    /// A literal that looks like a secret.
    L103, Warning;
    /// The undo is a read-only tool.
    L104, Warning;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It will go wrong.
    Error,
    /// It is unsafe, incomplete or contradictory.
    Warning,
    /// Good to know.
    Info,
}

impl Level {
    /// The word in front of a finding.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// One finding. Findings are ordered by tool, then by code, then by place, whatever the order of the files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Whose manifest; for L035 the upstream's tool (quoted, where manifests could not name it).
    pub tool: String,
    /// What kind of finding.
    pub code: Code,
    /// The code's level.
    pub level: Level,
    /// The file as it was named to the loader; empty where there is none.
    pub source: String,
    /// Line from 1; 0 where there is none.
    pub line: u32,
    /// Column from 1, in characters; 0 where there is none.
    pub column: u32,
    /// Where in the data, like `[2].compensation.tool`. What is missing is at the object that it is missing in.
    pub path: String,
    /// What it is, and why it matters.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, code, level, message, source: _, line: _, column: _, path: _, fix: _ } = self;
        write!(f, "{} {code} {tool}: {message}", level.as_str())
    }
}

/// How many findings of each level. Prints as the last line of lint, `0 errors, 2 warnings, 1 notes`: always plural.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Findings of level error.
    pub errors: usize,
    /// Findings of level warning.
    pub warnings: usize,
    /// Findings of level info.
    pub notes: usize,
}

impl Counts {
    /// Counts findings.
    pub fn of(findings: &[Finding]) -> Self {
        let mut counts = Self::default();
        for finding in findings {
            match finding.level {
                Level::Error => counts.errors += 1,
                Level::Warning => counts.warnings += 1,
                Level::Info => counts.notes += 1,
            }
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { errors, warnings, notes } = self;
        write!(f, "{errors} errors, {warnings} warnings, {notes} notes")
    }
}

/// Collects findings.
pub(super) struct Found {
    list: Vec<Finding>,
    /// What may still be spent on finding similar names.
    suggestion_work: usize,
}

impl Default for Found {
    fn default() -> Self {
        Self { list: Vec::new(), suggestion_work: SUGGESTION_WORK_MAX }
    }
}

impl Found {
    /// A finding about a field of a manifest; `field` is its path inside of the manifest, empty for all of it.
    pub(super) fn add(
        &mut self,
        manifest: &Manifest,
        code: Code,
        field: &str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let spot = manifest.places().spots.find(field);
        self.list.push(Finding {
            tool: manifest.tool.to_string(),
            code,
            level: code.level(),
            source: spot.source,
            line: spot.pos.line,
            column: spot.pos.column,
            path: spot.path,
            message: message.into(),
            fix: fix.into(),
        });
    }

    /// A finding about a tool that has no manifest.
    pub(super) fn add_foreign(&mut self, tool: String, code: Code, message: &str, fix: &str) {
        let (message, fix) = (message.to_owned(), fix.to_owned());
        let (source, path) = (String::new(), String::new());
        self.list.push(Finding { tool, code, level: code.level(), source, line: 0, column: 0, path, message, fix });
    }

    /// The known name that was probably meant.
    pub(super) fn suggest<'n>(&mut self, wrong: &str, known: &[&'n str]) -> Option<&'n str> {
        nearest(wrong, known.iter().copied(), &mut self.suggestion_work)
    }

    pub(super) fn finish(mut self) -> Vec<Finding> {
        self.list.sort_unstable();
        self.list
    }
}
