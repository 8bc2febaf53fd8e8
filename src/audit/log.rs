//! The handle through which the gateway writes to the audit log.

use std::{fmt, io, net::SocketAddr, sync::Arc, thread, time::Duration};

use serde_json::Value;
use tokio::{
    sync::{
        mpsc::{self, Sender},
        oneshot,
    },
    time::{Instant, timeout},
};

use crate::{
    clock::Clock,
    config::AuditConfig,
    lock::{LockName, OrderNumber},
};

use super::{
    BreakAttempt, OrderAttempt, Refused, ReloadedKeys, Requester, Reserved,
    bounds::{Bounded, Bounds, QUEUE},
    event::{AuditEntry, bounded},
    writer::{AuditHealth, Output, Writer, WriterMessage},
};

/// The audit log, or no audit log. Cheap to clone.
///
/// Recording an event never waits for the disk, with two exceptions: [`Audit::lock_broken`] and
/// [`Audit::backed_up`].
#[derive(Clone, Default)]
pub struct Audit(Option<Log>);

#[derive(Clone)]
struct Log {
    messages: Sender<WriterMessage>,
    health: AuditHealth,
    bounds: Arc<Bounds>,
    clock: Arc<dyn Clock>,
}

/// Why the audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file of the audit log cannot be opened.
    #[error("audit.path: cannot open the audit log {path}: {error}")]
    Open {
        /// The path of the audit log's file that cannot be opened.
        path: String,
        /// Why the audit log's file cannot be opened.
        error: io::Error,
    },
    /// The system cannot start a thread for the audit log.
    #[error("cannot start the thread of the audit log: {0}")]
    Thread(io::Error),
}

/// How long an answer waits until its audit line is on the disk. A disk that takes longer is stuck, and must not
/// keep an operator from breaking a lock.
const KEPT_WITHIN: Duration = Duration::from_secs(2);
const NO_ROOM: &str = "lines came faster than they could be written";

// === impl Audit ===

impl Audit {
    /// A handle without an audit log: all events are ignored.
    pub fn none() -> Self {
        Self(None)
    }

    /// Opens the audit log if one is configured. `clock` gives the times of its lines.
    pub fn open(config: &AuditConfig, clock: Arc<dyn Clock>) -> Result<Self, AuditError> {
        if !config.is_kept() {
            return Ok(Self::none());
        }
        let output = Output::open(&config.path).map_err(|error| AuditError::Open {
            path: config.path.clone(),
            error,
        })?;
        let (messages, received) = mpsc::channel(QUEUE);
        let health = AuditHealth::default();
        let writer = Writer {
            messages: received,
            output,
            health: health.clone(),
        };
        thread::Builder::new()
            .name("latchgate-audit".to_owned())
            .spawn(move || writer.run())
            .map_err(AuditError::Thread)?;
        Ok(Self(Some(Log {
            messages,
            health,
            bounds: Arc::default(),
            clock,
        })))
    }

    /// Whether an audit log is configured.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Records that the gateway has started.
    pub fn started(&self, listen: SocketAddr, store: &str) {
        self.record("start", |entry| {
            entry.set("version", env!("CARGO_PKG_VERSION"));
            entry.set("listen", listen.to_string());
            entry.set("store", store);
        });
    }

    /// Records that the gateway ends, and why.
    pub fn stopped(&self, reason: &str) {
        self.record("stop", |entry| entry.set("reason", bounded(reason)));
    }

    /// Records that a caller signed in and got a session: with an API key, or as the subject that an issuer has named.
    pub fn signed_in(&self, requester: &Requester<'_>, proven: Option<(&str, &str)>) {
        self.record("sign-in", |entry| {
            entry.set_requester(requester);
            if let Some((issuer, subject)) = proven {
                entry.set("issuer", bounded(issuer));
                entry.set("subject", bounded(subject));
            }
        });
    }

    /// Records that a caller exchanged an ID token for a key. Limited like [`Audit::refused`], because a caller can repeat it
    /// with one token.
    pub fn exchanged(&self, requester: &Requester<'_>, issuer: &str, subject: &str) {
        self.record_bounded(Bounded::Exchange, "exchange", requester, |entry| {
            entry.set("issuer", bounded(issuer));
            entry.set("subject", bounded(subject));
        });
    }

    /// Records that a caller ended its session. Limited like [`Audit::refused`], because a caller can repeat it
    /// with one cookie without any rate limit.
    pub fn signed_out(&self, requester: &Requester<'_>) {
        self.record_bounded(Bounded::SignOut, "sign-out", requester, |_| {});
    }

    /// Records that the API keys were read again: what has changed, or why the old keys stay valid.
    pub fn keys_reloaded(&self, outcome: Result<&ReloadedKeys, &str>) {
        self.record("key-reload", |entry| match outcome {
            Ok(keys) => {
                let names =
                    |names: &[Arc<str>]| names.iter().map(|name| &**name).collect::<Value>();
                entry.set("outcome", "reloaded");
                entry.set("count", keys.count);
                entry.set("added", names(&keys.added));
                entry.set("removed", names(&keys.removed));
                entry.set("changed", names(&keys.changed));
            }
            Err(reason) => {
                entry.set("outcome", "refused");
                entry.set("reason", bounded(reason));
            }
        });
    }

    /// Records that a request was refused. The number of lines per caller and in total is limited, so that refusals
    /// do not displace other lines. The next audit line reports how many lines were left out.
    pub fn refused(&self, refused: &Refused<'_>) {
        self.record_bounded(Bounded::Refusal, "refused", &refused.requester, |entry| {
            entry.set("method", bounded(refused.method));
            entry.set("route", refused.route);
            entry.set("name", refused.name.map(LockName::as_str));
            entry.set("outcome", refused.outcome);
            entry.set("reason", bounded(refused.reason));
        });
    }

    /// Records that a caller broke a lock or tried to, with a line for each lease. Returns when the lines are on
    /// the disk, so that they are there before the answer; or after a few seconds if they cannot be written.
    ///
    /// If the future is dropped, the lines may or may not be written: call it in the task that completes the break.
    pub async fn lock_broken(&self, broken: &BreakAttempt<'_>) {
        let lines = broken.leases.iter().map(|lease| {
            move |entry: &mut AuditEntry| {
                entry.set("name", broken.name.as_str());
                entry.set_lease(lease);
                entry.set("outcome", broken.outcome);
                entry.set("reason", bounded(broken.reason));
            }
        });
        self.record_kept("break", &broken.requester, lines).await;
    }

    /// Records that a caller has reserved a lock.
    pub fn reserved(&self, reserved: &Reserved<'_>) {
        self.record("reserve", |entry| {
            entry.set_requester(&reserved.requester);
            entry.set("name", reserved.name.as_str());
            entry.set_lease(&reserved.lease);
            let until = humantime::format_rfc3339_millis(reserved.until).to_string();
            entry.set("until", until);
            entry.set("reason", bounded(reserved.reason));
        });
    }

    /// Records that a caller has set the order of a lock, or was refused. Waits for the disk like
    /// [`Audit::lock_broken`].
    pub async fn order_set(&self, attempt: &OrderAttempt<'_>) {
        let line = |entry: &mut AuditEntry| {
            entry.set("name", attempt.name.as_str());
            entry.set("order", attempt.order.map(OrderNumber::get));
            entry.set("outcome", attempt.outcome);
            entry.set("reason", bounded(attempt.reason));
        };
        self.record_kept("order", &attempt.requester, std::iter::once(line))
            .await;
    }

    /// Records that a caller is about to be sent a backup of `bytes` bytes. Waits for the disk like
    /// [`Audit::lock_broken`].
    pub async fn backed_up(&self, requester: &Requester<'_>, bytes: usize) {
        let line = |entry: &mut AuditEntry| entry.set("bytes", bytes);
        self.record_kept("backup", requester, std::iter::once(line))
            .await;
    }

    /// Opens the audit log's file again, after another program has moved the file away.
    pub fn reopen(&self) {
        if let Some(log) = &self.0 {
            // If the writer's queue is full, the message is dropped, and lines go to the old file until the next
            // HUP signal.
            drop(log.messages.try_send(WriterMessage::Reopen));
        }
    }

    /// Waits until all audit lines recorded so far have been written, or until `limit` is over.
    pub async fn flush(&self, limit: Duration) {
        let Some(log) = &self.0 else { return };
        let (kept, is_kept) = oneshot::channel();
        let nothing = WriterMessage::Kept(Vec::new(), kept);
        if log.send_within(limit, nothing).await {
            drop(timeout(limit, is_kept).await);
        }
    }

    /// Whether the last lines could not be written.
    pub fn is_failing(&self) -> bool {
        self.0.as_ref().is_some_and(|log| log.health.is_failing())
    }

    /// Records an event that a caller can cause repeatedly, unless the caller has reached the limit for such
    /// events.
    fn record_bounded(
        &self,
        what: Bounded,
        event: &'static str,
        requester: &Requester<'_>,
        fill: impl FnOnce(&mut AuditEntry),
    ) {
        let Some(log) = &self.0 else { return };
        let room = log.messages.capacity();
        if log.bounds.admit(what, requester, Instant::now(), room) {
            log.record(event, |entry| {
                entry.set_requester(requester);
                fill(entry);
            });
        }
    }

    /// Records events together, and waits until they are on the disk, but not for long ([`KEPT_WITHIN`]).
    async fn record_kept<F: FnOnce(&mut AuditEntry)>(
        &self,
        event: &'static str,
        requester: &Requester<'_>,
        fills: impl Iterator<Item = F>,
    ) {
        let Some(log) = &self.0 else { return };
        let mut left_out = log.bounds.take_left_out();
        let mut lines = Vec::new();
        for fill in fills {
            let mut entry = AuditEntry::new(event, log.clock.wall());
            entry.set_requester(requester);
            fill(&mut entry);
            entry.set_left_out(std::mem::take(&mut left_out));
            lines.extend(entry.line());
        }
        let (kept, is_kept) = oneshot::channel();
        let message = WriterMessage::Kept(lines, kept);
        if log.send_within(KEPT_WITHIN, message).await {
            // An error means that the writer thread has ended, because the process is about to end.
            drop(timeout(KEPT_WITHIN, is_kept).await);
        } else {
            log.health.failed(NO_ROOM);
        }
    }

    fn record(&self, event: &'static str, fill: impl FnOnce(&mut AuditEntry)) {
        if let Some(log) = &self.0 {
            log.record(event, fill);
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.is_kept()).finish()
    }
}

// === impl Log ===

impl Log {
    fn record(&self, event: &'static str, fill: impl FnOnce(&mut AuditEntry)) {
        let mut entry = AuditEntry::new(event, self.clock.wall());
        fill(&mut entry);
        entry.set_left_out(self.bounds.take_left_out());
        let line = WriterMessage::Line(entry.line());
        if self.messages.try_send(line).is_err() {
            self.health.failed(NO_ROOM);
        }
    }

    /// Sends a message to the writer, and waits up to `limit` for room in the queue. Returns whether it was sent.
    async fn send_within(&self, limit: Duration, message: WriterMessage) -> bool {
        let sent = timeout(limit, self.messages.send(message)).await;
        matches!(sent, Ok(Ok(())))
    }
}
