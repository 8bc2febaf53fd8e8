//! Gives back what could not be delivered, and carries out releases whose callers have gone.
//!
//! One task keeps everything that is to be given back until the store has confirmed it, however
//! long the store is away. It starts no more than [`CONCURRENT`] commands at a time at each partition of the store.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    lifecycle::Lifecycle,
    lock::{KeeperId, LockName, TokenHash},
    store::{
        AnyStore, Store, StoreError,
        contract::{GiveBack, Release},
        partition::PartitionedCommands,
    },
    telemetry::metrics::{LeaseOutcome, Metrics},
};

use super::{events::Bus, leases::LeaseRegistry, loss::LossReason};

/// How many give-backs may wait, for their time or for a store that is away. Beyond it the TTL alone
/// ends a lease.
const BACKLOG: usize = 16_384;
/// How many give-backs are under way at once at each partition: enough to fill a pipeline, too few to crowd out
/// callers after an outage.
const CONCURRENT: usize = 64;
/// How soon a give-back that failed is tried again, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A handle to the task that gives back.
#[derive(Debug)]
pub(super) struct Reaper {
    queue: mpsc::Sender<AbandonedLease>,
    leases: Arc<LeaseRegistry>,
}

/// A grant whose caller is gone, or an attempt that may have been granted.
#[derive(Debug, Clone)]
pub(super) struct AbandonedLease {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
    pub(super) by: AbandonedBy,
    /// Whether the caller may come back for the lease, because the request has an idempotency key.
    pub(super) may_come_back: bool,
    /// The other locks of its group, which have the same token.
    pub(super) others: Vec<LockName>,
    /// Somebody waits until all of these locks are given back.
    pub(super) awaited: Option<GivenBack>,
}

/// A receiver of this channel waits until all senders are dropped: until the store was asked once to end each lease
/// that has one.
pub(super) type GivenBack = mpsc::Sender<Infallible>;

/// Who has left a grant behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbandonedBy {
    /// An attempt whose answer was not delivered.
    Attempt,
    /// The keeper of a lease with an idempotency key that was answered to nobody.
    UnansweredAttempt(KeeperId),
    /// The keeper of a lease, with the reason that its stream reported, if it reported one. A lease that another keeper
    /// has adopted is left alone.
    Keeper(KeeperId, Option<LossReason>),
    /// A holder that has hung up, whose release the store did not answer.
    Holder {
        /// When the release came. A lease that was answered again after that is left alone.
        since: Instant,
        /// When the lease has ended on its own at the latest.
        until: Instant,
    },
}

struct ReaperEntry {
    due: Instant,
    retry_in: Duration,
    lease: AbandonedLease,
}

/// The parts of the engine that the reaper uses to release a lease.
pub(super) struct ReaperContext {
    pub(super) store: AnyStore,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) events: Bus,
    pub(super) metrics: Metrics,
}

struct ReaperTask {
    context: Arc<ReaperContext>,
    grace: Duration,
    /// By the time at which each is due, and a number of its own.
    waiting: BTreeMap<(Instant, u64), ReaperEntry>,
    /// The number of the last entry.
    last: u64,
    stopping: bool,
    /// Whether the backlog was full for leases that were not delivered, and for those to be released. Each is logged once,
    /// until half of the backlog is free.
    overflowing: [bool; 2],
}

// === impl Reaper ===

impl Reaper {
    pub(super) fn start(context: ReaperContext, lifecycle: &Lifecycle, grace: Duration) -> Self {
        let (queue, submitted) = mpsc::channel(BACKLOG);
        let leases = Arc::clone(&context.leases);
        let task = ReaperTask::new(context, grace);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { task.run(submitted, stopped).await });
        Self { queue, leases }
    }

    /// Takes over a lease. It is given back at once, or after the reconnect grace if its caller may
    /// ask again.
    pub(super) fn submit(&self, mut lease: AbandonedLease) {
        if let AbandonedBy::Holder { .. } = lease.by {
            self.leases.give_up(&lease.name, &lease.token);
        } else {
            // Its token was not delivered, so no caller can use the lease.
            self.leases.lose(&lease.name, &lease.token);
        }
        for name in &lease.others {
            self.leases.lose(name, &lease.token);
        }
        if lease.by == AbandonedBy::Attempt && !lease.may_come_back {
            // Each by itself: the store may be away for one of them.
            for name in std::mem::take(&mut lease.others) {
                let lease = lease.clone();
                self.submit(AbandonedLease { name, ..lease });
            }
        }
        if let Err(error) = self.queue.try_send(lease) {
            warn!(%error, "a lease that could not be delivered is left to its TTL");
        }
    }
}

// === impl AbandonedLease ===

impl AbandonedLease {
    pub(super) fn new(name: LockName, token: TokenHash, by: AbandonedBy) -> Self {
        Self {
            name,
            token,
            by,
            may_come_back: false,
            others: Vec::new(),
            awaited: None,
        }
    }

    /// Other locks may have leases with the same token.
    pub(super) fn add_names(&mut self, names: impl IntoIterator<Item = LockName>) {
        for name in names {
            if name != self.name && !self.others.contains(&name) {
                self.others.push(name);
            }
        }
    }
}

// === impl ReaperTask ===

impl ReaperTask {
    fn new(context: ReaperContext, grace: Duration) -> Self {
        Self {
            context: Arc::new(context),
            grace,
            waiting: BTreeMap::new(),
            last: 0,
            stopping: false,
            overflowing: [false; 2],
        }
    }

    /// Goes on until everything has been given back or, once `stopped`, until it is dropped.
    async fn run(
        mut self,
        mut submitted: mpsc::Receiver<AbandonedLease>,
        stopped: impl Future<Output = ()>,
    ) {
        let mut stopped = std::pin::pin!(stopped);
        let context = Arc::clone(&self.context);
        let mut running = PartitionedCommands::new(CONCURRENT, |entry| {
            give_back(Arc::clone(&context), entry).boxed()
        });
        loop {
            while let Some(entry) = self.take_due() {
                running.push(context.store.partition(&entry.lease.name), entry);
            }
            if self.stopping
                && running.is_empty()
                && self.waiting.is_empty()
                && submitted.is_empty()
            {
                return;
            }
            let next = self.waiting.keys().next().map(|(due, _)| *due);
            tokio::select! {
                Some(lease) = submitted.recv() => self.accept(lease, running.waiting()),
                Some(next) = running.next(), if !running.is_empty() => {
                    for entry in next {
                        self.push(entry);
                    }
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = &mut stopped, if !self.stopping => self.hurry(),
            }
        }
    }

    /// Takes a lease in, while so many are due and wait for their turn.
    fn accept(&mut self, lease: AbandonedLease, due: usize) {
        // A release needs no API key, so those of strangers must leave room.
        let is_release = matches!(lease.by, AbandonedBy::Holder { .. });
        let room = if is_release { BACKLOG / 2 } else { BACKLOG };
        let (waiting, overflowing) = (
            self.waiting.len() + due,
            &mut self.overflowing[usize::from(is_release)],
        );
        if waiting >= room {
            if !*overflowing {
                warn!(
                    backlog = room,
                    "leases that could not be delivered or released are left to their TTL"
                );
            }
            *overflowing = true;
            return;
        }
        *overflowing &= waiting > room / 2;
        // A gateway that stops does not wait for the grace: it could not give the lease back later.
        let waits = lease.may_come_back && !self.stopping;
        let wait = if waits { self.grace } else { Duration::ZERO };
        let entry = ReaperEntry {
            due: Instant::now() + wait,
            retry_in: RETRY.0,
            lease,
        };
        self.push(entry);
    }

    fn push(&mut self, entry: ReaperEntry) {
        self.last += 1;
        self.waiting.insert((entry.due, self.last), entry);
    }

    /// Makes everything due now.
    fn hurry(&mut self) {
        self.stopping = true;
        let due = Instant::now();
        for entry in std::mem::take(&mut self.waiting).into_values() {
            self.push(ReaperEntry { due, ..entry });
        }
    }

    fn take_due(&mut self) -> Option<ReaperEntry> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= Instant::now()).then(|| first.remove())
    }
}

/// Returns what is to be given back next: the same lease if it must be retried later, or the rest of its group.
async fn give_back(context: Arc<ReaperContext>, mut entry: ReaperEntry) -> Vec<ReaperEntry> {
    let ReaperContext {
        store,
        leases,
        events,
        metrics,
    } = &*context;
    let AbandonedLease {
        name, token, by, ..
    } = &entry.lease;
    let gave_back = |lost| {
        metrics.given_back();
        if leases.remove(name, token).is_some() {
            events.given_back(name, token, lost);
        }
    };
    let goes_on = match by {
        AbandonedBy::Attempt | AbandonedBy::UnansweredAttempt(_) => {
            let given_back = if let AbandonedBy::UnansweredAttempt(keeper) = by {
                store.give_back_unanswered(name, token, *keeper).await
            } else {
                store.give_back(name, token).await
            };
            given_back.map(|outcome| {
                debug!(%name, ?outcome, "gave back what was not delivered");
                if outcome == GiveBack::GivenBack {
                    gave_back(None);
                }
                outcome == GiveBack::Kept || entry.may_have_been_answered(outcome)
            })
        }
        AbandonedBy::Keeper(keeper, lost) => {
            let released = store.release_as(Some(*keeper), name, token).await;
            released.map(|outcome| {
                debug!(%name, ?outcome, "released what is not kept any more");
                if outcome == Release::Released {
                    gave_back(*lost);
                }
                outcome == Release::Adopted
            })
        }
        AbandonedBy::Holder { since, .. } if leases.was_answered_since(name, token, *since) => {
            Ok(true)
        }
        AbandonedBy::Holder { .. } => {
            let released = store.release(name, token).await;
            released.map(|outcome| {
                debug!(%name, ?outcome, "released for a caller that has gone");
                if outcome == Release::Released {
                    metrics.released(LeaseOutcome::Done, None);
                    // Before the event: the publisher takes the lease out of the list, too.
                    if let Some(lease) = leases.remove(name, token) {
                        lease.released();
                    }
                    events.released(name, token);
                } else {
                    leases.lose(name, token);
                }
                false
            })
        }
    };
    match goes_on {
        // A newer request under its key goes on with the rest of its group.
        Ok(true) => Vec::new(),
        // Nobody does, if perhaps an earlier copy of this command has ended it.
        Ok(false) => entry.others(),
        Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {
            if matches!(by, AbandonedBy::Holder { until, .. } if *until <= Instant::now()) {
                return Vec::new();
            }
            // Nobody waits for an outage to end.
            entry.lease.awaited = None;
            entry.due = Instant::now() + entry.retry_in;
            entry.retry_in = (entry.retry_in * 2).min(RETRY.1);
            vec![entry]
        }
        Err(error @ (StoreError::ForeignData { .. } | StoreError::FenceExhausted)) => {
            warn!(%name, %error, "a lease that nobody holds is left to its TTL");
            entry.others()
        }
    }
}

// === impl ReaperEntry ===

impl ReaperEntry {
    /// Whether somebody else has ended this lease of a complete group, before the first command to give it back. Another
    /// gateway may have answered the group again before that, so its caller may still hold the rest.
    fn may_have_been_answered(&self, outcome: GiveBack) -> bool {
        outcome == GiveBack::NothingHeld
            && self.lease.by == AbandonedBy::Attempt
            && self.lease.may_come_back
            && self.retry_in == RETRY.0
    }

    /// The other locks of the group, which are given back now.
    fn others(&self) -> Vec<Self> {
        let (token, by) = (self.lease.token, AbandonedBy::Attempt);
        let others = self.lease.others.iter().map(|name| Self {
            due: Instant::now(),
            retry_in: RETRY.0,
            lease: AbandonedLease {
                awaited: self.lease.awaited.clone(),
                ..AbandonedLease::new(name.clone(), token, by)
            },
        });
        others.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::tests::scripted_store::{ScriptedStore, engine_on, granted, name},
        lock::Token,
    };

    #[tokio::test(start_paused = true)]
    async fn a_backlog_that_is_full_for_releases_is_logged_once_whatever_else_is_taken_in() {
        let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
        let shared = &engine.0;
        let context = ReaperContext {
            store: shared.store.clone(),
            leases: Arc::clone(&shared.leases),
            events: shared.events.clone(),
            metrics: shared.metrics.clone(),
        };
        let mut task = ReaperTask::new(context, Duration::ZERO);
        let lease = |by| AbandonedLease::new(name(), Token::random().hash(), by);
        let (since, until) = (Instant::now(), Instant::now());
        let release = AbandonedBy::Holder { since, until };
        for _ in 0..BACKLOG / 2 {
            task.accept(lease(AbandonedBy::Attempt), 0);
        }
        for _ in 0..3 {
            task.accept(lease(release), 0);
            task.accept(lease(AbandonedBy::Attempt), 0);
            assert_eq!(task.overflowing, [false, true]);
            // Two releases that have ended make room for a moment.
            task.waiting.pop_first();
            task.waiting.pop_first();
            task.accept(lease(release), 0);
            assert_eq!(task.overflowing, [false, true]);
        }
        task.waiting.clear();
        task.accept(lease(release), 0);
        assert_eq!(task.overflowing, [false, false]);
    }
}
