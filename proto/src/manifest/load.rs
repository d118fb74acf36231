//! From bytes to manifests: limits, encoding, YAML and JSON events to nodes. Knows no field of a manifest.
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as BTreeEntry;
use std::rc::Rc;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, Tag};

use super::build::{Form, manifests};
use super::diagnostic::{Code, DIAGNOSTICS_MAX, Diagnostic, Pos, Report, quoted};
use super::model::Manifest;
use super::node::{Entry, Kind, Node};
use super::scalar::plain;
use crate::canonical::Canonical;

/// The largest file that is read.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// How deep lists and objects may be nested.
pub const DEPTH_MAX: usize = 64;

/// How long a key may be on its line. YAML itself stops at 1024 characters, JSON knows no end.
const KEY_LENGTH_MAX: usize = 1 << 16;

/// What all aliases of a file may add to it, in nodes (and 16 bytes of text count as a node). Checked before an alias
/// is followed, so that nine lines cannot become a billion values.
const ALIAS_WEIGHT_MAX: usize = 100_000;

/// Reads the manifests of one file: one object, an array of them, or several YAML documents of either kind. A file
/// whose name ends in `.json` must be strict JSON. All errors of the file are reported, in the order of the text.
pub fn load(file_name: &str, bytes: &[u8]) -> Result<Vec<Manifest>, Vec<Diagnostic>> {
    let mut report = Report::new(file_name);
    let found = manifests(&documents(file_name, bytes, &mut report), Form::Authored, &mut report);
    if found.is_empty() && report.count() == 0 {
        let message = "the file holds no manifest";
        report.add_hint(Pos::default(), "", Code::Empty, message, "write at least one object, or remove the file");
    }
    report.finish().map(|()| found)
}

/// The documents of a file, whatever they hold: strict JSON where the file's name ends in `.json`, else YAML.
pub(crate) fn documents(file_name: &str, bytes: &[u8], report: &mut Report) -> Vec<Node> {
    let Some(text) = decode(bytes, report) else { return Vec::new() };
    let strict = file_name.rsplit_once('.').is_some_and(|(_, end)| end.eq_ignore_ascii_case("json"));
    if strict { json(text, report) } else { yaml(text, report) }
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
fn position(before: &[u8]) -> Pos {
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let lines = before.split(|b| *b == b'\n').count();
    let characters = String::from_utf8_lossy(&before[line_start..]).chars().count();
    Pos { line: number(lines), column: number(characters + 1) }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// YAML accepts more than JSON, so a JSON file is checked by JSON's own rules first; the events then give positions.
fn json(text: &str, report: &mut Report) -> Vec<Node> {
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        let pos = Pos { line: number(error.line()), column: number(error.column().max(1)) };
        let full = error.to_string();
        let message = full.rsplit_once(" at line ").map_or(full.as_str(), |(message, _)| message);
        report.add(pos, "", Code::StrictJson, format!("this is not valid JSON: {message}"));
        return Vec::new();
    }
    let documents = yaml(text, report);
    if report.count() == 0
        && let Err(error) = Canonical::parse(text.as_bytes())
    {
        report.add(Pos::default(), "", Code::StrictJson, format!("this is not strict JSON: {error}"));
        return Vec::new();
    }
    documents
}

/// The documents of the text; a broken one is reported and left out, and the next one is read.
fn yaml(text: &str, report: &mut Report) -> Vec<Node> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    options.simple_key_max_lookahead = KEY_LENGTH_MAX;
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut loader = Loader::new(report);
    while let Some(next) = parser.next_event() {
        let result = match next {
            Ok((event, span)) => loader.event(event, span),
            Err(error) => {
                loader.syntax_error(text, *error.marker(), error.kind());
                Err(Abandon)
            }
        };
        if result.is_err() {
            loader.abandon();
            // A source of errors without end must not keep us busy: nobody reads the thousandth.
            let more = loader.report.count() < DIAGNOSTICS_MAX && matches!(parser.proceed_next_document(), Ok(true));
            if !more {
                break;
            }
        }
    }
    loader.documents
}

fn pos_of(marker: granit_parser::Marker) -> Pos {
    Pos { line: number(marker.line()), column: number(marker.col() + 1) }
}

/// The rest of this document makes no sense.
struct Abandon;

/// A finished node with what it weighs and how high it is, so that an alias to it can be judged.
#[derive(Clone)]
struct Built {
    node: Node,
    weight: usize,
    height: usize,
}

/// A list or an object that is still open.
struct Frame {
    pos: Pos,
    anchor: usize,
    weight: usize,
    height: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: BTreeMap<Rc<str>, Pos>, key: Option<Key> },
}

/// The key whose value comes next.
enum Key {
    Good(Rc<str>, Pos),
    /// It was reported; its value is read and dropped.
    Dropped,
}

struct Loader<'r> {
    report: &'r mut Report,
    documents: Vec<Node>,
    started: usize,
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Built>,
    alias_weight: usize,
}

impl<'r> Loader<'r> {
    fn new(report: &'r mut Report) -> Self {
        Self { report, documents: Vec::new(), started: 0, stack: Vec::new(), anchors: BTreeMap::new(), alias_weight: 0 }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Abandon> {
        let pos = pos_of(span.start);
        match event {
            Event::DocumentStart(_, version) => {
                self.started += 1;
                self.anchors.clear();
                if let Some(version) = version
                    && version != granit_parser::YamlVersion::new(1, 2)
                {
                    let message = "the document asks for another YAML version than 1.2";
                    self.report.add_hint(pos, "", Code::YamlFeature, message, "remove the %YAML line");
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let built = self.scalar(&text, style, tag.as_deref(), pos);
                self.built(built, anchor);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq", pos);
                self.open(pos, anchor, Content::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), "map", pos);
                self.open(pos, anchor, Content::Map { entries: Vec::new(), seen: BTreeMap::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(id) => self.alias(id, pos)?,
            // Not asked for, or nothing of the data: comments, anchors' names, the ends of documents and of the text.
            _ => {}
        }
        Ok(())
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, pos: Pos) -> Built {
        self.check_tag(tag, "str", pos);
        let kind = if style == ScalarStyle::Plain && tag.is_none() {
            plain(text).unwrap_or_else(|_| {
                let message = format!("the number {} cannot be held exactly", quoted(text));
                let hint = "whole numbers end at 2^53-1, others lie between 1e-4 and 1e16; write others as text";
                let path = self.path();
                self.report.add_hint(pos, &path, Code::NumberRange, message, hint);
                Kind::Bad
            })
        } else {
            Kind::Text(text.into())
        };
        Built { node: Node { pos, kind }, weight: 1 + text.len() / 16, height: 0 }
    }

    fn check_tag(&mut self, tag: Option<&Tag>, allowed: &str, pos: Pos) {
        if let Some(tag) = tag
            && !tag.is_yaml_core_schema_tag(allowed)
        {
            let path = self.path();
            let message = format!("the tag {} is not allowed here", quoted(&tag.original()));
            self.report.add_hint(pos, &path, Code::YamlFeature, message, "write the value without a tag");
        }
    }

    fn open(&mut self, pos: Pos, anchor: usize, content: Content) -> Result<(), Abandon> {
        self.check_depth(pos, 1)?;
        self.stack.push(Frame { pos, anchor, weight: 1, height: 1, content });
        Ok(())
    }

    fn check_depth(&mut self, pos: Pos, height: usize) -> Result<(), Abandon> {
        if self.stack.len() + height <= DEPTH_MAX {
            return Ok(());
        }
        self.too_deep(pos);
        Err(Abandon)
    }

    fn too_deep(&mut self, pos: Pos) {
        let message = format!("lists and objects are nested more than {DEPTH_MAX} deep");
        self.report.add_hint(pos, "", Code::Depth, message, "the rest of this document was not read");
    }

    fn close(&mut self) {
        let Some(Frame { pos, anchor, weight, height, content }) = self.stack.pop() else { return };
        let kind = match content {
            Content::List(items) => Kind::List(items.into()),
            Content::Map { entries, seen: _, key: _ } => Kind::Map(entries.into()),
        };
        self.built(Built { node: Node { pos, kind }, weight, height }, anchor);
    }

    fn alias(&mut self, id: usize, pos: Pos) -> Result<(), Abandon> {
        // The parser knows every anchor; one that has no node yet is still open around the alias.
        let Some(built) = self.anchors.get(&id) else {
            let path = self.path();
            self.report.add(pos, &path, Code::Alias, "an alias cannot stand inside of what it refers to");
            return Err(Abandon);
        };
        self.alias_weight = self.alias_weight.saturating_add(built.weight);
        if self.alias_weight > ALIAS_WEIGHT_MAX {
            let path = self.path();
            let message = "the aliases of this file repeat too much";
            self.report.add_hint(pos, &path, Code::Alias, message, "write the values out");
            return Err(Abandon);
        }
        let mut built = built.clone();
        self.check_depth(pos, built.height)?;
        built.node.pos = pos;
        self.built(built, 0);
        Ok(())
    }

    /// Puts a finished node where it belongs.
    fn built(&mut self, built: Built, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, built.clone());
        }
        let Some(frame) = self.stack.last_mut() else {
            self.documents.push(built.node);
            return;
        };
        frame.weight = frame.weight.saturating_add(built.weight);
        frame.height = frame.height.max(built.height + 1);
        match &mut frame.content {
            Content::List(items) => items.push(built.node),
            Content::Map { entries, seen: _, key } => match key.take() {
                Some(Key::Good(key, pos)) => entries.push(Entry { key, pos, value: built.node }),
                Some(Key::Dropped) => {}
                None => self.key(&built.node),
            },
        }
    }

    /// The node is the next key of the innermost object.
    fn key(&mut self, node: &Node) {
        let Some(text) = self.key_text(node) else {
            self.set_key(Key::Dropped);
            return;
        };
        let Some(Frame { content: Content::Map { seen, .. }, .. }) = self.stack.last_mut() else { return };
        match seen.entry(Rc::clone(&text)) {
            BTreeEntry::Vacant(entry) => {
                entry.insert(node.pos);
                self.set_key(Key::Good(text, node.pos));
            }
            BTreeEntry::Occupied(first) => {
                let line = first.get().line;
                let message = format!("the field {} stands twice, first on line {line}", quoted(&text));
                let path = self.path();
                self.report.add_hint(node.pos, &path, Code::DuplicateKey, message, "keep one of them");
                self.set_key(Key::Dropped);
            }
        }
    }

    fn set_key(&mut self, new: Key) {
        if let Some(Frame { content: Content::Map { key, .. }, .. }) = self.stack.last_mut() {
            *key = Some(new);
        }
    }

    /// A key that is no text is reported. A plain one is kept under the text that was meant, so that nothing is called
    /// missing because of it.
    fn key_text(&mut self, node: &Node) -> Option<Rc<str>> {
        let meant = match &node.kind {
            Kind::Text(text) => return Some(Rc::clone(text)),
            Kind::Null | Kind::Bool(_) | Kind::Whole(_) | Kind::Fraction(_) | Kind::Bad => {
                Some(node.to_value().to_string().into())
            }
            Kind::List(_) | Kind::Map(_) => None,
        };
        let path = self.path();
        let message = format!("the key of a field must be text, got {}", node.type_name());
        self.report.add_hint(node.pos, &path, Code::KeyNotText, message, "put it in quotes");
        meant
    }

    /// Where in the data the loader stands, as the walker will write it.
    fn path(&self) -> String {
        let mut path = super::walk::document_path(self.started.saturating_sub(1));
        for frame in &self.stack {
            match &frame.content {
                Content::List(items) => path = super::walk::index_path(&path, items.len()),
                Content::Map { key: Some(Key::Good(key, _)), .. } => path = super::walk::key_path(&path, key),
                Content::Map { .. } => {}
            }
        }
        path
    }

    fn syntax_error(&mut self, text: &str, marker: granit_parser::Marker, kind: &ErrorKind) {
        let pos = pos_of(marker);
        if *kind == ErrorKind::RecursionLimitExceeded {
            // The scanner reads ahead, so its own limit can be met before ours.
            self.too_deep(pos);
            return;
        }
        let message = format!("this is not valid YAML: {kind}");
        let before = marker.byte_offset().and_then(|offset| text.get(..offset)).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let mut indent = text[line_start..].chars().take_while(|c| matches!(c, ' ' | '\t'));
        if indent.any(|c| c == '\t') || message.contains("found a tab") {
            self.report.add_hint(pos, "", Code::Syntax, message, "indent with spaces, not with tabs");
        } else {
            self.report.add(pos, "", Code::Syntax, message);
        }
    }

    fn abandon(&mut self) {
        self.stack.clear();
        self.anchors.clear();
    }
}
