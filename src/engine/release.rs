//! Release: give a lock back.

use std::sync::Arc;

use crate::{
    lock::{LockName, Token},
    store::{
        StoreError,
        contract::{Loss, Release},
    },
    telemetry::metrics::SeenBy,
};

use super::{Engine, counted::ended, seen_through::SeenThrough, streams::Displaced};

/// Why a lease was not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The token does not hold the lock.
    #[error("the lease is lost")]
    Lost(Loss),
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Engine ===

impl Engine {
    /// Ends a living lease. Works while the gateway drains.
    ///
    /// A caller that hangs up half-way still wants the lock released, so the command is seen through.
    pub async fn release(&self, name: LockName, token: &Token) -> Result<(), ReleaseError> {
        let hash = token.hash();
        let store = Arc::clone(&self.store);
        let (streams, owed) = (self.streams.clone(), self.owed.clone());
        let (events, metrics) = (self.events.clone(), self.metrics.clone());
        let release = SeenThrough::new(&self.lifecycle, |_hung_up| async move {
            let release = store.release(&name, &hash).await;
            let held = match &release {
                Ok(_) => owed.settle(&hash).map(|owing| owing.since.elapsed()),
                Err(_) => None,
            };
            metrics.released(ended(&release), held);
            if let Ok(Release::Lost(Loss::HeldByAnother | Loss::Free)) = &release {
                metrics.expired_while_held(SeenBy::Release);
            }
            if let Ok(Release::Released) = &release {
                events.released(&name, &hash);
                streams.displace(name, hash, Displaced::Released);
            }
            release
        });
        match release.await? {
            Release::Released => Ok(()),
            // Nobody asked as a keeper.
            Release::Adopted => Err(ReleaseError::Lost(Loss::HeldByAnother)),
            Release::Lost(loss) => Err(ReleaseError::Lost(loss)),
        }
    }
}
