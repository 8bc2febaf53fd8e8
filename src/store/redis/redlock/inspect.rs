//! Inspect, over a quorum. Of those who wait it shows the ones at this gateway.

use tokio::time::Instant;

use crate::{
    lock::LockName,
    store::{StoreError, Unavailability, contract::Inspection},
};

use super::{shared::Shared, view::QuorumHolder};

// === impl Shared ===

impl Shared {
    pub(super) async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let holding = self.consistent_view(&self.keys(name)).await?.holding();
        if holding == QuorumHolder::Unknown {
            let why = "it is not known who holds the lock".to_owned();
            return Err(Unavailability::TooFewNodes(why).into());
        }
        let local_queue = self.local_queues.existing(name);
        let (queue, waiters) =
            local_queue.map_or_else(Default::default, |it| it.head_and_len(Instant::now()));
        Ok(Inspection {
            holder: holding.holder(),
            queue,
            waiters,
        })
    }
}
