//! A server, a store on it, and short ways to ask it.

use std::{sync::Arc, time::Duration};

use bb8_redis::redis::Value;
use latchgate::{
    clock::SystemClock,
    config::{Millis, RedisConfig},
    lifecycle::Lifecycle,
    lock::{HeldLease, HoldLimit, LockName, Metadata, Token, TokenHash, Ttl},
    store::{
        Store, StoreError,
        contract::{Acquisition, Attempt, Health},
        redis::{RedisServers, RedisStore},
    },
};
use tokio::time::{Instant, sleep};

use crate::support::{Proxy, RedisServer};

/// A server and a store on it.
pub(crate) struct Rig {
    pub(crate) server: RedisServer,
    pub(crate) store: RedisStore,
    pub(crate) lifecycle: Lifecycle,
}

/// The longest that anything takes which comes about by itself.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

// === impl Rig ===

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::on(RedisServer::start().await)
    }

    /// A rig whose store has time-outs of its own.
    pub(crate) async fn with(config: &RedisConfig) -> Self {
        Self::of(RedisServer::start().await, config)
    }

    pub(crate) fn on(server: RedisServer) -> Self {
        Self::of(server, &quick())
    }

    pub(crate) fn of(server: RedisServer, config: &RedisConfig) -> Self {
        let lifecycle = Lifecycle::new();
        let store = open(&server.url(), config, &lifecycle);
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
        let store = open(&proxy.url(), &quick(), &lifecycle);
        let rig = Self {
            server,
            store,
            lifecycle,
        };
        rig.warm_up().await;
        (rig, proxy)
    }

    /// Makes every script known to the server, so that the next copy of any is carried out.
    async fn warm_up(&self) {
        let asked = attempt("warm");
        self.grant(&asked).await;
        self.store.inspect(&asked.name).await.unwrap();
        self.store
            .renew(&asked.name, &asked.token, None)
            .await
            .unwrap();
        self.store.release(&asked.name, &asked.token).await.unwrap();
        self.store
            .give_back(&asked.name, &asked.token)
            .await
            .unwrap();
        self.grant(&attempt("warm")).await;
        self.store.break_lock(&asked.name, None).await.unwrap();
    }

    /// Acquires with an attempt that must be granted.
    pub(crate) async fn grant(&self, attempt: &Attempt) -> HeldLease {
        granted(self.store.acquire(attempt).await)
    }

    /// What one check of the store finds.
    pub(crate) async fn health(&self, check: &str) -> Option<Health> {
        health(&self.store, check).await
    }
}

/// Time-outs that a test can wait for, and that a busy machine does not reach by itself.
pub(crate) fn quick() -> RedisConfig {
    RedisConfig {
        connect_timeout_ms: Millis(800),
        command_timeout_ms: Millis(800),
        deadline_ms: Millis(3_000),
        ..RedisConfig::default()
    }
}

/// The same with a deadline that no machine is slow enough to reach by itself.
pub(crate) fn patient() -> RedisConfig {
    RedisConfig {
        deadline_ms: Millis(60_000),
        ..quick()
    }
}

/// Asserts that most of these were sooner than a round would have brought them about, which comes two seconds after the
/// one before. A machine that is busy with something else delays some of them; without its cause each is late.
#[track_caller]
pub(crate) fn assert_most_precede_rounds(mut took: Vec<Duration>) {
    const HALF_A_PERIOD: Duration = Duration::from_secs(1);
    took.sort_unstable();
    assert!(took[took.len() / 2] < HALF_A_PERIOD, "{took:?}");
}

pub(crate) fn open(
    servers: impl Into<RedisServers>,
    config: &RedisConfig,
    lifecycle: &Lifecycle,
) -> RedisStore {
    RedisStore::open(servers, config, Arc::new(SystemClock), lifecycle)
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

/// An attempt for half a minute.
pub(crate) fn attempt(lock: &str) -> Attempt {
    Attempt {
        name: name(lock),
        token: token(),
        ttl: ttl(30_000),
        hold_limit: None,
        sharing: None,
        owner: None,
        metadata: Metadata::default(),
        idempotency: None,
        wait: None,
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

/// Asks again and again until the answer is as wanted.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < TIMEOUT, "not in {TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Lets the server write down every command that it runs from now on.
pub(crate) async fn write_down_everything(server: &RedisServer) {
    for (setting, value) in [
        ("slowlog-max-len", "100000"),
        ("slowlog-log-slower-than", "0"),
    ] {
        server.run(&["CONFIG", "SET", setting, value]).await;
    }
}

/// How often the server has run a script for this attempt since then.
pub(crate) async fn runs(server: &RedisServer, token: &TokenHash) -> usize {
    let Value::Array(log) = server.run(&["SLOWLOG", "GET", "-1"]).await else {
        panic!("the log is a list");
    };
    // On a node of a quorum the hash alone stands for the attempt.
    let ids = [format!("2{token}"), token.to_string()].map(|id| Value::BulkString(id.into()));
    let of_attempt = log.iter().filter(|entry| match entry {
        // Number, time, duration, and the command with its arguments.
        Value::Array(entry) => {
            matches!(&entry[3], Value::Array(words) if ids.iter().any(|id| words.contains(id)))
        }
        _ => panic!("an entry is a list"),
    });
    of_attempt.count()
}
