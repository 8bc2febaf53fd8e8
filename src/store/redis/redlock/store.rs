//! The Redlock store: its parts, and the store contract in terms of the quorum.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tracing::Instrument as _;

use crate::{
    clock::Clock,
    config::{Millis, RedisConfig, RedlockConfig, ServersUrl},
    lifecycle::Lifecycle,
    lock::{BreakTarget, LockName, RecipientId, ReleaseRequest, TokenHash},
    store::{
        Store, StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, FenceCheck, FenceQuery,
            GiveBack, Health, Inspection, Leaving, ListQuery, Page, Release, Releaser, Renewal,
            RenewalTtl, Renewer, Requesting, StoreFeature,
        },
        history::{HistoryBatch, StoredHistory},
        parking::Parking,
        relay::Relay,
    },
    telemetry::{metrics::StoreFigures, trace::SpanKind},
};

use super::{
    super::{
        SlotTags,
        client::credentials::Credentials,
        gateways::{Channels, Heard, Subscription},
        keys::GatewayId,
    },
    local_queue::LocalQueues,
    node::NodeMaker,
    quorum::Quorum,
    relay::QuorumRelay,
    scripts::QuorumScripts,
    shared::Shared,
    sweeper::Sweeper,
};

/// A store of leases that a majority of independent Redis servers agrees on.
///
/// The store starts even if servers are unavailable, and works when a majority of them answers.
pub struct RedlockStore {
    shared: Arc<Shared>,
    relay: QuorumRelay,
    description: String,
    closed: AtomicBool,
    /// The commands that are in progress, for which `close` waits.
    working: TaskTracker,
    /// Limits how many acquires, inspects, checks and lists are in progress.
    asking: Semaphore,
}

/// How many acquires, inspects, checks and lists may run at once. Each asks every node, and a node that gets more
/// requests than it can answer in its time counts as gone. Further requests wait at the gateway, where no request times
/// out at a node.
const ASKING: usize = 64;
/// How long an acquire, an inspect, a check or a list waits until it may run.
const ROOM_WITHIN: Duration = Duration::from_secs(3);
/// How often waiters that watch their position are sent their position.
const SHOWN: Duration = Duration::from_millis(500);

// === impl RedlockStore ===

impl RedlockStore {
    /// Opens the store. Connections are opened when they are needed, and at once by tasks in the background.
    ///
    /// The clock is only compared with the clocks of the nodes, to warn of a difference.
    pub fn open(
        url: &ServersUrl,
        redis: &RedisConfig,
        config: &RedlockConfig,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> Self {
        let channels = Channels::for_database(url.login().database);
        let tags = Arc::new(SlotTags::compute());
        let maker = NodeMaker {
            redis: RedisConfig {
                command_timeout_ms: Millis(config.node_timeout_ms.0),
                ..redis.clone()
            },
            workers: lifecycle.workers().clone(),
            credentials: Arc::new(Credentials::of_redis(&url.login(), redis)),
            scripts: Arc::new(QuorumScripts::new(&channels)),
            clock,
            tags: Arc::clone(&tags),
            wait: config.wait(),
            forgets: config.forgets(),
        };
        let nodes = url.nodes().iter().enumerate();
        let nodes: Vec<_> = nodes.map(|(index, node)| maker.node(index, node)).collect();
        let (sweeper, lists) = Sweeper::new(nodes.len(), config.max_ttl_ms.duration());
        let shared = Arc::new(Shared {
            quorum: Quorum::new(nodes),
            id: GatewayId::random(),
            channels,
            news_wanted: Arc::default(),
            parking: Parking::default(),
            breaks: BreakFeed::default(),
            tags,
            local_queues: LocalQueues::default(),
            sweeper,
            deadline: redis.deadline_ms.duration(),
            lifecycle: lifecycle.clone(),
            closing: CancellationToken::new(),
        });
        shared.start_sweeping(lists);
        shared.start_listening();
        shared.start_learning();
        let relay = QuorumRelay {
            shared: Arc::clone(&shared),
            sent: AtomicU64::new(0),
        };
        Self {
            shared,
            relay,
            description: format!("Redlock over {url}"),
            closed: AtomicBool::new(false),
            working: TaskTracker::new(),
            asking: Semaphore::new(ASKING),
        }
    }

    /// Counts a command as in progress for as long as the returned token lives.
    fn enter(&self) -> Result<TaskTrackerToken, Unavailability> {
        let token = self.working.token();
        if self.closed.load(Ordering::SeqCst) {
            return Err(Unavailability::Closing);
        }
        Ok(token)
    }

    /// Waits until an acquire, an inspect, a check or a list may run.
    async fn room(&self) -> Result<SemaphorePermit<'_>, Unavailability> {
        match timeout(ROOM_WITHIN, self.asking.acquire()).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(Unavailability::Overloaded),
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Starts the examination of the nodes, and the subscriptions to their messages.
    fn start_listening(self: &Arc<Self>) {
        for node in self.quorum.nodes() {
            let examiner = Arc::clone(&node.examiner);
            let span = tracing::info_span!("node", node = node.name);
            self.start_background(async move { examiner.watch().await }.instrument(span));
            let subscription = Subscription {
                id: self.id.clone(),
                channels: self.channels.clone(),
                news_wanted: Arc::clone(&self.news_wanted),
                dispatch: Arc::clone(&node.dispatch),
            };
            let here = Arc::clone(self);
            let listening = subscription.listen(move |heard| {
                if let Heard::Message(message) = heard {
                    here.ingest_message(message);
                }
            });
            self.start_background(listening);
        }
        let shown = Arc::clone(self);
        self.start_background(async move {
            let mut had_majority = None;
            loop {
                tokio::time::sleep(SHOWN).await;
                shown.show_positions();
                shown.log_majority(&mut had_majority);
            }
        });
    }
}

#[async_trait]
impl Store for RedlockStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let _working = self.enter()?;
        let _room = self.room().await?;
        self.shared.acquire(attempt).await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let _working = self.enter()?;
        self.shared.confirm(name, token).await
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let _working = self.enter()?;
        self.shared.leave(name, token, keep_for).await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let _working = self.enter()?;
        self.shared.renew(renewer, name, token, ttl).await
    }

    async fn release_as(
        &self,
        releaser: Releaser,
        name: &LockName,
        token: &TokenHash,
        granted_here: bool,
    ) -> Result<Release, StoreError> {
        let _working = self.enter()?;
        self.shared
            .release(releaser.recipient(), name, token, granted_here)
            .await
    }

    async fn record_history(&self, batches: &[HistoryBatch]) -> Result<Vec<usize>, StoreError> {
        // The recorder sends few batches at once, so that they take no places of acquires.
        let _working = self.enter()?;
        self.shared.record_history(batches).await?;
        Ok(Vec::new())
    }

    async fn history(&self, name: &LockName) -> Result<StoredHistory, StoreError> {
        let _working = self.enter()?;
        let _room = self.room().await?;
        self.shared.history(name).await
    }

    async fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError> {
        let _working = self.enter()?;
        self.shared.give_back(name, token, unanswered).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let _working = self.enter()?;
        let _room = self.room().await?;
        self.shared.inspect(name).await
    }

    async fn check_fence(&self, query: &FenceQuery) -> Result<FenceCheck, StoreError> {
        let _working = self.enter()?;
        let _room = self.room().await?;
        self.shared.check_fence(query).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let _working = self.enter()?;
        let _room = self.room().await?;
        self.shared.page(query).await
    }

    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        let _working = self.enter()?;
        self.shared.request_release(name, target, request).await
    }

    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        let _working = self.enter()?;
        self.shared.break_lock(name, target).await
    }

    fn breaks(&self) -> &BreakFeed {
        &self.shared.breaks
    }

    fn supports(&self, feature: StoreFeature) -> bool {
        // Counters at a majority of the nodes cannot bound how many shared leases there are. A node that missed a
        // release would not know of the rest, and one that missed a grant not of its order. The nodes have no common queue,
        // and no common clock.
        match feature {
            StoreFeature::Sharing
            | StoreFeature::MinHold
            | StoreFeature::Supersedes
            | StoreFeature::Reserve
            | StoreFeature::Order => false,
        }
    }

    fn parking(&self) -> &Parking {
        &self.shared.parking
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(&self.relay)
    }

    async fn check(&self) -> Vec<Check> {
        match self.enter() {
            Ok(_working) => self.shared.check().await,
            Err(closing) => vec![Check::new(
                "connection",
                Health::Outage(closing.to_string()),
            )],
        }
    }

    fn figures(&self) -> StoreFigures {
        self.shared.figures()
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.working.close();
        let longest = 2 * self.shared.deadline;
        drop(timeout(longest, self.working.wait()).await);
        self.shared.closing.cancel();
        for node in self.shared.quorum.nodes() {
            node.shard.pool.route.close().await;
        }
    }

    fn system(&self) -> (&'static str, SpanKind) {
        ("redis", SpanKind::Client)
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl fmt::Debug for RedlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockStore")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}
