//! The servers of a cluster that have slots, and which has which.
//!
//! What a server says that has a slot no more (MOVED) is believed at once, for that slot. All masters are
//! asked once a second, and at once when somebody got no answer; the later word of two counts, as they
//! count themselves (the epoch of the cluster). A server that has no slots any more is cut off at once: if
//! another has taken its place, what it still answers may be forgotten.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

use tokio::{
    sync::{Notify, watch},
    time::{Duration, Instant},
};
use tracing::{info, warn};

use crate::{
    config::{ClusterUrl, RedisConfig, RedisNode},
    store::Unavailability,
};

use super::{
    super::{
        Slot,
        credentials::Credentials,
        endpoint::Endpoint,
        failure::{Kind, Redirect},
        route::Route,
        sending::Place,
        shard::Shard,
    },
    layout::Layout,
    view::View,
};

/// The servers of a cluster that have slots.
pub(crate) struct Cluster {
    pub(super) seeds: Vec<RedisNode>,
    credentials: Arc<Credentials>,
    pub(super) config: RedisConfig,
    layout: Mutex<Arc<Layout>>,
    /// Servers that somebody was pointed to, and when: they may have no slot yet.
    guests: Mutex<Vec<(Arc<Shard>, Instant)>>,
    /// How often each slot has gone to another server, or somebody was sent to one for it.
    moves: Box<[AtomicU32]>,
    /// How often the servers were others than before.
    changed: watch::Sender<u64>,
    /// Told when it is time to ask who has what.
    pub(super) refresh_requested: Notify,
    /// Why nobody says who has what, if nobody does.
    pub(super) trouble: Mutex<Option<Unavailability>>,
    /// Which server is listened to, counted from the first.
    listened_to: AtomicUsize,
}

/// For how long a server is kept that somebody was pointed to, if it has no slot.
const STAYS: Duration = Duration::from_secs(3);

// === impl Cluster ===

impl Cluster {
    /// Asks nobody yet.
    pub(crate) fn new(url: &ClusterUrl, config: &RedisConfig) -> Self {
        // Not all gateways listen to the same server.
        let first = getrandom::u32().unwrap_or_default();
        Self {
            seeds: url.nodes().to_vec(),
            credentials: Arc::new(Credentials::of_redis(&url.login(), config)),
            config: config.clone(),
            layout: Mutex::new(Arc::new(Layout::unknown())),
            guests: Mutex::default(),
            moves: (0..Slot::COUNT).map(|_| AtomicU32::new(0)).collect(),
            changed: watch::Sender::new(0),
            refresh_requested: Notify::new(),
            trouble: Mutex::default(),
            listened_to: AtomicUsize::new(usize::try_from(first).unwrap_or_default()),
        }
    }

    /// The server that has a slot.
    pub(crate) fn owner(&self, slot: Slot) -> Result<Arc<Shard>, Unavailability> {
        let layout = self.layout();
        match layout.owner(slot) {
            Some(owner) => Ok(Arc::clone(owner)),
            None if layout.shards.is_empty() => Err(self.why_unknown()),
            None => {
                let why = format!("CLUSTERDOWN: no server has slot {}", slot.index());
                Err(Unavailability::Refused(why))
            }
        }
    }

    /// Ends when some servers are known.
    pub(crate) async fn known(&self) {
        let mut changes = self.changed.subscribe();
        while self.layout().shards.is_empty() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The servers that have slots.
    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        self.layout().shards.clone()
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
    pub(crate) fn messenger(&self) -> Result<Arc<Shard>, Unavailability> {
        let layout = self.layout();
        let count = layout.shards.len();
        if count == 0 {
            return Err(self.why_unknown());
        }
        let first = self.listened_to.load(Ordering::Relaxed);
        let turn = (0..count).map(|n| first.wrapping_add(n) % count);
        let mut reachable = turn.filter(|&n| !layout.shards[n].pool.is_in_trouble());
        let chosen = reachable.next().unwrap_or(first % count);
        self.listened_to.store(chosen, Ordering::Relaxed);
        Ok(Arc::clone(&layout.shards[chosen]))
    }

    /// Tells it apart when a slot has gone to another server in between.
    pub(crate) fn moves(&self, slot: Slot) -> u32 {
        self.moves[slot.index()].load(Ordering::Acquire)
    }

    /// Where one goes whom a server has pointed elsewhere.
    pub(crate) fn follow(&self, slot: Slot, redirect: &Redirect, by: &Shard) -> Place {
        let by = by.node().expect("a server of a cluster has an address");
        let node = redirect.node(by);
        let mut layout = self.layout_now();
        let shard = self.guest(&layout, &node);
        self.moves[slot.index()].fetch_add(1, Ordering::AcqRel);
        match redirect.kind {
            Kind::Ask => Place {
                shard,
                asking: true,
            },
            Kind::Moved => {
                let known = layout.has(&shard);
                *layout = Arc::new(layout.with(slot, &shard));
                drop(layout);
                if !known {
                    info!(%node, "another server of the cluster has slots");
                    self.changed.send_modify(|times| *times += 1);
                }
                self.request_refresh();
                Place::at(&shard)
            }
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
    pub(super) fn go_by(&self, view: &View) {
        let mut now = self.layout_now();
        let next = Layout::of(view, |node| match now.at(node) {
            Some(shard) => Arc::clone(shard),
            None => self
                .known_guest(node)
                .unwrap_or_else(|| self.shard_at(node)),
        });
        let next = Arc::new(next);
        for slot in now.differing(&next) {
            self.moves[slot.index()].fetch_add(1, Ordering::AcqRel);
        }
        let before = std::mem::replace(&mut *now, Arc::clone(&next));
        drop(now);
        let gone = before.shards.iter().filter(|shard| !next.has(shard));
        let gone = gone.filter(|shard| !self.is_guest(shard));
        let gone: Vec<_> = gone.inspect(|shard| shard.cut()).collect();
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
        self.see_guests_off(&next);
    }

    /// A server at this address that is not known yet.
    pub(super) fn shard_at(&self, node: &RedisNode) -> Arc<Shard> {
        let route = Route::to(self.endpoint(node));
        Arc::new(Shard::one_of(route, node.clone(), &self.config))
    }

    /// What it takes to connect to a server.
    pub(super) fn endpoint(&self, node: &RedisNode) -> Endpoint {
        let timeout = self.config.connect_timeout_ms.duration();
        let endpoint = Endpoint::new(node.clone(), Arc::clone(&self.credentials), timeout);
        endpoint.asked_for_its_run(self.config.wait_replicas > 0)
    }

    pub(super) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout_now())
    }

    pub(crate) async fn close(&self) {
        let guests: Vec<_> = self
            .guests_now()
            .drain(..)
            .map(|(shard, _)| shard)
            .collect();
        let layout = std::mem::replace(&mut *self.layout_now(), Arc::new(Layout::unknown()));
        for shard in layout.shards.iter().chain(&guests) {
            shard.cut();
            shard.pool.close().await;
        }
    }

    /// Why it is not known who has a slot.
    fn why_unknown(&self) -> Unavailability {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let unasked =
            || Unavailability::Connect("no server of the cluster was reached yet".to_owned());
        trouble.clone().unwrap_or_else(unasked)
    }

    /// The server at an address to which somebody is pointed now.
    fn guest(&self, layout: &Layout, node: &RedisNode) -> Arc<Shard> {
        let mut guests = self.guests_now();
        guests.retain(|(it, _)| !it.over.is_cancelled());
        if let Some((shard, at)) = guests.iter_mut().find(|(it, _)| it.node() == Some(node)) {
            *at = Instant::now();
            return Arc::clone(shard);
        }
        let known = layout.at(node).map(Arc::clone);
        let shard = known.unwrap_or_else(|| self.shard_at(node));
        guests.push((Arc::clone(&shard), Instant::now()));
        shard
    }

    fn known_guest(&self, node: &RedisNode) -> Option<Arc<Shard>> {
        let guests = self.guests_now();
        let mut guests = guests
            .iter()
            .map(|(shard, _)| shard)
            .filter(|it| !it.over.is_cancelled());
        guests.find(|it| it.node() == Some(node)).map(Arc::clone)
    }

    fn is_guest(&self, shard: &Arc<Shard>) -> bool {
        let guests = self.guests_now();
        guests
            .iter()
            .any(|(it, at)| Arc::ptr_eq(it, shard) && at.elapsed() < STAYS)
    }

    /// Cuts off servers to which nobody was pointed for a while, and which have no slots.
    fn see_guests_off(&self, layout: &Layout) {
        self.guests_now().retain(|(shard, at)| {
            let stays = at.elapsed() < STAYS;
            if !stays && !layout.has(shard) {
                let node = shard.node().map(ToString::to_string);
                warn!(node, "this server of the cluster is not used any more");
                shard.cut();
            }
            stays
        });
    }

    fn layout_now(&self) -> MutexGuard<'_, Arc<Layout>> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guests_now(&self) -> MutexGuard<'_, Vec<(Arc<Shard>, Instant)>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
