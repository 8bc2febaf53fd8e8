//! Whether a lease reached its holder.

use super::reaper::{Abandoned, Reaper};

/// Gives a lease back unless it is told that the lease was delivered.
#[derive(Debug)]
#[must_use = "dropping it gives the lease back"]
pub struct Delivery {
    pending: Option<(Reaper, Abandoned)>,
}

// === impl Delivery ===

impl Delivery {
    /// Watches over a new lease.
    pub(super) fn of(reaper: Reaper, lease: Abandoned) -> Self {
        Self {
            pending: Some((reaper, lease)),
        }
    }

    /// A lease that was answered again under its idempotency key is never given back, so there is
    /// nothing to watch over.
    pub(super) fn of_replay() -> Self {
        Self { pending: None }
    }

    /// Whether the lease lived already, under the same idempotency key.
    pub fn is_replay(&self) -> bool {
        self.pending.is_none()
    }

    /// The answer has left for the caller: the lease is theirs.
    pub fn delivered(mut self) {
        self.pending = None;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some((reaper, lease)) = self.pending.take() {
            reaper.submit(lease);
        }
    }
}
