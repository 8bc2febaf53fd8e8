//! Renew: keep a lock.

use std::time::Duration;

use crate::{
    lock::{Lease, LockName, Token, Ttl},
    store::{
        StoreError,
        contract::{Loss, Renewal},
    },
    telemetry::metrics::SeenBy,
};

use super::{Engine, counted::ended};

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

// === impl Engine ===

impl Engine {
    /// Makes a living lease last longer. Works while the gateway drains.
    ///
    /// A caller that hangs up half-way has a lease that was renewed or not; both end by themselves.
    pub async fn renew(
        &self,
        name: LockName,
        token: Token,
        ttl: Option<Ttl>,
    ) -> Result<Lease, RenewError> {
        let hash = token.hash();
        let left = self.owed.left(&hash);
        let renewal = self.store.renew(&name, &hash, ttl).await;
        self.metrics.renewed(SeenBy::Renew, ended(&renewal), left);
        match renewal? {
            Renewal::Renewed(held) => {
                self.owed.owe(hash, &name, &held);
                self.events.renewed(&name, &hash, &held);
                Ok(Lease {
                    name,
                    token,
                    held,
                    waited: Duration::ZERO,
                })
            }
            // A bearer is never answered so.
            Renewal::Adopted => Err(RenewError::Lost(Loss::HeldByAnother)),
            Renewal::Lost(loss) => {
                if !matches!(loss, Loss::Broken { .. }) {
                    self.metrics.expired_while_held(SeenBy::Renew);
                }
                self.owed.settle(&hash);
                Err(RenewError::Lost(loss))
            }
        }
    }
}
