//! Takes the facts about leases from operations, and writes them to the store behind the operations.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use crate::{
    clock::{Clock, rfc3339},
    config::HistoryConfig,
    engine::leases::{LeaseRegistry, RegisteredLease},
    lifecycle::Lifecycle,
    lock::{History, HistoryEntry, HistoryNote, LockName},
    store::{
        AnyStore, StoreError,
        history::{EndedLease, HistoryBatch, HistoryBounds, HistoryCounts},
    },
    telemetry::metrics::Metrics,
};

use super::{
    entries::merge,
    fact::{Actor, EXPIRED, LOST, RELEASED, RecordedLease, UnheardRelease, record},
    pending::{Pending, PendingLock},
};

/// Takes the facts about leases from operations, and writes them to the store behind the operations.
///
/// If the history is off, no fact is kept.
pub(in crate::engine) struct Recorder {
    store: AnyStore,
    metrics: Metrics,
    /// The clock for the times of facts, which are only displayed.
    clock: Arc<dyn Clock>,
    bounds: HistoryBounds,
    /// How long a lease must last to be recorded.
    after: Duration,
    pending: Pending,
}

/// How often the gateway writes, and so how often at most for one lock.
const PERIOD: Duration = Duration::from_secs(1);
/// How many commands are sent to the store at once.
const TOGETHER: usize = 8;
/// How long the last writes may take when the gateway stops.
const LAST: Duration = Duration::from_secs(1);

// === impl Recorder ===

impl Recorder {
    /// Starts the task that writes, unless the history is off.
    pub(in crate::engine) fn start(
        store: AnyStore,
        leases: &LeaseRegistry,
        lifecycle: &Lifecycle,
        config: &HistoryConfig,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Arc<Self> {
        let recorder = Arc::new(Self {
            store,
            metrics,
            clock,
            bounds: HistoryBounds {
                entries: config.entries,
                keep: config.keep_ms.duration(),
            },
            after: config.after_ms.duration(),
            pending: Pending::default(),
        });
        if config.entries > 0 {
            leases.record(recorder.after);
            let (task, stopped) = (Arc::clone(&recorder), lifecycle.stopped());
            lifecycle.spawn_background(async move { task.run(stopped).await });
        }
        recorder
    }

    /// Records what a lease is, and when it was granted.
    pub(super) fn opened(&self, name: &LockName, mut lease: RecordedLease) {
        lease.entry.acquired_at = lease.since.map(|since| self.time(since));
        self.put(name, lease.entry);
    }

    /// Records what happened to a lease: its end, or another event; `kind` is a word of the API. An ordinary end of a
    /// lease that was too short is only counted.
    pub(super) fn note(
        &self,
        name: &LockName,
        lease: impl Into<RecordedLease>,
        kind: &str,
        by: Option<&Actor>,
        reason: Option<&str>,
    ) {
        let (mut lease, now) = (lease.into(), Instant::now());
        let is_over = kind == EXPIRED;
        // The release that the store has not answered has ended the lease.
        let unheard = lease
            .unheard
            .take()
            .filter(|_| [EXPIRED, LOST].contains(&kind) || kind == RELEASED && by.is_none());
        let (kind, by) = match &unheard {
            Some(UnheardRelease(by)) => (RELEASED, by.as_ref()),
            None => (kind, by),
        };
        let over = (is_over || unheard.is_some()).then_some(lease.until);
        let at = over.map_or(now, |over| over.min(now));
        let is_short = lease.since.is_some_and(|since| at < since + self.after);
        if is_short && !lease.even_if_short && [EXPIRED, RELEASED].contains(&kind) {
            return self.count(name);
        }
        lease.entry.notes.push(HistoryNote {
            kind: kind.to_owned(),
            at: self.time(at),
            by: by.map(Actor::to_string),
            reason: reason.map(str::to_owned),
        });
        self.opened(name, lease);
    }

    /// Records the release of a lease: `lease` if this gateway knew the lease, `ended` if the store told which lease
    /// has ended. If neither is known, an earlier copy of the release has ended the lease.
    pub(super) fn released(
        &self,
        name: &LockName,
        lease: Option<&RegisteredLease>,
        ended: Option<EndedLease>,
        (by, reason): (Option<&Actor>, Option<&str>),
    ) {
        match (lease, ended) {
            // Most leases are short, and nothing is made for them.
            (Some(lease), _) if !self.is_long(lease.since) && !lease.may_rest() => {
                self.count(name);
            }
            (Some(lease), _) => self.note(name, lease.recorded(), RELEASED, by, reason),
            (None, Some(ended)) => {
                let mut lease = RecordedLease::from(ended.fence);
                let held_for = self.clock.wall().duration_since(ended.since);
                lease.since = lease.until.checked_sub(held_for.unwrap_or_default());
                self.note(name, lease, RELEASED, by, reason);
            }
            (None, None) => {}
        }
    }

    /// Whether a lease that was granted then is not short.
    pub(super) fn is_long(&self, since: Instant) -> bool {
        since.elapsed() >= self.after
    }

    /// Reads the history of a lock, with what this gateway has still to write.
    pub(in crate::engine) async fn read(&self, name: &LockName) -> Result<History, StoreError> {
        let PendingLock { facts, counts } = self.pending.peek(name);
        let mut stored = self.store.history(name).await?;
        // The holder is read after the history: a lease that ends in between is shown as one whose end was not seen.
        let holder = self.store.inspect(name).await?.holder;
        stored.counts.add(counts);
        let (stored, now) = ((stored, facts), self.clock.wall());
        Ok(merge(name, stored, holder.as_ref(), self.bounds, now))
    }

    /// The time of an instant in the past, as text.
    fn time(&self, at: Instant) -> String {
        rfc3339(self.clock.wall().checked_sub(at.elapsed())).to_string()
    }

    fn put(&self, name: &LockName, fact: HistoryEntry) {
        if self.bounds.entries > 0 && !self.pending.put(name, fact) {
            self.metrics.history_dropped(1);
        }
    }

    /// Counts a lease that was too short to be recorded.
    fn count(&self, name: &LockName) {
        let since = self.clock.wall().duration_since(SystemTime::UNIX_EPOCH);
        let counts = HistoryCounts {
            shorter: 1,
            since: since.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(0)),
            dropped: 0,
        };
        if self.bounds.entries > 0 && !self.pending.count(name, counts) {
            self.metrics.history_dropped(1);
        }
    }

    async fn run(self: Arc<Self>, stopped: impl Future<Output = ()>) {
        let mut stopped = std::pin::pin!(stopped);
        let mut was_written = true;
        loop {
            tokio::select! {
                () = sleep(PERIOD) => {}
                () = &mut stopped => break,
            }
            let failure = self.write(false).await;
            if let (true, Some(error)) = (was_written, &failure) {
                warn!(%error, "the history of locks is not written; this gateway keeps the last records");
            }
            was_written = failure.is_none();
        }
        // What cannot be written in time is lost.
        drop(timeout(LAST, self.write(true)).await);
    }

    /// Writes what waits; counts alone only if they are due, or with `all`. Answers why it cannot be written, and keeps
    /// it then.
    async fn write(&self, all: bool) -> Option<StoreError> {
        let failures = &Mutex::new(Vec::new());
        let write = |(name, waiting): (LockName, PendingLock)| async move {
            // After some failures, the other batches of this second would most likely fail too, each after a while.
            if failures.lock().len() < TOGETHER {
                let batch = HistoryBatch {
                    bounds: self.bounds,
                    records: waiting.facts.iter().cloned().map(record).collect(),
                    counts: waiting.counts,
                };
                match self.store.record_history(&name, &batch).await {
                    Ok(()) => return,
                    Err(error) => failures.lock().push(error),
                }
            }
            for fact in waiting.facts {
                self.put(&name, fact);
            }
            if !self.pending.count(&name, waiting.counts) {
                self.metrics.history_dropped(1);
            }
        };
        let waiting = stream::iter(self.pending.take(all));
        waiting.for_each_concurrent(TOGETHER, write).await;
        failures.lock().pop()
    }
}
