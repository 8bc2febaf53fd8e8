//! Hold: acquire a lock and keep it for as long as somebody listens.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use crate::{
    auth::Warrant,
    lock::{HeldLease, Lease, LockName, Token},
    store::{
        StoreError,
        contract::{Loss, Place},
    },
};

use super::{
    AcquireError, AcquireRequest, Attempted, Engine, Granted, RenewError, keeper::Keeper,
    streams::Displaced,
};

/// A lock that is held for as long as this stays alive: dropped, the lock is released.
#[derive(Debug)]
pub struct Hold {
    events: mpsc::Receiver<HoldEvent>,
    /// Set when too many events were left unread: those that are still there are out of date.
    overrun: Arc<AtomicBool>,
}

/// What happens to a hold. [`HoldEvent::Ended`] is the last, and comes exactly once.
#[derive(Debug)]
pub enum HoldEvent {
    /// It stands in the queue.
    Queued(Place),
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

/// How a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// It could not be renewed in time.
    Expired,
    /// It was kept for as long as its hold limit allows.
    HoldLimit,
    /// Somebody ended it.
    Ended,
    /// Whoever asked for it may not have it any more. It is not renewed any more, and ends with its
    /// TTL: until then there is time to stop the work.
    Revoked,
    /// Another stream goes on with it.
    Adopted,
    /// Whoever listens left too much unread.
    Unread,
}

/// How many events may wait for a reader. One that does not take them in is as good as gone: with
/// a renewal every third of a TTL this is several TTLs.
const UNREAD: usize = 16;
// === impl Engine ===

impl Engine {
    /// Acquires a lock and keeps it. What is decided at once, a refusal above all, is decided before
    /// there is a hold.
    pub async fn hold(&self, request: AcquireRequest) -> Result<Hold, AcquireError> {
        let asked = Instant::now();
        let warrant = request.warrant.clone();
        match self.attempt(request).await? {
            Attempted::Done(granted) => Ok(self.keep(warrant, None, asked, async { Ok(granted) })),
            Attempted::Queued(place, outcome) => {
                Ok(self.keep(warrant, Some(place), asked, outcome))
            }
        }
    }

    /// Goes on keeping a lease that was granted before, here or through another gateway.
    ///
    /// An older stream of this gateway that still holds it ends without releasing it. One of
    /// another gateway releases it when it ends.
    pub async fn adopt(
        &self,
        name: LockName,
        token: Token,
        warrant: Warrant,
    ) -> Result<Hold, AdoptError> {
        if self.is_draining() {
            return Err(AdoptError::Draining);
        }
        let asked = Instant::now();
        let lease = self.renew(name, token, None).await?;
        Ok(self.start_keeper(warrant, |keeper| async move {
            let kept = keeper.kept(lease, asked);
            keeper.keep_granted(kept).await;
        }))
    }

    fn keep(
        &self,
        warrant: Warrant,
        place: Option<Place>,
        asked: Instant,
        outcome: impl Future<Output = Result<Granted, AcquireError>> + Send + 'static,
    ) -> Hold {
        self.start_keeper(warrant, move |keeper| async move {
            keeper.queue_and_keep(place, asked, outcome).await;
        })
    }

    fn start_keeper<F>(&self, warrant: Warrant, task: impl FnOnce(Keeper) -> F) -> Hold
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(UNREAD);
        let overrun = Arc::new(AtomicBool::new(false));
        self.lifecycle.spawn(task(Keeper {
            store: Arc::clone(&self.store),
            reaper: self.reaper.clone(),
            lifecycle: self.lifecycle.clone(),
            streams: self.streams.clone(),
            warrant,
            events: sender,
            overrun: Arc::clone(&overrun),
        }));
        Hold { events, overrun }
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
        if self.overrun.swap(false, Ordering::Relaxed) {
            self.events.close();
            while self.events.try_recv().is_ok() {}
            return Poll::Ready(Some(HoldEvent::Ended(HoldEnd::Lost(LossReason::Unread))));
        }
        self.events.poll_recv(cx)
    }
}

// === impl HoldEnd ===

impl From<Displaced> for HoldEnd {
    fn from(displaced: Displaced) -> Self {
        match displaced {
            Displaced::Released => Self::Released,
            Displaced::Adopted => Self::Lost(LossReason::Adopted),
        }
    }
}

// === impl AdoptError ===

impl From<RenewError> for AdoptError {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Lost(loss) => Self::Lost(loss),
            RenewError::Store(error) => Self::Store(error),
        }
    }
}
