//! For how long most servers have reported an older epoch than the one that the gateway follows.

use parking_lot::Mutex;

use tokio::time::{Duration, Instant};

/// The answer with an older epoch that most servers give, and since when they give it.
pub(super) struct EpochRegression<T>(Mutex<Option<(T, Instant)>>);

// === impl EpochRegression ===

impl<T: Clone + PartialEq> EpochRegression<T> {
    /// Records that most servers give this answer now. Whether they have given it for `must_persist`.
    pub(super) fn has_persisted(&self, said: &T, must_persist: Duration) -> bool {
        let mut since = self.0.lock();
        match &*since {
            Some((before, since)) if before == said => since.elapsed() >= must_persist,
            _ => {
                *since = Some((said.clone(), Instant::now()));
                false
            }
        }
    }

    /// Records that no older epoch is reported any more.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}

impl<T> Default for EpochRegression<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::config::RedisNode;

    const MUST_PERSIST: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn who_insists_for_long_enough_is_believed() {
        let epoch_regression = EpochRegression::default();
        let (one, other) = (RedisNode::new("h", 1), RedisNode::new("h", 2));
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
        advance(MUST_PERSIST / 2).await;
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
        // The time starts again with each other answer, and after a newer epoch.
        assert!(!epoch_regression.has_persisted(&other, MUST_PERSIST));
        advance(MUST_PERSIST / 2).await;
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
        advance(MUST_PERSIST).await;
        assert!(epoch_regression.has_persisted(&one, MUST_PERSIST));
        epoch_regression.clear();
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
    }
}
