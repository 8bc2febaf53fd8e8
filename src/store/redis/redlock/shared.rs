//! What all parts of the store have in common.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::{MutexGuard, mpsc},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    lifecycle::Lifecycle,
    lock::{KeeperId, LockName, TokenHash},
    store::{
        StoreError, Unavailability,
        contract::{BreakFeed, BrokenLease, Contention},
        parking::Parking,
    },
};

use super::{
    super::{
        SlotTags,
        client::{calls::token_hash, dispatch::Pauses},
        gateways::{Channels, NewsWanted},
        keys::{GatewayId, Keys},
    },
    calls::NodeRelease,
    claim::Nonce,
    local_queue::{LocalQueue, LocalQueues},
    pending_withdrawals::{PendingWithdrawal, PendingWithdrawals},
    quorum::Quorum,
};

/// For how long whoever frees a lock waits for the next at most. It is a courtesy.
const HAND_OFF_WITHIN: Duration = Duration::from_millis(100);

/// What all parts of the store have in common.
pub(super) struct Shared {
    pub(super) quorum: Quorum,
    /// This gateway, as others know it.
    pub(super) id: GatewayId,
    pub(super) channels: Channels,
    pub(super) news_wanted: Arc<NewsWanted>,
    pub(super) parking: Parking,
    pub(super) breaks: BreakFeed,
    pub(super) tags: Arc<SlotTags>,
    pub(super) local_queues: LocalQueues,
    pub(super) sweeper: Sweeper,
    /// How long a caller may wait for an answer.
    pub(super) deadline: Duration,
    pub(super) lifecycle: Lifecycle,
    /// Ends what goes on by itself.
    pub(super) closing: CancellationToken,
}

// === impl Shared ===

impl Shared {
    pub(super) fn keys(&self, name: &LockName) -> Keys {
        Keys::of(name, &self.tags, &self.id)
    }

    /// The turn to try for a lock at this gateway.
    pub(super) async fn turn<'a>(
        &self,
        local_queue: &'a LocalQueue,
    ) -> Result<MutexGuard<'a, ()>, Unavailability> {
        let turn = timeout(self.deadline, local_queue.turn.lock()).await;
        turn.map_err(|_elapsed| Unavailability::Overloaded)
    }

    /// A lock has become free by what was done here: whoever is next in the queue here has it by the time
    /// that this is answered, unless another gateway comes first.
    pub(super) async fn hand_off(&self, name: &LockName) {
        if let Some(local_queue) = self.local_queues.existing(name)
            && local_queue.len(Instant::now()) > 0
        {
            drop(timeout(HAND_OFF_WITHIN, local_queue.tried()).await);
        }
    }

    /// Takes in a message of a node: that it has freed a lock, or that a lease was broken there.
    pub(super) fn ingest_message(&self, message: &str) {
        let words: Vec<_> = message.split(' ').collect();
        match words[..] {
            ["free", name] => {
                if let Ok(name) = LockName::new(name) {
                    self.local_queues.notify(&name);
                }
            }
            ["broken", token, name, ..] => {
                if let (Some(token), Ok(name)) = (token_hash(token), LockName::new(name)) {
                    self.breaks.publish(BrokenLease { name, token });
                }
            }
            _ => debug!("a message that is none of ours"),
        }
    }

    /// The nodes from which a try of this attempt is being withdrawn. What they have of it is nothing to rely on.
    pub(super) fn nodes_to_withdraw_from(&self, name: &LockName, token: &TokenHash) -> Vec<usize> {
        let withdrawals = &self.sweeper.pending_withdrawals;
        let nodes = self.quorum.nodes().iter().map(|node| node.index);
        nodes
            .filter(|node| withdrawals.contains(*node, name, token))
            .collect()
    }

    /// What stands between somebody and a lock, if nothing but the queue here is known.
    pub(super) async fn contention(&self, keys: &Keys, local_queue: &LocalQueue) -> Contention {
        // It is shown to people; who left has left although nobody knows it.
        let view = self.view(keys).await.ok();
        Contention {
            holder: view.and_then(|view| view.holding().holder()),
            waiters: local_queue.len(Instant::now()),
        }
    }
}

// === Sweeper ===
//
// Ends later what could not be ended at once: tries and leases at nodes that did not answer.
//
// Whatever is swept has no majority, so nobody relies on it; but it keeps a node from others. A node
// that does not come back in time is left to the TTL.

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
    name: LockName,
    token: TokenHash,
    swept: SweepTarget,
    /// When it is left to the TTL.
    until: Instant,
    /// Until it is swept.
    _pending_withdrawal: PendingWithdrawal,
}

/// How much may be waiting for one node; beyond it, it is left to the TTL.
const BACKLOG: usize = 16_384;
/// How many commands are under way at one node.
const TOGETHER: usize = 64;
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

// === impl Shared ===

impl Shared {
    pub(super) fn start_sweeping(
        self: &Arc<Self>,
        lists: Vec<mpsc::Receiver<Sweep>>,
        lifecycle: &Lifecycle,
    ) {
        for (node, list) in lists.into_iter().enumerate() {
            let (shared, stopped) = (Arc::clone(self), lifecycle.stopped());
            let closing = self.closing.clone();
            lifecycle.spawn_background(async move {
                tokio::select! {
                    () = shared.sweep_node(node, list) => {}
                    () = stopped => {}
                    () = closing.cancelled() => {}
                }
            });
        }
    }

    async fn sweep_node(&self, node: usize, mut list: mpsc::Receiver<Sweep>) {
        let mut sweeps = Vec::new();
        let mut pauses = Pauses::new();
        loop {
            if sweeps.is_empty() {
                pauses = Pauses::new();
                let Some(first) = list.recv().await else {
                    return;
                };
                sweeps.push(first);
            }
            while sweeps.len() < TOGETHER
                && let Ok(next) = list.try_recv()
            {
                sweeps.push(next);
            }
            let swept = join_all(sweeps.iter().map(|sweep| self.sweep_one(node, sweep))).await;
            let now = Instant::now();
            let mut outcomes = swept.into_iter();
            sweeps.retain(|sweep| match outcomes.next() {
                Some(Err(error)) if sweep.until > now => {
                    debug!(name = %sweep.name, %error, "to be swept again");
                    true
                }
                _ => false,
            });
            if !sweeps.is_empty() {
                sleep(pauses.next()).await;
            }
        }
    }

    async fn sweep_one(&self, node: usize, sweep: &Sweep) -> Result<(), StoreError> {
        let node = &self.quorum.nodes()[node];
        let keys: Keys = self.keys(&sweep.name);
        match &sweep.swept {
            SweepTarget::Try(nonce) => {
                let withdraw = node.withdraw(&keys, &sweep.token, Some(nonce));
                withdraw.await.map(drop)
            }
            SweepTarget::Attempt => node.withdraw(&keys, &sweep.token, None).await.map(drop),
            SweepTarget::Lease(keeper) => {
                match node.release(&keys, *keeper, &sweep.token).await? {
                    NodeRelease::Released => Ok(()),
                    // What of its acquire is still on its way takes nothing either.
                    NodeRelease::Adopted | NodeRelease::Broken { .. } | NodeRelease::Lost(_) => {
                        let withdraw = node.withdraw(&keys, &sweep.token, None);
                        withdraw.await.map(drop)
                    }
                }
            }
        }
    }
}
