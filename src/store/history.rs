//! What stores keep about past leases of a lock: records, as the engine writes and reads them, and a few counts.
//!
//! A record is one fact about one lease, as a line of text that begins with the fencing token of the lease in 16
//! digits. A store does not read the rest. The newest records of a lock are the ones with the largest fencing tokens.

use std::time::Duration;

use crate::lock::{FencingToken, LockName};

/// A lease that a release has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedLease {
    /// The fencing token of the lease.
    pub fence: FencingToken,
    /// For how long the lease was held, if the store says so: for a lease that another gateway has granted.
    pub held_for: Option<Duration>,
    /// Whether the lease had a minimum hold, if the store says for how long the lease was held.
    pub may_rest: bool,
}

/// How much of the history of a lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryBounds {
    /// How many leases a history shows at most.
    pub entries: usize,
    /// How long a lease is shown after its end.
    pub keep: Duration,
}

/// A record that waits to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRecord {
    /// The fencing token of the lease in 16 digits, a space, and the fact. One line. After [`UNPROVEN`], the record is
    /// kept only if there is another record of the lease.
    pub text: String,
    /// Whether the record is written even if the store is nearly full.
    pub is_vital: bool,
}

/// What a history counts instead of showing it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryCounts {
    /// How many leases were too short for records of their own.
    pub shorter: u64,
    /// When the first of the shorter leases ended, in milliseconds since 1970.
    pub since: u64,
    /// How many records were dropped, because too many waited to be written.
    pub dropped: u64,
}

/// What is added to the history of a lock at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBatch {
    /// The lock.
    pub name: LockName,
    /// The bounds to which the store then cuts the history.
    pub bounds: HistoryBounds,
    /// The records, in any order.
    pub records: Vec<HistoryRecord>,
    /// The numbers to add to the counts of the lock.
    pub counts: HistoryCounts,
}

/// The history of a lock, as a store has kept it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredHistory {
    /// The texts of the records, in any order; a text may be there twice.
    pub records: Vec<String>,
    /// The counts of the lock.
    pub counts: HistoryCounts,
}

/// The beginning of a record that does not prove that its lease exists: its caller may have invented the fencing token.
pub const UNPROVEN: char = '?';

// === impl HistoryBounds ===

impl HistoryBounds {
    /// The longest time for which a history may be kept.
    pub const MAX_KEEP: Duration = Duration::from_hours(90 * 24);

    /// How many records a store keeps for a lock, on Redis in each week: for each lease its beginning and its end, which
    /// two gateways may record, and other events. The counts take the place of one record.
    pub fn records(self) -> usize {
        4 * self.entries
    }
}

// === impl HistoryRecord ===

impl HistoryRecord {
    /// Makes the record of a fact about the lease with this fencing token.
    pub fn new(fence: u64, fact: &str, is_vital: bool) -> Self {
        let text = format!("{fence:016} {fact}");
        Self { text, is_vital }
    }

    /// The same record, which is kept only if there is another record of the lease.
    #[must_use]
    pub fn unproven(self) -> Self {
        let text = format!("{UNPROVEN}{}", self.text);
        Self { text, ..self }
    }
}

// === impl HistoryCounts ===

impl HistoryCounts {
    /// Adds what was counted elsewhere or later.
    pub fn add(&mut self, other: Self) {
        if self.shorter == 0 || (other.shorter > 0 && other.since < self.since) {
            self.since = other.since;
        }
        self.shorter += other.shorter;
        self.dropped += other.dropped;
    }

    /// Reads the text under which a store keeps counts; `None` if it is a record. Counts that cannot be read are none.
    pub fn from_text(text: &str) -> Option<Self> {
        let text = text.strip_prefix('~')?;
        let counts: Vec<_> = text.split(' ').map_while(|it| it.parse().ok()).collect();
        Some(match counts[..] {
            [shorter, since, dropped] => Self {
                shorter,
                since,
                dropped,
            },
            _ => Self::default(),
        })
    }

    /// The text under which a store keeps the counts beside the records, if anything was counted. Sorts after all records.
    pub fn text(self) -> Option<String> {
        let is_counted = self.shorter + self.dropped > 0;
        is_counted.then(|| format!("~{} {} {}", self.shorter, self.since, self.dropped))
    }
}

// === impl HistoryBatch ===

impl HistoryBatch {
    /// The records and counts to write. If the store is nearly full, the records that are not vital count as dropped.
    pub fn records(&self, is_full: bool) -> (Vec<&str>, HistoryCounts) {
        let records = self.records.iter().filter(|it| it.is_vital || !is_full);
        let records: Vec<_> = records.map(|record| record.text.as_str()).collect();
        let mut counts = self.counts;
        counts.dropped += (self.records.len() - records.len()) as u64;
        (records, counts)
    }
}

// === impl StoredHistory ===

impl StoredHistory {
    /// Adds a text that a store has kept: a record, or counts.
    pub fn add_text(&mut self, text: &str) {
        if let Some(counts) = HistoryCounts::from_text(text) {
            self.counts.add(counts);
        } else {
            let text = text.strip_prefix(UNPROVEN).unwrap_or(text);
            self.records.push(text.to_owned());
        }
    }
}
