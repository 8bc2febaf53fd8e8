//! Into which buckets durations fall.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use prometheus_client::metrics::histogram::Histogram;

/// Counts durations by the bucket they fall into, for those who read numbers and not text: a
/// histogram of the library can only be scraped.
#[derive(Debug, Default)]
pub(super) struct Buckets([AtomicU64; LONG.len() + 1]);

/// For what takes milliseconds, unless something is wrong: in seconds.
const SHORT: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
/// For what callers decide: from milliseconds to a day, in milliseconds.
pub(super) const LONG: [u64; 15] = [
    5, 25, 100, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 30_000, 60_000, 300_000, 1_800_000,
    7_200_000, 86_400_000,
];

/// A histogram of what takes milliseconds, unless something is wrong.
pub(super) fn short() -> Histogram {
    Histogram::new(SHORT)
}

/// A histogram of what callers decide.
pub(super) fn long() -> Histogram {
    Histogram::new(LONG.map(|ms| ms as f64 / 1_000.0))
}

// === impl Buckets ===

impl Buckets {
    /// Counts one.
    pub(super) fn observe(&self, duration: Duration) {
        let above = |bound: &u64| duration > Duration::from_millis(*bound);
        let bucket = LONG.partition_point(above);
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// How many fell into each bucket, and, last, how many above all of them.
    pub(super) fn counts(&self) -> Vec<u64> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.0.iter().map(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_reaches_it() {
        let buckets = Buckets::default();
        for ms in [0, 5, 6, 25, 86_400_000, 86_400_001] {
            buckets.observe(Duration::from_millis(ms));
        }
        let counts = buckets.counts();
        assert_eq!(counts.len(), LONG.len() + 1);
        assert_eq!(counts[..3], [2, 2, 0]);
        assert_eq!(counts[LONG.len() - 1..], [1, 1]);
        assert_eq!(counts.iter().sum::<u64>(), 6);
    }
}
