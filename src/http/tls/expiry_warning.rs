//! When it is to be said that a certificate is about to end.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use tracing::warn;

use crate::clock::Clock;

/// Says that a certificate is about to end: when it is new, and again each day.
#[derive(Debug)]
pub(super) struct ExpiryWarning {
    clock: Arc<dyn Clock>,
    /// When it was said last of the certificate in use.
    warned_at: Option<Instant>,
}

/// What is left of a certificate that is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeLeft {
    Days(u64),
    Nothing,
}

/// What is left when it is said for the first time: long enough for somebody who is away to come back.
const SOON: Duration = Duration::from_hours(14 * 24);
/// How often it is said.
const AGAIN: Duration = Duration::from_hours(24);

// === impl ExpiryWarning ===

impl ExpiryWarning {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            warned_at: None,
        }
    }

    /// Another certificate is in use, of which nothing has been said.
    pub(super) fn reset(&mut self) {
        self.warned_at = None;
    }

    /// Says it of the certificate in `file`, if it is to be said now.
    pub(super) fn look(&mut self, ends: Option<SystemTime>, file: &str) {
        match ends.and_then(|ends| self.due(ends)) {
            None => {}
            Some(TimeLeft::Days(days_left)) => {
                warn!(file, days_left, "the certificate is about to expire");
            }
            Some(TimeLeft::Nothing) => {
                warn!(
                    file,
                    "the certificate has expired: no careful caller connects any more"
                );
            }
        }
    }

    fn due(&mut self, ends: SystemTime) -> Option<TimeLeft> {
        let left = ends.duration_since(self.clock.wall()).unwrap_or_default();
        if left >= SOON
            || self
                .warned_at
                .is_some_and(|warned_at| warned_at.elapsed() < AGAIN)
        {
            return None;
        }
        self.warned_at = Some(Instant::now());
        Some(match left {
            Duration::ZERO => TimeLeft::Nothing,
            left => TimeLeft::Days(left.as_secs() / AGAIN.as_secs()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use crate::clock::ManualClock;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[tokio::test(start_paused = true)]
    async fn is_said_for_the_first_time_two_weeks_before_and_then_each_day() {
        let clock = Arc::new(ManualClock::at(UNIX_EPOCH));
        let mut warning = ExpiryWarning::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let ends = UNIX_EPOCH + 15 * DAY;
        let mut warned_at = Vec::new();
        for _hour in 0..=16 * 24 {
            warned_at.extend(warning.due(ends));
            clock.advance(DAY / 24);
            tokio::time::advance(DAY / 24).await;
        }
        let mut expected: Vec<_> = (0..14).rev().map(TimeLeft::Days).collect();
        // An hour after the first of these days has begun.
        expected.push(TimeLeft::Nothing);
        assert_eq!(warned_at, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn is_said_again_of_another_certificate() {
        let mut warning = ExpiryWarning::new(Arc::new(ManualClock::at(UNIX_EPOCH)));
        let ends = UNIX_EPOCH + 2 * DAY;
        assert_eq!(warning.due(ends), Some(TimeLeft::Days(2)));
        assert_eq!(warning.due(ends), None);
        warning.reset();
        assert_eq!(warning.due(ends), Some(TimeLeft::Days(2)));
    }
}
