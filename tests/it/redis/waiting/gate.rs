//! A gateway on a server that others share, and those who ask it.

use std::ops::Deref;

use tokio::sync::oneshot;

use crate::redis::prelude::*;

/// A gateway of its own, which is asked as its store where it has no word of its own for that.
pub(crate) struct TestGateway {
    pub(crate) store: Arc<RedisStore>,
    pub(crate) engine: Engine,
    pub(crate) lifecycle: Lifecycle,
}

/// One who has asked and waits for the outcome; hangs up when dropped.
pub(crate) struct PendingAcquire {
    outcome: oneshot::Receiver<(Instant, Result<Granted, AcquireError>)>,
}

/// How long the place of one with an idempotency key is kept here.
pub(crate) const GRACE: Duration = Duration::from_millis(1_500);
/// Ten times a period and a second, for a machine that is busy with something else.
pub(crate) const NOTICED: Duration = Duration::from_secs(30);
/// How long anybody waits for what comes about without a message: a few periods of two seconds.
pub(crate) const LONG: Duration = Duration::from_mins(1);

// === impl TestGateway ===

impl TestGateway {
    /// A gateway that hears messages already.
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
        let engine = Engine::start(of, lifecycle.clone(), &limits, metrics);
        Self {
            store,
            engine,
            lifecycle,
        }
    }

    /// Ends without a word, as a process that is killed: nobody leaves a queue.
    pub(crate) async fn kill(&self) {
        self.store.close().await;
    }

    /// Takes a free lock for half a minute.
    pub(crate) async fn take(&self, lock: &str) -> Lease {
        self.take_for(lock, 30_000).await
    }

    pub(crate) async fn take_for(&self, lock: &str, ttl_ms: u64) -> Lease {
        let asked = at_once(with(request(lock), |it| it.ttl = ttl(ttl_ms)));
        keep(self.engine.acquire(asked).await)
    }

    /// Asks for a lock that is held, and comes back when the request stands in the queue.
    pub(crate) async fn queue(&self, request: AcquireRequest) -> PendingAcquire {
        let (queued, told) = oneshot::channel();
        let asked = self.ask_telling(request, move || {
            // An error: nobody waits for it any more.
            let _ = queued.send(());
        });
        // Its length would not say so: others may leave the queue meanwhile.
        let told = timeout(LONG, told).await;
        told.expect("the store answers").expect("it waits");
        asked
    }

    /// Asks for a lock.
    pub(crate) fn ask(&self, request: AcquireRequest) -> PendingAcquire {
        self.ask_telling(request, || {})
    }

    /// The same, and says when it is known to wait.
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

    /// Lets so many stand in the queue. They come one group after the other: of more at once a busy machine
    /// would have to turn some away.
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
        assert_eq!(released.unwrap(), Release::Released);
    }

    /// Releases it, and the lock passes to this one.
    pub(crate) async fn pass(&self, lease: &Lease, to: PendingAcquire) -> Lease {
        self.release(lease).await;
        to.lease().await
    }

    pub(crate) async fn look(&self, lock: &str) -> Inspection {
        let name = name(lock);
        // On a machine that is busy a look may take longer than one command may.
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

    /// Waits until a lock has so many in its queue.
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
    /// The lease that it is granted.
    #[track_caller]
    pub(crate) fn lease(self) -> impl Future<Output = Lease> {
        let outcome = self.outcome();
        async move { keep(outcome.await.1) }
    }

    /// When, and what it is answered.
    pub(crate) async fn outcome(self) -> (Instant, Result<Granted, AcquireError>) {
        let outcome = timeout(LONG, self.outcome).await;
        let outcome = outcome.expect("it is answered in time");
        outcome.expect("the gateway answers")
    }

    /// When, and the lease that it is granted.
    pub(crate) async fn granted(self) -> (Instant, Lease) {
        let (at, outcome) = self.outcome().await;
        (at, keep(outcome))
    }

    /// The lease that it is granted within a few periods.
    pub(crate) async fn noticed_since(self, start: Instant) -> Lease {
        let (at, lease) = self.granted().await;
        assert!(at - start < NOTICED, "{:?}", at - start);
        lease
    }

    /// Why it is refused.
    pub(crate) async fn refusal(self) -> AcquireError {
        self.outcome().await.1.expect_err("it is refused")
    }
}

/// Takes a lock once its store is ready to grant it.
pub(crate) async fn until_taken(gate: &TestGateway, lock: &str, ttl_ms: u64) -> Lease {
    let asked = at_once(with(request(lock), |it| it.ttl = ttl(ttl_ms)));
    let ask = async || gate.engine.acquire(asked.clone()).await.ok();
    keep(Ok(eventually("it is granted", ask).await))
}

/// Half a minute, for whoever waits as long as it takes.
pub(crate) fn request(lock: &str) -> AcquireRequest {
    AcquireRequest {
        sharing: None,
        name: name(lock),
        ttl: ttl(30_000),
        hold_limit: None,
        explicit: ExplicitTerms::default(),
        wait: Duration::from_secs(50),
        owner: None,
        metadata: Metadata::default(),
        caller: CallerId::ANONYMOUS,
        authorization: Authorization::default(),
        idempotency_key: None,
    }
}

/// The same for whoever does not wait.
pub(crate) fn at_once(request: AcquireRequest) -> AcquireRequest {
    with(request, |it| it.wait = Duration::ZERO)
}

pub(crate) fn request_by(lock: &str, owner: &str) -> AcquireRequest {
    with(request(lock), |it| {
        it.owner = Some(Owner::new(owner).unwrap());
    })
}

/// A request with an idempotency key made of a short text.
pub(crate) fn keyed_request(lock: &str, key: &str) -> AcquireRequest {
    let key = format!("{key:_>36}");
    with(request(lock), |it| {
        it.idempotency_key = Some(IdempotencyKey::new(&key).unwrap());
    })
}

/// An attempt, of the store alone, that stands in the queue.
pub(crate) fn waiting(attempt: Attempt) -> Attempt {
    Attempt {
        wait: Some(Waiting {
            max_wait: Duration::from_secs(50),
            longest_queue: 10_000,
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

/// How many gateways listen.
pub(crate) async fn subscribers(server: &RedisServer) -> usize {
    channels(server).await.len()
}

/// The channels on which they listen.
pub(crate) async fn channels(server: &RedisServer) -> Vec<String> {
    let channels = ["PUBSUB", "CHANNELS", "lg:gw:????????????????"];
    from_redis_value(server.run(&channels).await).unwrap()
}

/// Whether a key says what became of an attempt, or that an idempotency key was used.
pub(crate) fn is_memory(key: &str) -> bool {
    key.contains("}:of:") || key.contains("}:key:")
}

/// The keys of a lock that are left when nobody holds it or waits for it. An idempotency key that leads to a lease
/// is a memory; one that leads to a place leads to a ticket.
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

/// Whether a key is an idempotency key that leads to a place which is there no more.
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

/// The same, where the gateway holds a lock.
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
