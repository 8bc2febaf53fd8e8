//! Whether a lease reached its holder.

use super::reaper::{Abandoned, Reaper};

/// Gives a lease back unless it is told that the lease was delivered.
#[derive(Debug)]
#[must_use = "dropping it gives the lease back"]
pub struct Delivery {
    pending: Option<(Reaper, Abandoned)>,
    is_replay: bool,
    /// Whether it would be the first answer of its lease, as far as the store knows.
    is_first: bool,
}

// === impl Delivery ===

impl Delivery {
    /// Watches over a new lease.
    pub(super) fn of(reaper: Reaper, lease: Abandoned) -> Self {
        reaper.expect(&lease);
        Self {
            pending: Some((reaper, lease)),
            is_replay: false,
            is_first: true,
        }
    }

    /// Watches over a lease that lived already under its idempotency key, and of which the store knows
    /// that nobody has heard.
    pub(super) fn of_collected(reaper: Reaper, lease: Abandoned) -> Self {
        let mut collected = Self::of(reaper, lease);
        collected.is_replay = true;
        collected
    }

    /// Watches over a lease that lived already under its idempotency key. Its caller may have heard of
    /// it before: it is given back only if it is known here that nobody has.
    pub(super) fn of_replay(reaper: Reaper, lease: Abandoned) -> Self {
        Self {
            pending: Some((reaper, lease)),
            is_replay: true,
            is_first: false,
        }
    }

    /// Whether the lease lived already, under the same idempotency key.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// The answer has left for the caller: the lease is theirs.
    pub fn delivered(mut self) {
        if let Some((reaper, lease)) = self.pending.take() {
            reaper.heard(&lease);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some((reaper, lease)) = self.pending.take() {
            if self.is_first {
                reaper.submit_expected(lease);
            } else {
                reaper.submit_again(lease);
            }
        }
    }
}
