//! Hand-off: the lock passes to the head of the queue, on the state in memory.

use crate::{lock::LockName, store::parking::News};

use super::{lease::Lease, moment::Moment, notice::UndeliveredGrant, queued::Queued, state::State};

// === impl State ===

impl State {
    /// Grants a free lock to the first in its queue that still wants it.
    ///
    /// Everything that may have freed a lock ends with this, so that no lock is free while anybody
    /// is queued for it.
    pub(super) fn hand_off(&mut self, name: &LockName, now: Moment) {
        if self.is_held(name) {
            return;
        }
        while let Some(queued) = self.take_head(name) {
            let wanted = queued.until > now
                && (!queued.attended || self.parking().contains(&queued.attempt.token));
            if !wanted {
                self.announce_forgotten(name, &queued);
                continue;
            }
            let Ok(fence) = self.next_fence() else {
                // There will never be another: those who ask again are told so.
                self.announce_forgotten(name, &queued);
                continue;
            };
            let lease = Lease::grant(&queued.attempt, fence, now);
            let lease = if queued.attended {
                let news = News::Granted(lease.held(now));
                self.announce(name, queued.attempt.token, news);
                lease
            } else {
                lease.kept_until(queued.until)
            };
            self.put(name, Some(lease));
            return;
        }
    }

    /// Ends grants of which nobody could be told. As nobody has heard of them, nothing is left of
    /// them, not even a used idempotency key. One that was answered under its key meanwhile, or adopted,
    /// has somebody who has heard of it.
    pub(super) fn take_back(&mut self, orphans: &[UndeliveredGrant], now: Moment) {
        for UndeliveredGrant { name, token } in orphans {
            let orphaned = self.living(name, now).is_some_and(|lease| {
                lease.token == *token && !lease.was_replayed() && !lease.is_adopted()
            });
            if orphaned {
                self.put(name, None);
                self.hand_off(name, now);
            }
        }
    }

    /// Gives up a position whose time is over.
    pub(super) fn drop_position(&mut self, name: &LockName, order: u64) {
        if let Some(queued) = self.put_queued(name, order, None) {
            self.announce_forgotten(name, &queued);
        }
    }

    /// Gives up every position.
    pub(super) fn drop_all_positions(&mut self) {
        for name in self.queues().names() {
            while let Some(queued) = self.take_head(&name) {
                self.announce_forgotten(&name, &queued);
            }
        }
    }

    fn take_head(&mut self, name: &LockName) -> Option<Queued> {
        let head = self.queues().of(name)?.head()?;
        self.put_queued(name, head, None)
    }

    /// Whoever is still there must ask again.
    fn announce_forgotten(&mut self, name: &LockName, queued: &Queued) {
        if queued.attended {
            self.announce(name, queued.attempt.token, News::Forgotten);
        }
    }
}
