//! The Redis store: its parts, and the methods of the store contract, which run the scripts.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::{StreamExt, future, stream::BoxStream};
use tokio::time::{Duration, timeout_at};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use crate::{
    clock::Clock,
    config::{OrderLimits, RedisConfig, ServersKind, ServersUrl},
    lifecycle::Lifecycle,
    lock::{BreakTarget, LockName, RecipientId, ReleaseRequest, TokenHash},
    store::{
        Partition, Store, StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, FenceCheck, FenceQuery,
            GiveBack, Health, Inspection, Leaving, ListQuery, OrderChange, OrderSetting, Page,
            Release, Releaser, Renewal, RenewalTtl, Renewer, Requesting,
        },
        history::{HistoryBatch, StoredHistory},
        parking::Parking,
        relay::{DeclarationHashes, Relay},
    },
    telemetry::{metrics::StoreFigures, trace::SpanKind},
};

use super::{
    Slot, SlotTags,
    client::{dispatch::Dispatch, failure::ACL_LINE, shard::Shard, topology::Topology},
    gateways::Channels,
    health::{examination::Examiner, probe},
    list::RedisListing,
    queue::{gateway::RedisGateway, rounds},
    scripts::{GrantKnowledge, LockScripts, RedisContext, Scripts, typed_keys},
    slot::Floors,
};

/// The store that keeps leases in Redis.
///
/// The store starts even if the server is unavailable, and reconnects automatically. It grants no lock until the server
/// has been reached once and found safe.
pub struct RedisStore {
    context: Arc<RedisContext>,
    examiner: Arc<Examiner>,
    description: String,
    closed: AtomicBool,
    /// The commands that are in progress, for which `close` waits.
    working: TaskTracker,
}

// === impl RedisStore ===

impl RedisStore {
    /// Opens the store without waiting for the server: a background task connects at once, and each request connects if
    /// there is no connection.
    ///
    /// The clock is only compared with the server's, to warn of a difference.
    pub fn open(
        url: &ServersUrl,
        config: &RedisConfig,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
        orders: OrderLimits,
    ) -> Self {
        let description = match url.kind() {
            ServersKind::Sentinels => format!("Redis by the sentinels of {url}"),
            ServersKind::Cluster => format!("the Redis cluster at {url}"),
            ServersKind::One | ServersKind::Quorum => format!("Redis at {url}"),
        };
        let topology = Topology::new(url, config, &clock, lifecycle.workers());
        let dispatch = Arc::new(Dispatch::new(topology, config, typed_keys));
        let channels = Channels::for_database(url.login().database);
        let scripts = Scripts::new(&channels, orders);
        let floors = Arc::new(Floors::new());
        let tags = Arc::new(SlotTags::compute());
        let (gateway, orphans) =
            RedisGateway::new(channels, Arc::clone(&floors), config.wait_replicas > 0);
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
        let closing = CancellationToken::new();
        let context = Arc::new(RedisContext {
            dispatch,
            scripts,
            gateway,
            tags,
            closing: closing.clone(),
        });
        lifecycle.spawn_until(&closing, Arc::clone(&examiner).watch());
        context.dispatch.topology.start(lifecycle, &closing);
        rounds::start(&context, orphans, lifecycle);
        Self {
            context,
            examiner,
            description,
            closed: AtomicBool::new(false),
            working: TaskTracker::new(),
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

    /// The scripts of a lock, and a token that counts a request for the lock as in progress.
    fn enter_lock(
        &self,
        name: &LockName,
    ) -> Result<(TaskTrackerToken, LockScripts<'_>), Unavailability> {
        let token = self.enter()?;
        Ok((token, self.context.lock(self.context.keys(name))))
    }

    /// Waits until the servers are known, and answers the server that has a slot.
    async fn shard(&self, slot: Slot) -> Result<Arc<Shard>, Unavailability> {
        let topology = &self.context.dispatch.topology;
        topology.wait_until_known().await;
        topology.shard(slot)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let (_working, mut lock) = self.enter_lock(&attempt.name)?;
        let shard = self.shard(lock.keys.slot()).await?;
        let admission = &shard.admission;
        admission
            .admit_by(&shard, &self.examiner, lock.limit)
            .await?;
        let _room = match (shard.asking.at_once(), &attempt.wait) {
            (Some(room), _) => room,
            (None, None) => shard.asking.within(Duration::ZERO).await?,
            (None, Some(waiting)) => {
                // After a restart of the server, thousands of waiters ask again at the same time. No waiter is refused
                // because of the other waiters: the time that a waiter waits for room is part of its own wait.
                let room = shard.asking.within(waiting.max_wait).await?;
                lock.limit = self.context.dispatch.limit();
                room
            }
        };
        lock.acquire_replicated(attempt).await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        lock.renew(renewer, token, ttl).await
    }

    async fn release_as(
        &self,
        releaser: Releaser,
        name: &LockName,
        token: &TokenHash,
        granted_here: bool,
    ) -> Result<Release, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        lock.release(releaser, token, granted_here).await
    }

    async fn record_history(&self, batches: &[HistoryBatch]) -> Result<Vec<usize>, StoreError> {
        let _working = self.enter()?;
        let history = &self.context.scripts.history;
        let keys = |name: &LockName| self.context.keys(name);
        match history.record(&self.context.dispatch, keys, batches).await {
            Ok(()) => Ok(Vec::new()),
            Err((failed, error)) if failed.len() == batches.len() => Err(error),
            Err((failed, _)) => Ok(failed),
        }
    }

    async fn history(&self, name: &LockName) -> Result<StoredHistory, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        let shard = self.shard(lock.keys.slot()).await?;
        let _room = shard.asking.within(Duration::ZERO).await?;
        let history = &self.context.scripts.history;
        history.read(&self.context.dispatch, &lock.keys).await
    }

    async fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        let known = unanswered.map_or(GrantKnowledge::MayBeDelivered, GrantKnowledge::Unanswered);
        lock.give_back(token, known).await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        lock.confirm_replicated(token).await
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        let leaving = lock.leave_replicated(token, keep_for).await;
        // If the outcome of the leave is unknown, the position may be kept, too.
        if let (Ok(Leaving::Left(_)) | Err(_), Some(keep_for)) = (&leaving, keep_for) {
            self.context.gateway.schedule_lapse(name, *token, keep_for);
        }
        leaving
    }

    fn parking(&self) -> &Parking {
        &self.context.gateway.parking
    }

    fn partition(&self, name: &LockName) -> Partition {
        let topology = &self.context.dispatch.topology;
        topology.partition(Slot::of_name(name))
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(&*self.context)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        let shard = self.shard(lock.keys.slot()).await?;
        let _room = shard.asking.within(Duration::ZERO).await?;
        lock.inspect().await
    }

    async fn check_fence(&self, query: &FenceQuery) -> Result<FenceCheck, StoreError> {
        let (_working, lock) = self.enter_lock(&query.name)?;
        let shard = self.shard(lock.keys.slot()).await?;
        let _room = shard.asking.within(Duration::ZERO).await?;
        lock.check_fence(query).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let _working = self.enter()?;
        let context = &self.context;
        RedisListing { context, query }.page().await
    }

    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        lock.break_lock(target).await
    }

    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        lock.request_release(target, request).await
    }

    async fn set_order(
        &self,
        name: &LockName,
        change: OrderChange,
    ) -> Result<OrderSetting, StoreError> {
        let (_working, lock) = self.enter_lock(name)?;
        lock.set_order(change).await
    }

    fn breaks(&self) -> &BreakFeed {
        &self.context.gateway.breaks
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
        let RedisContext {
            dispatch, gateway, ..
        } = &*self.context;
        let shards = dispatch.topology.shards();
        let skew = |shard: &Arc<Shard>| shard.address().zip(*shard.admission.skew.lock());
        let replicas = shards.iter().map(|shard| shard.replicas.confirmed());
        let mut figures = StoreFigures {
            connections: Some(shards.iter().map(|shard| shard.pool.open()).sum()),
            hears: Some(gateway.is_subscribed.load(Ordering::Relaxed)),
            unsent_messages: Some(gateway.unsent.load(Ordering::Relaxed)),
            clock_skew: shards.iter().filter_map(skew).collect(),
            // The number of replicas of the server that has the fewest.
            replicas: replicas.flatten().min(),
            servers: shards.iter().filter_map(|it| it.figures()).collect(),
            ..StoreFigures::default()
        };
        dispatch.topology.figures(&mut figures);
        figures
    }

    async fn close(&self) {
        let dispatch = &self.context.dispatch;
        self.closed.store(true, Ordering::SeqCst);
        self.working.close();
        // A command that is still in progress then has an unknown outcome, which its caller must handle.
        drop(timeout_at(dispatch.limit(), self.working.wait()).await);
        self.context.closing.cancel();
        dispatch.topology.close().await;
    }

    fn system(&self) -> (&'static str, SpanKind) {
        ("redis", SpanKind::Client)
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

// Carries news between gateways over two channels: every gateway subscribes to the channel on which gateways request
// news, and a gateway that wants news also subscribes to the channel for news.

#[async_trait]
impl Relay for RedisContext {
    async fn ask(&self, lasts: Duration) -> Result<(), StoreError> {
        self.gateway.news_wanted.ask(lasts);
        let request = self.gateway.id.news_request(lasts);
        let all = &self.gateway.channels.all;
        self.dispatch.publish(all, &request).await
    }

    async fn asked(&self) -> Duration {
        self.gateway.news_wanted.next().await
    }

    async fn tell_lost(&self, name: &LockName, token: &TokenHash) -> Result<(), StoreError> {
        let all = &self.gateway.channels.all;
        self.dispatch
            .publish(all, &format!("broken {token} {name}"))
            .await
    }

    async fn send(&self, batch: &str) -> Result<(), StoreError> {
        let id = self.gateway.id.as_str();
        let news = &self.gateway.channels.news;
        self.dispatch.publish(news, &format!("{id}\n{batch}")).await
    }

    async fn listen(&self) -> Result<BoxStream<'static, String>, StoreError> {
        let pubsub_shard = self.dispatch.topology.pubsub_shard()?;
        let news = [&*self.gateway.channels.news];
        let pubsub = pubsub_shard.pool.route.subscribe(&news).await?;
        let me = format!("{}\n", self.gateway.id.as_str());
        let batches = pubsub.messages().filter_map(move |message| {
            // A batch without a sender is ignored, and so is a batch that this gateway sent.
            let batch = message.split_once('\n').map(|(_, batch)| batch.to_owned());
            future::ready(batch.filter(|_| !message.starts_with(&me)))
        });
        let closing = self.closing.clone();
        Ok(batches.take_until(closing.cancelled_owned()).boxed())
    }

    fn declarations(&self) -> &DeclarationHashes {
        &self.gateway.news_wanted.declarations
    }
}
