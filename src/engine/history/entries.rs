//! Merges the facts about a lock into entries, one for each lease.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use crate::{
    clock::rfc3339,
    lock::{HeldLease, History, HistoryEntry, LockName, Mode, ShorterLeases},
    store::{
        contract::Holder,
        history::{HistoryBounds, StoredHistory},
    },
};

use super::fact::{ENDS, RecordedLease, is_proof, read};

/// Merges what a store has kept with the facts that wait at this gateway. `holder` is the holder of the lock at
/// present, `now` the wall time. Times are compared as texts: all gateways write them in the same form.
pub(super) fn merge(
    name: &LockName,
    (stored, waiting): (StoredHistory, Vec<HistoryEntry>),
    holder: Option<&Holder>,
    bounds: HistoryBounds,
    now: SystemTime,
) -> History {
    let mut leases = BTreeMap::<u64, HistoryEntry>::new();
    let records = stored.records.iter().filter_map(|text| read(text));
    for fact in records.chain(waiting) {
        add(leases.entry(fact.fencing_token).or_default(), fact);
    }
    for lease in holder.map_or(&[][..], Holder::leases) {
        // The lease may be too young, or its gateway may have died before it had recorded the lease.
        if !lease.is_resting {
            let since = now.checked_sub(lease.held_for + lease.as_of.elapsed());
            let mut held = RecordedLease::from(lease).entry;
            held.acquired_at = Some(rfc3339(since).to_string());
            add(leases.entry(held.fencing_token).or_default(), held);
        }
    }
    leases.retain(|_, entry| is_proof(entry));
    let [oldest, now] =
        [now.checked_sub(bounds.keep), Some(now)].map(|time| rfc3339(time).to_string());
    // When the next newer lease was granted: any, and an exclusive one.
    let (mut any, mut exclusive) = (None, None);
    let mut entries: Vec<_> = leases.into_values().rev().collect();
    entries.retain_mut(|entry| {
        entry.notes.sort_by(|a, b| a.at.cmp(&b.at));
        let acquired_at = entry.acquired_at.clone();
        let is_shared = entry.mode.as_deref() == Some(Mode::Shared { slot: None }.as_str());
        let next = if is_shared { &exclusive } else { &any };
        let is_open = acquired_at.is_some() && entry.ended.is_none();
        let is_held = is_open && next.is_none() && holder.is_some_and(|it| may_hold(it, entry));
        if is_open && !is_held {
            entry.ended_at_latest = next.clone().or_else(|| Some(now.clone()));
        }
        let times = [&acquired_at, &entry.ended_at].into_iter().flatten();
        let times = times.chain(entry.notes.iter().map(|note| &note.at));
        let is_recent = times.max() >= Some(&oldest);
        if !is_shared {
            exclusive = acquired_at.clone().or(exclusive.take());
        }
        any = acquired_at.or(any.take());
        is_held || is_recent
    });
    entries.truncate(bounds.entries);
    let counts = stored.counts;
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(counts.since));
    History {
        name: name.as_str().to_owned(),
        entries,
        shorter_leases: (counts.shorter > 0).then(|| ShorterLeases {
            count: counts.shorter,
            since: rfc3339(since).to_string(),
        }),
        dropped: counts.dropped,
        enabled: bounds.entries > 0,
        ..History::default()
    }
}

/// Whether the lease of this entry holds the lock, as far as the holders are shown.
fn may_hold(holder: &Holder, entry: &HistoryEntry) -> bool {
    let leases = holder.leases();
    // A rest has the fence of the lease that has ended.
    let is_shown =
        |lease: &HeldLease| lease.fence.get() == entry.fencing_token && !lease.is_resting;
    leases.iter().any(is_shown) || holder.count() > leases.len() as u64
}

/// Adds a fact about the lease of this entry.
fn add(entry: &mut HistoryEntry, mut fact: HistoryEntry) {
    let rank = |kind: &str| ENDS.iter().position(|end| kind == *end);
    let end = fact
        .notes
        .extract_if(.., |note| rank(&note.kind).is_some())
        .next();
    // If two gateways recorded the same kind of end, the record that names the caller counts, otherwise the earlier one.
    let known = entry.ended.as_deref().map(|kind| {
        (
            rank(kind),
            entry.ended_by.is_some(),
            Reverse(entry.ended_at.as_ref()),
        )
    });
    if let Some(end) = end.filter(|end| {
        known
            .is_none_or(|known| known < (rank(&end.kind), end.by.is_some(), Reverse(Some(&end.at))))
    }) {
        (entry.ended, entry.ended_at) = (Some(end.kind), Some(end.at));
        (entry.ended_by, entry.reason) = (end.by, end.reason);
        // The clock of another gateway may differ, so both times of the lease are from one record.
        entry.acquired_at = fact.acquired_at.take().or(entry.acquired_at.take());
    }
    entry.fencing_token = fact.fencing_token;
    entry.mode = entry.mode.take().or(fact.mode);
    entry.slot = entry.slot.or(fact.slot);
    entry.owner = entry.owner.take().or(fact.owner);
    entry.metadata.append(&mut fact.metadata);
    entry.order = entry.order.or(fact.order);
    entry.rollback = entry.rollback.take().or(fact.rollback);
    entry.acquired_at = entry.acquired_at.take().or(fact.acquired_at);
    entry.acquired_by = entry.acquired_by.take().or(fact.acquired_by);
    // A repeated request at another gateway may have waited only for a part of the time.
    entry.waited_ms = entry.waited_ms.max(fact.waited_ms);
    fact.notes.retain(|note| !entry.notes.contains(note));
    entry.notes.append(&mut fact.notes);
}

#[cfg(test)]
mod tests {
    use crate::{
        engine::{
            history::fact::{BROKEN, EXPIRED, RELEASED, STALE_WRITE_REFUSED, record},
            tests::scripted_store::held,
        },
        lock::{FencingToken, HistoryNote},
    };

    use super::*;

    /// The wall time of the reader, in ms.
    const NOW: u64 = 10_000_000;
    const SHARED: &str = "shared";
    const EXCLUSIVE: &str = "exclusive";

    fn wall(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn text(ms: u64) -> String {
        rfc3339(Some(wall(ms))).to_string()
    }

    fn opened(fencing_token: u64, at: u64, mode: &str) -> HistoryEntry {
        HistoryEntry {
            fencing_token,
            acquired_at: Some(text(at)),
            mode: Some(mode.to_owned()),
            owner: Some("ci".to_owned()),
            ..HistoryEntry::default()
        }
    }

    fn note(kind: &str, at: u64) -> HistoryNote {
        HistoryNote {
            kind: kind.to_owned(),
            at: text(at),
            ..HistoryNote::default()
        }
    }

    fn ended(fencing_token: u64, at: u64, how: &str) -> HistoryEntry {
        HistoryEntry {
            fencing_token,
            acquired_at: Some(text(at - 1)),
            notes: vec![note(how, at)],
            ..HistoryEntry::default()
        }
    }

    fn merged(
        stored: StoredHistory,
        holder: Option<HeldLease>,
        entries: usize,
    ) -> Vec<HistoryEntry> {
        let (name, keep) = (LockName::new("lock").unwrap(), Duration::from_secs(1_000));
        let bounds = HistoryBounds { entries, keep };
        let holder = holder.map(Holder::Lease);
        merge(
            &name,
            (stored, Vec::new()),
            holder.as_ref(),
            bounds,
            wall(NOW),
        )
        .entries
    }

    fn of_facts(facts: &[HistoryEntry], holder: Option<u64>, entries: usize) -> Vec<HistoryEntry> {
        let records = facts.iter().map(|fact| record(fact.clone()).text);
        let stored = StoredHistory {
            records: records.collect(),
            ..StoredHistory::default()
        };
        let holder = holder.map(|fence| HeldLease {
            fence: FencingToken::new(fence).unwrap(),
            ..held()
        });
        merged(stored, holder, entries)
    }

    #[test]
    fn the_records_of_a_lease_are_one_entry_and_the_strongest_end_counts() {
        let facts = [
            ended(2, NOW - 5, EXPIRED),
            opened(2, NOW - 50, EXCLUSIVE),
            ended(2, NOW - 7, RELEASED),
            opened(2, NOW - 50, EXCLUSIVE),
        ];
        let records = facts.map(|fact| record(fact).text).into_iter();
        let others = [
            "0000000000000002 {\"of\":\"a later version\"}".to_owned(),
            "nonsense".to_owned(),
        ];
        let stored = StoredHistory {
            records: records.chain(others).collect(),
            ..StoredHistory::default()
        };
        let [entry] = &merged(stored, None, 50)[..] else {
            panic!("one entry");
        };
        assert_eq!(entry.ended.as_deref(), Some(RELEASED));
        assert_eq!(entry.ended_at, Some(text(NOW - 7)));
        assert_eq!(entry.owner.as_deref(), Some("ci"));
    }

    #[test]
    fn entries_are_sorted_by_fence_and_an_end_that_nobody_saw_is_before_the_next_grant() {
        let facts = [
            // The clock of this gateway is behind.
            opened(9, NOW - 900, EXCLUSIVE),
            opened(7, NOW - 100, SHARED),
            opened(6, NOW - 200, SHARED),
            opened(5, NOW - 300, EXCLUSIVE),
        ];
        let shown = |it: &HistoryEntry| (it.fencing_token, it.ended_at_latest.clone());
        let entries: Vec<_> = of_facts(&facts, Some(9), 50).iter().map(shown).collect();
        let next = Some(text(NOW - 900));
        assert_eq!(
            entries,
            [
                (9, None),
                (7, next.clone()),
                (6, next),
                (5, Some(text(NOW - 200)))
            ]
        );
        let last: Vec<_> = of_facts(&facts, None, 1).iter().map(shown).collect();
        assert_eq!(last, [(9, Some(text(NOW)))]);
    }

    #[test]
    fn what_is_too_old_is_left_out_unless_it_is_held() {
        let old = NOW - 2_000_000;
        let facts = [ended(1, old, RELEASED), opened(2, old, EXCLUSIVE)];
        assert_eq!(of_facts(&facts, None, 50), []);
        assert_eq!(of_facts(&facts, Some(2), 50).len(), 1);
    }

    #[test]
    fn a_lease_whose_lock_rests_does_not_hold_it() {
        for is_resting in [false, true] {
            let stored = StoredHistory {
                records: vec![record(opened(2, NOW - 50, EXCLUSIVE)).text],
                ..StoredHistory::default()
            };
            let holder = HeldLease {
                fence: FencingToken::new(2).unwrap(),
                is_resting,
                ..held()
            };
            let entry = &merged(stored, Some(holder), 50)[0];
            assert_eq!(entry.ended_at_latest, is_resting.then(|| text(NOW)));
        }
    }

    #[test]
    fn a_fencing_token_that_only_a_refused_check_has_named_is_not_shown() {
        let refused = |fencing_token| HistoryEntry {
            fencing_token,
            notes: vec![note(STALE_WRITE_REFUSED, NOW - 5)],
            ..HistoryEntry::default()
        };
        let facts = [refused(7), opened(6, NOW - 50, EXCLUSIVE), refused(6)];
        let entries = of_facts(&facts, None, 50);
        assert_eq!((entries.len(), entries[0].notes.len()), (1, 1));
    }

    #[test]
    fn what_is_known_of_a_short_lease_is_shown() {
        let note = HistoryEntry {
            fencing_token: 3,
            notes: vec![note("release-requested", NOW)],
            ..HistoryEntry::default()
        };
        let entries = of_facts(&[note.clone(), note], None, 50);
        let entry = &entries[0];
        assert_eq!((entries.len(), entry.notes.len()), (1, 1));
        assert_eq!((&entry.acquired_at, &entry.ended_at_latest), (&None, &None));
        let entries = of_facts(&[ended(4, NOW, BROKEN)], None, 50);
        assert_eq!(entries[0].acquired_at, Some(text(NOW - 1)));
    }
}
