//! Break: take a lock away from whoever holds it.

use std::sync::Arc;

use crate::{
    lock::{BreakTarget, LockName, Reason},
    store::{
        Store, StoreError,
        contract::{Breaking, Holder, SharedHolders},
    },
};

use super::{Engine, detach_on_drop::DetachOnDrop};

/// Why a lock was not broken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BreakError {
    /// Something else holds the lock than what was to be broken.
    #[error("somebody else holds the lock")]
    HolderChanged(Holder),
    /// Several may hold the lock, and the request did not say which of them is meant.
    #[error("the lock is shared")]
    Ambiguous(SharedHolders),
    /// Nobody holds the lock.
    #[error("nobody holds the lock")]
    NotHeld,
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Engine ===

impl Engine {
    /// Takes a lock away and passes it on; answers who held it. With `target`, only if that is what
    /// holds it. Works while the gateway drains.
    ///
    /// The command runs to its end even if the caller hangs up. `record` is part of it, and comes before the
    /// answer: what it records is recorded even if the answer cannot be delivered.
    pub async fn break_lock<F>(
        &self,
        name: LockName,
        target: Option<BreakTarget>,
        reason: Reason,
        record: impl FnOnce(Result<Holder, BreakError>) -> F + Send + 'static,
    ) -> Result<Holder, BreakError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = Arc::clone(&self.0);
        DetachOnDrop::new(&self.0.lifecycle, async move {
            let outcome = match engine.store.break_lock(&name, target).await {
                Ok(Breaking::Broken(holder)) => {
                    engine.metrics.lock_broken(holder.count());
                    if let Holder::Foreign { .. } = &holder {
                        engine.events.broken(&name, None, reason.as_str());
                    }
                    for lease in holder.leases() {
                        engine.events.broken(&name, Some(lease), reason.as_str());
                    }
                    Ok(holder)
                }
                Ok(Breaking::HolderChanged(holder)) => Err(BreakError::HolderChanged(holder)),
                Ok(Breaking::Ambiguous(holders)) => Err(BreakError::Ambiguous(holders)),
                Ok(Breaking::NotHeld) => Err(BreakError::NotHeld),
                Err(error) => Err(error.into()),
            };
            record(outcome.clone()).await;
            outcome
        })
        .await
    }
}
