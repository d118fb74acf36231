//! When an entity must next be woken.
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Journaled beside each record for the streams it advances, so that alarms can be rebuilt without domain code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wake {
    /// Nothing to do until the next command.
    None,
    /// At once: something should be running.
    Now,
    /// Not before this instant.
    At(Timestamp),
}
