//! stdout: lines, JSON, tables that fit 80 columns. Colour only for terminals, and never text that could steer one: what
//! agents write is shown, not obeyed. Must not know what it prints.
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::failure::{Failure, exit};

/// As `eprintln!`, but without a panic where stderr is closed: nobody listens, and the exit code still says how it went.
macro_rules! tell {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($words)*)));
    }};
}
pub(crate) use tell;

/// Columns where nothing says otherwise.
const WIDTH: usize = 80;

/// Where data goes.
pub(super) struct Out {
    writer: Box<dyn Write>,
    colors: bool,
    /// Columns that a line should not exceed.
    pub(super) width: usize,
    /// The exit code that counts if nobody reads to the end.
    verdict: u8,
}

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it should be.
    Good,
    /// Worth a look.
    Doubtful,
    /// Wrong.
    Bad,
    /// Less important.
    Dim,
    /// A heading.
    Head,
}

impl Out {
    pub(super) fn stdout() -> Self {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        Self {
            writer: Box::new(BufWriter::new(io::stdout())),
            colors: colors_on(io::stdout().is_terminal()),
            width: columns.unwrap_or(WIDTH).max(WIDTH),
            verdict: exit::OK,
        }
    }

    /// For what a person reads beside the data, like the subject of a question.
    pub(super) fn stderr() -> Self {
        let writer = Box::new(BufWriter::new(io::stderr()));
        Self { writer, colors: colors_on(io::stderr().is_terminal()), ..Self::stdout() }
    }

    /// What a check came to, to be said before it is printed: a reader that closes the pipe must not turn it into a
    /// success.
    pub(super) fn judged(&mut self, code: u8) {
        self.verdict = code;
    }

    /// The exit code where the reader has closed the pipe.
    pub(super) fn unread(&self) -> ExitCode {
        ExitCode::from(self.verdict)
    }

    pub(super) fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        writeln!(self.writer, "{}", text.as_ref()).map_err(Failure::Output)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(Failure::Output)
    }

    /// One JSON document.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::Internal(format!("the answer has no JSON form: {error}")))?;
        self.line(text)
    }

    /// One JSON document on a line.
    pub(super) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::Internal(format!("the answer has no JSON form: {error}")))?;
        self.line(text)
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(Failure::Output)
    }

    /// The text in a colour, where there are colours.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        if !self.colors {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Doubtful => "33",
            Tone::Bad => "31",
            Tone::Dim => "2",
            Tone::Head => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Columns as wide as their widest cell; what goes beyond the line's width is cut off at its end.
    pub(super) fn table(&mut self, heads: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let cells: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
        let widest = |column: usize| {
            let lengths = cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            lengths.chain([heads[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(widest).collect();
        let line = |row: &[String]| {
            let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            cut(padded.collect::<Vec<_>>().join("  ").trim_end(), self.width)
        };
        let head = line(&heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>());
        let head = self.paint(Tone::Head, &head);
        let lines: Vec<String> = cells.iter().map(|row| line(row)).collect();
        self.line(head)?;
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    /// A paragraph whose lines all begin with `indent` spaces, the first one with `first` in their place. If that is
    /// painted, it must be padded already: colours have no width.
    pub(super) fn paragraph(&mut self, first: &str, indent: usize, text: &str) -> Result<(), Failure> {
        for (at, line) in wrap(&clean(text), self.width.saturating_sub(indent)).iter().enumerate() {
            let start = if at == 0 { format!("{first:indent$}") } else { " ".repeat(indent) };
            self.line(format!("{start}{line}").trim_end())?;
        }
        Ok(())
    }
}

/// `NO_COLOR` (<https://no-color.org>) counts if it is set to anything.
fn colors_on(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// A word of an error message on stderr.
pub(super) fn paint_errors(text: &str) -> String {
    if colors_on(io::stderr().is_terminal()) { format!("\x1b[31;1m{text}\x1b[0m") } else { text.to_owned() }
}

/// The text without anything that moves a cursor, rings a bell or turns the writing around; lines and tabs stay.
pub(super) fn clean(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' => c,
        '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(harmless).collect()
}

/// Lines of somebody else's text that never reach beyond `width`: broken at words, and within words where need be.
pub(super) fn folded(text: &str, width: usize) -> Vec<String> {
    let lines = text.lines().flat_map(|line| wrap(line, width));
    lines.flat_map(|line| pieces(&line, width)).collect()
}

/// The line in pieces of at most `width` characters, nothing left out; at least one.
pub(super) fn pieces(line: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    if chars.is_empty() {
        return vec![String::new()];
    }
    chars.chunks(width.max(1)).map(|chunk| chunk.iter().collect()).collect()
}

fn cut(line: &str, width: usize) -> String {
    let line = line.replace('\n', " ");
    if line.chars().count() <= width {
        return line;
    }
    let mut short: String = line.chars().take(width - 1).collect();
    short.push('…');
    short
}

/// Breaks at white space; a word that is longer than a line stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.len() - 1;
        let taken = lines[line].chars().count();
        if taken > 0 && taken + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if taken > 0 {
                lines[line].push(' ');
            }
            lines[line].push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_not_steer_a_terminal() {
        assert_eq!(clean("a\x1b[2Jb\u{202e}c\rd\u{7}\te\nf"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd} e\nf");
    }

    #[test]
    fn paragraphs_are_broken_at_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 7), ["incomprehensible"]);
        assert_eq!(wrap("", 7), [""]);
    }

    #[test]
    fn foreign_lines_stay_within_their_width() {
        assert_eq!(folded("ab cd\n\nabcdefgh ij", 5), ["ab cd", "", "abcde", "fgh", "ij"]);
        assert_eq!(pieces("  abcdef", 5), ["  abc", "def"]);
        assert_eq!(pieces("", 5), [""]);
    }

    #[test]
    fn long_lines_are_cut_with_a_mark() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
    }
}
