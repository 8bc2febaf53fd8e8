//! Histograms of durations.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric, exemplar::Exemplar},
};

/// A histogram: counts durations by bucket. Cheap to clone.
///
/// The histogram of the Prometheus library is not used: it takes a lock for each duration, and its counts can be read
/// as text only.
#[derive(Debug, Clone)]
pub(super) struct Histogram<const IS_LONG: bool>(Arc<Buckets>);

/// A histogram of operations that normally take milliseconds.
pub(super) type ShortHistogram = Histogram<false>;
/// A histogram of durations that callers choose, such as waits and leases.
pub(super) type LongHistogram = Histogram<true>;

#[derive(Debug)]
struct Buckets {
    /// The upper bound of each bucket, in microseconds.
    bounds: &'static [u64],
    /// The number of durations in each bucket; last, the number of durations above all bounds.
    counts: Box<[AtomicU64]>,
    /// The sum of all durations, in microseconds.
    sum_us: AtomicU64,
}

/// The bounds of a short histogram, in microseconds.
const SHORT_BOUNDS_US: [u64; 16] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
/// The bounds of a long histogram, from milliseconds to a day, in milliseconds.
pub(super) const LONG: [u64; 15] = [
    5, 25, 100, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 30_000, 60_000, 300_000, 1_800_000,
    7_200_000, 86_400_000,
];
/// The bounds of a long histogram in microseconds.
const LONG_BOUNDS_US: [u64; LONG.len()] = {
    let mut bounds = LONG;
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] *= 1_000;
        at += 1;
    }
    bounds
};

// === impl Histogram ===

impl<const IS_LONG: bool> Default for Histogram<IS_LONG> {
    fn default() -> Self {
        let bounds: &[u64] = if IS_LONG {
            &LONG_BOUNDS_US
        } else {
            &SHORT_BOUNDS_US
        };
        Self(Arc::new(Buckets {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_us: AtomicU64::new(0),
        }))
    }
}

impl<const IS_LONG: bool> Histogram<IS_LONG> {
    /// Adds a duration to the histogram.
    pub(super) fn observe(&self, duration: Duration) {
        // The duration is rounded up, so that a duration barely above a bound falls into the next bucket.
        let us = u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let bucket = self.0.bounds.partition_point(|bound| us > *bound);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The number of durations in each bucket; last, the number of durations above all bounds.
    pub(super) fn counts(&self) -> Vec<u64> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.0.counts.iter().map(count).collect()
    }
}

impl<const IS_LONG: bool> EncodeMetric for Histogram<IS_LONG> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let seconds = |us: u64| us as f64 / 1e6;
        let counts = self.counts();
        let bounds = self.0.bounds.iter().map(|bound| seconds(*bound));
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
        let sum = seconds(self.0.sum_us.load(Ordering::Relaxed));
        let exemplars: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
        encoder.encode_histogram(sum, counts.iter().sum(), &buckets, exemplars)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl<const IS_LONG: bool> TypedMetric for Histogram<IS_LONG> {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_reaches_it() {
        let histogram = LongHistogram::default();
        for ms in [0, 5, 6, 25, 86_400_000, 86_400_001] {
            histogram.observe(Duration::from_millis(ms));
        }
        let counts = histogram.counts();
        assert_eq!(counts.len(), LONG.len() + 1);
        assert_eq!(counts[..3], [2, 2, 0]);
        assert_eq!(counts[LONG.len() - 1..], [1, 1]);
        assert_eq!(counts.iter().sum::<u64>(), 6);
    }
}
