//! Inspect, over a quorum. Of those who wait it shows the ones at this gateway.

use tokio::time::Instant;

use crate::{
    lock::LockName,
    store::{StoreError, Unavailability, contract::Inspection},
};

use super::{shared::Shared, view::Holding};

// === impl Shared ===

impl Shared {
    pub(super) async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        let holding = self.known(&self.keys(name)).await?.holding();
        if holding == Holding::Unknown {
            let why = "it is not known who holds the lock".to_owned();
            return Err(Unavailability::TooFewNodes(why).into());
        }
        let line = self.lines.existing(name);
        let (queue, waiters) = line.map_or_else(Default::default, |it| it.shown(Instant::now()));
        Ok(Inspection {
            holder: holding.holder(),
            queue,
            waiters,
        })
    }
}
