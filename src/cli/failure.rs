//! Why a command did not do what it was asked to, and which exit code says so. The one place that prints errors.
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use super::out::{clean, paint_errors, tell};

/// Exit codes, the same for every command.
pub mod exit {
    /// Done.
    pub const OK: u8 = 0;
    /// The check failed, or the input is bad.
    pub const FAILED: u8 = 1;
    /// The command line is wrong.
    pub const USAGE: u8 = 64;
    /// A defect, here or in the daemon.
    pub const INTERNAL: u8 = 70;
}

/// Instead of an exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line can't be meant.
    #[error("{0}")]
    Usage(String),
    /// A file is not what it should be.
    #[error("{0}")]
    Input(String),
    /// The daemon said no.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its stable code.
        code: Option<String>,
        /// Its sentence.
        detail: String,
        /// The request's id, to be found in its log.
        request_id: Option<String>,
    },
    /// The daemon can't be reached, or its answer got lost.
    #[error("{0}")]
    Unreachable(String),
    /// A defect.
    #[error("{0}")]
    Internal(String),
    /// stdout can't be written to.
    #[error("the output can't be written")]
    Output(#[source] io::Error),
    /// One of the programs that share the binary.
    #[error(transparent)]
    Program(#[from] anyhow::Error),
}

impl Failure {
    /// A file that can't be read, written or found.
    pub(super) fn io(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::Input(format!("{} can't be {what}: {error}", path.display()))
    }

    /// Whoever read the output has closed the pipe, having read enough.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Tells stderr, and gives the exit code.
    pub(super) fn report(&self) -> ExitCode {
        let code = match self {
            Self::Usage(_) => exit::USAGE,
            Self::Refused { status: 500, .. } | Self::Internal(_) => exit::INTERNAL,
            Self::Input(_) | Self::Refused { .. } | Self::Unreachable(_) | Self::Output(_) | Self::Program(_) => {
                exit::FAILED
            }
        };
        tell!("{} {}", paint_errors("error:"), clean(&self.sentence()));
        ExitCode::from(code)
    }

    /// What happened, with all causes and, of the daemon's refusals, the code.
    fn sentence(&self) -> String {
        let mut text = self.to_string();
        let mut source = match self {
            Self::Program(error) => error.source(),
            Self::Output(error) => Some(error as &dyn std::error::Error),
            Self::Usage(_) | Self::Input(_) | Self::Refused { .. } | Self::Unreachable(_) | Self::Internal(_) => None,
        };
        while let Some(cause) = source {
            let _ = write!(text, ": {cause}");
            source = cause.source();
        }
        if let Self::Refused { status, code, request_id, .. } = self {
            let name = code.as_deref().unwrap_or("no code");
            let _ = match request_id.as_deref().filter(|_| *status >= 500) {
                Some(id) => write!(text, " ({name}, request {id})"),
                None => write!(text, " ({name})"),
            };
            let _ = match status {
                401 => write!(text, "\nGive a key that is in force: REVERSI_KEY, --key-file or `reversi login`."),
                503 => write!(text, "\nNothing is wrong with the request: try again in a moment."),
                _ => Ok(()),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_its_code_and_what_helps() {
        let refused = |status, request_id: Option<&str>| Failure::Refused {
            status,
            code: Some("key.invalid".to_owned()),
            detail: "the access key is wrong".to_owned(),
            request_id: request_id.map(str::to_owned),
        };
        let said = refused(401, Some("req_1")).sentence();
        assert!(said.starts_with("the access key is wrong (key.invalid)\nGive a key"), "{said}");
        assert_eq!(refused(500, Some("req_1")).sentence(), "the access key is wrong (key.invalid, request req_1)");
    }

    #[test]
    fn causes_are_said_once_and_in_order() {
        let error = anyhow::anyhow!("port 1 is taken").context("cannot listen");
        assert_eq!(Failure::Program(error).sentence(), "cannot listen: port 1 is taken");
    }
}
