//! Renew: extend a lease.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    lock::{Lease, LockName, Token},
    store::{
        StoreError, Uncertainty,
        contract::{Loss, Renewal, RenewalTtl, Renewer},
    },
    telemetry::metrics::SeenBy,
};

use super::{Engine, acquire::lease_outcome, facts::Fact};

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The token does not hold the lock.
    #[error("the lease is lost")]
    Lost(Loss),
    /// The store did not answer, or could not carry out the command.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Engine ===

impl Engine {
    /// Makes a living lease last longer, never shorter. Works while the gateway drains.
    ///
    /// If the lease's own TTL is longer than `ttl.max`, the lease keeps its end and has that TTL from now on: a caller
    /// with a limit does not end the lease of a caller without one, and does not prolong it beyond the limit. A hold
    /// stream of the lease learns the new TTL with its next renewal.
    ///
    /// If the caller hangs up half-way, the lease may have been renewed or not; in both cases it ends with its TTL.
    pub async fn renew(
        &self,
        name: LockName,
        token: Token,
        ttl: RenewalTtl,
    ) -> Result<Lease, RenewError> {
        let hash = token.hash();
        let renewal = self.0.store.renew_as(Renewer::Bearer, &name, &hash, ttl);
        let renewal = renewal.await;
        self.0
            .metrics
            .renewed(SeenBy::Renew, lease_outcome(&renewal), margin(&renewal));
        match renewal? {
            // The answer took so long that the lease has expired, unless it was renewed again meanwhile.
            Renewal::Renewed(held, _) if held.left_at(Instant::now()).is_zero() => {
                Err(StoreError::from(Uncertainty::TimedOut).into())
            }
            Renewal::Renewed(held, _) => {
                self.0.leases.insert(hash, &name, &held);
                let fact = Fact::Renewed(&held);
                self.0.facts.tell(&name, Some((&hash).into()), fact);
                Ok(Lease {
                    name,
                    token,
                    held,
                    waited: Duration::ZERO,
                })
            }
            // Only a renewal that names a recipient can fail like this, and this renewal names none.
            Renewal::Adopted => Err(RenewError::Lost(Loss::HeldByAnother)),
            Renewal::Lost(loss) => {
                self.0.facts.gone(&name, &hash, loss, Some(SeenBy::Renew));
                Err(RenewError::Lost(loss))
            }
        }
    }
}

/// How much time a renewed lease had left before its renewal, by the store's clock.
pub(super) fn margin(answer: &Result<Renewal, StoreError>) -> Option<Duration> {
    match answer {
        Ok(Renewal::Renewed(_, margin)) => Some(*margin),
        Ok(Renewal::Adopted | Renewal::Lost(_)) | Err(_) => None,
    }
}
