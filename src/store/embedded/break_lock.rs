//! Break, on the state in memory.

use crate::{
    lock::{BreakTarget, LockName, TokenHash},
    store::{
        breaks::Breaking,
        contract::{Holder, Loss},
    },
};

use super::{moment::Moment, row_key::RowKey, state::State};

// === impl State ===

impl State {
    /// Ends the living lease, if it is the one that was meant, and passes the lock on. Answers the
    /// token of a lease that was broken as well. No foreign client writes here.
    pub(super) fn break_lock(
        &mut self,
        name: &LockName,
        target: Option<BreakTarget>,
        now: Moment,
    ) -> (Breaking, Option<TokenHash>) {
        let Some(lease) = self.living(name, now) else {
            return (Breaking::NotHeld, None);
        };
        let (token, delivered) = (lease.token, !lease.is_undelivered());
        let holder = Holder::Lease(lease.held(now));
        if target.is_some_and(|target| target != BreakTarget::Lease(lease.fence)) {
            return (Breaking::HolderChanged(holder), None);
        }
        self.end(name, false, now);
        self.add_tombstone(&RowKey::broken(name, &token), now);
        if delivered {
            // A copy of its acquire that is still on its way must not take the lock again.
            self.withdraw(name, &token, now);
        }
        self.hand_off(name, now);
        (Breaking::Broken(holder), Some(token))
    }

    /// What a token that does not hold the lock is told.
    pub(super) fn loss(&self, name: &LockName, token: &TokenHash, now: Moment) -> Loss {
        let held = self.is_held(name);
        if self.remembers(&RowKey::broken(name, token), now) {
            return Loss::Broken { held };
        }
        if held {
            Loss::HeldByAnother
        } else {
            Loss::Free
        }
    }
}
