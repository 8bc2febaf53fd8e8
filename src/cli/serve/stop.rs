//! How a gateway ends: after a signal the gateway becomes not ready, drains, and closes, all within its grace period.

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
    store::AnyStore,
    telemetry::{metrics::Figures, trace::Tracer},
};

use super::service_manager::ServiceManager;

/// The end of the grace period, which is reserved for the last steps of the gateway: answers under way, releases of
/// undelivered leases, closing the store. Each takes milliseconds, unless a caller does not read or the store is not
/// available.
const LAST_THINGS: Duration = Duration::from_secs(1);

/// The time limit for writing the last lines of the audit log, so that a stuck disk or reader cannot delay the end of
/// the process.
const LAST_LINE: Duration = Duration::from_millis(250);

/// The time limit for writing the last records of the history, so that a store that is away cannot delay the end of a
/// gateway that has nothing else to do.
const LAST_RECORDS: Duration = Duration::from_secs(1);

/// The time limit for sending the last spans, so that a collector that hangs cannot delay the end of a gateway that has
/// nothing else to do.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// The parts of a running gateway that are needed to stop it.
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
    /// Waits for a signal, and then stops the gateway in order. A second signal ends it at once.
    pub(super) async fn stop(
        &self,
        signals: &mut ServeSignals,
        config: &ShutdownConfig,
    ) -> Result<(), CliError> {
        let signal = signals.next().await;
        // No reload is notified any more: it would contradict the notification that the gateway stops.
        signals.manager = None;
        let grace = config.grace_ms.duration().max(ShutdownConfig::MIN_GRACE);
        let deadline = Instant::now() + grace;
        self.lifecycle.withdraw();
        let end = async {
            self.wait_until_withdrawn(signal, config.delay_ms.duration())
                .await;
            let figures = self.engine.figures();
            self.lifecycle.drain();
            self.announce(
                signal,
                &figures,
                deadline.saturating_duration_since(Instant::now()),
            );
            self.end_by(deadline, grace).await
        };
        self.service_manager.stopping(grace);
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

    /// Waits for the configured delay, so that load balancers notice that this gateway is not ready before it refuses
    /// acquires.
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

    /// Logs that the gateway drains, and how many waiters and streams it sends away: they get no lines of their own.
    fn announce(&self, signal: &str, figures: &Figures, grace: Duration) {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let Figures {
            waiters,
            held_streams,
            event_streams,
            ..
        } = figures;
        match self.engine.leases_needed_until().map(left) {
            None => info!(
                signal,
                ?grace,
                waiters,
                held_streams,
                event_streams,
                "draining: no new acquires"
            ),
            Some(left) => info!(
                signal,
                ?grace,
                waiters,
                held_streams,
                event_streams,
                "draining: no new acquires; renew and release go on for up to {:.1?}, while leases \
                 are held that were granted here; a second signal ends the gateway now",
                left.min(grace)
            ),
        }
    }

    async fn end_by(&self, deadline: Instant, grace: Duration) -> Result<(), CliError> {
        let last_things = LAST_THINGS.min(grace / 4);
        // If the time runs out before the gateway is idle, the gateway stops all the same.
        drop(timeout_at(deadline - last_things, self.until_idle()).await);
        let left = deadline.saturating_duration_since(Instant::now());
        // The history and the store keep the smallest part of the time, because they only have to write what they have.
        let ended = self
            .lifecycle
            .stop(left.saturating_sub(last_things / 4))
            .await;
        // The store closes in the other half of the time.
        let left_for_records = deadline.saturating_duration_since(Instant::now()) / 2;
        self.engine
            .flush_history(Instant::now() + LAST_RECORDS.min(left_for_records))
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

    /// Waits until no request is under way, and no lease is left that this gateway granted and that its holder might
    /// want to renew or release.
    async fn until_idle(&self) {
        loop {
            self.in_flight.quiet().await;
            // Both futures are created before the leases are checked, so that no release is missed. `shrunk` reports
            // leases that end without the end of a request: by a release whose caller hung up, or with a stream.
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
// The signals that end the gateway, or make it read its files again.

/// The signals TERM, INT and HUP, received from the creation of this value.
pub(super) struct ServeSignals {
    term: unix::Signal,
    int: unix::Signal,
    /// The signal HUP, not received if the program that started the gateway wants it ignored, as `nohup` does.
    hup: Signals,
    /// USR1 and USR2, received and ignored, because they would end the process otherwise.
    _ignored: [unix::Signal; 2],
    /// Whether a user started the gateway on a terminal. Checked at the start, because a terminal that was closed since
    /// cannot be recognized.
    interactive: bool,
    /// Tasks that read their files again after a HUP.
    pub(super) reload: Vec<Arc<Notify>>,
    /// The audit log, whose file a HUP opens again.
    pub(super) audit: Audit,
    /// The service manager that is notified of a HUP.
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

    /// Waits for the next signal that ends the gateway, and returns its name. A HUP is handled here.
    ///
    /// A HUP ends a gateway that a user started on a terminal, because it means that the terminal was closed. For any
    /// other gateway, a HUP is the usual request to read the configuration again: keys and certificates are read again,
    /// the audit log is opened again, and the gateway continues.
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
                        manager.reloading();
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
                        manager.ready();
                    }
                }
            }
        }
    }
}
