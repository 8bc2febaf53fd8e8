//! Opens the store that the configuration names.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::{
    clock::Clock,
    config::{Config, StoreUrl},
    lifecycle::Lifecycle,
};

use super::{
    AnyStore,
    embedded::{self, EmbeddedStore},
    redis::{
        CredentialsError, RedisServers, RedisStore, RedlockStore, check_credentials,
        check_quorum_credentials,
    },
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
    match &config.store {
        StoreUrl::Embedded(directory) => {
            let directory = directory.clone();
            let open = move || EmbeddedStore::open(&directory, clock);
            // It reads files: not on a thread that serves callers.
            let store = spawn_blocking(open).await;
            Ok(Arc::new(store.expect("opening a store does not panic")?).into())
        }
        StoreUrl::Redis(url) => redis(url.into(), config, clock, lifecycle).await,
        StoreUrl::Sentinel(url) => redis(url.into(), config, clock, lifecycle).await,
        StoreUrl::Cluster(url) => redis(url.into(), config, clock, lifecycle).await,
        StoreUrl::Redlock(url) => {
            let (asked, redis) = (url.clone(), config.redis.clone());
            let checked = spawn_blocking(move || check_quorum_credentials(&asked, &redis)).await;
            checked.expect("reading files does not panic")?;
            let (redis, redlock) = (&config.redis, &config.redlock);
            let store = RedlockStore::open(url, redis, redlock, clock, lifecycle);
            Ok(Arc::new(store).into())
        }
    }
}

async fn redis(
    servers: RedisServers,
    config: &Config,
    clock: Arc<dyn Clock>,
    lifecycle: &Lifecycle,
) -> Result<AnyStore, OpenError> {
    let (asked, redis) = (servers.clone(), config.redis.clone());
    let checked = spawn_blocking(move || check_credentials(&asked, &redis)).await;
    checked.expect("reading files does not panic")?;
    let store = RedisStore::open(servers, &config.redis, clock, lifecycle);
    Ok(Arc::new(store).into())
}
