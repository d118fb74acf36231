//! Whether a failed child is started again: a pure function of its failures. Knows no actors.
use crate::time::Timestamp;

/// How often a child may fail before it is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Failures within the window after which the child is quarantined.
    pub failures_max: usize,
    /// How far back failures count, in milliseconds.
    pub window_ms: u64,
    /// Wait before the first restart, in milliseconds; doubled with each further failure in the window.
    pub base_ms: u64,
    /// Longest wait, in milliseconds.
    pub max_ms: u64,
}

/// What to do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Start it again, not before then.
    At(Timestamp),
    /// Leave it alone until an operator releases it.
    Quarantine,
}

impl RestartPolicy {
    /// `failures`: instants of all failures so far, the newest one included.
    pub fn after(&self, failures: &[Timestamp], now: Timestamp) -> Restart {
        let recent = failures.iter().filter(|at| now.ms_since(**at) < self.window_ms).count();
        if recent >= self.failures_max {
            return Restart::Quarantine;
        }
        let doublings = u32::try_from(recent.saturating_sub(1)).unwrap_or(u32::MAX).min(40);
        Restart::At(now.plus_ms(self.base_ms.saturating_mul(1 << doublings).min(self.max_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RestartPolicy = RestartPolicy { failures_max: 4, window_ms: 60_000, base_ms: 100, max_ms: 300 };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(0).plus_ms(ms)
    }

    #[test]
    fn waits_longer_each_time_then_gives_up() {
        assert_eq!(POLICY.after(&[at(0)], at(0)), Restart::At(at(100)));
        assert_eq!(POLICY.after(&[at(0), at(200)], at(200)), Restart::At(at(400)));
        assert_eq!(POLICY.after(&[at(0), at(1), at(2)], at(2)), Restart::At(at(302)));
        assert_eq!(POLICY.after(&[at(0), at(1), at(2), at(3)], at(3)), Restart::Quarantine);
    }

    #[test]
    fn old_failures_are_forgiven() {
        assert_eq!(POLICY.after(&[at(0), at(1), at(2), at(70_000)], at(70_000)), Restart::At(at(70_100)));
    }
}
