//! The engine itself: what it is made of and how it is started.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::SystemClock,
    config::LimitsConfig,
    lifecycle::Lifecycle,
    store::{Store, breaks::BrokenLease, contract::Check},
};

use super::{events::Bus, owed::Owed, reaper::Reaper, streams::Streams};

/// The operations on locks over one store. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(super) store: Arc<dyn Store>,
    pub(super) lifecycle: Lifecycle,
    pub(super) reaper: Reaper,
    pub(super) streams: Streams,
    pub(super) owed: Owed,
    pub(super) events: Bus,
    pub(super) reconnect_grace: Duration,
    pub(super) most_waiters: usize,
    pub(super) most_waiters_per_name: u64,
}

// === impl Engine ===

impl Engine {
    /// Starts the engine, its reaper, and what hears of leases that are broken.
    pub fn start(store: Arc<dyn Store>, lifecycle: Lifecycle, limits: &LimitsConfig) -> Self {
        let reconnect_grace = limits.reconnect_grace_ms.duration();
        let owed = Owed::default();
        let events = Bus::start(
            Arc::clone(&store),
            owed.clone(),
            &lifecycle,
            // When something happened is only displayed.
            Arc::new(SystemClock),
            limits.max_event_streams,
        );
        let reaper = Reaper::start(
            Arc::clone(&store),
            owed.clone(),
            events.clone(),
            &lifecycle,
            reconnect_grace,
        );
        let streams = Streams::default();
        let (mut listener, displaced) = (store.breaks().listen(), streams.clone());
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            let hear = async {
                while let Some(BrokenLease { name, token }) = listener.heard().await {
                    displaced.broken(name, token);
                }
            };
            tokio::select! {
                () = hear => {}
                () = stopped => {}
            }
        });
        Self {
            store,
            lifecycle,
            reaper,
            streams,
            owed,
            events,
            reconnect_grace,
            most_waiters: limits.max_waiters,
            most_waiters_per_name: limits.max_waiters_per_name,
        }
    }

    /// Finds out whether the store can keep its promises now.
    pub async fn check(&self) -> Vec<Check> {
        self.store.check().await
    }

    /// When the last lease is over that was granted or renewed here and, as far as is known here,
    /// lives; `None` if there is none. Until then somebody may want to renew or release it.
    pub fn owed_until(&self) -> Option<Instant> {
        self.owed.until()
    }

    /// Whether requests should be sent to another gateway, because this one is about to stop.
    pub fn is_withdrawn(&self) -> bool {
        self.lifecycle.is_withdrawn()
    }

    /// Whether new acquires are refused because the gateway is about to stop.
    pub fn is_draining(&self) -> bool {
        self.lifecycle.is_draining()
    }
}
