//! What a key has used of its limits at this gateway.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use tokio::time::Instant;

use super::{Excess, Rate, bucket::Bucket};

/// What a key has used of its limits: it belongs to the name, and outlives a change of the file.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: Mutex<Option<Bucket>>,
    waiters: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
}

/// One of those that a limit counts; dropped, there is one less.
#[derive(Debug)]
pub struct LimitSlot(Arc<AtomicUsize>);

// === impl Tally ===

impl Tally {
    /// Counts a request.
    pub(super) fn request(&self, rate: Option<Rate>, now: Instant) -> Result<(), Excess> {
        self.bucket(rate, now, Bucket::take)
            .unwrap_or(Ok(()))
            .map_err(|retry_after| Excess::Requests { retry_after })
    }

    /// Counts a request that was carried out without being counted.
    pub(super) fn force_take(&self, rate: Option<Rate>, now: Instant) {
        self.bucket(rate, now, Bucket::force_take);
    }

    pub(super) fn waiter(&self, most: usize) -> Result<LimitSlot, Excess> {
        LimitSlot::take(&self.waiters, most).ok_or(Excess::Waiters)
    }

    pub(super) fn stream(&self, most: usize) -> Result<LimitSlot, Excess> {
        LimitSlot::take(&self.streams, most).ok_or(Excess::Streams)
    }

    fn bucket<T>(
        &self,
        rate: Option<Rate>,
        now: Instant,
        use_it: impl FnOnce(&mut Bucket, Rate, Instant) -> T,
    ) -> Option<T> {
        let rate = rate?;
        let mut bucket = self
            .requests
            .lock()
            .expect("no code panics while it counts");
        let bucket = bucket.get_or_insert_with(|| Bucket::full(rate, now));
        Some(use_it(bucket, rate, now))
    }
}

// === impl LimitSlot ===

impl LimitSlot {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        // Dropped at once if there is no room.
        let slot = Self(Arc::clone(count));
        (before < most).then_some(slot)
    }
}

impl Drop for LimitSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_it_is_dropped_and_a_refusal_takes_none() {
        let tally = Tally::default();
        let first = tally.waiter(1).unwrap();
        for _ in 0..3 {
            assert_eq!(tally.waiter(1).unwrap_err(), Excess::Waiters);
        }
        // Streams are others.
        assert!(tally.stream(1).is_ok());
        drop(first);
        assert!(tally.waiter(1).is_ok());
        assert_eq!(tally.waiter(0).unwrap_err(), Excess::Waiters);
    }
}
