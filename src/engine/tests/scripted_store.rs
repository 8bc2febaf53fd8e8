//! A store for tests: gives scripted answers and records the commands.

use std::{
    collections::VecDeque,
    fmt::Debug,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    auth::Authorization,
    config::{HistoryConfig, LimitsConfig, Millis},
    engine::{
        AcquireError, AcquireRequest, AdoptError, Engine, Granted, Hold, HoldEnd, HoldEvent,
        LossReason,
    },
    lifecycle::Lifecycle,
    lock::{
        BreakTarget, CallerId, FencingToken, HeldLease, IdempotencyKey, Lease, LockName, Mode,
        RecipientId, ReleaseRequest, Terms, Token, TokenHash, Ttl,
    },
    store::{
        Partition, Store, StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, Contention, FenceCheck,
            FenceQuery, GiveBack, Holder, Inspection, Leaving, ListQuery, Loss, Page,
            QueuePosition, Release, Releaser, Renewal, RenewalTtl, Renewer, Requesting,
        },
        parking::{News, Parking},
    },
    telemetry::metrics::Metrics,
};

pub(super) const WAIT: Duration = Duration::from_secs(10);
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// A store that gives scripted answers and records the commands.
#[derive(Default)]
pub(in crate::engine) struct ScriptedStore {
    pub(in crate::engine) acquisitions: Mutex<VecDeque<Result<Acquisition, StoreError>>>,
    pub(super) give_back_errors: Mutex<VecDeque<StoreError>>,
    /// The scripted answers to the release of undelivered leases (`give_back`); by default such a release ends
    /// a lease.
    pub(super) give_backs: Mutex<VecDeque<GiveBack>>,
    /// The recipients that released an unanswered lease.
    pub(super) unanswered: Mutex<Vec<(LockName, TokenHash, RecipientId)>>,
    pub(super) given_back: Mutex<Vec<TokenHash>>,
    pub(super) given_back_names: Mutex<Vec<LockName>>,
    pub(super) released: Mutex<Vec<TokenHash>>,
    /// Who released these leases, in the same order.
    pub(super) releasers: Mutex<Vec<Releaser>>,
    pub(super) release_errors: Mutex<VecDeque<StoreError>>,
    /// The recipient that has adopted the lease: a stream, or an attempt that was answered it again. `None`: the
    /// attempt that was granted the lease keeps it.
    pub(super) adopted_by: Mutex<Option<RecipientId>>,
    /// The scripted answers to the command `leave`; by default the attempt has left.
    leavings: Mutex<VecDeque<Result<Leaving, StoreError>>>,
    /// The attempts that left the queue, and for how long their positions are kept.
    pub(super) left: Mutex<Vec<(TokenHash, Option<Duration>)>>,
    pub(super) confirmations: Mutex<VecDeque<Result<Confirmation, StoreError>>>,
    /// The scripted answers to the command `renew`; by default the lease is renewed.
    pub(super) renewals: Mutex<VecDeque<Result<Renewal, StoreError>>>,
    /// The scripted answers to the command `release`; by default the lease is lost.
    pub(super) releases: Mutex<VecDeque<Release>>,
    pub(super) renewals_asked: Mutex<usize>,
    /// The locks that the store was asked to renew, and the TTLs.
    pub(super) renewed: Mutex<Vec<(LockName, Option<Ttl>)>>,
    /// The locks whose next renewal finds the lease lost.
    pub(super) lost: Mutex<Vec<LockName>>,
    renewals_hang: AtomicBool,
    renewals_panic: AtomicBool,
    /// How long the store takes to answer `confirm`.
    confirm_takes: Mutex<Duration>,
    pub(super) attempts: Mutex<Vec<Attempt>>,
    pub(super) parking: Parking,
    /// How long the store takes to answer a renewal.
    pub(super) renewals_take: Mutex<Duration>,
    pub(super) breaks: BreakFeed,
    /// The scripted answers to the command `break`; by default the lock has no holder.
    pub(super) breakings: Mutex<VecDeque<Result<Breaking, StoreError>>>,
    /// The leases that the store was asked to break.
    pub(super) broken: Mutex<Vec<Option<BreakTarget>>>,
    pub(super) breaks_asked: Mutex<usize>,
    /// The holder that the command `inspect` shows.
    pub(in crate::engine) holder: Mutex<Option<Holder>>,
    /// The scripted answers to the command `check_fence`; by default as `inspect` says.
    pub(super) checks: Mutex<VecDeque<Result<FenceCheck, StoreError>>>,
    /// How often inspect was called; the next field says how many of the next calls fail.
    pub(in crate::engine) inspected: Mutex<usize>,
    pub(in crate::engine) inspect_errors: Mutex<usize>,
    /// The gate at which `inspect` waits until the test lets it pass.
    pub(in crate::engine) inspect_gate: Gate,
    pub(super) requested: Mutex<Vec<(Option<BreakTarget>, ReleaseRequest)>>,
    pub(in crate::engine) requestings: Mutex<VecDeque<Result<Requesting, StoreError>>>,
    /// The scripted answers to the command `list`; by default the page is empty.
    pub(super) pages: Mutex<VecDeque<Result<Page, StoreError>>>,
    /// The gate at which commands wait until the test lets them pass.
    pub(super) gate: Gate,
    pub(super) changed: Notify,
}

/// A gate that commands pass one by one. It has 100 permits unless the test changes them.
pub(in crate::engine) struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(100))
    }
}

impl Deref for Gate {
    type Target = Semaphore;

    fn deref(&self) -> &Semaphore {
        &self.0
    }
}

impl ScriptedStore {
    pub(in crate::engine) fn answering(acquisition: Result<Acquisition, StoreError>) -> Arc<Self> {
        Arc::new(Self {
            acquisitions: Mutex::new([acquisition].into()),
            ..Self::default()
        })
    }

    /// A store that queues the first attempt; the test then sends messages to the attempt with `tell`.
    pub(super) fn queueing() -> Arc<Self> {
        Self::answering(Ok(queued()))
    }

    /// Sets the answer for the next attempt that leaves the queue.
    pub(super) fn answering_leave(
        self: Arc<Self>,
        answer: Result<Leaving, StoreError>,
    ) -> Arc<Self> {
        self.leavings.lock().push_back(answer);
        self
    }

    /// Tells the last attempt of its grant or of another change (`news`).
    pub(super) fn tell(&self, news: News) {
        let attempts = self.attempts.lock();
        let Attempt { name, token, .. } = attempts.last().unwrap();
        let delivered = self.parking.deliver(name, token, news);
        assert!(delivered, "nobody waits for news");
    }

    /// Makes all later renewals hang without an answer.
    pub(super) fn hang_renewals(&self) {
        self.renewals_hang.store(true, Ordering::Relaxed);
    }

    /// Makes all later renewals panic.
    pub(super) fn panic_on_renewals(&self) {
        self.renewals_panic.store(true, Ordering::Relaxed);
    }

    /// Delays all later confirmations by this time.
    pub(super) fn hang_confirmations(&self, late: Duration) {
        *self.confirm_takes.lock() = late;
    }

    /// Makes all commands wait until [`ScriptedStore::open_gate`] is called.
    pub(super) fn with_closed_gate(self: Arc<Self>) -> Arc<Self> {
        self.gate.forget_permits(100);
        self
    }

    pub(super) fn open_gate(&self) {
        self.gate.add_permits(100);
    }

    async fn pass_gate(&self) {
        self.gate.acquire().await.unwrap().forget();
    }

    fn finds_lost(&self, name: &LockName) -> bool {
        let mut lost = self.lost.lock();
        let at = lost.iter().position(|lost| lost == name);
        at.map(|at| lost.remove(at)).is_some()
    }

    pub(super) fn given_back(&self) -> usize {
        self.given_back.lock().len()
    }

    pub(super) async fn until_given_back(&self) -> TokenHash {
        loop {
            let changed = self.changed.notified();
            if let Some(token) = self.given_back.lock().first() {
                return *token;
            }
            changed.await;
        }
    }
}

#[async_trait]
impl Store for ScriptedStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        self.attempts.lock().push(attempt.clone());
        let answer = next(&self.acquisitions);
        self.pass_gate().await;
        answer.expect("the test says what acquire answers")
    }

    async fn confirm(&self, _: &LockName, _: &TokenHash) -> Result<Confirmation, StoreError> {
        let takes = *self.confirm_takes.lock();
        tokio::time::sleep(takes).await;
        next(&self.confirmations).expect("the test says what confirm answers")
    }

    async fn leave(
        &self,
        _name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        self.left.lock().push((*token, keep_for));
        self.changed.notify_waiters();
        self.pass_gate().await;
        next(&self.leavings).unwrap_or(Ok(Leaving::Left(contention())))
    }

    fn parking(&self) -> &Parking {
        &self.parking
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        _token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        *self.renewals_asked.lock() += 1;
        self.renewed.lock().push((name.clone(), ttl.asked));
        if self.finds_lost(name) {
            return Ok(Renewal::Lost(Loss::Free));
        }
        assert!(!self.renewals_panic.load(Ordering::Relaxed), "as asked for");
        match renewer {
            Renewer::Bearer => {}
            Renewer::Recipient(recipient) => {
                let keeps = *self.adopted_by.lock();
                if keeps.is_some_and(|adopter| adopter != recipient) {
                    return Ok(Renewal::Adopted);
                }
            }
            Renewer::Adopter(recipient) => *self.adopted_by.lock() = Some(recipient),
        }
        if self.renewals_hang.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let answer = next(&self.renewals);
        let takes = *self.renewals_take.lock();
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        answer.unwrap_or(Ok(Renewal::Renewed(held(), Duration::ZERO)))
    }

    async fn release_as(
        &self,
        releaser: Releaser,
        _name: &LockName,
        token: &TokenHash,
        _granted_here: bool,
    ) -> Result<Release, StoreError> {
        self.pass_gate().await;
        if let Some(error) = next(&self.release_errors) {
            return Err(error);
        }
        let (recipient, keeps) = (releaser.recipient(), *self.adopted_by.lock());
        if let (Some(_), Some(keeps)) = (recipient, keeps.filter(|keeps| Some(*keeps) != recipient))
        {
            return Ok(Release::Adopted(keeps));
        }
        self.released.lock().push(*token);
        self.releasers.lock().push(releaser);
        self.changed.notify_waiters();
        Ok(next(&self.releases).unwrap_or(Release::Lost(Loss::Free)))
    }

    fn partition(&self, name: &LockName) -> Partition {
        Partition::one_of(if is_away(name) { 1 } else { 2 })
    }

    async fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError> {
        if let Some(recipient) = unanswered {
            self.unanswered
                .lock()
                .push((name.clone(), *token, recipient));
        }
        if is_away(name) {
            std::future::pending::<()>().await;
        }
        self.pass_gate().await;
        if let Some(error) = next(&self.give_back_errors) {
            return Err(error);
        }
        self.given_back.lock().push(*token);
        self.given_back_names.lock().push(name.clone());
        self.changed.notify_waiters();
        Ok(next(&self.give_backs).unwrap_or(GiveBack::GivenBack))
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection, StoreError> {
        *self.inspected.lock() += 1;
        drop(self.inspect_gate.acquire().await.unwrap());
        let mut errors = self.inspect_errors.lock();
        if *errors > 0 {
            *errors -= 1;
            return Err(Uncertainty::TimedOut.into());
        }
        Ok(Inspection {
            holder: self.holder.lock().clone(),
            queue: Vec::new(),
            waiters: 0,
        })
    }

    async fn check_fence(&self, query: &FenceQuery) -> Result<FenceCheck, StoreError> {
        if let Some(answer) = next(&self.checks) {
            return answer;
        }
        let holder = self.inspect(&query.name).await?.holder;
        let mut leases = holder.iter().flat_map(Holder::leases);
        let held = leases.find(|lease| lease.fence == query.fence);
        Ok(
            held.map_or(FenceCheck::Stale { is_outrun: false }, |lease| {
                let (left, as_of) = (lease.expires_in, Instant::now());
                FenceCheck::Held { left, as_of }
            }),
        )
    }

    async fn list(&self, _query: &ListQuery) -> Result<Page, StoreError> {
        next(&self.pages).unwrap_or(Ok(Page {
            locks: Vec::new(),
            next: None,
        }))
    }

    async fn break_lock(
        &self,
        _name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        *self.breaks_asked.lock() += 1;
        self.pass_gate().await;
        self.broken.lock().push(target);
        self.changed.notify_waiters();
        next(&self.breakings).unwrap_or(Ok(Breaking::NotHeld))
    }

    async fn request_release(
        &self,
        _name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        self.pass_gate().await;
        self.requested.lock().push((target, request.clone()));
        self.changed.notify_waiters();
        next(&self.requestings).unwrap_or(Ok(Requesting::NotHeld))
    }

    fn breaks(&self) -> &BreakFeed {
        &self.breaks
    }

    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    async fn close(&self) {}

    fn describe(&self) -> String {
        "scripted".to_owned()
    }
}

/// Takes the next scripted answer of a command, if there is one.
fn next<T>(answers: &Mutex<VecDeque<T>>) -> Option<T> {
    answers.lock().pop_front()
}

/// The first characters of locks at a partition of the store that never answers a release.
pub(super) const AWAY: &str = "away";

fn is_away(name: &LockName) -> bool {
    name.as_str().starts_with(AWAY)
}

/// The TTL of every lease of the scripted store.
pub(super) fn ttl() -> Ttl {
    Ttl::from_millis(30_000).unwrap()
}

/// How long the time of a scripted lease stands still, so that the lease has the time left that the test says.
const STANDS: Duration = Duration::from_hours(24);

pub(in crate::engine) fn held() -> HeldLease {
    let (fence, as_of) = (FencingToken::new(7).unwrap(), Instant::now() + STANDS);
    Terms::lasting(ttl()).granted(fence, Mode::Exclusive, as_of)
}

pub(super) fn contention() -> Contention {
    Contention {
        holder: None,
        waiters: 3,
    }
}

pub(super) fn queued() -> Acquisition {
    Acquisition::Queued(QueuePosition {
        ahead: 2,
        waited: Duration::ZERO,
        contention: contention(),
    })
}

pub(in crate::engine) fn granted() -> Acquisition {
    Acquisition::Granted(held())
}

pub(super) fn away() -> StoreError {
    Unavailability::Connect("refused".to_owned()).into()
}

pub(super) fn unknown() -> StoreError {
    StoreError::Indeterminate(Uncertainty::TimedOut)
}

pub(in crate::engine) fn engine(store: &Arc<ScriptedStore>) -> (Engine, Lifecycle) {
    let lifecycle = Lifecycle::new();
    let limits = LimitsConfig {
        reconnect_grace_ms: Millis(u64::try_from(GRACE.as_millis()).unwrap()),
        ..LimitsConfig::default()
    };
    // Without a history the store is asked nothing that a test does not cause.
    let history = HistoryConfig {
        entries: 0,
        ..HistoryConfig::default()
    };
    let store = Arc::clone(store);
    let metrics = Metrics::default();
    (
        Engine::start(store, lifecycle.clone(), &limits, &history, metrics),
        lifecycle,
    )
}

/// A store, and an engine on it.
pub(in crate::engine) fn engine_on(store: Arc<ScriptedStore>) -> (Arc<ScriptedStore>, Engine) {
    let (engine, _lifecycle) = engine(&store);
    (store, engine)
}

pub(in crate::engine) fn request(key: Option<&str>) -> AcquireRequest {
    AcquireRequest {
        name: name(),
        terms: Terms::lasting(Ttl::MAX),
        wait: Duration::ZERO,
        caller: CallerId::ANONYMOUS,
        authorization: Authorization::default(),
        idempotency_key: key.map(|key| IdempotencyKey::new(key).unwrap()),
        by: None,
    }
}

pub(super) fn waiting_request(key: Option<&str>) -> AcquireRequest {
    AcquireRequest {
        wait: WAIT,
        ..request(key)
    }
}

pub(in crate::engine) fn name() -> LockName {
    LockName::new("job").unwrap()
}

pub(super) const KEY: Option<&str> = Some("5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11");

/// Lets every task run that can, without time passing.
pub(in crate::engine) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Starts a call, and lets it do what it can at once. Its caller stays until the handle is aborted.
pub(super) async fn start<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the caller of a test is no task of the program"
    )]
    let caller = tokio::spawn(call);
    settle().await;
    caller
}

/// Starts an acquire, and lets it do what it can at once. Its caller stays until the handle is aborted.
pub(super) async fn start_acquire(
    engine: &Engine,
    request: AcquireRequest,
) -> JoinHandle<Result<Granted, AcquireError>> {
    start(engine.acquire_with_queued_hook(request, || {})).await
}

/// Checks the variant of a value by the first characters of its `Debug` text.
#[track_caller]
pub(super) fn assert_is(it: &impl Debug, begin: &str) {
    let text = format!("{it:?}");
    assert!(text.starts_with(begin), "{text}");
}

/// Adopts a lease for a caller that is always authorized.
pub(super) async fn adopt(engine: &Engine, token: Token) -> Result<Hold, AdoptError> {
    engine.adopt(name(), token, Authorization::default()).await
}

/// A stream that has adopted a lease, and the grant that it announced.
pub(super) async fn adopted(engine: &Engine, token: &Token) -> (Hold, Lease) {
    let mut hold = adopt(engine, token.clone()).await.unwrap();
    let lease = next_grant(&mut hold).await;
    (hold, lease)
}

/// The grant that a stream announces next.
pub(super) async fn next_grant(hold: &mut Hold) -> Lease {
    match hold.next().await {
        Some(HoldEvent::Granted(lease)) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// How a stream ends, and how many renewals it announces before.
pub(super) async fn end_of(hold: &mut Hold) -> (HoldEnd, usize) {
    let mut renewals = 0;
    loop {
        match hold.next().await {
            Some(HoldEvent::Renewed(_)) => renewals += 1,
            Some(HoldEvent::Ended(end)) => {
                let more = hold.next().await;
                assert!(more.is_none(), "after the last event: {more:?}");
                return (end, renewals);
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
}

/// Why a stream loses its lease, and how many renewals it announces before.
pub(super) async fn loss_of(hold: &mut Hold) -> (LossReason, usize) {
    match end_of(hold).await {
        (HoldEnd::Lost(reason), renewals) => (reason, renewals),
        other => panic!("not lost: {other:?}"),
    }
}
