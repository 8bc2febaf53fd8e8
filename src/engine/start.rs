//! The engine: its parts, its start, and the state that can be looked at.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt, stream::unfold};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    auth::LimitSlot,
    clock::{Clock, SystemClock, rfc3339},
    config::{HistoryConfig, LimitsConfig},
    lifecycle::Lifecycle,
    lock::{History, IdempotencyHash, LockName, TokenHash},
    store::{
        AnyStore, StoreError,
        contract::{BrokenLease, Check, FenceCheck, FenceQuery, Inspection, ListQuery, Loss, Page},
        parking::NameWaiters,
    },
    telemetry::metrics::{Figures, Metrics},
};

use super::{
    check_memory::CheckMemory,
    events::{Bus, Event, Publisher},
    facts::{Facts, HINTS, Incidents},
    history::Recorder,
    leases::LeaseRegistry,
    reaper::Reaper,
    reserved_positions::ReservedPositions,
    samples::{SAMPLE_INTERVAL, Sample, SampledTotals, Samples},
    store_changes::{StoreChange, StoreChanges, StoreObserver},
};

/// The operations on locks over one store. Cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(super) Arc<EngineShared>);

/// The state of the engine that all its operations share.
pub(super) struct EngineShared {
    pub(super) store: AnyStore,
    pub(super) lifecycle: Lifecycle,
    pub(super) reaper: Reaper,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) facts: Arc<Facts>,
    pub(super) checks: CheckMemory,
    pub(super) reserved_positions: ReservedPositions,
    pub(super) metrics: Metrics,
    pub(super) samples: Samples,
    pub(super) store_changes: StoreChanges,
    pub(super) reconnect_grace: Duration,
    pub(super) longest_ttl: Duration,
    began: Instant,
    pub(super) most_waiters: usize,
    pub(super) most_waiters_per_name: u64,
}

// === impl Engine ===

impl Engine {
    /// Starts the engine, its reaper, and the task that receives notices of broken leases.
    pub fn start(
        store: impl Into<AnyStore>,
        lifecycle: Lifecycle,
        limits: &LimitsConfig,
        history: &HistoryConfig,
        metrics: Metrics,
    ) -> Self {
        let store = store.into();
        let reconnect_grace = limits.reconnect_grace_ms.duration();
        let leases = Arc::new(LeaseRegistry::default());
        // The times of events and of the history are only displayed, so the system clock suffices.
        let clock = Arc::new(SystemClock);
        let history = Recorder::start(
            store.clone(),
            &leases,
            &lifecycle,
            history,
            clock.clone(),
            metrics.clone(),
        );
        if leases.is_recorded() {
            for (name, token, held) in store.found() {
                leases.insert_found(token, &name, &held);
            }
        }
        let (events, inbox) = Bus::new(&lifecycle, clock.clone(), limits.max_event_streams);
        let facts = Arc::new(Facts {
            leases: Arc::clone(&leases),
            metrics: metrics.clone(),
            incidents: Incidents::default(),
            events,
            history,
            store: store.clone(),
            lifecycle: lifecycle.clone(),
            hints: Arc::new(Semaphore::new(HINTS)),
        });
        Publisher::start(inbox, store.clone(), Arc::clone(&facts), &lifecycle);
        let reaper = Reaper::start(
            store.clone(),
            Arc::clone(&facts),
            &lifecycle,
            reconnect_grace,
        );
        let broken = hear_breaks(store.clone(), Arc::clone(&facts));
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            tokio::select! {
                () = broken => {}
                () = stopped => {}
            }
        });
        let engine = Self(Arc::new(EngineShared {
            store,
            lifecycle,
            reaper,
            leases,
            facts,
            checks: CheckMemory::default(),
            reserved_positions: ReservedPositions::default(),
            metrics,
            samples: Samples::default(),
            store_changes: StoreChanges::default(),
            reconnect_grace,
            longest_ttl: limits.max_ttl_ms.duration(),
            began: Instant::now(),
            most_waiters: limits.max_waiters,
            most_waiters_per_name: limits.max_waiters_per_name,
        }));
        engine.start_sampling(clock);
        engine
    }

    /// Runs the health checks of the store: whether it answers, and is set up so that locks are safe.
    pub async fn check(&self) -> Vec<Check> {
        self.0.store.check().await
    }

    /// Sets the hash of the declarations of locks of this gateway, which the gateways on a store compare.
    pub fn set_declarations(&self, hash: String) {
        if let Some(relay) = self.0.store.relay() {
            relay.declarations().set(hash);
        }
    }

    /// Whether other gateways on the store have had other declarations of locks for a while.
    pub fn declarations_differ(&self) -> bool {
        let relay = self.0.store.relay();
        relay.is_some_and(|relay| relay.declarations().differ())
    }

    /// Reads from the store who holds a lock, and who waits for it.
    pub async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.0.store.inspect(name).await
    }

    /// Reads who held a lock before, and how that ended; with the leases that hold the lock now.
    pub async fn history(&self, name: &LockName) -> Result<History, StoreError> {
        self.0.facts.history.read(name).await
    }

    /// Writes what is left of the history, until `until` at the latest. Call this after the background tasks have ended.
    pub async fn flush_history(&self, until: Instant) {
        self.0.facts.history.flush(until).await;
    }

    /// Lists held locks that `views` lets the caller see. A page that is short, or empty, need not be the last page:
    /// only the last page has no cursor.
    pub async fn list(
        &self,
        query: &ListQuery,
        views: impl Fn(&LockName) -> bool,
    ) -> Result<Page, StoreError> {
        let mut page = self.0.store.list(query).await?;
        page.locks.retain(|lock| views(&lock.name));
        Ok(page)
    }

    /// The metrics that count the operations of this gateway.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The metrics that are read from the current state instead of counted, except the health checks, which ask the
    /// store.
    pub fn figures(&self) -> Figures {
        let leases = self.0.leases.counted();
        let crowds = self.waiters_by_name();
        Figures {
            is_withdrawn: self.is_withdrawn(),
            checks: Vec::new(),
            waiters: self.0.store.parking().len(),
            held_streams: leases.held_by_streams,
            event_streams: self.0.facts.events.listeners(),
            leases: leases.all,
            shared_leases: leases.shared,
            longest_wait: crowds.iter().map(|crowd| crowd.longest).max(),
            longest_hold: self.0.leases.longest_renewed_hold(),
            longest_queue: crowds.iter().map(|it| it.waiters).max().unwrap_or_default(),
            // The HTTP edge fills in when the TLS certificate ends.
            certificate_ends: None,
            store: self.0.store.figures(),
        }
    }

    /// The name of this run of the gateway, as it appears in the ids of events.
    pub fn instance(&self) -> &str {
        self.0.facts.events.instance()
    }

    /// How long this gateway has run.
    pub fn uptime(&self) -> Duration {
        self.0.began.elapsed()
    }

    /// The waiters of this gateway, grouped by lock name, in no order.
    pub fn waiters_by_name(&self) -> Vec<NameWaiters> {
        self.0.store.parking().waiters_by_name()
    }

    /// How long the oldest living lease has been held that was granted or renewed here, as far as this gateway knows.
    pub fn longest_hold(&self) -> Option<Duration> {
        self.0.leases.longest_hold()
    }

    /// Until when a holder may want to renew or release a lease here that was granted or renewed here; `None` without
    /// such a lease. For a lease whose stream ended because the gateway drains, the time is a short grace and not its
    /// TTL.
    pub fn leases_needed_until(&self) -> Option<Instant> {
        self.0.leases.needed_until()
    }

    /// Whether a lease was granted or renewed here and lives, as far as this gateway knows.
    pub fn has_lease(&self, name: &LockName, token: &TokenHash) -> bool {
        self.0.leases.is_listed(name, token)
    }

    /// The returned future ends when, after this call, a lease that was granted or renewed here has ended before its
    /// time, or the gateway need not wait for it as long.
    pub fn leases_shrunk(&self) -> impl Future<Output = ()> + use<> {
        self.0.leases.shrunk()
    }

    /// Whether requests should be sent to another gateway, because this one is about to stop.
    pub fn is_withdrawn(&self) -> bool {
        self.0.lifecycle.is_withdrawn()
    }

    /// Whether new acquires are refused because the gateway is about to stop.
    pub fn is_draining(&self) -> bool {
        self.0.lifecycle.is_draining()
    }

    /// The returned future ends when the gateway drains: from then on it refuses new acquires.
    pub fn drained(&self) -> impl Future<Output = ()> + use<> {
        self.0.lifecycle.drained()
    }

    /// Keeps the position of a request that has ended without the lock, or whose caller has gone. If the request
    /// stood in the queue, its position is kept for the reconnect grace and counts as a waiter for that long.
    pub fn reserve_position(&self, key: IdempotencyHash, counted: Option<LimitSlot>) {
        let until = Instant::now() + self.0.reconnect_grace;
        self.0.reserved_positions.reserve(key, until, counted);
    }

    /// Removes positions whose reconnect grace is over: they no longer count as waiters or against the limits of API
    /// keys.
    pub fn remove_expired_positions(&self) {
        self.0.reserved_positions.remove_expired();
    }

    /// Stops counting the position under this key, because its request was repeated and counts as a waiter itself.
    pub fn resume_position(&self, key: &IdempotencyHash) {
        self.0.reserved_positions.resume(key);
    }
}

// === Samples ===
//
// Samples of the figures, and changes of the store.

/// How often the figures of the store are compared with the last ones.
const LOOK: Duration = Duration::from_secs(1);

// === impl Engine ===

impl Engine {
    /// The samples of the last hour, oldest first.
    pub fn samples(&self) -> Vec<Sample> {
        self.0.samples.all()
    }

    /// The changes of the store that this gateway has noticed within a day, newest first, at most 20.
    pub fn store_changes(&self) -> Vec<Arc<StoreChange>> {
        self.0
            .store_changes
            .since_yesterday(self.0.facts.events.now())
    }

    /// The breaks, lost leases and refused stale writes of the last day that this gateway has made or seen, newest first,
    /// at most 100.
    pub fn incidents(&self) -> Vec<Arc<Event>> {
        let facts = &self.0.facts;
        facts.incidents.since_yesterday(facts.events.now())
    }

    /// Starts the task that takes samples, and looks for changes of the store.
    fn start_sampling(&self, clock: Arc<dyn Clock>) {
        let (engine, stopped) = (self.clone(), self.0.lifecycle.stopped());
        let sampling = async move {
            let (mut observer, mut due) = (StoreObserver::default(), Instant::now());
            let mut ticks = interval(LOOK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let now = ticks.tick().await;
                for (kind, text) in observer.observe(&engine.0.store.figures(), now) {
                    let at = clock.wall();
                    let change = Arc::new(StoreChange { kind, text, at });
                    engine.0.facts.events.store_changed(&change);
                    engine.0.store_changes.add(change);
                }
                if due <= now {
                    due = now + SAMPLE_INTERVAL;
                    engine.take_sample(clock.wall());
                }
            }
        };
        self.0.lifecycle.spawn_background(async move {
            tokio::select! {
                () = sampling => {}
                () = stopped => {}
            }
        });
    }

    fn take_sample(&self, at: SystemTime) {
        let (figures, metrics) = (self.figures(), self.metrics());
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.0.samples.add(Sample {
            at: rfc3339(Some(at)).to_string(),
            uptime_ms: ms(self.uptime()),
            leases: figures.leases,
            shared_leases: figures.shared_leases,
            longest_hold_ms: self.longest_hold().map(ms),
            waiters: figures.waiters,
            longest_wait_ms: figures.longest_wait.map(ms),
            totals: SampledTotals {
                acquires: metrics.totals().acquires,
            },
            renew_margin: metrics.renew_margin(),
        });
    }
}

// === Breaks ===
//
// Notices of broken leases and of release requests.

/// How many leases the store is asked about at the same time, and how many more may wait for that. A notice is a hint: a
/// lease beyond that stays listed until its TTL is over.
const ASKED_TOGETHER: usize = 64;
const ASKED_NEXT: usize = 1_024;

/// Tells the streams whose leases are broken from now on. Asks the store about leases that no stream keeps.
fn hear_breaks(store: AnyStore, facts: Arc<Facts>) -> impl Future<Output = ()> {
    let mut listener = store.breaks().listen();
    async move {
        let (sender, asked) = mpsc::channel(ASKED_NEXT);
        let hear = async {
            while let Some(BrokenLease { name, token }) = listener.recv().await {
                if let Some(fence) = facts.leases.broken(&name, &token) {
                    let query = FenceQuery {
                        name,
                        fence,
                        token: Some(token),
                    };
                    drop(sender.try_send((query, token)));
                }
            }
        };
        let asked = unfold(asked, async |mut it| Some((it.recv().await?, it)));
        let ask = asked.for_each_concurrent(ASKED_TOGETHER, |(query, token)| {
            let (store, facts) = (store.clone(), Arc::clone(&facts));
            async move {
                let found = store.check_fence(&query).await;
                match found {
                    Ok(FenceCheck::Held { .. }) | Err(_) => {}
                    // A store of several gateways remembers breaks and releases, so this lease is lost.
                    Ok(FenceCheck::Stale { .. }) if store.relay().is_some() => {
                        facts.gone(&query.name, &token, Loss::Free, None);
                    }
                    Ok(_) => {
                        facts.leases.rest(&query.name, &token, None);
                        facts.ended_elsewhere(&query.name, &token);
                    }
                }
            }
        });
        tokio::join!(hear, ask);
    }
}
