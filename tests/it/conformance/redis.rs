//! The Redis store, on a server of its own, on a master that a sentinel names or on a cluster, with two
//! gateways.

use async_trait::async_trait;

use crate::conformance::prelude::*;
use crate::redis::{cluster::pool::Pooled, sentinel::watched::Watched};

/// The Redis store, on servers of its own, with two gateways.
pub(super) struct Redis {
    gateways: Mutex<[Arc<RedisStore>; 2]>,
    servers: RedisServers,
    config: RedisConfig,
    /// They run as long as this lives.
    _processes: Processes,
}

enum Processes {
    One(#[expect(dead_code, reason = "dropping it ends it")] RedisServer),
    Watched(#[expect(dead_code, reason = "dropping it ends them")] Watched),
    Clustered(#[expect(dead_code, reason = "dropping it gives them back")] Pooled),
}

// === impl Redis ===

impl Redis {
    pub(super) async fn start() -> Self {
        let server = RedisServer::start().await;
        let url = &server.url();
        Self::open(url, patient(), Processes::One(server))
    }

    /// On the master that a sentinel names, where nothing is answered before the replica has it.
    pub(super) async fn watched() -> Self {
        let watched = Watched::start_small().await;
        let config = RedisConfig {
            wait_replicas: 1,
            wait_timeout_ms: Millis(5_000),
            ..patient()
        };
        let url = &watched.url();
        Self::open(url, config, Processes::Watched(watched))
    }

    /// On three masters of a cluster.
    pub(super) async fn clustered() -> Self {
        let pooled = Pooled::take().await;
        let url = &pooled.url();
        Self::open(url, patient(), Processes::Clustered(pooled))
    }

    fn open(servers: impl Into<RedisServers>, config: RedisConfig, processes: Processes) -> Self {
        let servers = servers.into();
        let gateways = [open(&servers, &config), open(&servers, &config)];
        Self {
            gateways: Mutex::new(gateways),
            servers,
            config,
            _processes: processes,
        }
    }
}

#[async_trait]
impl Fixture for Redis {
    fn store(&self) -> AnyStore {
        let [first, _second] = &*self.gateways.lock().unwrap();
        Arc::clone(first).into()
    }

    fn gateways(&self) -> Vec<AnyStore> {
        let gateways = self.gateways.lock().unwrap().clone();
        gateways.map(AnyStore::from).into()
    }

    /// The gateways know nothing any more; the server goes on.
    async fn restart(&self) {
        for gateway in self.gateways() {
            gateway.close().await;
        }
        let anew = || open(&self.servers, &self.config);
        *self.gateways.lock().unwrap() = [anew(), anew()];
    }
}

/// Nobody is refused because the machine is busy with something else.
fn patient() -> RedisConfig {
    RedisConfig {
        connect_timeout_ms: Millis(5_000),
        command_timeout_ms: Millis(5_000),
        deadline_ms: Millis(20_000),
        ..RedisConfig::default()
    }
}

fn open(servers: &RedisServers, config: &RedisConfig) -> Arc<RedisStore> {
    Arc::new(RedisStore::open(
        servers.clone(),
        config,
        Arc::new(SystemClock),
        &Lifecycle::new(),
    ))
}
