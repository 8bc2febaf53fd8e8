//! What a case needs of the store that it runs on.

use std::sync::Arc;

use async_trait::async_trait;
use latchgate::store::Store;

/// A store of its own for one case.
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// The store, as it is running now.
    fn store(&self) -> Arc<dyn Store>;

    /// The handles of all gateways on this store, as they are running now. More than one where the
    /// store takes more.
    fn gateways(&self) -> Vec<Arc<dyn Store>> {
        vec![self.store()]
    }

    /// How many more locks than were asked for a page may show, where what lies together is only shown
    /// together.
    fn page_excess(&self) -> usize {
        0
    }

    /// Ends the store as a shutdown would, and opens it again on the same data. A store that keeps
    /// nothing in the gateway gets a gateway that knows nothing.
    async fn restart(&self);
}
