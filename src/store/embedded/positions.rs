//! Tells those who watch it where they stand, on the state in memory.

use std::collections::HashSet;

use crate::{
    lock::{LockName, TokenHash},
    store::positions::Position,
};

use super::{moment::Moment, state::State};

// === impl State ===

impl State {
    /// Tells these attempts where they stand in the queue of a lock. Walks through it once, however
    /// many they are.
    pub(super) fn publish_positions(&self, name: &LockName, watched: Vec<TokenHash>, now: Moment) {
        let Some(queue) = self.queues().of(name) else {
            return;
        };
        let watched: HashSet<_> = watched.into_iter().collect();
        let waiters = self.queues().len(name, now);
        let queued = queue.iter().filter(|(_, queued)| queued.until > now);
        for (ahead, (_, queued)) in (0..).zip(queued) {
            let token = &queued.attempt.token;
            if watched.contains(token) {
                let position = Position { ahead, waiters };
                self.parking().positions().publish(token, position);
            }
        }
    }
}
