//! YAML to positioned nodes, and a walker that collects every mistake. Must not know any setting.
//!
//! Own code rather than a serde route: those stop at the first mistake, and repeat values, which here can be secrets.
//! The parser is the one that reads manifests, so that both files follow the same YAML.
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle};

/// How deep lists and objects may be nested.
const DEPTH_MAX: usize = 16;

/// A mistake in a settings file. Never holds a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Line from 1.
    pub line: usize,
    /// Column from 1, in characters.
    pub column: usize,
    /// A sentence without a full stop.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

type Pos = (usize, usize);

/// A value and where it stands.
pub(super) struct Node {
    pub(super) pos: Pos,
    kind: Kind,
}

enum Kind {
    /// `plain`: without quotes, so that it may mean a number or a truth value.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// The file's one document; None when it holds nothing.
pub(super) fn parse(text: &str) -> Result<Option<Node>, Mistake> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let mut tree = Tree::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| {
            let marker = error.marker();
            mistake((marker.line(), marker.col() + 1), format!("this is not valid YAML: {}", error.kind()))
        })?;
        tree.event(event, (span.start.line(), span.start.col() + 1))?;
    }
    Ok(tree.document.filter(|node| !node.is_null()))
}

fn mistake((line, column): Pos, message: impl Into<String>) -> Mistake {
    Mistake { line, column, message: message.into() }
}

#[derive(Default)]
struct Tree {
    open: Vec<(Pos, Open)>,
    document: Option<Node>,
}

enum Open {
    List(Vec<Node>),
    Map(Vec<(Node, Node)>, Option<Node>),
}

impl Tree {
    fn event(&mut self, event: Event<'_>, pos: Pos) -> Result<(), Mistake> {
        match event {
            Event::Scalar(text, style, _, None) => {
                let kind = Kind::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.put(Node { pos, kind })
            }
            Event::SequenceStart(_, _, None) => self.open(pos, Open::List(Vec::new())),
            Event::MappingStart(_, _, None) => self.open(pos, Open::Map(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(_) => Err(mistake(pos, "aliases are not supported here; write the value out")),
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                Err(mistake(pos, "tags are not supported here; write the value without one"))
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, pos: Pos, open: Open) -> Result<(), Mistake> {
        if self.open.len() >= DEPTH_MAX {
            return Err(mistake(pos, format!("lists and objects are nested more than {DEPTH_MAX} deep")));
        }
        self.open.push((pos, open));
        Ok(())
    }

    fn close(&mut self) -> Result<(), Mistake> {
        let Some((pos, open)) = self.open.pop() else { return Ok(()) };
        let kind = match open {
            Open::List(items) => Kind::List(items),
            Open::Map(entries, _) => Kind::Map(entries),
        };
        self.put(Node { pos, kind })
    }

    fn put(&mut self, node: Node) -> Result<(), Mistake> {
        match self.open.last_mut() {
            Some((_, Open::List(items))) => items.push(node),
            Some((_, Open::Map(entries, key))) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => *key = Some(node),
            },
            None if self.document.is_some() => return Err(mistake(node.pos, "the file must hold one document only")),
            None => self.document = Some(node),
        }
        Ok(())
    }
}

impl Node {
    fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }

    fn what(&self) -> &'static str {
        match self.kind {
            Kind::Scalar { .. } if self.is_null() => "nothing",
            Kind::Scalar { .. } => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "an object",
        }
    }
}

/// Collects mistakes.
#[derive(Default)]
pub(super) struct Report(pub(super) Vec<Mistake>);

impl Report {
    pub(super) fn add(&mut self, pos: Pos, message: impl Into<String>) {
        self.0.push(mistake(pos, message));
    }

    fn wrong(&mut self, node: &Node, name: &str, expected: &str) {
        self.add(node.pos, format!("{name}: expected {expected}, got {}", node.what()));
    }

    /// A text; of unquoted values those that YAML would read as something else are texts too, as they stand.
    pub(super) fn text(&mut self, node: &Node, name: &str) -> Option<String> {
        match &node.kind {
            Kind::Scalar { text, .. } if !node.is_null() => Some(text.clone()),
            _ => {
                self.wrong(node, name, "text");
                None
            }
        }
    }

    pub(super) fn flag(&mut self, node: &Node, name: &str) -> Option<bool> {
        match &node.kind {
            Kind::Scalar { text, plain: true } if matches!(&**text, "true" | "false") => Some(text == "true"),
            _ => {
                self.add(node.pos, format!("{name}: expected true or false"));
                None
            }
        }
    }

    pub(super) fn parsed<T: std::str::FromStr>(&mut self, node: &Node, name: &str, expected: &str) -> Option<T> {
        let text = self.text(node, name)?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.add(node.pos, format!("{name}: expected {expected}"));
        }
        parsed
    }

    pub(super) fn list<'n>(&mut self, node: &'n Node, name: &str) -> &'n [Node] {
        if let Kind::List(items) = &node.kind {
            return items;
        }
        self.wrong(node, name, "a list");
        &[]
    }

    pub(super) fn texts(&mut self, node: &Node, name: &str) -> Vec<String> {
        self.list(node, name).iter().filter_map(|item| self.text(item, name)).collect()
    }

    /// The members of an object by name; one that stands twice or has no name is reported.
    pub(super) fn members<'n>(&mut self, node: &'n Node, name: &str) -> BTreeMap<String, &'n Node> {
        let mut members = BTreeMap::new();
        let Kind::Map(entries) = &node.kind else {
            self.wrong(node, name, "an object");
            return members;
        };
        for (key, value) in entries {
            let Some(key_text) = self.text(key, "the name of a field") else { continue };
            match members.entry(key_text) {
                Entry::Vacant(place) => drop(place.insert(value)),
                Entry::Occupied(first) => {
                    self.add(key.pos, format!("the field {:?} stands twice; keep one of them", first.key()));
                }
            }
        }
        members
    }

    /// As [`Self::members`], with every name known.
    pub(super) fn fields<'n>(&mut self, node: &'n Node, name: &str, known: &[&str]) -> BTreeMap<String, &'n Node> {
        if let Kind::Map(entries) = &node.kind {
            for (key, _) in entries {
                if let Kind::Scalar { text, .. } = &key.kind
                    && !known.contains(&&**text)
                {
                    self.add(key.pos, format!("unknown field {text:?}; known are {}", known.join(", ")));
                }
            }
        }
        self.members(node, name)
    }
}
