//! How often something may happen: a bucket that fills up steadily.

use std::time::Duration;

use tokio::time::Instant;

use super::Rate;

/// A bucket that is full at first. It only knows what it had when it was last looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Below zero after something that happened all the same.
    left: f64,
    at: Instant,
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        let left = rate.burst;
        Self { left, at: now }
    }

    /// Takes one out, or says after how long there will be one.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        self.fill(rate, now);
        if self.left < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - self.left) / rate.per_second);
            // Never a moment too early: whoever comes back then is let in.
            return Err(Duration::from_millis(
                u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) + 1,
            ));
        }
        self.left -= 1.0;
        Ok(())
    }

    /// Takes one out although there may be none. The debt does not grow for ever.
    pub(super) fn force_take(&mut self, rate: Rate, now: Instant) {
        self.fill(rate, now);
        self.left = (self.left - 1.0).max(-rate.burst);
    }

    /// Puts one back that was taken for nothing.
    pub(super) fn refund(&mut self, rate: Rate, now: Instant) {
        self.fill(rate, now);
        self.left = (self.left + 1.0).min(rate.burst);
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate.per_second).min(rate.burst);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 4.0,
        burst: 2.0,
    };

    #[test]
    fn lets_a_burst_through_and_then_one_by_one() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RATE, start);
        assert_eq!(bucket.take(RATE, start), Ok(()));
        assert_eq!(bucket.take(RATE, start), Ok(()));
        let wait = bucket.take(RATE, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(251));
        // A moment too early, and then in time.
        let early = start + Duration::from_millis(249);
        assert_eq!(bucket.take(RATE, early), Err(Duration::from_millis(2)));
        assert_eq!(bucket.take(RATE, start + wait), Ok(()));
        assert!(bucket.take(RATE, start + wait).is_err());
        // A long pause saves up no more than a burst.
        let later = start + Duration::from_hours(1);
        assert_eq!(
            [0, 1, 2].map(|_| bucket.take(RATE, later).is_ok()),
            [true, true, false]
        );
    }

    #[test]
    fn what_is_put_back_can_be_taken_again_and_makes_it_no_fuller_than_full() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RATE, start);
        bucket.refund(RATE, start);
        assert_eq!(
            [0, 1, 2].map(|_| bucket.take(RATE, start).is_ok()),
            [true, true, false]
        );
        bucket.refund(RATE, start);
        assert_eq!(
            [0, 1].map(|_| bucket.take(RATE, start).is_ok()),
            [true, false]
        );
    }

    #[test]
    fn a_debt_is_paid_first_and_has_an_end() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RATE, start);
        for _ in 0..100 {
            bucket.force_take(RATE, start);
        }
        let wait = bucket.take(RATE, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(751));
        assert_eq!(bucket.take(RATE, start + wait), Ok(()));
    }
}
