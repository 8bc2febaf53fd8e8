//! Hold: acquire a lock and keep it for as long as its stream has a reader.
//!
//! A separate task keeps the lease, and `http/locks/hold.rs` is the body that reads the events of that task. Dropping
//! the body releases the lock. The lease counts from when the last successful renewal was *sent*, and is reported as
//! lost shortly before the store could grant the lock to another caller. A grant after a wait is renewed once before
//! it is announced, because its age is unknown. A hold task that panics leaves its lease to the reaper.
//!
//! Two gateways may be given the same token: a client that lost its connection adopts the lease elsewhere while the
//! old stream still runs. So each lease has a *recipient*: the attempt that was granted the lock, until a stream adopts
//! the lease, or until a request under its idempotency key is answered with the lease. A stream renews and releases
//! as the recipient, and the store refuses a stream that is not the recipient any more.

use std::{
    future::poll_fn,
    mem,
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
    lock::{HeldLease, Lease, LockName, RecipientId, ReleaseRequest, Token},
    store::{
        StoreError, Uncertainty,
        contract::{Loss, QueuePosition, Release, Releaser, Renewal, RenewalTtl, Renewer},
        parking::Position,
    },
    telemetry::metrics::SeenBy,
};

use super::{
    AcquireError, AcquireRequest, Engine, Granted,
    acquire::{AttemptProgress, lease_outcome},
    facts::{Fact, ReleasedBy},
    leases::Displaced,
    loss::LossReason,
    managed_lease::ManagedLease,
    reaper::{AbandonedBy, AbandonedLease},
    renew::margin,
    start::EngineShared,
};

/// A lock that is held for as long as this value lives. Dropping the value releases the lock.
#[derive(Debug)]
pub struct Hold {
    /// Receives the events of the hold task. The events are boxed, because the channel reserves room for many events
    /// and seldom has more than one.
    events: mpsc::Receiver<Box<HoldEvent>>,
    reading: Arc<Reading>,
    phase: HoldPhase,
}

/// What a hold and its task know of the reader of the events.
#[derive(Debug, Default)]
struct Reading {
    /// Set when the reader left too many events unread. The events that are still in the channel are out of date.
    overrun: AtomicBool,
    /// Whether a caller may know of the lease: the reader has taken [`HoldEvent::Granted`], or the lease was answered
    /// before.
    granted: AtomicBool,
}

/// The phase of a hold: waiting in the queue, holding the lock, or over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoldPhase {
    Waiting,
    Held,
    Over,
}

/// An event of a hold. [`HoldEvent::Ended`] is the last event, and comes exactly once.
#[derive(Debug)]
pub enum HoldEvent {
    /// The attempt stands in the queue, or its position has changed.
    Queued(Position),
    /// The attempt was granted the lock.
    Granted(Lease),
    /// The lease of the hold was renewed.
    Renewed(HeldLease),
    /// The holder is asked to release the lock. Comes after [`HoldEvent::Granted`], and again if the deadline becomes
    /// earlier.
    ReleaseRequested(ReleaseRequest),
    /// The hold is over.
    Ended(HoldEnd),
}

/// Why a hold is over.
#[derive(Debug)]
pub enum HoldEnd {
    /// The lease is lost, or may be lost before it could be renewed.
    Lost(LossReason),
    /// The lock was not acquired, for this reason.
    Refused(AcquireError),
    /// Another request released the lease with its token.
    Released,
    /// The gateway is about to stop. A granted lease lives on and can be adopted at another gateway; a waiter's
    /// position is kept if its request has an idempotency key.
    Draining {
        /// Until when the granted lease certainly lasts: one TTL, or less if the store could not be reached. `None`
        /// for a waiter.
        until: Option<Instant>,
    },
}

/// Why a stream could not take over (adopt) a lease.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The token does not hold the lock.
    #[error("the lease is lost")]
    Lost(Loss),
    /// The gateway is about to stop, and takes over no lease.
    #[error("the gateway is draining")]
    Draining,
    /// The store did not answer, or could not carry out the command.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How many events may wait for a reader. A reader with more unread events counts as gone: with a renewal
/// every third of a TTL this is several TTLs.
const MAX_UNREAD: usize = 16;

// === impl Engine ===

impl Engine {
    /// Acquires a lock and keeps it. If the attempt is decided at once, a refusal is returned as an error; later
    /// outcomes are events of the hold.
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
    /// An older stream that keeps the lease does not release it any more when that stream ends: an older stream of
    /// this gateway ends now, an older stream of another gateway ends with its next renewal.
    ///
    /// A lease whose TTL is longer than the caller may ask for gets the caller's longest TTL from now on.
    ///
    /// If the caller hangs up half-way, the lease may have been adopted or not, and is not adopted later. The lease is
    /// not released, because the caller may repeat the request here or at another gateway; until then no stream renews
    /// it.
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
        let id = RecipientId::random();
        let (adopter, hash) = (Renewer::Adopter(id), token.hash());
        let ttl = RenewalTtl {
            asked: None,
            max: authorization.max_ttl(),
        };
        let renewed = {
            let pending = PendingAdoption {
                engine: &self.0,
                name: &name,
                recipient: id,
            };
            let renewed = self.0.renew_complete(adopter, &name, &hash, ttl).await;
            if !matches!(renewed, Err(StoreError::Indeterminate(_))) {
                mem::forget(pending);
            }
            renewed
        };
        let held = match renewed? {
            Renewal::Renewed(held, _) => held,
            Renewal::Lost(loss) => return Err(AdoptError::Lost(loss)),
            // Another stream adopted the lease after this stream, before the store's answer came.
            Renewal::Adopted => {
                return Ok(self.start_hold_task(authorization, |task| async move {
                    task.end(HoldEnd::Lost(LossReason::Adopted));
                }));
            }
        };
        let leases = &self.0.leases;
        leases.insert_counted(hash, &name, &held);
        leases.adopted_by(&name, &hash, id);
        leases.charge(&name, &hash, authorization.adopted_slot());
        let waited = Duration::ZERO;
        let lease = Lease {
            name,
            token,
            held,
            waited,
        };
        Ok(self.start_hold_task(authorization, move |task| async move {
            task.reading.granted.store(true, Ordering::Relaxed);
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
        let reading = Arc::<Reading>::default();
        self.0.lifecycle.spawn(task(HoldTask {
            engine: Arc::clone(&self.0),
            authorization: authorization.to_keep(),
            events: sender,
            reading: Arc::clone(&reading),
        }));
        Hold {
            events,
            reading,
            phase: HoldPhase::Waiting,
        }
    }
}

/// An adoption that the store has not answered. Dropping it refuses the adoption from now on.
///
/// Without this, a copy that the store carries out late would take the lease from the stream with which the caller has
/// adopted the lease meanwhile, perhaps at another gateway, and no stream would keep the lease.
struct PendingAdoption<'a> {
    engine: &'a EngineShared,
    name: &'a LockName,
    recipient: RecipientId,
}

// === impl PendingAdoption ===

impl Drop for PendingAdoption<'_> {
    fn drop(&mut self) {
        let adoption = (self.name.clone(), self.recipient.attempt());
        let adoption = AbandonedLease::new(adoption.0, adoption.1, AbandonedBy::Attempt);
        self.engine.reaper.submit(adoption);
    }
}

// === impl Hold ===

impl Hold {
    /// The next event; `None` after the last event.
    pub async fn next(&mut self) -> Option<HoldEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next event; `None` after the last event.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<HoldEvent>> {
        if self.phase == HoldPhase::Over {
            return Poll::Ready(None);
        }
        let event = if self.reading.overrun.swap(false, Ordering::Relaxed) {
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
            HoldEvent::Granted(_) => {
                self.reading.granted.store(true, Ordering::Relaxed);
                self.phase = HoldPhase::Held;
            }
            HoldEvent::Ended(_) => self.phase = HoldPhase::Over,
            HoldEvent::Queued(_) | HoldEvent::Renewed(_) | HoldEvent::ReleaseRequested(_) => {}
        }
        Poll::Ready(Some(event))
    }
}

// === impl HoldPhase ===

impl HoldPhase {
    /// How a hold ends whose task stopped without reporting an end.
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
// The task that keeps the lease of a hold.

/// The state of the task that keeps the lease of a hold.
struct HoldTask {
    engine: Arc<EngineShared>,
    authorization: Authorization,
    events: mpsc::Sender<Box<HoldEvent>>,
    reading: Arc<Reading>,
}

/// How often a waiting hold checks whether its reader has read the last position, before it sends another.
const READ_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Why a stream has no reader any more.
#[derive(Debug, PartialEq, Eq)]
enum ListenerGone {
    /// The reader has hung up.
    HungUp,
    /// The reader left too many events unread; the stream ends with that reason.
    Unread,
}

/// How long a draining gateway waits for the client of an ended stream to renew or release the lease here with its
/// token.
const RELEASE_GRACE: Duration = Duration::from_secs(2);

// === impl HoldTask ===

impl HoldTask {
    /// Waits for the lock in its queue, and sends the position to the stream; `None` if the stream has no reader any
    /// more.
    async fn wait_in_queue(
        &self,
        place: &QueuePosition,
        mut watcher: watch::Receiver<Option<Position>>,
        outcome: impl Future<Output = Result<Granted, AcquireError>>,
    ) -> Option<Result<Granted, AcquireError>> {
        let mut announced = Position::from(place);
        self.send(HoldEvent::Queued(announced)).ok()?;
        let mut now = announced;
        // Dropping `outcome` takes the attempt out of the queue.
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

    /// Returns the lease to keep after the wait in the queue. Without a lease, reports the end of the hold and
    /// returns `None`.
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

    /// Takes over a granted lease, whose time counts from `asked`. From here on this task must renew the lease and
    /// release it.
    fn take_granted(&self, granted: Granted, asked: Instant) -> ManagedLease {
        let may_be_known = granted.delivery.may_be_known();
        self.reading.granted.store(may_be_known, Ordering::Relaxed);
        granted.delivery.delivered();
        self.manage(granted.lease, granted.recipient, asked)
    }

    /// Renews a lease until the hold is over. The future borrows its state, because a value that is moved into a
    /// future is stored twice and there may be many holds.
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
                    // The next renewal asks the store whether another stream has taken over (adopted) the lease.
                    Displaced::Adopted => false,
                    Displaced::Broken => {
                        // This task registers as the recipient again before it asks the store: otherwise a later break
                        // would not reach the task.
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
                managed.abandon(self.releaser(managed), Some(reason));
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
                    // If the lease ended before the store's answer came, the next pass of this loop reports it as
                    // lost.
                    match managed.loss_if_over() {
                        Some(_) => Ok(()),
                        None => self.send_renewed(managed, held),
                    }
                }
                // The outcome is unknown; the renewal is retried for as long as the lease is certainly valid.
                None => Ok(()),
            };
            match sent {
                Err(gone) => return self.release(managed, gone).await,
                // A draining gateway tries only one renewal; the lease then has the rest of its TTL.
                Ok(()) if draining => return self.drain(managed),
                Ok(()) => {}
            }
        }
    }

    fn manage(&self, lease: Lease, recipient: RecipientId, since: Instant) -> ManagedLease {
        let token = lease.token.hash();
        let entry = self.engine.leases.keep(lease.name.clone(), token);
        ManagedLease::new(lease, recipient, entry, since, Arc::clone(&self.engine))
    }

    /// Registers this task as the recipient of the lease again after it was displaced, so that the task hears of later
    /// breaks.
    fn enter(&self, managed: &mut ManagedLease) {
        let (name, token) = (managed.name.clone(), managed.token.hash());
        managed.entry = self.engine.leases.keep(name, token);
    }

    /// Sends the grant to the reader of the stream, unless a renewal must first show when the lease expires.
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

    /// Announces the request to release the lock, unless this deadline or an earlier one was announced before.
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
            // The holder adopts the lease at another gateway before the lease expires. The other gateway may be the
            // successor of this gateway and start only when this one has stopped, so this gateway waits for the
            // holder for a small part of a short lease only. A holder without another gateway renews or releases the
            // lease here.
            self.engine
                .leases
                .wait_at_most(&managed.name, &token, RELEASE_GRACE.min(left / 4));
            Some(managed.valid_until)
        } else {
            // The holder was not told of the lease, so no client has its token.
            managed.abandon(self.releaser(managed), None);
            None
        };
        self.end(HoldEnd::Draining { until });
    }

    /// Ends the hold of a caller that is no longer authorized. The holder has the rest of the TTL to stop its work.
    fn revoke(&self, managed: &ManagedLease) {
        let revoked = LossReason::Revoked;
        self.report_lost(managed, revoked);
        if managed.unannounced.is_some() {
            // The holder was not told of the lease, so no client has its token.
            managed.abandon(self.releaser(managed), Some(revoked));
        }
        self.end(HoldEnd::Lost(revoked));
    }

    fn report_lost(&self, managed: &ManagedLease, reason: LossReason) {
        let fact = Fact::StreamLost(managed.fence, reason);
        let lease = Some((&managed.token.hash()).into());
        self.engine.facts.tell(&managed.name, lease, fact);
    }

    /// Renews the lease of the hold once; `None` if the store gave no answer.
    async fn renew(&self, managed: &mut ManagedLease) -> Option<Renewal> {
        let sent = Instant::now();
        let until = managed.valid_until;
        let token = managed.token.hash();
        let recipient = Renewer::Recipient(managed.recipient);
        // Boxed, because there may be many holds and few of them renew at the same time.
        let renewal = Box::pin(self.engine.renew_complete(
            recipient,
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
        let EngineShared { leases, facts, .. } = &*self.engine;
        match &renewal {
            Renewal::Renewed(held, _) => {
                managed.renewed(held, sent);
                leases.insert_counted(token, &managed.name, held);
                facts.tell(&managed.name, Some((&token).into()), Fact::Renewed(held));
            }
            // Stops counting the lease at this gateway. If the stream that adopted the lease belongs to this gateway,
            // its next renewal counts the lease again.
            Renewal::Adopted => leases.adopted(&managed.name, &token),
            Renewal::Lost(loss) => facts.gone(&managed.name, &token, *loss, None),
        }
        Some(renewal)
    }

    /// Who this task is for a release of the lease. The lock rests only if a caller may have been told of the lease.
    fn releaser(&self, managed: &ManagedLease) -> Releaser {
        if self.reading.granted.load(Ordering::Relaxed) {
            Releaser::Recipient(managed.recipient)
        } else {
            Releaser::Undelivered(managed.recipient)
        }
    }

    /// Releases the lock at once, because the stream has no reader any more, unless the lease has another recipient
    /// now.
    async fn release(&self, managed: &ManagedLease, gone: ListenerGone) {
        let (by, token) = (self.releaser(managed), managed.token.hash());
        let unread = (gone == ListenerGone::Unread).then_some(LossReason::Unread);
        if let Some(unread) = unread {
            self.report_lost(managed, unread);
        }
        if !by.may_rest() {
            self.engine.leases.rest(&managed.name, &token, None);
        }
        let store = &self.engine.store;
        let granted_here = self.engine.leases.is_granted_here(&managed.name, &token);
        let release = store.release_as(by, &managed.name, &token, granted_here);
        let release = Box::pin(release).await;
        if !matches!(release, Ok(Release::Released(_))) {
            let outcome = lease_outcome(&release);
            self.engine.metrics.released(outcome, None);
        }
        let facts = &self.engine.facts;
        match release {
            Ok(Release::Adopted(_)) => {}
            Ok(Release::Released(ended)) => {
                let by = ReleasedBy::Holder(None, unread);
                facts.released(&managed.name, &token, ended, by);
            }
            Ok(Release::Lost(loss)) => facts.gone(&managed.name, &token, loss, None),
            Err(_) => managed.abandon(by, unread),
        }
    }

    /// Whether the reader has read all events. A changed position is sent only after that: otherwise a slow reader
    /// would leave too many events unread and count as gone.
    fn is_all_read(&self) -> bool {
        self.events.capacity() == MAX_UNREAD
    }

    fn send(&self, event: HoldEvent) -> Result<(), ListenerGone> {
        self.events
            .try_send(Box::new(event))
            .map_err(|error| match error {
                TrySendError::Full(_) => {
                    self.reading.overrun.store(true, Ordering::Relaxed);
                    ListenerGone::Unread
                }
                TrySendError::Closed(_) => ListenerGone::HungUp,
            })
    }

    fn end(&self, end: HoldEnd) {
        // If the last event cannot be sent, the stream ends all the same.
        drop(self.send(HoldEvent::Ended(end)));
    }
}
