//! The Redlock store, on three nodes of its own. With one gateway: the order of those who wait is kept
//! within a gateway (clause 6), and a list of who waits shows those at the gateway that is asked.

use async_trait::async_trait;

use crate::conformance::prelude::*;
use crate::redlock::nodes::{self, Nodes, quick};

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
        until_all_pass(&*gateway).await;
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
    let config = with(quick(), |it| it.node_timeout_ms = Millis(5_000));
    let redis = RedisConfig {
        connect_timeout_ms: Millis(5_000),
        deadline_ms: Millis(20_000),
        ..RedisConfig::default()
    };
    let lifecycle = Lifecycle::new();
    Arc::new(nodes::open_with(&nodes.url(), &redis, &config, &lifecycle))
}
