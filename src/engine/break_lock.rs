//! Break: take a lock away from its holder, at once or after the holder was asked to release it.
//!
//! The store reads which lease or foreign value holds the lock, then breaks exactly that holder: a lease by its
//! fence, a foreign value by its hash. So a late copy of the command cannot break a later holder, and a break whose
//! reply was lost can be repeated.
//!
//! With `grace_ms` the deadline is written into the lease. From then on the lease is renewed at most until
//! `ReleaseRequest::BACKSTOP` after the deadline, and every answer about the lease shows the request. The gateway
//! that received the request waits for the deadline in a background task, breaks the lease if it still lives, and
//! writes a second audit entry. If that gateway has stopped, the lease ends with the backstop.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::{
    lock::{BreakTarget, FencingToken, LockName, Reason, ReleaseRequest},
    store::{
        StoreError,
        contract::{Breaking, Holder, Requesting, SharedHolders},
    },
};

use super::{Actor, Engine, detach_on_drop::DetachOnDrop, start::EngineShared};

/// How many leases of one release request are broken at the same time after its deadline.
const TOGETHER: usize = 64;

/// Why a lock was not broken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BreakError {
    /// The lock has another holder than the one that the request names.
    #[error("another caller holds the lock")]
    HolderChanged(Holder),
    /// The lock may be shared by several leases, and the request does not name one of them.
    #[error("the lock is shared")]
    Ambiguous(SharedHolders),
    /// A foreign client holds the lock. A foreign client uses no gateway, so it cannot be asked to release the lock.
    #[error("a foreign client holds the lock")]
    Foreign(Holder),
    /// The lock has no holder.
    #[error("nobody holds the lock")]
    NotHeld,
    /// The store did not answer, or could not carry out the command.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Engine ===

impl Engine {
    /// Takes a lock away from its holder and passes it to the next waiter; returns the old holder. With `target`,
    /// breaks the lock only if the target holds it. Works while the gateway drains. `by` is the party that breaks
    /// the lock.
    ///
    /// The command runs to its end even if the caller hangs up. `record` is part of the command and runs before the
    /// answer, so the outcome is recorded even if the answer cannot be delivered.
    pub async fn break_lock<F>(
        &self,
        name: LockName,
        target: Option<BreakTarget>,
        reason: Reason,
        by: Option<Actor>,
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

    /// Asks the holders of a lock to release it, and returns the holders. When the time is over, this gateway breaks
    /// the leases that were not released; if the gateway has stopped, the store ends these leases soon after.
    ///
    /// The command runs to its end even if the caller hangs up. `record` is part of the command and runs before the
    /// answer. `record` runs again for each lease that is broken in the end.
    pub async fn request_release<F>(
        &self,
        name: LockName,
        target: Option<BreakTarget>,
        request: ReleaseRequest,
        by: Option<Actor>,
        record: impl Fn(ReleaseRecord) -> F + Send + Sync + 'static,
    ) -> Result<Holder, BreakError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = Arc::clone(&self.0);
        DetachOnDrop::new(&self.0.lifecycle, async move {
            let outcome = match engine.store.request_release(&name, target, &request).await {
                Ok(Requesting::Requested(holder)) => {
                    let (by, facts) = (by.as_ref(), &engine.facts);
                    facts.release_requested(&name, &holder, &request, by);
                    Ok(holder)
                }
                Ok(Requesting::HolderChanged(holder)) => Err(BreakError::HolderChanged(holder)),
                Ok(Requesting::Ambiguous(holders)) => Err(BreakError::Ambiguous(holders)),
                Ok(Requesting::Foreign(holder)) => Err(BreakError::Foreign(holder)),
                Ok(Requesting::NotHeld) => Err(BreakError::NotHeld),
                Err(error) => Err(error.into()),
            };
            // The time for the release, by the store's clock, began at this instant or earlier, so this gateway
            // breaks no lease too early.
            let told = Instant::now();
            record(ReleaseRecord::Requested(outcome.clone())).await;
            if let Ok(holder) = &outcome {
                // A lease with an earlier release deadline is left to the gateway that set that deadline. The
                // comparison has a margin, because clocks and answers are not quite exact.
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
                        // This gateway stops, so it breaks no lease: the store ends the leases soon after their
                        // deadline.
                        () = stopped => return,
                    }
                    // The leases are broken concurrently, because the store soon ends these leases, and then no event
                    // reports that they were broken.
                    let broken = stream::iter(fences).for_each_concurrent(TOGETHER, |fence| {
                        engine.break_kept(&name, fence, (&request, by.as_ref()), &record)
                    });
                    broken.await;
                });
            }
            outcome
        })
        .await
    }
}

/// An entry of the audit log about a release request.
#[derive(Debug, Clone)]
pub enum ReleaseRecord {
    /// The outcome of the request: the holders that were asked, or why the request was refused.
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
        by: Option<&Actor>,
    ) -> Result<Holder, BreakError> {
        match self.store.break_lock(name, target).await {
            Ok(Breaking::Broken(holder)) => {
                self.facts.broken(name, &holder, reason.as_str(), by);
                Ok(holder)
            }
            Ok(Breaking::HolderChanged(holder)) => Err(BreakError::HolderChanged(holder)),
            Ok(Breaking::Ambiguous(holders)) => Err(BreakError::Ambiguous(holders)),
            Ok(Breaking::NotHeld) => Err(BreakError::NotHeld),
            Err(error) => Err(error.into()),
        }
    }

    /// Breaks a lease whose release was requested and whose deadline is over, if the lease still lives. Most holders
    /// have released their leases by then.
    async fn break_kept<F: Future<Output = ()>>(
        &self,
        name: &LockName,
        fence: FencingToken,
        (request, by): (&ReleaseRequest, Option<&Actor>),
        record: impl Fn(ReleaseRecord) -> F,
    ) {
        let reason = &request.reason;
        match self.break_now(name, Some(fence.into()), reason, by).await {
            Ok(holder) => record(ReleaseRecord::Broken(holder)).await,
            Err(BreakError::Store(error)) => {
                warn!(%name, %error, "a lease that was not released in time is left to its end, which is near");
            }
            // The lease ended before it could be broken.
            Err(_) => {}
        }
    }
}
