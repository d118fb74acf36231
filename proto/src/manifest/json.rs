//! Strict JSON to nodes. `serde_json` says whether the text is JSON and what is wrong; the scan afterwards, over a text
//! that is known to be right, only finds where each value stands. Knows no field of a manifest.
use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::diagnostic::{Code, Pos, Report};
use super::load::{number, position};
use super::loader::{Abandon, Documents, Loader};
use super::node::{Kind, number_kind};

/// The one document of the text.
pub(crate) fn documents(text: &str, report: &mut Report) -> Documents {
    let mut loader = Loader::new(report);
    loader.document();
    let result = match serde_json::from_str::<AnyJson>(text) {
        Ok(AnyJson) => Scan { text, at: 0, line: 1, line_start: 0, counted: (0, 0) }.run(&mut loader),
        Err(error) => {
            refused(&mut loader, text, &error);
            Err(Abandon)
        }
    };
    if result.is_err() {
        loader.abandon();
    }
    loader.finish()
}

fn refused(loader: &mut Loader<'_>, text: &str, error: &serde_json::Error) {
    // serde_json counts columns in bytes; its position is that of the last byte which it read, 0 before the first.
    let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let line_end = text[line_start..].find('\n').map_or(text.len(), |at| line_start + at);
    let wanted = (line_start + error.column().saturating_sub(1)).min(line_end);
    let at = (line_start..=wanted).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(line_start);
    let full = error.to_string();
    let message = full.rsplit_once(" at line ").map_or(full.as_str(), |(message, _)| message);
    // serde_json's words for a leading half without its trailing one, and for a trailing one alone.
    if matches!(message, "unexpected end of hex escape" | "lone leading surrogate in hex escape") {
        let escape = text[line_start..at].rfind("\\u").map_or(at, |found| line_start + found);
        let message = "this is not valid JSON: half of a surrogate pair, which is no character";
        let hint = "a character beyond U+FFFF is written as two escapes, such as \\ud83d\\ude00, or as itself";
        loader.report.add_hint(position(&text.as_bytes()[..escape]), "", Code::StrictJson, message, hint);
        return;
    }
    let pos = position(&text.as_bytes()[..at]);
    if message.starts_with("recursion limit") {
        return loader.too_deep(pos);
    }
    loader.report.add(pos, "", Code::StrictJson, format!("this is not valid JSON: {message}"));
}

/// The scanner over a valid text. Every branch that cannot be taken there just goes on.
struct Scan<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    line_start: usize,
    /// Characters of the line up to a byte, so that a long line is counted once.
    counted: (usize, usize),
}

impl<'t> Scan<'t> {
    fn run(mut self, loader: &mut Loader<'_>) -> Result<(), Abandon> {
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'\n' => {
                    self.at += 1;
                    (self.line, self.line_start, self.counted) = (self.line + 1, self.at, (self.at, 0));
                }
                b' ' | b'\t' | b'\r' | b',' | b':' => self.at += 1,
                b'[' => {
                    loader.open_list(self.pos(), 0)?;
                    self.at += 1;
                }
                b'{' => {
                    loader.open_map(self.pos(), 0)?;
                    self.at += 1;
                }
                b']' | b'}' => {
                    loader.close();
                    self.at += 1;
                }
                b'"' => {
                    let pos = self.pos();
                    let token = self.take(string_end);
                    let text: Cow<'_, str> = match token.get(1..token.len().saturating_sub(1)) {
                        Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain),
                        _ => Cow::Owned(serde_json::from_str(token).unwrap_or_default()),
                    };
                    loader.scalar(pos, Kind::Text(text.as_ref().into()), 0);
                }
                _ => self.bare(loader),
            }
        }
        Ok(())
    }

    /// A number or one of the three words.
    fn bare(&mut self, loader: &mut Loader<'_>) {
        let pos = self.pos();
        let token = self.take(|rest| rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len()));
        let kind = match token {
            "null" => Some(Kind::Null),
            "true" => Some(Kind::Bool(true)),
            "false" => Some(Kind::Bool(false)),
            _ => number_kind(token),
        };
        match kind {
            Some(kind) => loader.scalar(pos, kind, 0),
            None => loader.bad_number(pos, token, 0),
        }
    }

    fn take(&mut self, end: impl Fn(&str) -> usize) -> &'t str {
        let rest = &self.text[self.at..];
        let length = end(rest).max(1);
        self.at += length;
        rest.get(..length).unwrap_or(rest)
    }

    fn pos(&mut self) -> Pos {
        let (from, characters) = self.counted;
        self.counted = (self.at, characters + self.text[from..self.at].chars().count());
        Pos { line: number(self.line), column: number(self.counted.1 + 1) }
    }
}

/// The length of the text that a quote opens, with both quotes.
fn string_end(rest: &str) -> usize {
    let mut escaped = false;
    let end = rest.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |at| at + 2)
}

/// Any value. Unlike `IgnoredAny` it decodes texts, so that half of a surrogate pair is found.
struct AnyJson;

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for AnyJson {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        while entries.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}
