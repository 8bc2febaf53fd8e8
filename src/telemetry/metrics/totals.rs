//! What was counted since the start, as numbers.

use serde::Serialize;
use utoipa::ToSchema;

use super::{AcquireOutcome, LeaseOutcome, Metrics, SeenBy, histogram::LONG};

/// What a gateway did since its start.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Totals {
    /// Acquires and holds, by how they ended.
    pub acquires: Acquires,
    /// How many of `acquires.granted` share their lock.
    pub shared_grants: u64,
    /// Renewals, by how they ended.
    pub renewals: Renewals,
    /// Releases, by how they ended.
    pub releases: Releases,
    /// Locks that passed to somebody who waited here.
    pub handoffs: u64,
    /// Waits that ended because their caller had gone.
    pub abandoned_waits: u64,
    /// Leases that were ended because nobody was there to use them.
    pub given_back: u64,
    /// Leases that were taken away with a break.
    pub broken: u64,
    /// Leases that had ended when their holder came to renew or release them.
    pub expired_while_held: u64,
    /// Commands that the store did not answer.
    pub store_errors: u64,
}

/// Acquires and holds, by how they ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Acquires {
    /// A new lease.
    pub granted: u64,
    /// The lease that lived under its `Idempotency-Key`.
    pub again: u64,
    /// Somebody else holds the lock, or the wait ran out; of requests that go on with one wait, the first.
    pub held: u64,
    /// The request could not be had: too many wait, superseded, key used otherwise, draining.
    pub refused: u64,
    /// The store was not there: nothing happened.
    pub unavailable: u64,
    /// It may have happened.
    pub unknown: u64,
    /// The store has what cannot be worked with.
    pub failed: u64,
}

/// Renewals, by how they ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Renewals {
    /// The lease lasts longer.
    pub renewed: u64,
    #[serde(flatten)]
    otherwise: Otherwise,
}

/// Releases, by how they ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Releases {
    /// The lease has ended.
    pub released: u64,
    #[serde(flatten)]
    otherwise: Otherwise,
}

/// How else a renewal or a release ends.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Otherwise {
    /// The token did not hold the lock.
    lost: u64,
    /// Another stream goes on with the lease.
    adopted: u64,
    /// The store was not there: nothing happened.
    unavailable: u64,
    /// It may have happened.
    unknown: u64,
    /// The store has what cannot be worked with.
    failed: u64,
}

/// The bounds of the renew margins, in milliseconds.
pub const MARGINS_MS: &[u64] = &LONG;

// === impl Metrics ===

impl Metrics {
    /// What was counted since the start.
    pub fn totals(&self) -> Totals {
        let set = &self.0;
        let acquired = |outcome: AcquireOutcome| set.acquired[outcome as usize].get();
        let renewed = |ended: LeaseOutcome| {
            ["caller", "stream"]
                .map(|by| set.counted.renewed(by, ended).get())
                .iter()
                .sum()
        };
        let released = |ended: LeaseOutcome| set.released[ended as usize].get();
        let expired = SeenBy::ALL.map(|seen_by| set.counted.expired(seen_by).get());
        let handed_over = |by| set.counted.handed_over(by).get();
        Totals {
            acquires: Acquires {
                granted: acquired(AcquireOutcome::Granted),
                again: acquired(AcquireOutcome::Again),
                held: acquired(AcquireOutcome::Held),
                refused: acquired(AcquireOutcome::Refused),
                unavailable: acquired(AcquireOutcome::Unavailable),
                unknown: acquired(AcquireOutcome::Unknown),
                failed: acquired(AcquireOutcome::Failed),
            },
            shared_grants: set.counted.shared_grants.get(),
            renewals: Renewals {
                renewed: renewed(LeaseOutcome::Done),
                otherwise: Otherwise::counted(renewed),
            },
            releases: Releases {
                released: released(LeaseOutcome::Done),
                otherwise: Otherwise::counted(released),
            },
            handoffs: handed_over("this") + handed_over("another"),
            abandoned_waits: set.counted.abandoned_waits.get(),
            given_back: set.counted.given_back.get(),
            broken: set.counted.broken.get(),
            expired_while_held: expired.iter().sum(),
            store_errors: set.unanswered.get(),
        }
    }

    /// How many renewals had at most as much of the TTL left as each of [`MARGINS_MS`] says, and more than
    /// the one before; last, how many had more than all of them.
    pub fn renew_margins(&self) -> Vec<u64> {
        let by = |by| self.0.counted.margins(by).counts();
        let both = by("caller").into_iter().zip(by("stream"));
        both.map(|(caller, stream)| caller + stream).collect()
    }
}

// === impl Otherwise ===

impl Otherwise {
    fn counted(count: impl Fn(LeaseOutcome) -> u64) -> Self {
        Self {
            lost: count(LeaseOutcome::Lost),
            adopted: count(LeaseOutcome::Adopted),
            unavailable: count(LeaseOutcome::Unavailable),
            unknown: count(LeaseOutcome::Unknown),
            failed: count(LeaseOutcome::Failed),
        }
    }
}
