//! Pauses between the tries of gateways that want the same lock at the same time.

use std::time::Duration;

/// Pauses of random length, which grow with each try: of those who have split the nodes among themselves
/// one must come first the next time, and be done before another begins.
#[derive(Debug)]
pub(super) struct Backoff {
    longest: Duration,
}

/// A few round trips to nodes that are near.
const FIRST: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_millis(128);
/// How many tries fit into the longest pause where the nodes are far away: enough that two seldom meet.
const DOUBLINGS: u32 = 4;

// === impl Backoff ===

impl Backoff {
    pub(super) fn new() -> Self {
        Self { longest: FIRST }
    }

    /// The pause after a try that took so long.
    pub(super) fn next(&mut self, took: Duration) -> Duration {
        up_to(self.range(took))
    }

    /// How long the pause may be. Shorter than a try it would not keep two apart.
    fn range(&mut self, took: Duration) -> Duration {
        let range = self.longest.max(took);
        self.longest = (2 * range).min(LONGEST.max(DOUBLINGS * took));
        range
    }
}

/// A random part of a time. Without randomness gateways come together, which is no reason to fail.
pub(super) fn up_to(longest: Duration) -> Duration {
    let share = getrandom::u32().unwrap_or(u32::MAX / 2);
    longest.mul_f64(f64::from(share) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(took: u64, count: usize) -> Vec<u128> {
        let mut backoff = Backoff::new();
        let ranges = std::iter::repeat_with(|| backoff.range(Duration::from_millis(took)));
        ranges.take(count).map(|range| range.as_millis()).collect()
    }

    #[test]
    fn pauses_grow_from_a_few_round_trips_to_several_tries() {
        assert_eq!(ranges(0, 7), [4, 8, 16, 32, 64, 128, 128]);
        assert_eq!(ranges(7, 6), [7, 14, 28, 56, 112, 128]);
        assert_eq!(ranges(100, 4), [100, 200, 400, 400]);
    }
}
