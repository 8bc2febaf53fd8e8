//! Work that is done while a lock is held, and not for longer.

use tokio::time::Instant;

use crate::{
    AcquireRequest, Acquiring, Client, ClientError, Lease, LeaseRenewer, LockName, Loss,
    http::Retry, lock::GroupNames,
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
    /// A release that nobody answers is no error: the lease ends with its TTL. The same if this is dropped half-way.
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
        mut acquiring: Acquiring,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, WithLockError> {
        let lease = acquiring.finish().await?;
        let renewer = match LeaseRenewer::start(self, lease.clone()).await {
            Ok(renewer) => renewer,
            Err(error) => {
                // It may be held: nobody else should wait for its end.
                let _: Result<_, _> = self.release_lease_with(&lease, self.one_try()).await;
                return Err(error.into());
            }
        };
        let done = tokio::select! {
            // What was lost while the work did not wait is lost.
            biased;
            loss = renewer.lost() => return Err(WithLockError::Lost(loss)),
            done = work(&lease) => done,
        };
        match renewer.release(self.options.deadline).await {
            Err(ClientError::Lost(problem)) => Err(WithLockError::Lost(Loss::Ended(problem))),
            Ok(()) | Err(_) => Ok(done),
        }
    }

    fn one_try(&self) -> Retry {
        Retry::until(self, Instant::now() + self.options.request_timeout)
    }
}
