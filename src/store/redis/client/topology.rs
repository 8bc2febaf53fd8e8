//! Which server a slot lives on.

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

/// The servers of the store.
pub(crate) enum Topology {
    /// One server has every slot: always the same one, or the master that the sentinels name.
    One(Arc<Shard>),
    /// Each master of a cluster has some.
    Cluster(Arc<Cluster>),
}

/// How long it may take until it is known who has what.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

// === impl Topology ===

impl Topology {
    /// Connects to nobody yet.
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

    /// Starts what keeps an eye on who has what, until the program stops or the store is closed.
    pub(crate) fn start(&self, lifecycle: &Lifecycle, closing: &CancellationToken) {
        if let Some(followed) = self.followed() {
            Arc::clone(followed).start(lifecycle, closing);
        }
        if let Self::Cluster(cluster) = self {
            Arc::clone(cluster).start(lifecycle, closing);
        }
    }

    /// The master that the sentinels name, if they are asked.
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

    /// That which is away when the server is that has a slot.
    pub(crate) fn partition(&self, slot: Slot) -> Partition {
        match self {
            Self::One(_) => Partition::WHOLE,
            // Where nobody has the slot, what is sent ends soon.
            Self::Cluster(cluster) => cluster.owner(slot).map_or(Partition::WHOLE, |shard| {
                // While this shard is in use, no other one has the same address in memory.
                Partition::one_of(Arc::as_ptr(&shard).addr())
            }),
        }
    }

    /// Ends when some servers are known, or when that has taken too long.
    pub(crate) async fn wait_until_known(&self) {
        if let Self::Cluster(cluster) = self {
            drop(timeout(KNOWN_WITHIN, cluster.wait_until_known()).await);
        }
    }

    /// Room to wait for the server that has a slot, if it is one of several and away.
    pub(crate) fn wait_permit(
        &self,
        slot: Slot,
        with: CommandClass,
    ) -> Result<Option<OwnedSemaphorePermit>, Unavailability> {
        match self {
            Self::One(_) => Ok(None),
            // Which server has the slot may be known in a moment.
            Self::Cluster(cluster) => {
                (cluster.owner(slot)).map_or(Ok(None), |owner| owner.wait_permit(with))
            }
        }
    }

    /// Every server that has slots, as far as is known.
    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        match self {
            Self::One(shard) => vec![Arc::clone(shard)],
            Self::Cluster(cluster) => cluster.shards(),
        }
    }

    /// Every server that has slots, in the order of the first slot of each. Fails if a slot has no server.
    pub(crate) fn shards_by_slot(&self) -> Result<Vec<Arc<Shard>>, Unavailability> {
        match self {
            Self::One(shard) => Ok(vec![Arc::clone(shard)]),
            Self::Cluster(cluster) => cluster.shards_by_slot(),
        }
    }

    /// Whether this server has a slot.
    pub(crate) fn has(&self, shard: &Arc<Shard>, slot: Slot) -> bool {
        let owner = self.shard(slot);
        owner.is_ok_and(|owner| Arc::ptr_eq(&owner, shard))
    }

    /// Some slot of a server, in which it can be found out what the server lets us do; `None` for one
    /// that takes part in no cluster, where any is as good.
    pub(crate) fn some_slot(&self, shard: &Arc<Shard>) -> Option<Slot> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => cluster.some_slot(shard),
        }
    }

    /// A server on which the messages of all others arrive: in a cluster all of them tell each
    /// other.
    pub(crate) fn pubsub_shard(&self) -> Result<Arc<Shard>, Unavailability> {
        match self {
            Self::One(shard) => Ok(Arc::clone(shard)),
            Self::Cluster(cluster) => cluster.pubsub_shard(),
        }
    }

    /// Tells it apart when a slot has gone to another server in between.
    pub(crate) fn moves(&self, slot: Slot) -> u32 {
        match self {
            Self::One(_) => 0,
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
            Self::One(_) => Err(Failure::WrongNode(redirect.reason())),
            Self::Cluster(cluster) => Ok(cluster.follow(slot, redirect, by)),
        }
    }

    /// Somebody got no answer: it is time to ask who has what.
    pub(crate) fn request_refresh(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.request_refresh();
        }
    }

    /// Notifies subscribers when the set of servers changes. Of one server it never does.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        match self {
            Self::One(_) => watch::Sender::new(0).subscribe(),
            Self::Cluster(cluster) => cluster.changes(),
        }
    }

    /// What is known of who has what.
    pub(crate) fn checks(&self) -> Vec<Check> {
        match self {
            Self::One(_) => self.followed().map_or_else(Vec::new, |it| it.checks()),
            Self::Cluster(cluster) => cluster.checks(),
        }
    }

    /// The same in figures.
    pub(crate) fn figures(&self, figures: &mut StoreFigures) {
        match self {
            Self::One(_) => self
                .followed()
                .into_iter()
                .for_each(|it| it.figures(figures)),
            Self::Cluster(cluster) => cluster.figures(figures),
        }
    }

    /// Closes every connection, whoever still has one.
    pub(crate) async fn close(&self) {
        match self {
            Self::One(shard) => shard.pool.route.close().await,
            Self::Cluster(cluster) => cluster.close().await,
        }
    }
}
