//! The nodes of a quorum, and gateways on them.

use latchgate::config::{Persistence, ServersUrl};

use crate::redlock::prelude::*;

/// The nodes of a quorum.
pub(crate) struct Nodes {
    pub(crate) servers: Vec<RedisServer>,
}

// === impl Nodes ===

impl Nodes {
    /// Nodes that keep all answered changes over a restart.
    pub(crate) async fn start(count: usize) -> Self {
        // No machine fails here, so data in the kernel is as safe as data on disk.
        Self::start_with(count, &["--appendonly", "yes", "--appendfsync", "no"]).await
    }

    /// Nodes that lose all data in a restart.
    pub(crate) async fn forgetful(count: usize) -> Self {
        Self::start_with(count, &[]).await
    }

    async fn start_with(count: usize, options: &[&str]) -> Self {
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(RedisServer::start_with(options).await);
        }
        Self { servers }
    }

    /// The URL of the quorum.
    pub(crate) fn url(&self) -> ServersUrl {
        url(&self
            .servers
            .iter()
            .map(RedisServer::port)
            .collect::<Vec<_>>())
    }

    pub(crate) fn open(&self, lifecycle: &Lifecycle) -> RedlockStore {
        open(&self.url(), &quick(), lifecycle)
    }
}

/// The URL of a quorum whose nodes have these ports.
pub(crate) fn url(ports: &[u16]) -> ServersUrl {
    let nodes: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    parsed(&format!("redlock://{}", nodes.join(",")))
}

pub(crate) fn parsed(url: &str) -> ServersUrl {
    match url.parse() {
        Ok(StoreUrl::Servers(url)) => url,
        other => panic!("no URL of a quorum: {other:?}"),
    }
}

/// A short time-out that a test can wait for, and that a busy machine does not reach by itself.
pub(crate) fn quick() -> RedlockConfig {
    RedlockConfig {
        node_timeout_ms: Millis(800),
        persistence: Persistence::AofAlways,
        ..RedlockConfig::default()
    }
}

/// A time-out that is longer than any wait of a test.
pub(crate) fn patient() -> RedlockConfig {
    with(quick(), |it| it.node_timeout_ms = Millis(2_500))
}

pub(crate) fn open(
    url: &ServersUrl,
    config: &RedlockConfig,
    lifecycle: &Lifecycle,
) -> RedlockStore {
    let redis = with(RedisConfig::default(), |it| it.deadline_ms = Millis(3_000));
    open_with(url, &redis, config, lifecycle)
}

/// A store with this configuration of connections and of the quorum.
pub(crate) fn open_with(
    url: &ServersUrl,
    redis: &RedisConfig,
    config: &RedlockConfig,
    lifecycle: &Lifecycle,
) -> RedlockStore {
    RedlockStore::open(url, redis, config, Arc::new(SystemClock), lifecycle)
}
