//! Backup: everything that the store holds, as a file.

use crate::store::{StoreBackup, StoreError};

use super::Engine;

// === impl Engine ===

impl Engine {
    /// Everything that lives, with all that was acknowledged before; none if the store has a way of its own.
    pub async fn backup(&self) -> Option<Result<StoreBackup, StoreError>> {
        self.0.store.backup().await
    }
}
