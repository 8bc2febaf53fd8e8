//! What this gateway remembers of checks: which fencing tokens have passed, and which refusals it has reported.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    lock::{FencingToken, LockName},
    store::contract::{FenceCheck, FenceQuery},
};

/// What this gateway remembers of checks. Only events, counts and texts depend on it, and no decision.
#[derive(Debug, Default)]
pub(super) struct CheckMemory {
    locks: Mutex<HashMap<LockName, LockChecks>>,
    /// When the leases of this gateway were last searched for an ended lease.
    searched: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct LockChecks {
    /// The largest fencing token that has passed a check.
    passed: Option<FencingToken>,
    /// The stale fencing tokens that were reported, and when.
    reported: Vec<(FencingToken, Instant)>,
}

/// How many locks are remembered, in some megabytes at most. Beyond that, all are forgotten.
const MAX_LOCKS: usize = 16_384;
/// How many fencing tokens of one lock are reported within [`REPORTED_ONCE`]: a caller may invent fencing tokens, and
/// must not fill the stream of events with them.
const MAX_REPORTED: usize = 16;
/// For how long the refusal of a fencing token is not reported again.
const REPORTED_ONCE: Duration = Duration::from_mins(1);
/// The shortest time between two searches, each of which visits all leases of this gateway: with a hundred thousand
/// leases it takes a millisecond.
const SEARCH_PAUSE: Duration = Duration::from_millis(10);

// === impl CheckMemory ===

impl CheckMemory {
    /// Remembers a check. Answers whether its refusal is to be reported: a larger fencing token was granted, and the
    /// refusal was not reported within the last minute.
    pub(super) fn note(&self, query: &FenceQuery, check: FenceCheck, now: Instant) -> bool {
        let FenceQuery { name, fence, .. } = query;
        let mut locks = self.locks.lock();
        if !locks.contains_key(name) {
            if locks.len() >= MAX_LOCKS {
                locks.clear();
            }
            locks.insert(name.clone(), LockChecks::default());
        }
        let lock = locks.get_mut(name).expect("it is there by now");
        let FenceCheck::Stale { is_outrun } = check else {
            lock.passed = lock.passed.max(Some(*fence));
            return false;
        };
        lock.reported.retain(|(_, at)| now - *at < REPORTED_ONCE);
        let is_new = lock.reported.iter().all(|(known, _)| known != fence);
        let has_room = lock.reported.len() < MAX_REPORTED;
        let reports = is_new && has_room && (is_outrun || lock.passed > Some(*fence));
        lock.reported.extend(reports.then_some((*fence, now)));
        reports
    }

    /// Whether the leases of this gateway may be searched now.
    pub(super) fn may_search(&self, now: Instant) -> bool {
        let mut searched = self.searched.lock();
        let may_search = searched.is_none_or(|at| now - at >= SEARCH_PAUSE);
        if may_search {
            *searched = Some(now);
        }
        may_search
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTRUN: FenceCheck = FenceCheck::Stale { is_outrun: true };
    const STALE: FenceCheck = FenceCheck::Stale { is_outrun: false };

    fn held() -> FenceCheck {
        FenceCheck::Held {
            left: Duration::ZERO,
            as_of: Instant::now(),
        }
    }

    fn query(lock: &str, number: u64) -> FenceQuery {
        FenceQuery {
            name: LockName::new(lock).unwrap(),
            fence: FencingToken::new(number).unwrap(),
            token: None,
        }
    }

    #[test]
    fn a_refusal_is_reported_once_a_minute_for_each_lock_and_fencing_token() {
        let (memory, now) = (CheckMemory::default(), Instant::now());
        let report = |lock, number, at| memory.note(&query(lock, number), OUTRUN, at);
        assert!(!memory.note(&query("a", 7), STALE, now));
        assert!(report("a", 7, now));
        assert!(!report("a", 7, now + REPORTED_ONCE / 2));
        assert!(report("a", 6, now));
        assert!(report("b", 7, now));
        assert!(report("a", 7, now + REPORTED_ONCE));
    }

    #[test]
    fn a_larger_fencing_token_that_has_passed_outruns_a_smaller_one_of_its_lock() {
        let (memory, now) = (CheckMemory::default(), Instant::now());
        for number in [8, 7] {
            assert!(!memory.note(&query("a", number), held(), now));
        }
        assert!(memory.note(&query("a", 7), STALE, now));
        assert!(!memory.note(&query("a", 8), STALE, now));
        assert!(!memory.note(&query("b", 7), STALE, now));
    }

    #[test]
    fn invented_fencing_tokens_are_reported_a_few_times_only() {
        let (memory, now) = (CheckMemory::default(), Instant::now());
        let report = |lock, number| memory.note(&query(lock, number), OUTRUN, now);
        let reported = (1..1_000).filter(|number| report("a", *number));
        assert_eq!(reported.count(), MAX_REPORTED);
        assert!(report("b", 1));
    }

    #[test]
    fn the_memory_and_the_searches_are_bounded() {
        let (memory, now) = (CheckMemory::default(), Instant::now());
        for number in 0..2 * MAX_LOCKS {
            memory.note(&query(&format!("{number}"), 8), held(), now);
            assert!(memory.locks.lock().len() <= MAX_LOCKS);
        }
        assert!(memory.may_search(now));
        assert!(!memory.may_search(now + SEARCH_PAUSE / 2));
        assert!(memory.may_search(now + SEARCH_PAUSE));
    }
}
