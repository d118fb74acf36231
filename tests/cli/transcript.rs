//! Stories of commands as golden text: what was typed, what came on stdout and stderr, the exit code
//! (`UPDATE_GOLDEN=1` writes them anew).
use std::fmt::Write as _;
use std::path::Path;

use crate::program::Said;

/// Commands with what they came to.
#[derive(Default)]
pub(crate) struct Transcript(String);

impl Transcript {
    /// Adds a command. What goes to stdout must fit 80 columns, and nothing may steer a terminal.
    #[track_caller]
    pub(crate) fn add(&mut self, args: &[&str], said: &Said) {
        let quoted = |arg: &&str| if arg.contains(' ') { format!("{arg:?}") } else { (*arg).to_owned() };
        writeln!(self.0, "$ reversi {}", args.iter().map(quoted).collect::<Vec<_>>().join(" ")).unwrap();
        self.0.push_str(&said.out);
        said.err.lines().for_each(|line| writeln!(self.0, "! {line}").unwrap());
        writeln!(self.0, "exit {}\n", said.code).unwrap();
        let json = args.contains(&"--json");
        assert!(json || said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
        for text in [&said.out, &said.err] {
            let steers = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!text.contains(steers), "{text:?}");
        }
    }

    /// Compares the whole with the golden text.
    #[track_caller]
    pub(crate) fn is(&self, name: &str) {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &self.0).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert!(self.0 == expected, "{name} changed; UPDATE_GOLDEN=1 accepts it:\n{}", self.0);
    }
}
