//! I19: the history of a lock says how its leases have ended. Entries are in the order of the fencing tokens, each once,
//! and name the errand that the lease was granted to. No entry says that a lease holds the lock after its end.
//!
//! A lease that was long enough, and whose release was answered, is shown as released; a lease that was broken is shown
//! as broken, or the end of its rest is shown. No lease is shown as lost, unless the store may have forgotten it, and no
//! released lease as expired. All this holds when gateways had time to write, for as many of the newest leases as the
//! history shows, where the store may not have forgotten the history.
//!
//! A gateway that is killed loses what it has not written. Then the gateway that granted the lease records that it was
//! released, if it is another one. Records that were dropped are counted in the history, so as many ends may be missing.

use std::collections::{HashMap, HashSet};

use super::prelude::*;

/// A lease of this length has an entry of its own, and a client is sure that its lease was longer.
const LONG: u64 = 1_000 * MS;
/// How much time without faults a gateway may need to write what it has recorded.
const WRITES: u64 = 3_000 * MS;

/// What the answers to clients say about the leases of a lock, by their fencing tokens.
#[derive(Default)]
struct Known {
    released: HashMap<u64, End>,
    /// The ends that a history must have: of leases that were released and were long enough, or that were broken.
    recorded: Vec<(u64, End, How)>,
    /// Leases that somebody tried to break, or requested the release of.
    disputed: HashSet<u64>,
    /// The gateways that have answered the grant.
    granted_by: HashMap<u64, Vec<usize>>,
}

/// How a lease has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Released,
    Broken,
}

/// An end of a lease that an answer has told: when it was asked for, when it was answered, and by which gateway.
#[derive(Clone, Copy)]
struct End {
    asked: u64,
    answered: u64,
    by: usize,
}

/// A history of a lock, as a gateway answered it.
struct Told<'a> {
    history: &'a History,
    lock: &'a Lock,
    known: &'a Known,
    op: &'a Op,
    entries: &'a [Past],
    /// Whether older leases than these may not be shown.
    is_full: bool,
}

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let known = Known::of_lock(history, lock);
        for op in history.of_lock(lock) {
            let Some(RecordedAnswer::History { entries, dropped }) = op.answer() else {
                continue;
            };
            let told = Told {
                history,
                lock,
                known: &known,
                op,
                entries,
                is_full: entries.len() >= terms.history_entries,
            };
            let mut wrong: Vec<String> = told.wrong(terms).collect();
            let due: Vec<_> = told.due().collect();
            report.histories.0 += 1;
            report.histories.1 += due.len();
            let missing = due
                .iter()
                .filter_map(|(fence, how)| told.lacks(*fence, *how));
            let missing: Vec<String> = missing.collect();
            if missing.len() as u64 > *dropped {
                wrong.extend(missing);
            }
            for what in wrong {
                let what = format!("{what}, as gateway {} says", op.to);
                report.violated(Invariant::I19, name, op.returned(), what);
            }
        }
    }
}

// === impl Known ===

impl Known {
    fn of_lock(history: &History, lock: &Lock) -> Self {
        let mut known = Self::default();
        for op in history.of_lock(lock) {
            if let Some(fence) = op.granted() {
                known.granted_by.entry(fence).or_default().push(op.to);
            }
            let Some(fence) = op.about() else { continue };
            let end = End {
                asked: op.asked,
                answered: op.returned(),
                by: op.to,
            };
            if matches!(op.ask, Ask::Break { .. }) {
                known.disputed.insert(fence);
            }
            match op.answer() {
                Some(RecordedAnswer::Released) => {
                    known.released.entry(fence).or_insert(end);
                }
                Some(RecordedAnswer::Broken) => known.recorded.push((fence, end, How::Broken)),
                _ => {}
            }
        }
        for (fence, end) in &known.released {
            // A lock that may rest is recorded however short its lease was.
            let lease = lock.leases.get(fence);
            if lease.is_some_and(|it| it.min_hold > 0 || it.granted + LONG <= end.asked) {
                known.recorded.push((*fence, *end, How::Released));
            }
        }
        known
    }

    /// Whether no gateway may have recorded how a lease has ended: the gateway that has ended it was killed before it
    /// wrote that, and no other gateway has granted the lease and lives to ask the store.
    fn is_unrecorded(&self, history: &History, fence: u64, end: End, read: u64) -> bool {
        let killed = |gateway, since, calm| history.faults.killed(gateway, (since, read), calm);
        let granted_by = self.granted_by.get(&fence).into_iter().flatten();
        killed(end.by, end.asked, WRITES)
            && granted_by
                .copied()
                .all(|gateway| gateway == end.by || killed(gateway, history.begins, RECOVERY))
    }
}

// === impl Told ===

impl Told<'_> {
    /// What the entries say although it cannot be right, whatever gateways have not written.
    fn wrong(&self, terms: &Terms) -> impl Iterator<Item = String> {
        let pairs = self.entries.windows(2);
        let unordered = pairs.filter(|pair| pair[0].fence <= pair[1].fence);
        let unordered =
            unordered.map(|pair| format!("{} comes before {}", pair[0].fence, pair[1].fence));
        let entries = self.entries.iter();
        unordered.chain(entries.filter_map(|entry| self.contradicts(entry, terms)))
    }

    fn contradicts(&self, entry: &Past, terms: &Terms) -> Option<String> {
        let Self {
            lock, known, op, ..
        } = self;
        let Past { fence, owner, .. } = entry;
        let (lease, faults) = (lock.leases.get(fence), &self.history.faults);
        if let Some(owner) = owner {
            let is_known = match lease {
                Some(lease) => lease.errand == *owner,
                None => lock.errands.contains_key(owner),
            };
            if !is_known {
                return Some(format!("{fence} is of {owner}, who was not granted it"));
            }
        }
        let since = lease.map_or(self.history.begins, |lease| lease.asked);
        if faults.forgot(since, op.returned()) {
            return None;
        }
        let is_moved = op.by != AFTERWARDS && faults.happened("move-slot", since, op.asked);
        let released = known
            .released
            .get(fence)
            .filter(|end| end.answered < op.asked);
        match entry.ended.as_deref() {
            _ if entry.held => {
                let over = lease.map(|it| it.ended.min(it.may_last.saturating_add(terms.second())));
                let is_over = op.by == AFTERWARDS || over.is_some_and(|over| over < op.asked);
                is_over.then(|| format!("{fence} still holds the lock"))
            }
            Some("lost") if !is_moved => {
                Some(format!("{fence} is lost, and the store has lost nothing"))
            }
            Some("broken") if !known.disputed.contains(fence) => {
                Some(format!("{fence} is broken, and nobody has broken it"))
            }
            Some("expired") => {
                let end = *released?;
                let is_unrecorded = known.is_unrecorded(self.history, *fence, end, op.asked);
                (!is_unrecorded).then(|| format!("{fence} has expired, and was released"))
            }
            _ => None,
        }
    }

    /// The ends that this history must have.
    fn due(&self) -> impl Iterator<Item = (u64, How)> {
        let recorded = self.known.recorded.iter();
        let due = recorded.filter(|(fence, end, how)| self.is_due(*fence, *end, *how));
        due.map(|(fence, _, how)| (*fence, *how))
    }

    fn is_due(&self, fence: u64, end: End, how: How) -> bool {
        let Self { history, op, .. } = self;
        let oldest = self.entries.last().filter(|_| self.is_full);
        let oldest = oldest.map_or(0, |entry| entry.fence);
        let since = self
            .lock
            .leases
            .get(&fence)
            .map_or(end.asked, |it| it.asked);
        let needed = if history.faults.felt(end.asked, op.asked) {
            RECOVERY
        } else {
            WRITES
        };
        let has_written =
            end.answered < op.asked && history.faults.calm(end.answered, op.asked) > needed;
        // Only the gateway that has broken a lease records that.
        let is_unrecorded = if how == How::Broken {
            history.faults.killed(end.by, (end.asked, op.asked), WRITES)
        } else {
            self.known.is_unrecorded(history, fence, end, op.asked)
        };
        fence >= oldest
            && has_written
            && !is_unrecorded
            && !history.faults.forgot(since, end.answered)
            && !history
                .faults
                .forgot_written((end.answered, op.returned()), WRITES)
    }

    /// The reason why a history lacks an end that must be in it; nothing if it does not.
    fn lacks(&self, fence: u64, how: How) -> Option<String> {
        let entry = self.entries.iter().find(|entry| entry.fence == fence);
        let is_known = entry.is_some_and(|entry| match how {
            How::Broken => entry.ended.as_deref() == Some("broken") || entry.rest_ended,
            How::Released => entry.ended.is_some(),
        });
        (!is_known).then(|| format!("{fence} was {how:?}, and has {entry:?}"))
    }
}
