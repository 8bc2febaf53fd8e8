//! How a gateway ends: a signal comes, and it is withdrawn, drains, then closes, all within its grace period.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    signal::unix::{self, SignalKind, signal},
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::{info, warn};

use crate::{
    audit::Audit,
    cli::{
        error::{CliError, Exit},
        terminal::signals::Signals,
    },
    config::ShutdownConfig,
    engine::Engine,
    http::InFlightRequests,
    lifecycle::Lifecycle,
    store::{AnyStore, Store as _},
    telemetry::trace::Tracer,
};

use super::service_manager::ServiceManager;

/// How much of the end of the grace period is kept for what comes last: answers that are under way,
/// giving back what could not be delivered, closing the store. Each takes milliseconds, unless
/// somebody does not read or the store is away.
const LAST_THINGS: Duration = Duration::from_secs(1);

/// How long the last lines of the audit log may take: a disk or a reader that is stuck must not keep
/// the process.
const LAST_LINE: Duration = Duration::from_millis(250);

/// How long a collector may take for the last spans: one that hangs must not keep a gateway that has
/// nothing else to do.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// A gateway that serves.
pub(super) struct Serving {
    pub(super) service_manager: ServiceManager,
    pub(super) lifecycle: Lifecycle,
    pub(super) in_flight: InFlightRequests,
    pub(super) engine: Engine,
    pub(super) store: AnyStore,
    pub(super) audit: Audit,
    pub(super) tracer: Tracer,
}

// === impl Serving ===

impl Serving {
    /// Waits for a signal and ends everything in order. A second signal ends it at once.
    pub(super) async fn stop(
        &self,
        signals: &mut ServeSignals,
        config: &ShutdownConfig,
    ) -> Result<(), CliError> {
        let signal = signals.next().await;
        // What is told of a reload from here on would contradict the word of the end.
        signals.manager = None;
        let grace = config.grace_ms.duration().max(ShutdownConfig::SHORTEST);
        let deadline = Instant::now() + grace;
        self.lifecycle.withdraw();
        let end = async {
            self.wait_until_withdrawn(signal, config.delay_ms.duration())
                .await;
            self.lifecycle.drain();
            self.announce(signal, deadline.saturating_duration_since(Instant::now()));
            self.end_by(deadline, grace).await
        };
        // Side by side: a manager that does not read takes nothing from the grace period.
        let end = async { tokio::join!(end, self.service_manager.stopping(grace)).0 };
        let outcome = tokio::select! {
            outcome = end => outcome,
            _ = signals.next() => Err(CliError::new(Exit::CutShort,
                "ended by a second signal; requests under way may not have been answered",
            )),
        };
        match &outcome {
            Ok(()) => self.audit.stopped(signal),
            Err(error) => self.audit.stopped(&format!("{signal}: {error}")),
        }
        self.audit.flush(LAST_LINE).await;
        outcome
    }

    /// Waits until load balancers have seen that this gateway is not ready.
    async fn wait_until_withdrawn(&self, signal: &str, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        info!(
            signal,
            ?delay,
            "about to stop: not ready, and serving as before until load balancers have noticed"
        );
        sleep(delay).await;
    }

    fn announce(&self, signal: &str, grace: Duration) {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        match self.engine.leases_needed_until().map(left) {
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

    async fn end_by(&self, deadline: Instant, grace: Duration) -> Result<(), CliError> {
        let last_things = LAST_THINGS.min(grace / 4);
        // Either way it is time to stop.
        drop(timeout_at(deadline - last_things, self.until_idle()).await);
        let left = deadline.saturating_duration_since(Instant::now());
        // The store's part is the least: it only has to write down what it has.
        let ended = self
            .lifecycle
            .stop(left.saturating_sub(last_things / 4))
            .await;
        let closed = timeout_at(deadline, self.store.close()).await;
        let last_spans = Instant::now() + LAST_SPANS;
        self.tracer.flush(deadline.min(last_spans)).await;
        match closed {
            Ok(()) => ended.map_err(|left| CliError::new(Exit::CutShort, left)),
            Err(_elapsed) => Err(CliError::new(
                Exit::CutShort,
                "the store had not finished when the grace period was over",
            )),
        }
    }

    /// Ends when nobody asks for anything, and nobody has a lease from here that they might want to
    /// renew or release.
    async fn until_idle(&self) {
        loop {
            self.in_flight.quiet().await;
            // Before the look at the leases: a release must be seen here or there. One that goes on
            // without its caller, or the end of a stream, is no request that ends.
            let (changed, shrunk) = (self.in_flight.changed(), self.engine.leases_shrunk());
            let Some(until) = self.engine.leases_needed_until() else {
                return;
            };
            tokio::select! {
                () = sleep_until(until) => {}
                () = changed => {}
                () = shrunk => {}
            }
        }
    }
}

// === Signals ===
//
// The signals that end the gateway, or let it read again what can be read again.

/// TERM, INT and HUP, from the moment this exists.
pub(super) struct ServeSignals {
    term: unix::Signal,
    int: unix::Signal,
    /// Not heard if whoever started the gateway wants it ignored, as `nohup` does.
    hup: Signals,
    /// USR1 and USR2, which would end a process that does not listen for them, and mean nothing here.
    _ignored: [unix::Signal; 2],
    /// Whether somebody started it by hand. Found out at the start: of a terminal that is closed it
    /// cannot be told any more that it was one.
    interactive: bool,
    /// Who reads again what can be read again.
    pub(super) reload: Vec<Arc<Notify>>,
    /// What a HUP opens anew.
    pub(super) audit: Audit,
    /// Who is told of what a HUP does.
    pub(super) manager: Option<ServiceManager>,
}

// === impl ServeSignals ===

impl ServeSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: Signals::listen([Signal::HUP])?,
            _ignored: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::user_defined2())?,
            ],
            interactive: io::stdin().is_terminal(),
            reload: Vec::new(),
            audit: Audit::none(),
            manager: None,
        })
    }

    /// The next that is to end the gateway.
    ///
    /// A terminal that is closed ends what was started on it. Without a terminal HUP is the usual
    /// way to ask for a new configuration: no reason to end. Of that only keys and certificates are read
    /// again.
    pub(super) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.term.recv() => return "TERM",
                _ = self.int.recv() => return "INT",
                _ = self.hup.next() => {
                    if self.interactive {
                        return "HUP";
                    }
                    if let Some(manager) = &self.manager {
                        manager.reloading().await;
                    }
                    self.audit.reopen();
                    for reload in &self.reload {
                        reload.notify_one();
                    }
                    if self.reload.is_empty() && !self.audit.is_kept() {
                        warn!(
                            "HUP is ignored: the configuration is read at the start only; start \
                             the gateway again to change it"
                        );
                    }
                    if let Some(manager) = &self.manager {
                        manager.ready().await;
                    }
                }
            }
        }
    }
}
