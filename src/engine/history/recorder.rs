//! Takes the facts about leases from operations, and writes them to the store behind the operations.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::future::join_all;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::warn;

use crate::{
    clock::{Clock, rfc3339},
    config::HistoryConfig,
    engine::leases::{LeaseRegistry, RegisteredLease},
    lifecycle::Lifecycle,
    lock::{FencingToken, History, HistoryEntry, HistoryNote, LockName, OrderNumber, Reason},
    store::{
        AnyStore, StoreError,
        history::{EndedLease, HistoryBatch, HistoryBounds, HistoryCounts},
    },
    telemetry::metrics::Metrics,
};

use super::{
    entries::merge,
    fact::{Actor, EXPIRED, LOST, RELEASED, RecordedLease, UnheardRelease, record},
    pending::{Due, Pending, PendingLock, Taken},
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
    /// Notified when a fact waits to be written.
    waits: Notify,
}

/// The kind of the note that a caller has set the order of the lock.
const ORDER_SET: &str = "order-set";
/// How long the gateway pauses between two writes.
const PAUSE: Duration = Duration::from_millis(20);
/// How often counts alone are written, and how often the gateway tries again after a failure.
const PERIOD: Duration = Duration::from_secs(1);

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
            waits: Notify::new(),
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
        let is_over = [EXPIRED, LOST].contains(&kind);
        // The release whose answer has not come has ended the lease.
        let unheard = lease
            .unheard
            .take()
            .filter(|_| is_over || kind == RELEASED && by.is_none());
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
            // Most leases are short, and nothing is made for them. If an earlier release has ended the lease, it came to
            // another gateway, which counts the lease.
            (Some(lease), ended) if !self.is_long(lease.since) && !lease.may_rest() => {
                if ended.is_some() {
                    self.count(name);
                }
            }
            (Some(lease), _) => self.note(name, lease.recorded(), RELEASED, by, reason),
            (None, Some(ended)) => {
                let mut lease = RecordedLease::from(ended.fence);
                lease.even_if_short = ended.may_rest;
                lease.since = ended.held_for.and_then(|it| lease.until.checked_sub(it));
                self.note(name, lease, RELEASED, by, reason);
            }
            (None, None) => {}
        }
    }

    /// Records that a caller has set the order that the lock remembers: as a note of the last lease in the history,
    /// because the order is of no lease. `set`: the new order, `None` if the lock has forgotten it.
    pub(in crate::engine) async fn order_set(
        &self,
        name: &LockName,
        set: Option<OrderNumber>,
        by: Option<&Actor>,
        reason: &Reason,
    ) {
        if self.bounds.entries == 0 {
            return;
        }
        let history = self.read(name).await.ok();
        let last = history.and_then(|it| it.entries.first().map(|entry| entry.fencing_token));
        if let Some(Ok(fence)) = last.map(FencingToken::new) {
            let set = set.map_or_else(|| "none".to_owned(), |set| set.get().to_string());
            self.note(
                name,
                fence,
                ORDER_SET,
                by,
                Some(&format!("{set}: {}", reason.as_str())),
            );
        }
    }

    /// Whether a lease that was granted then is not short.
    pub(super) fn is_long(&self, since: Instant) -> bool {
        since.elapsed() >= self.after
    }

    /// Reads the history of a lock, with what this gateway has still to write.
    pub(in crate::engine) async fn read(&self, name: &LockName) -> Result<History, StoreError> {
        // In this order, a lease that ends meanwhile, or whose end is written meanwhile, is known twice and not missing.
        let holder = self.store.inspect(name).await?.holder;
        // A lease that ended just before is written by the gateway that ended it.
        sleep(PAUSE).await;
        let PendingLock { facts, counts } = self.pending.peek(name);
        let mut stored = self.store.history(name).await?;
        stored.counts.add(counts);
        let (stored, now) = ((stored, facts), self.clock.wall());
        Ok(merge(name, stored, holder.as_ref(), self.bounds, now))
    }

    /// The time of an instant in the past, as text.
    fn time(&self, at: Instant) -> String {
        rfc3339(self.clock.wall().checked_sub(at.elapsed())).to_string()
    }

    fn put(&self, name: &LockName, fact: HistoryEntry) {
        if self.bounds.entries == 0 {
        } else if self.pending.put(name, fact) {
            self.waits.notify_one();
        } else {
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
        let (mut was_written, mut counted_at) = (true, Instant::now());
        loop {
            tokio::select! {
                () = self.waits.notified(), if was_written => {}
                () = sleep_until(counted_at + PERIOD) => {}
                () = &mut stopped => break,
            }
            let counts = counted_at.elapsed() >= PERIOD;
            if counts {
                counted_at = Instant::now();
            }
            let due = if counts { Due::Counts } else { Due::Facts };
            let failure = self.write(&self.pending.take(due)).await;
            if let (true, Err(Some(error))) = (was_written, &failure) {
                warn!(%error, "the history of locks is not written; this gateway keeps the last records");
            }
            was_written = failure.is_ok();
            // Facts that come during this pause are written with one command, which costs the store less.
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = &mut stopped => break,
            }
        }
    }

    /// Writes all that is left, until `until` at the latest. Call this after the background tasks have ended: the reaper
    /// and the publisher tell how the last leases have ended.
    pub(in crate::engine) async fn flush(&self, until: Instant) {
        let written = async {
            while self.write(&self.pending.take(Due::All)).await.is_err() {
                sleep(PAUSE).await;
            }
        };
        // What cannot be written in time is lost: the gateway must not end late because of the history.
        drop(timeout_at(until, written).await);
    }

    /// Writes what was taken. Keeps what cannot be written, and answers why, if the store said so.
    async fn write(&self, taken: &Taken) -> Result<(), Option<StoreError>> {
        let batch = |(name, waiting): &(LockName, PendingLock)| HistoryBatch {
            name: name.clone(),
            bounds: self.bounds,
            records: waiting.facts.iter().cloned().map(record).collect(),
            counts: waiting.counts,
        };
        let mut by_partition = HashMap::<_, Vec<_>>::new();
        for lock in taken.iter() {
            let partition = self.store.partition(&lock.0);
            by_partition.entry(partition).or_default().push(lock);
        }
        let write = async |locks: Vec<&(LockName, PendingLock)>| {
            let batches: Vec<_> = locks.iter().copied().map(batch).collect();
            let (failed, error) = match self.store.record_history(&batches).await {
                Ok(failed) => (failed, None),
                Err(error) => ((0..locks.len()).collect(), Some(error)),
            };
            for (name, waiting) in failed.iter().map(|position| locks[*position]) {
                for fact in &waiting.facts {
                    self.put(name, fact.clone());
                }
                if !self.pending.count(name, waiting.counts) {
                    self.metrics.history_dropped(1);
                }
            }
            if failed.is_empty() {
                Ok(())
            } else {
                Err(error)
            }
        };
        let written = join_all(by_partition.into_values().map(write)).await;
        self.pending.written();
        written.into_iter().collect()
    }
}
