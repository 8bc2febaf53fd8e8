//! Ends later what could not be ended at once: tries and leases at nodes that did not answer.
//!
//! Whatever is swept has no majority, so nobody relies on it; but it keeps a node from others. A node
//! that does not come back in time is left to the TTL.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tracing::warn;

use crate::lock::{KeeperId, LockName, TokenHash};

use super::scripts::Nonce;

/// Takes note of what is to be swept at each node.
#[derive(Debug)]
pub(super) struct Sweeper {
    nodes: Vec<mpsc::Sender<Sweep>>,
    lasts: Duration,
    /// What is about to be withdrawn.
    pub(super) pending_withdrawals: PendingWithdrawals,
}

/// What is to be swept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SweepTarget {
    /// This try.
    Try(Nonce),
    /// The whole attempt, which may have been delivered.
    Attempt,
    /// The lease, which was released by this keeper, or has no majority any more. What another has
    /// adopted stays.
    Lease(Option<KeeperId>),
}

/// One thing to sweep at one node.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
    pub(super) swept: SweepTarget,
    /// When it is left to the TTL.
    pub(super) until: Instant,
    /// Until it is swept.
    _pending_withdrawal: PendingWithdrawal,
}

/// How much may be waiting for one node; beyond it, it is left to the TTL.
const BACKLOG: usize = 16_384;
/// How much longer than the longest lease a node is asked: it may have got the command late.
const AFTER: Duration = Duration::from_mins(1);

// === impl Sweeper ===

impl Sweeper {
    /// A list for each node. What is put on it is swept by [`Shared::start_sweeping`].
    pub(super) fn new(nodes: usize, max_ttl: Duration) -> (Self, Vec<mpsc::Receiver<Sweep>>) {
        let (nodes, lists) = (0..nodes).map(|_| mpsc::channel(BACKLOG)).unzip();
        let sweeper = Self {
            nodes,
            lasts: max_ttl + AFTER,
            pending_withdrawals: PendingWithdrawals::default(),
        };
        (sweeper, lists)
    }

    pub(super) fn sweep(
        &self,
        node: usize,
        name: &LockName,
        token: &TokenHash,
        swept: SweepTarget,
    ) {
        let sweep = Sweep {
            name: name.clone(),
            token: *token,
            swept,
            until: Instant::now() + self.lasts,
            _pending_withdrawal: self.pending_withdrawals.begin(node, name, token),
        };
        if let Err(error) = self.nodes[node].try_send(sweep) {
            warn!(%error, "what is left of a lock at a node is left to its TTL");
        }
    }
}

// === Pending withdrawals ===
//
// Which nodes may have something of an attempt that is about to be withdrawn from them.

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
        *self.tries.lock().entry(of.clone()).or_default() += 1;
        PendingWithdrawal {
            pending_withdrawals: self.clone(),
            of,
        }
    }

    /// Whether what the node has of this attempt may be gone in a moment.
    pub(super) fn contains(&self, node: usize, name: &LockName, token: &TokenHash) -> bool {
        let tries = self.tries.lock();
        !tries.is_empty() && tries.contains_key(&(node, name.clone(), *token))
    }
}

// === impl PendingWithdrawal ===

impl Drop for PendingWithdrawal {
    fn drop(&mut self) {
        let mut tries = self.pending_withdrawals.tries.lock();
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
        assert!(pending_withdrawals.tries.lock().is_empty());
    }
}
