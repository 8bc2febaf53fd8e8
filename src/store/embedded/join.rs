//! Join the queue, or give a position in it up, on the state in memory.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::LockName,
    store::{
        contract::{Acquisition, Attempt, Contention, Holder, QueuePosition, Waiting},
        parking::News,
    },
};

use super::{moment::Moment, queued::Queued, state::State};

/// How much longer than its patience an attempt is remembered: it leaves by itself, and only one
/// that could not say so is ever forgotten.
const MARGIN: Duration = Duration::from_secs(5);

// === impl State ===

impl State {
    /// Queues an attempt for a lock that is held, behind everybody or at the position that its
    /// idempotency key has already.
    pub(super) fn join(&mut self, attempt: &Attempt, waiting: Waiting, now: Moment) -> Acquisition {
        let name = &attempt.name;
        let mut queued = Queued {
            attempt: Arc::new(attempt.clone()),
            since: now,
            until: now.after(waiting.max_wait).after(MARGIN),
            attended: true,
            superseded: None,
        };
        let Some((order, before)) = self.position_of(attempt) else {
            if self.queues().len(name, now) >= waiting.longest_queue {
                return Acquisition::QueueFull;
            }
            let order = self.next_position();
            self.put_queued(name, order, Some(queued));
            return Acquisition::Queued(self.queue_position(name, order, now));
        };
        if differs(attempt, &before.attempt) {
            return Acquisition::IdempotencyMismatch;
        }
        queued.since = before.since;
        if before.attended && before.attempt.token != attempt.token {
            queued.superseded = Some(before.attempt.token);
            self.announce(name, before.attempt.token, News::Superseded);
        }
        self.put_queued(name, order, Some(queued));
        Acquisition::Queued(self.queue_position(name, order, now))
    }

    /// Refuses an attempt that does not wait for a lock that is held. Whoever asked for it before under
    /// the same idempotency key does not want to wait any more.
    pub(super) fn refuse_held(&mut self, attempt: &Attempt, now: Moment) -> Acquisition {
        let name = &attempt.name;
        if attempt.idempotency.is_some()
            && let Some((order, before)) = self.position_of(attempt)
        {
            if differs(attempt, &before.attempt) {
                return Acquisition::IdempotencyMismatch;
            }
            if before.attended {
                self.announce(name, before.attempt.token, News::Superseded);
            }
            self.put_queued(name, order, None);
        }
        Acquisition::Held(self.contention(name, now))
    }

    /// What stands between an attempt and this lock.
    pub(super) fn contention(&self, name: &LockName, now: Moment) -> Contention {
        Contention {
            holder: self.held(name, now).map(Holder::Lease),
            waiters: self.queues().len(name, now),
        }
    }

    fn position_of(&self, attempt: &Attempt) -> Option<(u64, Queued)> {
        let queue = self.queues().of(&attempt.name)?;
        let (order, queued) = match &attempt.idempotency {
            Some(idempotency) => queue.under_key(&idempotency.hash),
            None => queue.of_token(&attempt.token),
        }?;
        Some((order, queued.clone()))
    }

    fn queue_position(&self, name: &LockName, order: u64, now: Moment) -> QueuePosition {
        let ahead = self
            .queues()
            .of(name)
            .map_or(0, |queue| queue.ahead_of(order));
        QueuePosition {
            ahead: u64::try_from(ahead).expect("a queue is shorter than 2^64"),
            contention: self.contention(name, now),
        }
    }
}

/// Whether two attempts under one idempotency key ask for different things.
fn differs(attempt: &Attempt, before: &Attempt) -> bool {
    let fingerprint = |attempt: &Attempt| attempt.idempotency.as_ref().map(|it| it.fingerprint);
    fingerprint(attempt) != fingerprint(before)
}
