//! Whether a lease reached its holder.

use std::{fmt, sync::Arc};

use crate::lock::KeeperId;

use super::{
    reaper::{Abandoned, Abandoner},
    start::Shared,
};

/// Gives a lease back unless it is told that the lease was delivered.
#[must_use = "dropping it gives the lease back"]
pub struct Delivery {
    engine: Arc<Shared>,
    /// The lease, until the answer has arrived.
    pending: Option<Abandoned>,
    answer: Answered,
}

/// Which of the answers of a lease this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    /// The only one there will be.
    Once,
    /// The first one under an idempotency key: there may be others.
    First,
    /// One under an idempotency key under which the lease lived already.
    Again,
}

// === impl Delivery ===

impl Delivery {
    /// Watches over an answer. One of several must be known to the registry of leases.
    pub(super) fn of(engine: Arc<Shared>, lease: Abandoned, answer: Answered) -> Self {
        Self {
            engine,
            pending: Some(lease),
            answer,
        }
    }

    /// Whether the lease lived already, under the same idempotency key.
    pub fn is_replay(&self) -> bool {
        self.answer == Answered::Again
    }

    /// The answer has left for the caller: the lease is theirs.
    pub fn delivered(mut self) {
        if let Some(lease) = self.pending.take()
            && self.answer != Answered::Once
        {
            self.engine.leases.arrived(&lease.token);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(lease) = self.pending.take() else {
            return;
        };
        if self.answer == Answered::Once {
            return self.engine.reaper.submit(lease);
        }
        if let Some(keeper) = self.engine.leases.lost(&lease.token) {
            let by = if keeper == KeeperId::of_attempt(&lease.token) {
                Abandoner::KeyedAttempt
            } else {
                Abandoner::KeyedAnswer(keeper)
            };
            self.engine.reaper.submit(Abandoned { by, ..lease });
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("pending", &self.pending)
            .field("answer", &self.answer)
            .finish_non_exhaustive()
    }
}
