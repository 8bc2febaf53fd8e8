//! Hold: acquire a lock and keep it for as long as somebody listens.
//!
//! The lease is kept by a task of its own, and `http/locks/hold.rs` is the body that reads the events of that task. Dropping
//! the body releases the lock. The lease counts from when the last successful renewal was *sent*, and is reported as lost shortly
//! before the store could grant it to somebody else. A grant that was waited for is renewed once before it is announced, because
//! its age is unknown. A hold task that panics leaves its lease to the reaper.
//!
//! One token may be used at two gateways: a client that lost its connection adopts the lease elsewhere while the old stream still
//! runs. So each lease has a *keeper*: the attempt that was granted it, until a stream adopts the lease, or until a request under
//! its key is answered with it. A stream renews and releases as the keeper, and the store refuses a stream that is not the keeper
//! any more.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        watch,
    },
    time::{Instant, sleep, sleep_until},
};

use crate::{
    auth::Authorization,
    lock::{HeldLease, KeeperId, Lease, LockName, ReleaseRequest, Token},
    store::{
        Store, StoreError, Uncertainty,
        contract::{Loss, QueuePosition, Release, Renewal, RenewalTtl, Renewer},
        parking::Position,
    },
    telemetry::metrics::SeenBy,
};

use super::{
    AcquireError, AcquireRequest, Engine, Granted,
    acquire::{AttemptProgress, lease_outcome},
    leases::Displaced,
    loss::LossReason,
    managed_lease::ManagedLease,
    renew::margin,
    start::EngineShared,
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
    /// Its holder is asked to release the lock. Comes after [`HoldEvent::Granted`], and again if it is to be
    /// released sooner.
    ReleaseRequested(ReleaseRequest),
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
        /// Until when the lease certainly lasts, if it was granted: one TTL, unless the store was away.
        until: Option<Instant>,
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

/// How many events may wait for a reader. A reader with more unread events counts as gone: with a renewal
/// every third of a TTL this is several TTLs.
const MAX_UNREAD: usize = 16;

// === impl Engine ===

impl Engine {
    /// Acquires a lock and keeps it. What is decided at once, a refusal above all, is decided before
    /// there is a hold.
    pub async fn hold(&self, request: AcquireRequest) -> Result<Hold, AcquireError> {
        let asked = Instant::now();
        let authorization = request.authorization.clone();
        match self.attempt(request).await? {
            AttemptProgress::Done(granted) => {
                Ok(self.start_hold_task(authorization, move |task| async move {
                    let mut managed = task.take_granted(granted, asked);
                    task.keep_renewed(&mut managed).await;
                }))
            }
            AttemptProgress::Queued(place, token, outcome) => {
                let watcher = self.0.store.parking().watch_position(&token);
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

    /// Keeps a lease that was granted earlier, here or at another gateway.
    ///
    /// An older stream that still holds it, here or there, does not release it any more when it ends:
    /// one of this gateway ends now, one of another gateway with its next renewal.
    ///
    /// A lease whose TTL is longer than the caller may ask for has the caller's longest TTL from now on.
    ///
    /// A caller that hangs up half-way has adopted the lease or not. It is not released, because the caller
    /// may repeat the request here or at another gateway; until then it is not renewed.
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
        let ttl = RenewalTtl {
            asked: None,
            max: authorization.max_ttl(),
        };
        let renewed = self.0.store.renew_as(adopter, &name, &hash, ttl);
        let held = match renewed.await? {
            Renewal::Renewed(held, _) => held,
            Renewal::Lost(loss) => return Err(AdoptError::Lost(loss)),
            // Another stream adopted the lease after this one, before the answer came.
            Renewal::Adopted => {
                return Ok(self.start_hold_task(authorization, |task| async move {
                    task.end(HoldEnd::Lost(LossReason::Adopted));
                }));
            }
        };
        let leases = &self.0.leases;
        leases.insert_counted(hash, &name, &held);
        leases.charge(&name, &hash, authorization.adopted_slot());
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

    /// The same as a poll function.
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
            HoldEvent::Queued(_) | HoldEvent::Renewed(_) | HoldEvent::ReleaseRequested(_) => {}
        }
        Poll::Ready(Some(event))
    }
}

// === impl HoldPhase ===

impl HoldPhase {
    /// How a hold ends whose task has not said how.
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

// === Hold task ===
//
// The task that keeps a held lease.

/// The task behind a hold.
struct HoldTask {
    engine: Arc<EngineShared>,
    authorization: Authorization,
    events: mpsc::Sender<Box<HoldEvent>>,
    overrun: Arc<AtomicBool>,
}

/// How soon it is looked again whether what was said of the queue has been read.
const READ_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The stream has no reader any more.
#[derive(Debug, PartialEq, Eq)]
enum ListenerGone {
    /// The reader has hung up.
    HungUp,
    /// The reader left too many events unread; the stream ends with that reason.
    Unread,
}

/// How long a client whose stream ended because the gateway drains may take to renew or release the lease
/// here with its token.
const RELEASE_GRACE: Duration = Duration::from_secs(2);

// === impl HoldTask ===

impl HoldTask {
    /// Waits in the queue and reports the position; `None` if the stream has no reader any more.
    async fn wait_in_queue(
        &self,
        place: &QueuePosition,
        mut watcher: watch::Receiver<Option<Position>>,
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
                Ok(()) = watcher.changed() => now = watcher.borrow_and_update().unwrap_or(now),
                () = sleep(READ_CHECK_PERIOD), if now.ahead != announced.ahead => {}
            }
            if now.ahead != announced.ahead && self.is_all_read() {
                announced = now;
                self.send(HoldEvent::Queued(announced)).ok()?;
            }
        }
    }

    /// What is to be kept when the wait in the queue is over, if there is anything.
    fn begin_after_wait(&self, outcome: Result<Granted, AcquireError>) -> Option<ManagedLease> {
        match outcome {
            Ok(granted) => {
                let since = granted.lease.held.as_of.min(Instant::now());
                return Some(self.take_granted(granted, since).renew_at_once());
            }
            Err(AcquireError::Draining) => self.end(HoldEnd::Draining { until: None }),
            Err(error) => self.end(HoldEnd::Refused(error)),
        }
        None
    }

    /// What was granted, counting from when it was asked for. From here on this task answers for the
    /// lease.
    fn take_granted(&self, granted: Granted, asked: Instant) -> ManagedLease {
        granted.delivery.delivered();
        self.manage(granted.lease, granted.keeper, asked)
    }

    /// Keeps a lease until it is over, one way or another. It borrows its state, because a value that is
    /// moved into a future is stored twice and there may be many holds.
    async fn keep_renewed(&self, managed: &mut ManagedLease) {
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
                    // The renewal asks the store, which decides.
                    Displaced::Adopted => false,
                    Displaced::Broken => {
                        // What is heard from here on may be later than what the store is asked next.
                        self.enter(managed);
                        false
                    }
                },
                () = self.events.closed() => return self.release(managed, ListenerGone::HungUp).await,
                () = self.authorization.revoked() => return self.revoke(managed),
            };
            if !self.authorization.is_valid() {
                return self.revoke(managed);
            }
            if let Some(reason) = managed.loss_if_over() {
                self.report_lost(managed, reason);
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
                    self.report_lost(managed, reason);
                    return self.end(HoldEnd::Lost(reason));
                }
                Some(Renewal::Renewed(held, _)) => {
                    if managed.entry.is_displaced() {
                        self.enter(managed);
                    }
                    // One that was answered too late is reported as lost.
                    match managed.loss_if_over() {
                        Some(_) => Ok(()),
                        None => self.send_renewed(managed, held),
                    }
                }
                // The outcome is unknown; the renewal is retried for as long as the lease is certainly ours.
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

    fn manage(&self, lease: Lease, keeper: KeeperId, since: Instant) -> ManagedLease {
        let token = lease.token.hash();
        let entry = self.engine.leases.keep(lease.name.clone(), token);
        ManagedLease::new(lease, keeper, entry, since, Arc::clone(&self.engine))
    }

    /// Hears of the lease again after it was displaced.
    fn enter(&self, managed: &mut ManagedLease) {
        let (name, token) = (managed.name.clone(), managed.token.hash());
        managed.entry = self.engine.leases.keep(name, token);
    }

    /// Announces the grant, unless a renewal must first make its expiry known.
    fn send_granted(&self, managed: &mut ManagedLease) -> Result<(), ListenerGone> {
        if managed.renew_at <= Instant::now() {
            return Ok(());
        }
        match managed.unannounced.take() {
            Some(lease) => {
                let request = lease.held.release_requested.clone();
                self.send(HoldEvent::Granted(lease))?;
                self.send_request(managed, request)
            }
            None => Ok(()),
        }
    }

    fn send_renewed(
        &self,
        managed: &mut ManagedLease,
        held: HeldLease,
    ) -> Result<(), ListenerGone> {
        let request = held.release_requested.clone();
        self.send(match managed.unannounced.take() {
            Some(lease) => HoldEvent::Granted(Lease { held, ..lease }),
            None => HoldEvent::Renewed(held),
        })?;
        self.send_request(managed, request)
    }

    /// Announces that the lock is to be released, unless that was said.
    fn send_request(
        &self,
        managed: &mut ManagedLease,
        request: Option<Box<ReleaseRequest>>,
    ) -> Result<(), ListenerGone> {
        let (Some(request), Some(by)) = (request, managed.release_by) else {
            return Ok(());
        };
        let said = managed.announced_release_by;
        if said.is_some_and(|said| said <= by + ReleaseRequest::SAME_WITHIN) {
            return Ok(());
        }
        managed.announced_release_by = Some(by);
        self.send(HoldEvent::ReleaseRequested(*request))
    }

    fn drain(&self, managed: &ManagedLease) {
        let token = managed.token.hash();
        let until = if managed.unannounced.is_none() {
            let left = managed
                .valid_until
                .saturating_duration_since(Instant::now());
            // The holder adopts the lease at another gateway before it expires. That may be the successor of
            // this one, so the wait here must leave most of a short lease. A holder without another gateway
            // renews or releases it here.
            self.engine
                .leases
                .wait_at_most(&managed.name, &token, RELEASE_GRACE.min(left / 4));
            Some(managed.valid_until)
        } else {
            // Nobody knows its token.
            managed.abandon(None);
            None
        };
        self.end(HoldEnd::Draining { until });
    }

    /// The caller is not authorized any more, and has the rest of the TTL to stop its work.
    fn revoke(&self, managed: &ManagedLease) {
        let revoked = LossReason::Revoked;
        self.report_lost(managed, revoked);
        if managed.unannounced.is_some() {
            // Nobody knows its token.
            managed.abandon(Some(revoked));
        }
        self.end(HoldEnd::Lost(revoked));
    }

    fn report_lost(&self, managed: &ManagedLease, reason: LossReason) {
        let EngineShared {
            metrics, events, ..
        } = &*self.engine;
        if reason == LossReason::Expired {
            metrics.expired_while_held(SeenBy::Stream);
        }
        events.lost(&managed.name, &managed.token.hash(), reason);
    }

    /// Renews once; `None` if the store gave no answer.
    async fn renew(&self, managed: &mut ManagedLease) -> Option<Renewal> {
        let sent = Instant::now();
        let until = managed.valid_until;
        let token = managed.token.hash();
        let keeper = Renewer::Keeper(managed.keeper);
        // Boxed, because there may be many holds and few of them renew at the same time.
        let renewal = Box::pin(self.engine.store.renew_as(
            keeper,
            &managed.name,
            &token,
            RenewalTtl::default(),
        ));
        let answer = tokio::select! {
            answer = renewal => answer,
            () = sleep_until(until) => return None,
        };
        self.engine
            .metrics
            .renewed(SeenBy::Stream, lease_outcome(&answer), margin(&answer));
        let Ok(renewal) = answer else {
            managed.schedule_retry();
            return None;
        };
        let EngineShared { leases, events, .. } = &*self.engine;
        match &renewal {
            Renewal::Renewed(held, _) => {
                managed.renewed(held, sent);
                leases.insert_counted(token, &managed.name, held);
                events.renewed(&managed.name, &token, held);
            }
            // The stream that adopted it may be one of this gateway, and counts it with its next renewal.
            Renewal::Adopted => leases.adopted(&managed.name, &token),
            Renewal::Lost(_) => drop(leases.lose(&managed.name, &token)),
        }
        Some(renewal)
    }

    /// The stream has no reader any more: releases the lock at once, unless the lease has another keeper now.
    async fn release(&self, managed: &ManagedLease, gone: ListenerGone) {
        let (keeper, token) = (Some(managed.keeper), managed.token.hash());
        let unread = (gone == ListenerGone::Unread).then_some(LossReason::Unread);
        if let Some(unread) = unread {
            self.report_lost(managed, unread);
        }
        let release = self.engine.store.release_as(keeper, &managed.name, &token);
        let release = Box::pin(release).await;
        let released = lease_outcome(&release);
        let leases = &self.engine.leases;
        let since = match release {
            Ok(Release::Adopted) => None,
            Ok(Release::Released) => {
                let removed = leases.remove(&managed.name, &token);
                self.engine.events.released(&managed.name, &token);
                removed.map(|lease| lease.since)
            }
            Ok(Release::Lost(_)) => leases.lose(&managed.name, &token),
            Err(_) => {
                managed.abandon(unread);
                None
            }
        };
        let held = since.map(|since| since.elapsed());
        self.engine.metrics.released(released, held);
    }

    /// Whether the reader has taken all events. Changes of the position wait for that, so that they do not
    /// make a slow reader count as gone.
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

    fn end(&self, end: HoldEnd) {
        // If it cannot be sent, the stream ends all the same.
        drop(self.send(HoldEvent::Ended(end)));
    }
}
