//! The results as `JUnit` XML, as CI systems read it. Must not know what a case is about.
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::{Case, CaseResult, Failure, Outcome, told};
use crate::cli::ledger::{folder_of, keep};

/// Writes the file, as a whole or not at all.
pub(super) fn write(file: &Path, outcome: &Outcome<'_>) -> Result<(), Failure> {
    let written = |error: std::io::Error| Failure::io("written", file, &error);
    let mut aside = tempfile::NamedTempFile::new_in(folder_of(file)).map_err(written)?;
    aside.write_all(xml(outcome).as_bytes()).map_err(written)?;
    keep(aside, file).map_err(written)
}

fn xml(outcome: &Outcome<'_>) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (tests, failed) = (outcome.results.len(), outcome.failed());
    // Writing to a string can't fail. The time is simulated, so it is told as none; some readers want the attribute.
    let _ = writeln!(text, "<testsuites name=\"reversi test\" tests=\"{tests}\" failures=\"{failed}\" time=\"0\">");
    let cases: Vec<(&Case, &CaseResult)> = outcome.each().collect();
    for suite in cases.chunk_by(|(one, _), (next, _)| one.source == next.source) {
        suite_xml(suite, &mut text);
    }
    text.push_str("</testsuites>\n");
    text
}

fn suite_xml(suite: &[(&Case, &CaseResult)], text: &mut String) {
    let Some((first, _)) = suite.first() else { return };
    let file = escaped(&first.source);
    let (tests, failed) = (suite.len(), suite.iter().filter(|(_, result)| !result.passed()).count());
    let _ = writeln!(
        text,
        "  <testsuite name=\"{file}\" tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\" time=\"0\">"
    );
    for (case, result) in suite {
        let (name, line) = (escaped(&case.name), case.line);
        let head =
            format!("    <testcase name=\"{name}\" classname=\"{file}\" file=\"{file}\" line=\"{line}\" time=\"0\"");
        let Some(failure) = result.failures.first() else {
            let _ = writeln!(text, "{head}/>");
            continue;
        };
        let (message, kind) = (escaped(&failure.message), failure.field);
        let lines: Vec<String> = told(result).collect();
        let why = escaped(&lines.join("\n"));
        let _ = writeln!(text, "{head}>\n      <failure message=\"{message}\" type=\"{kind}\">{why}</failure>");
        text.push_str("    </testcase>\n");
    }
    text.push_str("  </testsuite>\n");
}

/// Text and attribute values alike. What XML 1.0 can't hold, not even escaped, is dropped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // In an attribute they would be read as blanks.
            '\n' => escaped.push_str("&#10;"),
            '\r' => escaped.push_str("&#13;"),
            '\t' => escaped.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_in_a_text_can_end_it() {
        assert_eq!(escaped("a<b>&\"c\"]]>"), "a&lt;b&gt;&amp;&quot;c&quot;]]&gt;");
        assert_eq!(escaped("one\ntwo\tthree\r"), "one&#10;two&#9;three&#13;");
    }

    #[test]
    fn what_xml_can_not_hold_is_dropped() {
        assert_eq!(escaped("a\u{0}\u{1b}[31m\u{7f}\u{85}\u{fffe}b\u{1f600}"), "a[31mb\u{1f600}");
    }
}
