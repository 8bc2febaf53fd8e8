//! Give-back, on the state in memory.

use crate::{
    lock::{LockName, TokenHash},
    store::contract::GiveBack,
};

use super::{moment::Moment, state::State};

// === impl State ===

impl State {
    /// Ends the grant of an attempt, or sees to it that there will be none.
    pub(super) fn give_back(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> GiveBack {
        match self.living(name, now) {
            Some(lease) if lease.token == *token => {
                let kept = lease.was_replayed() || lease.is_adopted();
                if kept {
                    return GiveBack::NothingHeld;
                }
                self.end(name, false, now);
                self.withdraw(name, token, now);
                self.hand_off(name, now);
                GiveBack::GivenBack
            }
            _ => {
                self.remove_waiter(name, token);
                self.withdraw(name, token, now);
                GiveBack::NothingHeld
            }
        }
    }
}
