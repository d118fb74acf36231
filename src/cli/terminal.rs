//! A person at a terminal: a question, a secret. Where nobody can see the question nobody is asked. Must not know what
//! the answer is for.
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::failure::Failure;

/// Longest answer, in bytes.
const ANSWER_MAX: u64 = 64 * 1024;

/// Somebody who sees stderr and can type.
pub(super) struct Terminal(File);

impl Terminal {
    /// stdin, or the terminal behind the process where stdin is something else. None where nobody sees stderr.
    pub(super) fn open() -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        if io::stdin().is_terminal() {
            return io::stdin().as_fd().try_clone_to_owned().ok().map(|fd| Self(fd.into()));
        }
        File::open("/dev/tty").ok().map(Self)
    }

    /// Asks for a yes; everything else is a no.
    pub(super) fn yes(&self, question: &str) -> Result<bool, Failure> {
        let answer = self.line(question)?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Asks for something that must not be seen.
    pub(super) fn secret(&self, question: &str) -> Result<String, Failure> {
        let hidden = Hidden::on(&self.0).map_err(|error| unreadable(&error))?;
        let answer = self.line(question);
        drop(hidden);
        // The line break that was typed was not shown either.
        eprintln!();
        answer
    }

    fn line(&self, question: &str) -> Result<String, Failure> {
        eprint!("{question}");
        io::stderr().flush().map_err(|error| unreadable(&error))?;
        let mut line = String::new();
        let mut reader = BufReader::new(io::Read::take(&self.0, ANSWER_MAX));
        reader.read_line(&mut line).map_err(|error| unreadable(&error))?;
        if line.is_empty() {
            // The end of the input: the prompt's line is still open.
            eprintln!();
        }
        Ok(line)
    }
}

/// While it lives, what is typed is not shown.
struct Hidden<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Hidden<'t> {
    fn on(terminal: &'t File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // Nothing better can be done for a terminal that is gone.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::Input(format!("the terminal can't be used: {error}"))
}
