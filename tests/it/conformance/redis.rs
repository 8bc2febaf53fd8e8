//! The Redis store, on a server of its own.

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

/// The Redis store, on a server of its own.
pub(super) struct Redis {
    store: Mutex<Arc<RedisStore>>,
    server: RedisServer,
}

// === impl Redis ===

impl Redis {
    pub(super) async fn start() -> Self {
        let server = RedisServer::start().await;
        let store = Mutex::new(open(&server));
        Self { store, server }
    }
}

#[async_trait]
impl Fixture for Redis {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().unwrap().clone()
    }

    /// The gateway knows nothing any more; the server goes on.
    async fn restart(&self) {
        self.store().close().await;
        *self.store.lock().unwrap() = open(&self.server);
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
