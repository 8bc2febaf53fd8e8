//! Acquire: ask for a lock.

use crate::{AcquireRequest, Client, ClientError, Lease, LockName, give_back::WithdrawOnDrop};

// === impl Client ===

impl Client {
    /// Asks for a lock, and waits for it if the request says so.
    ///
    /// If this is dropped half-way, or nobody knows what has become of it, the place in the queue and whatever was granted
    /// are given back in the background ([`Client::finish_releases`]). An acquire under a key of its caller's is not: it may
    /// be continued by somebody else.
    pub async fn acquire(
        &self,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<Lease, ClientError> {
        let acquiring = self.acquiring(name.clone(), request.clone());
        WithdrawOnDrop::new(self, acquiring).finish().await
    }
}
