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
        WithdrawOnDrop::new(self, acquiring).finish().await
    }
}

// === Give back ===

/// An acquire under way, which gives up in order if this is dropped.
pub(crate) struct WithdrawOnDrop {
    client: Client,
    runtime: Handle,
    acquiring: Option<Acquiring>,
}

/// A lease that is released if this is dropped.
pub(crate) struct ReleaseOnDrop {
    client: Client,
    runtime: Handle,
    lease: Option<Lease>,
}

// === impl WithdrawOnDrop ===

impl WithdrawOnDrop {
    pub(crate) fn new(client: &Client, acquiring: Acquiring) -> Self {
        Self {
            client: client.clone(),
            runtime: Handle::current(),
            acquiring: Some(acquiring),
        }
    }

    /// Goes on until the lock is ours or the wait is over.
    pub(crate) async fn finish(mut self) -> Result<Lease, ClientError> {
        let acquiring = self.acquiring.as_mut();
        let acquired = acquiring.expect("only this ends it").finish().await;
        // There may be a lease that nobody will ever hear of.
        if !matches!(acquired, Err(ClientError::OutcomeUnknown { .. })) {
            self.acquiring = None;
        }
        acquired
    }
}

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        if let Some(acquiring) = self.acquiring.take() {
            let background = &self.client.background;
            background.spawn(&self.runtime, acquiring.withdraw());
        }
    }
}

// === impl ReleaseOnDrop ===

impl ReleaseOnDrop {
    pub(crate) fn new(client: &Client, lease: Lease) -> Self {
        Self {
            client: client.clone(),
            runtime: Handle::current(),
            lease: Some(lease),
        }
    }

    /// It is kept by somebody else now, or is over.
    pub(crate) fn disarm(mut self) {
        self.lease = None;
    }
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let client = self.client.clone();
            self.client.background.spawn(&self.runtime, async move {
                // If it fails, the lease ends with its TTL.
                let _: Result<_, _> = client.release_lease(&lease).await;
            });
        }
    }
}
