//! Acquire a lock, and give back what a call acquired that is dropped half-way.

use tokio::runtime::Handle;

use crate::{AcquireRequest, Acquiring, Client, ClientError, Lease, LockName};

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
        OnDrop::new(self, acquiring).finish().await
    }
}

// === Give back ===
//
// If the caller drops the future of an acquire, the client releases in the background the lease that the gateway may have granted.

/// Releases a lease, or withdraws a request for one, when this is dropped.
pub(crate) struct OnDrop<T: GiveBack> {
    client: Client,
    /// The runtime on which the call was made, because a future may be dropped outside of every runtime.
    runtime: Handle,
    kept: Option<T>,
}

/// A lease, or a request for one, that can be released in the background.
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
        // If it fails, the lease ends with its TTL.
        let _: Result<_, _> = client.release_lease(&self).await;
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

    /// Nothing is given back any more.
    pub(crate) fn disarm(mut self) {
        self.kept = None;
    }
}

impl OnDrop<Acquiring> {
    /// Acquires. Nothing is given back after an answer.
    pub(crate) async fn finish(mut self) -> Result<Lease, ClientError> {
        let acquiring = self.kept.as_mut();
        let acquired = acquiring.expect("only this ends it").finish().await;
        // There may be a lease that nobody will ever hear of.
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
