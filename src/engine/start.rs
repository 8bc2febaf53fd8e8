//! The engine itself: what it is made of and how it is started.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::SystemClock,
    config::LimitsConfig,
    lifecycle::Lifecycle,
    lock::{LockName, TokenHash},
    store::{AnyStore, Store, breaks::BrokenLease, contract::Check, parking::NameWaiters},
    telemetry::metrics::{Figures, Metrics},
};

use super::{
    events::Bus,
    fences::Fences,
    hold_streams::{Displaced, HoldStreams},
    leases::LeaseRegistry,
    reaper::Reaper,
    reserved_positions::ReservedPositions,
};

/// The operations on locks over one store. Cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(super) Arc<EngineShared>);

/// What all operations have in common.
pub(super) struct EngineShared {
    pub(super) store: AnyStore,
    pub(super) lifecycle: Lifecycle,
    pub(super) reaper: Reaper,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) streams: HoldStreams,
    pub(super) events: Bus,
    pub(super) fences: Fences,
    pub(super) reserved_positions: ReservedPositions,
    pub(super) metrics: Metrics,
    pub(super) reconnect_grace: Duration,
    began: Instant,
    pub(super) most_waiters: usize,
    pub(super) most_waiters_per_name: u64,
}

// === impl Engine ===

impl Engine {
    /// Starts the engine, its reaper, and what hears of leases that are broken.
    pub fn start(
        store: impl Into<AnyStore>,
        lifecycle: Lifecycle,
        limits: &LimitsConfig,
        metrics: Metrics,
    ) -> Self {
        let store = store.into();
        let reconnect_grace = limits.reconnect_grace_ms.duration();
        let leases = Arc::new(LeaseRegistry::default());
        let events = Bus::start(
            store.clone(),
            Arc::clone(&leases),
            &lifecycle,
            // When something happened is only displayed.
            Arc::new(SystemClock),
            limits.max_event_streams,
        );
        let reaper = Reaper::start(
            store.clone(),
            Arc::clone(&leases),
            events.clone(),
            metrics.clone(),
            &lifecycle,
            reconnect_grace,
        );
        let streams = HoldStreams::default();
        let (mut listener, displaced) = (store.breaks().listen(), streams.clone());
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            let listen = async {
                while let Some(BrokenLease { name, token }) = listener.recv().await {
                    displaced.displace(name, token, Displaced::Broken);
                }
            };
            tokio::select! {
                () = listen => {}
                () = stopped => {}
            }
        });
        Self(Arc::new(EngineShared {
            store,
            lifecycle,
            reaper,
            leases,
            streams,
            events,
            fences: Fences::new(metrics.clone()),
            reserved_positions: ReservedPositions::default(),
            metrics,
            reconnect_grace,
            began: Instant::now(),
            most_waiters: limits.max_waiters,
            most_waiters_per_name: limits.max_waiters_per_name,
        }))
    }

    /// Finds out whether the store can keep its promises now.
    pub async fn check(&self) -> Vec<Check> {
        self.0.store.check().await
    }

    /// What is counted here.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// What is not counted but looked up: everything but the checks, which ask the store.
    pub fn figures(&self) -> Figures {
        Figures {
            is_withdrawn: self.is_withdrawn(),
            checks: Vec::new(),
            waiters: self.0.store.parking().len(),
            held_streams: self.0.streams.len(),
            event_streams: self.0.events.listeners(),
            leases: self.0.leases.len(),
            // The edge knows.
            certificate_ends: None,
            store: self.0.store.figures(),
        }
    }

    /// The name of this run of the gateway, as the ids of its events have it.
    pub fn instance(&self) -> &str {
        self.0.events.instance()
    }

    /// For how long it has run.
    pub fn uptime(&self) -> Duration {
        self.0.began.elapsed()
    }

    /// Those who wait through this gateway, by the name that they wait for, in no order.
    pub fn waiters_by_name(&self) -> Vec<NameWaiters> {
        self.0.store.parking().waiters_by_name()
    }

    /// For how long the oldest lease has been held that was granted or renewed here and, as far as is
    /// known here, lives.
    pub fn longest_hold(&self) -> Option<Duration> {
        self.0.leases.longest_hold()
    }

    /// Until when somebody may want to renew or release a lease here that was granted or renewed here;
    /// `None` if, as far as is known here, nobody may. For those whose streams have ended because the gateway
    /// does, that is a moment and not their TTL.
    pub fn leases_needed_until(&self) -> Option<Instant> {
        self.0.leases.needed_until()
    }

    /// Whether a lease was granted or renewed here and, as far as is known here, lives.
    pub fn has_lease(&self, name: &LockName, token: &TokenHash) -> bool {
        self.0.leases.is_listed(name, token)
    }

    /// Ends when, from this call on, a lease that was owed has ended before its time, or is not owed
    /// any more.
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
}
