//! For how long most sentinels have named a master by an earlier word than one that was followed.

use std::sync::{Mutex, PoisonError};

use tokio::time::{Duration, Instant};

use crate::config::RedisNode;

/// Since when most sentinels name a server by an earlier word than one that was followed.
///
/// For a moment they do so in every failover: the one that leads it knows of the new master first, and tells
/// the others within two seconds. Believed at once, they would lead back to a master that still takes writes.
#[derive(Default)]
pub(super) struct EpochRegression(Mutex<Option<(RedisNode, Instant)>>);

/// After so long they do not learn any more: their state was made anew.
const MUST_PERSIST: Duration = Duration::from_secs(5);

// === impl EpochRegression ===

impl EpochRegression {
    /// They name this server; whether they have done so for long enough to be believed.
    pub(super) fn has_persisted(&self, node: &RedisNode) -> bool {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*since {
            Some((named, since)) if named == node => since.elapsed() >= MUST_PERSIST,
            _ => {
                *since = Some((node.clone(), Instant::now()));
                false
            }
        }
    }

    /// A later answer counts again.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_insists_for_long_enough_is_believed() {
        let epoch_regression = EpochRegression::default();
        let (one, other) = (RedisNode::new("h", 1), RedisNode::new("h", 2));
        assert!(!epoch_regression.has_persisted(&one));
        advance(MUST_PERSIST / 2).await;
        assert!(!epoch_regression.has_persisted(&one));
        // Of another one it is said anew, and so it is after a later word.
        assert!(!epoch_regression.has_persisted(&other));
        advance(MUST_PERSIST / 2).await;
        assert!(!epoch_regression.has_persisted(&one));
        advance(MUST_PERSIST).await;
        assert!(epoch_regression.has_persisted(&one));
        epoch_regression.clear();
        assert!(!epoch_regression.has_persisted(&one));
    }
}
