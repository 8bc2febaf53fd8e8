//! What all parts of the store have in common.

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

    /// What is known where no majority has said the same. `partly`: some node has done it.
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
            // Some nodes have, some have not, and the others do not answer.
            _ => Uncertainty::TimedOut.into(),
        }
    }

    /// Goes on with a task by itself, until the store is closed.
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
            holder: view
                .and_then(|view| view.holding().ok().flatten())
                .map(NodeHolder::holder),
            waiters: local_queue.len(Instant::now()),
        }
    }
}
