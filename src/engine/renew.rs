//! Renew: extend a lease.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::{
    lock::{Lease, LockName, Token, TokenHash},
    store::{
        StoreError, Uncertainty,
        contract::{Loss, Renewal, RenewalTtl, Renewer},
    },
    telemetry::metrics::SeenBy,
};

use super::{Engine, acquire::lease_outcome, facts::Fact, start::EngineShared};

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
        let renewal = self.0.renew_complete(Renewer::Bearer, &name, &hash, ttl);
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

// === impl EngineShared ===

impl EngineShared {
    /// Renews a lease whose caller was answered, so that a group to which the lease belongs is complete.
    ///
    /// The lease may have the TTL of an incomplete group all the same: the store has lost the renewal that completed the
    /// group, a node of a quorum has missed it, or the caller asks for just this TTL. The lease would be shown as
    /// waiting, and its last lock would be adopted as that of an incomplete group. So the lease is renewed once more, for
    /// its whole TTL, or for a TTL that differs by a millisecond. The second renewal may take half of the time that the
    /// lease has left, so that the caller learns of the first one in time.
    pub(super) async fn renew_complete(
        &self,
        renewer: Renewer,
        name: &LockName,
        hash: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let renewal = self.store.renew_as(renewer, name, hash, ttl).await?;
        let Renewal::Renewed(held, margin) = &renewal else {
            return Ok(renewal);
        };
        let Some(mark) = held.mark() else {
            return Ok(renewal);
        };
        let mut whole = ttl.applied_to(mark.ttl);
        if whole == held.ttl {
            whole = whole.while_collected();
        }
        let now = Instant::now();
        let limit = now + held.left_at(now) / 2;
        let repeated = self.store.renew_as(renewer, name, hash, Some(whole).into());
        Ok(match timeout_at(limit, repeated).await {
            Ok(Ok(Renewal::Renewed(held, _))) => Renewal::Renewed(held, *margin),
            Ok(Ok(other)) => other,
            // The first renewal counts.
            Ok(Err(_)) | Err(_) => renewal,
        })
    }
}

/// How much time a renewed lease had left before its renewal, by the store's clock.
pub(super) fn margin(answer: &Result<Renewal, StoreError>) -> Option<Duration> {
    match answer {
        Ok(Renewal::Renewed(_, margin)) => Some(*margin),
        Ok(Renewal::Adopted | Renewal::Lost(_)) | Err(_) => None,
    }
}
