//! A try of which nothing is known yet: whoever drops it half-way has it withdrawn.

use crate::lock::{LockName, TokenHash};

use super::{nonce::Nonce, shared::Shared, sweeper::SweepTarget};

/// A try of which nothing is known yet. Dropped, it is withdrawn from every node.
pub(super) struct TryGuard<'a> {
    shared: &'a Shared,
    name: &'a LockName,
    token: &'a TokenHash,
    nonce: Nonce,
    armed: bool,
}

// === impl TryGuard ===

impl<'a> TryGuard<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        name: &'a LockName,
        token: &'a TokenHash,
        nonce: &Nonce,
        armed: bool,
    ) -> Self {
        Self {
            shared,
            name,
            token,
            nonce: nonce.clone(),
            armed,
        }
    }

    /// It is granted, or withdrawn.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for TryGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            for node in self.shared.quorum.nodes() {
                let swept = SweepTarget::Try(self.nonce.clone());
                let sweeper = &self.shared.sweeper;
                sweeper.sweep(node.index, self.name, self.token, swept);
            }
        }
    }
}
