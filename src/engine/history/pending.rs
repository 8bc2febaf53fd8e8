//! What waits at a gateway to be written to the history of locks.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    lock::LockName,
    store::history::{HistoryBatch, HistoryBounds, HistoryCounts, HistoryRecord},
};

/// What waits to be written.
#[derive(Default)]
pub(super) struct Pending {
    locks: HashMap<LockName, PendingLock>,
    /// How many records wait, of all locks.
    records: usize,
}

/// What waits to be written for one lock.
#[derive(Default)]
pub(super) struct PendingLock {
    pub(super) records: Vec<HistoryRecord>,
    pub(super) counts: HistoryCounts,
    /// When the first of the shorter leases was counted.
    counted_at: Option<Instant>,
}

/// How many records may wait at a gateway. Further records are dropped and counted.
const MAX_RECORDS: usize = 10_000;
/// How many locks may have something that waits. What happens to further locks counts in the metrics only.
const MAX_LOCKS: usize = 131_072;
/// How long shorter leases of a lock are counted before the count is written, and for how many locks it is written at
/// once: few enough that the counts of many locks cost the store less than a hundredth of its time.
const COUNTED: (Duration, usize) = (Duration::from_mins(1), 100);

// === impl Pending ===

impl Pending {
    /// Adds a record; answers whether there was room for it.
    pub(super) fn put(&mut self, name: &LockName, record: HistoryRecord) -> bool {
        let has_room = self.records < MAX_RECORDS;
        match self.lock(name) {
            Some(lock) if has_room => lock.records.push(record),
            Some(lock) => lock.counts.dropped += 1,
            None => return false,
        }
        self.records += usize::from(has_room);
        has_room
    }

    /// Counts a lease that was too short to be recorded; answers whether there was room. `now` is the wall time.
    pub(super) fn count(&mut self, name: &LockName, now: impl FnOnce() -> u64) -> bool {
        let Some(lock) = self.lock(name) else {
            return false;
        };
        if lock.counts.shorter == 0 {
            lock.counts.since = now();
            lock.counted_at = Some(Instant::now());
        }
        lock.counts.shorter += 1;
        true
    }

    /// Takes back a batch that could not be written. Answers how many of its records were dropped.
    pub(super) fn put_back(&mut self, name: &LockName, batch: HistoryBatch) -> u64 {
        let (mut dropped, all) = (0, batch.records.len());
        for record in batch.records {
            dropped += u64::from(!self.put(name, record));
        }
        if let Some(lock) = self.lock(name) {
            lock.counts.add(batch.counts);
            lock.counted_at.get_or_insert_with(Instant::now);
            return dropped;
        }
        all as u64
    }

    fn lock(&mut self, name: &LockName) -> Option<&mut PendingLock> {
        let has_room = self.locks.len() < MAX_LOCKS;
        match self.locks.entry(name.clone()) {
            Entry::Occupied(lock) => Some(lock.into_mut()),
            Entry::Vacant(lock) => has_room.then(|| lock.insert(PendingLock::default())),
        }
    }

    /// Takes what must be written now: records, and counts that are due; with `all`, everything.
    pub(super) fn take(
        &mut self,
        bounds: HistoryBounds,
        all: bool,
    ) -> Vec<(LockName, HistoryBatch)> {
        self.records = 0;
        let (mut left, is_old) = (COUNTED.1, |at: Instant| at.elapsed() >= COUNTED.0);
        let taken = self.locks.extract_if(|_, lock| {
            if all || !lock.records.is_empty() || lock.counts.dropped > 0 {
                return true;
            }
            let is_due = left > 0 && lock.counted_at.is_some_and(is_old);
            left -= usize::from(is_due);
            is_due
        });
        let batch = |lock: PendingLock| HistoryBatch {
            bounds,
            records: lock.records,
            counts: lock.counts,
        };
        taken.map(|(name, lock)| (name, batch(lock))).collect()
    }

    /// A copy of what waits for a lock.
    pub(super) fn peek(&self, name: &LockName) -> (Vec<HistoryRecord>, HistoryCounts) {
        let lock = self.locks.get(name);
        lock.map_or_else(Default::default, |lock| (lock.records.clone(), lock.counts))
    }
}

#[cfg(test)]
mod tests {
    use crate::lock::FencingToken;

    use super::*;

    const BOUNDS: HistoryBounds = HistoryBounds {
        entries: 50,
        keep: Duration::from_hours(24),
    };

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    fn record(fence: u64) -> HistoryRecord {
        HistoryRecord::new(FencingToken::new(fence).unwrap(), "fact", false)
    }

    #[tokio::test]
    async fn what_is_too_much_is_dropped_and_counted_for_its_lock() {
        let (mut pending, busy, other) = (Pending::default(), name("busy"), name("other"));
        for fence in 1..=10_000 {
            assert!(pending.put(&busy, record(fence)));
        }
        assert!(!pending.put(&busy, record(10_001)));
        assert!(!pending.put(&other, record(1)));
        assert_eq!(pending.peek(&other).1.dropped, 1);
        let batches: HashMap<_, _> = pending.take(BOUNDS, false).into_iter().collect();
        let shown = |name| (batches[name].records.len(), batches[name].counts.dropped);
        assert_eq!((shown(&busy), shown(&other)), ((10_000, 1), (0, 1)));
        assert_eq!(
            (pending.records, pending.locks.len()),
            (0, 0),
            "nothing is left"
        );
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_taken_again() {
        let (mut pending, name) = (Pending::default(), name("lock"));
        pending.put(&name, record(1));
        pending.count(&name, || 7);
        let (_, batch) = pending.take(BOUNDS, false).pop().unwrap();
        pending.put(&name, record(2));
        assert_eq!(pending.put_back(&name, batch), 0);
        let (_, batch) = pending.take(BOUNDS, false).pop().unwrap();
        assert_eq!(batch.records.len(), 2);
        assert_eq!((batch.counts.shorter, batch.counts.since), (1, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn counts_alone_are_written_after_a_minute_and_those_of_few_locks_at_once() {
        let mut pending = Pending::default();
        for number in 0..250 {
            let name = name(&format!("lock:{number}"));
            assert!(pending.count(&name, || 1) && pending.count(&name, || 2));
        }
        assert!(pending.take(BOUNDS, false).is_empty());
        tokio::time::advance(COUNTED.0).await;
        for most in [100, 100, 50, 0] {
            let taken = pending.take(BOUNDS, false);
            assert_eq!(taken.len(), most);
            let counts = taken.iter().map(|(_, batch)| batch.counts);
            assert!(
                counts
                    .into_iter()
                    .all(|it| (it.shorter, it.since) == (2, 1))
            );
        }
        assert!(pending.locks.is_empty());
    }
}
