//! Work that is done while a lock is held, and not for longer.

use crate::{
    AcquireRequest, Acquiring, Client, ClientError, Lease, LeaseRenewer, LockName, Loss,
    acquire::OnDrop, lock::GroupNames,
};

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
