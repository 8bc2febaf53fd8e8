//! Release, on the state in memory.

use crate::{
    lock::{LockName, TokenHash},
    store::contract::Release,
};

use super::{moment::Moment, row_key::RowKey, state::State};

// === impl State ===

impl State {
    /// Ends the living lease of this token.
    pub(super) fn release(&mut self, name: &LockName, token: &TokenHash, now: Moment) -> Release {
        let held = self.living(name, now);
        if held.is_some_and(|lease| lease.token == *token) {
            self.end(name, true, now);
            self.hand_off(name, now);
            Release::Released
        } else if self.remembers(&RowKey::released(name, token), now) {
            Release::Released
        } else {
            Release::Lost(self.loss(name))
        }
    }
}
