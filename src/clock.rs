//! The clocks for time that outlives the process.
//!
//! Waits and time-outs use [`tokio::time::Instant`], which tests can pause. This module is for the
//! two other kinds: wall time, which is only ever displayed, and time since boot, by which the
//! embedded store keeps leases across a restart of the process.

use std::{
    fmt::Debug,
    fs,
    time::{Duration, SystemTime},
};

use humantime::Rfc3339Timestamp;
use jiff::{Timestamp, fmt::temporal::Pieces};

/// The identity of one boot of the machine; times since boot are comparable only within one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootId(String);

/// A source of wall time and of time since boot.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The wall time, for display only: no decision may depend on it.
    fn wall(&self) -> SystemTime;

    /// The time since the machine booted, sleep included.
    fn since_boot(&self) -> Duration;

    /// The boot that [`Clock::since_boot`] counts from.
    fn boot_id(&self) -> BootId;
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// Formats a time as RFC 3339 in UTC. A time outside the years that can be written is shown as the beginning of 1970:
/// the text is for display only, and no reason to fail.
pub fn rfc3339(time: Option<SystemTime>) -> Rfc3339Timestamp {
    /// The end of the year 9999, in seconds.
    const END: Duration = Duration::from_secs(253_402_300_799);
    let time = time
        .filter(|time| {
            time.duration_since(SystemTime::UNIX_EPOCH)
                .is_ok_and(|since| since <= END)
        })
        .unwrap_or(SystemTime::UNIX_EPOCH);
    humantime::format_rfc3339_millis(time)
}

/// Reads a time with an offset: RFC 3339, and what programs write instead: no seconds (`T18:00Z`), an offset without a
/// colon (`+0100`), the name of the zone behind the offset. A leap second counts as the second before it.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let time = text.parse::<Timestamp>().ok()?;
    let offset = Pieces::parse(text).ok()?.to_numeric_offset()?;
    // No clock is a day off UTC, so such an offset is a mistake.
    (offset.seconds().unsigned_abs() < 24 * 60 * 60).then_some(time)
}

// === impl BootId ===

impl BootId {
    /// Makes a boot id from the identifier that the operating system reports.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The boot id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl SystemClock ===

impl Clock for SystemClock {
    fn wall(&self) -> SystemTime {
        #[expect(clippy::disallowed_methods, reason = "all other code takes this clock")]
        SystemTime::now()
    }

    fn since_boot(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(id);
        Duration::new(
            u64::try_from(now.tv_sec).unwrap_or_default(),
            u32::try_from(now.tv_nsec).unwrap_or_default(),
        )
    }

    fn boot_id(&self) -> BootId {
        // Without the file (not Linux, or /proc hidden) every start counts as a new boot: leases then get their full
        // TTL again, which is the safe direction.
        fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(
            |_| {
                BootId::new(format!(
                    "unknown-{:016x}",
                    getrandom::u64().unwrap_or_default()
                ))
            },
            |id| BootId::new(id.trim()),
        )
    }
}

#[cfg(test)]
#[path = "../tests/it/support/manual_clock.rs"]
mod manual_clock;
#[cfg(test)]
pub(crate) use manual_clock::ManualClock;

#[cfg(test)]
impl ManualClock {
    /// Steps the wall clock alone, as an administrator or NTP would.
    pub(crate) fn step_wall(&self, to: SystemTime) {
        self.0.lock().wall = to;
    }

    /// Starts a new boot: time since boot begins again at zero.
    pub(crate) fn reboot(&self) {
        let mut now = self.0.lock();
        now.since_boot = Duration::ZERO;
        now.boot_id = BootId::new(format!("{}+", now.boot_id.as_str()));
    }
}
