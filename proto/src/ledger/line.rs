//! Reading a ledger line back, borrowed and strict. The counterpart of `record`; must not know its neighbours in the
//! chain, nor what a body means.
use crate::canonical::is_canonical;
use crate::canonical::scan::{self, Scanner};
use crate::hash::{Hash, unhex};
use crate::ids::{ActorKind, LedgerId};
use crate::ledger::LINE_BYTES_MAX;
use crate::ledger::verify::Code;

/// The members of a record, in canonical order.
const MEMBERS: [&str; 12] =
    ["actor", "body", "ledger", "prev", "run", "run_prev", "run_seq", "salt", "seq", "ts", "type", "v"];

/// A record, borrowed from its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// Who made it happen.
    pub actor: &'a str,
    /// What kind of actor that is.
    pub actor_kind: ActorKind,
    /// The body, an object in canonical JSON.
    pub body: &'a str,
    /// The ledger that the record belongs to.
    pub ledger: LedgerId,
    /// Leaf hash of the record before it.
    pub prev: Hash,
    /// The run, or nothing.
    pub run: &'a str,
    /// Leaf hash of the run's record before it.
    pub run_prev: Hash,
    /// Position in the run.
    pub run_seq: u64,
    /// 128 random bits.
    pub salt: [u8; 16],
    /// Position in the ledger.
    pub seq: u64,
    /// When, in the 27 characters that sort like the instants do.
    pub ts: &'a str,
    /// The record's `type`.
    pub kind: &'a str,
    /// The version of the record's form.
    pub v: u64,
}

/// Why a text is no line of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct LineError {
    /// The reason, stable for programs.
    pub code: Code,
    /// The reason in a sentence.
    pub detail: String,
    /// The `seq` that the line claims, where that could be read.
    pub seq: Option<u64>,
}

impl<'a> Line<'a> {
    /// Reads a line (without LF) of form v1.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        let text = frame(line)?;
        // The one layout that a canonical v1 record can have; whatever is wrong is found out on the slow path.
        match Raw::by_layout(text) {
            Some(raw) => raw.check(),
            None => Self::by_members(text, true),
        }
    }

    /// As [`Line::parse`], but a record of another version counts too, if it has all that v1 has.
    pub fn parse_any_version(line: &'a [u8]) -> Result<Self, LineError> {
        let text = frame(line)?;
        match Raw::by_layout(text) {
            Some(raw) => raw.check(),
            None => Self::by_members(text, false),
        }
    }

    fn by_members(text: &'a str, v1_only: bool) -> Result<Self, LineError> {
        is_canonical(text.as_bytes()).map_err(|e| error(Code::NotCanonical, e.to_string()))?;
        let members = scan::members(text, 1).ok_or_else(|| error(Code::WrongMembers, "the line is no object"))?;
        let get = |name: &str| members.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let seq = get("seq").and_then(|seq| seq.parse().ok());
        let wrong = |code, detail: String| LineError { code, detail, seq };
        let is_v1 = get("v") == Some("1");
        if let (Some(v), false, true) = (get("v"), is_v1, v1_only) {
            let shown: String = v.chars().take(20).collect();
            return Err(wrong(Code::UnknownVersion, format!("the record is of version {shown}, expected 1")));
        }
        if let Some(missing) = MEMBERS.iter().find(|name| get(name).is_none()) {
            return Err(wrong(Code::WrongMembers, format!("the record has no member {missing:?}")));
        }
        if let (Some((extra, _)), true) = (members.iter().find(|(key, _)| !MEMBERS.contains(key)), is_v1) {
            let shown: String = extra.chars().take(40).collect();
            return Err(wrong(Code::WrongMembers, format!("a record of version 1 has no member {shown:?}")));
        }
        let value = |name| get(name).unwrap_or_default();
        let actor = scan::members(value("actor"), 2).unwrap_or_default();
        let [("id", actor), ("kind", actor_kind)] = actor[..] else {
            return Err(wrong(Code::WrongMembers, "actor has the members id and kind, and no others".to_owned()));
        };
        let raw = Raw {
            actor,
            actor_kind,
            body: value("body"),
            ledger: value("ledger"),
            prev: value("prev"),
            run: value("run"),
            run_prev: value("run_prev"),
            run_seq: value("run_seq"),
            salt: value("salt"),
            seq: value("seq"),
            ts: value("ts"),
            kind: value("type"),
            v: value("v"),
        };
        raw.check()
    }
}

/// What can be said about a line before looking into it.
fn frame(line: &[u8]) -> Result<&str, LineError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(too_long());
    }
    if line.is_empty() {
        return Err(error(Code::BlankLine, "the line is blank"));
    }
    if line.starts_with(b"\xef\xbb\xbf") {
        return Err(error(Code::ByteOrderMark, "the line starts with a byte order mark"));
    }
    if line.ends_with(b"\r") {
        return Err(error(Code::CarriageReturn, "the line ends in CR LF, expected LF alone"));
    }
    std::str::from_utf8(line)
        .map_err(|e| error(Code::NotCanonical, format!("the text is not valid UTF-8 (byte {})", e.valid_up_to())))
}

pub(super) fn too_long() -> LineError {
    error(Code::LineTooLong, format!("the line is longer than {LINE_BYTES_MAX} bytes"))
}

fn error(code: Code, detail: impl Into<String>) -> LineError {
    LineError { code, detail: detail.into(), seq: None }
}

/// The raw JSON values of a record's members.
struct Raw<'a> {
    actor: &'a str,
    actor_kind: &'a str,
    body: &'a str,
    ledger: &'a str,
    prev: &'a str,
    run: &'a str,
    run_prev: &'a str,
    run_seq: &'a str,
    salt: &'a str,
    seq: &'a str,
    ts: &'a str,
    kind: &'a str,
    v: &'a str,
}

impl<'a> Raw<'a> {
    /// Takes a canonical v1 record apart; none for anything else.
    fn by_layout(text: &'a str) -> Option<Self> {
        let mut scanner = Scanner::new(text);
        let mut after = |literal| if scanner.literal(literal) { scanner.raw_value(1) } else { None };
        let raw = Self {
            actor: after(r#"{"actor":{"id":"#)?,
            actor_kind: after(r#","kind":"#)?,
            body: after(r#"},"body":"#)?,
            ledger: after(r#","ledger":"#)?,
            prev: after(r#","prev":"#)?,
            run: after(r#","run":"#)?,
            run_prev: after(r#","run_prev":"#)?,
            run_seq: after(r#","run_seq":"#)?,
            salt: after(r#","salt":"#)?,
            seq: after(r#","seq":"#)?,
            ts: after(r#","ts":"#)?,
            kind: after(r#","type":"#)?,
            v: "1",
        };
        (scanner.literal(r#","v":1}"#) && scanner.at_end()).then_some(raw)
    }

    /// Checks each member by itself.
    fn check(self) -> Result<Line<'a>, LineError> {
        let seq: Option<u64> = self.seq.parse().ok();
        let wrong = |member: &str, expected: &str, got: &str| {
            let got: String = got.chars().take(80).collect();
            LineError { code: Code::BadMember, detail: format!("{member} is {expected}, got {got}"), seq }
        };
        let hash = |member, raw| {
            string(raw).and_then(|h| unhex(h).ok()).map(Hash).ok_or_else(|| wrong(member, "64 hex digits", raw))
        };
        let name = |member, raw, allowed: u8, shortest: usize| {
            string(raw)
                .filter(|text| (shortest..=128).contains(&text.len()))
                .filter(|text| text.bytes().all(|byte| NAME_BYTES[usize::from(byte)] & allowed != 0))
                .ok_or_else(|| wrong(member, "a name of at most 128 plain characters", raw))
        };
        let number = |member, raw: &str| raw.parse().map_err(|_| wrong(member, "a number from 0 on", raw));
        let body = Some(self.body).filter(|body| body.starts_with('{'));
        Ok(Line {
            actor: name("actor.id", self.actor, OF_ACTOR, 1)?,
            actor_kind: match self.actor_kind {
                r#""agent""# => ActorKind::Agent,
                r#""human""# => ActorKind::Human,
                r#""system""# => ActorKind::System,
                other => return Err(wrong("actor.kind", "agent, human or system", other)),
            },
            // A body that is no object isn't quoted: it may hold anything.
            body: body.ok_or_else(|| wrong("body", "an object", "another value"))?,
            ledger: string(self.ledger)
                .and_then(|id| unhex(id).ok())
                .map(LedgerId)
                .ok_or_else(|| wrong("ledger", "32 hex digits", self.ledger))?,
            prev: hash("prev", self.prev)?,
            run: name("run", self.run, OF_RUN, 0)?,
            run_prev: hash("run_prev", self.run_prev)?,
            run_seq: number("run_seq", self.run_seq)?,
            salt: string(self.salt)
                .and_then(|salt| unhex(salt).ok())
                .ok_or_else(|| wrong("salt", "32 hex digits", self.salt))?,
            seq: number("seq", self.seq)?,
            ts: string(self.ts)
                .filter(|ts| is_instant(ts))
                .ok_or_else(|| wrong("ts", "a time like 2026-10-01T00:00:02.000000Z", self.ts))?,
            kind: name("type", self.kind, OF_TYPE, 1)?,
            v: number("v", self.v)?,
        })
    }
}

const OF_ACTOR: u8 = 1;
const OF_RUN: u8 = 2;
const OF_TYPE: u8 = 4;

/// In which names a byte may stand: see `ids.rs` for the rules; a type has letters, digits, `_` and `.`.
const NAME_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => OF_ACTOR | OF_RUN | OF_TYPE,
            b':' | b'-' => OF_ACTOR | OF_RUN,
            b'@' => OF_ACTOR,
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// What stands between the quotes of a raw string.
fn string(raw: &str) -> Option<&str> {
    raw.strip_prefix('"')?.strip_suffix('"')
}

/// Whether a text is what [`Timestamp`](crate::time::Timestamp) prints; much faster than parsing it.
fn is_instant(text: &str) -> bool {
    const SHAPE: &[u8; 27] = b"0000-00-00T00:00:00.000000Z";
    let bytes = text.as_bytes();
    let fits = |(byte, shape): (&u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    if bytes.len() != SHAPE.len() || !bytes.iter().zip(SHAPE).all(fits) {
        return false;
    }
    let number =
        |from: usize, to: usize| bytes[from..to].iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        1..=12 => 31,
        _ => 0,
    };
    year >= 1970 && (1..=days).contains(&day) && number(11, 13) < 24 && number(14, 16) < 60 && number(17, 19) < 60
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::Canonical;
    use crate::ids::{Actor, RunId};
    use crate::ledger::Draft;
    use crate::time::Timestamp;
    use proptest::prelude::*;

    fn line() -> String {
        let run: RunId = "run_1".parse().unwrap();
        let body = Canonical::parse(br#"{"tool":"x","y":[1.5,{}]}"#).unwrap();
        let place = (Some(&run), 4);
        let draft = Draft::new(LedgerId([1; 16]), &Actor::system(), "step.begun", &body, place, [2; 16]).unwrap();
        let mut line = Vec::new();
        draft.stamp(9, Hash([3; 32]), Hash([4; 32]), Timestamp::from_micros(5), &mut line);
        String::from_utf8(line).unwrap()
    }

    fn code(line: &str) -> Code {
        Line::parse(line.as_bytes()).unwrap_err().code
    }

    #[test]
    fn a_stamped_draft_is_read_back() {
        let line = line();
        let expected = Line {
            actor: "reversi",
            actor_kind: ActorKind::System,
            body: r#"{"tool":"x","y":[1.5,{}]}"#,
            ledger: LedgerId([1; 16]),
            prev: Hash([3; 32]),
            run: "run_1",
            run_prev: Hash([4; 32]),
            run_seq: 4,
            salt: [2; 16],
            seq: 9,
            ts: "1970-01-01T00:00:00.000005Z",
            kind: "step.begun",
            v: 1,
        };
        assert_eq!(Line::parse(line.as_bytes()), Ok(expected.clone()));
        // The slow path must read the same as the fast one.
        assert_eq!(Line::by_members(&line, true), Ok(expected));
    }

    #[test]
    fn other_versions_count_only_where_they_may() {
        let next = line().replace(r#""v":1}"#, r#""v":2,"w":[]}"#);
        assert_eq!(code(&next), Code::UnknownVersion);
        assert_eq!(Line::parse_any_version(next.as_bytes()).unwrap().v, 2);
        let less = next.replace(r#""salt":"02020202020202020202020202020202","#, "");
        assert_eq!(Line::parse_any_version(less.as_bytes()).unwrap_err().code, Code::WrongMembers);
        assert_eq!(code(&line().replace(r#""v":1}"#, r#""v":1,"w":[]}"#)), Code::WrongMembers);
    }

    #[test]
    fn each_member_is_checked() {
        for (from, to, expected) in [
            (r#""id":"reversi""#, r#""id":"rever si""#, Code::BadMember),
            (r#""id":"reversi""#, r#""id":"""#, Code::BadMember),
            (r#""kind":"system""#, r#""kind":"robot""#, Code::BadMember),
            (r#""kind":"system""#, r#""kind":"system","name":"x""#, Code::WrongMembers),
            (r#"{"tool":"x","y":[1.5,{}]}"#, "[]", Code::BadMember),
            ("0101", "010G", Code::BadMember),
            ("0303", "03AB", Code::BadMember),
            ("0303", "03", Code::BadMember),
            (r#""run":"run_1""#, r#""run":"run/1""#, Code::BadMember),
            (r#""run":"run_1""#, r#""run":null"#, Code::BadMember),
            (r#""run_seq":4"#, r#""run_seq":-4"#, Code::BadMember),
            (r#""run_seq":4"#, r#""run_seq":4.5"#, Code::BadMember),
            (r#""seq":9"#, r#""seq":"9""#, Code::BadMember),
            (r#""seq":9"#, r#""seq":9.0"#, Code::NotCanonical),
            ("1970-01-01T", "1970-02-30T", Code::BadMember),
            ("00.000005Z", "00.000005+", Code::BadMember),
            ("00.000005Z", "00Z", Code::BadMember),
            (r#""type":"step.begun""#, r#""type":"step begun""#, Code::BadMember),
            (r#""v":1}"#, r#""v":"1"}"#, Code::UnknownVersion),
            (r#","v":1}"#, "}", Code::WrongMembers),
        ] {
            assert_ne!(line().replacen(from, to, 1), line());
            assert_eq!(code(&line().replacen(from, to, 1)), expected, "{from} -> {to}");
        }
        let error = Line::parse(line().replace("run_1", "run/1").as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), r#"run is a name of at most 128 plain characters, got "run/1""#);
        assert_eq!(error.seq, Some(9));
        assert_eq!(code("[]"), Code::WrongMembers);
        assert_eq!(code("{}"), Code::WrongMembers);
    }

    proptest! {
        #[test]
        fn instants_are_what_a_timestamp_prints(text in "(19[67][0-9]|2[0-4]00|9998)-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\\.[0-9]{6}Z") {
            prop_assert_eq!(is_instant(&text), text.parse::<Timestamp>().is_ok(), "{}", text);
        }

        #[test]
        fn both_paths_agree_about_a_damaged_line(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = line().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let by_members = Line::by_members(text, true);
                if let Some(raw) = Raw::by_layout(text) {
                    prop_assert_eq!(raw.check(), by_members);
                } else {
                    prop_assert!(by_members.is_err(), "{}", text);
                }
            }
        }
    }
}
