//! The engine itself: what it is made of and how it is started.

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use crate::{
    config::LimitsConfig,
    lifecycle::Lifecycle,
    store::{Store, StoreError, Uncertainty, breaks::BrokenLease, contract::Check},
};

use super::{owed::Owed, reaper::Reaper, streams::Streams};

/// The operations on locks over one store. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(super) store: Arc<dyn Store>,
    pub(super) lifecycle: Lifecycle,
    pub(super) reaper: Reaper,
    pub(super) streams: Streams,
    pub(super) owed: Owed,
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
        let reaper = Reaper::start(
            Arc::clone(&store),
            owed.clone(),
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
            reconnect_grace,
            most_waiters: limits.max_waiters,
            most_waiters_per_name: limits.max_waiters_per_name,
        }
    }

    /// Finds out whether the store can keep its promises now.
    pub async fn check(&self) -> Vec<Check> {
        self.store.check().await
    }

    /// Runs a command in a task of its own, so that it is carried out although its caller hangs up.
    pub(super) async fn see_through<T, E>(
        &self,
        command: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (answer, outcome) = oneshot::channel();
        self.lifecycle.spawn(async move {
            // A caller that has gone does not hear the answer; the command was carried out.
            drop(answer.send(command.await));
        });
        // A task that panicked, or was lost together with the runtime, may have been at any point.
        outcome
            .await
            .unwrap_or_else(|_lost| Err(StoreError::from(Uncertainty::Interrupted).into()))
    }

    /// When the last lease is over that was granted or renewed here and, as far as is known here,
    /// lives; `None` if there is none. Until then somebody may want to renew or release it.
    pub fn owed_until(&self) -> Option<Instant> {
        self.owed.until()
    }

    /// Whether new acquires are refused because the gateway is about to stop.
    pub fn is_draining(&self) -> bool {
        self.lifecycle.is_draining()
    }
}
