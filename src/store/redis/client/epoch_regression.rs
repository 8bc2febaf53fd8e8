//! For how long an earlier word than one that was followed has been given.

use parking_lot::Mutex;

use tokio::time::{Duration, Instant};

/// Since when most of those who are asked say the same by an earlier word than one that was followed.
pub(super) struct EpochRegression<T>(Mutex<Option<(T, Instant)>>);

// === impl EpochRegression ===

impl<T: Clone + PartialEq> EpochRegression<T> {
    /// They say this; whether they have done so for long enough to be believed.
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

    /// A later answer counts again.
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
        // Of another one it is said anew, and so it is after a later word.
        assert!(!epoch_regression.has_persisted(&other, MUST_PERSIST));
        advance(MUST_PERSIST / 2).await;
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
        advance(MUST_PERSIST).await;
        assert!(epoch_regression.has_persisted(&one, MUST_PERSIST));
        epoch_regression.clear();
        assert!(!epoch_regression.has_persisted(&one, MUST_PERSIST));
    }
}
