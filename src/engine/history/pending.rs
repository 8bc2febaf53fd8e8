//! What waits at a gateway to be written to the history of locks.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    lock::{HistoryEntry, LockName},
    store::history::HistoryCounts,
};

/// What waits to be written.
#[derive(Default)]
pub(super) struct Pending {
    /// In shards, so that two requests that end short leases seldom wait for each other.
    shards: [Mutex<HashMap<LockName, PendingLock>>; SHARDS],
    /// Chooses the shard of a lock.
    hasher: RandomState,
    /// How many facts wait, of all locks.
    facts: AtomicUsize,
    /// The shard whose counts are written next.
    next: AtomicUsize,
    /// The locks whose facts and counts the gateway is writing to the store.
    writing: Mutex<Taken>,
}

/// Locks whose facts and counts were taken out of [`Pending`], to be written to the store.
pub(super) type Taken = Arc<Vec<(LockName, PendingLock)>>;

/// Which facts and counts [`Pending::take`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// All facts, with the counts of the locks that have facts.
    Facts,
    /// As `Facts`, and the counts of the locks of one shard.
    Counts,
    /// Everything.
    All,
}

/// What waits to be written for one lock.
#[derive(Default, Clone)]
pub(super) struct PendingLock {
    pub(super) facts: Vec<HistoryEntry>,
    pub(super) counts: HistoryCounts,
}

/// How many facts may wait at a gateway. Further facts are dropped and counted.
const MAX_FACTS: usize = 10_000;
/// Counts alone are written one shard a second, so about twice a minute for a lock.
const SHARDS: usize = 32;
/// How many locks of a shard may have something that waits. What happens to further locks counts in the metrics only.
const MAX_LOCKS: usize = 4_096;
/// For how many locks counts alone are written at once: few enough that the counts of many locks cost the store less
/// than a hundredth of its time.
const COUNTS_AT_ONCE: usize = 100;

// === impl Pending ===

impl Pending {
    /// Adds a fact; answers whether there was room for it.
    pub(super) fn put(&self, name: &LockName, fact: HistoryEntry) -> bool {
        let has_room = self.facts.load(Ordering::Relaxed) < MAX_FACTS;
        let put = |lock: &mut PendingLock| {
            lock.counts.dropped += u64::from(!has_room);
            lock.facts.extend(has_room.then_some(fact));
        };
        let is_put = self.with_lock(name, put) && has_room;
        self.facts.fetch_add(usize::from(is_put), Ordering::Relaxed);
        is_put
    }

    /// Adds to the counts of a lock; answers whether there was room for them.
    pub(super) fn count(&self, name: &LockName, counts: HistoryCounts) -> bool {
        self.with_lock(name, |lock| lock.counts.add(counts))
    }

    fn with_lock(&self, name: &LockName, then: impl FnOnce(&mut PendingLock)) -> bool {
        let mut shard = self.shard(name).lock();
        let has_room = shard.len() < MAX_LOCKS;
        if let Some(lock) = shard.get_mut(name) {
            then(lock);
        } else if has_room {
            then(shard.entry(name.clone()).or_default());
        } else {
            return false;
        }
        true
    }

    fn shard(&self, name: &LockName) -> &Mutex<HashMap<LockName, PendingLock>> {
        let hash = self.hasher.hash_one(name).to_le_bytes()[0];
        &self.shards[usize::from(hash) % SHARDS]
    }

    /// Takes facts and counts, which `peek` still finds until `written` is called.
    pub(super) fn take(&self, due: Due) -> Taken {
        let (mut taken, mut left) = (Vec::new(), COUNTS_AT_ONCE);
        let step = usize::from(due == Due::Counts);
        let next = self.next.fetch_add(step, Ordering::Relaxed) % SHARDS;
        let mut writing = self.writing.lock();
        for (number, shard) in self.shards.iter().enumerate() {
            let is_due = |_: &LockName, lock: &mut PendingLock| {
                let is_next = due == Due::Counts && number == next;
                let is_counted = lock.facts.is_empty() && is_next && left > 0;
                left -= usize::from(is_counted);
                due == Due::All || is_counted || !lock.facts.is_empty()
            };
            taken.extend(shard.lock().extract_if(is_due));
        }
        let facts = taken.iter().map(|(_, lock)| lock.facts.len()).sum();
        self.facts.fetch_sub(facts, Ordering::Relaxed);
        *writing = Arc::new(taken);
        Arc::clone(&writing)
    }

    /// Ends the write of the facts and counts that were taken last.
    pub(super) fn written(&self) {
        *self.writing.lock() = Taken::default();
    }

    /// A copy of the facts and counts of a lock that the store may not have.
    pub(super) fn peek(&self, name: &LockName) -> PendingLock {
        let writing = self.writing.lock();
        let mut known = self
            .shard(name)
            .lock()
            .get(name)
            .cloned()
            .unwrap_or_default();
        if let Some((_, taken)) = writing.iter().find(|(taken, _)| taken == name) {
            known.facts.extend_from_slice(&taken.facts);
            known.counts.add(taken.counts);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    fn fact(fencing_token: u64) -> HistoryEntry {
        HistoryEntry {
            fencing_token,
            ..HistoryEntry::default()
        }
    }

    fn shorter(since: u64) -> HistoryCounts {
        HistoryCounts {
            shorter: 1,
            since,
            dropped: 0,
        }
    }

    #[test]
    fn what_is_too_much_is_dropped_and_counted_for_its_lock() {
        let (pending, busy, other) = (Pending::default(), name("busy"), name("other"));
        for fence in 1..=10_000 {
            assert!(pending.put(&busy, fact(fence)));
        }
        assert!(!pending.put(&busy, fact(10_001)));
        assert!(!pending.put(&other, fact(1)));
        assert_eq!(pending.peek(&other).counts.dropped, 1);
        let taken: HashMap<_, _> = pending.take(Due::All).iter().cloned().collect();
        assert_eq!(pending.peek(&busy).facts.len(), 10_000, "is being written");
        pending.written();
        assert_eq!(pending.peek(&busy).facts.len(), 0);
        let shown = |name| (taken[name].facts.len(), taken[name].counts.dropped);
        assert_eq!((shown(&busy), shown(&other)), ((10_000, 1), (0, 1)));
        assert!(pending.take(Due::All).is_empty(), "nothing is left");
    }

    #[test]
    fn counts_are_written_beside_facts_and_alone_within_a_minute_and_those_of_few_locks_at_once() {
        let pending = Pending::default();
        for number in 0..5_000 {
            let name = name(&format!("lock:{number}"));
            assert!(pending.count(&name, shorter(1)) && pending.count(&name, shorter(2)));
        }
        pending.put(&name("lock:7"), fact(1));
        let mut taken = pending.take(Due::Counts).to_vec();
        let with_fact = taken.iter().find(|(_, lock)| !lock.facts.is_empty());
        assert_eq!(with_fact.unwrap().1.counts.shorter, 2);
        for _ in 1..SHARDS {
            assert!(pending.take(Due::Facts).is_empty());
            let next = pending.take(Due::Counts);
            assert!(next.len() <= COUNTS_AT_ONCE, "{}", next.len());
            taken.extend(next.iter().cloned());
        }
        assert!(taken.len() > SHARDS * COUNTS_AT_ONCE / 2);
        taken.extend(pending.take(Due::All).iter().cloned());
        let mut counts = taken.iter().map(|(_, lock)| lock.counts);
        assert!(counts.all(|it| (it.shorter, it.since) == (2, 1)));
        assert_eq!(taken.len(), 5_000);
    }

    #[test]
    fn the_locks_whose_counts_wait_are_not_too_many() {
        let pending = Pending::default();
        let names = (0..200_000).map(|number| name(&format!("lock:{number}")));
        let counted = names.filter(|name| pending.count(name, shorter(1)));
        assert_eq!(counted.count(), SHARDS * MAX_LOCKS);
    }
}
