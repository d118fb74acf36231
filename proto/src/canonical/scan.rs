//! Checks that a text is canonical without building anything: one pass, no allocation. Answers yes or no only; why not
//! is `rewrite`'s business, which is also the authority that a property test holds this file to.
use std::cmp::Ordering;

use super::{DEPTH_MAX, number, order};

/// Whether the whole text is one canonical value.
pub(super) fn text_is_canonical(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.value(0) && scanner.at_end()
}

/// A position in a text that should be canonical. After a `false` or `None` the position means nothing.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Whether nothing is left.
    pub(crate) fn at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Steps over exactly this.
    #[inline]
    pub(crate) fn literal(&mut self, expected: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(expected.as_bytes());
        if found {
            self.at += expected.len();
        }
        found
    }

    #[inline]
    fn byte(&mut self, expected: u8) -> bool {
        let found = self.peek() == Some(expected);
        self.at += usize::from(found);
        found
    }

    /// Steps over a canonical value that stands inside `depth` arrays and objects.
    pub(crate) fn value(&mut self, depth: usize) -> bool {
        match self.peek() {
            Some(b'{') => depth < DEPTH_MAX && self.object(depth + 1),
            Some(b'[') => depth < DEPTH_MAX && self.array(depth + 1),
            Some(b'"') => self.string().is_some(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(_) => self.number(),
            None => false,
        }
    }

    /// Steps over a canonical value and hands back its text.
    pub(crate) fn raw_value(&mut self, depth: usize) -> Option<&'a str> {
        let start = self.at;
        self.value(depth).then(|| &self.text[start..self.at])
    }

    /// Steps over a canonical string and hands back what stands between the quotes, still escaped.
    pub(crate) fn string(&mut self) -> Option<&'a str> {
        if !self.byte(b'"') {
            return None;
        }
        let start = self.at;
        loop {
            self.at = end_of_plain(self.text.as_bytes(), self.at);
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(&self.text[start..self.at - 1]);
                }
                b'\\' => self.at += escape_len(&self.text.as_bytes()[self.at..])?,
                _ => return None,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn number(&mut self) -> bool {
        let Ok(length) = number::number_len(&self.text.as_bytes()[self.at..]) else {
            return false;
        };
        let text = &self.text[self.at..self.at + length];
        self.at += length;
        number::is_canonical(text)
    }

    fn array(&mut self, depth: usize) -> bool {
        self.at += 1;
        if self.byte(b']') {
            return true;
        }
        loop {
            if !self.value(depth) {
                return false;
            }
            if !self.byte(b',') {
                return self.byte(b']');
            }
        }
    }

    fn object(&mut self, depth: usize) -> bool {
        self.at += 1;
        if self.byte(b'}') {
            return true;
        }
        let mut last: Option<&str> = None;
        loop {
            let Some(key) = self.string() else {
                return false;
            };
            // Strictly ascending keys are sorted and without duplicates.
            if last.is_some_and(|last| key_order(last, key) != Ordering::Less) {
                return false;
            }
            last = Some(key);
            if !self.byte(b':') || !self.value(depth) {
                return false;
            }
            if !self.byte(b',') {
                return self.byte(b'}');
            }
        }
    }
}

/// The members of a canonical object (keys as they stand in the text, values as raw text); none if it is no object.
pub(crate) fn members(object: &str, depth: usize) -> Option<Vec<(&str, &str)>> {
    let mut scanner = Scanner::new(object);
    let mut members = Vec::new();
    if !scanner.byte(b'{') {
        return None;
    }
    if scanner.byte(b'}') {
        return Some(members);
    }
    loop {
        let key = scanner.string()?;
        if !scanner.byte(b':') {
            return None;
        }
        members.push((key, scanner.raw_value(depth)?));
        if !scanner.byte(b',') {
            return scanner.byte(b'}').then_some(members);
        }
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Position of the first LF, eight bytes at a time.
pub(crate) fn line_end(bytes: &[u8]) -> Option<usize> {
    let mut words = bytes.chunks_exact(8);
    for (nth, word) in words.by_ref().enumerate() {
        let Ok(word) = word.try_into() else { break };
        let word = u64::from_le_bytes(word) ^ (ONES * u64::from(b'\n'));
        let marks = word.wrapping_sub(ONES) & !word & HIGH;
        if marks != 0 {
            return Some(nth * 8 + marks.trailing_zeros() as usize / 8);
        }
    }
    let rest = words.remainder();
    rest.iter().position(|byte| *byte == b'\n').map(|at| bytes.len() - rest.len() + at)
}

/// Position of the first byte from `at` on that ends a plain stretch of a string: a quote, a backslash, a control byte.
fn end_of_plain(bytes: &[u8], mut at: usize) -> usize {
    // Eight bytes at a time. A borrow can only mark bytes above a true hit, so the lowest mark is exact.
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        let marks = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let marks = marks & HIGH;
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    bytes.get(at..).and_then(|rest| rest.iter().position(ends)).map_or(bytes.len(), |found| at + found)
}

/// Length of the canonical escape at the start of `bytes`.
fn escape_len(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [_, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some(2),
        // Control characters that have no short escape: 00-07, 0b, 0e-0f, 10-1f.
        [_, b'u', b'0', b'0', b'0', b'0'..=b'7' | b'b' | b'e' | b'f', ..]
        | [_, b'u', b'0', b'0', b'1', b'0'..=b'9' | b'a'..=b'f', ..] => Some(6),
        _ => None,
    }
}

/// Compares two canonical keys as they stand in the text.
fn key_order(left: &str, right: &str) -> Ordering {
    for (l, r) in left.bytes().zip(right.bytes()) {
        if l == b'\\' || r == b'\\' || (l != r && !(l.is_ascii() && r.is_ascii())) {
            return Unescaped(left.chars()).map(order::units).cmp(Unescaped(right.chars()).map(order::units));
        }
        // Up to here the keys are the same plain characters, so the first two that differ decide.
        if l != r {
            return l.cmp(&r);
        }
    }
    left.len().cmp(&right.len())
}

/// The characters of a canonical string.
struct Unescaped<'a>(std::str::Chars<'a>);

impl Iterator for Unescaped<'_> {
    type Item = char;
    fn next(&mut self) -> Option<char> {
        let character = self.0.next()?;
        if character != '\\' {
            return Some(character);
        }
        let escaped = self.0.next()?;
        match escaped {
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => {
                let code = self.0.by_ref().take(4).fold(0, |code, digit| code * 16 + digit.to_digit(16).unwrap_or(0));
                char::from_u32(code)
            }
            itself => Some(itself),
        }
    }
}
