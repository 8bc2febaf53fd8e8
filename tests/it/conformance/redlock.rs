//! The Redlock store, on three nodes of its own. With one gateway: the order of those who wait is kept
//! within a gateway (clause 6), and a list of who waits shows those at the gateway that is asked.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use latchgate::{
    config::{Millis, RedisConfig, RedlockConfig},
    lifecycle::Lifecycle,
    store::{AnyStore, Store, contract::Health, redis::RedlockStore},
};

use super::Fixture;
use crate::{
    redis::rig::eventually,
    redlock::nodes::{self, Nodes, quick},
};

/// The Redlock store, on three nodes of its own.
pub(super) struct Redlock {
    gateway: Mutex<Arc<RedlockStore>>,
    nodes: Nodes,
}

// === impl Redlock ===

impl Redlock {
    pub(super) async fn start() -> Self {
        let nodes = Nodes::start(3).await;
        let gateway = open(&nodes);
        eventually("the nodes vote", async || {
            let checks = gateway.check().await;
            let well = checks.iter().all(|check| check.health == Health::Passing);
            well.then_some(())
        })
        .await;
        let gateway = Mutex::new(gateway);
        Self { gateway, nodes }
    }
}

#[async_trait]
impl Fixture for Redlock {
    fn store(&self) -> AnyStore {
        self.gateway.lock().unwrap().clone().into()
    }

    fn withdraws_what_was_released(&self) -> bool {
        true
    }

    /// The gateway knows nothing any more; the nodes go on.
    async fn restart(&self) {
        self.store().close().await;
        *self.gateway.lock().unwrap() = open(&self.nodes);
    }
}

fn open(nodes: &Nodes) -> Arc<RedlockStore> {
    // Nobody is refused because the machine is busy with something else.
    let config = RedlockConfig {
        node_timeout_ms: Millis(5_000),
        ..quick()
    };
    let redis = RedisConfig {
        connect_timeout_ms: Millis(5_000),
        deadline_ms: Millis(20_000),
        ..RedisConfig::default()
    };
    let lifecycle = Lifecycle::new();
    Arc::new(nodes::open_with(&nodes.url(), &redis, &config, &lifecycle))
}
