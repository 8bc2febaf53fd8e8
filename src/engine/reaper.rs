//! Gives back what could not be delivered.
//!
//! One task keeps everything that is to be given back until the store has confirmed it, however
//! long the store is away. It starts no more than [`CONCURRENT`] commands at a time.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    lifecycle::Lifecycle,
    lock::{KeeperId, LockName, TokenHash},
    store::{
        Store, StoreError,
        contract::{GiveBack, Release},
    },
    telemetry::metrics::Metrics,
};

use super::{LossReason, events::Bus, owed::Owed, unheard::Unheard};

/// How many give-backs may wait, for their time or for a store that is away. Beyond it the TTL alone
/// ends a lease.
const BACKLOG: usize = 16_384;
/// How many give-backs are under way at once: enough to fill a pipeline, too few to crowd out
/// callers after an outage.
const CONCURRENT: usize = 64;
/// How soon a give-back that failed is tried again, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A handle to the task that gives back.
#[derive(Debug, Clone)]
pub(super) struct Reaper {
    queue: mpsc::Sender<Abandoned>,
    owed: Owed,
    unheard: Unheard,
}

/// A grant that nobody waits for any more, or an attempt that may have become one.
#[derive(Debug, Clone)]
pub(super) struct Abandoned {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
    pub(super) by: Abandoner,
}

/// Who has left a grant behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abandoner {
    /// An attempt, whose answer reached nobody.
    Attempt,
    /// The same with an idempotency key: its caller may come back for it.
    KeyedAttempt,
    /// An attempt that was answered a lease which lived already under its idempotency key, as its keeper.
    /// Nobody had heard of that lease before; the caller may come back for it.
    Replay(KeeperId),
    /// A keeper that keeps it no longer, for the reason that its stream was told if there was anybody to
    /// be told. What somebody else has adopted is left to them.
    Keeper(KeeperId, Option<LossReason>),
}

struct Entry {
    due: Instant,
    retry_in: Duration,
    lease: Abandoned,
}

struct Task {
    store: Arc<dyn Store>,
    events: Bus,
    metrics: Metrics,
    unheard: Unheard,
    grace: Duration,
    waiting: BinaryHeap<Reverse<Entry>>,
    stopping: bool,
    /// Whether the last lease found the backlog full; said once, not for each.
    overflowing: bool,
}

// === impl Reaper ===

impl Reaper {
    pub(super) fn start(
        store: Arc<dyn Store>,
        owed: Owed,
        events: Bus,
        metrics: Metrics,
        lifecycle: &Lifecycle,
        grace: Duration,
    ) -> Self {
        let (queue, submitted) = mpsc::channel(BACKLOG);
        let unheard = Unheard::default();
        let task = Task {
            store,
            events,
            metrics,
            unheard: unheard.clone(),
            grace,
            waiting: BinaryHeap::new(),
            stopping: false,
            overflowing: false,
        };
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { task.run(submitted, stopped).await });
        Self {
            queue,
            owed,
            unheard,
        }
    }

    /// A first answer of a lease is under way.
    pub(super) fn expect(&self, lease: &Abandoned) {
        if lease.by.is_keyed() {
            self.unheard.expect(lease.token);
        }
    }

    /// Somebody has heard of a lease.
    pub(super) fn heard(&self, lease: &Abandoned) {
        if lease.by.is_keyed() {
            self.unheard.heard(&lease.token);
        }
    }

    /// Takes over a lease. It is given back at once, or after the reconnect grace if its caller may
    /// ask again.
    pub(super) fn submit(&self, lease: Abandoned) {
        self.expect(&lease);
        self.submit_expected(lease);
    }

    /// The same for a lease that was answered again, unless somebody may have heard of it before.
    pub(super) fn submit_again(&self, lease: Abandoned) {
        if self.unheard.expect_again(&lease.token) {
            self.submit_expected(lease);
        }
    }

    /// The same for one of which it is known that its answer was under way.
    pub(super) fn submit_expected(&self, lease: Abandoned) {
        // Nobody has its token, so nobody will ask for it.
        self.owed.settle(&lease.token);
        if let Err(error) = self.queue.try_send(lease) {
            let (TrySendError::Full(lease) | TrySendError::Closed(lease)) = &error;
            self.unheard.forget(&lease.token);
            warn!(%error, "a lease that could not be delivered is left to its TTL");
        }
    }
}

// === impl Task ===

impl Task {
    /// Goes on until everything has been given back or, once `stopped`, until it is dropped.
    async fn run(
        mut self,
        mut submitted: mpsc::Receiver<Abandoned>,
        stopped: impl Future<Output = ()>,
    ) {
        let mut stopped = std::pin::pin!(stopped);
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < CONCURRENT
                && let Some(entry) = self.take_due()
            {
                let by = entry.lease.by;
                if matches!(by, Abandoner::Replay(_))
                    && !self.unheard.is_unheard(&entry.lease.token)
                {
                    continue;
                }
                let (store, events) = (Arc::clone(&self.store), self.events.clone());
                let (metrics, unheard) = (self.metrics.clone(), self.unheard.clone());
                running.push(async move {
                    let token = entry.lease.token;
                    let failed = give_back(store, events, metrics, entry).await;
                    if failed.is_none() && by.is_keyed() {
                        unheard.forget(&token);
                    }
                    failed
                });
            }
            if self.stopping
                && running.is_empty()
                && self.waiting.is_empty()
                && submitted.is_empty()
            {
                return;
            }
            let next = self.waiting.peek().map(|Reverse(entry)| entry.due);
            let full = running.len() >= CONCURRENT;
            tokio::select! {
                Some(lease) = submitted.recv() => self.accept(lease),
                Some(failed) = running.next(), if !running.is_empty() => {
                    if let Some(entry) = failed {
                        self.waiting.push(Reverse(entry));
                    }
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() && !full => {}
                () = &mut stopped, if !self.stopping => self.hurry(),
            }
        }
    }

    fn accept(&mut self, lease: Abandoned) {
        if self.waiting.len() >= BACKLOG {
            if !self.overflowing {
                warn!(
                    backlog = BACKLOG,
                    "leases that could not be delivered are left to their TTL"
                );
            }
            self.overflowing = true;
            self.unheard.forget(&lease.token);
            return;
        }
        self.overflowing = false;
        // Whoever stops does not wait: there will be nobody to give it back later.
        let waits = lease.by.is_keyed() && !self.stopping;
        let wait = if waits { self.grace } else { Duration::ZERO };
        let entry = Entry {
            due: Instant::now() + wait,
            retry_in: RETRY.0,
            lease,
        };
        self.waiting.push(Reverse(entry));
    }

    /// Makes everything due now.
    fn hurry(&mut self) {
        self.stopping = true;
        let now = Instant::now();
        let entries = self.waiting.drain();
        self.waiting = entries
            .map(|Reverse(entry)| Reverse(Entry { due: now, ..entry }))
            .collect();
    }

    fn take_due(&mut self) -> Option<Entry> {
        let Reverse(entry) = self.waiting.peek()?;
        if entry.due > Instant::now() {
            return None;
        }
        self.waiting.pop().map(|Reverse(entry)| entry)
    }
}

/// Answers the entry again if it must be tried later.
async fn give_back(
    store: Arc<dyn Store>,
    events: Bus,
    metrics: Metrics,
    mut entry: Entry,
) -> Option<Entry> {
    let Abandoned { name, token, by } = &entry.lease;
    let ended = match by {
        Abandoner::Attempt | Abandoner::KeyedAttempt => {
            let given_back = store.give_back(name, token).await;
            given_back.map(|outcome| {
                debug!(%name, ?outcome, "gave back what was not delivered");
                if outcome == GiveBack::GivenBack {
                    metrics.given_back();
                    events.given_back(name, token, None);
                }
            })
        }
        Abandoner::Replay(keeper) => {
            let released = store.release_as(Some(*keeper), name, token).await;
            released.map(|outcome| {
                debug!(%name, ?outcome, "gave back what nobody has heard of");
                if outcome == Release::Released {
                    metrics.given_back();
                    events.given_back(name, token, None);
                }
            })
        }
        Abandoner::Keeper(keeper, lost) => {
            let released = store.release_as(Some(*keeper), name, token).await;
            released.map(|outcome| {
                debug!(%name, ?outcome, "released what is not kept any more");
                if outcome == Release::Released {
                    metrics.given_back();
                    events.given_back(name, token, *lost);
                }
            })
        }
    };
    match ended {
        Ok(()) => None,
        Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {
            entry.due = Instant::now() + entry.retry_in;
            entry.retry_in = (entry.retry_in * 2).min(RETRY.1);
            Some(entry)
        }
        Err(error @ (StoreError::ForeignData { .. } | StoreError::FenceExhausted)) => {
            warn!(%name, %error, "a lease that nobody holds is left to its TTL");
            None
        }
    }
}

// === impl Abandoner ===

impl Abandoner {
    /// Whether its caller may come back for the lease.
    fn is_keyed(self) -> bool {
        matches!(self, Self::KeyedAttempt | Self::Replay(_))
    }
}

// === impl Entry ===

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}
