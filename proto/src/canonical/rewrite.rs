//! Reads JSON in any spelling and writes the canonical one, in one pass over the text. The authority on what is
//! canonical. Recursion is bounded by the profile's depth, so no text can exhaust the stack.
use std::borrow::Cow;

use super::number::{self, Profile};
use super::{CanonicalCode, CanonicalError, DEPTH_MAX, order};

/// The canonical form of `text`.
pub(super) fn rewrite(text: &str, profile: Profile) -> Result<String, CanonicalError> {
    let mut rewriter = Rewriter { text, at: 0, profile, out: String::with_capacity(text.len()) };
    rewriter.value(0)?;
    rewriter.white_space();
    if rewriter.at < text.len() {
        return rewriter.fail(CanonicalCode::InvalidJson);
    }
    Ok(rewriter.out)
}

struct Rewriter<'a> {
    text: &'a str,
    at: usize,
    profile: Profile,
    out: String,
}

/// A member of the object being read, already written to the output.
struct Member<'a> {
    key: Cow<'a, str>,
    /// Where its key stands in the input.
    offset: usize,
    /// Where `"key":value` stands in the output.
    written: std::ops::Range<usize>,
}

impl<'a> Rewriter<'a> {
    fn value(&mut self, depth: usize) -> Result<(), CanonicalError> {
        self.white_space();
        match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => self.fail(CanonicalCode::TooDeep),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => {
                let string = self.string()?;
                write_string(&string, &mut self.out);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(),
            None => self.fail(CanonicalCode::InvalidJson),
        }
    }

    fn word(&mut self) -> Result<(), CanonicalError> {
        for word in ["true", "false", "null"] {
            if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                self.out.push_str(word);
                return Ok(());
            }
        }
        self.fail(CanonicalCode::InvalidJson)
    }

    fn number(&mut self) -> Result<(), CanonicalError> {
        let start = self.at;
        let length = number::number_len(&self.text.as_bytes()[start..])
            .map_err(|length| CanonicalError { code: CanonicalCode::InvalidJson, offset: start + length })?;
        self.at += length;
        let mut buffer = ryu_js::Buffer::new();
        let canonical = number::canonical(&self.text[start..self.at], self.profile, &mut buffer)
            .map_err(|code| CanonicalError { code, offset: start })?;
        self.out.push_str(canonical);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), CanonicalError> {
        self.at += 1;
        self.out.push('[');
        if !self.step_over(b']') {
            loop {
                self.value(depth)?;
                if !self.step_over(b',') {
                    break;
                }
                self.out.push(',');
            }
            self.expect(b']')?;
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), CanonicalError> {
        self.at += 1;
        self.out.push('{');
        if !self.step_over(b'}') {
            let start = self.out.len();
            let mut members = Vec::new();
            loop {
                members.push(self.member(depth)?);
                if !self.step_over(b',') {
                    break;
                }
                self.out.push(',');
            }
            self.expect(b'}')?;
            self.sort(start, members)?;
        }
        self.out.push('}');
        Ok(())
    }

    fn member(&mut self, depth: usize) -> Result<Member<'a>, CanonicalError> {
        self.white_space();
        let offset = self.at;
        let start = self.out.len();
        let key = self.string()?;
        write_string(&key, &mut self.out);
        self.expect(b':')?;
        self.out.push(':');
        self.value(depth)?;
        Ok(Member { key, offset, written: start..self.out.len() })
    }

    /// Puts the members, written in input order from `start` on, into canonical order.
    fn sort(&mut self, start: usize, mut members: Vec<Member<'a>>) -> Result<(), CanonicalError> {
        if members.is_sorted_by(|left, right| order::by_utf16(&left.key, &right.key).is_lt()) {
            return Ok(());
        }
        // Stable: of equal keys the second stays the second, and it is the one to complain about.
        members.sort_by(|left, right| order::by_utf16(&left.key, &right.key));
        let repeats = members.windows(2).filter(|pair| pair[0].key == pair[1].key).map(|pair| pair[1].offset);
        if let Some(offset) = repeats.min() {
            return Err(CanonicalError { code: CanonicalCode::DuplicateKey, offset });
        }
        let unsorted = self.out.split_off(start);
        for (nth, member) in members.iter().enumerate() {
            if nth > 0 {
                self.out.push(',');
            }
            self.out.push_str(&unsorted[member.written.start - start..member.written.end - start]);
        }
        Ok(())
    }

    /// Reads a string; borrowed from the input where it holds no escape.
    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        if self.peek() != Some(b'"') {
            return self.fail(CanonicalCode::InvalidJson);
        }
        self.at += 1;
        let mut unescaped: Option<String> = None;
        loop {
            let start = self.at;
            let rest = &self.text.as_bytes()[start..];
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
            self.at += plain;
            let stretch = &self.text[start..self.at];
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(match unescaped {
                        None => Cow::Borrowed(stretch),
                        Some(text) => Cow::Owned(text + stretch),
                    });
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    let text = unescaped.get_or_insert_default();
                    text.push_str(stretch);
                    text.push(character);
                }
                Some(_) | None => return self.fail(CanonicalCode::InvalidJson),
            }
        }
    }

    fn escape(&mut self) -> Result<char, CanonicalError> {
        let start = self.at;
        self.at += 1;
        let character = match self.peek() {
            Some(itself @ (b'"' | b'\\' | b'/')) => char::from(itself),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            Some(_) | None => return self.fail(CanonicalCode::InvalidJson),
        };
        self.at += 1;
        Ok(character)
    }

    /// Reads `uXXXX`, and the second half where that is the first half of a surrogate pair.
    fn unicode_escape(&mut self, start: usize) -> Result<char, CanonicalError> {
        let lone = CanonicalError { code: CanonicalCode::LoneSurrogate, offset: start };
        let first = self.hex4()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first).ok_or(lone);
        }
        if first >= 0xdc00 || !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            return Err(lone);
        }
        self.at += 1;
        let second = self.hex4()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(lone);
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(lone)
    }

    /// Steps over the `u` and the four digits after it.
    fn hex4(&mut self) -> Result<u32, CanonicalError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return self.fail(CanonicalCode::InvalidJson);
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over this byte and the white space before it, if it comes next.
    fn step_over(&mut self, byte: u8) -> bool {
        self.white_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), CanonicalError> {
        if self.step_over(byte) { Ok(()) } else { self.fail(CanonicalCode::InvalidJson) }
    }

    fn fail<T>(&self, code: CanonicalCode) -> Result<T, CanonicalError> {
        Err(CanonicalError { code, offset: self.at })
    }
}

/// Writes a string with the escapes that RFC 8785 asks for and no others.
fn write_string(string: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    let mut plain = 0;
    for (at, byte) in string.bytes().enumerate() {
        let short = match byte {
            b'"' => '"',
            b'\\' => '\\',
            0x8 => 'b',
            0xc => 'f',
            b'\n' => 'n',
            b'\r' => 'r',
            b'\t' => 't',
            0..0x20 => 'u',
            _ => continue,
        };
        out.push_str(&string[plain..at]);
        out.push('\\');
        out.push(short);
        if short == 'u' {
            out.push_str("00");
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
        plain = at + 1;
    }
    out.push_str(&string[plain..]);
    out.push('"');
}
