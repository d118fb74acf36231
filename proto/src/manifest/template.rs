//! Idempotency key templates: `charge-{{args.order_id}}`. Renders a key or refuses; never guesses, and never names a
//! value in an error.
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

use super::diagnostic::quoted;
use super::node::{WHOLE_MAX, whole_of};
use super::path::{PathError, ValuePath};

const LENGTH_MAX: usize = 1024;

/// A parsed template with at least one field.
///
/// Rendering is injective for the values of one template: two calls get one key only if every named argument reads the
/// same. With one field the key is the template with the value put in. With several, each value is preceded by its
/// length in bytes and a colon (`{{args.a}}-{{args.b}}` gives `3:x-y-1:z`), or else `x-y` + `z` and `x` + `y-z` would
/// be one key. Numbers are written in canonical form (`1.0` is `1`). Text and number of one spelling (`"1"` and `1`)
/// are deliberately one key, as are `true` and `"true"`: a model that quotes a number on its second try must not
/// charge twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<Part>,
    fields: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Field(ValuePath),
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateSyntaxError {
    /// It is a constant: every call would be a duplicate of the first.
    #[error("must name at least one argument, got {got}")]
    NoField {
        /// The template, quoted and cut.
        got: String,
    },
    /// `{{` without `}}`, or the other way round.
    #[error("has a {{{{ or }}}} without its partner, got {got}")]
    Unbalanced {
        /// The template, quoted and cut.
        got: String,
    },
    /// Something else than `args.` and a path in the braces.
    #[error("can only use arguments of the call, got {got}")]
    NotAnArgument {
        /// What stood in the braces, quoted and cut.
        got: String,
    },
    /// What follows `args.` is no path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Too long to be meant.
    #[error("must have at most {LENGTH_MAX} bytes, got {got}")]
    TooLong {
        /// Its length.
        got: usize,
    },
}

/// Why a call has no key. Names the argument, never its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The call lacks the argument.
    #[error("the idempotency key needs the argument {field}, which is missing")]
    Missing {
        /// The argument's path.
        field: String,
    },
    /// The argument is null, a list or an object.
    #[error("the idempotency key needs a text, number or boolean as the argument {field}, got {got}")]
    NotPlain {
        /// The argument's path.
        field: String,
        /// The type of what it is.
        got: &'static str,
    },
}

impl KeyTemplate {
    /// The paths of the arguments that are used, in the order of the template.
    pub fn fields(&self) -> impl Iterator<Item = &ValuePath> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Field(path) => Some(path),
        })
    }

    /// The texts between the arguments.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(text) => Some(text.as_str()),
            Part::Field(_) => None,
        })
    }

    /// The key of a call with these arguments.
    pub fn render(&self, args: &Value) -> Result<String, TemplateError> {
        let mut key = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => key.push_str(text),
                Part::Field(path) => {
                    let value = plain_text(path, args)?;
                    if self.fields > 1 {
                        key.push_str(&value.len().to_string());
                        key.push(':');
                    }
                    key.push_str(&value);
                }
            }
        }
        Ok(key)
    }
}

fn plain_text(path: &ValuePath, args: &Value) -> Result<String, TemplateError> {
    let value = path.resolve(args).ok_or_else(|| TemplateError::Missing { field: path.to_string() })?;
    let got = match value {
        Value::String(text) => return Ok(text.clone()),
        Value::Number(number) => return Ok(number_text(number)),
        Value::Bool(value) => return Ok(value.to_string()),
        Value::Null => "null",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Err(TemplateError::NotPlain { field: path.to_string(), got })
}

/// The canonical spelling (RFC 8785) of a number.
fn number_text(number: &Number) -> String {
    let double = if number.is_f64() { number.as_f64() } else { None };
    match double {
        None => number.to_string(),
        Some(double) => match whole_of(double).filter(|whole| (-WHOLE_MAX..=WHOLE_MAX).contains(whole)) {
            Some(whole) => whole.to_string(),
            None => ryu_js::Buffer::new().format(double).to_owned(),
        },
    }
}

impl FromStr for KeyTemplate {
    type Err = TemplateSyntaxError;
    fn from_str(text: &str) -> Result<Self, TemplateSyntaxError> {
        if text.len() > LENGTH_MAX {
            return Err(TemplateSyntaxError::TooLong { got: text.len() });
        }
        let unbalanced = || TemplateSyntaxError::Unbalanced { got: quoted(text) };
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once("{{") {
            let (inside, after) = after.split_once("}}").ok_or_else(unbalanced)?;
            push_literal(&mut parts, literal).ok_or_else(unbalanced)?;
            let path = inside.strip_prefix("args.");
            let path = path.ok_or_else(|| TemplateSyntaxError::NotAnArgument { got: quoted(inside) })?;
            parts.push(Part::Field(path.parse()?));
            rest = after;
        }
        push_literal(&mut parts, rest).ok_or_else(unbalanced)?;
        let fields = parts.iter().filter(|part| matches!(part, Part::Field(_))).count();
        if fields == 0 {
            return Err(TemplateSyntaxError::NoField { got: quoted(text) });
        }
        Ok(Self { text: text.to_owned(), parts, fields })
    }
}

fn push_literal(parts: &mut Vec<Part>, literal: &str) -> Option<()> {
    if literal.contains("}}") {
        return None;
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal.to_owned()));
    }
    Some(())
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for KeyTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn render(template: &str, args: &Value) -> Result<String, TemplateError> {
        template.parse::<KeyTemplate>().unwrap().render(args)
    }

    #[test]
    fn one_field_is_put_in_as_it_is() {
        assert_eq!(render("charge-{{args.order_id}}", &json!({"order_id": "o1"})).unwrap(), "charge-o1");
        assert_eq!(render("{{args.a.0.b}}!", &json!({"a": [{"b": true}]})).unwrap(), "true!");
    }

    #[test]
    fn numbers_have_one_spelling() {
        for (value, key) in [
            (json!(1), "1"),
            (json!(1.0), "1"),
            (json!("1"), "1"),
            (json!(12.50), "12.5"),
            (json!(-0.0), "0"),
            (json!(1e21), "1e+21"),
            (json!(0.000_001), "0.000001"),
        ] {
            assert_eq!(render("{{args.n}}", &json!({"n": value})).unwrap(), key);
        }
    }

    #[test]
    fn several_fields_do_not_run_into_each_other() {
        let template = "{{args.a}}-{{args.b}}";
        let one = render(template, &json!({"a": "x-y", "b": "z"})).unwrap();
        assert_eq!(one, "3:x-y-1:z");
        assert_ne!(one, render(template, &json!({"a": "x", "b": "y-z"})).unwrap());
    }

    // H4
    #[test]
    fn refuses_rather_than_guesses_and_names_no_value() {
        let template = "k-{{args.id}}";
        assert_eq!(render(template, &json!({})), Err(TemplateError::Missing { field: "id".to_owned() }));
        for value in [json!(null), json!(["secret"]), json!({"a": "secret"})] {
            let error = render(template, &json!({"id": value})).unwrap_err();
            assert!(matches!(&error, TemplateError::NotPlain { field, .. } if field == "id"));
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn refuses_what_is_no_template() {
        for text in [
            "",
            "constant",
            "{args.id}",
            "{{args}}",
            "{{args.}}",
            "{{ args.id }}",
            "{{result.id}}",
            "{{$args.id}}",
            "{{args.id}",
            "{{args.id}}}}",
            "}}{{args.id}}",
            "{{{args.id}}}",
            "{{args.a{{args.b}}}}",
            "{{args.id}} {{",
        ] {
            assert!(text.parse::<KeyTemplate>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn keys_are_as_different_as_the_values(
            a in "[a-c0-2:-]{0,6}", b in "[a-c0-2:-]{0,6}", c in "[a-c0-2:-]{0,6}", d in "[a-c0-2:-]{0,6}",
            between in "[a-c0-2:-]{0,2}",
        ) {
            let template = format!("{{{{args.a}}}}{between}{{{{args.b}}}}");
            let one = render(&template, &json!({"a": a, "b": b})).unwrap();
            let two = render(&template, &json!({"a": c, "b": d})).unwrap();
            prop_assert_eq!(one == two, a == c && b == d);
        }
    }
}
