//! Which nodes may have something of an attempt that is about to be withdrawn from them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::lock::{LockName, TokenHash};

/// How many tries of an attempt are being withdrawn from a node. What the node has of the attempt until
/// then is nothing to rely on, however much it looks like its lease.
///
/// Only the gateway that has made a try withdraws it, so this gateway knows of all.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingWithdrawals {
    tries: Arc<Mutex<HashMap<NodeAttempt, usize>>>,
}

/// An attempt at one node. With the name, because the attempts of a group have one token.
type NodeAttempt = (usize, LockName, TokenHash);

/// One try at one node, for as long as this lives.
#[derive(Debug)]
pub(super) struct PendingWithdrawal {
    pending_withdrawals: PendingWithdrawals,
    of: NodeAttempt,
}

// === impl PendingWithdrawals ===

impl PendingWithdrawals {
    /// A try of this attempt is being withdrawn from the node.
    pub(super) fn begin(
        &self,
        node: usize,
        name: &LockName,
        token: &TokenHash,
    ) -> PendingWithdrawal {
        let of = (node, name.clone(), *token);
        *self.tries().entry(of.clone()).or_default() += 1;
        PendingWithdrawal {
            pending_withdrawals: self.clone(),
            of,
        }
    }

    /// Whether what the node has of this attempt may be gone in a moment.
    pub(super) fn contains(&self, node: usize, name: &LockName, token: &TokenHash) -> bool {
        let tries = self.tries();
        !tries.is_empty() && tries.contains_key(&(node, name.clone(), *token))
    }

    fn tries(&self) -> MutexGuard<'_, HashMap<NodeAttempt, usize>> {
        self.tries.lock()
    }
}

// === impl PendingWithdrawal ===

impl Drop for PendingWithdrawal {
    fn drop(&mut self) {
        let mut tries = self.pending_withdrawals.tries();
        if let Some(count) = tries.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                tries.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Token;

    #[test]
    fn lasts_until_the_last_try_is_withdrawn() {
        let name = LockName::new("job").unwrap();
        let (pending_withdrawals, token) = (PendingWithdrawals::default(), Token::random().hash());
        let first = pending_withdrawals.begin(1, &name, &token);
        let second = pending_withdrawals.begin(1, &name, &token);
        assert!(
            pending_withdrawals.contains(1, &name, &token)
                && !pending_withdrawals.contains(0, &name, &token)
        );
        assert!(!pending_withdrawals.contains(1, &name, &Token::random().hash()));
        let other = LockName::new("other").unwrap();
        assert!(
            !pending_withdrawals.contains(1, &other, &token),
            "a group has one token for all its names"
        );
        drop(first);
        assert!(pending_withdrawals.contains(1, &name, &token));
        drop(second);
        assert!(!pending_withdrawals.contains(1, &name, &token));
        assert!(pending_withdrawals.tries().is_empty());
    }
}
