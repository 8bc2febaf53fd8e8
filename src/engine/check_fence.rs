//! Check: says whether a lease with a fencing token holds its lock, for a resource that refuses former holders.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::store::{
    StoreError,
    contract::{FenceCheck, FenceQuery},
};

use super::{Engine, facts::Fact};

// === impl Engine ===

impl Engine {
    /// Says whether a lease with this fencing token holds the lock. If a larger fencing token was granted, a refusal is
    /// reported: without the check, two holders would have written. `by` is the mark of the caller.
    pub async fn check_fence(
        &self,
        query: &FenceQuery,
        by: Option<&Arc<str>>,
    ) -> Result<FenceCheck, StoreError> {
        let check = self.0.store.check_fence(query).await?;
        if self.0.checks.note(query, check, Instant::now()) {
            let FenceQuery { name, fence, .. } = query;
            let fact = Fact::StaleWriteRefused(*fence, by);
            self.0.facts.tell(name, None, fact);
        }
        Ok(check)
    }

    /// How long ago a lease ended that was granted or renewed here and whose time is over, as far as this gateway knows.
    pub fn lease_ended_ago(&self, query: &FenceQuery) -> Option<Duration> {
        let (mut ended, now) = (None, Instant::now());
        if self.0.checks.may_search(now) {
            self.0.leases.for_each(|(_, name), lease| {
                let is_it = lease.fence == query.fence && *name == query.name;
                ended = ended.or((is_it && lease.until <= now).then(|| now - lease.until));
            });
        }
        ended
    }
}
