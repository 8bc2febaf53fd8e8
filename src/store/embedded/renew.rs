//! Renew, on the state in memory.

use crate::{
    lock::{LockName, TokenHash, Ttl},
    store::contract::{Renewal, Renewer},
};

use super::{moment::Moment, state::State};

// === impl State ===

impl State {
    /// Makes the living lease of this token last from now, at most to its hold limit.
    pub(super) fn renew(
        &mut self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
        now: Moment,
    ) -> Renewal {
        match self.living(name, now) {
            Some(lease) if lease.token == *token => {
                let mut lease = lease.renewed(ttl, now);
                match renewer {
                    Renewer::Keeper(keeper) if !lease.is_kept_by(keeper) => {
                        return Renewal::Adopted;
                    }
                    Renewer::Adopter(keeper) => lease = lease.adopted(keeper),
                    Renewer::Keeper(_) | Renewer::Bearer => {}
                }
                let held = lease.held(now);
                self.set(name, lease);
                Renewal::Renewed(held)
            }
            _ => Renewal::Lost(self.loss(name, token, now)),
        }
    }
}
