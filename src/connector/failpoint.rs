//! Named places where a test kills this process. Compiles to nothing without the feature `failpoints`.

/// Kills the process with SIGKILL when `REVERSI_FS_KILL_AT` names this point.
#[cfg(feature = "failpoints")]
pub(crate) fn pass(point: &str) {
    if std::env::var("REVERSI_FS_KILL_AT").is_ok_and(|wanted| wanted == point) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Does nothing in a shipped binary.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn pass(_point: &str) {}
