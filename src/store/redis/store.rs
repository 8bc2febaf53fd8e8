//! The store itself: what it is made of, and the contract in terms of the scripts.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::time::{Duration, timeout};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{
    clock::Clock,
    config::RedisConfig,
    lifecycle::Lifecycle,
    lock::{BreakTarget, KeeperId, LockName, ReleaseRequest, TokenHash},
    store::{
        Partition, Store, StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, Contention, GiveBack,
            Health, Inspection, Leaving, ListQuery, Page, QueuePosition, Relay, Release, Renewal,
            RenewalTtl, Renewer, Requesting,
        },
        parking::Parking,
    },
    telemetry::metrics::StoreFigures,
};

use super::{
    Slot, SlotTags,
    break_lock::{break_lock, request_release},
    client::{
        dispatch::Dispatch,
        failure::ACL_LINE,
        shard::Shard,
        topology::{RedisServers, Topology},
    },
    gateways::Channels,
    health::{examination::Examiner, floors::Floors, probe},
    keys::Keys,
    list::page::RedisListing,
    queue::{gateway::RedisGateway, queue_maintenance::QueueMaintenance, relay::RedisRelay},
    replicated::Replicated,
    scripts::{GrantKnowledge, Scripts, typed_keys},
};

/// Leases in Redis.
///
/// It starts whether or not the server does, and comes back by itself when the server does. Before
/// the server has been reached once and found safe, nothing is granted.
pub struct RedisStore {
    dispatch: Arc<Dispatch>,
    scripts: Arc<Scripts>,
    gateway: Arc<RedisGateway>,
    examiner: Arc<Examiner>,
    tags: Arc<SlotTags>,
    relay: RedisRelay,
    replicated: Arc<Replicated>,
    description: String,
    closed: AtomicBool,
    /// Ends what goes on by itself.
    closing: CancellationToken,
    /// The commands that are under way.
    working: TaskTracker,
    deadline: Duration,
}

// === impl RedisStore ===

impl RedisStore {
    /// Opens the store. It connects when it is needed, and at once in a task of its own.
    ///
    /// The clock is only compared with the server's, to warn of a difference.
    pub fn open(
        servers: impl Into<RedisServers>,
        config: &RedisConfig,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> Self {
        let servers = servers.into();
        let topology = Topology::new(&servers, config, &clock, lifecycle.workers());
        let dispatch = Arc::new(Dispatch::new(topology, config, typed_keys));
        let channels = Channels::of(servers.login().database);
        let scripts = Arc::new(Scripts::new(&channels));
        let floors = Arc::new(Floors::new());
        let tags = Arc::new(SlotTags::compute());
        let (gateway, orphans) =
            RedisGateway::new(channels, Arc::clone(&floors), config.wait_replicas > 0);
        let gateway = Arc::new(gateway);
        let replicated = Arc::new(Replicated {
            tags: Arc::clone(&tags),
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&scripts),
            gateway: Arc::clone(&gateway),
        });
        let examiner = Arc::new(Examiner {
            dispatch: Arc::clone(&dispatch),
            probe: probe::script(include_str!("scripts/probe.lua")),
            floors,
            clock,
            tags: Arc::clone(&tags),
            acl_line: ACL_LINE,
            accept_eviction: config.accept_eviction,
            limit: config.command_timeout_ms.duration(),
        });
        let (watching, stopped) = (Arc::clone(&examiner), lifecycle.stopped());
        lifecycle.spawn_background(async move {
            tokio::select! {
                () = watching.watch() => {}
                () = stopped => {}
            }
        });
        let maintenance = QueueMaintenance {
            gateway: Arc::clone(&gateway),
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&scripts),
            tags: Arc::clone(&tags),
        };
        let closing = CancellationToken::new();
        dispatch.topology.start(lifecycle, &closing);
        maintenance.start(orphans, lifecycle, &closing);
        let relay = RedisRelay {
            gateway: Arc::clone(&gateway),
            dispatch: Arc::clone(&dispatch),
            closing: closing.clone(),
        };
        Self {
            dispatch,
            scripts,
            gateway,
            examiner,
            tags,
            relay,
            replicated,
            description: servers.to_string(),
            closed: AtomicBool::new(false),
            closing,
            working: TaskTracker::new(),
            deadline: config.deadline_ms.duration(),
        }
    }

    /// How many messages to other gateways could not be published. Each costs the one it was for up
    /// to two seconds.
    pub fn unsent_messages(&self) -> u64 {
        self.gateway.unsent()
    }

    /// Counts a command as under way for as long as the token lives.
    fn enter(&self) -> Result<TaskTrackerToken, Unavailability> {
        let token = self.working.token();
        if self.closed.load(Ordering::SeqCst) {
            return Err(Unavailability::Closing);
        }
        Ok(token)
    }

    /// The server that has a slot, as soon as it is known which.
    async fn shard(&self, slot: Slot) -> Result<Arc<Shard>, Unavailability> {
        let topology = &self.dispatch.topology;
        topology.wait_until_known().await;
        topology.shard(slot)
    }

    fn keys(&self, name: &LockName) -> Keys {
        Keys::of(name, &self.tags, &self.gateway.id)
    }
}

impl RedisStore {
    async fn give_back_known(
        &self,
        name: &LockName,
        token: &TokenHash,
        known: GrantKnowledge,
    ) -> Result<GiveBack, StoreError> {
        let _working = self.enter()?;
        let (scripts, keys) = (&self.scripts, self.keys(name));
        scripts
            .give_back(&self.dispatch, &self.gateway, &keys, token, known)
            .await
    }
}

impl Store for RedisStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let _working = self.enter()?;
        let mut dispatch = self.dispatch.for_one_request();
        let keys = self.keys(&attempt.name);
        let shard = self.shard(keys.slot()).await?;
        let admission = &shard.admission;
        admission
            .admit_by(&shard, &self.examiner, dispatch.limit())
            .await?;
        let _room = match (shard.asking.at_once(), &attempt.wait) {
            (Some(room), _) => room,
            (None, None) => shard.asking.within(Duration::ZERO).await?,
            (None, Some(waiting)) => {
                // Thousands who wait ask again at once when the server was started anew, and none of them is turned away
                // because of the others. What it waits for room is part of its own wait.
                let room = shard.asking.within(waiting.max_wait).await?;
                dispatch = self.dispatch.for_one_request();
                room
            }
        };
        let replica_check = self.replicated.prepare(&dispatch, keys.slot()).await?;
        let acquire = self
            .scripts
            .acquire(&dispatch, &self.gateway, &keys, attempt);
        let answer = acquire.await?;
        match &answer.0 {
            Acquisition::Replayed(lease, ..) | Acquisition::Collected(lease, ..) => {
                self.gateway.floors.raise(keys.slot(), lease.fence);
            }
            Acquisition::Held(Contention { holder, .. })
            | Acquisition::Queued(QueuePosition {
                contention: Contention { holder, .. },
                ..
            }) => {
                self.gateway
                    .floors
                    .raise_to_holder(keys.slot(), holder.as_ref());
            }
            // The fence of a grant is noted where it is read.
            Acquisition::Granted(_)
            | Acquisition::QueueFull
            | Acquisition::Superseded
            | Acquisition::IdempotencyMismatch
            | Acquisition::IdempotencyExpired => {}
        }
        let replicated = self
            .replicated
            .acquisition(replica_check, &keys, attempt, answer);
        replicated.await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let renewal = self
            .scripts
            .renew(&self.dispatch.for_one_request(), &keys, renewer, token, ttl)
            .await?;
        if let Renewal::Renewed(lease, _) = &renewal {
            self.gateway.floors.raise(keys.slot(), lease.fence);
        }
        Ok(renewal)
    }

    async fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let scripts = &self.scripts;
        scripts
            .release(&self.dispatch, &self.gateway, &keys, keeper, token)
            .await
    }

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        let known = GrantKnowledge::MayBeDelivered;
        self.give_back_known(name, token, known).await
    }

    async fn give_back_unanswered(
        &self,
        name: &LockName,
        token: &TokenHash,
        keeper: KeeperId,
    ) -> Result<GiveBack, StoreError> {
        let known = GrantKnowledge::Unanswered(keeper);
        self.give_back_known(name, token, known).await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let dispatch = self.dispatch.for_one_request();
        let replica_check = self.replicated.prepare(&dispatch, keys.slot()).await?;
        match self.scripts.confirm(&dispatch, &keys, token).await? {
            (Confirmation::Confirmed(lease), run) => {
                self.gateway.floors.raise(keys.slot(), lease.fence);
                let granted =
                    self.replicated
                        .grant(replica_check, &keys, token, lease, run.as_ref());
                granted.await.map(Confirmation::Confirmed)
            }
            (other @ (Confirmation::Lost | Confirmation::Superseded), _) => Ok(other),
        }
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let leaving = self.replicated.leave(&keys, token, keep_for).await;
        // Perhaps also where it is not known.
        if let (Ok(Leaving::Left(_)) | Err(_), Some(keep_for)) = (&leaving, keep_for) {
            self.gateway.schedule_lapse(name, *token, keep_for);
        }
        leaving
    }

    fn parking(&self) -> &Parking {
        &self.gateway.parking
    }

    fn partition(&self, name: &LockName) -> Partition {
        self.dispatch.topology.partition(Slot::of_name(name))
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(&self.relay)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let shard = self.shard(keys.slot()).await?;
        let _room = shard.asking.within(Duration::ZERO).await?;
        let inspection = self.scripts.inspect(&self.dispatch, &keys).await?;
        self.gateway
            .floors
            .raise_to_holder(keys.slot(), inspection.holder.as_ref());
        Ok(inspection)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let _working = self.enter()?;
        let listing = RedisListing {
            dispatch: &self.dispatch,
            scripts: &self.scripts,
            gateway: &self.gateway,
            tags: &self.tags,
            query,
        };
        listing.page().await
    }

    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let dispatch = self.dispatch.for_one_request();
        break_lock(&dispatch, &self.scripts, &self.gateway, &keys, target).await
    }

    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let dispatch = self.dispatch.for_one_request();
        let (scripts, gateway) = (&self.scripts, &self.gateway);
        request_release(&dispatch, scripts, gateway, &keys, target, request).await
    }

    fn breaks(&self) -> &BreakFeed {
        &self.gateway.breaks
    }

    async fn check(&self) -> Vec<Check> {
        match self.enter() {
            Ok(_working) => self.examiner.check().await,
            Err(closing) => vec![Check::new(
                "connection",
                Health::Outage(closing.to_string()),
            )],
        }
    }

    fn figures(&self) -> StoreFigures {
        let topology = &self.dispatch.topology;
        let shards = topology.shards();
        let skew = |shard: &Arc<Shard>| topology.node(shard).zip(*shard.admission.skew.lock());
        let replicas = shards.iter().map(|shard| shard.replicas.confirmed());
        let mut figures = StoreFigures {
            connections: Some(shards.iter().map(|shard| shard.pool.open()).sum()),
            hears: Some(self.gateway.is_subscribed.load(Ordering::Relaxed)),
            unsent_messages: Some(self.gateway.unsent()),
            clock_skew: shards.iter().filter_map(skew).collect(),
            // Of the server that has the fewest.
            replicas: replicas.flatten().min(),
            ..StoreFigures::default()
        };
        topology.figures(&mut figures);
        figures
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.working.close();
        // What takes longer has its outcome unknown, and is seen to by who asked for it.
        drop(timeout(self.deadline, self.working.wait()).await);
        self.closing.cancel();
        self.dispatch.topology.close().await;
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}
