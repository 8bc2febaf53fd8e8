//! Acquires a lock, and releases the lease if the caller drops the acquire before it ends.

use tokio::runtime::Handle;

use crate::{AcquireRequest, Acquiring, Client, ClientError, Lease, LockName};

// === impl Client ===

impl Client {
    /// Acquires a lock. If the request has a wait, waits in the queue while the lock is held.
    ///
    /// If the future is dropped, or the outcome is unknown, the client withdraws in the background: it leaves the
    /// queue, and releases a lease that it may have been granted ([`Client::finish_releases`] waits for that). If the
    /// caller gave an idempotency key, the client does not withdraw, because another program may continue the acquire.
    pub async fn acquire(
        &self,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<Lease, ClientError> {
        let acquiring = self.acquiring(name.clone(), request.clone());
        OnDrop::new(self, acquiring).finish().await
    }
}

// === Give back ===
//
// Releases, in the background, a lease that the gateway may have granted to an acquire that was dropped.

/// A guard that, when it is dropped, releases a lease or withdraws an acquire under way, in the background.
pub(crate) struct OnDrop<T: GiveBack> {
    client: Client,
    /// The runtime on which the call was made. Kept here, because a future may be dropped outside of every runtime.
    runtime: Handle,
    kept: Option<T>,
}

/// A lease or an acquire under way that can be released in the background.
pub(crate) trait GiveBack: Sized {
    fn give_back(self, client: Client) -> impl Future<Output = ()> + Send + 'static;
}

impl GiveBack for Acquiring {
    async fn give_back(self, _client: Client) {
        self.withdraw().await;
    }
}

impl GiveBack for Lease {
    async fn give_back(self, client: Client) {
        // A failed release is ignored: the lease ends with its TTL.
        let _: Result<_, _> = client.release_lease(&self).await;
    }
}

/// A lease under which nothing was done.
pub(crate) struct UnusedLease(pub(crate) Lease);

impl GiveBack for UnusedLease {
    async fn give_back(self, client: Client) {
        // A failed release is ignored: the lease ends with its TTL.
        let _: Result<_, _> = client.release_unused(&self.0).await;
    }
}

// === impl OnDrop ===

impl<T: GiveBack> OnDrop<T> {
    pub(crate) fn new(client: &Client, kept: T) -> Self {
        Self {
            client: client.clone(),
            runtime: Handle::current(),
            kept: Some(kept),
        }
    }

    /// Disarms the guard: when it is dropped, it releases nothing.
    pub(crate) fn disarm(mut self) {
        self.kept = None;
    }
}

impl OnDrop<Acquiring> {
    /// Finishes the acquire, and disarms the guard unless the outcome is unknown.
    pub(crate) async fn finish(mut self) -> Result<Lease, ClientError> {
        let acquiring = self.kept.as_mut();
        let acquired = acquiring.expect("only this ends it").finish().await;
        // If the outcome is unknown, the gateway may have granted a lease that no caller knows; dropping the guard
        // releases it.
        if !matches!(acquired, Err(ClientError::OutcomeUnknown { .. })) {
            self.disarm();
        }
        acquired
    }
}

impl<T: GiveBack> Drop for OnDrop<T> {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            let work = kept.give_back(self.client.clone());
            self.client.background.spawn(&self.runtime, work);
        }
    }
}
