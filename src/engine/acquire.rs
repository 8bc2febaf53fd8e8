//! Acquire: ask for a lock, and wait for it.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::{
    auth::Authorization,
    lock::{
        CallerId, HoldLimit, IdempotencyKey, KeeperId, Lease, LockName, Metadata, Owner, TokenHash,
        Ttl,
    },
    store::{
        Store as _, StoreError,
        contract::{Contention, QueuePosition},
    },
};

use super::{
    Engine,
    attempt::{AcquireAttempt, AcquireResult},
    delivery::Delivery,
    detach_on_drop::DetachOnDrop,
    metric_outcomes,
    start::EngineShared,
};

/// What a caller asks for.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// The lock that is wanted.
    pub name: LockName,
    /// How long the grant lasts.
    pub ttl: Ttl,
    /// How long the lease may be kept with renewals.
    pub hold_limit: Option<HoldLimit>,
    /// What of this the caller asked for.
    pub explicit: ExplicitTerms,
    /// How long the caller wants to stand in the queue; zero for not at all.
    pub wait: Duration,
    /// Who asks.
    pub owner: Option<Owner>,
    /// What to attach.
    pub metadata: Metadata,
    /// Whose idempotency key it is.
    pub caller: CallerId,
    /// For how long the caller may wait for the lock, or have it kept.
    pub authorization: Authorization,
    /// The key under which the request may be repeated.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What a caller asked for in so many words; what was left out is not here, whatever stands in for it.
/// A request that is repeated under its idempotency key is known by this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExplicitTerms {
    /// How long the grant is to last.
    pub ttl: Option<Ttl>,
    /// How long the lease may be kept with renewals.
    pub hold_limit: Option<HoldLimit>,
}

/// A lease on its way to its holder.
///
/// Dropped before [`Delivery::delivered`], at whatever point, a new lease is given back.
#[derive(Debug)]
pub struct Granted {
    /// The lease.
    pub lease: Lease,
    /// The hash of its token.
    pub hash: TokenHash,
    /// To be told when the lease has reached its holder.
    pub delivery: Delivery,
    /// Who keeps it, if its holder leaves that to a hold.
    pub(super) keeper: KeeperId,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Somebody else holds it, and went on holding it while the caller waited.
    #[error("the lock is held")]
    Held {
        /// Who, and how many are queued.
        contention: Contention,
        /// How long the caller stood in the queue.
        waited: Duration,
    },
    /// As many attempts wait for this name, or at this gateway, as are allowed.
    #[error("too many attempts are waiting")]
    TooManyWaiters,
    /// A newer request with the same idempotency key has taken this one's place in the queue.
    #[error("a newer request with the same idempotency key took over")]
    Superseded,
    /// A lease lives under this idempotency key, and was asked for in other words.
    #[error("the idempotency key was used for a different request")]
    IdempotencyMismatch,
    /// The lease under this idempotency key has ended.
    #[error("the lease under this idempotency key has ended")]
    IdempotencyExpired,
    /// The caller may not have the lock any more: the API key is gone, or permits less.
    #[error("the caller may not have the lock any more")]
    Revoked,
    /// The gateway is about to stop.
    #[error("the gateway is draining")]
    Draining,
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An attempt that is decided, or that stands in the queue.
pub(super) enum AttemptProgress<F> {
    /// It holds the lock.
    Done(Granted),
    /// The attempt with this token waits; dropping the future leaves the queue.
    Queued(QueuePosition, TokenHash, F),
}

/// An attempt that is about to be sent.
struct PreparedAttempt {
    token: TokenHash,
    /// Its place, if it comes to stand in the queue; none if it does not wait.
    place: Option<oneshot::Receiver<QueuePosition>>,
    outcome: DetachOnDrop<AcquireResult>,
}

// === impl Engine ===

impl Engine {
    /// Acquires a lock, and waits for it in the queue if the request says so.
    ///
    /// If the caller drops this future, a task of its own leaves the queue and gives back whatever
    /// it was granted; with an idempotency key, after the reconnect grace.
    pub async fn acquire(&self, request: AcquireRequest) -> Result<Granted, AcquireError> {
        self.acquire_with_queued_hook(request, || {}).await
    }

    /// The same, and says when it is known that there is a wait. Whether it may begin is decided by this call,
    /// and the wait counts from here: await it at once.
    pub fn acquire_with_queued_hook<Q: FnOnce() + Send>(
        &self,
        request: AcquireRequest,
        queued: Q,
    ) -> impl Future<Output = Result<Granted, AcquireError>> + Send + use<Q> {
        // No `async fn`: that would keep the request for as long as the wait, beside the attempt that is made
        // of it. So it is with `attempt`.
        let prepared = self.prepare(request);
        async move {
            let PreparedAttempt {
                mut outcome, place, ..
            } = prepared?;
            if let Some(place) = place {
                tokio::select! {
                    biased;
                    outcome = &mut outcome => return outcome,
                    Ok(_place) = place => queued(),
                }
            }
            outcome.await
        }
    }

    /// The same, but comes back as soon as it is known whether there is a wait.
    pub(super) fn attempt(
        &self,
        request: AcquireRequest,
    ) -> impl Future<
        Output = Result<
            AttemptProgress<impl Future<Output = Result<Granted, AcquireError>> + Send + use<>>,
            AcquireError,
        >,
    > + Send
    + use<> {
        let prepared = self.prepare(request);
        async move {
            let PreparedAttempt {
                mut outcome,
                place,
                token,
            } = prepared?;
            let Some(place) = place else {
                return outcome.await.map(AttemptProgress::Done);
            };
            tokio::select! {
                biased;
                outcome = &mut outcome => outcome.map(AttemptProgress::Done),
                Ok(place) = place => Ok(AttemptProgress::Queued(place, token, outcome)),
            }
        }
    }

    fn may_begin(&self, wait: Duration) -> Result<(), AcquireError> {
        if self.is_draining() {
            return Err(AcquireError::Draining);
        }
        if !wait.is_zero() {
            let waiting = self.0.store.parking().len();
            if self.0.reserved_positions.total_with(waiting) >= self.0.most_waiters {
                return Err(AcquireError::TooManyWaiters);
            }
        }
        Ok(())
    }

    fn prepare(&self, request: AcquireRequest) -> Result<PreparedAttempt, AcquireError> {
        let EngineShared {
            metrics, lifecycle, ..
        } = &*self.0;
        self.may_begin(request.wait)
            .inspect_err(|error| metrics.acquired(metric_outcomes::failure_outcome(error)))?;
        if request.wait.is_zero() {
            let attempt = AcquireAttempt::new(&self.0, request, None);
            return Ok(PreparedAttempt {
                token: attempt.token(),
                place: None,
                outcome: DetachOnDrop::new(
                    lifecycle,
                    async move { attempt.run_without_wait().await },
                ),
            });
        }
        let (queued_sender, place) = oneshot::channel();
        let mut attempt = AcquireAttempt::new(&self.0, request, Some(queued_sender));
        Ok(PreparedAttempt {
            token: attempt.token(),
            place: Some(place),
            outcome: DetachOnDrop::waiting(lifecycle, |hung_up| async move {
                attempt.run_queued(hung_up).await
            }),
        })
    }
}
