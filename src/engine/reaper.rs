//! The reaper: releases undelivered leases, and carries out releases whose callers have gone.
//!
//! One task keeps each abandoned lease until the store has confirmed the release, however long the store is away. The
//! task sends at most [`CONCURRENT`] commands at a time to each partition of the store.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    lifecycle::Lifecycle,
    lock::{LockName, RecipientId, TokenHash},
    store::{
        AnyStore, StoreError,
        contract::{GiveBack, Release, Releaser},
        partition::PartitionedCommands,
    },
};

use super::{
    facts::{Fact, Facts, ReleasedBy},
    loss::LossReason,
};

/// How many releases may wait for their time, or for a store that is away. Beyond this number an abandoned lease ends
/// only with its TTL.
const BACKLOG: usize = 16_384;
/// How many releases are under way at once at each partition: enough to fill a pipeline, too few to crowd out callers
/// after an outage.
const CONCURRENT: usize = 64;
/// How soon a failed release is tried again: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A handle to the task that releases abandoned leases.
pub(super) struct Reaper {
    queue: mpsc::Sender<AbandonedLease>,
    facts: Arc<Facts>,
}

/// A grant whose caller is gone, or an attempt that may have been granted.
#[derive(Debug, Clone)]
pub(super) struct AbandonedLease {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
    pub(super) by: AbandonedBy,
    /// Whether the caller may ask again and get the lease, because the request has an idempotency key.
    pub(super) may_come_back: bool,
    /// The other locks of a group, whose leases have the same token and are released too; empty for a single lock.
    pub(super) others: Vec<LockName>,
    /// The sender of a caller that waits until all of these leases are released; `None` if no caller waits.
    pub(super) awaited: Option<GivenBack>,
}

/// The sender that a waiting caller puts into each abandoned lease. The caller's receiver waits until all senders are
/// dropped: until the store was asked once to end each of these leases.
pub(super) type GivenBack = mpsc::Sender<Infallible>;

/// Which party abandoned a lease. The reaper chooses the release command accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbandonedBy {
    /// An attempt whose answer was not delivered.
    Attempt,
    /// The recipient of a lease with an idempotency key that was not answered to any caller.
    UnansweredAttempt(RecipientId),
    /// The recipient of a lease, with the reason for the loss that its stream reported, if any. A lease that another
    /// recipient has adopted is not released.
    Recipient(Releaser, Option<LossReason>),
    /// A holder that has hung up after the store did not answer its release.
    Holder {
        /// The recipient that the lease had when the release came. A lease that was answered again since then has
        /// another recipient, and is not released.
        releaser: Releaser,
        /// The time at which the lease has certainly ended with its TTL, so that no release is needed any more.
        until: Instant,
    },
}

struct ReaperEntry {
    due: Instant,
    retry_in: Duration,
    lease: AbandonedLease,
}

struct ReaperTask {
    store: AnyStore,
    facts: Arc<Facts>,
    grace: Duration,
    /// The releases that wait for their time, ordered by that time and by a number that makes each key unique.
    waiting: BTreeMap<(Instant, u64), ReaperEntry>,
    /// The number of the last release that was added to `waiting`.
    last: u64,
    stopping: bool,
    /// Whether the backlog was full: for undelivered leases, and for releases of holders. Each overflow is logged
    /// once, and again only after half of the backlog was free.
    overflowing: [bool; 2],
}

// === impl Reaper ===

impl Reaper {
    pub(super) fn start(
        store: AnyStore,
        facts: Arc<Facts>,
        lifecycle: &Lifecycle,
        grace: Duration,
    ) -> Self {
        let (queue, submitted) = mpsc::channel(BACKLOG);
        let task = ReaperTask::new(store, Arc::clone(&facts), grace);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { task.run(submitted, stopped).await });
        Self { queue, facts }
    }

    /// Takes over an abandoned lease. The lease is released at once, or after the reconnect grace if its caller may
    /// ask again.
    pub(super) fn submit(&self, mut lease: AbandonedLease) {
        if !lease.by.may_rest() {
            for name in [&lease.name].into_iter().chain(&lease.others) {
                self.facts.leases.rest(name, &lease.token, None);
            }
        }
        if let AbandonedBy::Holder { .. } = lease.by {
            self.facts.leases.give_up(&lease.name, &lease.token);
        } else {
            // The token was not delivered, so no caller can use the lease.
            self.lose(&lease.name, &lease);
        }
        for name in &lease.others {
            self.lose(name, &lease);
        }
        if lease.by == AbandonedBy::Attempt && !lease.may_come_back {
            // Each lock gets an entry of its own, because the store may be away for only one of them.
            for name in std::mem::take(&mut lease.others) {
                let lease = lease.clone();
                self.submit(AbandonedLease { name, ..lease });
            }
        }
        if let Err(error) = self.queue.try_send(lease) {
            warn!(%error, "a lease that could not be delivered is left to its TTL");
        }
    }

    fn lose(&self, name: &LockName, abandoned: &AbandonedLease) {
        let lost = self.facts.leases.lose(name, &abandoned.token, false);
        // The lease of a recipient may have been adopted, and a caller with an idempotency key may ask again.
        let is_recipient = matches!(abandoned.by, AbandonedBy::Recipient(..));
        if let (Some(lost), false) = (lost, is_recipient || abandoned.may_come_back) {
            let fact = Fact::Abandoned(Box::new(lost));
            self.facts.tell(name, Some((&abandoned.token).into()), fact);
        }
    }
}

// === impl AbandonedBy ===

impl AbandonedBy {
    /// Whether the lock may rest after the release.
    fn may_rest(&self) -> bool {
        match self {
            Self::Attempt | Self::UnansweredAttempt(_) => false,
            Self::Recipient(releaser, _) | Self::Holder { releaser, .. } => releaser.may_rest(),
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

    /// Adds other locks whose leases have the same token.
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
    fn new(store: AnyStore, facts: Arc<Facts>, grace: Duration) -> Self {
        Self {
            store,
            facts,
            grace,
            waiting: BTreeMap::new(),
            last: 0,
            stopping: false,
            overflowing: [false; 2],
        }
    }

    /// Runs until `stopped` has ended and all leases are released, or until the task is dropped.
    async fn run(
        mut self,
        mut submitted: mpsc::Receiver<AbandonedLease>,
        stopped: impl Future<Output = ()>,
    ) {
        let mut stopped = std::pin::pin!(stopped);
        let (store, facts) = (self.store.clone(), Arc::clone(&self.facts));
        let mut running = PartitionedCommands::new(CONCURRENT, |entry| {
            give_back(store.clone(), Arc::clone(&facts), entry).boxed()
        });
        loop {
            while let Some(entry) = self.take_due() {
                running.push(store.partition(&entry.lease.name), entry);
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

    /// Accepts an abandoned lease, or drops it if the backlog is full. `due` is the number of leases that are due and
    /// wait for a free command.
    fn accept(&mut self, lease: AbandonedLease, due: usize) {
        // Any caller can cause releases, because a release needs no API key: they must leave room for undelivered
        // leases.
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
        // A gateway that stops does not wait for the reconnect grace: it releases the lease now, because it could not
        // do so later.
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

    /// Makes all waiting releases due now, because the gateway stops.
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

/// Releases an abandoned lease. Returns the entries to release next: the same lease if it must be retried later, or
/// the other leases of its group.
async fn give_back(store: AnyStore, facts: Arc<Facts>, mut entry: ReaperEntry) -> Vec<ReaperEntry> {
    let AbandonedLease {
        name, token, by, ..
    } = &entry.lease;
    let goes_on = match by {
        AbandonedBy::Attempt | AbandonedBy::UnansweredAttempt(_) => {
            let unanswered = match by {
                AbandonedBy::UnansweredAttempt(recipient) => Some(*recipient),
                _ => None,
            };
            let given_back = store.give_back(name, token, unanswered).await;
            given_back.map(|outcome| {
                debug!(%name, ?outcome, "released an undelivered lease");
                if outcome == GiveBack::GivenBack {
                    facts.released(name, token, None, ReleasedBy::Gateway(None));
                }
                outcome == GiveBack::Kept || entry.may_have_been_answered(outcome)
            })
        }
        AbandonedBy::Recipient(releaser, _) | AbandonedBy::Holder { releaser, .. } => {
            let by = match by {
                AbandonedBy::Recipient(_, lost) => ReleasedBy::Gateway(*lost),
                _ => ReleasedBy::Holder(None, None),
            };
            // For how long the lease was held is not known here any more.
            let answer = store.release_as(*releaser, name, token, false).await;
            answer.map(|outcome| {
                debug!(%name, ?outcome, "released for a caller or a stream that has gone");
                match outcome {
                    Release::Released(ended) => facts.released(name, token, ended, by),
                    Release::Lost(loss) if matches!(by, ReleasedBy::Holder(..)) => {
                        facts.gone(name, token, loss, None);
                    }
                    Release::Lost(_) => {}
                    Release::Adopted(_) => return true,
                }
                false
            })
        }
    };
    match goes_on {
        // A newer request under the idempotency key continues with the rest of the group.
        Ok(true) => Vec::new(),
        // No newer request needs the rest of the group, even if the lease had ended already: perhaps an earlier copy
        // of this command ended it.
        Ok(false) => entry.others(),
        Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {
            if matches!(by, AbandonedBy::Holder { until, .. } if *until <= Instant::now()) {
                return Vec::new();
            }
            // The caller that waits for the release does not wait until an outage ends.
            entry.lease.awaited = None;
            entry.due = Instant::now() + entry.retry_in;
            entry.retry_in = (entry.retry_in * 2).min(RETRY.1);
            vec![entry]
        }
        Err(error @ (StoreError::ForeignData { .. } | StoreError::FenceExhausted)) => {
            warn!(%name, %error, "an unclaimed lease is left to its TTL");
            entry.others()
        }
    }
}

// === impl ReaperEntry ===

impl ReaperEntry {
    /// Whether another command has ended this lease of a complete group, before the first command that releases it as
    /// undelivered. Another gateway may have answered the group again before that, so its caller may still hold the
    /// rest.
    fn may_have_been_answered(&self, outcome: GiveBack) -> bool {
        outcome == GiveBack::NothingHeld
            && self.lease.by == AbandonedBy::Attempt
            && self.lease.may_come_back
            && self.retry_in == RETRY.0
    }

    /// Makes entries that release the leases of the other locks of the group now.
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
        let (store, facts) = (engine.0.store.clone(), Arc::clone(&engine.0.facts));
        let mut task = ReaperTask::new(store, facts, Duration::ZERO);
        let lease = |by| AbandonedLease::new(name(), Token::random().hash(), by);
        let (releaser, until) = (Releaser::Bearer, Instant::now());
        let release = AbandonedBy::Holder { releaser, until };
        for _ in 0..BACKLOG / 2 {
            task.accept(lease(AbandonedBy::Attempt), 0);
        }
        for _ in 0..3 {
            task.accept(lease(release), 0);
            task.accept(lease(AbandonedBy::Attempt), 0);
            assert_eq!(task.overflowing, [false, true]);
            // Two queued releases have ended, which makes room for a moment.
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
