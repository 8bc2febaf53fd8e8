//! Acquire: ask for a lock, and wait for it.

use std::{future::Future, ops::ControlFlow, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tracing::info;

use crate::{
    auth::{Authorization, Excess, LeaseSlot},
    lock::{
        CallerId, IdempotencyKey, Lease, LockName, RecipientId, Salt, Sharing, SupersedeHash,
        Terms, Token, TokenHash,
    },
    store::{
        StoreError, Uncertainty,
        contract::{
            Acquisition, Attempt, Confirmation, Contention, Idempotency, Leaving, QueuePosition,
            Release, Renewal, StoreFeature, Waiting,
        },
        parking::{News, Parked},
    },
    telemetry::{
        metrics::{AcquireOutcome, LeaseOutcome},
        trace::{self, SpanKind},
    },
};

use super::{
    Engine, delivery::Delivery, detach_on_drop::DetachOnDrop, facts::Fact, history::Actor,
    start::EngineShared,
};

/// One request to acquire a lock.
#[derive(Debug, Clone)]
pub struct AcquireRequest {
    /// The name of the lock.
    pub name: LockName,
    /// The terms of the lease.
    pub terms: Terms,
    /// How long the caller is willing to wait in the queue; zero for no wait.
    pub wait: Duration,
    /// The caller to which the idempotency key belongs.
    pub caller: CallerId,
    /// The caller's right to wait for the lock and to have its lease kept, which ends if its API key is revoked.
    pub authorization: Authorization,
    /// The key under which the request may be repeated.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Who asks for the lock, for the history of the lock; `None` if that is not recorded.
    pub by: Option<Actor>,
}

/// A lease on its way to its holder.
///
/// If this value is dropped before [`Delivery::delivered`], at whatever point, a new lease is released.
#[derive(Debug)]
pub struct Granted {
    /// The lease that was granted.
    pub lease: Lease,
    /// The hash of the lease's token.
    pub hash: TokenHash,
    /// The delivery guard, which must be told when the lease has reached its holder.
    pub delivery: Delivery,
    /// The recipient id with which a hold stream renews the lease, if its holder leaves the renewals to one.
    pub(super) recipient: RecipientId,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Another caller holds the lock, and still held it when the wait of this caller was over.
    #[error("the lock is held")]
    Held {
        /// The holder, and how many waiters are queued.
        contention: Contention,
        /// How long the caller stood in the queue before the refusal.
        waited: Duration,
        /// How the caller wanted to share the lock; `None` for an exclusive lease.
        sharing: Option<Sharing>,
    },
    /// The queue of this lock, or this gateway, has as many waiters as are allowed.
    #[error("too many attempts are waiting")]
    TooManyWaiters,
    /// The API key has as many leases as its limit allows.
    #[error(transparent)]
    TooManyLeases(#[from] Excess),
    /// A newer request with the same idempotency key has taken over the position of this request.
    #[error("a newer request with the same idempotency key took over")]
    Replaced,
    /// The idempotency key was used before for a different request, whose lease or position still exists.
    #[error("the idempotency key was used for a different request")]
    IdempotencyMismatch,
    /// The lease under this idempotency key has ended.
    #[error("the lease under this idempotency key has ended")]
    IdempotencyExpired,
    /// The caller is no longer authorized for the lock: the API key is gone, or permits less.
    #[error("the API key of the caller no longer permits the lock")]
    Revoked,
    /// The store does not support what the request asks for.
    #[error("the store does not support {0:?}")]
    Unsupported(StoreFeature),
    /// A newer waiter has taken the attempt out of the queue.
    #[error("a newer waiter has taken the attempt out of the queue")]
    NewerWaiter,
    /// The time until which the caller wanted to reserve the lock came before the lock was granted.
    #[error("the reservation is over before it began")]
    ReservationOver,
    /// The gateway is about to stop.
    #[error("the gateway is draining")]
    Draining,
    /// The store did not answer, or could not carry out the command.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl AcquireRequest ===

impl AcquireRequest {
    /// The features that the request asks for and that not every store supports.
    fn features(&self) -> impl Iterator<Item = StoreFeature> {
        let terms = &self.terms;
        let asked = [
            (terms.sharing.is_some(), StoreFeature::Sharing),
            (terms.min_hold.is_some(), StoreFeature::MinHold),
            (terms.supersedes.is_some(), StoreFeature::Supersedes),
            (terms.reservation().is_some(), StoreFeature::Reserve),
        ];
        let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked);
        asked.map(|(_, feature)| feature)
    }
}

/// The state of an attempt: decided, or waiting in the queue.
#[expect(
    clippy::large_enum_variant,
    reason = "most attempts are decided at once, and a box would be an allocation for each"
)]
pub(super) enum AttemptProgress<F> {
    /// The attempt holds the lock.
    Done(Granted),
    /// The attempt waits in the queue: its position, the hash of its token, and its future. Dropping the future takes
    /// the attempt out of the queue.
    Queued(QueuePosition, TokenHash, F),
}

/// An attempt that is about to be sent to the store.
struct PreparedAttempt {
    token: TokenHash,
    /// Receives the position when the store has queued the attempt; `None` if the request does not wait.
    place: Option<oneshot::Receiver<QueuePosition>>,
    outcome: DetachOnDrop<AcquireResult>,
}

// === impl Engine ===

impl Engine {
    /// Acquires a lock, and waits for it in the queue if the request says so.
    ///
    /// If the caller drops this future, a separate task takes the attempt out of the queue and releases an
    /// undelivered lease; with an idempotency key, only after the reconnect grace.
    pub async fn acquire(&self, request: AcquireRequest) -> Result<Granted, AcquireError> {
        self.acquire_with_queued_hook(request, || {}).await
    }

    /// Acquires a lock like `acquire`, and calls `queued` when the attempt stands in the queue. This call decides
    /// whether the attempt may begin, and the wait counts from here: await the future at once.
    pub fn acquire_with_queued_hook<Q: FnOnce() + Send>(
        &self,
        request: AcquireRequest,
        queued: Q,
    ) -> impl Future<Output = Result<Granted, AcquireError>> + Send + use<Q> {
        // No `async fn`: its future would keep the request in memory for the whole wait, besides the attempt that is
        // made from the request. The same holds for `attempt`.
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

    /// Starts an attempt, and returns as soon as the attempt is decided or stands in the queue.
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

    pub(super) fn may_begin(&self, request: &AcquireRequest) -> Result<(), AcquireError> {
        if self.is_draining() {
            return Err(AcquireError::Draining);
        }
        let mut features = request.features();
        if let Some(feature) = features.find(|it| !self.0.store.supports(*it)) {
            return Err(AcquireError::Unsupported(feature));
        }
        if !request.wait.is_zero() {
            let waiting = self.0.store.parking().len();
            let reserved = &self.0.reserved_positions;
            if !reserved.has_room_beside(waiting, self.0.most_waiters) {
                return Err(AcquireError::TooManyWaiters);
            }
        }
        Ok(())
    }

    fn prepare(&self, request: AcquireRequest) -> Result<PreparedAttempt, AcquireError> {
        let EngineShared {
            metrics, lifecycle, ..
        } = &*self.0;
        self.may_begin(&request)
            .inspect_err(|error| metrics.acquired(failure_outcome(error)))?;
        if request.wait.is_zero() {
            let attempt = AcquireAttempt::new(&self.0, request, None)?;
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
        let mut attempt = AcquireAttempt::new(&self.0, request, Some(queued_sender))?;
        Ok(PreparedAttempt {
            token: attempt.token(),
            place: Some(place),
            outcome: DetachOnDrop::waiting(lifecycle, |hung_up| async move {
                attempt.run_queued(hung_up).await
            }),
        })
    }
}

// === Attempt ===
//
// One attempt to acquire, from its token to its outcome.

/// One attempt to acquire a lock, with the data needed to answer its caller and to release an undelivered lease.
pub(super) struct AcquireAttempt {
    pub(super) engine: Arc<EngineShared>,
    pub(super) attempt: Attempt,
    pub(super) token: Token,
    /// The idempotency key under which the attempt may be repeated, and the caller to which the key belongs.
    pub(super) repeatable: Option<(CallerId, IdempotencyKey)>,
    /// How long the caller is willing to wait in the queue.
    pub(super) wait: Duration,
    authorization: Authorization,
    pub(super) by: Option<Actor>,
    /// The lease's slot among the leases of the API key, if the key has a limit.
    pub(super) slot: Option<LeaseSlot>,
    started: Instant,
    /// When the wait began. An attempt that took over a position under its idempotency key has waited since the
    /// earlier request.
    pub(super) waits_since: Instant,
    /// Whether the attempt continues the wait of an earlier request.
    goes_on: bool,
    /// Sends the position once, when the store has queued the attempt; `None` if the attempt does not wait.
    queued_sender: Option<oneshot::Sender<QueuePosition>>,
    /// Whether the store has queued the attempt before: the attempt may still be queued, or hold the lock.
    pub(super) was_queued: bool,
    /// Whether the attempt is for a part of a group: its position is not kept, and its lease is answered only with
    /// all others.
    pub(super) is_part: bool,
}

/// The token and the idempotency data by which the store recognises an attempt.
#[derive(Clone)]
pub(super) struct AttemptIdentity {
    pub(super) token: Token,
    pub(super) idempotency: Option<Idempotency>,
}

/// Why an attempt leaves the queue without having been granted the lock.
enum WaitEnd {
    /// The time that the caller was willing to wait in the queue is over.
    WaitOver,
    /// The caller has hung up, so no answer can be delivered.
    HungUp,
    /// The gateway drains: it is about to stop, and grants no more locks to waiters.
    Draining,
    /// The caller is no longer authorized for the lock.
    Revoked,
}

pub(super) type AcquireResult = Result<Granted, AcquireError>;

// === impl AcquireAttempt ===

impl AcquireAttempt {
    pub(super) fn new(
        engine: &Arc<EngineShared>,
        request: AcquireRequest,
        queued_sender: Option<oneshot::Sender<QueuePosition>>,
    ) -> Result<Self, AcquireError> {
        let identity = AttemptIdentity::for_request(&request);
        let idempotency = identity.idempotency.as_ref().map(|it| it.hash);
        let slot = request.authorization.lease_slot(idempotency)?;
        let mut attempt = Self::identified(engine, request, identity, queued_sender);
        attempt.slot = slot;
        Ok(attempt)
    }

    /// Creates an attempt with an identity that was made before, and without a slot of the API key.
    pub(super) fn identified(
        engine: &Arc<EngineShared>,
        request: AcquireRequest,
        AttemptIdentity { token, idempotency }: AttemptIdentity,
        queued_sender: Option<oneshot::Sender<QueuePosition>>,
    ) -> Self {
        let waiting = Waiting {
            max_wait: request.wait,
            longest_queue: engine.most_waiters_per_name,
            supersedes: (request.terms.supersedes.as_ref())
                .map(|key| SupersedeHash::compute(key, &request.caller, &request.name)),
        };
        let started = Instant::now();
        let attempt = Attempt {
            name: request.name,
            token: token.hash(),
            terms: request.terms,
            idempotency,
            wait: (!request.wait.is_zero()).then_some(waiting),
        };
        Self {
            engine: Arc::clone(engine),
            attempt,
            token,
            repeatable: request.idempotency_key.map(|key| (request.caller, key)),
            wait: request.wait,
            authorization: request.authorization,
            by: request.by,
            slot: None,
            started,
            waits_since: started,
            goes_on: false,
            queued_sender,
            was_queued: false,
            is_part: false,
        }
    }

    /// The token by which the store identifies the attempt.
    pub(super) fn token(&self) -> TokenHash {
        self.attempt.token
    }

    /// The outcome of an attempt that does not wait.
    pub(super) async fn run_without_wait(&self) -> AcquireResult {
        let answer = self.engine.store.acquire(&self.attempt).await;
        let outcome = match self.decided(answer) {
            ControlFlow::Break(outcome) => outcome,
            ControlFlow::Continue(place) => Err(self.held(place.contention)),
        };
        self.record_outcome(outcome)
    }

    /// Waits for the lock and returns the outcome. `hung_up` ends when the caller has gone.
    ///
    /// Many attempts may wait at once, so the future must stay small while it waits: the commands of the
    /// store are boxed and freed before the wait.
    pub(super) async fn run_queued(&mut self, hung_up: impl Future<Output = ()>) -> AcquireResult {
        let mut hung_up = std::pin::pin!(hung_up);
        // The attempt is parked (registered for messages of other gateways) before it is sent to the store: the
        // message of its grant may arrive before the store's reply.
        let (name, token) = (self.attempt.name.clone(), self.attempt.token);
        let mut parked = self.engine.store.parking().park(name, token);
        loop {
            let answer = Box::pin(self.engine.store.acquire(&self.attempt)).await;
            let decided = match answer {
                // The attempt may have held the lock for a while before it was sent again, so little of the TTL may
                // be left.
                Ok(Acquisition::Granted(held)) if self.was_queued => {
                    let outcome = Box::pin(self.granted_after_wait(held)).await;
                    match Box::pin(self.or_resent(outcome, &mut parked)).await {
                        Some(outcome) => ControlFlow::Break(outcome),
                        None => continue,
                    }
                }
                answer => self.decided(answer),
            };
            let place = match decided {
                ControlFlow::Break(outcome) => return self.record_outcome(outcome),
                ControlFlow::Continue(place) => place,
            };
            self.queued(place, &mut parked);
            let interruption = self.wait_in_queue(&mut parked, hung_up.as_mut()).await;
            let handled = Box::pin(self.handle_interruption(interruption, &mut parked));
            let Some(outcome) = handled.await else {
                continue;
            };
            if !self.is_refused_again(&outcome) {
                self.engine.metrics.waited(self.waited(), outcome.is_ok());
            }
            self.reserve_position(&outcome, parked);
            return self.record_outcome(outcome);
        }
    }

    /// Turns a grant that is no longer valid into an error, and counts the outcome.
    fn record_outcome(&self, outcome: AcquireResult) -> AcquireResult {
        // If the grant is dropped and replaced by an error, its lease is released.
        let outcome = outcome.and_then(|granted| {
            if self.is_part {
                // The group checks the authorization and the expiry of all its leases together, once it is complete.
                Ok(granted)
            } else if !self.authorization.is_valid() {
                Err(AcquireError::Revoked)
            } else if granted.lease.held.left_at(Instant::now()).is_zero() {
                // The store's answer took so long that the granted lease has expired.
                Err(AcquireError::Store(Uncertainty::TimedOut.into()))
            } else {
                Ok(granted)
            }
        });
        if !self.is_refused_again(&outcome) {
            self.engine.metrics.acquired(acquire_outcome(&outcome));
        }
        outcome
    }

    /// Whether the attempt continued the wait of an earlier request and was refused like it: that request was counted
    /// already.
    fn is_refused_again(&self, outcome: &AcquireResult) -> bool {
        self.goes_on && matches!(outcome, Err(AcquireError::Held { .. }))
    }

    fn queued(&mut self, place: QueuePosition, parked: &mut Parked) {
        self.was_queued = true;
        // Only a request with an idempotency key can continue an earlier wait. A part of a group cannot, because a
        // group keeps no positions.
        let may_go_on = self.repeatable.is_some() && !self.is_part;
        if may_go_on && place.waited > self.started.elapsed() {
            self.goes_on = true;
            self.waits_since = before(place.waited);
            parked.waits_since(self.waits_since);
        }
        if let Some(queued_sender) = self.queued_sender.take() {
            if !self.goes_on {
                let fact = Fact::Queued(&self.attempt, &place);
                self.engine.facts.tell(&self.attempt.name, None, fact);
            }
            // Sending fails if the caller has gone, and then no task needs the position.
            drop(queued_sender.send(place));
        }
    }

    async fn wait_in_queue(
        &mut self,
        parked: &mut Parked,
        hung_up: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<News, WaitEnd> {
        let _waited = trace::child("wait in the queue", SpanKind::Internal);
        Err(tokio::select! {
            biased;
            // First, so that no grant is confirmed for a caller that has gone. The `leave` command finds a grant that
            // arrived before.
            () = hung_up => {
                self.engine.metrics.wait_abandoned();
                WaitEnd::HungUp
            }
            news = parked.news() => return Ok(news),
            () = sleep_until(self.wait_deadline()) => WaitEnd::WaitOver,
            () = self.engine.lifecycle.drained() => WaitEnd::Draining,
            () = self.authorization.revoked() => WaitEnd::Revoked,
        })
    }

    /// Handles a message about the attempt, or the end of its wait. `None`: the store has no position of the attempt,
    /// which must be sent again.
    async fn handle_interruption(
        &mut self,
        interruption: Result<News, WaitEnd>,
        parked: &mut Parked,
    ) -> Option<AcquireResult> {
        let outcome = match interruption {
            Ok(News::Granted(held)) => {
                self.engine.metrics.handed_over(false);
                self.granted_after_wait(held).await
            }
            Ok(News::Replaced) => Some(Err(AcquireError::Replaced)),
            Ok(News::NewerWaiter) => Some(Err(AcquireError::NewerWaiter)),
            Ok(News::GrantedProvisionally) => self.confirm().await,
            Ok(News::Forgotten) => None,
            Err(end) => Some(self.leave(&end, parked).await),
        };
        self.or_resent(outcome, parked).await
    }

    /// When the wait of the attempt is over.
    fn wait_deadline(&self) -> Instant {
        self.started + self.wait
    }

    /// Keeps the position at this gateway if the store did not answer. A caller that repeats its request within the
    /// reconnect grace finds the position, or the lease that was granted to it: until then the lease is not released.
    fn reserve_position(&self, outcome: &AcquireResult, parked: Parked) {
        let idempotency = self.attempt.idempotency.as_ref();
        let idempotency = idempotency.filter(|_| !self.is_part);
        let (Err(AcquireError::Store(_)), Some(idempotency)) = (outcome, idempotency) else {
            return;
        };
        let over = Instant::now() + self.engine.reconnect_grace;
        self.engine
            .reserved_positions
            .park(idempotency.hash, over, parked);
        let (stopped, engine) = (self.engine.lifecycle.stopped(), Arc::clone(&self.engine));
        self.engine.lifecycle.spawn_background(async move {
            tokio::select! {
                () = sleep_until(over) => engine.reserved_positions.remove_expired(),
                () = stopped => {}
            }
        });
    }

    /// Confirms to the store that a provisional grant has arrived here; `None` if the confirmation came too late.
    async fn confirm(&self) -> Option<AcquireResult> {
        let Attempt { name, token, .. } = &self.attempt;
        match Box::pin(self.engine.store.confirm(name, token)).await {
            Ok(Confirmation::Confirmed(held)) => {
                self.engine.metrics.handed_over(true);
                Box::pin(self.granted_after_wait(held)).await
            }
            Ok(Confirmation::Lost) => None,
            Ok(Confirmation::Replaced) => Some(Err(AcquireError::Replaced)),
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    /// Returns the outcome of an attempt, if there is one. Without an outcome the attempt has lost its position in
    /// the queue: `None` if the attempt must be sent again.
    async fn or_resent(
        &mut self,
        outcome: Option<AcquireResult>,
        parked: &mut Parked,
    ) -> Option<AcquireResult> {
        if outcome.is_some() {
            return outcome;
        }
        let left = self
            .wait_deadline()
            .saturating_duration_since(Instant::now());
        match &mut self.attempt.wait {
            Some(waiting) if !left.is_zero() => {
                waiting.max_wait = left;
                parked.rearm();
                None
            }
            // The `leave` command returns the current state from the store, which may have queued the attempt after
            // all.
            _ => Some(Box::pin(self.leave(&WaitEnd::WaitOver, parked)).await),
        }
    }

    async fn leave(&self, end: &WaitEnd, parked: &mut Parked) -> AcquireResult {
        let keep_for = self
            .attempt
            .idempotency
            .as_ref()
            .filter(|_| !self.is_part && !matches!(end, WaitEnd::Revoked))
            .map(|_| self.engine.reconnect_grace);
        let Attempt { name, token, .. } = &self.attempt;
        let mut left = Box::pin(self.engine.store.leave(name, token, keep_for)).await;
        // The attempt was granted the lock before it left the queue.
        if let Ok(Leaving::Granted(held)) = left {
            if matches!(end, WaitEnd::HungUp) {
                // The caller has gone, so the delivery guard releases the lease.
                return Ok(self.granted(held));
            }
            if let Some(outcome) = Box::pin(self.granted_after_wait(held)).await {
                return outcome;
            }
            left = Box::pin(self.engine.store.leave(name, token, keep_for)).await;
        }
        match left {
            // The grant that `leave` returned first is lost, and this grant may be lost, too: `record_outcome` checks
            // how much time is left.
            Ok(Leaving::Granted(held)) => Ok(self.granted(held)),
            Ok(Leaving::Replaced) => Err(AcquireError::Replaced),
            Ok(Leaving::NewerWaiter) => Err(AcquireError::NewerWaiter),
            // A newer request took over this attempt's position at the same time, and may have left the queue since.
            Ok(Leaving::Left(_)) if parked.try_news() == Some(News::Replaced) => {
                Err(AcquireError::Replaced)
            }
            Ok(Leaving::Left(contention)) => match end {
                WaitEnd::WaitOver | WaitEnd::HungUp => Err(self.held(contention)),
                WaitEnd::Draining => Err(AcquireError::Draining),
                WaitEnd::Revoked => Err(AcquireError::Revoked),
            },
            Err(error) => {
                if matches!(end, WaitEnd::HungUp) {
                    // The caller has gone, so no answer to a request logs this error.
                    info!(%name, %error, "a caller that hung up could not be taken out of the queue yet");
                }
                Err(self.failed(error))
            }
        }
    }
}

// === impl AttemptIdentity ===

impl AttemptIdentity {
    /// Makes the identity of a new attempt. Each call makes another token.
    pub(super) fn for_request(request: &AcquireRequest) -> Self {
        let Some(key) = &request.idempotency_key else {
            return Self {
                token: Token::random(),
                idempotency: None,
            };
        };
        let salt = Salt::random();
        Self {
            token: key.derive_token(&request.caller, &request.name, &salt),
            idempotency: Some(Idempotency {
                hash: key.hash(&request.caller, &request.name),
                fingerprint: request.terms.fingerprint(),
                salt,
            }),
        }
    }
}

/// The instant that lies `elapsed` before now; now if the clock does not reach back so far.
fn before(elapsed: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(elapsed).unwrap_or(now)
}

// === Metric outcomes ===
//
// Maps the results of operations to the outcomes that the metrics count.

/// The metrics outcome of a renewal or a release.
pub(super) fn lease_outcome<'a, T>(answer: &'a Result<T, StoreError>) -> LeaseOutcome
where
    LeaseOutcome: From<&'a T>,
{
    match answer {
        Ok(answer) => answer.into(),
        Err(StoreError::Unavailable(_)) => LeaseOutcome::Unavailable,
        Err(StoreError::Indeterminate(_)) => LeaseOutcome::Unknown,
        Err(StoreError::ForeignData { .. } | StoreError::FenceExhausted) => LeaseOutcome::Failed,
    }
}

/// The metrics outcome of an acquire.
fn acquire_outcome(answer: &Result<Granted, AcquireError>) -> AcquireOutcome {
    match answer {
        Ok(granted) if granted.delivery.is_replay() => AcquireOutcome::Again,
        Ok(_) => AcquireOutcome::Granted,
        Err(error) => failure_outcome(error),
    }
}

/// The metrics outcome of an acquire that did not get the lock.
pub(super) fn failure_outcome(error: &AcquireError) -> AcquireOutcome {
    match error {
        AcquireError::Held { .. } => AcquireOutcome::Held,
        AcquireError::TooManyWaiters
        | AcquireError::TooManyLeases(_)
        | AcquireError::Replaced
        | AcquireError::IdempotencyMismatch
        | AcquireError::IdempotencyExpired
        | AcquireError::Revoked
        | AcquireError::Unsupported(_)
        | AcquireError::NewerWaiter
        | AcquireError::ReservationOver
        | AcquireError::Draining => AcquireOutcome::Refused,
        AcquireError::Store(StoreError::Unavailable(_)) => AcquireOutcome::Unavailable,
        AcquireError::Store(StoreError::Indeterminate(_)) => AcquireOutcome::Unknown,
        AcquireError::Store(StoreError::ForeignData { .. } | StoreError::FenceExhausted) => {
            AcquireOutcome::Failed
        }
    }
}

// === impl LeaseOutcome ===

impl From<&Renewal> for LeaseOutcome {
    fn from(renewal: &Renewal) -> Self {
        match renewal {
            Renewal::Renewed(..) => Self::Done,
            Renewal::Adopted => Self::Adopted,
            Renewal::Lost(_) => Self::Lost,
        }
    }
}

impl From<&Release> for LeaseOutcome {
    fn from(release: &Release) -> Self {
        match release {
            Release::Released(_) => Self::Done,
            Release::Adopted(_) => Self::Adopted,
            Release::Lost(_) => Self::Lost,
        }
    }
}
