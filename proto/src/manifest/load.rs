//! From bytes to manifests: limits, encoding, which reader. Knows no field of a manifest.
use super::build::{Form, manifests};
use super::diagnostic::{Code, Diagnostic, Pos, Report};
use super::loader::Documents;
use super::model::{Manifest, Named};
use super::{json, yaml};

/// The largest file that is read.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// How deep lists and objects may be nested.
pub const DEPTH_MAX: usize = 64;

/// Reads the manifests of one file: one object, an array of them, or several YAML documents of either kind. A file
/// whose name ends in `.json` must be strict JSON. All errors of the file are reported, in the order of the text.
pub fn load(file_name: &str, bytes: &[u8]) -> Result<Vec<Manifest>, Vec<Diagnostic>> {
    let Loaded { manifests, diagnostics, source: _, broken: _, incomplete: _ } = Loaded::of(file_name, bytes);
    if diagnostics.is_empty() { Ok(manifests) } else { Err(diagnostics) }
}

/// What could be read of one file. With [`ManifestSet::of_files`](super::ManifestSet::of_files) the rules between
/// manifests are checked too while some of them have mistakes.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub(super) source: String,
    pub(super) manifests: Vec<Manifest>,
    /// The manifests that have mistakes, as far as they say whose they are.
    pub(super) broken: Vec<Named>,
    /// There may be manifests whose tool is not known: what names them must not be called unknown.
    pub(super) incomplete: bool,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Loaded {
    /// Reads a file as [`load`] does, and keeps what is right of it.
    pub fn of(file_name: &str, bytes: &[u8]) -> Self {
        let mut report = Report::new(file_name);
        let mut loaded = Self::unreadable(file_name, Vec::new());
        if let Some(documents) = documents(file_name, bytes, &mut report) {
            let found = manifests(&documents.nodes, Form::Authored, &mut report);
            loaded.incomplete = documents.incomplete || found.unnamed;
            (loaded.manifests, loaded.broken) = (found.manifests, found.broken);
        }
        if loaded.manifests.is_empty() && report.count() == 0 {
            let message = "the file holds no manifest";
            report.add_hint(Pos::default(), "", Code::Empty, message, "write at least one object, or remove the file");
        }
        loaded.diagnostics = report.finish().err().unwrap_or_default();
        loaded
    }

    /// A file that could not be read, with the reasons: it may hold any manifest.
    pub fn unreadable(file_name: &str, diagnostics: Vec<Diagnostic>) -> Self {
        let source = file_name.to_owned();
        Self { source, manifests: Vec::new(), broken: Vec::new(), incomplete: true, diagnostics }
    }

    /// What is wrong with the file by itself.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

/// The documents of a file, whatever they hold: strict JSON where the file's name ends in `.json`, else YAML. None if
/// the file is no text.
pub(crate) fn documents(file_name: &str, bytes: &[u8], report: &mut Report) -> Option<Documents> {
    let text = decode(bytes, report)?;
    let strict = file_name.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case("json"));
    let read = if strict { json::documents } else { yaml::documents };
    Some(read(text, report))
}

/// The text of the file, if it is one.
fn decode<'b>(bytes: &'b [u8], report: &mut Report) -> Option<&'b str> {
    let start = Pos { line: 1, column: 1 };
    if bytes.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes, at most {FILE_BYTES_MAX} are read", bytes.len());
        report.add_hint(Pos::default(), "", Code::FileSize, message, "split it into several files");
        return None;
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        report.add_hint(start, "", Code::Encoding, "the file is UTF-16", "save it as UTF-8");
        return None;
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        let message = "the file starts with a byte order mark";
        report.add_hint(start, "", Code::Encoding, message, "save it as UTF-8 without a BOM");
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let pos = position(&bytes[..error.valid_up_to()]);
            report.add_hint(pos, "", Code::Encoding, "the bytes here are not UTF-8", "save the file as UTF-8 text");
            return None;
        }
    };
    let control = text.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    if let Some((at, c)) = control {
        let message = format!("the control character U+{:04X} stands here", u32::from(c));
        let hint = "is this a text file? In a quoted text write it as an escape";
        report.add_hint(position(&bytes[..at]), "", Code::Encoding, message, hint);
        return None;
    }
    Some(text)
}

/// Where the text after `before` starts. `before` ends at a character.
pub(crate) fn position(before: &[u8]) -> Pos {
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let lines = before.split(|b| *b == b'\n').count();
    let characters = String::from_utf8_lossy(&before[line_start..]).chars().count();
    Pos { line: number(lines), column: number(characters + 1) }
}

pub(crate) fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
