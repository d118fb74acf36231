//! Puts nodes together from what a reader meets, YAML or JSON: depth, aliases, keys that stand twice. Knows neither
//! syntax, and no field of a manifest.
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as BTreeEntry;
use std::rc::Rc;

use super::diagnostic::{Code, Pos, Report, quoted};
use super::load::DEPTH_MAX;
use super::node::{Entry, Kind, Node};

/// What all aliases of a file may add to it, in nodes (and 16 bytes of text count as a node). Checked before an alias
/// is followed, so that nine lines cannot become a billion values.
const ALIAS_WEIGHT_MAX: usize = 100_000;

/// The documents of one file.
pub(crate) struct Documents {
    pub(crate) nodes: Vec<Node>,
    /// Something was left out that may have named a tool.
    pub(crate) incomplete: bool,
}

/// The rest of this document makes no sense.
pub(crate) struct Abandon;

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

pub(crate) struct Loader<'r> {
    pub(crate) report: &'r mut Report,
    documents: Vec<Node>,
    incomplete: bool,
    started: usize,
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Built>,
    alias_weight: usize,
}

impl<'r> Loader<'r> {
    pub(crate) fn new(report: &'r mut Report) -> Self {
        Self {
            report,
            documents: Vec::new(),
            incomplete: false,
            started: 0,
            stack: Vec::new(),
            anchors: BTreeMap::new(),
            alias_weight: 0,
        }
    }

    /// Everything that was read.
    pub(crate) fn finish(self) -> Documents {
        Documents { nodes: self.documents, incomplete: self.incomplete }
    }

    /// The next nodes belong to a new document.
    pub(crate) fn document(&mut self) {
        self.started += 1;
        self.anchors.clear();
    }

    /// Drops the document that is being read, after the reason was reported.
    pub(crate) fn abandon(&mut self) {
        self.incomplete = true;
        self.stack.clear();
        self.anchors.clear();
    }

    /// A value that is no collection. `anchor` is 0 for none.
    pub(crate) fn scalar(&mut self, pos: Pos, kind: Kind, anchor: usize) {
        let weight = match &kind {
            Kind::Text(text) => 1 + text.len() / 16,
            _ => 1,
        };
        self.built(Built { node: Node { pos, kind }, weight, height: 0 }, anchor);
    }

    /// A number that canonical JSON cannot hold: reported here, and known to be by all who read the node.
    pub(crate) fn bad_number(&mut self, pos: Pos, text: &str, anchor: usize) {
        let message = format!("the number {} cannot be held exactly", quoted(text));
        let hint = "whole numbers end at 2^53-1, others lie between 1e-4 and 1e16; write others as text";
        let path = self.path();
        self.report.add_hint(pos, &path, Code::NumberRange, message, hint);
        self.scalar(pos, Kind::Bad, anchor);
    }

    pub(crate) fn open_list(&mut self, pos: Pos, anchor: usize) -> Result<(), Abandon> {
        self.open(pos, anchor, Content::List(Vec::new()))
    }

    pub(crate) fn open_map(&mut self, pos: Pos, anchor: usize) -> Result<(), Abandon> {
        self.open(pos, anchor, Content::Map { entries: Vec::new(), seen: BTreeMap::new(), key: None })
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

    pub(crate) fn too_deep(&mut self, pos: Pos) {
        let message = format!("lists and objects are nested more than {DEPTH_MAX} deep");
        self.report.add_hint(pos, "", Code::Depth, message, "the rest of this document was not read");
    }

    /// The innermost collection is complete.
    pub(crate) fn close(&mut self) {
        let Some(Frame { pos, anchor, weight, height, content }) = self.stack.pop() else { return };
        let kind = match content {
            Content::List(items) => Kind::List(items.into()),
            Content::Map { entries, seen: _, key: _ } => Kind::Map(entries.into()),
        };
        self.built(Built { node: Node { pos, kind }, weight, height }, anchor);
    }

    pub(crate) fn alias(&mut self, id: usize, pos: Pos) -> Result<(), Abandon> {
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
            self.incomplete = true;
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
                self.incomplete = true;
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
    pub(crate) fn path(&self) -> String {
        if self.report.is_full() {
            // Nobody will read it.
            return String::new();
        }
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
}
