//! What all parts of the store have in common.

use std::{sync::Arc, time::Duration};

use tokio::{sync::MutexGuard, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    lifecycle::Lifecycle,
    lock::LockName,
    store::{Unavailability, contract::Contention},
};

use super::{
    super::{SlotTags, gateway::RedisGateway, keys::Keys},
    local_queue::LocalQueue,
    local_queues::LocalQueues,
    quorum::Quorum,
    sweeper::Sweeper,
};

/// For how long whoever frees a lock waits for the next at most. It is a courtesy.
const HAND_OFF_WITHIN: Duration = Duration::from_millis(100);

/// What all parts of the store have in common.
pub(super) struct Shared {
    pub(super) quorum: Quorum,
    pub(super) gateway: Arc<RedisGateway>,
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
        Keys::of(name, &self.tags, &self.gateway.id)
    }

    /// The turn to try for a lock at this gateway.
    pub(super) async fn turn<'a>(
        &self,
        local_queue: &'a LocalQueue,
    ) -> Result<MutexGuard<'a, ()>, Unavailability> {
        let turn = timeout(self.deadline, local_queue.turn.lock()).await;
        turn.map_err(|_elapsed| Unavailability::Overloaded)
    }

    /// A lock has become free by what was done here: whoever is next in line here has it by the time
    /// that this is answered, unless another gateway comes first.
    pub(super) async fn hand_off(&self, name: &LockName) {
        if let Some(local_queue) = self.local_queues.existing(name)
            && local_queue.len(tokio::time::Instant::now()) > 0
        {
            drop(timeout(HAND_OFF_WITHIN, local_queue.tried()).await);
        }
    }

    /// What stands between somebody and a lock, if nobody knows more of it than the line here.
    pub(super) async fn contention(&self, keys: &Keys, local_queue: &LocalQueue) -> Contention {
        // It is shown to people; who left has left although nobody knows it.
        let view = self.view(keys).await.ok();
        Contention {
            holder: view.and_then(|view| view.holding().holder()),
            waiters: local_queue.len(tokio::time::Instant::now()),
        }
    }
}
