//! Whether a lease reached its holder.

use std::mem;

use crate::lock::KeeperId;

use super::{
    reaper::{Abandoned, Abandoner, Reaper},
    unheard::Unheard,
};

/// Gives a lease back unless it is told that the lease was delivered.
#[derive(Debug)]
#[must_use = "dropping it gives the lease back"]
pub struct Delivery {
    pending: Pending,
    is_replay: bool,
}

#[derive(Debug)]
enum Pending {
    /// The answer has arrived.
    Nothing,
    /// The only answer there will be.
    Only(Reaper, Abandoned),
    /// The answer under an idempotency key: there may be others.
    OfMany(Reaper, Abandoned, Unheard),
}

// === impl Delivery ===

impl Delivery {
    /// Watches over a new lease.
    pub(super) fn of(reaper: Reaper, lease: Abandoned) -> Self {
        Self {
            pending: Pending::Only(reaper, lease),
            is_replay: false,
        }
    }

    /// Watches over one of the answers under an idempotency key, which `unheard` knows.
    pub(super) fn of_answer(
        reaper: Reaper,
        lease: Abandoned,
        unheard: Unheard,
        is_replay: bool,
    ) -> Self {
        Self {
            pending: Pending::OfMany(reaper, lease, unheard),
            is_replay,
        }
    }

    /// Whether the lease lived already, under the same idempotency key.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// The answer has left for the caller: the lease is theirs.
    pub fn delivered(mut self) {
        let pending = mem::replace(&mut self.pending, Pending::Nothing);
        if let Pending::OfMany(_, lease, unheard) = pending {
            unheard.heard(&lease.token);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        match mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Only(reaper, lease) => reaper.submit(lease),
            Pending::OfMany(reaper, lease, unheard) => {
                if let Some(keeper) = unheard.lost(&lease.token) {
                    let by = if keeper == KeeperId::of_attempt(&lease.token) {
                        Abandoner::KeyedAttempt
                    } else {
                        Abandoner::KeyedAnswer(keeper)
                    };
                    reaper.submit(Abandoned { by, ..lease });
                }
            }
        }
    }
}
