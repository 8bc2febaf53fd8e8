//! Break: take a lock away from whoever holds it, at once or after the holder was asked to release it.
//!
//! The store reads what holds the lock, then breaks exactly that: a lease by its fence, a foreign value by its hash. So a late copy
//! of the command hits nobody else, and a break whose reply was lost can be repeated.
//!
//! With `grace_ms` the deadline is written into the lease, which from then on is renewed at most until
//! `ReleaseRequest::BACKSTOP` after it, and every answer about the lease tells of the request. The gateway that was asked waits for
//! the deadline in a background task, breaks the lease if it is still there, and writes a second audit entry. If that gateway has
//! stopped, the lease ends with the backstop.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::{
    lock::{BreakTarget, FencingToken, LockName, Reason, ReleaseRequest},
    store::{
        Store, StoreError,
        contract::{Breaking, Holder, Requesting, SharedHolders},
    },
};

use super::{Engine, detach_on_drop::DetachOnDrop, start::EngineShared};

/// How many leases are broken together when the time for their release is over.
const TOGETHER: usize = 64;

/// Why a lock was not broken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BreakError {
    /// Something else holds the lock than what was to be broken.
    #[error("somebody else holds the lock")]
    HolderChanged(Holder),
    /// Several may hold the lock, and the request did not say which of them is meant.
    #[error("the lock is shared")]
    Ambiguous(SharedHolders),
    /// A client holds the lock that uses no gateway, and so cannot be asked to release it.
    #[error("a foreign client holds the lock")]
    Foreign(Holder),
    /// Nobody holds the lock.
    #[error("nobody holds the lock")]
    NotHeld,
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Engine ===

impl Engine {
    /// Takes a lock away and passes it on; answers who held it. With `target`, only if that is what
    /// holds it. Works while the gateway drains. `by` is the API key that breaks it.
    ///
    /// The command runs to its end even if the caller hangs up. `record` is part of it, and comes before the
    /// answer: what it records is recorded even if the answer cannot be delivered.
    pub async fn break_lock<F>(
        &self,
        name: LockName,
        target: Option<BreakTarget>,
        reason: Reason,
        by: Option<Arc<str>>,
        record: impl FnOnce(Result<Holder, BreakError>) -> F + Send + 'static,
    ) -> Result<Holder, BreakError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = Arc::clone(&self.0);
        DetachOnDrop::new(&self.0.lifecycle, async move {
            let outcome = engine.break_now(&name, target, &reason, by.as_ref()).await;
            record(outcome.clone()).await;
            outcome
        })
        .await
    }

    /// Asks whoever holds the lock to release it; answers who was asked. What they have not released when the time
    /// is over is broken then, by this gateway; if it has stopped, the store ends it soon after.
    ///
    /// The command runs to its end even if the caller hangs up. `record` is part of it, and comes before the answer.
    /// It is called again with each lease that is broken in the end.
    pub async fn request_release<F>(
        &self,
        name: LockName,
        target: Option<BreakTarget>,
        request: ReleaseRequest,
        record: impl Fn(ReleaseRecord) -> F + Send + Sync + 'static,
    ) -> Result<Holder, BreakError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = Arc::clone(&self.0);
        DetachOnDrop::new(&self.0.lifecycle, async move {
            let outcome = match engine.store.request_release(&name, target, &request).await {
                Ok(Requesting::Requested(holder)) => {
                    engine.metrics.release_requested(holder.count());
                    for lease in holder.leases() {
                        engine.events.release_requested(&name, lease, &request);
                    }
                    Ok(holder)
                }
                Ok(Requesting::HolderChanged(holder)) => Err(BreakError::HolderChanged(holder)),
                Ok(Requesting::Ambiguous(holders)) => Err(BreakError::Ambiguous(holders)),
                Ok(Requesting::Foreign(holder)) => Err(BreakError::Foreign(holder)),
                Ok(Requesting::NotHeld) => Err(BreakError::NotHeld),
                Err(error) => Err(error.into()),
            };
            // The store counts the time from no later than this, so nobody has less of it than was said.
            let told = Instant::now();
            record(ReleaseRecord::Requested(outcome.clone())).await;
            if let Ok(holder) = &outcome {
                // Whoever was asked sooner is seen to by who has asked. Clocks and answers are not quite exact.
                let at_least = request.within.saturating_sub(ReleaseRequest::BACKSTOP);
                let leases = holder.leases().iter();
                let asked = leases.filter(|lease| {
                    let asked = lease.release_requested.as_ref();
                    asked.is_none_or(|asked| asked.within >= at_least)
                });
                let fences: Vec<_> = asked.map(|lease| lease.fence).collect();
                if fences.is_empty() {
                    return outcome;
                }
                let until = told + request.within;
                let (engine, stopped) = (Arc::clone(&engine), engine.lifecycle.stopped());
                engine.lifecycle.clone().spawn_background(async move {
                    tokio::select! {
                        () = sleep_until(until) => {}
                        // The store ends the leases.
                        () = stopped => return,
                    }
                    // The store ends them soon, and then nobody tells that they were broken.
                    let broken = stream::iter(fences).for_each_concurrent(TOGETHER, |fence| {
                        engine.break_kept(&name, fence, &request, &record)
                    });
                    broken.await;
                });
            }
            outcome
        })
        .await
    }
}

/// What is written down of a request to release.
#[derive(Debug, Clone)]
pub enum ReleaseRecord {
    /// What became of the request: who was asked.
    Requested(Result<Holder, BreakError>),
    /// A lease was broken because it was not released in time.
    Broken(Holder),
}

// === impl EngineShared ===

impl EngineShared {
    async fn break_now(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        reason: &Reason,
        by: Option<&Arc<str>>,
    ) -> Result<Holder, BreakError> {
        match self.store.break_lock(name, target).await {
            Ok(Breaking::Broken(holder)) => {
                self.metrics.lock_broken(holder.count());
                if let Holder::Foreign { .. } = &holder {
                    self.events.broken(name, None, reason.as_str(), by);
                }
                for lease in holder.leases() {
                    self.events.broken(name, Some(lease), reason.as_str(), by);
                }
                Ok(holder)
            }
            Ok(Breaking::HolderChanged(holder)) => Err(BreakError::HolderChanged(holder)),
            Ok(Breaking::Ambiguous(holders)) => Err(BreakError::Ambiguous(holders)),
            Ok(Breaking::NotHeld) => Err(BreakError::NotHeld),
            Err(error) => Err(error.into()),
        }
    }

    /// Breaks a lease that was asked for and is still kept. Most were released by now.
    async fn break_kept<F: Future<Output = ()>>(
        &self,
        name: &LockName,
        fence: FencingToken,
        request: &ReleaseRequest,
        record: impl Fn(ReleaseRecord) -> F,
    ) {
        let (reason, by) = (&request.reason, request.by.as_ref());
        match self.break_now(name, Some(fence.into()), reason, by).await {
            Ok(holder) => record(ReleaseRecord::Broken(holder)).await,
            Err(BreakError::Store(error)) => {
                warn!(%name, %error, "a lease that was not released in time is left to its end, which is near");
            }
            // The lease has ended.
            Err(_) => {}
        }
    }
}
