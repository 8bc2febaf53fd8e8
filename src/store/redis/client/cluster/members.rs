//! The servers of a cluster that have slots, and which has which.
//!
//! What a server says that has a slot no more (MOVED) is believed at once, for that slot. All masters are
//! asked once a second, and at once when somebody got no answer; the later word of two counts, as they
//! count themselves (the epoch of the cluster). A server that has no slots any more is cut off at once: if
//! another has taken its place, what it still answers may be forgotten.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Duration, Instant},
};
use tracing::{info, warn};

use crate::{
    config::{RedisConfig, RedisNode, ServersUrl},
    lifecycle::Workers,
    store::{
        Unavailability,
        contract::{Check, Health},
        redis::Slot,
    },
    telemetry::metrics::StoreFigures,
};

use super::{
    super::{
        ask_many::EpochRegression,
        credentials::Credentials,
        endpoint::Endpoint,
        failure::Redirect,
        pool::Route,
        shard::{Destination, Shard},
    },
    layout::{ClusterView, Layout},
};

/// The servers of a cluster that have slots.
pub(crate) struct Cluster {
    pub(super) seeds: Vec<RedisNode>,
    credentials: Arc<Credentials>,
    pub(super) config: RedisConfig,
    workers: Workers,
    layout: Mutex<Arc<Layout>>,
    /// Servers that somebody was pointed to, and when: they may have no slot yet.
    redirect_targets: Mutex<Vec<(Arc<Shard>, Instant)>>,
    /// How often each slot has gone to another server, or somebody was sent to one for it.
    moves: Box<[AtomicU32]>,
    /// How often the servers were others than before.
    changed: watch::Sender<u64>,
    /// Told when it is time to ask who has what.
    pub(super) refresh_requested: Notify,
    /// Why nobody says who has what, if nobody does.
    pub(super) last_error: Mutex<Option<Unavailability>>,
    /// Since when no master answers, and others agree on an older layout.
    pub(super) epoch_regression: EpochRegression<u64>,
    /// Which server is listened to, counted from the first.
    listened_to: AtomicUsize,
}

/// For how long a server is kept that somebody was pointed to, if it has no slot.
const REDIRECT_TARGET_STAYS: Duration = Duration::from_secs(3);

// === impl Cluster ===

impl Cluster {
    /// Asks nobody yet.
    pub(crate) fn new(url: &ServersUrl, config: &RedisConfig, workers: &Workers) -> Self {
        // Not all gateways listen to the same server.
        let first = getrandom::u32().unwrap_or_default();
        Self {
            seeds: url.nodes().to_vec(),
            credentials: Arc::new(Credentials::of_redis(&url.login(), config)),
            config: config.clone(),
            workers: workers.clone(),
            layout: Mutex::new(Arc::new(Layout::unknown())),
            redirect_targets: Mutex::default(),
            moves: (0..Slot::COUNT).map(|_| AtomicU32::new(0)).collect(),
            changed: watch::Sender::new(0),
            refresh_requested: Notify::new(),
            last_error: Mutex::default(),
            epoch_regression: EpochRegression::default(),
            listened_to: AtomicUsize::new(usize::try_from(first).unwrap_or_default()),
        }
    }

    /// The server that has a slot.
    pub(crate) fn owner(&self, slot: Slot) -> Result<Arc<Shard>, Unavailability> {
        let layout = self.layout();
        match layout.owner(slot) {
            Some(owner) => Ok(Arc::clone(owner)),
            None if layout.shards.is_empty() => Err(self.no_owner_error()),
            None => {
                let why = format!("CLUSTERDOWN: no server has slot {}", slot.index());
                Err(Unavailability::Refused(why))
            }
        }
    }

    /// Ends when some servers are known.
    pub(crate) async fn wait_until_known(&self) {
        let is_known = |_: &u64| !self.layout().shards.is_empty();
        // `wait_for` uses up what tokio lets a task do in one poll, and may wait although servers are known.
        if !is_known(&0) {
            drop(self.changed.subscribe().wait_for(is_known).await);
        }
    }

    /// The servers that have slots.
    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        self.layout().shards.clone()
    }

    /// The servers in the order of the first slot that each has: every slot has one of them.
    pub(crate) fn shards_by_slot(&self) -> Result<Vec<Arc<Shard>>, Unavailability> {
        let mut found: Vec<Arc<Shard>> = Vec::new();
        for slot in (0..Slot::COUNT).filter_map(Slot::numbered) {
            let owner = self.owner(slot)?;
            if !found.iter().rev().any(|shard| Arc::ptr_eq(shard, &owner)) {
                found.push(owner);
            }
        }
        Ok(found)
    }

    /// Some slot of a server, another one each time.
    pub(crate) fn some_slot(&self, shard: &Arc<Shard>) -> Option<Slot> {
        let layout = self.layout();
        let from = usize::try_from(getrandom::u32().unwrap_or_default()).unwrap_or_default();
        let mut slots = (0..Slot::COUNT).map(|n| (from.wrapping_add(n)) % Slot::COUNT);
        slots.find_map(|number| {
            let slot = Slot::numbered(number)?;
            let owner = layout.owner(slot)?;
            Arc::ptr_eq(owner, shard).then_some(slot)
        })
    }

    /// The server that is listened to: always the same one, as long as it can be reached.
    pub(crate) fn pubsub_shard(&self) -> Result<Arc<Shard>, Unavailability> {
        let layout = self.layout();
        let count = layout.shards.len();
        if count == 0 {
            return Err(self.no_owner_error());
        }
        let first = self.listened_to.load(Ordering::Relaxed);
        let turn = (0..count).map(|n| first.wrapping_add(n) % count);
        let mut reachable = turn.filter(|&n| layout.shards[n].pool.last_error().is_none());
        let chosen = reachable.next().unwrap_or(first % count);
        self.listened_to.store(chosen, Ordering::Relaxed);
        Ok(Arc::clone(&layout.shards[chosen]))
    }

    /// Tells it apart when a slot has gone to another server in between.
    pub(crate) fn moves(&self, slot: Slot) -> u32 {
        self.moves[slot.index()].load(Ordering::Acquire)
    }

    /// Where one goes whom a server has pointed elsewhere.
    pub(crate) fn follow(&self, slot: Slot, redirect: &Redirect, by: &Shard) -> Destination {
        let by = by.node().expect("a server of a cluster has an address");
        let node = redirect.node(by);
        let mut layout = self.layout.lock();
        let shard = self.redirect_target(&layout, &node);
        self.moves[slot.index()].fetch_add(1, Ordering::AcqRel);
        if !redirect.asking {
            let known = layout.has(&shard);
            *layout = Arc::new(layout.with(slot, &shard));
            drop(layout);
            if !known {
                info!(%node, "another server of the cluster has slots");
                self.changed.send_modify(|times| *times += 1);
            }
            self.request_refresh();
        }
        Destination {
            shard,
            asking: redirect.asking,
        }
    }

    /// It is time to ask who has what.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Word of it when the servers are others than before.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Goes by what one of the servers has said.
    pub(super) fn apply_view(&self, view: &ClusterView) {
        let mut now = self.layout.lock();
        let next = Layout::of(view, |node| self.known_or_new(&now, node));
        let next = Arc::new(next);
        for slot in now.differing(&next) {
            self.moves[slot.index()].fetch_add(1, Ordering::AcqRel);
        }
        let before = std::mem::replace(&mut *now, Arc::clone(&next));
        drop(now);
        let gone = before.shards.iter().filter(|shard| !next.has(shard));
        let gone = gone.filter(|shard| !self.is_redirect_target(shard));
        let gone: Vec<_> = gone.inspect(|shard| shard.disconnect()).collect();
        let come: Vec<_> = next.shards.iter().filter(|it| !before.has(it)).collect();
        for (shard, what) in gone
            .iter()
            .map(|it| (it, "no slots any more"))
            .chain(come.iter().map(|it| (it, "slots")))
        {
            let node = shard.node().map(ToString::to_string);
            info!(node, "a server of the cluster has {what}");
        }
        if !gone.is_empty() || !come.is_empty() {
            self.changed.send_modify(|times| *times += 1);
        }
        self.drop_redirect_targets(&next);
    }

    /// A server at this address that is not known yet.
    pub(super) fn shard_at(&self, node: &RedisNode) -> Arc<Shard> {
        let route = Route::to(self.endpoint(node));
        let node = Some(node.clone());
        Arc::new(Shard::new(route, node, &self.config, &self.workers))
    }

    /// What it takes to connect to a server.
    pub(super) fn endpoint(&self, node: &RedisNode) -> Endpoint {
        let timeout = self.config.connect_timeout_ms.duration();
        Endpoint::new(node.clone(), Arc::clone(&self.credentials), timeout)
    }

    pub(super) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.lock())
    }

    pub(crate) async fn close(&self) {
        let targets = std::mem::take(&mut *self.redirect_targets.lock());
        let layout = std::mem::replace(&mut *self.layout.lock(), Arc::new(Layout::unknown()));
        for shard in layout.shards.iter().chain(targets.iter().map(|it| &it.0)) {
            shard.disconnect();
            shard.pool.route.close().await;
        }
    }

    /// Why it is not known who has a slot.
    fn no_owner_error(&self) -> Unavailability {
        let last_error = self.last_error.lock();
        let unasked =
            || Unavailability::Connect("no server of the cluster was reached yet".to_owned());
        last_error.clone().unwrap_or_else(unasked)
    }

    /// The server at an address to which somebody is pointed now.
    fn redirect_target(&self, layout: &Layout, node: &RedisNode) -> Arc<Shard> {
        let shard = self.known_or_new(layout, node);
        let mut targets = self.redirect_targets.lock();
        targets.retain(|(it, _)| !it.disconnected.is_cancelled() && !Arc::ptr_eq(it, &shard));
        targets.push((Arc::clone(&shard), Instant::now()));
        shard
    }

    /// The server at an address, if it is known and was not given up; else a new one.
    fn known_or_new(&self, layout: &Layout, node: &RedisNode) -> Arc<Shard> {
        let targets = self.redirect_targets.lock();
        let mut targets = targets.iter().map(|(shard, _)| shard);
        let used = |it: &&Arc<Shard>| it.node() == Some(node) && !it.disconnected.is_cancelled();
        let known = layout.at(node).or_else(|| targets.find(used));
        known.map_or_else(|| self.shard_at(node), Arc::clone)
    }

    fn is_redirect_target(&self, shard: &Arc<Shard>) -> bool {
        let targets = self.redirect_targets.lock();
        (targets.iter())
            .any(|(it, at)| Arc::ptr_eq(it, shard) && at.elapsed() < REDIRECT_TARGET_STAYS)
    }

    /// Cuts off servers to which nobody was pointed for a while, and which have no slots.
    fn drop_redirect_targets(&self, layout: &Layout) {
        self.redirect_targets.lock().retain(|(shard, at)| {
            let is_kept = at.elapsed() < REDIRECT_TARGET_STAYS;
            if !is_kept && !layout.has(shard) {
                let node = shard.node().map(ToString::to_string);
                warn!(node, "this server of the cluster is not used any more");
                shard.disconnect();
            }
            is_kept
        });
    }
}

// === Report ===
//
// What there is to see of the cluster.

// === impl Cluster ===

impl Cluster {
    /// What readiness says.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let layout = self.layout();
        let last_error = self.last_error.lock();
        let count = layout.shards.len();
        let (health, note) = match (last_error.as_ref(), layout.unassigned()) {
            (Some(Unavailability::Misconfigured(why)), _) => {
                (Health::Misconfigured(why.clone()), None)
            }
            (Some(why), _) => (Health::Outage(format!("no server answers: {why}")), None),
            (None, (0, _)) => (
                Health::Passing,
                Some(format!("{count} masters have all slots")),
            ),
            (None, (lacking, first)) => {
                let first = first.unwrap_or_default();
                let which = format!("{lacking} slots have no master (the first is {first})");
                (Health::Outage(which), None)
            }
        };
        vec![Check {
            note,
            ..Check::new("cluster", health)
        }]
    }

    /// What metrics say.
    pub(crate) fn figures(&self, figures: &mut StoreFigures) {
        let shards = self.shards();
        let reached = shards.iter().filter_map(|shard| {
            let node = shard.node()?.to_string();
            Some((node, shard.pool.last_error().is_none()))
        });
        figures.masters = reached.collect();
    }
}
