//! The one clock: real and simulated. The only home of wall time, of the boot clock and of sleeping.
//! Must not know what anybody waits for.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use reversi_proto::time::Timestamp;
use tokio::sync::oneshot;

/// What tells the time. `now` never goes back and never follows a step of the wall clock.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The instant that decisions and records use.
    fn now(&self) -> Timestamp;
    /// What the wall clock says, for the check at boot that the two agree.
    fn wall(&self) -> Timestamp;
    /// Told at boot: the newest record's time, below which `now` must not fall.
    fn raise_to(&self, last: Timestamp);
    /// By how many microseconds the wall clock has been stepped since this was last asked; none below a second.
    /// The caller journals it (`clock.stepped`); `now` does not follow.
    fn wall_step(&self) -> Option<i64>;
    /// Returns once `now` has reached `at`; late is possible, early is not.
    async fn sleep_until(&self, at: Timestamp);
}

/// Wall time at boot (or the newest record's, if that is later) plus the time elapsed by `CLOCK_BOOTTIME`, which counts
/// suspended hours too.
#[derive(Debug)]
pub struct RealClock {
    /// Added to the boot clock's microseconds this gives `now`.
    base: AtomicI64,
    /// The wall clock's distance from the boot clock when a step was last looked for.
    seen: AtomicI64,
}

/// A change of the wall clock against elapsed time, below which it counts as slewing and not as a step.
const STEP_MICROS: i64 = 1_000_000;

/// Sleeping ends at least this often and looks again, because tokio's timer does not count suspended hours.
const NAP_MAX: Duration = Duration::from_secs(15);

impl RealClock {
    /// Starts at the wall clock.
    pub fn start() -> Self {
        let distance = wall_micros() - boot_micros();
        Self { base: AtomicI64::new(distance), seen: AtomicI64::new(distance) }
    }
}

#[async_trait]
impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.base.load(Ordering::Relaxed).saturating_add(boot_micros()))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(wall_micros())
    }

    fn raise_to(&self, last: Timestamp) {
        self.base.fetch_max(last.micros() - boot_micros(), Ordering::Relaxed);
    }

    fn wall_step(&self) -> Option<i64> {
        let distance = wall_micros() - boot_micros();
        let step = distance - self.seen.load(Ordering::Relaxed);
        if step.abs() < STEP_MICROS {
            return None;
        }
        self.seen.store(distance, Ordering::Relaxed);
        Some(step)
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = at.micros() - self.now().micros();
            let Ok(left @ 1..) = u64::try_from(left) else { return };
            // The one place that sleeps.
            #[allow(clippy::disallowed_methods)]
            tokio::time::sleep(Duration::from_micros(left).min(NAP_MAX)).await;
        }
    }
}

fn boot_micros() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1000)
}

fn wall_micros() -> i64 {
    // The one place that reads the wall clock.
    #[allow(clippy::disallowed_methods)]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A clock that stands until it is moved; sleepers are woken in the order of their instants, ties in the order in which
/// they went to sleep.
#[derive(Debug, Default)]
pub struct SimClock {
    state: Mutex<SimState>,
}

#[derive(Debug, Default)]
struct SimState {
    now: Timestamp,
    wall: Option<Timestamp>,
    stepped: Option<i64>,
    slept: u64,
    sleepers: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
}

impl SimClock {
    /// Stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.state().now = now;
        clock
    }

    /// Moves to `to` (never back) and wakes, in order, everyone whose instant has come. While each is woken, `now` is its
    /// own instant; the tasks run when their executor gets to them.
    pub fn advance_to(&self, to: Timestamp) {
        while let Some(at) = self.next_sleeper().filter(|at| *at <= to) {
            let mut state = self.state();
            state.now = state.now.max(at);
            if let Some((_, sleeper)) = state.sleepers.pop_first() {
                let _ = sleeper.send(());
            }
        }
        let mut state = self.state();
        state.now = state.now.max(to);
    }

    /// Moves on by `ms` milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        let to = self.state().now.plus_ms(ms);
        self.advance_to(to);
    }

    /// The earliest instant that somebody sleeps for.
    pub fn next_sleeper(&self) -> Option<Timestamp> {
        let mut state = self.state();
        state.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        state.sleepers.keys().next().map(|(at, _)| *at)
    }

    /// Sets what `wall` says, apart from `now`.
    pub fn set_wall(&self, wall: Timestamp) {
        self.state().wall = Some(wall);
    }

    /// Steps the wall clock; `now` stays.
    pub fn step_wall(&self, micros: i64) {
        let mut state = self.state();
        state.wall = Some(Timestamp::from_micros(state.wall.unwrap_or(state.now).micros() + micros));
        state.stepped = Some(state.stepped.unwrap_or(0) + micros);
    }

    fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enlist(&self, at: Timestamp) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        if state.now >= at {
            return None;
        }
        let (sleeper, woken) = oneshot::channel();
        state.slept += 1;
        let key = (at, state.slept);
        state.sleepers.insert(key, sleeper);
        Some(woken)
    }
}

#[async_trait]
impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.state().now
    }

    fn wall(&self) -> Timestamp {
        let state = self.state();
        state.wall.unwrap_or(state.now)
    }

    fn raise_to(&self, last: Timestamp) {
        let mut state = self.state();
        state.now = state.now.max(last);
    }

    fn wall_step(&self) -> Option<i64> {
        self.state().stepped.take()
    }

    async fn sleep_until(&self, at: Timestamp) {
        if let Some(woken) = self.enlist(at) {
            let _ = woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_real_clock_never_falls_below_the_newest_record() {
        let clock = RealClock::start();
        assert!(clock.now().micros().abs_diff(clock.wall().micros()) < 1_000_000);
        let ahead = clock.now().plus_ms(3_600_000);
        clock.raise_to(ahead);
        assert!(clock.now() >= ahead);
        clock.raise_to(Timestamp::from_micros(5));
        assert!(clock.now() >= ahead, "an old record must not turn the clock back");
    }

    #[test]
    fn a_wall_step_is_told_once_and_not_followed() {
        let clock = RealClock::start();
        assert_eq!(clock.wall_step(), None);
        clock.seen.fetch_add(3_600_000_000, Ordering::Relaxed);
        let before = clock.now();
        let step = clock.wall_step().unwrap();
        assert!((step + 3_600_000_000).abs() < 1_000_000, "{step}");
        assert_eq!(clock.wall_step(), None);
        assert!(clock.now().ms_since(before) < 60_000);
    }

    #[tokio::test]
    async fn sleepers_wake_in_order_and_never_early() {
        let clock = Arc::new(SimClock::at(Timestamp::from_micros(0)));
        let (order, mut woken) = tokio::sync::mpsc::unbounded_channel();
        for ms in [30_u64, 10, 20] {
            let (clock, order) = (Arc::clone(&clock), order.clone());
            tokio::spawn(async move {
                clock.sleep_until(Timestamp::from_micros(0).plus_ms(ms)).await;
                order.send(ms).unwrap();
            });
        }
        tokio::task::yield_now().await;
        clock.advance_ms(9);
        tokio::task::yield_now().await;
        assert!(woken.try_recv().is_err(), "nobody is woken early");
        assert_eq!(clock.next_sleeper(), Some(Timestamp::from_micros(10_000)));
        clock.advance_ms(100);
        assert_eq!([woken.recv().await, woken.recv().await, woken.recv().await], [Some(10), Some(20), Some(30)]);
        clock.sleep_until(Timestamp::from_micros(1)).await;
    }
}
