//! The handle that writes to the audit log.

use std::{fmt, io, net::SocketAddr, sync::Arc, thread, time::Duration};

use serde_json::Value;
use tokio::{
    runtime::Builder,
    sync::{
        mpsc::{self, Sender},
        oneshot,
    },
    time::{Instant, timeout},
};

use crate::{
    clock::Clock,
    config::AuditConfig,
    lock::{FencingToken, LockName},
};

use super::{
    BreakAttempt, Refused, ReloadedKeys, Requester,
    bounds::{Bounded, Bounds, QUEUE},
    event::{AuditEntry, bounded},
    writer::{MissingLines, Output, Writer, WriterMessage},
};

/// The audit log, or none. Cheap to clone.
///
/// Telling it something never waits for the disk, with two exceptions: [`Audit::lock_broken`] and
/// [`Audit::backed_up`].
#[derive(Clone, Default)]
pub struct Audit(Option<Log>);

#[derive(Clone)]
struct Log {
    messages: Sender<WriterMessage>,
    missing: Arc<MissingLines>,
    bounds: Arc<Bounds>,
    clock: Arc<dyn Clock>,
}

/// Why there can be no audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("audit.path: cannot open the audit log {path}: {error}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The system has no thread for it.
    #[error("cannot start the thread of the audit log: {0}")]
    Thread(io::Error),
}

/// How long an answer waits for its line, if it does. A disk that takes longer is stuck, and the
/// operator's hands must not be tied by it.
const KEPT_WITHIN: Duration = Duration::from_secs(2);
const NO_ROOM: &str = "lines came faster than they could be written";

// === impl Audit ===

impl Audit {
    /// No audit log.
    pub fn none() -> Self {
        Self(None)
    }

    /// Opens the audit log that is configured, if one is. `clock` gives the times in it.
    pub fn open(config: &AuditConfig, clock: Arc<dyn Clock>) -> Result<Self, AuditError> {
        if !config.is_kept() {
            return Ok(Self::none());
        }
        let output = Output::open(&config.path).map_err(|error| AuditError::Open {
            path: config.path.clone(),
            error,
        })?;
        let (messages, received) = mpsc::channel(QUEUE);
        let missing = Arc::new(MissingLines::default());
        let bounds = Arc::new(Bounds::default());
        let writer = Writer {
            messages: received,
            output,
            missing: Arc::clone(&missing),
            clock: Arc::clone(&clock),
        };
        let timer = Builder::new_current_thread().enable_time().build();
        let timer = timer.map_err(AuditError::Thread)?;
        thread::Builder::new()
            .name("latchgate-audit".to_owned())
            .spawn(move || timer.block_on(writer.run()))
            .map_err(AuditError::Thread)?;
        Ok(Self(Some(Log {
            messages,
            missing,
            bounds,
            clock,
        })))
    }

    /// Whether there is an audit log.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// The gateway has started.
    pub fn started(&self, listen: SocketAddr, store: &str) {
        self.record("start", |entry| {
            entry.set("version", env!("CARGO_PKG_VERSION"));
            entry.set("listen", listen.to_string());
            entry.set("store", store);
        });
    }

    /// The gateway ends, and why.
    pub fn stopped(&self, reason: &str) {
        self.record("stop", |entry| entry.set("reason", bounded(reason)));
    }

    /// Somebody has shown a key, and has a session for it.
    pub fn signed_in(&self, requester: &Requester<'_>) {
        self.record("sign-in", |entry| entry.set_requester(requester));
    }

    /// Somebody has ended their session. Nothing is charged for it, and it can be done with one cookie
    /// as often as anybody likes: so it is bounded as [`Audit::refused`] is.
    pub fn signed_out(&self, requester: &Requester<'_>) {
        self.record_bounded(Bounded::SignOut, "sign-out", requester, |_| {});
    }

    /// The API keys were read again: how many count now and what is new, or why the old ones still do.
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

    /// Somebody was refused. Who is refused over and over has not all of it written, and it does not
    /// take the room of anything else: what was left out is counted, and stands in the next line.
    pub fn refused(&self, refused: &Refused<'_>) {
        self.record_bounded(Bounded::Refusal, "refused", &refused.requester, |entry| {
            entry.set("method", bounded(refused.method));
            entry.set("route", refused.route);
            entry.set("name", refused.name.map(LockName::as_str));
            entry.set("outcome", refused.outcome);
            entry.set("reason", bounded(refused.reason));
        });
    }

    /// Somebody broke a lock, or tried to: a line for each lease. Comes back when they are on the disk, so that
    /// they are there before the answer is; or, if they cannot be written, after a moment all the same.
    ///
    /// Dropped half-way, the lines are written or not: call it where the break itself is seen through.
    pub async fn lock_broken(&self, broken: &BreakAttempt<'_>) {
        let lines = broken.fencing_tokens.iter().map(|fence| {
            move |entry: &mut AuditEntry| {
                entry.set("name", broken.name.as_str());
                entry.set("fencing_token", fence.map(FencingToken::get));
                entry.set("outcome", broken.outcome);
                entry.set("reason", bounded(broken.reason));
            }
        });
        self.record_kept("break", &broken.requester, lines).await;
    }

    /// Somebody is about to be sent a backup of so many bytes. Comes back as [`Audit::lock_broken`] does.
    pub async fn backed_up(&self, requester: &Requester<'_>, bytes: usize) {
        let line = |entry: &mut AuditEntry| entry.set("bytes", bytes);
        self.record_kept("backup", requester, std::iter::once(line))
            .await;
    }

    /// Opens the file anew, after somebody has moved it away.
    pub fn reopen(&self) {
        if let Some(log) = &self.0 {
            // A full queue is written to the file that is there now; the next HUP comes through.
            drop(log.messages.try_send(WriterMessage::Reopen));
        }
    }

    /// Ends when everything that was told so far has been written, or the time is over.
    pub async fn flush(&self, limit: Duration) {
        let Some(log) = &self.0 else { return };
        let (kept, is_kept) = oneshot::channel();
        let (lines, count) = (Vec::new(), 0);
        let nothing = WriterMessage::Kept { lines, count, kept };
        if log.send_within(limit, nothing).await {
            drop(timeout(limit, is_kept).await);
        }
    }

    /// What an operator should know of it, if anything.
    pub fn trouble(&self) -> Option<String> {
        self.0.as_ref().and_then(|log| log.missing.trouble())
    }

    /// How many lines could not be written since the start.
    pub fn missing(&self) -> u64 {
        self.0.as_ref().map_or(0, |log| log.missing.total())
    }

    /// Writes an entry that a caller can cause over and over, within its bound.
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

    /// Writes entries together, and waits until they are on the disk, but no longer than a moment.
    async fn record_kept<F: FnOnce(&mut AuditEntry)>(
        &self,
        event: &'static str,
        requester: &Requester<'_>,
        fills: impl Iterator<Item = F>,
    ) {
        let Some(log) = &self.0 else { return };
        let left_out = log.bounds.take_left_out();
        let (mut lines, mut count) = (Vec::new(), 0);
        for fill in fills {
            let mut entry = AuditEntry::new(event, log.clock.wall());
            entry.set_requester(requester);
            fill(&mut entry);
            if count == 0 {
                entry.set_left_out(left_out);
            }
            lines.extend(entry.line());
            count += 1;
        }
        let (kept, is_kept) = oneshot::channel();
        let message = WriterMessage::Kept { lines, count, kept };
        if log.send_within(KEPT_WITHIN, message).await {
            // An error: the thread has ended, and with it the process is about to.
            drop(timeout(KEPT_WITHIN, is_kept).await);
        } else {
            log.bounds.put_back(left_out);
            log.missing.add(count, NO_ROOM);
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
        let left_out = self.bounds.take_left_out();
        let mut entry = AuditEntry::new(event, self.clock.wall());
        fill(&mut entry);
        entry.set_left_out(left_out);
        let line = WriterMessage::Line(entry.line());
        if self.messages.try_send(line).is_err() {
            self.bounds.put_back(left_out);
            self.missing.add(1, NO_ROOM);
        }
    }

    /// Sends a message, and waits for room if there is none. Says whether there was.
    async fn send_within(&self, limit: Duration, message: WriterMessage) -> bool {
        let sent = timeout(limit, self.messages.send(message)).await;
        matches!(sent, Ok(Ok(())))
    }
}
