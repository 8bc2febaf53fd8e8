//! Hold: acquire a lock and keep it for as long as somebody listens.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Instant, sleep_until},
};

use crate::{
    lifecycle::Lifecycle,
    lock::{HeldLease, Lease, LockName, Token},
    store::{
        Store, StoreError,
        contract::{Place, Renewal},
    },
};

use super::{
    AcquireError, AcquireRequest, Attempted, Engine, Granted, RenewError,
    reaper::{Abandoned, Reaper},
};

/// A lock that is held for as long as this stays alive: dropped, the lock is released.
#[derive(Debug)]
pub struct Hold {
    events: mpsc::Receiver<HoldEvent>,
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
    /// The gateway is about to stop. A lease that was granted lives on for at least one TTL and can
    /// be adopted elsewhere; a place in the queue is kept for those with an idempotency key.
    Draining,
}

/// How a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// It could not be renewed in time.
    Expired,
    /// It was kept for as long as its hold limit allows.
    HoldLimit,
    /// Somebody ended it: with its token, or by force.
    Ended,
}

/// The task behind a hold.
struct Keeper {
    store: Arc<dyn Store>,
    reaper: Reaper,
    lifecycle: Lifecycle,
    events: mpsc::Sender<HoldEvent>,
}

/// A lease that is being kept.
struct Kept {
    name: LockName,
    token: Token,
    /// Until when the lease is certainly ours, counted from before the store was asked.
    valid_until: Instant,
    renew_at: Instant,
    ttl: Duration,
    /// Whether the lease ends with its hold limit.
    at_limit: bool,
}

/// Whoever listens has gone, or has stopped listening.
struct Gone;

/// How many events may wait for a reader. One that does not take them in is as good as gone: with
/// a renewal every third of a TTL this is several TTLs.
const UNREAD: usize = 16;
/// How soon a renewal that failed is tried again, at most: often enough that a short outage of the
/// store costs nothing, seldom enough that it is not what keeps the store from recovering.
const RETRY: Duration = Duration::from_millis(500);

// === impl Engine ===

impl Engine {
    /// Acquires a lock and keeps it. What is decided at once, a refusal above all, is decided before
    /// there is a hold.
    pub async fn hold(&self, request: AcquireRequest) -> Result<Hold, AcquireError> {
        let asked = Instant::now();
        match self.attempt(request).await? {
            Attempted::Done(granted) => Ok(self.keep(None, asked, async move { Ok(granted) })),
            Attempted::Queued(place, outcome) => Ok(self.keep(Some(place), asked, outcome)),
        }
    }

    /// Goes on keeping a lease that was granted before, here or through another gateway.
    pub async fn adopt(&self, name: LockName, token: Token) -> Result<Hold, RenewError> {
        let asked = Instant::now();
        let lease = self.renew(name, token, None).await?;
        Ok(self.start_keeper(|keeper| async move { keeper.keep_granted(lease, asked).await }))
    }

    fn keep(
        &self,
        place: Option<Place>,
        asked: Instant,
        outcome: impl Future<Output = Result<Granted, AcquireError>> + Send + 'static,
    ) -> Hold {
        self.start_keeper(move |keeper| async move {
            keeper.queue_and_keep(place, asked, outcome).await;
        })
    }

    fn start_keeper<F>(&self, task: impl FnOnce(Keeper) -> F) -> Hold
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(UNREAD);
        self.lifecycle.spawn(task(Keeper {
            store: Arc::clone(&self.store),
            reaper: self.reaper.clone(),
            lifecycle: self.lifecycle.clone(),
            events: sender,
        }));
        Hold { events }
    }
}

// === impl Hold ===

impl Hold {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<HoldEvent> {
        self.events.recv().await
    }
}

// === impl Keeper ===

impl Keeper {
    async fn queue_and_keep(
        self,
        place: Option<Place>,
        asked: Instant,
        outcome: impl Future<Output = Result<Granted, AcquireError>>,
    ) {
        if let Some(place) = place
            && self.say(HoldEvent::Queued(place)).is_err()
        {
            return;
        }
        // Dropping `outcome` leaves the queue.
        let outcome = tokio::select! {
            outcome = outcome => outcome,
            () = self.events.closed() => return,
        };
        match outcome {
            Ok(granted) => {
                // From here on this task answers for the lease.
                granted.delivery.delivered();
                // A lease that was waited for counts from when the wait ended, no earlier.
                let since = if granted.lease.waited.is_zero() {
                    asked
                } else {
                    Instant::now()
                };
                self.keep_granted(granted.lease, since).await;
            }
            Err(AcquireError::Draining) => self.end(HoldEnd::Draining),
            Err(error) => self.end(HoldEnd::Refused(error)),
        }
    }

    async fn keep_granted(self, lease: Lease, since: Instant) {
        let mut kept = Kept::new(&lease, since);
        if self.say(HoldEvent::Granted(lease)).is_err() {
            return self.release(kept).await;
        }
        let mut drained = std::pin::pin!(self.lifecycle.drained());
        loop {
            let due = kept.renew_at.min(kept.valid_until);
            let draining = tokio::select! {
                () = sleep_until(due) => false,
                () = &mut drained => true,
                () = self.events.closed() => return self.release(kept).await,
            };
            if let Some(reason) = kept.lost_by_now() {
                self.give_back(kept);
                return self.end(HoldEnd::Lost(reason));
            }
            match self.renew(&mut kept).await {
                Some(Renewal::Lost(_)) => {
                    let reason = kept.lost_by_now().unwrap_or(LossReason::Ended);
                    return self.end(HoldEnd::Lost(reason));
                }
                // A gateway that drains tries just once: the lease has what is left of its TTL.
                _ if draining => return self.end(HoldEnd::Draining),
                Some(Renewal::Renewed(held)) => {
                    let heard = self.say(HoldEvent::Renewed(held));
                    if let Err(Gone) = heard {
                        return self.release(kept).await;
                    }
                }
                // Not known; tried again soon, for as long as the lease is certainly ours.
                None => {}
            }
        }
    }

    /// Renews once; `None` if the store gave no answer.
    async fn renew(&self, kept: &mut Kept) -> Option<Renewal> {
        let sent = Instant::now();
        let until = kept.valid_until;
        let token = kept.token.hash();
        let renewal = self.store.renew(&kept.name, &token, None);
        let answer = tokio::select! {
            answer = renewal => answer,
            () = sleep_until(until) => return None,
        };
        match answer {
            Ok(renewal) => {
                if let Renewal::Renewed(held) = &renewal {
                    kept.renewed(held, sent);
                }
                Some(renewal)
            }
            Err(
                StoreError::Unavailable(_)
                | StoreError::Indeterminate(_)
                | StoreError::ForeignData { .. }
                | StoreError::FenceExhausted,
            ) => {
                kept.try_again_soon();
                None
            }
        }
    }

    /// Nobody listens any more: the lock is released at once.
    async fn release(&self, kept: Kept) {
        if self
            .store
            .release(&kept.name, &kept.token.hash())
            .await
            .is_err()
        {
            self.give_back(kept);
        }
    }

    fn give_back(&self, kept: Kept) {
        let token = kept.token.hash();
        self.reaper.submit(Abandoned {
            name: kept.name,
            token,
            may_be_asked_again: false,
        });
    }

    fn say(&self, event: HoldEvent) -> Result<(), Gone> {
        self.events.try_send(event).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Closed(_) => Gone,
        })
    }

    fn end(&self, end: HoldEnd) {
        // Whoever does not read it finds the stream ended all the same.
        drop(self.say(HoldEvent::Ended(end)));
    }
}

// === impl Kept ===

impl Kept {
    fn new(lease: &Lease, since: Instant) -> Self {
        let mut kept = Self {
            name: lease.name.clone(),
            token: lease.token.clone(),
            valid_until: since,
            renew_at: since,
            ttl: Duration::ZERO,
            at_limit: false,
        };
        kept.renewed(&lease.held, since);
        kept
    }

    fn renewed(&mut self, held: &HeldLease, sent: Instant) {
        // Clocks do not run at quite the same speed; the margin is Redlock's.
        let drift = held.ttl.duration() / 100 + Duration::from_millis(2);
        self.ttl = held.ttl.duration();
        self.valid_until = sent + held.expires_in.saturating_sub(drift);
        self.at_limit = held
            .hold_expires_in
            .is_some_and(|left| left <= held.expires_in);
        // At its limit a lease does not get longer by renewing it.
        self.renew_at = if self.at_limit {
            self.valid_until
        } else {
            sent + spread(self.ttl / 3)
        };
    }

    fn try_again_soon(&mut self) {
        self.renew_at = Instant::now() + RETRY.min(self.ttl / 10);
    }

    fn lost_by_now(&self) -> Option<LossReason> {
        match (Instant::now() >= self.valid_until, self.at_limit) {
            (false, _) => None,
            (true, true) => Some(LossReason::HoldLimit),
            (true, false) => Some(LossReason::Expired),
        }
    }
}

/// A tenth less at random, so that leases granted together are not renewed together for ever.
fn spread(period: Duration) -> Duration {
    let share = getrandom::u32().unwrap_or_default();
    period.mul_f64(1.0 - 0.1 * f64::from(share) / f64::from(u32::MAX))
}
