//! Which server a slot lives on.

use std::{fmt, future::pending, sync::Arc};

use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Duration, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::{ClusterUrl, RedisConfig, RedisLogin, RedisUrl, RedlockUrl, SentinelUrl},
    lifecycle::{Lifecycle, Workers},
    store::{Partition, Unavailability, contract::Check},
    telemetry::metrics::StoreFigures,
};

use super::{
    super::Slot,
    cluster::Cluster,
    credentials::{Credentials, CredentialsError, server_name},
    destination::Destination,
    failure::{Failure, Redirect},
    route::Route,
    sentinels::FollowedMaster,
    shard::{CommandClass, Shard},
};

/// The servers of the store.
pub(crate) enum Topology {
    /// One server has every slot.
    Single(Arc<Shard>, String),
    /// One server has every slot: the master that the sentinels name.
    Sentinel(Arc<Shard>, Arc<FollowedMaster>),
    /// Each master of a cluster has some.
    Cluster(Arc<Cluster>),
}

/// Word of it when the servers are others than before.
pub(crate) struct Changes(Option<watch::Receiver<u64>>);

/// How long it may take until it is known who has what.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

// === impl Topology ===

impl Topology {
    /// Connects to nobody yet.
    pub(crate) fn new(
        servers: &RedisServers,
        config: &RedisConfig,
        clock: &Arc<dyn Clock>,
        workers: &Workers,
    ) -> Self {
        match servers {
            RedisServers::One(url) => {
                let shard = Shard::new(Route::to_one(url, config), None, config, workers);
                Self::Single(Arc::new(shard), url.node().to_string())
            }
            RedisServers::Sentinel(url) => {
                let followed = Arc::new(FollowedMaster::new(url, config, Arc::clone(clock)));
                let route = Route::Followed(Arc::clone(&followed));
                Self::Sentinel(Arc::new(Shard::new(route, None, config, workers)), followed)
            }
            RedisServers::Cluster(url) => {
                Self::Cluster(Arc::new(Cluster::new(url, config, workers)))
            }
        }
    }

    /// Starts what keeps an eye on who has what, until the program stops or the store is closed.
    pub(crate) fn start(&self, lifecycle: &Lifecycle, closing: &CancellationToken) {
        match self {
            Self::Single(..) => {}
            Self::Sentinel(_, followed) => Arc::clone(followed).start(lifecycle, closing),
            Self::Cluster(cluster) => Arc::clone(cluster).start(lifecycle, closing),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether a replica may become the master.
    pub(crate) fn fails_over(&self) -> bool {
        !matches!(self, Self::Single(..))
    }

    /// The server that has this slot.
    pub(crate) fn shard(&self, slot: Slot) -> Result<Arc<Shard>, Unavailability> {
        match self {
            Self::Single(shard, _) | Self::Sentinel(shard, _) => Ok(Arc::clone(shard)),
            Self::Cluster(cluster) => cluster.owner(slot),
        }
    }

    /// That which is away when the server is that has a slot.
    pub(crate) fn partition(&self, slot: Slot) -> Partition {
        match self {
            Self::Single(..) | Self::Sentinel(..) => Partition::WHOLE,
            // Where nobody has the slot, what is sent ends soon.
            Self::Cluster(cluster) => cluster.owner(slot).map_or(Partition::WHOLE, |shard| {
                // No other one lies there as long as this one is served.
                Partition::one_of(Arc::as_ptr(&shard).addr())
            }),
        }
    }

    /// Ends when some servers are known, or when that has taken too long.
    pub(crate) async fn wait_until_known(&self) {
        match self {
            Self::Single(..) | Self::Sentinel(..) => {}
            Self::Cluster(cluster) => drop(timeout(KNOWN_WITHIN, cluster.wait_until_known()).await),
        }
    }

    /// Room to wait for the server that has a slot, if it is one of several and away.
    pub(crate) fn wait_permit(
        &self,
        slot: Slot,
        with: CommandClass,
    ) -> Result<Option<OwnedSemaphorePermit>, Unavailability> {
        match self {
            Self::Single(..) | Self::Sentinel(..) => Ok(None),
            Self::Cluster(cluster) => match cluster.owner(slot) {
                Ok(owner) => owner.wait_permit(with),
                // It may be known in a moment.
                Err(_not_known) => Ok(None),
            },
        }
    }

    /// Every server that has slots, as far as is known.
    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        match self {
            Self::Single(shard, _) | Self::Sentinel(shard, _) => vec![Arc::clone(shard)],
            Self::Cluster(cluster) => cluster.shards(),
        }
    }

    /// Every server that has slots, in the order of the first slot of each. Fails if a slot has no server.
    pub(crate) fn shards_by_slot(&self) -> Result<Vec<Arc<Shard>>, Unavailability> {
        match self {
            Self::Single(shard, _) | Self::Sentinel(shard, _) => Ok(vec![Arc::clone(shard)]),
            Self::Cluster(cluster) => cluster.shards_by_slot(),
        }
    }

    /// Whether this server has a slot.
    pub(crate) fn has(&self, shard: &Arc<Shard>, slot: Slot) -> bool {
        match self {
            Self::Single(..) | Self::Sentinel(..) => true,
            Self::Cluster(cluster) => {
                let owner = cluster.owner(slot);
                owner.is_ok_and(|owner| Arc::ptr_eq(&owner, shard))
            }
        }
    }

    /// Some slot of a server, in which it can be found out what the server lets us do; `None` for one
    /// that takes part in no cluster, where any is as good.
    pub(crate) fn some_slot(&self, shard: &Arc<Shard>) -> Option<Slot> {
        match self {
            Self::Single(..) | Self::Sentinel(..) => None,
            Self::Cluster(cluster) => cluster.some_slot(shard),
        }
    }

    /// A server on which the messages of all others arrive: in a cluster all of them tell each
    /// other.
    pub(crate) fn pubsub_shard(&self) -> Result<Arc<Shard>, Unavailability> {
        match self {
            Self::Single(shard, _) | Self::Sentinel(shard, _) => Ok(Arc::clone(shard)),
            Self::Cluster(cluster) => cluster.pubsub_shard(),
        }
    }

    /// Tells it apart when a slot has gone to another server in between.
    pub(crate) fn moves(&self, slot: Slot) -> u32 {
        match self {
            Self::Single(..) | Self::Sentinel(..) => 0,
            Self::Cluster(cluster) => cluster.moves(slot),
        }
    }

    /// Where one goes whom a server has pointed elsewhere.
    pub(crate) fn follow(
        &self,
        slot: Slot,
        redirect: &Redirect,
        by: &Shard,
    ) -> Result<Destination, Failure> {
        match self {
            Self::Single(..) | Self::Sentinel(..) => Err(Failure::WrongNode(redirect.reason())),
            Self::Cluster(cluster) => Ok(cluster.follow(slot, redirect, by)),
        }
    }

    /// Somebody got no answer: it is time to ask who has what.
    pub(crate) fn request_refresh(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.request_refresh();
        }
    }

    /// Word of it when the servers are others than before.
    pub(crate) fn changes(&self) -> Changes {
        Changes(match self {
            Self::Single(..) | Self::Sentinel(..) => None,
            Self::Cluster(cluster) => Some(cluster.changes()),
        })
    }

    /// What a server is called in metrics; `None` while it is not known which it is.
    pub(crate) fn node(&self, shard: &Shard) -> Option<String> {
        match self {
            Self::Single(_, node) => Some(node.clone()),
            Self::Sentinel(_, followed) => followed.current().map(|node| node.to_string()),
            Self::Cluster(_) => shard.node().map(ToString::to_string),
        }
    }

    /// What is known of who has what.
    pub(crate) fn checks(&self) -> Vec<Check> {
        match self {
            Self::Single(..) => Vec::new(),
            Self::Sentinel(_, followed) => followed.checks(),
            Self::Cluster(cluster) => cluster.checks(),
        }
    }

    /// The same in figures.
    pub(crate) fn figures(&self, figures: &mut StoreFigures) {
        match self {
            Self::Single(..) => {}
            Self::Sentinel(_, followed) => followed.figures(figures),
            Self::Cluster(cluster) => cluster.figures(figures),
        }
    }

    /// Closes every connection, whoever still has one.
    pub(crate) async fn close(&self) {
        match self {
            Self::Single(shard, _) | Self::Sentinel(shard, _) => shard.pool.route.close().await,
            Self::Cluster(cluster) => cluster.close().await,
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Ends when the servers are others than when this was made, or last ended.
    pub(crate) async fn next(&mut self) {
        let changed = match &mut self.0 {
            Some(changes) => changes.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            pending::<()>().await;
        }
    }
}

/// Where a Redis store is.
#[derive(Debug, Clone)]
pub enum RedisServers {
    /// On one server.
    One(RedisUrl),
    /// On the master that the sentinels name.
    Sentinel(SentinelUrl),
    /// On the masters of a cluster.
    Cluster(ClusterUrl),
}

// === impl RedisServers ===

impl RedisServers {
    /// How to log in to whoever has the locks.
    pub(crate) fn login(&self) -> RedisLogin {
        match self {
            Self::One(url) => url.login(),
            Self::Sentinel(url) => url.login(),
            Self::Cluster(url) => url.login(),
        }
    }
}

impl From<&RedisUrl> for RedisServers {
    fn from(url: &RedisUrl) -> Self {
        Self::One(url.clone())
    }
}

impl From<&SentinelUrl> for RedisServers {
    fn from(url: &SentinelUrl) -> Self {
        Self::Sentinel(url.clone())
    }
}

impl From<&ClusterUrl> for RedisServers {
    fn from(url: &ClusterUrl) -> Self {
        Self::Cluster(url.clone())
    }
}

/// For people; never with a password.
impl fmt::Display for RedisServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(url) => write!(f, "Redis at {url}"),
            Self::Sentinel(url) => write!(f, "Redis by the sentinels of {url}"),
            Self::Cluster(url) => write!(f, "the Redis cluster at {url}"),
        }
    }
}

/// Finds out whether there is everything to connect with. It reads files.
pub fn check_credentials(
    servers: &RedisServers,
    config: &RedisConfig,
) -> Result<(), CredentialsError> {
    let of_redis = Credentials::of_redis(&servers.login(), config);
    of_redis.current()?;
    let named = match servers {
        RedisServers::One(url) => vec![url.node()],
        RedisServers::Sentinel(url) => {
            Credentials::of_sentinels(&url.login(), config).current()?;
            url.nodes().to_vec()
        }
        RedisServers::Cluster(url) => url.nodes().to_vec(),
    };
    for node in named.iter().filter(|_| of_redis.is_tls()) {
        server_name(node)?;
    }
    Ok(())
}

/// The same for the nodes of a quorum.
pub fn check_quorum_credentials(
    url: &RedlockUrl,
    config: &RedisConfig,
) -> Result<(), CredentialsError> {
    let of_nodes = Credentials::of_redis(&url.login(), config);
    of_nodes.current()?;
    for node in url.nodes().iter().filter(|_| of_nodes.is_tls()) {
        server_name(node)?;
    }
    Ok(())
}
