//! The task that keeps a held lease.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    auth::Warrant,
    lock::{HeldLease, KeeperId, Lease},
    store::{
        Store, StoreError,
        contract::{Loss, Place, Release, Renewal, Renewer},
        positions::{Position, Watcher},
    },
    telemetry::metrics::SeenBy,
};

use super::{
    AcquireError, Granted, HoldEnd, HoldEvent, LossReason, counted::ended, hold::UNREAD,
    kept::Kept, start::Shared, streams::Displaced,
};

/// The task behind a hold.
pub(super) struct Keeper {
    pub(super) engine: Arc<Shared>,
    pub(super) warrant: Warrant,
    pub(super) events: mpsc::Sender<Box<HoldEvent>>,
    pub(super) overrun: Arc<AtomicBool>,
}

/// How soon it is looked again whether what was said of the queue has been read.
const READ: Duration = Duration::from_secs(1);

/// Nobody listens any more.
#[derive(Debug, PartialEq, Eq)]
enum Gone {
    /// Whoever did has hung up.
    HungUp,
    /// Whoever does left too much unread, and is told so.
    Unread,
}

/// How long whoever held a lock by a stream may take to renew or release it here with its token, when the
/// gateway drains.
const FAREWELL: Duration = Duration::from_secs(2);

// === impl Keeper ===

impl Keeper {
    /// Waits in the queue, telling the place there; `None` if nobody listens any more.
    pub(super) async fn stand_in_queue(
        &self,
        place: &Place,
        mut watcher: Watcher,
        outcome: impl Future<Output = Result<Granted, AcquireError>>,
    ) -> Option<Result<Granted, AcquireError>> {
        let mut said = Position::from(place);
        self.say(HoldEvent::Queued(said)).ok()?;
        let mut now = said;
        // Dropping `outcome` leaves the queue.
        let mut outcome = std::pin::pin!(outcome);
        loop {
            tokio::select! {
                outcome = &mut outcome => return Some(outcome),
                () = self.events.closed() => return None,
                position = watcher.looked_up() => now = position,
                () = sleep(READ), if now.ahead != said.ahead => {}
            }
            if now.ahead != said.ahead && self.all_is_read() {
                said = now;
                self.say(HoldEvent::Queued(said)).ok()?;
            }
        }
    }

    /// What is to be kept when the wait in the queue is over, if there is anything.
    pub(super) fn heard(&self, outcome: Result<Granted, AcquireError>) -> Option<Kept> {
        match outcome {
            Ok(granted) => return Some(self.take_over(granted, Instant::now()).renewed_first()),
            Err(AcquireError::Draining) => self.end(HoldEnd::Draining { left: None }),
            Err(error) => self.end(HoldEnd::Refused(error)),
        }
        None
    }

    /// What was granted, counting from when it was asked for. From here on this task answers for the
    /// lease.
    pub(super) fn take_over(&self, granted: Granted, asked: Instant) -> Kept {
        granted.delivery.delivered();
        self.kept(granted.lease, granted.keeper, asked)
    }

    /// Keeps a lease until it is over, one way or another. Borrows what it works with: of those who hold
    /// there may be many, and what is moved into a future is there twice.
    pub(super) async fn keep_granted(&self, kept: &mut Kept) {
        let mut drained = std::pin::pin!(self.engine.lifecycle.drained());
        if let Err(gone) = self.say_granted(kept) {
            return self.release(kept, gone).await;
        }
        loop {
            let due = kept.renew_at.min(kept.valid_until);
            let draining = tokio::select! {
                () = sleep_until(due) => false,
                () = &mut drained => true,
                displaced = kept.entry.displaced() => match displaced {
                    Displaced::Released => return self.end(HoldEnd::Released),
                    // The store knows better.
                    Displaced::Adopted | Displaced::Broken | Displaced::Renewed => false,
                },
                () = self.events.closed() => return self.release(kept, Gone::HungUp).await,
                () = self.warrant.ended() => return self.revoke(kept),
            };
            if !self.warrant.stands() {
                return self.revoke(kept);
            }
            if let Some(reason) = kept.lost_by_now() {
                if reason == LossReason::Expired {
                    self.engine.metrics.expired_while_held(SeenBy::Stream);
                }
                self.engine
                    .events
                    .lost(&kept.name, &kept.token.hash(), reason);
                kept.leave_behind(Some(reason));
                return self.end(HoldEnd::Lost(reason));
            }
            let heard = match self.renew(kept).await {
                Some(Renewal::Adopted) => {
                    return self.end(HoldEnd::Lost(LossReason::Adopted));
                }
                Some(Renewal::Lost(Loss::Broken { .. })) => {
                    return self.end(HoldEnd::Lost(LossReason::Broken));
                }
                Some(Renewal::Lost(Loss::HeldByAnother | Loss::Free)) => {
                    let reason = kept.lost_by_now().unwrap_or(LossReason::Ended);
                    if reason == LossReason::Expired {
                        self.engine.metrics.expired_while_held(SeenBy::Stream);
                    }
                    self.engine
                        .events
                        .lost(&kept.name, &kept.token.hash(), reason);
                    return self.end(HoldEnd::Lost(reason));
                }
                Some(Renewal::Renewed(held)) => {
                    if kept.entry.is_displaced() {
                        kept.entry = self
                            .engine
                            .streams
                            .enter(kept.name.clone(), kept.token.hash());
                    }
                    self.say_renewed(kept, held)
                }
                // Not known; tried again soon, for as long as the lease is certainly ours.
                None => Ok(()),
            };
            match heard {
                Err(gone) => return self.release(kept, gone).await,
                // A gateway that drains tries just once: the lease has what is left of its TTL.
                Ok(()) if draining => return self.drain(kept),
                Ok(()) => {}
            }
        }
    }

    pub(super) fn kept(&self, lease: Lease, keeper: KeeperId, since: Instant) -> Kept {
        let token = lease.token.hash();
        let entry = self.engine.streams.enter(lease.name.clone(), token);
        Kept::new(lease, keeper, entry, since, Arc::clone(&self.engine))
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

    fn drain(&self, kept: &Kept) {
        let token = kept.token.hash();
        let left = if kept.unsaid.is_none() {
            let left = kept.valid_until.saturating_duration_since(Instant::now());
            // Its holder is told to go elsewhere, where the lease must be adopted before it is over: also
            // to the gateway that comes in the place of this one, which must have most of a short one
            // left. Or it has nowhere to go, and renews or releases it here.
            self.engine
                .leases
                .wait_at_most(&token, FAREWELL.min(left / 4));
            Some(left)
        } else {
            // Nobody knows its token.
            self.engine.leases.remove(&kept.name, &token);
            kept.leave_behind(None);
            None
        };
        self.end(HoldEnd::Draining { left });
    }

    /// Whoever listens may not have it any more, and has what is left of the TTL to stop.
    fn revoke(&self, kept: &Kept) {
        let revoked = LossReason::Revoked;
        self.engine
            .events
            .lost(&kept.name, &kept.token.hash(), revoked);
        if kept.unsaid.is_some() {
            // Nobody knows its token.
            kept.leave_behind(Some(revoked));
        }
        self.end(HoldEnd::Lost(revoked));
    }

    /// Renews once; `None` if the store gave no answer.
    async fn renew(&self, kept: &mut Kept) -> Option<Renewal> {
        let sent = Instant::now();
        let until = kept.valid_until;
        let token = kept.token.hash();
        let keeper = Renewer::Keeper(kept.keeper);
        let left = self.engine.leases.left(&token);
        // In a box: of those who hold there may be many, and few of them are just renewing.
        let renewal = Box::pin(self.engine.store.renew_as(keeper, &kept.name, &token, None));
        let answer = tokio::select! {
            answer = renewal => answer,
            () = sleep_until(until) => return None,
        };
        self.engine
            .metrics
            .renewed(SeenBy::Stream, ended(&answer), left);
        match answer {
            Ok(renewal) => {
                match &renewal {
                    Renewal::Renewed(held) => {
                        kept.renewed(held, sent);
                        self.engine.leases.insert(token, &kept.name, held);
                        self.engine.events.renewed(&kept.name, &token, held);
                    }
                    // Whoever adopted it may keep it through this very gateway.
                    Renewal::Adopted => {}
                    Renewal::Lost(_) => drop(self.engine.leases.remove(&kept.name, &token)),
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

    /// Nobody listens any more: the lock is released at once, unless somebody else keeps it now.
    async fn release(&self, kept: &Kept, gone: Gone) {
        let (keeper, token) = (Some(kept.keeper), kept.token.hash());
        let unread = (gone == Gone::Unread).then_some(LossReason::Unread);
        if let Some(unread) = unread {
            self.engine.events.lost(&kept.name, &token, unread);
        }
        let release = self.engine.store.release_as(keeper, &kept.name, &token);
        let release = Box::pin(release).await;
        let released = ended(&release);
        let owing = match release {
            Ok(Release::Adopted) => None,
            Ok(Release::Released) => {
                self.engine.events.released(&kept.name, &token);
                self.engine.leases.remove(&kept.name, &token)
            }
            Ok(Release::Lost(_)) => self.engine.leases.remove(&kept.name, &token),
            Err(_) => {
                kept.leave_behind(unread);
                None
            }
        };
        let held = owing.map(|owing| owing.since.elapsed());
        self.engine.metrics.released(released, held);
    }

    /// Whether whoever listens is up to date. Places that move are no reason to take a slow reader for
    /// gone.
    fn all_is_read(&self) -> bool {
        self.events.capacity() == UNREAD
    }

    fn say(&self, event: HoldEvent) -> Result<(), Gone> {
        self.events
            .try_send(Box::new(event))
            .map_err(|error| match error {
                TrySendError::Full(_) => {
                    self.overrun.store(true, Ordering::Relaxed);
                    Gone::Unread
                }
                TrySendError::Closed(_) => Gone::HungUp,
            })
    }

    pub(super) fn end(&self, end: HoldEnd) {
        // Whoever does not read it finds the stream ended all the same.
        drop(self.say(HoldEvent::Ended(end)));
    }
}
