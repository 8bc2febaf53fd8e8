//! Takes the records of operations, and writes them to the store behind the operations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use crate::{
    clock::Clock,
    config::HistoryConfig,
    engine::{
        leases::{LeaseCheck, LeaseRegistry, RecordedLease, RegisteredLease, RunOutLease},
        loss::ABANDONED,
    },
    lifecycle::Lifecycle,
    lock::{FencingToken, HeldLease, LockName},
    store::{
        AnyStore, Store, StoreError,
        contract::Loss,
        history::{EndedLease, HistoryBatch, HistoryBounds},
    },
    telemetry::metrics::Metrics,
};

use super::{
    entries::LockHistory,
    fact::{Actor, BROKEN, EXPIRED, Fact, LOST, LeaseFacts, OPENED, RELEASED, millis},
    pending::Pending,
};

/// Takes the records of operations, and writes them to the store behind the operations. Cheap to clone.
///
/// If the history is off, every method does nothing.
#[derive(Clone)]
pub(in crate::engine) struct Recorder(Option<Arc<RecorderShared>>);

struct RecorderShared {
    store: AnyStore,
    leases: Arc<LeaseRegistry>,
    metrics: Metrics,
    /// The clock for the times of records, which are only displayed.
    clock: Arc<dyn Clock>,
    bounds: HistoryBounds,
    /// How long a lease must last to be recorded.
    after: Duration,
    pending: Mutex<Pending>,
}

/// How often the gateway writes, and so how often at most for one lock.
const PERIOD: Duration = Duration::from_secs(1);
/// How many commands are sent to the store at once.
const TOGETHER: usize = 8;
/// How long after its time the store is asked about a lease that has run out: by then a release that another gateway
/// carries out has arrived.
const GRACE: Duration = Duration::from_secs(1);
/// How long the last writes may take when the gateway stops.
const LAST: Duration = Duration::from_secs(1);

// === impl Recorder ===

impl Recorder {
    /// Starts the task that writes, unless the history is off.
    pub(in crate::engine) fn start(
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
        lifecycle: &Lifecycle,
        config: &HistoryConfig,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Self {
        if config.entries == 0 {
            return Self(None);
        }
        leases.record();
        let shared = Arc::new(RecorderShared {
            store,
            leases,
            metrics,
            clock,
            bounds: HistoryBounds {
                entries: config.entries,
                keep: config.keep_ms.duration(),
            },
            after: config.after_ms.duration(),
            pending: Mutex::default(),
        });
        let (task, stopped) = (Arc::clone(&shared), lifecycle.stopped());
        lifecycle.spawn_background(async move { task.run(stopped).await });
        Self(Some(shared))
    }

    /// Records the release of a lease: `lease` if this gateway knew the lease, `ended` if the store told which lease
    /// has ended. A lease that was too short is only counted.
    pub(in crate::engine) fn released(
        &self,
        name: &LockName,
        lease: Option<&mut RegisteredLease>,
        ended: Option<EndedLease>,
        by: Option<&Actor>,
        reason: Option<&str>,
    ) {
        let Some(shared) = &self.0 else { return };
        let (fence, held_for) = match (&lease, ended) {
            (Some(lease), _) => (lease.fence, lease.since.elapsed()),
            (None, Some(ended)) => {
                let held_for = shared.clock.wall().duration_since(ended.since);
                (ended.fence, held_for.unwrap_or_default())
            }
            // An earlier copy of the release has ended the lease, and its answer was recorded.
            (None, None) => return,
        };
        if held_for < shared.after {
            shared.count(name);
            return;
        }
        let facts = lease.and_then(|lease| lease.recorded().facts);
        let end = shared.fact(RELEASED, by, reason, facts);
        shared.put_since(name, fence, held_for, end);
    }

    /// Records that a lease of this gateway is lost, as a renewal or a release has found. If its time was over, it has
    /// expired. If it was broken, the gateway that broke it records that.
    pub(in crate::engine) fn lost(
        &self,
        name: &LockName,
        lease: Option<RecordedLease>,
        loss: Loss,
    ) {
        if let (Some(shared), Some(lease), Loss::HeldByAnother | Loss::Free) =
            (&self.0, lease, loss)
        {
            let held_for = lease.since.elapsed().min(lease.until - lease.since);
            let is_over = lease.until <= Instant::now();
            if is_over && held_for < shared.after {
                shared.count(name);
                return;
            }
            let how = if is_over { EXPIRED } else { LOST };
            let end = shared.fact(how, None, None, lease.facts);
            shared.put_since(name, lease.fence, lease.since.elapsed(), end);
        }
    }

    /// Records that a lease without a caller is left to the reaper; `is_over`: it will certainly be released. A short
    /// lease does not count, because no caller had it.
    pub(in crate::engine) fn abandoned(
        &self,
        name: &LockName,
        lease: RecordedLease,
        is_over: bool,
    ) {
        let held_for = lease.since.elapsed();
        if let Some(shared) = self.0.as_ref().filter(|shared| held_for >= shared.after) {
            let kind = if is_over { RELEASED } else { OPENED };
            let fact = shared.fact(kind, None, Some(ABANDONED), lease.facts);
            shared.put_since(name, lease.fence, held_for, fact);
        }
    }

    /// Records that a lease was broken, or released without its token (`is_release`), and what it was: the gateway that
    /// granted it may be gone, or may not have recorded it yet.
    pub(in crate::engine) fn broken(
        &self,
        name: &LockName,
        lease: &HeldLease,
        by: Option<&Actor>,
        reason: &str,
        is_release: bool,
    ) {
        let Some(shared) = &self.0 else { return };
        let how = if is_release { RELEASED } else { BROKEN };
        let facts = LeaseFacts::new(lease.mode, lease.owner.as_ref(), &lease.metadata);
        let end = shared.fact(how, by, Some(reason), Some(Box::new(facts)));
        let held_for = lease.held_for + lease.as_of.elapsed();
        shared.put_since(name, lease.fence, held_for, end);
    }

    /// Records that something happened to a lease: `kind` is a word of the API.
    pub(in crate::engine) fn note(
        &self,
        name: &LockName,
        fence: FencingToken,
        kind: &'static str,
        by: Option<&Actor>,
        reason: Option<&str>,
    ) {
        let Some(shared) = &self.0 else { return };
        shared.put(name, fence, shared.fact(kind, by, reason, None));
    }

    /// Reads the history of a lock, with what this gateway has still to write.
    pub(in crate::engine) async fn read(&self, name: &LockName) -> Result<LockHistory, StoreError> {
        let Some(shared) = &self.0 else {
            return Ok(LockHistory::default());
        };
        let (pending, counts) = shared.pending.lock().peek(name);
        let mut stored = shared.store.history(name).await?;
        // The holder is read after the history: a lease that ends in between is shown as one whose end was not seen.
        let holder = shared.store.inspect(name).await?.holder;
        stored
            .records
            .extend(pending.into_iter().map(|record| record.text));
        stored.counts.add(counts);
        let now = shared.clock.wall();
        Ok(LockHistory::merge(
            &stored,
            holder.as_ref(),
            shared.bounds,
            now,
        ))
    }
}

// === impl RecorderShared ===

impl RecorderShared {
    /// Makes a fact of now.
    fn fact(
        &self,
        kind: &'static str,
        by: Option<&Actor>,
        reason: Option<&str>,
        lease: Option<Box<LeaseFacts>>,
    ) -> Fact {
        Fact {
            kind: kind.into(),
            at: millis(self.clock.wall()),
            since: None,
            by: by.map(Actor::to_string),
            reason: reason.map(str::to_owned),
            lease,
        }
    }

    /// Records a fact about a lease that was granted this long ago.
    fn put_since(&self, name: &LockName, fence: FencingToken, held_for: Duration, mut fact: Fact) {
        fact.since = Some(fact.at - millis_of(held_for).min(fact.at));
        self.put(name, fence, fact);
    }

    /// Counts a lease that was too short to be recorded.
    fn count(&self, name: &LockName) {
        let now = || millis(self.clock.wall());
        let has_room = self.pending.lock().count(name, now);
        self.metrics.history_dropped(u64::from(!has_room));
    }

    fn put(&self, name: &LockName, fence: FencingToken, fact: Fact) {
        let has_room = self.pending.lock().put(name, fact.record(fence));
        self.metrics.history_dropped(u64::from(!has_room));
    }

    async fn run(self: Arc<Self>, stopped: impl Future<Output = ()>) {
        let mut stopped = std::pin::pin!(stopped);
        let mut was_written = true;
        loop {
            tokio::select! {
                () = sleep(PERIOD) => {}
                () = &mut stopped => break,
            }
            self.look().await;
            let failure = self.write(false).await;
            if let (true, Some(error)) = (was_written, &failure) {
                warn!(%error, "the history of locks is not written; this gateway keeps the last records");
            }
            was_written = failure.is_none();
        }
        // What cannot be written in time is lost.
        drop(timeout(LAST, self.write(true)).await);
    }

    /// Records the leases that are old enough, and asks the store about the leases that have run out.
    async fn look(&self) {
        let now = Instant::now();
        let before = now.checked_sub(GRACE).unwrap_or(now);
        let (opened, run_out) = self.leases.take_recordable(self.after, before);
        for (name, lease) in opened {
            let opened = self.fact(OPENED, None, None, lease.facts);
            self.put_since(&name, lease.fence, lease.since.elapsed(), opened);
        }
        let failures = AtomicUsize::new(0);
        let checks = stream::iter(run_out);
        let checks = checks.for_each_concurrent(TOGETHER, |run_out| self.check(run_out, &failures));
        checks.await;
    }

    /// Records that a lease has expired, unless the store says that it lives.
    async fn check(&self, run_out: RunOutLease, failures: &AtomicUsize) {
        // After some failures, the other questions of this second would most likely fail too, each after a while.
        let check = if failures.load(Ordering::Relaxed) < TOGETHER {
            run_out.check(&self.store).await
        } else {
            LeaseCheck::Unknown
        };
        match check {
            LeaseCheck::Living(left) => {
                let until = Instant::now() + left;
                self.leases.await_end(&run_out, Some(until));
            }
            LeaseCheck::Unknown => {
                failures.fetch_add(1, Ordering::Relaxed);
                self.leases.await_end(&run_out, None);
            }
            LeaseCheck::NotShown => self.leases.await_end(&run_out, None),
            LeaseCheck::Gone => {
                let mut expired = self.fact(EXPIRED, None, None, None);
                expired.at -= millis_of(run_out.until.elapsed()).min(expired.at);
                self.put(&run_out.name, run_out.fence, expired);
            }
        }
    }

    /// Writes what waits; counts of shorter leases only if they are due, or with `all`. Answers why it cannot be
    /// written, and keeps it then.
    async fn write(&self, all: bool) -> Option<StoreError> {
        let batches = self.pending.lock().take(self.bounds, all);
        let failures = Mutex::new(Vec::new());
        let write = |(name, batch): (LockName, HistoryBatch)| {
            let failures = &failures;
            async move {
                // After some failures, the other batches of this second would most likely fail too, each after a while.
                if failures.lock().len() < TOGETHER {
                    match self.store.record_history(&name, &batch).await {
                        Ok(()) => return,
                        Err(error) => failures.lock().push(error),
                    }
                }
                let dropped = self.pending.lock().put_back(&name, batch);
                self.metrics.history_dropped(dropped);
            }
        };
        let writes = stream::iter(batches).for_each_concurrent(TOGETHER, write);
        writes.await;
        failures.into_inner().pop()
    }
}

fn millis_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
