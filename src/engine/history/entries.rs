//! Merges the records of a lock into entries, one for each lease.

use std::{cmp::Reverse, collections::BTreeMap, time::SystemTime};

use crate::{
    lock::{FencingToken, HeldLease},
    store::{
        contract::Holder,
        history::{HistoryBounds, HistoryCounts, StoredHistory},
    },
};

use super::{
    super::events::EventKind,
    fact::{Fact, LeaseFacts, OPENED, millis},
};

/// The history of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockHistory {
    /// The leases that were recorded, by their fencing tokens, newest first.
    pub entries: Vec<(FencingToken, HistoryEntry)>,
    /// What was counted and not recorded.
    pub counts: HistoryCounts,
    /// Whether this gateway records leases.
    pub is_enabled: bool,
}

/// One lease in the history of a lock. Times are in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryEntry {
    /// What the lease was; `None` if that was not recorded.
    pub lease: Option<Box<LeaseFacts>>,
    /// When the lease was granted, if that is known.
    pub acquired_at: Option<u64>,
    /// The end of the lease; `None` if it holds the lock, or if its end was not recorded.
    pub ended: Option<Fact>,
    /// If the lease has ended and no gateway has recorded that: when it ended at the latest.
    pub ended_at_latest: Option<u64>,
    /// Other events of the lease, oldest first.
    pub notes: Vec<Fact>,
    /// When something was recorded about the lease for the last time.
    last: u64,
}

/// The kind of a note that a check refused the fencing token of the lease.
const STALE_WRITE: &str = EventKind::StaleWriteRefused.as_str();

// === impl LockHistory ===

impl LockHistory {
    /// Merges what a store has kept. `holder` is the holder of the lock at present, `now` the wall time.
    pub(super) fn merge(
        stored: &StoredHistory,
        holder: Option<&Holder>,
        bounds: HistoryBounds,
        now: SystemTime,
    ) -> Self {
        let mut leases = BTreeMap::<FencingToken, HistoryEntry>::new();
        for (fence, fact) in stored.records.iter().filter_map(|it| Fact::read(it)) {
            leases.entry(fence).or_default().add(fact);
        }
        let oldest = now.checked_sub(bounds.keep).map_or(0, millis);
        // When the next newer lease was granted: any, and an exclusive one.
        let (mut any, mut exclusive) = (None, None);
        let mut entries: Vec<_> = leases.into_iter().rev().collect();
        entries.retain_mut(|(fence, entry)| {
            entry.notes.sort_by_key(|note| note.at);
            let is_shared = entry.lease.as_ref().is_some_and(|lease| lease.shared);
            let next = if is_shared { exclusive } else { any };
            let is_open = entry.acquired_at.is_some() && entry.ended.is_none();
            let is_held =
                is_open && next.is_none() && holder.is_some_and(|it| may_hold(it, *fence));
            if is_open && !is_held {
                entry.ended_at_latest = Some(next.unwrap_or_else(|| millis(now)));
            }
            any = entry.acquired_at.or(any);
            exclusive = entry.acquired_at.filter(|_| !is_shared).or(exclusive);
            // A check can name a fencing token that no lease ever had.
            let is_invented = entry.acquired_at.is_none()
                && entry.ended.is_none()
                && entry.notes.iter().all(|note| note.kind == STALE_WRITE);
            is_held || entry.last >= oldest && !is_invented
        });
        entries.truncate(bounds.entries);
        Self {
            entries,
            counts: stored.counts,
            is_enabled: true,
        }
    }
}

/// Whether the lease with this fencing token holds the lock, as far as the holders are shown.
fn may_hold(holder: &Holder, fence: FencingToken) -> bool {
    let leases = holder.leases();
    // A rest has the fence of the lease that has ended.
    let is_shown = |lease: &HeldLease| lease.fence == fence && !lease.is_resting;
    leases.iter().any(is_shown) || holder.count() > leases.len() as u64
}

// === impl HistoryEntry ===

impl HistoryEntry {
    fn add(&mut self, mut fact: Fact) {
        self.last = self.last.max(fact.at);
        self.acquired_at = self.acquired_at.or(fact.since);
        if let Some(lease) = fact.lease.take() {
            // A break does not know who acquired the lease, and a repeated request at another gateway may have waited
            // only for a part of the time.
            let order = |it: &LeaseFacts| (it.acquired_by.is_some(), it.waited);
            if (self.lease.as_ref()).is_none_or(|known| order(known) < order(&lease)) {
                self.lease = Some(lease);
            }
        }
        if fact.end().is_some() {
            let order = |it: &Fact| (it.end(), Reverse(it.at));
            if (self.ended.as_ref()).is_none_or(|known| order(known) < order(&fact)) {
                self.ended = Some(fact);
            }
        } else if fact.kind != OPENED && !self.notes.contains(&fact) {
            self.notes.push(fact);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{
        engine::{
            history::fact::{BROKEN, EXPIRED, RELEASED},
            tests::scripted_store::held,
        },
        lock::{Metadata, Mode, Owner},
    };

    use super::*;

    /// The wall time of the reader, in ms.
    const NOW: u64 = 10_000_000;

    fn wall(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    /// The record of a lease that was granted at `since`.
    fn text(
        lease: u64,
        kind: &'static str,
        at: u64,
        since: Option<u64>,
        mode: Option<Mode>,
    ) -> String {
        let (owner, metadata) = (Owner::new("ci").unwrap(), Metadata::default());
        let fact = Fact {
            kind: kind.into(),
            at,
            since,
            lease: mode.map(|mode| Box::new(LeaseFacts::new(mode, Some(&owner), &metadata))),
            ..Fact::default()
        };
        fact.record(FencingToken::new(lease).unwrap()).text
    }

    fn opened(lease: u64, at: u64, mode: Mode) -> String {
        text(lease, OPENED, at, Some(at), Some(mode))
    }

    fn ended(lease: u64, at: u64, how: &'static str) -> String {
        text(lease, how, at, Some(at - 1), None)
    }

    fn merge(
        records: Vec<String>,
        holder: Option<u64>,
        entries: usize,
    ) -> Vec<(FencingToken, HistoryEntry)> {
        let holder = holder.map(|lease| {
            let fence = FencingToken::new(lease).unwrap();
            Holder::Lease(HeldLease { fence, ..held() })
        });
        let stored = StoredHistory {
            records,
            ..StoredHistory::default()
        };
        let keep = Duration::from_secs(1_000);
        let bounds = HistoryBounds { entries, keep };
        LockHistory::merge(&stored, holder.as_ref(), bounds, wall(NOW)).entries
    }

    #[test]
    fn the_records_of_a_lease_are_one_entry_and_the_strongest_end_counts() {
        let records = vec![
            ended(2, NOW - 5, EXPIRED),
            opened(2, NOW - 50, Mode::Exclusive),
            ended(2, NOW - 7, RELEASED),
            opened(2, NOW - 50, Mode::Exclusive),
            "0000000000000002 {\"of\":\"a later version\"}".to_owned(),
            "nonsense".to_owned(),
        ];
        let [(_, entry)] = &merge(records, None, 50)[..] else {
            panic!("one entry");
        };
        let ended = entry.ended.as_ref().unwrap();
        assert_eq!((&*ended.kind, ended.at), (RELEASED, NOW - 7));
        let lease = entry.lease.as_ref().unwrap();
        assert_eq!(lease.owner.as_deref(), Some("ci"));
    }

    #[test]
    fn entries_are_sorted_by_fence_and_an_end_that_nobody_saw_is_before_the_next_grant() {
        let shared = Mode::Shared { slot: None };
        let records = vec![
            // The clock of this gateway is behind.
            opened(9, NOW - 900, Mode::Exclusive),
            opened(7, NOW - 100, shared),
            opened(6, NOW - 200, shared),
            opened(5, NOW - 300, Mode::Exclusive),
        ];
        let shown = |(fence, it): &(FencingToken, HistoryEntry)| (fence.get(), it.ended_at_latest);
        let entries: Vec<_> = merge(records.clone(), Some(9), 50)
            .iter()
            .map(shown)
            .collect();
        let next = Some(NOW - 900);
        assert_eq!(
            entries,
            [(9, None), (7, next), (6, next), (5, Some(NOW - 200))]
        );
        let last: Vec<_> = merge(records, None, 1).iter().map(shown).collect();
        assert_eq!(last, [(9, Some(NOW))]);
    }

    #[test]
    fn what_is_too_old_is_left_out_unless_it_is_held() {
        let old = NOW - 2_000_000;
        let records = vec![ended(1, old, RELEASED), opened(2, old, Mode::Exclusive)];
        assert_eq!(merge(records.clone(), None, 50), []);
        assert_eq!(merge(records, Some(2), 50).len(), 1);
    }

    #[test]
    fn a_lease_whose_lock_rests_does_not_hold_it() {
        let fence = FencingToken::new(2).unwrap();
        let stored = StoredHistory {
            records: vec![opened(2, NOW - 50, Mode::Exclusive)],
            ..StoredHistory::default()
        };
        let bounds = HistoryBounds {
            entries: 50,
            keep: Duration::from_secs(1_000),
        };
        for is_resting in [false, true] {
            let holder = Holder::Lease(HeldLease {
                fence,
                is_resting,
                ..held()
            });
            let history = LockHistory::merge(&stored, Some(&holder), bounds, wall(NOW));
            let entry = &history.entries[0].1;
            assert_eq!(entry.ended_at_latest, is_resting.then_some(NOW));
        }
    }

    #[test]
    fn what_is_known_of_a_short_lease_is_shown() {
        let note = text(3, "release-requested", NOW, None, None);
        let entries = merge(vec![note.clone(), note], None, 50);
        let entry = &entries[0].1;
        assert_eq!((entries.len(), entry.notes.len()), (1, 1));
        assert_eq!((entry.acquired_at, entry.ended_at_latest), (None, None));
        let entries = merge(vec![ended(4, NOW, BROKEN)], None, 50);
        assert_eq!(entries[0].1.acquired_at, Some(NOW - 1));
    }
}
