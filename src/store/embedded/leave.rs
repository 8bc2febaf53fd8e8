//! Leave the queue, on the state in memory.

use std::time::Duration;

use crate::{
    lock::{LockName, TokenHash},
    store::contract::Leaving,
};

use super::{moment::Moment, queued::Queued, state::State};

// === impl State ===

impl State {
    /// Takes an attempt out of the queue, or keeps its place for a request that asks again.
    pub(super) fn leave(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
        now: Moment,
    ) -> Leaving {
        if let Some(lease) = self.living(name, now)
            && lease.token == *token
        {
            return if lease.is_adopted() {
                Leaving::Superseded
            } else {
                Leaving::Granted(lease.held(now))
            };
        }
        let position = self
            .queues()
            .of(name)
            .and_then(|queue| queue.of_token(token));
        if let Some((order, queued)) = position {
            if queued.attempt.token != *token {
                return Leaving::Superseded;
            }
            let keep_for = keep_for.filter(|_| queued.attempt.idempotency.is_some());
            let kept = keep_for.map(|keep_for| Queued {
                until: now.after(keep_for),
                attended: false,
                ..queued.clone()
            });
            self.put_queued(name, order, kept);
        }
        Leaving::Left(self.contention(name, now))
    }

    /// Takes an attempt out of the queue for good.
    pub(super) fn remove_waiter(&mut self, name: &LockName, token: &TokenHash) {
        let position = self
            .queues()
            .of(name)
            .and_then(|queue| queue.of_token(token));
        if let Some((order, queued)) = position
            && queued.attempt.token == *token
        {
            self.put_queued(name, order, None);
        }
    }
}
