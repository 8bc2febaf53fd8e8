//! What a case needs of the store that it runs on.

use async_trait::async_trait;

use crate::conformance::prelude::*;

/// A store of its own for one case.
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// The store, as it is running now.
    fn store(&self) -> AnyStore;

    /// The handles of all gateways on this store, as they are running now. More than one where the
    /// store takes more.
    fn gateways(&self) -> Vec<AnyStore> {
        vec![self.store()]
    }

    /// Whether an attempt that has released its lease may be told that it was withdrawn. Nobody asks
    /// again under one; where a node hears of the release before it hears what the attempt asked for,
    /// it refuses that for good.
    fn withdraws_what_was_released(&self) -> bool {
        false
    }

    /// Ends the store as a shutdown would, and opens it again on the same data. A store that keeps
    /// nothing in the gateway gets a gateway that knows nothing.
    async fn restart(&self);

    /// The same in the second turn of a case that looks at a store twice.
    async fn restart_if(&self, wanted: bool) {
        if wanted {
            self.restart().await;
        }
    }
}
