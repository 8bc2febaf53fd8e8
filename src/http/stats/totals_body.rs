//! What a gateway did since its start.

use serde::Serialize;
use utoipa::ToSchema;

use crate::telemetry::metrics::{AcquireOutcome, LeaseOutcome, Totals};

/// What a gateway did since its start.
#[derive(Serialize, ToSchema)]
#[schema(as = Totals)]
pub(super) struct TotalsBody {
    /// Acquires and holds, by how they ended.
    acquires: AcquiresBody,
    /// How many of `acquires.granted` share their lock.
    shared_grants: u64,
    /// Renewals, by how they ended.
    renewals: RenewalsBody,
    /// Releases, by how they ended.
    releases: ReleasesBody,
    /// Locks that passed to somebody who waited here.
    handoffs: u64,
    /// Waits that ended because their caller had gone.
    abandoned_waits: u64,
    /// Leases that were ended because nobody was there to use them.
    given_back: u64,
    /// Leases that were taken away with a break.
    broken: u64,
    /// Leases that had ended when their holder came to renew or release them.
    expired_while_held: u64,
    /// Commands that the store did not answer.
    store_errors: u64,
}

/// Acquires and holds, by how they ended.
#[derive(Serialize, ToSchema)]
#[schema(as = Acquires)]
struct AcquiresBody {
    /// A new lease.
    granted: u64,
    /// The lease that lived under its `Idempotency-Key`.
    again: u64,
    /// Somebody else holds the lock, or the wait ran out; of requests that go on with one wait, the first.
    held: u64,
    /// The request could not be had: too many wait, superseded, key used otherwise, draining.
    refused: u64,
    /// The store was not there: nothing happened.
    unavailable: u64,
    /// It may have happened.
    unknown: u64,
    /// The store has what cannot be worked with.
    failed: u64,
}

/// Renewals, by how they ended.
#[derive(Serialize, ToSchema)]
#[schema(as = Renewals)]
struct RenewalsBody {
    /// The lease lasts longer.
    renewed: u64,
    #[serde(flatten)]
    otherwise: OtherwiseBody,
}

/// Releases, by how they ended.
#[derive(Serialize, ToSchema)]
#[schema(as = Releases)]
struct ReleasesBody {
    /// The lease has ended.
    released: u64,
    #[serde(flatten)]
    otherwise: OtherwiseBody,
}

/// How else a renewal or a release ends.
#[derive(Serialize, ToSchema)]
#[schema(as = Otherwise)]
struct OtherwiseBody {
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

// === impl TotalsBody ===

impl From<&Totals> for TotalsBody {
    fn from(totals: &Totals) -> Self {
        let acquires = |outcome| totals.acquires(outcome);
        Self {
            acquires: AcquiresBody {
                granted: acquires(AcquireOutcome::Granted),
                again: acquires(AcquireOutcome::Again),
                held: acquires(AcquireOutcome::Held),
                refused: acquires(AcquireOutcome::Refused),
                unavailable: acquires(AcquireOutcome::Unavailable),
                unknown: acquires(AcquireOutcome::Unknown),
                failed: acquires(AcquireOutcome::Failed),
            },
            shared_grants: totals.shared_grants,
            renewals: RenewalsBody {
                renewed: totals.renewals(LeaseOutcome::Done),
                otherwise: OtherwiseBody::new(|ended| totals.renewals(ended)),
            },
            releases: ReleasesBody {
                released: totals.releases(LeaseOutcome::Done),
                otherwise: OtherwiseBody::new(|ended| totals.releases(ended)),
            },
            handoffs: totals.handoffs,
            abandoned_waits: totals.abandoned_waits,
            given_back: totals.given_back,
            broken: totals.broken,
            expired_while_held: totals.expired_while_held,
            store_errors: totals.store_errors,
        }
    }
}

// === impl OtherwiseBody ===

impl OtherwiseBody {
    fn new(count: impl Fn(LeaseOutcome) -> u64) -> Self {
        Self {
            lost: count(LeaseOutcome::Lost),
            adopted: count(LeaseOutcome::Adopted),
            unavailable: count(LeaseOutcome::Unavailable),
            unknown: count(LeaseOutcome::Unknown),
            failed: count(LeaseOutcome::Failed),
        }
    }
}
