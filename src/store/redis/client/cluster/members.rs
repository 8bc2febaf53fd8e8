//! The servers of a cluster that have slots, and which server has which slot.
//!
//! If a server redirects a command for good (MOVED), the gateway sends commands for that slot to the new server from
//! then on. All masters are asked for the layout once a second, and at once when a command got no usable reply. Of two
//! answers, the one with the later epoch of the cluster counts. A server that has no slots any more is disconnected at
//! once: if another server has taken its slots, leases that it still grants may be lost.

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
    roster::BelievedRoster,
};

/// The servers of a cluster that have slots, and the current layout.
pub(crate) struct Cluster {
    pub(super) seeds: Vec<RedisNode>,
    credentials: Arc<Credentials>,
    pub(super) config: RedisConfig,
    workers: Workers,
    layout: Mutex<Arc<Layout>>,
    /// The nodes of the cluster to which the layout belongs.
    pub(super) roster: Arc<BelievedRoster>,
    /// Servers that redirects have named, and when: such a server may have no slot yet.
    redirect_targets: Mutex<Vec<(Arc<Shard>, Instant)>>,
    /// How often each slot has moved to another server, or a command was redirected for it.
    moves: Box<[AtomicU32]>,
    /// Counts how often the set of the cluster's servers has changed, and notifies subscribers.
    changed: watch::Sender<u64>,
    /// Notified when the gateway should ask the masters for the layout at once.
    pub(super) refresh_requested: Notify,
    /// Why no server reports the layout; `None` if a server does.
    pub(super) last_error: Mutex<Option<Unavailability>>,
    /// Since when no master answers while other servers agree on an older layout.
    pub(super) epoch_regression: EpochRegression<u64>,
    /// Index of the server at which this gateway subscribes to messages.
    listened_to: AtomicUsize,
}

/// How long a server without slots stays connected after a redirect has named it.
const REDIRECT_TARGET_STAYS: Duration = Duration::from_secs(3);

// === impl Cluster ===

impl Cluster {
    /// Creates the state of a cluster, without asking a server yet.
    pub(crate) fn new(url: &ServersUrl, config: &RedisConfig, workers: &Workers) -> Self {
        // The start is random, so that not all gateways subscribe at the same server.
        let first = getrandom::u32().unwrap_or_default();
        Self {
            seeds: url.nodes().to_vec(),
            credentials: Arc::new(Credentials::of_redis(&url.login(), config)),
            config: config.clone(),
            workers: workers.clone(),
            layout: Mutex::new(Arc::new(Layout::unknown())),
            roster: Arc::default(),
            redirect_targets: Mutex::default(),
            moves: (0..Slot::COUNT).map(|_| AtomicU32::new(0)).collect(),
            changed: watch::Sender::new(0),
            refresh_requested: Notify::new(),
            last_error: Mutex::default(),
            epoch_regression: EpochRegression::default(),
            listened_to: AtomicUsize::new(usize::try_from(first).unwrap_or_default()),
        }
    }

    /// The server that has a slot; an error if none is known.
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

    /// Waits until some servers of the cluster are known.
    pub(crate) async fn wait_until_known(&self) {
        let is_known = |_: &u64| !self.layout().shards.is_empty();
        // This check comes first because `wait_for` uses up what tokio lets a task do in one poll, and may wait
        // although servers are known.
        if !is_known(&0) {
            drop(self.changed.subscribe().wait_for(is_known).await);
        }
    }

    /// The servers of the cluster that have slots.
    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        self.layout().shards.clone()
    }

    /// The servers of the cluster in the order of the first slot of each. Fails if a slot has no server.
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

    /// A random slot that this server has; `None` if the server has no slot.
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

    /// The server at which to subscribe to messages: always the same one, as long as it can be reached.
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

    /// Counter that changes when this slot moves to another server, so that a caller notices a move between two
    /// calls.
    pub(crate) fn moves(&self, slot: Slot) -> u32 {
        self.moves[slot.index()].load(Ordering::Acquire)
    }

    /// Follows a redirect of the server `by`: records which server the redirect names for the slot, and returns the
    /// destination.
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

    /// Requests that the gateway asks the masters for the layout at once.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Returns a receiver that is notified when the set of servers changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Replaces the layout by the layout that one of the servers reports. Servers that have no slots any more are
    /// disconnected.
    pub(super) fn apply_view(&self, view: &ClusterView) {
        let mut now = self.layout.lock();
        self.roster.set(&view.roster);
        let next = Layout::from_view(view, |node| self.known_or_new(&now, node));
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

    /// Creates the state of a server that is not known yet, at this address.
    pub(super) fn shard_at(&self, node: &RedisNode) -> Arc<Shard> {
        let endpoint = self.endpoint(node).of_cluster(Arc::clone(&self.roster));
        let route = Route::to(endpoint);
        let node = Some(node.clone());
        Arc::new(Shard::new(route, node, &self.config, &self.workers))
    }

    /// Creates an endpoint that connects to any server at this address, also to a stranger.
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

    /// The error when no server of the cluster is known to have slots.
    fn no_owner_error(&self) -> Unavailability {
        let last_error = self.last_error.lock();
        let unasked =
            || Unavailability::Connect("no server of the cluster was reached yet".to_owned());
        last_error.clone().unwrap_or_else(unasked)
    }

    /// Returns the server at an address that a redirect names now. The server is kept for a while, even without slots.
    fn redirect_target(&self, layout: &Layout, node: &RedisNode) -> Arc<Shard> {
        let shard = self.known_or_new(layout, node);
        let mut targets = self.redirect_targets.lock();
        targets.retain(|(it, _)| !it.disconnected.is_cancelled() && !Arc::ptr_eq(it, &shard));
        targets.push((Arc::clone(&shard), Instant::now()));
        shard
    }

    /// Returns the server at an address, if the server is known and still in use; otherwise creates its state.
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

    /// Disconnects servers that have no slots and that no redirect has named for a while.
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
// Reports the state of the cluster.

// === impl Cluster ===

impl Cluster {
    /// Readiness check of the cluster: whether its servers answer, and whether every slot has a server.
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

    /// Adds the metrics of the cluster's masters: whether each can be reached.
    pub(crate) fn figures(&self, figures: &mut StoreFigures) {
        let shards = self.shards();
        let reached = shards.iter().filter_map(|shard| {
            let node = shard.node()?.to_string();
            Some((node, shard.pool.last_error().is_none()))
        });
        figures.masters = reached.collect();
    }
}
