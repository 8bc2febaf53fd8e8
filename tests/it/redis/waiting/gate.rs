//! A gateway on a server that several gateways share, and its callers.

use std::ops::Deref;

use tokio::sync::oneshot;

use crate::redis::prelude::*;

/// A gateway for a test. It has the methods of its store beside its own.
pub(crate) struct TestGateway {
    pub(crate) store: Arc<RedisStore>,
    pub(crate) engine: Engine,
    pub(crate) lifecycle: Lifecycle,
}

/// An acquire whose outcome is awaited; dropping it hangs up.
pub(crate) struct PendingAcquire {
    outcome: oneshot::Receiver<(Instant, Result<Granted, AcquireError>)>,
}

/// How long these gateways keep the position of a waiter with an idempotency key.
pub(crate) const GRACE: Duration = Duration::from_millis(1_500);
/// Ten times a period and a second, for a busy machine.
pub(crate) const NOTICED: Duration = Duration::from_secs(30);
/// The longest wait for an effect without a message: several periods of two seconds.
pub(crate) const LONG: Duration = Duration::from_mins(1);

// === impl TestGateway ===

impl TestGateway {
    /// A gateway whose subscription is already open.
    pub(crate) async fn on(server: &RedisServer) -> Self {
        let before = subscribers(server).await;
        let gate = Self::at(&server.url());
        let is_so = async || subscribers(server).await > before;
        until("the gateway listens", is_so).await;
        gate
    }

    /// A gateway that reaches its server by this URL.
    pub(crate) fn at(url: &ServersUrl) -> Self {
        Self::with(url, &quick())
    }

    pub(crate) fn with(url: &ServersUrl, config: &RedisConfig) -> Self {
        let lifecycle = Lifecycle::new();
        let store = Arc::new(open_in(url, config, &lifecycle));
        let limits = with(LimitsConfig::default(), |it| {
            it.reconnect_grace_ms = Millis(u64::try_from(GRACE.as_millis()).unwrap());
        });
        let (of, metrics) = (store.clone(), Metrics::default());
        let engine = Engine::start(
            of,
            lifecycle.clone(),
            &limits,
            &HistoryConfig::default(),
            metrics,
        );
        Self {
            store,
            engine,
            lifecycle,
        }
    }

    /// Ends the gateway like a killed process: its waiters do not leave their queues.
    pub(crate) async fn kill(&self) {
        self.store.close().await;
    }

    /// Acquires a free lock for half a minute.
    pub(crate) async fn take(&self, lock: &str) -> Lease {
        self.take_for(lock, 30_000).await
    }

    pub(crate) async fn take_for(&self, lock: &str, ttl_ms: u64) -> Lease {
        let asked = at_once(with(request(lock), |it| it.terms.set_ttl(ttl(ttl_ms))));
        keep(self.engine.acquire(asked).await)
    }

    /// Starts an acquire of a held lock, and returns when the request is in the queue.
    pub(crate) async fn queue(&self, request: AcquireRequest) -> PendingAcquire {
        let (queued, told) = oneshot::channel();
        let asked = self.ask_telling(request, move || {
            // An error means that the test no longer waits for this.
            let _ = queued.send(());
        });
        // The length of the queue would not show it: other waiters may leave meanwhile.
        let told = timeout(LONG, told).await;
        told.expect("the store answers").expect("it waits");
        asked
    }

    /// Starts an acquire.
    pub(crate) fn ask(&self, request: AcquireRequest) -> PendingAcquire {
        self.ask_telling(request, || {})
    }

    /// Starts an acquire, and calls `queued` when the request is known to wait.
    fn ask_telling(
        &self,
        request: AcquireRequest,
        queued: impl FnOnce() + Send + 'static,
    ) -> PendingAcquire {
        let engine = self.engine.clone();
        let (mut answer, outcome) = oneshot::channel();
        self.lifecycle.spawn(async move {
            let result = tokio::select! {
                result = engine.acquire_with_queued_hook(request, queued) => result,
                () = answer.closed() => return,
            };
            drop(answer.send((Instant::now(), result)));
        });
        PendingAcquire { outcome }
    }

    /// Makes this many requests enter the queue, in groups: a busy machine would refuse some of a larger number at
    /// once.
    pub(crate) async fn crowd(&self, lock: &str, many: usize) -> Vec<PendingAcquire> {
        let before = self.look(lock).await.waiters;
        let mut crowd = Vec::new();
        while crowd.len() < many {
            let group = (many - crowd.len()).min(250);
            let patient = || with(request(lock), |it| it.wait = Duration::from_mins(5));
            crowd.extend((0..group).map(|_| self.ask(patient())));
            self.until_queued(lock, before + crowd.len() as u64).await;
        }
        crowd
    }

    pub(crate) async fn release(&self, lease: &Lease) {
        let released = self.store.release(&lease.name, &lease.token.hash()).await;
        assert!(matches!(released, Ok(Release::Released(_))));
    }

    /// Releases a lease. The lock must be handed to this waiter.
    pub(crate) async fn pass(&self, lease: &Lease, to: PendingAcquire) -> Lease {
        self.release(lease).await;
        to.lease().await
    }

    pub(crate) async fn look(&self, lock: &str) -> Inspection {
        let name = name(lock);
        // On a busy machine an inspection may take longer than one command may.
        eventually("it is looked at", async || {
            match self.store.inspect(&name).await {
                Ok(seen) => Some(seen),
                Err(
                    StoreError::Indeterminate(Uncertainty::TimedOut)
                    | StoreError::Unavailable(Unavailability::Overloaded),
                ) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await
    }

    /// Waits until a lock has this number of waiters.
    pub(crate) async fn until_queued(&self, lock: &str, waiters: u64) {
        let is_so = async || self.look(lock).await.waiters == waiters;
        until("the queue has this length", is_so).await;
    }
}

impl Deref for TestGateway {
    type Target = RedisStore;

    fn deref(&self) -> &RedisStore {
        &self.store
    }
}

// === impl PendingAcquire ===

impl PendingAcquire {
    /// Waits for the grant. Answers the lease.
    #[track_caller]
    pub(crate) fn lease(self) -> impl Future<Output = Lease> {
        let outcome = self.outcome();
        async move { keep(outcome.await.1) }
    }

    /// Waits for the answer. Answers its time, too.
    pub(crate) async fn outcome(self) -> (Instant, Result<Granted, AcquireError>) {
        let outcome = timeout(LONG, self.outcome).await;
        let outcome = outcome.expect("it is answered in time");
        outcome.expect("the gateway answers")
    }

    /// Waits for the grant. Answers its time and the lease.
    pub(crate) async fn granted(self) -> (Instant, Lease) {
        let (at, outcome) = self.outcome().await;
        (at, keep(outcome))
    }

    /// Waits for the grant, which must come within a few periods. Answers the lease.
    pub(crate) async fn noticed_since(self, start: Instant) -> Lease {
        let (at, lease) = self.granted().await;
        assert!(at - start < NOTICED, "{:?}", at - start);
        lease
    }

    /// Waits for a refusal. Answers the error.
    pub(crate) async fn refusal(self) -> AcquireError {
        self.outcome().await.1.expect_err("it is refused")
    }
}

/// Acquires a lock as soon as the store is ready to grant it.
pub(crate) async fn until_taken(gate: &TestGateway, lock: &str, ttl_ms: u64) -> Lease {
    let asked = at_once(with(request(lock), |it| it.terms.set_ttl(ttl(ttl_ms))));
    let ask = async || gate.engine.acquire(asked.clone()).await.ok();
    keep(Ok(eventually("it is granted", ask).await))
}

/// A request for half a minute, with a long wait.
pub(crate) fn request(lock: &str) -> AcquireRequest {
    new_request(lock, ttl(30_000), Duration::from_secs(50))
}

/// The request without a wait.
pub(crate) fn at_once(request: AcquireRequest) -> AcquireRequest {
    with(request, |it| it.wait = Duration::ZERO)
}

pub(crate) fn request_by(lock: &str, owner: &str) -> AcquireRequest {
    with(request(lock), |it| {
        it.terms.said.owner = Some(Owner::new(owner).unwrap());
    })
}

/// A request with an idempotency key that is made from a short text.
pub(crate) fn keyed_request(lock: &str, key: &str) -> AcquireRequest {
    let key = format!("{key:_>36}");
    with(request(lock), |it| {
        it.idempotency_key = Some(IdempotencyKey::new(&key).unwrap());
    })
}

/// An attempt that waits in the queue, for use without an engine.
pub(crate) fn waiting(attempt: Attempt) -> Attempt {
    Attempt {
        wait: Some(Waiting {
            max_wait: Duration::from_secs(50),
            longest_queue: 10_000,
            supersedes: None,
        }),
        ..attempt
    }
}

#[track_caller]
pub(crate) fn keep(outcome: Result<Granted, AcquireError>) -> Lease {
    let granted = outcome.expect("it is granted");
    granted.delivery.delivered();
    granted.lease
}

/// How many gateways have a subscription.
pub(crate) async fn subscribers(server: &RedisServer) -> usize {
    channels(server).await.len()
}

/// The channels of the subscribed gateways.
pub(crate) async fn channels(server: &RedisServer) -> Vec<String> {
    let channels = ["PUBSUB", "CHANNELS", "lg:gw:????????????????"];
    from_redis_value(server.run(&channels).await).unwrap()
}

/// Whether a key remembers the outcome of an attempt, or the use of an idempotency key.
pub(crate) fn is_memory(key: &str) -> bool {
    key.contains("}:of:") || key.contains("}:key:")
}

/// The keys of a lock that remain when it has no holder and no waiter. An idempotency key that points to a lease is a
/// memory; one that points to a position leads to a ticket.
pub(crate) async fn leftovers(server: &RedisServer, lock: &str) -> Vec<String> {
    let ours = format!("{{{lock}}}");
    let mut left = Vec::new();
    for key in server.keys().await {
        if key.contains(&ours) && (!is_memory(&key) || leads_nowhere(server, lock, &key).await) {
            left.push(key);
        }
    }
    left
}

/// Whether a key is an idempotency key that points to a position that does not exist.
async fn leads_nowhere(server: &RedisServer, lock: &str, key: &str) -> bool {
    if !key.contains("}:key:") {
        return false;
    }
    let leads_to = server.text(&["GET", key]).await;
    let Some(place) = leads_to.strip_prefix('q') else {
        return false;
    };
    let ticket = format!("lg:{{{lock}}}:of:{place}");
    let state = server.text(&["GETRANGE", &ticket, "0", "0"]).await;
    !["q", "w"].contains(&state.as_str())
}

/// A server and a gateway on it.
pub(crate) async fn gateway() -> (RedisServer, TestGateway) {
    let server = RedisServer::start().await;
    let gate = TestGateway::on(&server).await;
    (server, gate)
}

/// A server and a gateway on it that holds a lock.
pub(crate) async fn gateway_holding(lock: &str) -> (RedisServer, TestGateway, Lease) {
    let (server, gate) = gateway().await;
    let lease = gate.take(lock).await;
    (server, gate, lease)
}

/// A server and two gateways on it, of which the first holds a lock.
pub(crate) async fn two_gateways_holding(lock: &str) -> (RedisServer, [TestGateway; 2], Lease) {
    let (server, gates) = two_gateways().await;
    let lease = gates[0].take(lock).await;
    (server, gates, lease)
}

/// A server and two gateways on it.
pub(crate) async fn two_gateways() -> (RedisServer, [TestGateway; 2]) {
    let server = RedisServer::start().await;
    let gates = gateways_on(&server).await;
    (server, gates)
}

/// Two gateways on a server.
pub(crate) async fn gateways_on(server: &RedisServer) -> [TestGateway; 2] {
    [TestGateway::on(server).await, TestGateway::on(server).await]
}
