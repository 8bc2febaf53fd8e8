//! Which server a slot lives on.

use std::sync::Arc;

use crate::{
    clock::Clock, config::RedisConfig, lifecycle::Lifecycle, store::contract::Check,
    telemetry::metrics::StoreFigures,
};

use super::{Slot, pool::Pool, route::Route, sentinels::Followed, servers::RedisServers};
use tokio_util::sync::CancellationToken;

/// The servers of the store.
pub(super) enum Topology {
    /// One server has every slot.
    Single(Pool, String),
    /// One server has every slot: the master that the sentinels name.
    Sentinel(Pool, Arc<Followed>),
}

// === impl Topology ===

impl Topology {
    /// Connects to nobody yet.
    pub(super) fn new(
        servers: &RedisServers,
        config: &RedisConfig,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        match servers {
            RedisServers::One(url) => {
                let pool = Pool::new(Route::to_one(url, config), config);
                Self::Single(pool, url.node().to_string())
            }
            RedisServers::Sentinel(url) => {
                let followed = Arc::new(Followed::new(url, config, Arc::clone(clock)));
                let route = Route::Followed(Arc::clone(&followed));
                Self::Sentinel(Pool::new(route, config), followed)
            }
        }
    }

    /// Starts what keeps an eye on who is the master, until the program stops or the store is closed.
    pub(super) fn start(&self, lifecycle: &Lifecycle, closing: &CancellationToken) {
        match self {
            Self::Single(..) => {}
            Self::Sentinel(_, followed) => Arc::clone(followed).start(lifecycle, closing),
        }
    }

    /// The pool of the server that has this slot.
    pub(super) fn pool(&self, _slot: Slot) -> &Pool {
        match self {
            Self::Single(pool, _) | Self::Sentinel(pool, _) => pool,
        }
    }

    /// The pool of a server on which messages of all the others are heard.
    pub(super) fn messenger(&self) -> &Pool {
        match self {
            Self::Single(pool, _) | Self::Sentinel(pool, _) => pool,
        }
    }

    /// Ends when a new connection to any server has been made.
    pub(super) async fn connected(&self) {
        match self {
            Self::Single(pool, _) | Self::Sentinel(pool, _) => pool.connected().await,
        }
    }

    /// The pool of every server.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool> {
        match self {
            Self::Single(pool, _) | Self::Sentinel(pool, _) => std::iter::once(pool),
        }
    }

    /// What the server is called in metrics; `None` while it is not known which it is.
    pub(super) fn node(&self) -> Option<String> {
        match self {
            Self::Single(_, node) => Some(node.clone()),
            Self::Sentinel(_, followed) => followed.current().map(|node| node.to_string()),
        }
    }

    /// What is known of who the master is.
    pub(super) fn checks(&self) -> Vec<Check> {
        match self {
            Self::Single(..) => Vec::new(),
            Self::Sentinel(_, followed) => followed.checks(),
        }
    }

    /// The same in figures.
    pub(super) fn figures(&self, figures: &mut StoreFigures) {
        match self {
            Self::Single(..) => {}
            Self::Sentinel(_, followed) => followed.figures(figures),
        }
    }
}
