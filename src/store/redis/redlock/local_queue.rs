//! The queue of those who wait for a lock at this gateway. It lives in memory only.

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

/// What this gateway does about one lock.
#[derive(Debug, Default)]
pub(super) struct LocalQueue {
    queue: Mutex<QueueState>,
    /// Held by whoever tries to take the lock, so that this gateway contends with others and not with
    /// itself.
    pub(super) turn: AsyncMutex<()>,
    /// Held while a lease changes its keeper: else two who adopt it together could each have some nodes.
    pub(super) adopting: AsyncMutex<()>,
    /// Told when the lock may be free.
    pub(super) woken: Notify,
    /// How many tries for those who stand here have begun, and how many are over.
    begun: AtomicU64,
    over: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiters: VecDeque<LocalWaiter>,
    /// Whether somebody tries to get the lock for them.
    contended: bool,
    /// For whom the lock is tried just now: it may have it before anybody here knows.
    tried: Option<TokenHash>,
}

/// What becomes of one that wants to join the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JoinOutcome {
    /// It stands there, with so many before it; how long the place does; whose place it has taken; and whether
    /// somebody must begin to contend for the lock.
    Queued {
        ahead: u64,
        waited: Duration,
        superseded: Option<TokenHash>,
        contend: bool,
    },
    Full,
    /// Its place was taken in other words.
    Mismatch,
    /// It has left, and its place is kept for whoever comes back.
    HasLeft,
}

/// What becomes of one that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaveOutcome {
    /// It stood there, and does not any more, or its place is kept.
    Removed,
    /// Another one has its place.
    Superseded,
    /// It does not stand there.
    NotQueued,
    /// It stands there still, because the lock is tried for it just now. Whoever has the turn knows what came
    /// of it.
    BeingTried,
}

/// How much longer than its wait a place is remembered: whoever has it leaves by itself.
const MARGIN: Duration = Duration::from_secs(5);

// === impl LocalQueue ===

impl LocalQueue {
    /// How many stand here.
    pub(super) fn len(&self, now: Instant) -> u64 {
        count(self.queue.lock().living(now).count())
    }

    /// The first of them and how many there are.
    pub(super) fn head_and_len(&self, now: Instant) -> (Vec<Waiter>, u64) {
        let queue = self.queue.lock();
        let living = queue.living(now).take(INSPECTED_WAITERS);
        let head = living.map(|it| it.to_waiter(now)).collect();
        (head, count(queue.living(now).count()))
    }

    /// Where each of these stands.
    pub(super) fn ahead_of(&self, token: &TokenHash, now: Instant) -> Option<u64> {
        let queue = self.queue.lock();
        let ahead = queue.living(now).position(|it| it.attempt.token == *token);
        ahead.map(count)
    }

    /// Takes a place behind everybody, or the one under its idempotency key.
    pub(super) fn join(&self, attempt: &Attempt, waiting: Waiting, now: Instant) -> JoinOutcome {
        let mut queue = self.queue.lock();
        let mut waiter = LocalWaiter {
            attempt: Arc::new(attempt.clone()),
            since: now,
            until: now + waiting.max_wait + MARGIN,
            attended: true,
            superseded: None,
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
                    waiter.superseded = Some(before.attempt.token);
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
            superseded: waiter.superseded,
            contend: !std::mem::replace(&mut queue.contended, true),
        }
    }

    /// One that does not wait gives the place up that was taken under its key. With whose it was, if that
    /// one waits; `Err`: it was taken in other words.
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

    /// Gives a place up, or has it kept for a request that asks again; unless the lock is tried for it just now, where
    /// it is not kept. What came of that is known to whoever has the turn.
    pub(super) fn leave(
        &self,
        token: &TokenHash,
        keep_for: Option<Duration>,
        now: Instant,
        has_turn: bool,
    ) -> LeaveOutcome {
        let mut queue = self.queue.lock();
        let is_tried = queue.tried == Some(*token) && !has_turn;
        let superseded = queue.waiters.iter().any(|it| it.superseded == Some(*token));
        let mut places = queue.waiters.iter();
        let Some(at) = places.position(|it| it.attempt.token == *token) else {
            return if superseded {
                LeaveOutcome::Superseded
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

    /// The first who may be granted the lock. `None`: nobody stands here, and nobody contends any more.
    pub(super) fn head(&self, now: Instant) -> Option<LocalWaiter> {
        let mut queue = self.queue.lock();
        queue.waiters.retain(|it| it.until > now);
        let head = queue.waiters.front().cloned();
        queue.contended = head.is_some();
        head
    }

    /// Whoever has the turn tries for the head from here on; `false`: it is not there any more as it was.
    pub(super) fn try_for(&self, head: &LocalWaiter) -> bool {
        let mut queue = self.queue.lock();
        let is_there = queue.is_head(head);
        queue.tried = is_there.then_some(head.attempt.token);
        is_there
    }

    /// Takes the head out, if it still is as it was.
    pub(super) fn take(&self, head: &LocalWaiter) -> bool {
        let mut queue = self.queue.lock();
        let is_there = queue.is_head(head);
        if is_there {
            queue.waiters.pop_front();
        }
        is_there
    }

    /// A try begins for those who stand here.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// The try is over.
    pub(super) fn end(&self) {
        self.queue.lock().tried = None;
        self.over.send_modify(|over| *over += 1);
    }

    /// Wakes whoever tries for those who stand here, and ends when a try that has begun since is over.
    pub(super) async fn tried(&self) {
        let begun = self.begun.load(Ordering::SeqCst);
        self.woken.notify_one();
        let mut over = self.over.subscribe();
        // The queue cannot go while it is asked.
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

/// The queues of the locks that are in use here.
#[derive(Debug, Default)]
pub(super) struct LocalQueues {
    table: Mutex<QueueTable>,
}

#[derive(Debug, Default)]
struct QueueTable {
    by_name: HashMap<LockName, Weak<LocalQueue>>,
    /// How many there may be before those are cleared away that are not in use any more.
    most: usize,
}

/// Fewer are not worth a look.
const FEW: usize = 1_024;

// === impl LocalQueues ===

impl LocalQueues {
    /// The queue of a lock. It is kept as long as somebody has it.
    pub(super) fn of(&self, name: &LockName) -> Arc<LocalQueue> {
        let mut table = self.table.lock();
        if let Some(local_queue) = table.by_name.get(name).and_then(Weak::upgrade) {
            return local_queue;
        }
        if table.by_name.len() >= table.most.max(FEW) {
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

    /// The queue of a lock that is in use already.
    pub(super) fn existing(&self, name: &LockName) -> Option<Arc<LocalQueue>> {
        self.table.lock().by_name.get(name).and_then(Weak::upgrade)
    }

    /// A lock may be free now.
    pub(super) fn notify(&self, name: &LockName) {
        if let Some(local_queue) = self.existing(name) {
            local_queue.woken.notify_one();
        }
    }
}

// === Local waiter ===
//
// One that stands in the queue of a lock.

/// One that stands in the queue of a lock at this gateway.
#[derive(Debug, Clone)]
pub(super) struct LocalWaiter {
    pub(super) attempt: Arc<Attempt>,
    /// When the place was first taken.
    pub(super) since: Instant,
    /// When the place is given up if nothing else happens.
    pub(super) until: Instant,
    /// Whether somebody waits for the news. If not, the place is kept for a request that asks again.
    pub(super) attended: bool,
    /// Whose place it was last, if that one was still waiting. It may have been about to leave.
    pub(super) superseded: Option<TokenHash>,
}

// === impl LocalWaiter ===

impl LocalWaiter {
    /// What an inspect shows of it.
    pub(super) fn to_waiter(&self, now: Instant) -> Waiter {
        Waiter {
            owner: self.attempt.owner.clone(),
            sharing: self.attempt.sharing,
            waited: now.saturating_duration_since(self.since),
        }
    }

    /// Whether it stands under the idempotency key of this attempt.
    pub(super) fn is_under_key_of(&self, attempt: &Attempt) -> bool {
        let key = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.hash);
        key(attempt).is_some() && key(attempt) == key(&self.attempt)
    }

    /// Whether another attempt under its key asks for something else.
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
        let kept = local_queues.of(&name(0));
        for n in 0..3 * FEW {
            assert!(Arc::ptr_eq(&local_queues.of(&name(0)), &kept));
            drop(local_queues.of(&name(n)));
        }
        assert!(local_queues.table.lock().by_name.len() <= FEW);
        drop(kept);
        assert!(local_queues.existing(&name(0)).is_none());
    }
}
