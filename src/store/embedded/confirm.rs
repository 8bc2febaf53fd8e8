//! Confirm, on the state in memory.

use crate::{
    lock::{LockName, TokenHash},
    store::contract::Confirmation,
};

use super::{moment::Moment, state::State};

// === impl State ===

impl State {
    /// Nothing is ever provisional here: a grant is the attempt's own from the beginning.
    pub(super) fn confirm(&self, name: &LockName, token: &TokenHash, now: Moment) -> Confirmation {
        match self.durable(name, now) {
            Some(lease) if lease.token == *token && lease.is_adopted() => Confirmation::Superseded,
            Some(lease) if lease.token == *token => Confirmation::Confirmed(lease.held(now)),
            _ => Confirmation::Lost,
        }
    }
}
