//! The task that keeps a held lease.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Instant, sleep_until},
};

use crate::{
    auth::Warrant,
    lifecycle::Lifecycle,
    lock::{HeldLease, Lease},
    store::{
        Store, StoreError,
        contract::{Place, Renewal},
    },
};

use super::{
    AcquireError, Granted, HoldEnd, HoldEvent, LossReason,
    kept::Kept,
    reaper::{Abandoned, Reaper},
    streams::Streams,
};

/// The task behind a hold.
pub(super) struct Keeper {
    pub(super) store: Arc<dyn Store>,
    pub(super) reaper: Reaper,
    pub(super) lifecycle: Lifecycle,
    pub(super) streams: Streams,
    pub(super) warrant: Warrant,
    pub(super) events: mpsc::Sender<HoldEvent>,
    pub(super) overrun: Arc<AtomicBool>,
}

/// Whoever listens has gone, or has stopped listening.
struct Gone;

// === impl Keeper ===

impl Keeper {
    pub(super) async fn queue_and_keep(
        self,
        place: Option<Place>,
        asked: Instant,
        outcome: impl Future<Output = Result<Granted, AcquireError>>,
    ) {
        let waited = place.is_some();
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
                let kept = if waited {
                    self.kept(granted.lease, Instant::now()).renewed_first()
                } else {
                    self.kept(granted.lease, asked)
                };
                self.keep_granted(kept).await;
            }
            Err(AcquireError::Draining) => self.end(HoldEnd::Draining { left: None }),
            Err(error) => self.end(HoldEnd::Refused(error)),
        }
    }

    pub(super) async fn keep_granted(self, mut kept: Kept) {
        let mut drained = std::pin::pin!(self.lifecycle.drained());
        if let Err(Gone) = self.say_granted(&mut kept) {
            return self.release(kept).await;
        }
        loop {
            let due = kept.renew_at.min(kept.valid_until);
            let draining = tokio::select! {
                () = sleep_until(due) => false,
                () = &mut drained => true,
                displaced = kept.entry.displaced() => return self.end(displaced.into()),
                () = self.events.closed() => return self.release(kept).await,
                () = self.warrant.ended() => return self.revoke(kept),
            };
            if !self.warrant.stands() {
                return self.revoke(kept);
            }
            if let Some(reason) = kept.lost_by_now() {
                self.give_back(kept);
                return self.end(HoldEnd::Lost(reason));
            }
            let heard = match self.renew(&mut kept).await {
                Some(Renewal::Lost(_)) => {
                    let reason = kept.lost_by_now().unwrap_or(LossReason::Ended);
                    return self.end(HoldEnd::Lost(reason));
                }
                Some(Renewal::Renewed(held)) => self.say_renewed(&mut kept, held),
                // Not known; tried again soon, for as long as the lease is certainly ours.
                None => Ok(()),
            };
            match heard {
                Err(Gone) => return self.release(kept).await,
                // A gateway that drains tries just once: the lease has what is left of its TTL.
                Ok(()) if draining => return self.drain(kept),
                Ok(()) => {}
            }
        }
    }

    pub(super) fn kept(&self, lease: Lease, since: Instant) -> Kept {
        let token = lease.token.hash();
        let entry = self.streams.enter(lease.name.clone(), token);
        Kept::new(lease, entry, since)
    }

    /// Tells of the grant, unless a renewal must say first from when it counts.
    fn say_granted(&self, kept: &mut Kept) -> Result<(), Gone> {
        if kept.renew_at <= Instant::now() {
            return Ok(());
        }
        match kept.unsaid.take() {
            Some(lease) => self.say(HoldEvent::Granted(lease)),
            None => Ok(()),
        }
    }

    fn say_renewed(&self, kept: &mut Kept, held: HeldLease) -> Result<(), Gone> {
        self.say(match kept.unsaid.take() {
            Some(lease) => HoldEvent::Granted(Lease { held, ..lease }),
            None => HoldEvent::Renewed(held),
        })
    }

    fn drain(&self, kept: Kept) {
        let left = kept.valid_until.saturating_duration_since(Instant::now());
        let left = kept.unsaid.is_none().then_some(left);
        if left.is_none() {
            // Nobody knows its token.
            self.give_back(kept);
        }
        self.end(HoldEnd::Draining { left });
    }

    /// Whoever listens may not have it any more, and has what is left of the TTL to stop.
    fn revoke(&self, kept: Kept) {
        if kept.unsaid.is_some() {
            // Nobody knows its token.
            self.give_back(kept);
        }
        self.end(HoldEnd::Lost(LossReason::Revoked));
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
        self.events.try_send(event).map_err(|error| {
            if let TrySendError::Full(_) = error {
                self.overrun.store(true, Ordering::Relaxed);
            }
            Gone
        })
    }

    fn end(&self, end: HoldEnd) {
        // Whoever does not read it finds the stream ended all the same.
        drop(self.say(HoldEvent::Ended(end)));
    }
}
