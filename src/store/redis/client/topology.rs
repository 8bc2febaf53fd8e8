//! The topology of a store: which server has which slot.

use std::sync::Arc;

use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Duration, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::{RedisConfig, ServersKind, ServersUrl},
    lifecycle::{Lifecycle, Workers},
    store::{Partition, Unavailability, contract::Check},
    telemetry::metrics::StoreFigures,
};

use super::{
    super::Slot,
    cluster::Cluster,
    failure::{Failure, Redirect},
    pool::Route,
    sentinels::FollowedMaster,
    shard::{CommandClass, Destination, Shard},
};

/// The servers of the store, and which of them has which slot.
pub(crate) enum Topology {
    /// One server has every slot: a fixed server, or the master that the sentinels name.
    One(Arc<Shard>),
    /// Each master of a cluster has some of the slots.
    Cluster(Arc<Cluster>),
}

/// How long a command waits at most until the masters of a cluster are known.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

// === impl Topology ===

impl Topology {
    /// Creates the topology, without connecting to any server yet.
    pub(crate) fn new(
        url: &ServersUrl,
        config: &RedisConfig,
        clock: &Arc<dyn Clock>,
        workers: &Workers,
    ) -> Self {
        let route = match url.kind() {
            ServersKind::One => Route::to_one(url, config),
            ServersKind::Sentinels => {
                let followed = FollowedMaster::new(url, config, Arc::clone(clock));
                Route::Followed(Arc::new(followed))
            }
            ServersKind::Cluster => {
                return Self::Cluster(Arc::new(Cluster::new(url, config, workers)));
            }
            ServersKind::Quorum => unreachable!("each node of a quorum is a store of its own"),
        };
        Self::One(Arc::new(Shard::new(route, None, config, workers)))
    }

    /// Starts the task that follows the master, or the slots of a cluster, until the program stops or the store is
    /// closed.
    pub(crate) fn start(&self, lifecycle: &Lifecycle, closing: &CancellationToken) {
        if let Some(followed) = self.followed() {
            Arc::clone(followed).start(lifecycle, closing);
        }
        if let Self::Cluster(cluster) = self {
            Arc::clone(cluster).start(lifecycle, closing);
        }
    }

    /// The followed master, if sentinels are used.
    fn followed(&self) -> Option<&Arc<FollowedMaster>> {
        match self {
            Self::One(shard) => shard.pool.route.followed(),
            Self::Cluster(_) => None,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether a replica may become the master.
    pub(crate) fn fails_over(&self) -> bool {
        self.is_cluster() || self.followed().is_some()
    }

    /// The server that has this slot.
    pub(crate) fn shard(&self, slot: Slot) -> Result<Arc<Shard>, Unavailability> {
        match self {
            Self::One(shard) => Ok(Arc::clone(shard)),
            Self::Cluster(cluster) => cluster.owner(slot),
        }
    }

    /// The part of the store that is unavailable while the server with this slot is unavailable.
    pub(crate) fn partition(&self, slot: Slot) -> Partition {
        match self {
            Self::One(_) => Partition::WHOLE,
            // Commands for a slot without a server fail soon, so they hold up no other commands.
            Self::Cluster(cluster) => cluster.owner(slot).map_or(Partition::WHOLE, |shard| {
                // The address in memory identifies the shard: no other shard has this address while this shard is in
                // use.
                Partition::one_of(Arc::as_ptr(&shard).addr())
            }),
        }
    }

    /// Waits until some servers of the store are known, or until that has taken too long.
    pub(crate) async fn wait_until_known(&self) {
        if let Self::Cluster(cluster) = self {
            drop(timeout(KNOWN_WITHIN, cluster.wait_until_known()).await);
        }
    }

    /// Permit to wait for the server that has this slot. The permit is needed only if the store has several servers and
    /// this server is unreachable.
    pub(crate) fn wait_permit(
        &self,
        slot: Slot,
        with: CommandClass,
    ) -> Result<Option<OwnedSemaphorePermit>, Unavailability> {
        match self {
            Self::One(_) => Ok(None),
            // For a slot without a server no permit is needed, because the slot's server may be known in a moment.
            Self::Cluster(cluster) => {
                (cluster.owner(slot)).map_or(Ok(None), |owner| owner.wait_permit(with))
            }
        }
    }

    /// All servers of the store that are known to have slots.
    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        match self {
            Self::One(shard) => vec![Arc::clone(shard)],
            Self::Cluster(cluster) => cluster.shards(),
        }
    }

    /// All servers of the store that have slots, in the order of the first slot of each. Fails if a slot has no server.
    pub(crate) fn shards_by_slot(&self) -> Result<Vec<Arc<Shard>>, Unavailability> {
        match self {
            Self::One(shard) => Ok(vec![Arc::clone(shard)]),
            Self::Cluster(cluster) => cluster.shards_by_slot(),
        }
    }

    /// Whether this server has this slot now.
    pub(crate) fn has(&self, shard: &Arc<Shard>, slot: Slot) -> bool {
        let owner = self.shard(slot);
        owner.is_ok_and(|owner| Arc::ptr_eq(&owner, shard))
    }

    /// A slot of this server, for a key that tests what the server permits; `None` outside a cluster, where any key is
    /// at the server.
    pub(crate) fn some_slot(&self, shard: &Arc<Shard>) -> Option<Slot> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => cluster.some_slot(shard),
        }
    }

    /// A server at which the messages of all servers arrive: the servers of a cluster pass them on to each other.
    pub(crate) fn pubsub_shard(&self) -> Result<Arc<Shard>, Unavailability> {
        match self {
            Self::One(shard) => Ok(Arc::clone(shard)),
            Self::Cluster(cluster) => cluster.pubsub_shard(),
        }
    }

    /// Counter that changes when this slot moves to another server, so that a caller notices a move between two
    /// calls.
    pub(crate) fn moves(&self, slot: Slot) -> u32 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.moves(slot),
        }
    }

    /// The destination to which a server's redirect sends a command.
    pub(crate) fn follow(
        &self,
        slot: Slot,
        redirect: &Redirect,
        by: &Shard,
    ) -> Result<Destination, Failure> {
        match self {
            Self::One(_) => Err(Failure::WrongNode(redirect.reason())),
            Self::Cluster(cluster) => Ok(cluster.follow(slot, redirect, by)),
        }
    }

    /// Requests a refresh of the cluster's layout, because a command got no usable reply.
    pub(crate) fn request_refresh(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.request_refresh();
        }
    }

    /// Returns a receiver that is notified when the set of servers changes. Outside a cluster the set never changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        match self {
            Self::One(_) => watch::Sender::new(0).subscribe(),
            Self::Cluster(cluster) => cluster.changes(),
        }
    }

    /// Readiness checks of the followed master, or of the slots of the cluster.
    pub(crate) fn checks(&self) -> Vec<Check> {
        match self {
            Self::One(_) => self.followed().map_or_else(Vec::new, |it| it.checks()),
            Self::Cluster(cluster) => cluster.checks(),
        }
    }

    /// Adds the metrics of the followed master, or of the servers of the cluster.
    pub(crate) fn figures(&self, figures: &mut StoreFigures) {
        match self {
            Self::One(_) => self
                .followed()
                .into_iter()
                .for_each(|it| it.figures(figures)),
            Self::Cluster(cluster) => cluster.figures(figures),
        }
    }

    /// Closes every connection to the servers, even those that are still in use.
    pub(crate) async fn close(&self) {
        match self {
            Self::One(shard) => shard.pool.route.close().await,
            Self::Cluster(cluster) => cluster.close().await,
        }
    }
}
