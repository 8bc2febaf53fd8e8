//! The store itself: what it is made of, and the contract in terms of the scripts.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Duration, timeout},
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{
    clock::Clock,
    config::RedisConfig,
    lifecycle::Lifecycle,
    lock::{FencingToken, KeeperId, LockName, TokenHash, Ttl},
    store::{
        Store, StoreError, Unavailability,
        breaks::{Breaking, Breaks},
        contract::{
            Acquisition, Attempt, Check, Confirmation, Contention, GiveBack, Health, Inspection,
            Leaving, Place, Release, Renewal, Renewer,
        },
        page::{ListQuery, Page},
        parking::Parking,
        relay::Relay,
    },
    telemetry::metrics::StoreFigures,
};

use super::{
    SlotTags,
    admission::Admission,
    break_lock::break_lock,
    dispatch::Dispatch,
    examination::Examiner,
    floors::Floors,
    gateway::Gateway,
    keys::Keys,
    list::Listing,
    pool::Pool,
    relay::RedisRelay,
    replicas::Replicas,
    replicated::Replicated,
    scripts::{Knowledge, Scripts},
    servers::RedisServers,
    topology::Topology,
    wake::Wake,
};

/// Leases in Redis.
///
/// It starts whether or not the server does, and comes back by itself when the server does. Before
/// the server has been reached once and found safe, nothing is granted.
pub struct RedisStore {
    dispatch: Arc<Dispatch>,
    scripts: Arc<Scripts>,
    gateway: Arc<Gateway>,
    admission: Arc<Admission>,
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
    /// Room for those who ask for something, among the commands that are under way.
    asking: Semaphore,
}

/// How many acquires and inspections may be under way at once. A renewal or a release waits for no
/// more than these, however many ask: some milliseconds of the server's time.
const ASKING: usize = 1_024;
/// How long the others wait for room. Nothing has been sent for them then.
const ROOM_WITHIN: Duration = Duration::from_secs(1);

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
        let topology = Topology::new(&servers, config, &clock);
        let dispatch = Arc::new(Dispatch::new(topology, config));
        let scripts = Arc::new(Scripts::new());
        let floors = Arc::new(Floors::new());
        let tags = Arc::new(SlotTags::compute());
        let replicas = Replicas::new(config);
        let (gateway, orphans) = Gateway::new(Arc::clone(&floors), replicas.are_waited_for());
        let gateway = Arc::new(gateway);
        let replicated = Arc::new(Replicated {
            replicas,
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&scripts),
            gateway: Arc::clone(&gateway),
        });
        let examiner = Examiner {
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&scripts),
            replicated: Arc::clone(&replicated),
            floors,
            gateway: Arc::clone(&gateway),
            clock,
            accept_eviction: config.accept_eviction,
            skew: Mutex::default(),
            policy: Mutex::default(),
        };
        let limit = config.command_timeout_ms.duration();
        let admission = Arc::new(Admission::new(examiner, limit));
        let (watcher, stopped) = (Arc::clone(&admission), lifecycle.stopped());
        lifecycle.spawn_background(async move { watcher.watch(stopped).await });
        let wake = Wake {
            gateway: Arc::clone(&gateway),
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&scripts),
            tags: Arc::clone(&tags),
        };
        let closing = CancellationToken::new();
        dispatch.topology.start(lifecycle, &closing);
        wake.start(orphans, lifecycle, &closing);
        let relay = RedisRelay {
            gateway: Arc::clone(&gateway),
            dispatch: Arc::clone(&dispatch),
            closing: closing.clone(),
        };
        Self {
            dispatch,
            scripts,
            gateway,
            admission,
            tags,
            relay,
            replicated,
            description: servers.to_string(),
            closed: AtomicBool::new(false),
            closing,
            working: TaskTracker::new(),
            deadline: config.deadline_ms.duration(),
            asking: Semaphore::new(ASKING),
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

    /// Room for a command that does not keep anybody's lease.
    async fn room(&self) -> Result<SemaphorePermit<'_>, Unavailability> {
        match timeout(ROOM_WITHIN, self.asking.acquire()).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(Unavailability::Overloaded),
        }
    }

    fn keys(&self, name: &LockName) -> Keys {
        Keys::of(name, &self.tags, &self.gateway.id)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let _working = self.enter()?;
        self.admission.admit().await?;
        let _room = self.room().await?;
        let keys = self.keys(&attempt.name);
        let line = self.replicated.line().await?;
        let acquire = self
            .scripts
            .acquire(&self.dispatch, &self.gateway, &keys, attempt);
        let acquisition = acquire.await?;
        match &acquisition {
            Acquisition::Replayed(lease, _) | Acquisition::Collected(lease, _) => {
                self.gateway.floors.raise(keys.slot(), lease.fence);
            }
            Acquisition::Held(Contention { holder, .. })
            | Acquisition::Queued(Place {
                contention: Contention { holder, .. },
                ..
            }) => {
                self.gateway.floors.saw(keys.slot(), holder.as_ref());
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
            .acquisition(line, &keys, attempt, acquisition);
        replicated.await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let renewal = self
            .scripts
            .renew(&self.dispatch, &self.gateway, &keys, renewer, token, ttl)
            .await?;
        if let Renewal::Renewed(lease) = &renewal {
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
        let _working = self.enter()?;
        let keys = self.keys(name);
        let (scripts, known) = (&self.scripts, Knowledge::MayBeHeard);
        scripts
            .give_back(&self.dispatch, &self.gateway, &keys, token, known)
            .await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        let line = self.replicated.line().await?;
        let confirmation = self.scripts.confirm(&self.dispatch, &keys, token).await?;
        if let Confirmation::Confirmed(lease) = &confirmation {
            self.gateway.floors.raise(keys.slot(), lease.fence);
            self.replicated.grant(line, &keys, token).await?;
        }
        Ok(confirmation)
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
            self.gateway.keeps_place(name, *token, keep_for);
        }
        leaving
    }

    fn parking(&self) -> &Parking {
        &self.gateway.parking
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(&self.relay)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let _working = self.enter()?;
        let _room = self.room().await?;
        let keys = self.keys(name);
        let inspection = self.scripts.inspect(&self.dispatch, &keys).await?;
        self.gateway
            .floors
            .saw(keys.slot(), inspection.holder.as_ref());
        Ok(inspection)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let _working = self.enter()?;
        let _room = self.room().await?;
        let listing = Listing {
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
        fence: Option<FencingToken>,
    ) -> Result<Breaking, StoreError> {
        let _working = self.enter()?;
        let keys = self.keys(name);
        break_lock(&self.dispatch, &self.scripts, &self.gateway, &keys, fence).await
    }

    fn breaks(&self) -> &Breaks {
        &self.gateway.breaks
    }

    async fn check(&self) -> Vec<Check> {
        match self.enter() {
            Ok(_working) => self.admission.check().await,
            Err(closing) => vec![Check {
                name: "connection",
                health: Health::Outage(closing.to_string()),
                note: None,
            }],
        }
    }

    fn figures(&self) -> StoreFigures {
        let topology = &self.dispatch.topology;
        let pools = topology.pools();
        let skew = self.admission.clock_skew();
        let mut figures = StoreFigures {
            connections: Some(pools.map(Pool::open).sum()),
            hears: Some(self.gateway.hears.load(Ordering::Relaxed)),
            unsent_messages: Some(self.gateway.unsent()),
            clock_skew: topology.node().zip(skew).into_iter().collect(),
            replicas: self.replicated.replicas.confirmed(),
            ..StoreFigures::default()
        };
        topology.figures(&mut figures);
        figures
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.working.close();
        // No command lasts longer than its deadline, the giving back after an acquire included.
        drop(timeout(2 * self.deadline, self.working.wait()).await);
        self.closing.cancel();
        for pool in self.dispatch.topology.pools() {
            pool.close().await;
        }
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
