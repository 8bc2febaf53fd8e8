//! Ends tries and leases at nodes that did not answer when a command should have ended them.
//!
//! A try or lease that is swept has no majority, so no caller relies on it; but it keeps its node from other attempts.
//! If the node does not return in time, the TTL ends it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tracing::warn;

use crate::lock::{LockName, RecipientId, TokenHash};

use super::scripts::Nonce;

/// The lists of tries and leases that must be ended later, one list for each node.
#[derive(Debug)]
pub(super) struct Sweeper {
    nodes: Vec<mpsc::Sender<Sweep>>,
    lasts: Duration,
    /// The tries that are about to be withdrawn from nodes.
    pub(super) pending_withdrawals: PendingWithdrawals,
}

/// The try, attempt or lease that a sweep ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SweepTarget {
    /// The try with this nonce, which was not granted.
    Try(Nonce),
    /// The whole attempt, whose lease may have been delivered.
    Attempt,
    /// The lease, which was released by this recipient, or has no majority any more. A lease that another recipient has
    /// adopted stays.
    Lease(Option<RecipientId>),
}

/// One try, attempt or lease to end at one node.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
    pub(super) swept: SweepTarget,
    /// Time after which the gateway gives the sweep up and the TTL ends the lease.
    pub(super) until: Instant,
    /// Marks the withdrawal as pending until the sweep is over.
    _pending_withdrawal: PendingWithdrawal,
}

/// How many sweeps may wait for one node. Further tries and leases at the node end with their TTL.
const BACKLOG: usize = 16_384;
/// How much longer than the longest TTL a sweep asks its node, because the node may have got the command late.
const AFTER: Duration = Duration::from_mins(1);

// === impl Sweeper ===

impl Sweeper {
    /// Creates the sweeper, and a list of sweeps for each node. [`Shared::start_sweeping`] runs the sweeps on the
    /// lists.
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
            warn!(%error, "the remains of a lock at a node are left to their TTL");
        }
    }
}

// === Pending withdrawals ===
//
// Records which nodes may have state of an attempt that is about to be withdrawn from them.

/// How many tries of an attempt are being withdrawn from a node. Until these withdrawals are over, the node's reports
/// on the attempt cannot be relied on, even if they look like a lease.
///
/// Only the gateway that has made a try withdraws it, so this gateway knows of every withdrawal.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingWithdrawals {
    tries: Arc<Mutex<HashMap<NodeAttempt, usize>>>,
}

/// An attempt at one node. The name of the lock is part of it, because the attempts of a group have one token.
type NodeAttempt = (usize, LockName, TokenHash);

/// Marks one try at one node as about to be withdrawn, for as long as this value lives.
#[derive(Debug)]
pub(super) struct PendingWithdrawal {
    pending_withdrawals: PendingWithdrawals,
    of: NodeAttempt,
}

// === impl PendingWithdrawals ===

impl PendingWithdrawals {
    /// Records that a try of this attempt is being withdrawn from the node.
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

    /// Whether a try of this attempt is being withdrawn from the node.
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
