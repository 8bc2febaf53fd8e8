//! Acquire a lock, work while it is held and not for longer, and give back what a call acquired that is dropped half-way.

use tokio::runtime::Handle;

use crate::{
    AcquireRequest, Acquiring, Client, ClientError, Lease, LeaseRenewer, LockName, Loss,
    lock::GroupNames,
};

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

// === With lock ===
//
// Work that is done while a lock is held, and not for longer.

/// Why work was not done under a lock, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum WithLockError {
    /// The lock was not acquired: the work was not begun.
    #[error(transparent)]
    NotAcquired(#[from] ClientError),
    /// The lease was lost before the work was done, which was dropped.
    #[error("the lease was lost: {0}")]
    Lost(#[source] Loss),
}

// === impl Client ===

impl Client {
    /// Does some work while a lock is held: acquires it, keeps the lease while the work is done, and releases it.
    ///
    /// When the lease is lost the work is dropped where it waits, before anybody else can be granted the lock if it was lost
    /// for want of an answer. What it has sent by then may still be on its way: send the fencing token with it, and let the
    /// resource refuse a smaller one than it has seen. Work that never waits (`spawn_blocking`, a long computation) is not
    /// stopped.
    ///
    /// A release that nobody answers is no error: the lease ends with its TTL.
    ///
    /// If this is dropped half-way, or the work panics, the lock is given back in the background, and so is the place in the
    /// queue. Do not drop it while work goes on that does not wait. [`Client::finish_releases`] waits for the background.
    pub async fn with_lock<T>(
        &self,
        name: &LockName,
        request: &AcquireRequest,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let acquiring = self.acquiring(name.clone(), request.clone());
        self.with_acquired(acquiring, work).await
    }

    /// The same with several locks, all or none.
    pub async fn with_locks<T>(
        &self,
        names: &GroupNames,
        request: &AcquireRequest,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let acquiring = self.acquiring_all(names.clone(), request.clone());
        self.with_acquired(acquiring, work).await
    }

    async fn with_acquired<T>(
        &self,
        acquiring: Acquiring,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let lease = OnDrop::new(self, acquiring).finish().await?;
        let renewer = LeaseRenewer::start(self, lease.clone()).await?;
        // Declared before the work, so that it is dropped after it.
        let held = OnDrop::new(self, lease.clone());
        let done = tokio::select! {
            // What was lost while the work did not wait is lost.
            biased;
            loss = renewer.lost() => {
                held.disarm();
                return Err(WithLockError::Lost(loss));
            }
            done = work(&lease) => done,
        };
        let released = renewer.release(self.options.deadline).await;
        held.disarm();
        match released {
            Err(ClientError::Lost(problem)) => Err(WithLockError::Lost(Loss::Ended(problem))),
            Ok(()) | Err(_) => Ok(done),
        }
    }
}
