//! Opens the store that the configuration names.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::{
    clock::Clock,
    config::{Config, ServersKind, StoreUrl},
    lifecycle::Lifecycle,
};

use super::{
    AnyStore,
    embedded::{self, EmbeddedStore},
    redis::{CredentialsError, RedisStore, RedlockStore, check_credentials},
};

/// Why a store could not be opened. A server that is away is no reason: such a store opens and
/// recovers.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The embedded store.
    #[error(transparent)]
    Embedded(#[from] embedded::OpenError),
    /// There is nothing to connect to Redis with.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Opens the store that the configuration names.
pub async fn open(
    config: &Config,
    clock: Arc<dyn Clock>,
    lifecycle: &Lifecycle,
) -> Result<AnyStore, OpenError> {
    // Both read files: not on a thread that serves callers.
    let (url, redis) = (config.store.clone(), config.redis.clone());
    let checked = spawn_blocking(move || check_credentials(&url, &redis)).await;
    checked.expect("reading files does not panic")?;
    let redis = &config.redis;
    Ok(match &config.store {
        StoreUrl::Embedded(directory) => {
            let directory = directory.clone();
            let open = move || EmbeddedStore::open(&directory, clock);
            let store = spawn_blocking(open).await;
            Arc::new(store.expect("opening a store does not panic")?).into()
        }
        StoreUrl::Servers(url) if url.kind() == ServersKind::Quorum => {
            let store = RedlockStore::open(url, redis, &config.redlock, clock, lifecycle);
            Arc::new(store).into()
        }
        StoreUrl::Servers(url) => Arc::new(RedisStore::open(url, redis, clock, lifecycle)).into(),
    })
}
