//! YAML 1.2 events to nodes. Knows the parser and no field of a manifest.
use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, Tag};

use super::diagnostic::{Code, DIAGNOSTICS_MAX, Pos, Report, quoted};
use super::load::number;
use super::loader::{Abandon, Documents, Loader};
use super::node::Kind;
use super::scalar::plain;

/// How long a key may be on its line. YAML itself stops at 1024 characters, but a document in JSON's style knows no end.
const KEY_LENGTH_MAX: usize = 1 << 16;

/// The documents of the text; a broken one is reported and left out, and the next one is read.
pub(crate) fn documents(text: &str, report: &mut Report) -> Documents {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    options.simple_key_max_lookahead = KEY_LENGTH_MAX;
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut loader = Loader::new(report);
    while let Some(next) = parser.next_event() {
        let result = match next {
            Ok((next, span)) => event(&mut loader, next, span),
            Err(error) => {
                syntax_error(&mut loader, text, *error.marker(), error.kind());
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
    loader.finish()
}

fn pos_of(marker: granit_parser::Marker) -> Pos {
    Pos { line: number(marker.line()), column: number(marker.col() + 1) }
}

fn event(loader: &mut Loader<'_>, event: Event<'_>, span: Span) -> Result<(), Abandon> {
    let pos = pos_of(span.start);
    match event {
        Event::DocumentStart(_, version) => {
            loader.document();
            if let Some(version) = version
                && version != granit_parser::YamlVersion::new(1, 2)
            {
                let message = "the document asks for another YAML version than 1.2";
                loader.report.add_hint(pos, "", Code::YamlFeature, message, "remove the %YAML line");
            }
        }
        Event::Scalar(text, style, anchor, tag) => scalar(loader, &text, style, tag.as_deref(), pos, anchor),
        Event::SequenceStart(_, anchor, tag) => {
            check_tag(loader, tag.as_deref(), "seq", pos);
            loader.open_list(pos, anchor)?;
        }
        Event::MappingStart(_, anchor, tag) => {
            check_tag(loader, tag.as_deref(), "map", pos);
            loader.open_map(pos, anchor)?;
        }
        Event::SequenceEnd | Event::MappingEnd => loader.close(),
        Event::Alias(id) => loader.alias(id, pos)?,
        // Not asked for, or nothing of the data: comments, anchors' names, the ends of documents and of the text.
        _ => {}
    }
    Ok(())
}

fn scalar(loader: &mut Loader<'_>, text: &str, style: ScalarStyle, tag: Option<&Tag>, pos: Pos, anchor: usize) {
    check_tag(loader, tag, "str", pos);
    if style != ScalarStyle::Plain || tag.is_some() {
        return loader.scalar(pos, Kind::Text(text.into()), anchor);
    }
    match plain(text) {
        Ok(kind) => loader.scalar(pos, kind, anchor),
        Err(_) => loader.bad_number(pos, text, anchor),
    }
}

fn check_tag(loader: &mut Loader<'_>, tag: Option<&Tag>, allowed: &str, pos: Pos) {
    if let Some(tag) = tag
        && !tag.is_yaml_core_schema_tag(allowed)
    {
        let path = loader.path();
        let message = format!("the tag {} is not allowed here", quoted(&tag.original()));
        loader.report.add_hint(pos, &path, Code::YamlFeature, message, "write the value without a tag");
    }
}

fn syntax_error(loader: &mut Loader<'_>, text: &str, marker: granit_parser::Marker, kind: &ErrorKind) {
    let pos = pos_of(marker);
    if *kind == ErrorKind::RecursionLimitExceeded {
        // The scanner reads ahead, so its own limit can be met before ours.
        loader.too_deep(pos);
        return;
    }
    let message = format!("this is not valid YAML: {kind}");
    let before = marker.byte_offset().and_then(|offset| text.get(..offset)).unwrap_or("");
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let mut indent = text[line_start..].chars().take_while(|c| matches!(c, ' ' | '\t'));
    if indent.any(|c| c == '\t') || message.contains("found a tab") {
        loader.report.add_hint(pos, "", Code::Syntax, message, "indent with spaces, not with tabs");
    } else {
        loader.report.add(pos, "", Code::Syntax, message);
    }
}
