//! Durations in answers.

use std::time::Duration;

/// Whole milliseconds, rounded down: what is left of a lease is never told too long.
pub(in crate::http) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
