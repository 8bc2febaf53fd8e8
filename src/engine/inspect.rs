//! Inspect: look at a lock.

use crate::{
    lock::LockName,
    store::{Store, StoreError, contract::Inspection},
};

use super::Engine;

// === impl Engine ===

impl Engine {
    /// Shows who holds a lock.
    pub async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.0.store.inspect(name).await
    }
}
