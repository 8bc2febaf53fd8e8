//! Renew: keep a lock.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    lock::{Lease, LockName, Token, TokenHash, Ttl},
    store::{
        Store, StoreError, Uncertainty,
        contract::{Loss, Renewal, Renewer},
    },
    telemetry::metrics::SeenBy,
};

use super::{Engine, acquire::lease_outcome, hold_streams::Displaced};

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The token does not hold the lock.
    #[error("the lease is lost")]
    Lost(Loss),
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How often a lease is cut to what its caller may have.
const CUTS: usize = 3;

// === impl Engine ===

impl Engine {
    /// Makes a living lease last longer. Works while the gateway drains.
    ///
    /// `most` is the longest TTL that the caller may ask for. A lease whose own TTL is longer, from
    /// somebody who may ask for more, is cut to it and not refused: nobody loses a lock to a limit.
    /// With a TTL, a stream of this gateway that holds the lease renews it at once and goes by that TTL
    /// from then on. One of another gateway learns of it with its next renewal.
    ///
    /// A caller that hangs up half-way has a lease that was renewed or not; both end by themselves.
    pub async fn renew(
        &self,
        name: LockName,
        token: Token,
        ttl: Option<Ttl>,
        most: Option<Ttl>,
    ) -> Result<Lease, RenewError> {
        let hash = token.hash();
        let renewal = self
            .renew_up_to(Renewer::Bearer, &name, &hash, ttl, most)
            .await;
        self.0
            .metrics
            .renewed(SeenBy::Renew, lease_outcome(&renewal), margin(&renewal));
        match renewal? {
            // The answer took so long that the lease is over, unless it was renewed again meanwhile.
            Renewal::Renewed(held, _) if held.left_at(Instant::now()).is_zero() => {
                Err(StoreError::from(Uncertainty::TimedOut).into())
            }
            Renewal::Renewed(held, _) => {
                self.0.leases.insert(hash, &name, &held);
                self.0.events.renewed(&name, &hash, &held);
                // Given, or cut to what the caller may have.
                if ttl.is_some() || most == Some(held.ttl) {
                    let streams = &self.0.streams;
                    streams.displace(name.clone(), hash, Displaced::Renewed);
                }
                Ok(Lease {
                    name,
                    token,
                    held,
                    waited: Duration::ZERO,
                })
            }
            // A renewal by a bearer never has this outcome.
            Renewal::Adopted => Err(RenewError::Lost(Loss::HeldByAnother)),
            Renewal::Lost(loss) => {
                // What was never granted or renewed here may be anything.
                if self.0.leases.remove(&name, &hash).is_some()
                    && !matches!(loss, Loss::Broken { .. })
                {
                    self.0.metrics.expired_while_held(SeenBy::Renew);
                }
                Err(RenewError::Lost(loss))
            }
        }
    }

    /// Renews for no longer than `most`. The lease's own TTL is known when it has been renewed; what is
    /// too long is cut at once, and from then on its own TTL is short enough.
    pub(super) async fn renew_up_to(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
        most: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let mut renewal = self.0.store.renew_as(renewer, name, token, ttl).await?;
        let margin = margin_of(&renewal);
        let again = match renewer {
            // The stream that has adopted it in between goes on with it.
            Renewer::Adopter(id) => Renewer::Keeper(id),
            Renewer::Bearer | Renewer::Keeper(_) => renewer,
        };
        // Another renewal may come in between, and make it longer again.
        for _ in 0..CUTS {
            match (&renewal, most) {
                (Renewal::Renewed(held, _), Some(most)) if held.ttl > most => {
                    let cut = self.0.store.renew_as(again, name, token, Some(most)).await;
                    renewal = cut.map_err(|error| match error {
                        // Known of this command, and not of the one before.
                        StoreError::Unavailable(why) => Uncertainty::Renewed(why).into(),
                        error => error,
                    })?;
                }
                _ => break,
            }
        }
        // What was left is told by the first: the others have come at once.
        Ok(match renewal {
            Renewal::Renewed(held, _) => Renewal::Renewed(held, margin),
            other @ (Renewal::Adopted | Renewal::Lost(_)) => other,
        })
    }
}

/// What was left of a lease that was renewed, as the store knew it.
pub(super) fn margin(answer: &Result<Renewal, StoreError>) -> Option<Duration> {
    answer.as_ref().ok().and_then(margin_of)
}

fn margin_of(renewal: &Renewal) -> Option<Duration> {
    match renewal {
        Renewal::Renewed(_, margin) => *margin,
        Renewal::Adopted | Renewal::Lost(_) => None,
    }
}
