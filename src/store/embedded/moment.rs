//! A moment on the clock that leases expire by.

use std::time::Duration;

use crate::clock::Clock;

/// Microseconds since the boot that the file names. Negative for what a reboot left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(i64);

// === impl Moment ===

impl Moment {
    /// Now.
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self(micros(clock.since_boot()))
    }

    /// The moment with this number, as it was kept.
    pub(super) fn from_micros(number: i64) -> Self {
        Self(number)
    }

    /// The number to keep.
    pub(super) fn as_micros(self) -> i64 {
        self.0
    }

    /// The moment that is so much later.
    pub(super) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// How long ago `earlier` was; zero if it is yet to come.
    pub(super) fn since(self, earlier: Self) -> Duration {
        let distance = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(distance).unwrap_or_default())
    }

    /// The moment that is as far from `there` as this one is from `here`.
    pub(super) fn rebased(self, here: Self, there: Self) -> Self {
        Self(there.0.saturating_add(self.0.saturating_sub(here.0)))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
