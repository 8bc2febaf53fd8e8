//! Release, on the state in memory.

use crate::{
    lock::{KeeperId, LockName, TokenHash},
    store::contract::Release,
};

use super::{moment::Moment, row_key::RowKey, state::State};

// === impl State ===

impl State {
    /// Ends the living lease of this token, if it is kept by whoever releases it as its keeper.
    pub(super) fn release(
        &mut self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> Release {
        let held = self.living(name, now);
        if let Some(lease) = held.filter(|lease| lease.token == *token) {
            if keeper.is_some_and(|keeper| !lease.is_kept_by(keeper)) {
                return Release::Adopted;
            }
            self.end(name, true, now);
            self.hand_off(name, now);
            Release::Released
        } else if self.remembers(&RowKey::released(name, token), now) {
            Release::Released
        } else {
            Release::Lost(self.loss(name, token, now))
        }
    }
}
