//! For how long most sentinels have named a master by an earlier word than one that was followed.

use std::sync::{Mutex, PoisonError};

use tokio::time::{Duration, Instant};

use crate::config::RedisNode;

/// Since when most sentinels name a server by an earlier word than one that was followed.
///
/// For a moment they do so in every failover: the one that leads it knows of the new master first, and tells
/// the others within two seconds. Believed at once, they would lead back to a master that still takes writes.
#[derive(Default)]
pub(super) struct Insistence(Mutex<Option<(RedisNode, Instant)>>);

/// After so long they do not learn any more: their state was made anew.
const LASTING: Duration = Duration::from_secs(5);

// === impl Insistence ===

impl Insistence {
    /// They name this server; whether they have done so for long enough to be believed.
    pub(super) fn lasts(&self, node: &RedisNode) -> bool {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*since {
            Some((named, since)) if named == node => since.elapsed() >= LASTING,
            _ => {
                *since = Some((node.clone(), Instant::now()));
                false
            }
        }
    }

    /// A later word is heard again.
    pub(super) fn is_over(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_insists_for_long_enough_is_believed() {
        let insistence = Insistence::default();
        let (one, other) = (RedisNode::new("h", 1), RedisNode::new("h", 2));
        assert!(!insistence.lasts(&one));
        advance(LASTING / 2).await;
        assert!(!insistence.lasts(&one));
        // Of another one it is said anew, and so it is after a later word.
        assert!(!insistence.lasts(&other));
        advance(LASTING / 2).await;
        assert!(!insistence.lasts(&one));
        advance(LASTING).await;
        assert!(insistence.lasts(&one));
        insistence.is_over();
        assert!(!insistence.lasts(&one));
    }
}
