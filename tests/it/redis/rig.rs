//! A server with a store on it, attempts for tests, and short helpers for questions to both.

use std::ops::Deref;

use super::waiting::gate::waiting;
use crate::support::prelude::*;

/// A server and a store on it. The rig has the methods of its store.
pub(crate) struct Rig {
    pub(crate) server: RedisServer,
    pub(crate) store: RedisStore,
    pub(crate) lifecycle: Lifecycle,
}

/// The longest time that any awaited event may take.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

// === impl Rig ===

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::on(RedisServer::start().await)
    }

    /// A rig whose store has these time-outs.
    pub(crate) async fn with(config: &RedisConfig) -> Self {
        Self::with_config(RedisServer::start().await, config)
    }

    pub(crate) fn on(server: RedisServer) -> Self {
        Self::with_config(server, &quick())
    }

    pub(crate) fn with_config(server: RedisServer, config: &RedisConfig) -> Self {
        let lifecycle = Lifecycle::new();
        let store = open_in(&server.url(), config, &lifecycle);
        Self {
            server,
            store,
            lifecycle,
        }
    }

    /// A rig whose store reaches the server through a proxy.
    pub(crate) async fn with_proxy() -> (Self, Proxy) {
        let server = RedisServer::start().await;
        let lifecycle = Lifecycle::new();
        let proxy = Proxy::start(server.port(), &lifecycle).await;
        let store = open_in(&proxy.url(), &quick(), &lifecycle);
        let rig = Self {
            server,
            store,
            lifecycle,
        };
        rig.warm_up().await;
        (rig, proxy)
    }

    /// Loads every script into the server, so that the next request with its hash is carried out.
    pub(crate) async fn warm_up(&self) {
        let asked = self.must_hold(attempt("warm")).await;
        let fence = self.must_be_held(&asked.name).await.fence;
        self.must_pass("warm", fence).await;
        self.must_renew(&asked, None).await;
        self.must_release(&asked).await;
        self.must_give_back(&asked, GiveBack::NothingHeld).await;
        self.grant(&attempt("warm")).await;
        self.must_break(&asked.name, None).await;
    }

    /// Acquires with an attempt, which must be granted.
    pub(crate) async fn grant(&self, attempt: &Attempt) -> HeldLease {
        granted(self.store.acquire(attempt).await)
    }

    /// The state of a check of the store.
    pub(crate) async fn health(&self, check: &str) -> Option<Health> {
        health(&self.store, check).await
    }

    /// Runs a command on the server.
    pub(crate) async fn run(&self, command: &[&str]) -> Value {
        self.server.run(command).await
    }

    /// Runs a command on the server whose reply is a text.
    pub(crate) async fn text(&self, command: &[&str]) -> String {
        self.server.text(command).await
    }

    /// Runs a command on the server whose reply is an integer.
    pub(crate) async fn integer(&self, command: &[&str]) -> i64 {
        self.server.integer(command).await
    }

    /// All keys of the server, in order.
    pub(crate) async fn keys(&self) -> Vec<String> {
        self.server.keys().await
    }

    /// A digest of all data in the server.
    pub(crate) async fn digest(&self) -> String {
        self.server.digest().await
    }
}

impl Deref for Rig {
    type Target = RedisStore;

    fn deref(&self) -> &RedisStore {
        &self.store
    }
}

/// Short time-outs that a test can wait for, and that a busy machine does not reach by itself.
pub(crate) fn quick() -> RedisConfig {
    RedisConfig {
        connect_timeout_ms: Millis(800),
        command_timeout_ms: Millis(800),
        deadline_ms: Millis(3_000),
        ..RedisConfig::default()
    }
}

/// Short time-outs, and grants that this number of replicas must confirm within `ms` milliseconds.
pub(crate) fn waits_for(replicas: u32, ms: u64) -> RedisConfig {
    RedisConfig {
        wait_replicas: replicas,
        wait_timeout_ms: Millis(ms),
        ..quick()
    }
}

/// Short time-outs with a deadline that not even a slow machine reaches.
pub(crate) fn patient() -> RedisConfig {
    with(quick(), |it| it.deadline_ms = Millis(60_000))
}

/// Asserts that most of these durations are shorter than the pause until the next round, which comes two seconds after
/// the one before. A busy machine may delay some of them; without the expected cause, all are late.
#[track_caller]
pub(crate) fn assert_most_precede_rounds(mut took: Vec<Duration>) {
    const HALF_A_PERIOD: Duration = Duration::from_secs(1);
    took.sort_unstable();
    assert!(took[took.len() / 2] < HALF_A_PERIOD, "{took:?}");
}

/// A store with short time-outs that a test can wait for.
pub(crate) fn open(url: &ServersUrl) -> RedisStore {
    open_with(url, &quick())
}

pub(crate) fn open_with(url: &ServersUrl, config: &RedisConfig) -> RedisStore {
    open_in(url, config, &Lifecycle::new())
}

/// A store with this configuration, whose tasks end with the lifecycle.
pub(crate) fn open_in(url: &ServersUrl, config: &RedisConfig, lifecycle: &Lifecycle) -> RedisStore {
    RedisStore::open(
        url,
        config,
        Arc::new(SystemClock),
        lifecycle,
        latchgate::config::OrderLimits::default(),
    )
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub(crate) fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

pub(crate) fn limit(ms: u64) -> HoldLimit {
    HoldLimit::from_millis(ms, Ttl::MIN).unwrap()
}

pub(crate) fn token() -> TokenHash {
    Token::random().hash()
}

/// An attempt with a TTL of half a minute.
pub(crate) fn attempt(lock: &str) -> Attempt {
    new_attempt(lock, ttl(30_000))
}

/// An attempt with an idempotency key.
pub(crate) fn keyed(lock: &str, key: &str) -> Attempt {
    let mut attempt = attempt(lock);
    let key = IdempotencyKey::new(&format!("{key}-0123456789-0123456789")).unwrap();
    let salt = Salt::random();
    let token = key.derive_token(&CallerId::ANONYMOUS, &attempt.name, &salt);
    attempt.token = token.hash();
    let mut attempt = under_key(key.hash(&CallerId::ANONYMOUS, &attempt.name), attempt);
    attempt.idempotency.as_mut().expect("it has a key").salt = salt;
    attempt
}

/// Shared mode with a limit, or without one.
pub(crate) fn sharing(limit: Option<u64>) -> Sharing {
    Sharing {
        limit: Limit::new(limit.unwrap_or(1_000)).unwrap(),
        has_slot: limit.is_some(),
    }
}

/// An attempt for a shared lease without a limit, with a TTL of half a minute.
pub(crate) fn reader(lock: &str) -> Attempt {
    with(attempt(lock), |it| it.terms.sharing = Some(sharing(None)))
}

/// An attempt for a shared lease with a limit.
pub(crate) fn one_of(limit: u64, lock: &str) -> Attempt {
    with(attempt(lock), |it| {
        it.terms.sharing = Some(sharing(Some(limit)));
    })
}

/// The keys of a shared lock.
pub(crate) fn shared_keys(lock: &str) -> [String; 4] {
    ["lock", "shared", "leases", "slots"].map(|kind| format!("lg:{{{lock}}}:{kind}"))
}

/// The key of the counter of a lock's fencing tokens.
pub(crate) fn fence_key(lock: &LockName) -> String {
    let tags = SlotTags::compute();
    format!(
        "lg:{{{}}}:fence",
        tags.for_slot(Slot::of_tag(lock.as_str().as_bytes()))
    )
}

/// The fencing token of the lease that holds a lock at this server, as it is stored.
pub(crate) async fn fence_at(server: &RedisServer, lock: &str) -> String {
    let key = format!("lg:{{{lock}}}:lock");
    server.text(&["GETRANGE", &key, "70", "85"]).await
}

/// Acquires and releases a lock. Answers the fencing token.
pub(crate) async fn turn(store: &impl Store, lock: &str) -> u64 {
    let asked = attempt(lock);
    let lease = store.must_grant(&asked).await;
    store.must_release(&asked).await;
    lease.fence.get()
}

/// Asserts that a command failed because of a foreign value at this key.
#[track_caller]
pub(crate) fn assert_foreign<T: std::fmt::Debug>(answer: Result<T, StoreError>, expected: &str) {
    match answer {
        Err(StoreError::ForeignData { key, .. }) => assert_eq!(key, expected),
        other => panic!("{expected} is in the way, but: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn granted(acquisition: Result<Acquisition, StoreError>) -> HeldLease {
    match acquisition {
        Ok(Acquisition::Granted(lease)) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn health(store: &RedisStore, check: &str) -> Option<Health> {
    let checks = store.check().await;
    let found = checks.into_iter().find(|found| found.name == check);
    found.map(|found| found.health)
}

/// Asserts that the lease with this token holds the lock at this server.
pub(crate) async fn assert_holds(server: &RedisServer, lock: &str, token: &TokenHash, why: &str) {
    let key = format!("lg:{{{lock}}}:lock");
    let holder = server.text(&["GETRANGE", &key, "1", "64"]).await;
    assert_eq!(holder, token.to_string(), "{lock} {why}");
}

/// Acquires a lock, with a new attempt each time, until the store answers.
pub(crate) async fn until_answered(store: &impl Store, lock: &str) -> Acquisition {
    let ask = async || store.acquire(&attempt(lock)).await.ok();
    eventually(&format!("there is an answer about {lock}"), ask).await
}

/// Waits until the store knows that its master has none of the replicas that it must have. Answers the error.
pub(crate) async fn until_too_few(store: &impl Store) -> StoreError {
    let too_few = StoreError::Unavailable(Unavailability::TooFewReplicas {
        wanted: 1,
        confirmed: Some(0),
    });
    let is_so = async || store.acquire(&attempt("first")).await.as_ref().err() == Some(&too_few);
    until("the server is examined", is_so).await;
    too_few
}

/// Makes an attempt enter the queue without an engine. Answers its parked wait and its token.
pub(crate) async fn stand(store: &impl Store, asked: Attempt) -> (Parked, TokenHash) {
    let asked = waiting(asked);
    (store.stand(&asked).await, asked.token)
}

/// Waits for the message that an attempt was granted its lock.
pub(crate) async fn hear_grant(parked: &mut Parked) -> HeldLease {
    match timeout(TIMEOUT, parked.news()).await {
        Ok(News::Granted(lease)) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// The keys that mark gateways as alive.
pub(crate) async fn alive(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys().await;
    keys.retain(|key| key.contains(":gw:"));
    keys
}

/// Makes every gateway count as dead until its next sign of life.
pub(crate) async fn forget_gateways(server: &RedisServer) {
    for key in alive(server).await {
        server.run(&["DEL", &key]).await;
    }
}

/// Waits until the reply to a command is this number.
pub(crate) async fn until_integer(server: &RedisServer, command: &[&str], expected: i64) {
    until(&format!("{command:?} is {expected}"), async || {
        server.run(command).await == Value::Int(expected)
    })
    .await;
}

/// Waits until the server has run at least this many scripts for an attempt since it began to log its commands.
pub(crate) async fn until_runs(server: &RedisServer, token: &TokenHash, least: usize) {
    until(&format!("{least} copies arrive"), async || {
        runs(server, token).await >= least
    })
    .await;
}

/// Makes the server log every command that it runs from now on.
pub(crate) async fn write_down_everything(server: &RedisServer) {
    server.set("slowlog-max-len", "100000").await;
    server.set("slowlog-log-slower-than", "0").await;
}

/// The logged commands with their arguments.
pub(crate) async fn written_down(server: &RedisServer) -> Vec<Vec<Value>> {
    let Value::Array(log) = server.run(&["SLOWLOG", "GET", "-1"]).await else {
        panic!("the log is a list");
    };
    // An entry has a number, a time, a duration, and the command with its arguments.
    let words = |entry| match entry {
        Value::Array(mut entry) => match entry.swap_remove(3) {
            Value::Array(words) => words,
            other => panic!("{other:?} is no command"),
        },
        other => panic!("{other:?} is no entry"),
    };
    log.into_iter().map(words).collect()
}

/// How many scripts the server has run for this attempt since it began to log its commands.
pub(crate) async fn runs(server: &RedisServer, token: &TokenHash) -> usize {
    // A node of a quorum names the attempt by the hash alone.
    let ids = [format!("2{token}"), token.to_string()].map(|id| Value::BulkString(id.into()));
    let written = written_down(server).await;
    let of_attempt = |words: &&Vec<Value>| ids.iter().any(|id| words.contains(id));
    written.iter().filter(of_attempt).count()
}

/// The state of a lock without holder and waiters.
pub(crate) fn free() -> Inspection {
    Inspection {
        holder: None,
        queue: Vec::new(),
        waiters: 0,
        granted_order: None,
    }
}

/// The state of a lock that is held and has no waiters.
pub(crate) fn held_by(holder: Holder) -> Inspection {
    Inspection {
        holder: Some(holder),
        ..free()
    }
}

/// A foreign lock without an end, whose value has this SHA-1.
pub(crate) fn foreign_holder(sha1: &str) -> Holder {
    Holder::Foreign {
        expires_in: None,
        mark: Some(ForeignMark::new(sha1).unwrap()),
    }
}

/// The lock is held, and no attempt waits for it.
pub(crate) fn contention(holder: Holder) -> Contention {
    Contention {
        holder: Some(holder),
        waiters: 0,
    }
}

/// A proxy in front of a server, and a store that reaches the server through it.
pub(crate) async fn behind_proxy(
    server: &RedisServer,
    config: &RedisConfig,
) -> (Proxy, RedisStore) {
    let lifecycle = Lifecycle::new();
    let proxy = Proxy::start(server.port(), &lifecycle).await;
    let store = open_in(&proxy.url(), config, &lifecycle);
    (proxy, store)
}
