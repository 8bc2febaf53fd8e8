//! State and functions that all parts of the Redlock store use.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::MutexGuard,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    lifecycle::Lifecycle,
    lock::{LockName, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{BreakFeed, BrokenLease, Contention},
        parking::Parking,
    },
};

use super::{
    super::{
        SlotTags,
        client::token_hash,
        gateways::{Channels, NewsWanted},
        keys::{GatewayId, Keys},
    },
    local_queue::{LocalQueue, LocalQueues},
    quorum::{NodeReplies, Quorum},
    record::NodeHolder,
    sweeper::Sweeper,
};

/// How long a caller that frees a lock waits at most until the next waiter was tried. No promise depends on this wait.
const HAND_OFF_WITHIN: Duration = Duration::from_millis(100);

/// State that all parts of the Redlock store use.
pub(super) struct Shared {
    pub(super) quorum: Quorum,
    /// Id of this gateway, by which other gateways know it.
    pub(super) id: GatewayId,
    pub(super) channels: Channels,
    pub(super) news_wanted: Arc<NewsWanted>,
    pub(super) parking: Parking,
    pub(super) breaks: BreakFeed,
    pub(super) tags: Arc<SlotTags>,
    pub(super) local_queues: LocalQueues,
    pub(super) sweeper: Sweeper,
    /// How long a caller may wait for an answer of the store.
    pub(super) deadline: Duration,
    pub(super) lifecycle: Lifecycle,
    /// Cancelled to stop the background tasks of the store.
    pub(super) closing: CancellationToken,
}

// === impl Shared ===

impl Shared {
    pub(super) fn keys(&self, name: &LockName) -> Keys {
        Keys::for_lock(name, &self.tags, &self.id)
    }

    /// Waits for the turn to try for a lock at this gateway.
    pub(super) async fn turn<'a>(
        &self,
        local_queue: &'a LocalQueue,
    ) -> Result<MutexGuard<'a, ()>, Unavailability> {
        let turn = timeout(self.deadline, local_queue.turn.lock()).await;
        turn.map_err(|_elapsed| Unavailability::Overloaded)
    }

    /// After a command of this gateway has freed a lock, waits until the lock was tried for the next waiter of this
    /// gateway. That waiter then has the lock when the command is answered, unless another gateway comes first.
    pub(super) async fn hand_off(&self, name: &LockName) {
        if let Some(local_queue) = self.local_queues.existing(name)
            && local_queue.len(Instant::now()) > 0
        {
            drop(timeout(HAND_OFF_WITHIN, local_queue.tried()).await);
        }
    }

    /// Processes a message from a node: a lock became free, or a lease was broken there.
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
            _ => debug!("a message in an unknown format"),
        }
    }

    /// The error if no majority of the nodes has given the same answer. `partly`: at least one node has carried out the
    /// command.
    pub(super) fn unknown<T>(
        &self,
        answers: &NodeReplies<Result<T, StoreError>>,
        partly: bool,
    ) -> StoreError {
        let mut errors = answers.errors();
        let foreign = answers
            .errors()
            .find(|error| matches!(error, StoreError::ForeignData { .. }));
        let uncertain = errors.find(|error| matches!(error, StoreError::Indeterminate(_)));
        let answered = answers.count(Result::is_ok);
        match (foreign.or(uncertain), answers.errors().next()) {
            (Some(error), _) => error.clone(),
            (None, Some(_)) if !partly && answered < self.quorum.majority() => answers.too_few(),
            // Some nodes have carried out the command, some have not, and the other nodes do not answer.
            _ => Uncertainty::TimedOut.into(),
        }
    }

    /// Runs a task in the background, until the store is closed.
    pub(super) fn start_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let (stopped, closing) = (self.lifecycle.stopped(), self.closing.clone());
        self.lifecycle.spawn_background(async move {
            tokio::select! {
                () = task => {}
                () = stopped => {}
                () = closing.cancelled() => {}
            }
        });
    }

    /// The nodes from which a try of this attempt is being withdrawn. The reports of these nodes on the attempt cannot
    /// be relied on.
    pub(super) fn nodes_to_withdraw_from(&self, name: &LockName, token: &TokenHash) -> Vec<usize> {
        let withdrawals = &self.sweeper.pending_withdrawals;
        let nodes = self.quorum.nodes().iter().map(|node| node.index);
        nodes
            .filter(|node| withdrawals.contains(*node, name, token))
            .collect()
    }

    /// The holder of a lock and the number of waiters at this gateway, as far as they are known.
    pub(super) async fn contention(&self, keys: &Keys, local_queue: &LocalQueue) -> Contention {
        // The holder is only shown to people. So if the holder is not known, the answer to an attempt that leaves has
        // none.
        let view = self.view(keys, false).await.ok();
        Contention {
            holder: view
                .and_then(|view| view.holding().ok().flatten())
                .map(NodeHolder::holder),
            waiters: local_queue.len(Instant::now()),
        }
    }
}
