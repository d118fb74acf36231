//! Bars and spinners on stderr, for terminals only. Must not know what takes so long.
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(100);

/// How many of so many bytes are done. Draws nothing where nobody looks.
pub(super) fn bytes(total: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Something goes on.
pub(super) fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(TICK);
    spinner
}
