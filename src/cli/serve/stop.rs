//! How a gateway ends: it drains, then closes, all within its grace period.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::info;

use crate::{
    audit::Audit, config::ShutdownConfig, engine::Engine, lifecycle::Lifecycle, store::Store,
};

use super::{ServeError, service_manager::ServiceManager, signals::Signals, under_way::UnderWay};

/// How much of the end of the grace period is kept for what comes last: answers that are under way,
/// giving back what could not be delivered, closing the store. Each takes milliseconds, unless
/// somebody does not read or the store is away.
const LAST_THINGS: Duration = Duration::from_secs(1);

/// How long the last lines of the audit log may take: a disk or a reader that is stuck must not keep
/// the process.
const LAST_LINE: Duration = Duration::from_millis(250);

/// A gateway that serves.
pub(super) struct Serving {
    pub(super) service_manager: ServiceManager,
    pub(super) lifecycle: Lifecycle,
    pub(super) under_way: UnderWay,
    pub(super) engine: Engine,
    pub(super) store: Arc<dyn Store>,
    pub(super) audit: Audit,
}

// === impl Serving ===

impl Serving {
    /// Waits for a signal and ends everything in order. A second signal ends it at once.
    pub(super) async fn stop(
        &self,
        signals: &mut Signals,
        grace: Duration,
    ) -> Result<(), ServeError> {
        let signal = signals.next().await;
        let grace = grace.max(ShutdownConfig::SHORTEST);
        let deadline = Instant::now() + grace;
        self.lifecycle.drain();
        self.announce(signal, grace);
        let end = async {
            // Side by side: a manager that does not read takes nothing from the grace period.
            let told = self.service_manager.stopping(grace);
            tokio::join!(self.end_by(deadline, grace), told).0
        };
        let outcome = tokio::select! {
            outcome = end => outcome,
            _ = signals.next() => Err(ServeError::SecondSignal),
        };
        match &outcome {
            Ok(()) => self.audit.stopped(signal),
            Err(error) => self.audit.stopped(&format!("{signal}: {error}")),
        }
        self.audit.flush(LAST_LINE).await;
        outcome
    }

    fn announce(&self, signal: &str, grace: Duration) {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        match self.engine.owed_until().map(left) {
            None => info!(signal, ?grace, "draining: no new acquires"),
            Some(left) => info!(
                signal,
                ?grace,
                "draining: no new acquires; renew and release go on for up to {:.1?}, while leases \
                 are held that were granted here; a second signal ends it now",
                left.min(grace)
            ),
        }
    }

    async fn end_by(&self, deadline: Instant, grace: Duration) -> Result<(), ServeError> {
        let last_things = LAST_THINGS.min(grace / 4);
        // Either way it is time to stop.
        drop(timeout_at(deadline - last_things, self.nothing_left()).await);
        let left = deadline.saturating_duration_since(Instant::now());
        // The store's part is the least: it only has to write down what it has.
        let ended = self
            .lifecycle
            .stop(left.saturating_sub(last_things / 4))
            .await;
        match timeout_at(deadline, self.store.close()).await {
            Ok(()) => Ok(ended?),
            Err(_elapsed) => Err(ServeError::StoreLeft),
        }
    }

    /// Ends when nobody asks for anything, and nobody has a lease from here that they might want to
    /// renew or release.
    async fn nothing_left(&self) {
        loop {
            self.under_way.quiet().await;
            // Before the look at the leases: a release must be seen here or there. One that goes on
            // without its caller, or the end of a stream, is no request that ends.
            let (changed, settled) = (self.under_way.changed(), self.engine.owed_less());
            let Some(until) = self.engine.owed_until() else {
                return;
            };
            tokio::select! {
                () = sleep_until(until) => {}
                () = changed => {}
                () = settled => {}
            }
        }
    }
}
