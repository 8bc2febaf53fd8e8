//! The Redis store, on a server of its own, with two gateways.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use latchgate::{
    clock::SystemClock,
    config::RedisConfig,
    lifecycle::Lifecycle,
    store::{Store, redis::RedisStore},
};

use super::Fixture;
use crate::support::RedisServer;

/// The Redis store, on a server of its own, with two gateways.
pub(super) struct Redis {
    gateways: Mutex<[Arc<RedisStore>; 2]>,
    server: RedisServer,
}

// === impl Redis ===

impl Redis {
    pub(super) async fn start() -> Self {
        let server = RedisServer::start().await;
        let gateways = Mutex::new([open(&server), open(&server)]);
        Self { gateways, server }
    }
}

#[async_trait]
impl Fixture for Redis {
    fn store(&self) -> Arc<dyn Store> {
        let [first, _second] = &*self.gateways.lock().unwrap();
        Arc::<RedisStore>::clone(first)
    }

    fn gateways(&self) -> Vec<Arc<dyn Store>> {
        let gateways = self.gateways.lock().unwrap().clone();
        gateways.map(|store| store as Arc<dyn Store>).into()
    }

    /// How many keys a step looks at is guessed by what the steps before it have found. After one that
    /// looked at sixteen places and found nothing, which one of some hundred does, it is 160 for ten
    /// locks: those of 160 places, of which four in ten have one.
    fn page_excess(&self) -> usize {
        96
    }

    /// The gateways know nothing any more; the server goes on.
    async fn restart(&self) {
        for gateway in self.gateways() {
            gateway.close().await;
        }
        *self.gateways.lock().unwrap() = [open(&self.server), open(&self.server)];
    }
}

fn open(server: &RedisServer) -> Arc<RedisStore> {
    let config = RedisConfig::default();
    Arc::new(RedisStore::open(
        &server.url(),
        &config,
        Arc::new(SystemClock),
        &Lifecycle::new(),
    ))
}
