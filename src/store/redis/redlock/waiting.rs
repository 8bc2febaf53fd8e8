//! Acquire and leave on a quorum with a queue: the waiters at this gateway are served in order.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::{
    lock::{LockName, TokenHash},
    store::{
        StoreError,
        contract::{
            Acquisition, Attempt, Confirmation, Contention, Holder, Leaving, QueuePosition,
        },
        parking::{News, Position},
    },
};

use super::{
    acquire::{AttemptOutcome, TryGuard},
    calls::ReserveRequest,
    local_queue::{JoinOutcome, LeaveOutcome, LocalQueue, LocalWaiter},
    quorum::{Backoff, up_to},
    shared::Shared,
};

// === impl Shared ===

impl Shared {
    /// Acquires a lock that is free and has no waiters at this gateway. Otherwise the attempt joins the queue, if it
    /// may wait.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        attempt: &Attempt,
    ) -> Result<Acquisition, StoreError> {
        let local_queue = self.local_queues.get_or_create(&attempt.name);
        // If the lock has waiters, this attempt does not take the lock; and an attempt that only asks needs no turn.
        let turn = match (local_queue.len(Instant::now()), local_queue.turn.try_lock()) {
            (0, Ok(turn)) => Some(turn),
            // Another task of this gateway is trying. An attempt that may wait waits in the queue; other attempts wait
            // for the turn.
            (0, Err(_)) if attempt.wait.is_none() => Some(self.turn(&local_queue).await?),
            _ => None,
        };
        let request = ReserveRequest {
            take: turn.is_some() && local_queue.len(Instant::now()) == 0,
            wake_within: attempt.wait.map(|_| WAKES),
            ..ReserveRequest::default()
        };
        let keys = self.keys(&attempt.name);
        let holder = match self.attempt(&keys, attempt, request).await? {
            AttemptOutcome::Granted(lease, _) => return Ok(Acquisition::Granted(lease)),
            AttemptOutcome::Done(acquisition) => return Ok(acquisition),
            AttemptOutcome::Held(holder) => Some(holder),
            // A holder at a minority of the nodes may have released its lease long ago, so no holder is reported.
            AttemptOutcome::Split(_) | AttemptOutcome::Free => None,
        };
        let is_held = holder.is_some();
        let joined = self.join(&local_queue, attempt, holder);
        drop(turn);
        if !is_held && matches!(joined, Acquisition::Queued(_)) {
            // No node will send a message that the lock is free, and the contender of this queue may be in a pause.
            local_queue.woken.notify_one();
        }
        Ok(joined)
    }

    /// Takes a position in the queue for an attempt, or answers why the attempt has none.
    fn join(
        self: &Arc<Self>,
        local_queue: &Arc<LocalQueue>,
        attempt: &Attempt,
        holder: Option<Holder>,
    ) -> Acquisition {
        let Some(waiting) = attempt.wait else {
            return match local_queue.drop_keyed(attempt) {
                Err(_in_other_words) => Acquisition::IdempotencyMismatch,
                Ok(replaced) => {
                    self.mark_replaced(&attempt.name, replaced);
                    let waiters = local_queue.len(Instant::now());
                    Acquisition::Held(Contention { holder, waiters })
                }
            };
        };
        match local_queue.join(attempt, waiting, Instant::now()) {
            JoinOutcome::Full => Acquisition::QueueFull,
            JoinOutcome::Mismatch => Acquisition::IdempotencyMismatch,
            JoinOutcome::HasLeft => Acquisition::Replaced,
            JoinOutcome::Queued {
                ahead,
                waited,
                replaced,
                contend,
            } => {
                self.mark_replaced(&attempt.name, replaced);
                if contend {
                    self.start_contending(&attempt.name, local_queue);
                }
                let waiters = local_queue.len(Instant::now());
                let contention = Contention { holder, waiters };
                Acquisition::Queued(QueuePosition {
                    ahead,
                    waited,
                    contention,
                })
            }
        }
    }

    fn mark_replaced(&self, name: &LockName, replaced: Option<TokenHash>) {
        if let Some(token) = replaced {
            // A waiter that has left already does not need the news.
            let _delivered = self.parking.deliver(name, &token, News::Replaced);
        }
    }

    /// Takes an attempt out of the queue. If the attempt was granted the lock at that moment, the answer is its lease.
    pub(super) async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let (keys, local_queue) = (self.keys(name), self.local_queues.get_or_create(name));
        let mut left = local_queue.leave(token, keep_for, Instant::now(), false);
        if matches!(left, LeaveOutcome::BeingTried | LeaveOutcome::NotQueued) {
            // The lock may be granted to the attempt at this moment. The outcome is known when its try is over.
            let turn = self.turn(&local_queue).await;
            // The attempt leaves even if the turn was not free in time: no caller waits in this position any more.
            left = local_queue.leave(token, keep_for, Instant::now(), true);
            let _turn = turn?;
            let confirmed = match left {
                // Either the try for the attempt has failed, or the try's outcome is not known and the try is withdrawn
                // from every node.
                LeaveOutcome::Removed => self.confirm(name, token).await.ok(),
                LeaveOutcome::NotQueued => Some(self.confirm(name, token).await?),
                LeaveOutcome::Replaced | LeaveOutcome::BeingTried => None,
            };
            match confirmed {
                Some(Confirmation::Confirmed(lease)) => return Ok(Leaving::Granted(lease)),
                Some(Confirmation::Replaced) => return Ok(Leaving::Replaced),
                Some(Confirmation::Lost) | None => {}
            }
        }
        match left {
            LeaveOutcome::Replaced => Ok(Leaving::Replaced),
            LeaveOutcome::Removed | LeaveOutcome::NotQueued | LeaveOutcome::BeingTried => {
                Ok(Leaving::Left(self.contention(&keys, &local_queue).await))
            }
        }
    }

    /// Tells waiters that watch their position how many waiters are before them.
    pub(super) fn show_positions(&self) {
        let now = Instant::now();
        for (name, tokens) in self.parking.watched_by_name() {
            let Some(local_queue) = self.local_queues.existing(&name) else {
                continue;
            };
            let waiters = local_queue.len(now);
            for token in tokens {
                if let Some(ahead) = local_queue.ahead_of(&token, now) {
                    self.parking
                        .publish_position(&token, Position { ahead, waiters });
                }
            }
        }
    }
}

// === Contender ===
//
// Contends for a lock on behalf of the waiters in its queue at this gateway: one task for each lock, however many
// waiters there are.

/// When the contender for a lock tries again.
enum Pause {
    /// The contender tries again at once.
    None,
    /// The contender tries again after this time, when the lease of the holder ends.
    For(Duration),
    /// The contender tries again soon: several gateways have split the nodes among themselves, in a try that took this
    /// long.
    Split(Duration),
}

/// Upper bound of the contender's pause without a wake-up. The bound of each pause is random, and at least half of
/// this.
const PERIOD: Duration = Duration::from_secs(1);
/// For how long a node that refused a try is asked to wake this gateway when the lock becomes free.
pub(super) const WAKES: Duration = Duration::from_secs(5);
/// Longest random delay after a wake-up, so that gateways that are woken together do not try together.
const SCATTER: Duration = Duration::from_millis(3);
/// Longest random pause after a try that failed with an error, for example because too few nodes answered.
const AWAY: Duration = Duration::from_millis(400);
/// How much later than the end of a lease the contender tries again: a key is gone only when its instant has passed.
const MARGIN: Duration = Duration::from_millis(2);

// === impl Shared ===

impl Shared {
    /// Starts to contend for a lock that has waiters.
    pub(super) fn start_contending(
        self: &Arc<Self>,
        name: &LockName,
        local_queue: &Arc<LocalQueue>,
    ) {
        let (shared, name, local_queue) = (Arc::clone(self), name.clone(), Arc::clone(local_queue));
        self.start_background(async move { shared.contend(&name, &local_queue).await });
    }

    /// Contends for the lock on behalf of its waiters until their queue is empty.
    async fn contend(self: &Arc<Self>, name: &LockName, local_queue: &LocalQueue) {
        let mut splits = Backoff::new();
        while let Some(head) = local_queue.head(Instant::now()) {
            // The try that begins now sees every release until now, so an earlier wake-up is not needed any more.
            let _seen = local_queue.woken.notified().now_or_never();
            local_queue.begin();
            let tried = self.try_for(name, local_queue, &head).await;
            local_queue.end();
            let pause = match tried {
                Ok(Pause::Split(took)) => {
                    // No holder has the lock, so no release will wake this gateway. And if one message woke all
                    // gateways that have split the nodes, these gateways would try at the same time again.
                    sleep(splits.next(took).min(PERIOD)).await;
                    None
                }
                Ok(Pause::For(pause)) => {
                    splits = Backoff::new();
                    Some(pause)
                }
                Ok(Pause::None) => None,
                Err(error) => {
                    debug!(%name, %error, "the acquire is tried again for the waiters");
                    Some(up_to(AWAY))
                }
            };
            let Some(pause) = pause else { continue };
            let longest = PERIOD / 2 + up_to(PERIOD / 2);
            let pause = (pause + MARGIN).min(longest);
            tokio::select! {
                () = sleep(pause) => {}
                () = local_queue.woken.notified() => sleep(up_to(SCATTER)).await,
            }
        }
    }

    /// Tries once to get the lock for the head of the queue. Returns when to try again.
    async fn try_for(
        self: &Arc<Self>,
        name: &LockName,
        local_queue: &LocalQueue,
        head: &LocalWaiter,
    ) -> Result<Pause, StoreError> {
        let keys = self.keys(name);
        let left = head.until.saturating_duration_since(Instant::now());
        let request = ReserveRequest {
            take: true,
            undelivered_ttl: (!head.attended).then_some(left),
            wake_within: Some(WAKES),
            // The other waiters are not refused by a node, but must be woken when the head releases the lock through
            // another gateway.
            others_wait: local_queue.len(Instant::now()) > 1,
            granted: None,
        };
        let turn = self.turn(local_queue).await?;
        if !local_queue.try_for(head) {
            return Ok(Pause::None);
        }
        let began = Instant::now();
        let tried = self.attempt(&keys, &head.attempt, request).await?;
        match tried {
            AttemptOutcome::Granted(lease, nonce) => {
                let lasts = lease.expires_in;
                let token = &head.attempt.token;
                let granted = News::Granted(lease);
                let delivered = local_queue.take(head)
                    && (!head.attended || self.parking.deliver(name, token, granted));
                if delivered {
                    return Ok(Pause::For(lasts));
                }
                // No caller is answered with the lease from here on. If this future is dropped half-way, the sweeper
                // ends the lease.
                let guard = TryGuard {
                    shared: self,
                    keys: &keys,
                    token,
                    nonce: Some(nonce),
                };
                guard.withdraw(|_| true, |_| true).await;
                drop(turn);
                Ok(Pause::None)
            }
            AttemptOutcome::Held(holder) | AttemptOutcome::Split(Some(holder)) => {
                Ok(Pause::For(left_of(&holder)))
            }
            AttemptOutcome::Split(None) | AttemptOutcome::Free => Ok(Pause::Split(began.elapsed())),
            AttemptOutcome::Done(_) => {
                // The waiter asks again, and then gets its final answer from the store.
                if local_queue.take(head) && head.attended {
                    let token = &head.attempt.token;
                    let _delivered = self.parking.deliver(name, token, News::Forgotten);
                }
                Ok(Pause::None)
            }
        }
    }
}

fn left_of(holder: &Holder) -> Duration {
    match holder {
        Holder::Lease(lease) => lease.expires_in,
        Holder::Shared(_) => PERIOD,
        Holder::Foreign { expires_in, .. } => expires_in.unwrap_or(PERIOD),
    }
}
