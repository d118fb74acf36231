//! The process log, on stderr: for people, or as JSON lines. Must not know what is logged.
use std::io::IsTerminal as _;

use tracing::Metadata;
use tracing_subscriber::filter::{FilterExt as _, ParseError, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

/// What is logged where nobody says otherwise: our own news, and of the libraries only what went wrong.
const LEVEL_DEFAULT: &str = "info,sled=warn,ractor=warn";

/// Libraries that log what they carry, and so arguments and results: never, whatever level is asked for.
const NEVER: &[&str] = &["rmcp", "sse_stream", "reqwest", "hyper", "hyper_util", "h2", "axum", "tower_http"];

/// Starts the log. The level is `level`, else that of `RUST_LOG`, else info. A second call changes nothing.
pub fn start(json: bool, level: Option<&str>) -> Result<(), ParseError> {
    let asked = match (level, std::env::var("RUST_LOG")) {
        (Some(level), _) => EnvFilter::try_new(level)?,
        (None, Ok(level)) if !level.is_empty() => EnvFilter::try_new(level)?,
        (None, Ok(_) | Err(_)) => EnvFilter::try_new(LEVEL_DEFAULT)?,
    };
    // A filter of its own: an `off` among the directives would lose to a more precise one, like `rmcp::service=trace`.
    let filter = asked.and(filter_fn(may_be_logged));
    // The terminal can go away without ending us: a line that can't be written is lost, and must not be a panic.
    let lines = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let lines = if json {
        lines.json().flatten_event(true).with_current_span(false).boxed()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed()
    };
    // Fails only if a log was started already, which then goes on.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    Ok(())
}

fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    !carries_values(metadata.target())
}

fn carries_values(target: &str) -> bool {
    let library = target.split("::").next().unwrap_or_default();
    NEVER.contains(&library)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_level_makes_a_library_tell_what_it_carries() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let asked = EnvFilter::try_new("trace,rmcp::service=trace").unwrap().and(filter_fn(may_be_logged));
        let log = tracing_subscriber::registry().with(lines.with_filter(asked));
        tracing::subscriber::with_default(log, || {
            tracing::info!(target: "rmcp::service", "m4rked");
            tracing::info!(target: "rmcp", "m4rked");
            tracing::info!(target: "rmcp_like", "ours");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("ours") && !text.contains("m4rked"), "{text}");
    }
}
