//! Hold: acquire a lock and keep it for as long as somebody listens.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use crate::{
    auth::Authorization,
    lock::{HeldLease, KeeperId, Lease, LockName, Token},
    store::{
        Store, StoreError, Uncertainty,
        contract::{Loss, Renewal, Renewer},
        positions::Position,
    },
};

use super::{
    AcquireError, AcquireRequest, Engine, LossReason, acquire::AttemptProgress, hold_task::HoldTask,
};

/// A lock that is held for as long as this stays alive: dropped, the lock is released.
#[derive(Debug)]
pub struct Hold {
    /// In boxes: a channel has room for many at once, and there is seldom more than one.
    events: mpsc::Receiver<Box<HoldEvent>>,
    /// Set when too many events were left unread: those that are still there are out of date.
    overrun: Arc<AtomicBool>,
    phase: HoldPhase,
}

/// How far a hold has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoldPhase {
    Waiting,
    Held,
    Over,
}

/// What happens to a hold. [`HoldEvent::Ended`] is the last, and comes exactly once.
#[derive(Debug)]
pub enum HoldEvent {
    /// It stands in the queue, or moved there.
    Queued(Position),
    /// It holds the lock.
    Granted(Lease),
    /// It went on holding the lock.
    Renewed(HeldLease),
    /// It is over.
    Ended(HoldEnd),
}

/// Why a hold is over.
#[derive(Debug)]
pub enum HoldEnd {
    /// The lease is lost, or may be lost before it could be renewed.
    Lost(LossReason),
    /// The lock was not acquired.
    Refused(AcquireError),
    /// The lease was released with its token.
    Released,
    /// The gateway is about to stop. A lease that was granted lives on and can be adopted elsewhere;
    /// a place in the queue is kept for those with an idempotency key.
    Draining {
        /// What is left of the lease, if it was granted: one TTL, unless the store was away.
        left: Option<Duration>,
    },
}

/// Why a lease was not adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The token does not hold the lock.
    #[error("the lease is lost")]
    Lost(Loss),
    /// The gateway is about to stop.
    #[error("the gateway is draining")]
    Draining,
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How many events may wait for a reader. One that does not take them in is as good as gone: with
/// a renewal every third of a TTL this is several TTLs.
pub(super) const MAX_UNREAD: usize = 16;

// === impl Engine ===

impl Engine {
    /// Acquires a lock and keeps it. What is decided at once, a refusal above all, is decided before
    /// there is a hold.
    pub async fn hold(&self, request: AcquireRequest) -> Result<Hold, AcquireError> {
        let asked = Instant::now();
        let (name, authorization) = (request.name.clone(), request.authorization.clone());
        match self.attempt(request).await? {
            AttemptProgress::Done(granted) => {
                Ok(self.start_hold_task(authorization, move |task| async move {
                    let mut managed = task.take_granted(granted, asked);
                    task.keep_renewed(&mut managed).await;
                }))
            }
            AttemptProgress::Queued(place, token, outcome) => {
                let watcher = self.0.store.parking().positions().watch(name, &token);
                Ok(self.start_hold_task(authorization, move |task| async move {
                    let outcome = task.wait_in_queue(&place, watcher, outcome).await;
                    if let Some(mut managed) =
                        outcome.and_then(|outcome| task.begin_after_wait(outcome))
                    {
                        task.keep_renewed(&mut managed).await;
                    }
                }))
            }
        }
    }

    /// Goes on keeping a lease that was granted before, here or through another gateway.
    ///
    /// An older stream that still holds it, here or there, does not release it any more when it ends:
    /// one of this gateway ends now, one of another gateway with its next renewal.
    ///
    /// A lease whose TTL is longer than the caller may ask for is cut to that.
    ///
    /// A caller that hangs up half-way has adopted the lease or not. It is not released, because the
    /// caller may be about to ask again, here or elsewhere; nobody keeps it until then.
    pub async fn adopt(
        &self,
        name: LockName,
        token: Token,
        authorization: Authorization,
    ) -> Result<Hold, AdoptError> {
        if self.is_draining() {
            return Err(AdoptError::Draining);
        }
        let asked = Instant::now();
        let id = KeeperId::random();
        let (adopter, hash) = (Renewer::Adopter(id), token.hash());
        let renewed = self.renew_up_to(adopter, &name, &hash, None, authorization.max_ttl());
        let held = match renewed.await? {
            Renewal::Renewed(held) => held,
            Renewal::Lost(loss) => return Err(AdoptError::Lost(loss)),
            // Before its answer came, somebody adopted it after us.
            Renewal::Adopted => {
                return Ok(self.start_hold_task(authorization, |task| async move {
                    task.end(HoldEnd::Lost(LossReason::Adopted));
                }));
            }
        };
        let waited = Duration::ZERO;
        let lease = Lease {
            name,
            token,
            held,
            waited,
        };
        Ok(self.start_hold_task(authorization, move |task| async move {
            let mut managed = task.manage(lease, id, asked);
            task.keep_renewed(&mut managed).await;
        }))
    }

    fn start_hold_task<F>(
        &self,
        authorization: Authorization,
        task: impl FnOnce(HoldTask) -> F,
    ) -> Hold
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(MAX_UNREAD);
        let overrun = Arc::new(AtomicBool::new(false));
        self.0.lifecycle.spawn(task(HoldTask {
            engine: Arc::clone(&self.0),
            authorization,
            events: sender,
            overrun: Arc::clone(&overrun),
        }));
        Hold {
            events,
            overrun,
            phase: HoldPhase::Waiting,
        }
    }
}

// === impl Hold ===

impl Hold {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<HoldEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same for those who poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<HoldEvent>> {
        if self.phase == HoldPhase::Over {
            return Poll::Ready(None);
        }
        let event = if self.overrun.swap(false, Ordering::Relaxed) {
            self.events.close();
            while self.events.try_recv().is_ok() {}
            HoldEvent::Ended(HoldEnd::Lost(LossReason::Unread))
        } else {
            let event = ready!(self.events.poll_recv(cx));
            event.map_or_else(
                || HoldEvent::Ended(self.phase.end_unreported()),
                |event| *event,
            )
        };
        match &event {
            HoldEvent::Granted(_) => self.phase = HoldPhase::Held,
            HoldEvent::Ended(_) => self.phase = HoldPhase::Over,
            HoldEvent::Queued(_) | HoldEvent::Renewed(_) => {}
        }
        Poll::Ready(Some(event))
    }
}

// === impl HoldPhase ===

impl HoldPhase {
    /// How a hold ends whose keeper has not said how.
    fn end_unreported(self) -> HoldEnd {
        match self {
            Self::Waiting => {
                let unknown = StoreError::Indeterminate(Uncertainty::Interrupted);
                HoldEnd::Refused(unknown.into())
            }
            Self::Held | Self::Over => HoldEnd::Lost(LossReason::Failed),
        }
    }
}
