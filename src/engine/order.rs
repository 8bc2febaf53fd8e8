//! Set the order that a lock remembers, after a mistake or to begin anew.

use std::sync::Arc;

use crate::{
    lock::{LockName, Reason},
    store::{
        StoreError,
        contract::{GrantedOrder, OrderChange, OrderSetting, StoreFeature},
    },
};

use super::{Actor, Engine, detach_on_drop::DetachOnDrop, facts::Fact};

/// Why the order of a lock was not set.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SetOrderError {
    /// The lock remembers another order than the caller has seen.
    #[error("the lock remembers another order")]
    Changed(Option<GrantedOrder>),
    /// The store remembers no orders.
    #[error("the store remembers no orders")]
    Unsupported,
    /// The store did not answer, or could not carry out the command.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Engine ===

impl Engine {
    /// Sets the order that a lock remembers. The command runs to its end even if the caller hangs up. `record` is part of
    /// the command and runs before the answer.
    pub async fn set_order<F>(
        &self,
        name: LockName,
        change: OrderChange,
        reason: Reason,
        by: Option<Actor>,
        record: impl FnOnce(Result<(), SetOrderError>) -> F + Send + 'static,
    ) -> Result<(), SetOrderError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if !self.0.store.supports(StoreFeature::Order) {
            return Err(SetOrderError::Unsupported);
        }
        let engine = Arc::clone(&self.0);
        DetachOnDrop::new(&self.0.lifecycle, async move {
            let outcome = match engine.store.set_order(&name, change).await {
                Ok(OrderSetting::Set) => {
                    let fact = Fact::OrderSet(change.new, by.as_ref(), reason.as_str());
                    engine.facts.tell(&name, None, fact);
                    Ok(())
                }
                Ok(OrderSetting::Changed(granted)) => Err(SetOrderError::Changed(granted)),
                Err(error) => Err(error.into()),
            };
            record(outcome.clone()).await;
            if outcome.is_ok() {
                let (history, set) = (Arc::clone(&engine.facts.history), change.new);
                // The caller does not wait until the history is read and written.
                engine.lifecycle.spawn_background(async move {
                    history.order_set(&name, set, by.as_ref(), &reason).await;
                });
            }
            outcome
        })
        .await
    }
}
