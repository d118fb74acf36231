//! The process log, on stderr: for people, or as JSON lines. Must not know what is logged.
use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// What is logged where nobody says otherwise: our own news, and of the libraries only what went wrong.
const LEVEL_DEFAULT: &str = "info,sled=warn,ractor=warn";

/// Libraries that log what they carry, and so arguments and results: never, whatever level is asked for.
const NEVER: &[&str] = &["rmcp", "sse_stream", "reqwest", "hyper", "hyper_util", "h2", "axum", "tower_http"];

/// Starts the log. The level is `level`, else that of `RUST_LOG`, else info. A second call changes nothing.
pub fn start(json: bool, level: Option<&str>) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = match (level, std::env::var("RUST_LOG")) {
        (Some(level), _) => EnvFilter::try_new(level)?,
        (None, Ok(level)) if !level.is_empty() => EnvFilter::try_new(level)?,
        (None, Ok(_) | Err(_)) => EnvFilter::try_new(LEVEL_DEFAULT)?,
    };
    let mut filter = filter;
    for target in NEVER {
        filter = filter.add_directive(format!("{target}=off").parse()?);
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only if a log was started already, which then goes on.
    let _ = if json {
        log.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init()
    };
    Ok(())
}
