//! Release: give a lock back.

use std::sync::Arc;

use tokio::task::yield_now;

use crate::{
    lock::{LockName, TokenHash},
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
    pub async fn release(&self, name: LockName, hash: TokenHash) -> Result<(), ReleaseError> {
        let store = Arc::clone(&self.store);
        let (streams, owed) = (self.streams.clone(), self.owed.clone());
        let (events, metrics) = (self.events.clone(), self.metrics.clone());
        let release = SeenThrough::new(&self.lifecycle, |_hung_up| async move {
            let release = store.release(&name, &hash).await;
            let owing = match &release {
                Ok(_) => owed.settle(&name, &hash),
                Err(_) => None,
            };
            // What was never granted or renewed here may be anything.
            if let (Some(_), Ok(Release::Lost(Loss::HeldByAnother | Loss::Free))) =
                (&owing, &release)
            {
                metrics.expired_while_held(SeenBy::Release);
            }
            let held = owing.map(|owing| owing.since.elapsed());
            metrics.released(ended(&release), held);
            if let Ok(Release::Released) = &release {
                events.released(&name, &hash);
                streams.displace(name, hash, Displaced::Released);
                // Whoever has the lock now is answered first: others wait for what they do with it.
                yield_now().await;
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
