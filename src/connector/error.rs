//! Why a tool call gave no result, split by what the caller may conclude. Knows no tool.
use std::io;

/// Every message is a sentence for the caller; it goes back over the protocol and nowhere else.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The call itself is wrong; nothing was executed. JSON-RPC -32602.
    #[error("{0}")]
    Params(String),
    /// The call is fine, the world is not; nothing was changed. A result with `isError`.
    #[error("{0}")]
    Refused(String),
    /// Whether the change is durable is not known. The process ends without an answer, so that the caller sees a
    /// lost connection and not a false statement; the next start recovers.
    #[error("the state directory failed in the middle of a change")]
    Fatal(#[source] io::Error),
}

impl ToolError {
    /// A refusal for an operation that the system refused before anything was changed.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::Refused(format!("Could not {what}: {error}. Nothing was changed."))
    }
}
