//! Those of this gateway who want to see how their place in the queue moves.
//!
//! A position is looked up now and then, for whoever watches it, and not when it changes: with every
//! hand-off all positions of a queue change at once.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::lock::{LockName, TokenHash};

/// Where an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// How many are queued before it.
    pub ahead: u64,
    /// How many are queued in all.
    pub waiters: u64,
}

/// The attempts whose position is watched. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PositionWatchers {
    watched: Arc<Mutex<BTreeMap<Key, WatchedAttempt>>>,
}

/// The bytes of an attempt's token hash, which say nothing about when it came.
type Key = [u8; 32];

#[derive(Debug)]
struct WatchedAttempt {
    name: LockName,
    news: watch::Sender<Option<Position>>,
}

/// Watches the position of one attempt; dropped, nobody looks it up any more.
#[derive(Debug)]
pub struct PositionWatcher {
    positions: PositionWatchers,
    key: Key,
    news: watch::Receiver<Option<Position>>,
}

// === impl PositionWatchers ===

impl PositionWatchers {
    /// Watches an attempt that stands in the queue.
    pub fn watch(&self, name: LockName, token: &TokenHash) -> PositionWatcher {
        let (news, receiver) = watch::channel(None);
        let key = *token.as_bytes();
        self.lock().insert(key, WatchedAttempt { name, news });
        PositionWatcher {
            positions: self.clone(),
            key,
            news: receiver,
        }
    }

    /// Tells where an attempt stands, if that is watched.
    pub fn publish(&self, token: &TokenHash, position: Position) {
        if let Some(watched) = self.lock().get(token.as_bytes()) {
            watched.news.send_replace(Some(position));
        }
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// At most so many of those that are watched, from behind `last` on and around: whoever goes on
    /// with the last of these comes by all of them.
    pub fn next_watched(
        &self,
        last: Option<&TokenHash>,
        most: usize,
    ) -> Vec<(LockName, TokenHash)> {
        let watched = self.lock();
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(*last.as_bytes()));
        let to = last.map_or(Bound::Unbounded, |last| Bound::Included(*last.as_bytes()));
        let behind = watched.range((from, Bound::Unbounded));
        let around = last.map(|_| watched.range((Bound::Unbounded, to)));
        let all = behind.chain(around.into_iter().flatten()).take(most);
        all.map(|(key, watched)| (watched.name.clone(), TokenHash::from_bytes(*key)))
            .collect()
    }

    /// All that are watched, by the lock that they wait for.
    pub fn by_name(&self) -> HashMap<LockName, Vec<TokenHash>> {
        let mut by_name: HashMap<LockName, Vec<TokenHash>> = HashMap::new();
        for (key, watched) in &*self.lock() {
            let token = TokenHash::from_bytes(*key);
            by_name.entry(watched.name.clone()).or_default().push(token);
        }
        by_name
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, WatchedAttempt>> {
        self.watched.lock()
    }
}

// === impl PositionWatcher ===

impl PositionWatcher {
    /// Waits until the position is looked up again, whether it has changed or not. Safe to drop and
    /// call again.
    pub async fn updated(&mut self) -> Position {
        loop {
            if self.news.changed().await.is_err() {
                // Another attempt with this token: there is none.
                std::future::pending::<()>().await;
            }
            if let Some(position) = *self.news.borrow_and_update() {
                return position;
            }
        }
    }
}

impl Drop for PositionWatcher {
    fn drop(&mut self) {
        self.positions.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Token;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    #[tokio::test]
    async fn whoever_watches_is_told_the_last_position_and_nobody_else() {
        let positions = PositionWatchers::default();
        let (one, other) = (Token::random().hash(), Token::random().hash());
        let mut watcher = positions.watch(name("a"), &one);
        let at = |ahead| Position { ahead, waiters: 9 };
        for (token, position) in [(one, at(4)), (one, at(3)), (other, at(1))] {
            positions.publish(&token, position);
        }
        assert_eq!(watcher.updated().await, at(3));
        drop(watcher);
        assert!(positions.is_empty());
    }

    #[test]
    fn in_turns_all_are_come_by() {
        let positions = PositionWatchers::default();
        let watchers: Vec<_> = (0..10)
            .map(|_| positions.watch(name("a"), &Token::random().hash()))
            .collect();
        let mut seen = HashMap::new();
        let mut last = None;
        for _ in 0..10 {
            let turn = positions.next_watched(last.as_ref(), 3);
            assert_eq!(turn.len(), 3);
            last = turn.last().map(|(_, token)| *token);
            for (_, token) in turn {
                *seen.entry(token).or_insert(0) += 1;
            }
        }
        assert!(seen.len() == 10 && seen.values().all(|&times| times == 3));
        assert_eq!(positions.next_watched(last.as_ref(), 100).len(), 10);
        drop(watchers);
        assert!(positions.next_watched(last.as_ref(), 3).is_empty());
    }

    #[test]
    fn they_are_found_by_the_lock_that_they_wait_for() {
        let positions = PositionWatchers::default();
        let tokens: Vec<_> = (0..3).map(|_| Token::random().hash()).collect();
        let _watchers: Vec<_> = ["a", "b", "a"]
            .iter()
            .zip(&tokens)
            .map(|(lock, token)| positions.watch(name(lock), token))
            .collect();
        let by_name = positions.by_name();
        assert_eq!(by_name[&name("b")], [tokens[1]]);
        assert_eq!(by_name[&name("a")].len(), 2);
    }
}
