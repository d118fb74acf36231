//! What is wrong with a manifest file, and where. Knows no rule: it only collects and prints.
use std::fmt;

use serde::{Serialize, Serializer};

/// After this many findings in one file the rest is only counted, so that a hostile file cannot fill the memory.
pub const DIAGNOSTICS_MAX: usize = 1000;

/// Suggestions cost a comparison with every known name, so only the first findings of a file get one.
const SUGGESTIONS_MAX: usize = 50;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The stable code of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The code as text, `manifest.<what>`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// A file or folder cannot be read: missing, forbidden, no regular file, links in a circle. Found by whoever reads
    /// files.
    Unreadable = "manifest.unreadable",
    /// A folder holds no manifest file. Found by whoever reads files.
    NoFiles = "manifest.no_files",
    /// The file is larger than the limit.
    FileSize = "manifest.file_size",
    /// The bytes are not plain UTF-8 text.
    Encoding = "manifest.encoding",
    /// The text is neither YAML nor JSON.
    Syntax = "manifest.syntax",
    /// A `.json` file is not strict JSON.
    StrictJson = "manifest.strict_json",
    /// Collections are nested too deeply.
    Depth = "manifest.depth",
    /// Aliases would blow the document up, or point into themselves.
    Alias = "manifest.alias",
    /// A YAML feature that manifests do not use: tags, other YAML versions.
    YamlFeature = "manifest.yaml_feature",
    /// A key stands twice in one object.
    DuplicateKey = "manifest.duplicate_key",
    /// The key of an object is not text.
    KeyNotText = "manifest.key_not_text",
    /// A number that canonical JSON cannot hold exactly.
    NumberRange = "manifest.number_range",
    /// The file holds no manifest.
    Empty = "manifest.empty",
    /// A field that manifests do not have.
    UnknownField = "manifest.unknown_field",
    /// A required field is missing.
    MissingField = "manifest.missing_field",
    /// A value of the wrong type.
    WrongType = "manifest.wrong_type",
    /// A value that is none of the allowed words.
    UnknownValue = "manifest.unknown_value",
    /// A number or duration outside its limits.
    OutOfRange = "manifest.out_of_range",
    /// A text that does not follow its rule (names, blank texts, white space).
    BadText = "manifest.bad_text",
    /// Not a duration.
    BadDuration = "manifest.bad_duration",
    /// Not a reference such as `$args.id`.
    BadReference = "manifest.bad_reference",
    /// Not a dotted path such as `items.0.id`.
    BadPath = "manifest.bad_path",
    /// Not an idempotency key template.
    BadTemplate = "manifest.bad_template",
    /// A reversible or compensable tool without a compensation.
    CompensationMissing = "manifest.compensation_missing",
    /// A compensation on a tool that cannot have one.
    CompensationForbidden = "manifest.compensation_forbidden",
    /// An irreversible tool that wants no approval.
    ApprovalForced = "manifest.approval_forced",
    /// A quorum above 1 without roles.
    QuorumNeedsRoles = "manifest.quorum_needs_roles",
    /// A tool that requires, compensates or replaces itself.
    SelfReference = "manifest.self_reference",
    /// A tool that is required twice.
    DuplicateRequire = "manifest.duplicate_require",
    /// Residue on an exact inverse.
    InverseResidue = "manifest.inverse_residue",
    /// Retries on a tool whose effect they could repeat.
    RetryForbidden = "manifest.retry_forbidden",
    /// A verification that expects nothing.
    ExpectEmpty = "manifest.expect_empty",
    /// The normalized manifest has no canonical form.
    NotCanonical = "manifest.not_canonical",
    /// Two manifests of one tool.
    DuplicateTool = "manifest.duplicate_tool",
    /// A manifest names a tool that has none.
    UnknownTool = "manifest.unknown_tool",
    /// The verification tool is not read-only.
    VerificationNotReadOnly = "manifest.verification_not_read_only",
    /// More findings than are shown.
    TooMany = "manifest.too_many_errors",
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

/// A place in a text: line and column from 1 (columns count characters). 0 means unknown: the value came from no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Pos {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file as it was named to the loader.
    pub source: String,
    /// Line from 1; 0 where there is none.
    pub line: u32,
    /// Column from 1, in characters; 0 where there is none.
    pub column: u32,
    /// Where in the data, like `[2].compensation.verification.expect`; empty for the whole file.
    pub path: String,
    /// What kind of finding.
    pub code: Code,
    /// What is wrong, as a sentence without a full stop.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// Collects the findings of one file or one set.
pub(crate) struct Report {
    source: String,
    list: Vec<Diagnostic>,
    count: usize,
}

impl Report {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), list: Vec::new(), count: 0 }
    }

    /// How many findings there were so far, the unlisted ones included.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The next findings belong to this file.
    pub(crate) fn set_source(&mut self, source: &str) {
        source.clone_into(&mut self.source);
    }

    pub(crate) fn add(&mut self, pos: Pos, path: &str, code: Code, message: impl Into<String>) {
        self.push(pos, path, code, message.into(), None);
    }

    pub(crate) fn add_hint(
        &mut self,
        pos: Pos,
        path: &str,
        code: Code,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(pos, path, code, message.into(), Some(hint.into()));
    }

    /// A finding about a wrong name, with the nearest of the known names as its hint.
    pub(crate) fn add_near<'n>(
        &mut self,
        pos: Pos,
        path: &str,
        code: Code,
        message: impl Into<String>,
        wrong: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) {
        let near = if self.count < SUGGESTIONS_MAX { nearest(wrong, known) } else { None };
        self.push(pos, path, code, message.into(), near.map(|name| format!("did you mean `{name}`?")));
    }

    fn push(&mut self, pos: Pos, path: &str, code: Code, message: String, hint: Option<String>) {
        self.count += 1;
        if self.list.len() < DIAGNOSTICS_MAX {
            let Pos { line, column } = pos;
            let (source, path) = (self.source.clone(), path.to_owned());
            self.list.push(Diagnostic { source, line, column, path, code, message, hint });
        }
    }

    /// The findings in the order of the text; `Ok` if there are none.
    pub(crate) fn finish(mut self) -> Result<(), Vec<Diagnostic>> {
        if self.count == 0 {
            return Ok(());
        }
        self.list.sort_by(|a, b| (&a.source, a.line, a.column).cmp(&(&b.source, b.line, b.column)));
        let unlisted = self.count - self.list.len();
        if unlisted > 0 {
            let message = format!("{unlisted} more errors are not shown");
            self.push_note(message);
        }
        Err(self.list)
    }

    fn push_note(&mut self, message: String) {
        let (source, path) = (self.source.clone(), String::new());
        self.list.push(Diagnostic { source, line: 0, column: 0, path, code: Code::TooMany, message, hint: None });
    }
}

/// A value as it may stand in a message: short, without line breaks.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() > LONGEST {
        let head: String = text.chars().take(LONGEST).collect();
        format!("{head:?}...")
    } else {
        format!("{text:?}")
    }
}

/// The known name with the fewest edits, if those are few for its length. The first of equals wins.
pub(crate) fn nearest<'n>(wrong: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    const LONGEST: usize = 128;
    let wrong: Vec<char> = wrong.chars().take(LONGEST + 1).collect();
    if wrong.len() > LONGEST {
        return None;
    }
    let allowed = (wrong.len() / 3).clamp(1, 4);
    let close = known.into_iter().filter(|name| name.len().abs_diff(wrong.len()) <= allowed);
    close.map(|name| (edits(&wrong, name), name)).filter(|(n, _)| *n <= allowed).min_by_key(|(n, _)| *n).map(|(_, s)| s)
}

/// Edits between two words, a swap of neighbours being one (optimal string alignment); letter case and `-` for `_`
/// count as nothing, because that is how a field of another language's style is written.
fn edits(a: &[char], b: &str) -> usize {
    let fold = |c: char| if c == '-' { '_' } else { c.to_ascii_lowercase() };
    let (a, b): (Vec<char>, Vec<char>) = (a.iter().map(|c| fold(*c)).collect(), b.chars().map(fold).collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let fields = ["effect", "permission", "timeout_ms", "tool"];
        assert_eq!(nearest("efect", fields), Some("effect"));
        assert_eq!(nearest("premission", fields), Some("permission"));
        assert_eq!(nearest("timeout-MS", fields), Some("timeout_ms"));
        assert_eq!(nearest("toool", fields), Some("tool"));
        assert_eq!(nearest("colour", fields), None);
        assert_eq!(nearest(&"x".repeat(100_000), fields), None);
    }

    #[test]
    fn the_rest_is_counted() {
        let mut report = Report::new("f");
        for line in 0..1500 {
            report.add(Pos { line, column: 1 }, "", Code::Syntax, "wrong");
        }
        let list = report.finish().unwrap_err();
        assert_eq!(list.len(), DIAGNOSTICS_MAX + 1);
        assert_eq!(list[DIAGNOSTICS_MAX].message, "500 more errors are not shown");
    }

    #[test]
    fn prints_where_what_and_what_to_do() {
        let mut report = Report::new("m.yaml");
        report.add_hint(Pos { line: 3, column: 5 }, "[2].tool", Code::BadText, "a blank", "remove it");
        let list = report.finish().unwrap_err();
        assert_eq!(list[0].to_string(), "m.yaml:3:5: [2].tool: a blank (remove it)");
    }
}
