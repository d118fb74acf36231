//! Walks nodes and reports everything that is wrong with them, each with its place. Knows types, not manifests: every
//! reader gives `None` after it has reported, so that the caller simply goes on to the next field.
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::diagnostic::{Code, Pos, Report, quoted};
use super::node::{Entry, Kind, Node, WHOLE_MAX};
use super::scalar::{DURATION_MAX_MS, DurationFault, duration_ms};
use crate::ids::ToolName;

/// The path of a document: the first needs none.
pub(crate) fn document_path(document: usize) -> String {
    if document == 0 { String::new() } else { format!("document[{document}]") }
}

/// The path of an item.
pub(crate) fn index_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// The path of a field; a key that would be misread is quoted, in JSON's way and in ASCII, 60 characters of it at most.
pub(crate) fn key_path(path: &str, key: &str) -> String {
    let plain = (1..=64).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", key_quoted(key)),
    }
}

/// The same in every language, because paths are compared across SDKs: Python writes `json.dumps(key[:60])`.
fn key_quoted(key: &str) -> String {
    const LONGEST: usize = 60;
    let mut text = String::from("\"");
    for c in key.chars().take(LONGEST) {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.extend(["\\u", &format!("{unit:04x}")])),
        }
    }
    text.push('"');
    if key.chars().nth(LONGEST).is_some() {
        text.push_str("...");
    }
    text
}

/// A value with its path.
pub(crate) struct Field<'n> {
    pub(crate) node: &'n Node,
    pub(crate) path: String,
}

impl<'n> Field<'n> {
    pub(crate) fn new(node: &'n Node, path: String) -> Self {
        Self { node, path }
    }

    /// The field of that name inside of this value, if it is an object that has it.
    pub(crate) fn inside(&self, name: &str) -> Option<Field<'n>> {
        let Kind::Map(entries) = &self.node.kind else { return None };
        let entry = entries.iter().find(|entry| &*entry.key == name)?;
        Some(Field { node: &entry.value, path: key_path(&self.path, name) })
    }

    /// The items of this value; none if it is no list. Lazy, because a hostile list is long and its end is not needed.
    pub(crate) fn children(&self) -> impl Iterator<Item = Field<'n>> {
        let items: &'n [Node] = if let Kind::List(items) = &self.node.kind { items } else { &[] };
        items.iter().enumerate().map(|(index, node)| Field { node, path: index_path(&self.path, index) })
    }

    /// Reports something about this value.
    pub(crate) fn wrong(&self, report: &mut Report, code: Code, message: impl Into<String>) {
        report.add(self.node.pos, &self.path, code, message);
    }

    /// Reports something about this value and what to do.
    pub(crate) fn wrong_hint(
        &self,
        report: &mut Report,
        code: Code,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        report.add_hint(self.node.pos, &self.path, code, message, hint);
    }

    /// Reports that the value has another type.
    pub(crate) fn wrong_type(&self, report: &mut Report, wanted: &str) {
        let message = format!("must be {wanted}, got {}", self.node.type_name());
        match self.node.kind {
            Kind::Bad => {}
            Kind::Null => self.wrong_hint(report, Code::WrongType, message, "leave the field out instead"),
            Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) if wanted.starts_with("text") => {
                self.wrong_hint(report, Code::WrongType, message, "put it in quotes");
            }
            Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => {
                self.wrong(report, Code::WrongType, message);
            }
        }
    }

    /// Any text.
    pub(crate) fn raw_text(&self, report: &mut Report) -> Option<&'n str> {
        if let Kind::Text(text) = &self.node.kind {
            return Some(text);
        }
        self.wrong_type(report, "text");
        None
    }

    /// Text for people: not blank, no control characters but line breaks and tabs.
    pub(crate) fn text(&self, report: &mut Report) -> Option<String> {
        let text = self.raw_text(report)?;
        if !report.asks_rules() {
            return Some(text.to_owned());
        }
        if text.trim().is_empty() {
            self.wrong_hint(report, Code::BadText, "must not be blank", "leave it out instead");
            return None;
        }
        if let Some(c) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
            let message = format!("must not hold control characters, got U+{:04X}", u32::from(c));
            self.wrong(report, Code::BadText, message);
            return None;
        }
        Some(text.to_owned())
    }

    /// Text without white space.
    pub(crate) fn word(&self, report: &mut Report) -> Option<String> {
        let text = self.text(report)?;
        if report.asks_rules() && text.chars().any(char::is_whitespace) {
            self.wrong(report, Code::BadText, format!("must not hold white space, got {}", quoted(&text)));
            return None;
        }
        Some(text)
    }

    pub(crate) fn boolean(&self, report: &mut Report) -> Option<bool> {
        if let Kind::Bool(value) = self.node.kind {
            return Some(value);
        }
        match &self.node.kind {
            Kind::Text(text) if matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off") => {
                let message = format!("must be a boolean, got the text {}", quoted(text));
                self.wrong_hint(report, Code::WrongType, message, "write true or false");
            }
            _ => self.wrong_type(report, "a boolean (true or false)"),
        }
        None
    }

    /// A whole number within limits.
    pub(crate) fn whole(&self, report: &mut Report, allowed: RangeInclusive<u64>) -> Option<u64> {
        let allowed = if report.asks_rules() { allowed } else { 0..=WHOLE_MAX.unsigned_abs() };
        let (low, high) = (allowed.start(), allowed.end());
        let wanted = format!("a whole number from {low} to {high}");
        match self.node.kind {
            Kind::Whole(n) => {
                let fits = u64::try_from(n).ok().filter(|n| allowed.contains(n));
                if fits.is_none() {
                    self.wrong(report, Code::OutOfRange, format!("must be {wanted}, got {n}"));
                }
                fits
            }
            Kind::Fraction(x) => {
                self.wrong(report, Code::OutOfRange, format!("must be {wanted}, got {x}"));
                None
            }
            Kind::Null | Kind::Bool(_) | Kind::Bad | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => {
                self.wrong_type(report, &wanted);
                None
            }
        }
    }

    /// A small whole number within limits.
    pub(crate) fn small(&self, report: &mut Report, low: u32, high: u32) -> Option<u32> {
        self.whole(report, u64::from(low)..=u64::from(high)).and_then(|n| u32::try_from(n).ok())
    }

    /// A duration in milliseconds, `low_ms` at least and a year at most.
    pub(crate) fn duration(&self, report: &mut Report, low_ms: u64) -> Option<u64> {
        const FORM: &str = "write milliseconds, or a whole number with ms, s, m, h or d, like 500ms or 30s";
        if !report.asks_rules() {
            return self.whole(report, 0..=WHOLE_MAX.unsigned_abs());
        }
        let ms = match &self.node.kind {
            Kind::Whole(n) => u64::try_from(*n).ok().filter(|ms| *ms <= DURATION_MAX_MS),
            Kind::Text(text) => match duration_ms(text) {
                Ok(ms) => Some(ms),
                Err(DurationFault::TooLong) => None,
                Err(DurationFault::Form) => {
                    let message = format!("must be a duration, got {}", quoted(text));
                    self.wrong_hint(report, Code::BadDuration, message, FORM);
                    return None;
                }
            },
            Kind::Fraction(x) => {
                self.wrong_hint(report, Code::BadDuration, format!("must be a duration, got {x}"), FORM);
                return None;
            }
            Kind::Null | Kind::Bool(_) | Kind::Bad | Kind::List(_) | Kind::Map(_) => {
                self.wrong_type(report, "a duration");
                return None;
            }
        };
        let fits = ms.filter(|ms| *ms >= low_ms);
        if fits.is_none() {
            let got = match &self.node.kind {
                Kind::Whole(n) => n.to_string(),
                _ => self.raw_text(report).map(quoted).unwrap_or_default(),
            };
            self.wrong(report, Code::OutOfRange, format!("must be from {low_ms} ms to 365 days, got {got}"));
        }
        fits
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&self, report: &mut Report, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.raw_text(report)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("must be one of {}, got {}", allowed.join(", "), quoted(text));
            report.add_near(self.node.pos, &self.path, Code::UnknownValue, message, text, allowed);
        }
        found
    }

    /// Text with a grammar of its own.
    pub(crate) fn parsed<T>(&self, report: &mut Report, code: Code, hint: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        let text = self.raw_text(report)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong_hint(report, code, format!("{error}"), hint);
                None
            }
        }
    }

    pub(crate) fn tool_name(&self, report: &mut Report) -> Option<ToolName> {
        let text = self.raw_text(report)?;
        let name = text.parse().ok();
        if name.is_none() {
            let message = format!("must be a tool name, got {}", quoted(text));
            let hint = "letters, digits and _ . : / -, 1 to 128 characters";
            self.wrong_hint(report, Code::BadText, message, hint);
        }
        name
    }

    /// Reports what is no list; its items are then none.
    pub(crate) fn need_list(&self, report: &mut Report) -> Option<()> {
        if let Kind::List(_) = self.node.kind {
            return Some(());
        }
        self.wrong_type(report, "a list");
        None
    }

    /// A list whose items are all read in one way; the wrong ones are reported and left out.
    pub(crate) fn list<T>(
        &self,
        report: &mut Report,
        read: impl Fn(&Field<'n>, &mut Report) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut read_items = Vec::new();
        self.need_list(report)?;
        for item in self.children() {
            if report.is_full() {
                break;
            }
            read_items.extend(read(&item, report));
        }
        Some(read_items)
    }

    /// The entries of an object with free keys.
    pub(crate) fn entries(&self, report: &mut Report, wanted: &str) -> Option<Vec<(&'n Entry, Field<'n>)>> {
        let Kind::Map(entries) = &self.node.kind else {
            self.wrong_type(report, wanted);
            return None;
        };
        let field = |entry: &'n Entry| (entry, Field { node: &entry.value, path: key_path(&self.path, &entry.key) });
        Some(entries.iter().map(field).collect())
    }
}

/// An object with known fields. Every name that is asked for counts as known; `finish` reports the others.
pub(crate) struct Object<'n> {
    entries: &'n [Entry],
    pos: Pos,
    path: String,
    known: Vec<&'static str>,
}

impl<'n> Object<'n> {
    pub(crate) fn open(field: &Field<'n>, report: &mut Report, wanted: &str) -> Option<Self> {
        let Kind::Map(entries) = &field.node.kind else {
            field.wrong_type(report, wanted);
            return None;
        };
        Some(Self { entries, pos: field.node.pos, path: field.path.clone(), known: Vec::new() })
    }

    pub(crate) fn pos(&self) -> Pos {
        self.pos
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The field, if it is there.
    pub(crate) fn optional(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.known.push(name);
        self.peek(name)
    }

    /// The field, if it is there; does not make its name a known one.
    pub(crate) fn peek(&self, name: &str) -> Option<Field<'n>> {
        let entry = self.entries.iter().find(|entry| &*entry.key == name)?;
        Some(Field { node: &entry.value, path: key_path(&self.path, name) })
    }

    /// Reads a field that may be absent.
    pub(crate) fn read<T>(
        &mut self,
        name: &'static str,
        report: &mut Report,
        read: impl FnOnce(&Field<'n>, &mut Report) -> Option<T>,
    ) -> Option<T> {
        self.optional(name).and_then(|field| read(&field, report))
    }

    /// Reads a field that must be there.
    pub(crate) fn need<T>(
        &mut self,
        name: &'static str,
        report: &mut Report,
        read: impl FnOnce(&Field<'n>, &mut Report) -> Option<T>,
    ) -> Option<T> {
        let field = self.optional(name);
        if field.is_none() {
            report.add(self.pos, &self.path, Code::MissingField, format!("the field `{name}` is missing"));
        }
        field.and_then(|field| read(&field, report))
    }

    /// The hint for a field whose name was cut at an underscore, like `timeout` for `timeout_ms`: too many edits away to
    /// be near. Silent where several fields begin so.
    fn without_its_end(&self, key: &str) -> Option<String> {
        let begins = |name: &&&str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('_'));
        let mut longer = self.known.iter().filter(begins);
        let (only, None) = (longer.next()?, longer.next()) else { return None };
        Some(format!("did you mean `{only}`?"))
    }

    /// Reports every field that nobody asked for.
    pub(crate) fn finish(&self, report: &mut Report) {
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&&*entry.key)) {
            if report.is_full() {
                break;
            }
            let path = key_path(&self.path, &entry.key);
            let message = format!("unknown field {}", quoted(&entry.key));
            let hint = special_hint(&entry.key).map(str::to_owned).or_else(|| self.without_its_end(&entry.key));
            match hint {
                Some(hint) => report.add_hint(entry.pos, &path, Code::UnknownField, message, hint),
                None => report.add_near(
                    entry.pos,
                    &path,
                    Code::UnknownField,
                    message,
                    &entry.key,
                    self.known.iter().copied(),
                ),
            }
        }
    }
}

/// Advice where the nearest name would not help.
fn special_hint(key: &str) -> Option<&'static str> {
    match key {
        "<<" => Some("YAML 1.2 has no merge keys: write the fields out"),
        "approval_rules" => Some("write the rules as the object form of `approval`"),
        _ => None,
    }
}
