//! Renew: keep a lock.

use std::time::Duration;

use crate::{
    lock::{Lease, LockName, Token, Ttl},
    store::{
        StoreError,
        contract::{Loss, Renewal},
    },
};

use super::{Engine, streams::Displaced};

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
    /// With a TTL, a stream of this gateway that holds the lease renews it at once and goes by that TTL
    /// from then on. One of another gateway learns of it with its next renewal.
    ///
    /// A caller that hangs up half-way has a lease that was renewed or not; both end by themselves.
    pub async fn renew(
        &self,
        name: LockName,
        token: Token,
        ttl: Option<Ttl>,
    ) -> Result<Lease, RenewError> {
        let hash = token.hash();
        match self.store.renew(&name, &hash, ttl).await? {
            Renewal::Renewed(held) => {
                self.owed.owe(hash, &name, &held);
                self.events.renewed(&name, &hash, &held);
                if ttl.is_some() {
                    let streams = &self.streams;
                    streams.displace(name.clone(), hash, Displaced::Renewed);
                }
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
                self.owed.settle(&hash);
                Err(RenewError::Lost(loss))
            }
        }
    }
}
