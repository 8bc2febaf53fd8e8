//! The queue of the waiters for a lock at this gateway. The queue exists in memory only.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, watch},
    time::Instant,
};

use crate::{
    lock::{LockName, TokenHash},
    store::contract::{Attempt, INSPECTED_WAITERS, Waiter, Waiting},
};

/// The waiters for one lock at this gateway, and the turn to try for the lock.
#[derive(Debug, Default)]
pub(super) struct LocalQueue {
    queue: Mutex<QueueState>,
    /// Held by the task that tries to take the lock, so that this gateway contends with other gateways and not with
    /// itself.
    pub(super) turn: AsyncMutex<()>,
    /// Held while a lease changes its recipient. Otherwise two recipients that adopt the lease at the same time could
    /// each have some of the nodes.
    pub(super) adopting: AsyncMutex<()>,
    /// Notified when the lock of this queue may be free.
    pub(super) woken: Notify,
    /// How many tries for the waiters of this queue have begun; `over` counts the tries that have ended.
    begun: AtomicU64,
    over: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiters: VecDeque<LocalWaiter>,
    /// Whether a task contends for the lock on behalf of the queue's waiters.
    contended: bool,
    /// The waiter for which a task is trying to get the lock. That waiter may have the lock before this gateway knows.
    tried: Option<TokenHash>,
}

/// Outcome of joining the queue of a lock at this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JoinOutcome {
    /// The attempt has a position: how many waiters are before it, for how long the position was taken, and the waiter
    /// from which the attempt took it over. `contend`: the caller must start to contend for the lock.
    Queued {
        ahead: u64,
        waited: Duration,
        replaced: Option<TokenHash>,
        contend: bool,
    },
    Full,
    /// The position under the idempotency key was taken by a request with another fingerprint.
    Mismatch,
    /// The attempt has left, and its position is kept for a new request with its idempotency key.
    HasLeft,
}

/// Outcome of leaving the queue of a lock at this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveOutcome {
    /// The attempt was in the queue. It was removed, or its position is kept.
    Removed,
    /// Another attempt has taken over the position of the attempt.
    Replaced,
    /// The attempt is not in the queue of the lock at this gateway.
    NotQueued,
    /// The attempt is still in the queue, because the lock is being tried for it. The task that has the turn knows the
    /// outcome.
    BeingTried,
}

/// How much longer than the wait of its attempt a position is remembered. A waiter normally leaves before this time.
const MARGIN: Duration = Duration::from_secs(5);

// === impl LocalQueue ===

impl LocalQueue {
    /// How many waiters are in the queue at this gateway.
    pub(super) fn len(&self, now: Instant) -> u64 {
        count(self.queue.lock().living(now).count())
    }

    /// The first waiters of the queue, and how many waiters there are.
    pub(super) fn head_and_len(&self, now: Instant) -> (Vec<Waiter>, u64) {
        let queue = self.queue.lock();
        let living = queue.living(now).take(INSPECTED_WAITERS);
        let head = living.map(|it| it.to_waiter(now)).collect();
        (head, count(queue.living(now).count()))
    }

    /// How many waiters are before the attempt with this token; `None` if the attempt is not in the queue.
    pub(super) fn ahead_of(&self, token: &TokenHash, now: Instant) -> Option<u64> {
        let queue = self.queue.lock();
        let ahead = queue.living(now).position(|it| it.attempt.token == *token);
        ahead.map(count)
    }

    /// Takes a position at the end of the queue, or the existing position under the idempotency key of the attempt.
    pub(super) fn join(&self, attempt: &Attempt, waiting: Waiting, now: Instant) -> JoinOutcome {
        let mut queue = self.queue.lock();
        let mut waiter = LocalWaiter {
            attempt: Arc::new(attempt.clone()),
            since: now,
            until: now + waiting.max_wait + MARGIN,
            attended: true,
            replaced: None,
        };
        queue.waiters.retain(|it| it.until > now);
        let same =
            |it: &LocalWaiter| it.attempt.token == attempt.token || it.is_under_key_of(attempt);
        let ahead = match queue.waiters.iter().position(same) {
            Some(at) => {
                let before = &mut queue.waiters[at];
                if !before.is_same_request(attempt) {
                    return JoinOutcome::Mismatch;
                }
                if !before.attended && before.attempt.token == attempt.token {
                    return JoinOutcome::HasLeft;
                }
                waiter.since = before.since;
                if before.attended && before.attempt.token != attempt.token {
                    waiter.replaced = Some(before.attempt.token);
                }
                *before = waiter.clone();
                at
            }
            None if count(queue.waiters.len()) >= waiting.longest_queue => {
                return JoinOutcome::Full;
            }
            None => {
                queue.waiters.push_back(waiter.clone());
                queue.waiters.len() - 1
            }
        };
        JoinOutcome::Queued {
            ahead: count(ahead),
            waited: now.saturating_duration_since(waiter.since),
            replaced: waiter.replaced,
            contend: !std::mem::replace(&mut queue.contended, true),
        }
    }

    /// Removes the position under the idempotency key of an attempt that does not wait. Returns the token of the
    /// position's waiter, if that waiter still waits. `Err`: the position was taken with another fingerprint.
    pub(super) fn drop_keyed(&self, attempt: &Attempt) -> Result<Option<TokenHash>, ()> {
        let mut queue = self.queue.lock();
        let Some(at) = queue
            .waiters
            .iter()
            .position(|it| it.is_under_key_of(attempt))
        else {
            return Ok(None);
        };
        if !queue.waiters[at].is_same_request(attempt) {
            return Err(());
        }
        let before = queue.waiters.remove(at);
        Ok(before.filter(|it| it.attended).map(|it| it.attempt.token))
    }

    /// Removes an attempt from the queue, or keeps its position for a later request with the same idempotency key.
    /// While the lock is being tried for the attempt, its position is not removed: only the task that has the turn
    /// knows the outcome.
    pub(super) fn leave(
        &self,
        token: &TokenHash,
        keep_for: Option<Duration>,
        now: Instant,
        has_turn: bool,
    ) -> LeaveOutcome {
        let mut queue = self.queue.lock();
        let is_tried = queue.tried == Some(*token) && !has_turn;
        let replaced = queue.waiters.iter().any(|it| it.replaced == Some(*token));
        let mut places = queue.waiters.iter();
        let Some(at) = places.position(|it| it.attempt.token == *token) else {
            return if replaced {
                LeaveOutcome::Replaced
            } else {
                LeaveOutcome::NotQueued
            };
        };
        match keep_for {
            Some(keep_for) if queue.waiters[at].attempt.idempotency.is_some() => {
                let kept = &mut queue.waiters[at];
                kept.until = now + keep_for;
                kept.attended = false;
            }
            _ if is_tried => return LeaveOutcome::BeingTried,
            _ => drop(queue.waiters.remove(at)),
        }
        LeaveOutcome::Removed
    }

    /// The first waiter of the queue, which may be granted the lock. `None`: the queue is empty, and its contender
    /// ends.
    pub(super) fn head(&self, now: Instant) -> Option<LocalWaiter> {
        let mut queue = self.queue.lock();
        queue.waiters.retain(|it| it.until > now);
        let head = queue.waiters.front().cloned();
        queue.contended = head.is_some();
        head
    }

    /// Records that the task that has the turn tries to get the lock for the head of the queue; `false`: the head has
    /// left or changed.
    pub(super) fn try_for(&self, head: &LocalWaiter) -> bool {
        let mut queue = self.queue.lock();
        let is_there = queue.is_head(head);
        queue.tried = is_there.then_some(head.attempt.token);
        is_there
    }

    /// Removes the head from the queue, if the head has not changed.
    pub(super) fn take(&self, head: &LocalWaiter) -> bool {
        let mut queue = self.queue.lock();
        let is_there = queue.is_head(head);
        if is_there {
            queue.waiters.pop_front();
        }
        is_there
    }

    /// Records that a try for the waiters of this queue begins.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Records that the try for the waiters of this queue is over.
    pub(super) fn end(&self) {
        self.queue.lock().tried = None;
        self.over.send_modify(|over| *over += 1);
    }

    /// Wakes the contender of this queue, and returns when a try that began after this call is over.
    pub(super) async fn tried(&self) {
        let begun = self.begun.load(Ordering::SeqCst);
        self.woken.notify_one();
        let mut over = self.over.subscribe();
        // The wait cannot fail: the queue, which has the sender, lives as long as this call.
        drop(over.wait_for(|over| *over > begun).await);
    }
}

// === impl QueueState ===

impl QueueState {
    fn living(&self, now: Instant) -> impl Iterator<Item = &LocalWaiter> {
        self.waiters.iter().filter(move |it| it.until > now)
    }

    fn is_head(&self, head: &LocalWaiter) -> bool {
        self.waiters.front().is_some_and(|it| {
            it.attempt.token == head.attempt.token && it.attended == head.attended
        })
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).expect("a queue is shorter than 2^64")
}

// === Local queues ===
//
// The queues of all locks at this gateway.

/// The queues of the locks that are in use at this gateway.
#[derive(Debug, Default)]
pub(super) struct LocalQueues {
    table: Mutex<QueueTable>,
}

#[derive(Debug, Default)]
struct QueueTable {
    by_name: HashMap<LockName, Weak<LocalQueue>>,
    /// How many queues there may be before unused queues are removed.
    most: usize,
}

/// With fewer queues than this, unused queues are not searched for.
const MIN_QUEUES_TO_SWEEP: usize = 1_024;

// === impl LocalQueues ===

impl LocalQueues {
    /// The queue of a lock, which exists as long as a caller has a handle to it.
    pub(super) fn get_or_create(&self, name: &LockName) -> Arc<LocalQueue> {
        let mut table = self.table.lock();
        if let Some(local_queue) = table.by_name.get(name).and_then(Weak::upgrade) {
            return local_queue;
        }
        if table.by_name.len() >= table.most.max(MIN_QUEUES_TO_SWEEP) {
            table
                .by_name
                .retain(|_, local_queue| local_queue.strong_count() > 0);
            table.most = 2 * table.by_name.len();
        }
        let local_queue = Arc::new(LocalQueue::default());
        table
            .by_name
            .insert(name.clone(), Arc::downgrade(&local_queue));
        local_queue
    }

    /// The queue of a lock, if it is in use already.
    pub(super) fn existing(&self, name: &LockName) -> Option<Arc<LocalQueue>> {
        self.table.lock().by_name.get(name).and_then(Weak::upgrade)
    }

    /// Wakes the first waiter of this gateway for a lock, the only one that asks the nodes, because the lock may be
    /// free now.
    pub(super) fn notify(&self, name: &LockName) {
        if let Some(local_queue) = self.existing(name) {
            local_queue.woken.notify_one();
        }
    }
}

// === Local waiter ===
//
// A waiter in the queue of a lock.

/// A waiter in the queue of a lock at this gateway.
#[derive(Debug, Clone)]
pub(super) struct LocalWaiter {
    pub(super) attempt: Arc<Attempt>,
    /// Time at which the position was taken first, perhaps by an earlier attempt with the same idempotency key.
    pub(super) since: Instant,
    /// Time at which the position is removed unless the waiter leaves or is granted the lock before.
    pub(super) until: Instant,
    /// Whether a caller waits for the outcome. If not, the position is kept for a later request with the same
    /// idempotency key.
    pub(super) attended: bool,
    /// The waiter that had this position before the present waiter, if that waiter was still waiting, perhaps about to
    /// leave.
    pub(super) replaced: Option<TokenHash>,
}

// === impl LocalWaiter ===

impl LocalWaiter {
    /// The waiter as the answer to an inspect shows it.
    pub(super) fn to_waiter(&self, now: Instant) -> Waiter {
        Waiter {
            owner: self.attempt.terms.said.owner.clone(),
            metadata: self.attempt.terms.said.metadata.clone(),
            sharing: self.attempt.terms.sharing,
            waited: now.saturating_duration_since(self.since),
        }
    }

    /// Whether the waiter has the same idempotency key as this attempt.
    pub(super) fn is_under_key_of(&self, attempt: &Attempt) -> bool {
        let key = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.hash);
        key(attempt).is_some() && key(attempt) == key(&self.attempt)
    }

    /// Whether the waiter and this attempt have the same request fingerprint.
    pub(super) fn is_same_request(&self, attempt: &Attempt) -> bool {
        let fingerprint = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.fingerprint);
        fingerprint(attempt) == fingerprint(&self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_kept_as_long_as_somebody_is_about_the_lock() {
        let local_queues = LocalQueues::default();
        let name = |n: usize| LockName::new(&format!("lock:{n}")).unwrap();
        let kept = local_queues.get_or_create(&name(0));
        for n in 0..3 * MIN_QUEUES_TO_SWEEP {
            assert!(Arc::ptr_eq(&local_queues.get_or_create(&name(0)), &kept));
            drop(local_queues.get_or_create(&name(n)));
        }
        assert!(local_queues.table.lock().by_name.len() <= MIN_QUEUES_TO_SWEEP);
        drop(kept);
        assert!(local_queues.existing(&name(0)).is_none());
    }
}
