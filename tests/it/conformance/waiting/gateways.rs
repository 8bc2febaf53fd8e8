//! The gateways of a case, and callers that wait there.

use tokio::task::JoinHandle;

use crate::{conformance::prelude::*, redis::prelude::request_by};

/// Longer than any immediate effect takes, also on a machine that does other work.
pub(crate) const LATE: Duration = Duration::from_mins(1);

/// An engine for each handle to the store.
pub(crate) struct Gateways {
    engines: Vec<Engine>,
    stores: Vec<AnyStore>,
    next: AtomicUsize,
    /// How to repeat the random choices of the case; empty if there are none.
    how_to_repeat: String,
}

/// A caller that waits for the answer to its acquire.
pub(crate) struct Caller(JoinHandle<Result<Granted, AcquireError>>);

/// A request of this owner for a shared lease, with a long wait.
pub(crate) fn sharing(limit: Option<u64>, owner: &str) -> AcquireRequest {
    with(request("lock", owner), |it| {
        it.terms.sharing = Some(share(limit));
    })
}

/// A request of this owner for an exclusive lease, with a long wait.
pub(crate) fn request(lock: &str, owner: &str) -> AcquireRequest {
    with(request_by(lock, owner), |it| it.terms.set_ttl(ttl(LONG)))
}

// === impl Gateways ===

impl Gateways {
    pub(crate) fn start(fixture: &dyn Fixture) -> Self {
        Self::with(fixture, &LimitsConfig::default())
    }

    /// Gateways, and an exclusive lease that holds `lock`.
    pub(crate) async fn holding(fixture: &dyn Fixture) -> (Self, Lease) {
        Self::holding_as(fixture, request("lock", "first holder")).await
    }

    /// Gateways, and the lease of this request.
    pub(crate) async fn holding_as(
        fixture: &dyn Fixture,
        request: AcquireRequest,
    ) -> (Self, Lease) {
        let gateways = Self::start(fixture);
        let lease = gateways.hold_as(request).await;
        (gateways, lease)
    }

    /// Gateways that keep a position for `ms` milliseconds.
    pub(crate) fn with_grace(fixture: &dyn Fixture, ms: u64) -> Self {
        let limits = with(LimitsConfig::default(), |it| {
            it.reconnect_grace_ms = Millis(ms);
        });
        Self::with(fixture, &limits)
    }

    pub(crate) fn with(fixture: &dyn Fixture, limits: &LimitsConfig) -> Self {
        let stores = fixture.gateways();
        let engines = stores.iter().map(|store| {
            let (lifecycle, history) = (Lifecycle::new(), HistoryConfig::default());
            Engine::start(
                store.clone(),
                lifecycle,
                limits,
                &history,
                Metrics::default(),
            )
        });
        Self {
            engines: engines.collect(),
            stores,
            next: AtomicUsize::new(0),
            how_to_repeat: String::new(),
        }
    }

    /// The gateways for random choices: their failures say how to repeat the run.
    pub(crate) fn seeded(self, random: &Random) -> Self {
        Self {
            how_to_repeat: random.how_to_repeat(),
            ..self
        }
    }

    /// The next gateway in turn.
    pub(crate) fn any(&self) -> &Engine {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.engines[turn % self.engines.len()]
    }

    /// Acquires a lock without a wait. The lock must be granted.
    pub(crate) async fn hold(&self, lock: &str) -> Lease {
        self.hold_as(request(lock, "first holder")).await
    }

    /// Acquires the lock of a request without a wait. The lock must be granted.
    pub(crate) async fn hold_as(&self, request: AcquireRequest) -> Lease {
        let request = with(request, |it| it.wait = Duration::ZERO);
        let granted = self.any().acquire(request).await.unwrap();
        granted.delivery.delivered();
        granted.lease
    }

    /// Acquires the lock of each request without a wait. All must be granted.
    pub(crate) async fn hold_each<const N: usize>(
        &self,
        requests: [AcquireRequest; N],
    ) -> [Lease; N] {
        let mut held = Vec::new();
        for request in requests {
            held.push(self.hold_as(request).await);
        }
        held.try_into().expect("a lease of each")
    }

    /// Starts an acquire at the next gateway in turn.
    pub(crate) fn ask(&self, request: AcquireRequest) -> Caller {
        self.ask_telling(request, || {})
    }

    /// Starts an acquire, and calls `queued` when the request is known to wait.
    pub(crate) fn ask_telling(
        &self,
        request: AcquireRequest,
        queued: impl FnOnce() + Send + 'static,
    ) -> Caller {
        let engine = self.any().clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "the caller of a test is no task of the program"
        )]
        Caller(tokio::spawn(async move {
            engine.acquire_with_queued_hook(request, queued).await
        }))
    }

    /// Starts an acquire and waits until it is in the queue as the last of `waiters`.
    pub(crate) async fn queue(&self, request: AcquireRequest, waiters: u64) -> Caller {
        let lock = request.name.as_str().to_owned();
        let caller = self.ask(request);
        self.queued(&lock, waiters).await;
        caller
    }

    /// Starts these acquires, so that they are the queue, in this order.
    pub(crate) async fn queue_each(
        &self,
        requests: impl IntoIterator<Item = AcquireRequest>,
    ) -> Vec<Caller> {
        let mut callers = Vec::new();
        for (waiters, request) in (1..).zip(requests) {
            callers.push(self.queue(request, waiters).await);
        }
        callers
    }

    /// Starts `callers` acquires of `lock` and waits until all are in the queue, in any order.
    pub(crate) async fn crowd(&self, callers: u64, request: &AcquireRequest) -> Vec<Caller> {
        let crowd = (0..callers).map(|_| self.ask(request.clone())).collect();
        self.queued("lock", callers).await;
        crowd
    }

    /// Waits until the lock has this number of waiters.
    pub(crate) async fn queued(&self, lock: &str, waiters: u64) {
        let what = format!("{waiters} are queued for {lock}");
        until(&what, async || self.shown(lock).await.waiters == waiters).await;
    }

    /// Waits until this many attempts are parked at all gateways together: the others have left.
    pub(crate) async fn parked(&self, attempts: usize) {
        eventually(&format!("{attempts} attempts are parked"), async || {
            let parked = self.stores.iter().map(|store| store.parking().len());
            (parked.sum::<usize>() == attempts).then_some(())
        })
        .await;
    }

    /// Breaks the connection of a caller, and waits until its attempt has left, so that `left` are parked.
    pub(crate) async fn hang_up(&self, caller: Caller, left: usize) {
        caller.hang_up();
        self.parked(left).await;
    }

    /// Waits until the lock has neither holder nor waiters.
    pub(crate) async fn idle(&self, lock: &str) {
        self.idle_after(lock, async |_owner| {}).await;
    }

    /// Waits until the lock has neither holder nor waiters. Until then, `see_to` is called repeatedly with the owner of
    /// the lease that holds the lock.
    pub(crate) async fn idle_after(&self, lock: &str, see_to: impl AsyncFn(&Owner)) {
        let deadline = Instant::now() + LATE;
        loop {
            let shown = self.shown(lock).await;
            if shown.holder.is_none() && shown.waiters == 0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{lock} is held or waited for still: {shown:?} {}",
                self.how_to_repeat
            );
            if let Some(Holder::Lease(held)) = &shown.holder
                && let Some(owner) = &held.said.owner
            {
                see_to(owner).await;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn shown(&self, lock: &str) -> Inspection {
        self.any().inspect(&name(lock)).await.unwrap()
    }

    /// The owner of the exclusive lease that holds the lock.
    pub(crate) async fn holder(&self, lock: &str) -> Option<Owner> {
        match self.shown(lock).await.holder {
            Some(Holder::Lease(held)) => held.said.owner,
            Some(Holder::Shared(_) | Holder::Foreign { .. }) => {
                panic!("{lock} is held by a foreign client")
            }
            None => None,
        }
    }

    /// The owners of the leases that hold `lock`, in alphabetical order.
    pub(crate) async fn owners(&self) -> Vec<String> {
        let holder = self.shown("lock").await.holder;
        let leases = holder.as_ref().map_or(&[][..], Holder::leases);
        let owners = leases.iter().filter_map(|lease| lease.said.owner.as_ref());
        let mut owners: Vec<_> = owners.map(|owner| owner.as_str().to_owned()).collect();
        owners.sort_unstable();
        owners
    }

    pub(crate) async fn release(&self, lock: &str, token: &Token) {
        self.any()
            .release(name(lock), token.hash(), None)
            .await
            .unwrap();
    }

    /// Releases `lock`, which must be handed to this caller.
    pub(crate) async fn pass(&self, lease: &Lease, to: Caller) -> Lease {
        self.release("lock", &lease.token).await;
        to.granted().await
    }

    /// Releases `lock`, and waits until it has neither holder nor waiters.
    pub(crate) async fn end(&self, lease: &Lease) {
        self.release("lock", &lease.token).await;
        self.idle("lock").await;
    }
}

/// Waits until each of these callers has been granted the lock, one after the other.
pub(crate) async fn all_granted(callers: impl IntoIterator<Item = Caller>) -> Vec<Lease> {
    let mut held = Vec::new();
    for caller in callers {
        held.push(caller.granted().await);
    }
    held
}

// === impl Caller ===

impl Caller {
    /// Waits for the grant, and delivers it.
    pub(crate) async fn granted(self) -> Lease {
        let granted = self.answer().await.unwrap();
        granted.delivery.delivered();
        granted.lease
    }

    /// Waits for a refusal.
    pub(crate) async fn refused(self) -> AcquireError {
        self.answer().await.unwrap_err()
    }

    /// Waits for a refusal because the lock is held.
    pub(crate) async fn held(self) -> Contention {
        match self.refused().await {
            AcquireError::Held { contention, .. } => contention,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a refusal because of a newer request with the same key.
    pub(crate) async fn replaced(self) {
        let error = self.refused().await;
        assert!(matches!(error, AcquireError::Replaced), "{error:?}");
    }

    pub(crate) async fn answer(self) -> Result<Granted, AcquireError> {
        let answer = timeout(LATE, self.0).await;
        answer.expect("an answer comes in time").unwrap()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }

    /// Breaks the connection: the answer is no longer awaited.
    pub(crate) fn hang_up(self) {
        self.0.abort();
    }
}

/// A new idempotency key.
pub(crate) fn new_key() -> IdempotencyKey {
    let bytes: [u8; 16] = *token().as_bytes().first_chunk().expect("a hash is longer");
    IdempotencyKey::new(&format!("{:032x}", u128::from_be_bytes(bytes))).unwrap()
}
