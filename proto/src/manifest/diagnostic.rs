//! What is wrong with a manifest file, and where. Knows no rule: it only collects and prints.
use std::fmt;

use serde::{Serialize, Serializer};

/// After this many findings in one file no more are looked for, so that a hostile file cannot fill memory and time.
pub const DIAGNOSTICS_MAX: usize = 1000;

/// Suggestions cost a comparison with every known name. All of one report together may cost this many compared letters:
/// enough for every finding of an honest file, and a hostile one stops getting advice.
pub(crate) const SUGGESTION_WORK_MAX: usize = 20_000_000;

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
    asks_rules: bool,
    suggestion_work: usize,
}

impl Report {
    pub(crate) fn new(source: &str) -> Self {
        let source = source.to_owned();
        Self { source, list: Vec::new(), count: 0, asks_rules: true, suggestion_work: SUGGESTION_WORK_MAX }
    }

    /// For what was in force once. It followed the rules of its day, which may have been laxer than ours, so only its
    /// shape is asked: fields, types, words and grammars.
    pub(crate) fn of_shape(source: &str) -> Self {
        Self { asks_rules: false, ..Self::new(source) }
    }

    /// Whether limits and the rules between fields are to be checked, and not the shape alone.
    pub(crate) fn asks_rules(&self) -> bool {
        self.asks_rules
    }

    /// How many findings there were so far, the unlisted ones included.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether more findings would not be listed, and there is one of them already: looking for more is in vain.
    pub(crate) fn is_full(&self) -> bool {
        self.count > DIAGNOSTICS_MAX
    }

    /// The file that findings belong to.
    pub(crate) fn source(&self) -> &str {
        &self.source
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
        let near = nearest(wrong, known, &mut self.suggestion_work);
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
        if self.count > self.list.len() {
            self.push_note(format!("there are more errors than these {DIAGNOSTICS_MAX}"));
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

/// The known name with the fewest edits, if those are few for its length. The first of equals wins. Stops when `work`,
/// which it counts down, is used up.
pub(crate) fn nearest<'n>(wrong: &str, known: impl IntoIterator<Item = &'n str>, work: &mut usize) -> Option<&'n str> {
    const LONGEST: usize = 128;
    let wrong: Vec<char> = wrong.chars().take(LONGEST + 1).map(folded).collect();
    if wrong.len() > LONGEST {
        return None;
    }
    let mut allowed = (wrong.len() / 3).clamp(1, 4);
    let mut best = None;
    for name in known {
        *work = work.checked_sub(1)?;
        if name.len().abs_diff(wrong.len()) > allowed {
            continue;
        }
        let name_folded: Vec<char> = name.chars().map(folded).collect();
        let Some(edits) = edits_within(&wrong, &name_folded, allowed, work) else { continue };
        best = Some(name);
        let Some(fewer) = edits.checked_sub(1) else { break };
        allowed = fewer;
    }
    best
}

/// Letter case and `-` for `_` count as nothing, because that is how a field of another language's style is written.
fn folded(c: char) -> char {
    if c == '-' { '_' } else { c.to_ascii_lowercase() }
}

/// Edits between two words, a swap of neighbours being one (optimal string alignment), if they are at most so many. Only
/// the cells that can hold so few are computed.
fn edits_within(a: &[char], b: &[char], most: usize, work: &mut usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let beyond = most + 1;
    let mut before_last = vec![beyond; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).map(|n| n.min(beyond)).collect();
    let mut row = vec![beyond; b.len() + 1];
    let mut fewest_before = 0;
    for i in 1..=a.len() {
        let (low, high) = (i.saturating_sub(most).max(1), (i + most).min(b.len()));
        *work = work.checked_sub(high.saturating_sub(low) + 2)?;
        row[low - 1] = if low == 1 { i.min(beyond) } else { beyond };
        let mut fewest = row[low - 1];
        for j in low..=high {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut edits = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change).min(beyond);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                edits = edits.min(before_last[j - 2] + 1);
            }
            row[j] = edits;
            fewest = fewest.min(edits);
        }
        if let Some(cell) = row.get_mut(high + 1) {
            *cell = beyond;
        }
        // A swap reaches back two rows.
        if fewest.min(fewest_before) >= beyond {
            return None;
        }
        fewest_before = fewest;
        std::mem::swap(&mut before_last, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    Some(last[b.len()]).filter(|edits| *edits <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let fields = ["effect", "permission", "timeout_ms", "tool"];
        let nearest = |wrong: &str, known: [&'static str; 4]| nearest(wrong, known, &mut SUGGESTION_WORK_MAX.clone());
        assert_eq!(nearest("efect", fields), Some("effect"));
        assert_eq!(nearest("premission", fields), Some("permission"));
        assert_eq!(nearest("timeout-MS", fields), Some("timeout_ms"));
        assert_eq!(nearest("toool", fields), Some("tool"));
        assert_eq!(nearest("permisison", fields), Some("permission"));
        assert_eq!(nearest("tool", ["pool", "tool", "toll", "tool"]), Some("tool"));
        assert_eq!(nearest("tol", ["told", "pol", "toll", "tool"]), Some("told"), "the first of equals");
        assert_eq!(nearest("colour", fields), None);
        assert_eq!(nearest(&"x".repeat(100_000), fields), None);
    }

    #[test]
    fn advice_has_an_end() {
        // 10,000 tools whose long names are all alike, and every reference to them wrong.
        let names: Vec<String> = (0..10_000).map(|n| format!("{}{n:04}", "x".repeat(120))).collect();
        let wrong = format!("{}yyyy", "x".repeat(120));
        let mut report = Report::new("f");
        for _ in 0..10_000 {
            let known = names.iter().map(String::as_str);
            report.add_near(Pos::default(), "", Code::UnknownTool, "wrong", &wrong, known);
        }
        assert_eq!(report.suggestion_work, 0, "the work was counted, and it ended");
        assert_eq!(report.count(), 10_000);
    }

    #[test]
    fn the_rest_is_not_listed() {
        let mut report = Report::new("f");
        for line in 0..1500 {
            report.add(Pos { line, column: 1 }, "", Code::Syntax, "wrong");
        }
        let list = report.finish().unwrap_err();
        assert_eq!(list.len(), DIAGNOSTICS_MAX + 1);
        assert_eq!(list[DIAGNOSTICS_MAX].message, "there are more errors than these 1000");
    }

    #[test]
    fn prints_where_what_and_what_to_do() {
        let mut report = Report::new("m.yaml");
        report.add_hint(Pos { line: 3, column: 5 }, "[2].tool", Code::BadText, "a blank", "remove it");
        let list = report.finish().unwrap_err();
        assert_eq!(list[0].to_string(), "m.yaml:3:5: [2].tool: a blank (remove it)");
    }
}
