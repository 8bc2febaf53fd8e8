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
pub(super) struct Ending {
    clock: Arc<dyn Clock>,
    /// When it was said last of the certificate in use.
    said: Option<Instant>,
}

/// What is left of a certificate that is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Days(u64),
    Nothing,
}

/// What is left when it is said for the first time: long enough for somebody who is away to come back.
const SOON: Duration = Duration::from_hours(14 * 24);
/// How often it is said.
const AGAIN: Duration = Duration::from_hours(24);

// === impl Ending ===

impl Ending {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, said: None }
    }

    /// Another certificate is in use, of which nothing has been said.
    pub(super) fn begin_anew(&mut self) {
        self.said = None;
    }

    /// Says it of the certificate in `file`, if it is to be said now.
    pub(super) fn look(&mut self, ends: Option<SystemTime>, file: &str) {
        match ends.and_then(|ends| self.due(ends)) {
            None => {}
            Some(Left::Days(days_left)) => {
                warn!(file, days_left, "the certificate is about to expire");
            }
            Some(Left::Nothing) => {
                warn!(
                    file,
                    "the certificate has expired: no careful caller connects any more"
                );
            }
        }
    }

    fn due(&mut self, ends: SystemTime) -> Option<Left> {
        let left = ends.duration_since(self.clock.wall()).unwrap_or_default();
        if left >= SOON || self.said.is_some_and(|said| said.elapsed() < AGAIN) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(match left {
            Duration::ZERO => Left::Nothing,
            left => Left::Days(left.as_secs() / AGAIN.as_secs()),
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
        let mut ending = Ending::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let ends = UNIX_EPOCH + 15 * DAY;
        let mut said = Vec::new();
        for _hour in 0..=16 * 24 {
            said.extend(ending.due(ends));
            clock.advance(DAY / 24);
            tokio::time::advance(DAY / 24).await;
        }
        let mut expected: Vec<_> = (0..14).rev().map(Left::Days).collect();
        // An hour after the first of these days has begun.
        expected.push(Left::Nothing);
        assert_eq!(said, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn is_said_again_of_another_certificate() {
        let mut ending = Ending::new(Arc::new(ManualClock::at(UNIX_EPOCH)));
        let ends = UNIX_EPOCH + 2 * DAY;
        assert_eq!(ending.due(ends), Some(Left::Days(2)));
        assert_eq!(ending.due(ends), None);
        ending.begin_anew();
        assert_eq!(ending.due(ends), Some(Left::Days(2)));
    }
}
