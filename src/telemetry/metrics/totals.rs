//! What was counted since the start, as numbers.

use super::{AcquireOutcome, LeaseOutcome, Metrics, SeenBy, histogram::LONG};

/// What was counted since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    acquires: [(AcquireOutcome, u64); AcquireOutcome::ALL.len()],
    renewals: [(LeaseOutcome, u64); LeaseOutcome::ALL.len()],
    releases: [(LeaseOutcome, u64); LeaseOutcome::ALL.len()],
    /// Leases that were granted to share their lock.
    pub shared_grants: u64,
    /// Locks that passed to somebody who waited here.
    pub handoffs: u64,
    /// Waits whose caller had gone.
    pub abandoned_waits: u64,
    /// Leases that were ended because nobody was there to use them.
    pub given_back: u64,
    /// Leases that were taken away.
    pub broken: u64,
    /// Leases that had ended when their holder came.
    pub expired_while_held: u64,
    /// Commands that the store did not answer.
    pub store_errors: u64,
    /// How many renewals had at most as much of the TTL left as each of [`Totals::MARGINS`] says, and
    /// more than the one before; last, how many had more than all of them.
    pub renew_margin: Vec<u64>,
}

// === impl Totals ===

impl Totals {
    /// The bounds of the renew margins, in milliseconds.
    pub const MARGINS: &[u64] = &LONG;

    /// How many acquires and holds ended so.
    pub fn acquires(&self, outcome: AcquireOutcome) -> u64 {
        count(&self.acquires, outcome)
    }

    /// How many renewals ended so, by callers and by streams.
    pub fn renewals(&self, ended: LeaseOutcome) -> u64 {
        count(&self.renewals, ended)
    }

    /// How many releases ended so.
    pub fn releases(&self, ended: LeaseOutcome) -> u64 {
        count(&self.releases, ended)
    }
}

// === impl Metrics ===

impl Metrics {
    /// What was counted since the start.
    pub fn totals(&self) -> Totals {
        let set = &self.0;
        let renewed = |ended: LeaseOutcome| {
            let by = |by| {
                let labels = [("by", by), ("outcome", ended.as_str("renewed"))];
                set.renewals.get_or_create(&labels).get()
            };
            (ended, by("caller") + by("stream"))
        };
        let released = |ended: LeaseOutcome| {
            let labels = [("outcome", ended.as_str("released"))];
            (ended, set.releases.get_or_create(&labels).get())
        };
        let acquired = |outcome: AcquireOutcome| {
            let labels = [("outcome", outcome.as_str())];
            (outcome, set.acquires.get_or_create(&labels).get())
        };
        let expired = SeenBy::ALL.map(|seen_by| {
            let labels = [("seen_by", seen_by.as_str())];
            set.expired_while_held.get_or_create(&labels).get()
        });
        let handed_over =
            ["this", "another"].map(|by| set.handoffs.get_or_create(&[("by", by)]).get());
        let margins = ["caller", "stream"].map(|by| {
            let margin = set.renew_margin.get_or_create(&[("by", by)]);
            margin.counts()
        });
        let [by_callers, by_streams] = margins;
        let margins = by_callers.into_iter().zip(by_streams);
        let margins = margins.map(|(caller, stream)| caller + stream);
        Totals {
            acquires: AcquireOutcome::ALL.map(acquired),
            renewals: LeaseOutcome::ALL.map(renewed),
            releases: LeaseOutcome::ALL.map(released),
            shared_grants: set.shared_grants.get(),
            handoffs: handed_over.iter().sum(),
            abandoned_waits: set.abandoned_waits.get(),
            given_back: set.given_back.get(),
            broken: set.broken.get(),
            expired_while_held: expired.iter().sum(),
            store_errors: set.unanswered.get(),
            renew_margin: margins.collect(),
        }
    }
}

fn count<T: Copy + PartialEq>(counts: &[(T, u64)], of: T) -> u64 {
    let found = counts.iter().find(|(ended, _)| *ended == of);
    found.map_or(0, |(_, count)| *count)
}
