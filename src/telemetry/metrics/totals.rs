//! Totals: the counts since the start, as numbers.

use serde::Serialize;
use utoipa::ToSchema;

use super::{AcquireOutcome, LeaseOutcome, Metrics, SeenBy, histogram::LONG};

/// What a gateway did since its start.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Totals {
    /// Acquires and holds, by outcome.
    pub acquires: Acquires,
    /// How many of `acquires.granted` are shared leases.
    pub shared_grants: u64,
    /// Renewals, by outcome.
    pub renewals: Renewals,
    /// Releases, by outcome.
    pub releases: Releases,
    /// Locks that passed to a waiter at this gateway.
    pub handoffs: u64,
    /// Waits that ended because their caller hung up.
    pub abandoned_waits: u64,
    /// Leases that were released because their grant could not be delivered, or their stream had ended.
    pub given_back: u64,
    /// Leases that were ended with a break.
    pub broken: u64,
    /// Leases that had already ended when their holder tried to renew or release them.
    pub expired_while_held: u64,
    /// Holders whose lease had ended, and whose check was refused after a larger fencing token was granted. A
    /// fencing token of a lock counts once a minute, however often it is checked.
    pub stale_writes_refused: u64,
    /// Commands that the store did not answer.
    pub store_errors: u64,
}

/// Acquires and holds, by outcome.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Acquires {
    /// A new lease was granted.
    pub granted: u64,
    /// The request got the lease granted earlier under its `Idempotency-Key`.
    pub again: u64,
    /// Another lease holds the lock, or the wait ran out. Requests that continue one wait count once.
    pub held: u64,
    /// The gateway refused: too many waiters, replaced, key used for another request, draining.
    pub refused: u64,
    /// The store was not available, and nothing happened.
    pub unavailable: u64,
    /// The outcome is unknown: the lock may have been granted.
    pub unknown: u64,
    /// The store has foreign data, or no fencing token is left.
    pub failed: u64,
}

/// Renewals, by outcome.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Renewals {
    /// The lease was renewed.
    pub renewed: u64,
    #[serde(flatten)]
    otherwise: Otherwise,
}

/// Releases, by outcome.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Releases {
    /// The lease was released.
    pub released: u64,
    #[serde(flatten)]
    otherwise: Otherwise,
}

/// The outcomes that a renewal and a release have in common.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Otherwise {
    /// The token did not hold the lock.
    lost: u64,
    /// Another stream has taken over the lease (adopted it) and keeps it.
    adopted: u64,
    /// The store was not available, and nothing happened.
    unavailable: u64,
    /// The outcome is unknown: the command may have been carried out.
    unknown: u64,
    /// The store has foreign data.
    failed: u64,
}

/// How much of the TTL was left at renewals.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RenewMargin {
    /// The upper bounds of the buckets: TTL left at a renewal, in milliseconds.
    #[schema(value_type = Vec<u64>)]
    bounds_ms: &'static [u64],
    /// The number of renewals in each bucket: at most its bound, and more than the bound before. The last
    /// bucket is above all bounds.
    counts: Vec<u64>,
}

/// The upper bounds of the buckets of [`Metrics::renew_margins`], in milliseconds.
pub const MARGINS_MS: &[u64] = &LONG;

// === impl Metrics ===

impl Metrics {
    /// The counts of the gateway's operations since its start.
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
            stale_writes_refused: set.counted.stale_writes.get(),
            store_errors: set.unanswered.get(),
        }
    }

    /// How much of the TTL was left at the renewals since the start.
    pub fn renew_margin(&self) -> RenewMargin {
        RenewMargin {
            bounds_ms: MARGINS_MS,
            counts: self.renew_margins(),
        }
    }

    /// The number of renewals by the time that was left of the lease: one count for each bound of [`MARGINS_MS`], of
    /// the renewals above the bound before and up to this bound; last, the count above all bounds.
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
