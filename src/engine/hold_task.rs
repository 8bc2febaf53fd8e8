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
    auth::Authorization,
    lock::{HeldLease, KeeperId, Lease},
    store::{
        Store, StoreError,
        contract::{Loss, QueuePosition, Release, Renewal, Renewer},
        positions::{Position, PositionWatcher},
    },
    telemetry::metrics::SeenBy,
};

use super::{
    AcquireError, Granted, HoldEnd, HoldEvent, LossReason, hold::MAX_UNREAD,
    hold_streams::Displaced, managed_lease::ManagedLease, metric_outcomes::lease_outcome,
    start::EngineShared,
};

/// The task behind a hold.
pub(super) struct HoldTask {
    pub(super) engine: Arc<EngineShared>,
    pub(super) authorization: Authorization,
    pub(super) events: mpsc::Sender<Box<HoldEvent>>,
    pub(super) overrun: Arc<AtomicBool>,
}

/// How soon it is looked again whether what was said of the queue has been read.
const READ_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Nobody listens any more.
#[derive(Debug, PartialEq, Eq)]
enum ListenerGone {
    /// Whoever did has hung up.
    HungUp,
    /// Whoever does left too much unread, and is told so.
    Unread,
}

/// How long whoever held a lock by a stream may take to renew or release it here with its token, when the
/// gateway drains.
const RELEASE_GRACE: Duration = Duration::from_secs(2);

// === impl HoldTask ===

impl HoldTask {
    /// Waits in the queue, telling the place there; `None` if nobody listens any more.
    pub(super) async fn wait_in_queue(
        &self,
        place: &QueuePosition,
        mut watcher: PositionWatcher,
        outcome: impl Future<Output = Result<Granted, AcquireError>>,
    ) -> Option<Result<Granted, AcquireError>> {
        let mut announced = Position::from(place);
        self.send(HoldEvent::Queued(announced)).ok()?;
        let mut now = announced;
        // Dropping `outcome` leaves the queue.
        let mut outcome = std::pin::pin!(outcome);
        loop {
            tokio::select! {
                outcome = &mut outcome => return Some(outcome),
                () = self.events.closed() => return None,
                position = watcher.updated() => now = position,
                () = sleep(READ_CHECK_PERIOD), if now.ahead != announced.ahead => {}
            }
            if now.ahead != announced.ahead && self.is_all_read() {
                announced = now;
                self.send(HoldEvent::Queued(announced)).ok()?;
            }
        }
    }

    /// What is to be kept when the wait in the queue is over, if there is anything.
    pub(super) fn begin_after_wait(
        &self,
        outcome: Result<Granted, AcquireError>,
    ) -> Option<ManagedLease> {
        match outcome {
            Ok(granted) => return Some(self.take_granted(granted, Instant::now()).renew_at_once()),
            Err(AcquireError::Draining) => self.end(HoldEnd::Draining { left: None }),
            Err(error) => self.end(HoldEnd::Refused(error)),
        }
        None
    }

    /// What was granted, counting from when it was asked for. From here on this task answers for the
    /// lease.
    pub(super) fn take_granted(&self, granted: Granted, asked: Instant) -> ManagedLease {
        granted.delivery.delivered();
        self.manage(granted.lease, granted.keeper, asked)
    }

    /// Keeps a lease until it is over, one way or another. Borrows what it works with: of those who hold
    /// there may be many, and what is moved into a future is there twice.
    pub(super) async fn keep_renewed(&self, managed: &mut ManagedLease) {
        let mut drained = std::pin::pin!(self.engine.lifecycle.drained());
        if let Err(gone) = self.send_granted(managed) {
            return self.release(managed, gone).await;
        }
        loop {
            let due = managed.renew_at.min(managed.valid_until);
            let draining = tokio::select! {
                () = sleep_until(due) => false,
                () = &mut drained => true,
                displaced = managed.entry.displaced() => match displaced {
                    Displaced::Released => return self.end(HoldEnd::Released),
                    // The store knows better.
                    Displaced::Adopted | Displaced::Broken | Displaced::Renewed => false,
                },
                () = self.events.closed() => return self.release(managed, ListenerGone::HungUp).await,
                () = self.authorization.revoked() => return self.revoke(managed),
            };
            if !self.authorization.is_valid() {
                return self.revoke(managed);
            }
            if let Some(reason) = managed.loss_if_over() {
                if reason == LossReason::Expired {
                    self.engine.metrics.expired_while_held(SeenBy::Stream);
                }
                self.engine
                    .events
                    .lost(&managed.name, &managed.token.hash(), reason);
                managed.abandon(Some(reason));
                return self.end(HoldEnd::Lost(reason));
            }
            let sent = match self.renew(managed).await {
                Some(Renewal::Adopted) => {
                    return self.end(HoldEnd::Lost(LossReason::Adopted));
                }
                Some(Renewal::Lost(Loss::Broken { .. })) => {
                    return self.end(HoldEnd::Lost(LossReason::Broken));
                }
                Some(Renewal::Lost(Loss::HeldByAnother | Loss::Free)) => {
                    let reason = managed.loss_if_over().unwrap_or(LossReason::Ended);
                    if reason == LossReason::Expired {
                        self.engine.metrics.expired_while_held(SeenBy::Stream);
                    }
                    self.engine
                        .events
                        .lost(&managed.name, &managed.token.hash(), reason);
                    return self.end(HoldEnd::Lost(reason));
                }
                Some(Renewal::Renewed(held)) => {
                    if managed.entry.is_displaced() {
                        managed.entry = self
                            .engine
                            .streams
                            .insert(managed.name.clone(), managed.token.hash());
                    }
                    self.send_renewed(managed, held)
                }
                // Not known; tried again soon, for as long as the lease is certainly ours.
                None => Ok(()),
            };
            match sent {
                Err(gone) => return self.release(managed, gone).await,
                // A gateway that drains tries just once: the lease has what is left of its TTL.
                Ok(()) if draining => return self.drain(managed),
                Ok(()) => {}
            }
        }
    }

    pub(super) fn manage(&self, lease: Lease, keeper: KeeperId, since: Instant) -> ManagedLease {
        let token = lease.token.hash();
        let entry = self.engine.streams.insert(lease.name.clone(), token);
        ManagedLease::new(lease, keeper, entry, since, Arc::clone(&self.engine))
    }

    /// Tells of the grant, unless a renewal must say first from when it counts.
    fn send_granted(&self, managed: &mut ManagedLease) -> Result<(), ListenerGone> {
        if managed.renew_at <= Instant::now() {
            return Ok(());
        }
        match managed.unannounced.take() {
            Some(lease) => self.send(HoldEvent::Granted(lease)),
            None => Ok(()),
        }
    }

    fn send_renewed(
        &self,
        managed: &mut ManagedLease,
        held: HeldLease,
    ) -> Result<(), ListenerGone> {
        self.send(match managed.unannounced.take() {
            Some(lease) => HoldEvent::Granted(Lease { held, ..lease }),
            None => HoldEvent::Renewed(held),
        })
    }

    fn drain(&self, managed: &ManagedLease) {
        let token = managed.token.hash();
        let left = if managed.unannounced.is_none() {
            let left = managed
                .valid_until
                .saturating_duration_since(Instant::now());
            // Its holder is told to go elsewhere, where the lease must be adopted before it is over: also
            // to the gateway that comes in the place of this one, which must have most of a short one
            // left. Or it has nowhere to go, and renews or releases it here.
            self.engine
                .leases
                .wait_at_most(&token, RELEASE_GRACE.min(left / 4));
            Some(left)
        } else {
            // Nobody knows its token.
            self.engine.leases.remove(&managed.name, &token);
            managed.abandon(None);
            None
        };
        self.end(HoldEnd::Draining { left });
    }

    /// Whoever listens may not have it any more, and has what is left of the TTL to stop.
    fn revoke(&self, managed: &ManagedLease) {
        let revoked = LossReason::Revoked;
        self.engine
            .events
            .lost(&managed.name, &managed.token.hash(), revoked);
        if managed.unannounced.is_some() {
            // Nobody knows its token.
            managed.abandon(Some(revoked));
        }
        self.end(HoldEnd::Lost(revoked));
    }

    /// Renews once; `None` if the store gave no answer.
    async fn renew(&self, managed: &mut ManagedLease) -> Option<Renewal> {
        let sent = Instant::now();
        let until = managed.valid_until;
        let token = managed.token.hash();
        let keeper = Renewer::Keeper(managed.keeper);
        let left = self.engine.leases.left(&token);
        // In a box: of those who hold there may be many, and few of them are just renewing.
        let renewal = Box::pin(
            self.engine
                .store
                .renew_as(keeper, &managed.name, &token, None),
        );
        let answer = tokio::select! {
            answer = renewal => answer,
            () = sleep_until(until) => return None,
        };
        self.engine
            .metrics
            .renewed(SeenBy::Stream, lease_outcome(&answer), left);
        match answer {
            Ok(renewal) => {
                match &renewal {
                    Renewal::Renewed(held) => {
                        managed.renewed(held, sent);
                        self.engine.leases.insert(token, &managed.name, held);
                        self.engine.events.renewed(&managed.name, &token, held);
                    }
                    // Whoever adopted it may keep it through this very gateway.
                    Renewal::Adopted => {}
                    Renewal::Lost(_) => drop(self.engine.leases.remove(&managed.name, &token)),
                }
                Some(renewal)
            }
            Err(
                StoreError::Unavailable(_)
                | StoreError::Indeterminate(_)
                | StoreError::ForeignData { .. }
                | StoreError::FenceExhausted,
            ) => {
                managed.schedule_retry();
                None
            }
        }
    }

    /// Nobody listens any more: the lock is released at once, unless somebody else keeps it now.
    async fn release(&self, managed: &ManagedLease, gone: ListenerGone) {
        let (keeper, token) = (Some(managed.keeper), managed.token.hash());
        let unread = (gone == ListenerGone::Unread).then_some(LossReason::Unread);
        if let Some(unread) = unread {
            self.engine.events.lost(&managed.name, &token, unread);
        }
        let release = self.engine.store.release_as(keeper, &managed.name, &token);
        let release = Box::pin(release).await;
        let released = lease_outcome(&release);
        let removed = match release {
            Ok(Release::Adopted) => None,
            Ok(Release::Released) => {
                self.engine.events.released(&managed.name, &token);
                self.engine.leases.remove(&managed.name, &token)
            }
            Ok(Release::Lost(_)) => self.engine.leases.remove(&managed.name, &token),
            Err(_) => {
                managed.abandon(unread);
                None
            }
        };
        let held = removed.map(|removed| removed.since.elapsed());
        self.engine.metrics.released(released, held);
    }

    /// Whether whoever listens is up to date. Places that move are no reason to take a slow reader for
    /// gone.
    fn is_all_read(&self) -> bool {
        self.events.capacity() == MAX_UNREAD
    }

    fn send(&self, event: HoldEvent) -> Result<(), ListenerGone> {
        self.events
            .try_send(Box::new(event))
            .map_err(|error| match error {
                TrySendError::Full(_) => {
                    self.overrun.store(true, Ordering::Relaxed);
                    ListenerGone::Unread
                }
                TrySendError::Closed(_) => ListenerGone::HungUp,
            })
    }

    pub(super) fn end(&self, end: HoldEnd) {
        // Whoever does not read it finds the stream ended all the same.
        drop(self.send(HoldEvent::Ended(end)));
    }
}
