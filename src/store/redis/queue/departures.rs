//! Remembers attempts that have ended, for a server that takes over from the one on which they ended.
//!
//! Redis replicates after it has answered, and may write to its disk later, too. So the next master, or a server that was
//! started again, may still have the ticket of an attempt that has left, or a grant that was taken back. Without this, the
//! lock would be held there by an attempt that nobody waits for.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::lock::{LockName, TokenHash};

use super::timers::{BACKLOG, OrphanKind, OrphanedAttempt};

/// The attempts that ended lately through this gateway, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Departures(Mutex<VecDeque<(Instant, OrphanedAttempt)>>);

/// How many attempts are remembered, at most: all of them are given back together when another server takes over.
const MAX_REMEMBERED: usize = BACKLOG / 2;
/// How long an attempt is remembered: much longer than replicas and disks are behind. An older one is given back when the
/// lock is handed to it.
const REMEMBERED: Duration = Duration::from_mins(10);

// === impl Departures ===

impl Departures {
    /// Remembers an attempt that has ended, and what is to be ended of it on another server.
    pub(crate) fn add(&self, name: &LockName, token: TokenHash, kind: OrphanKind) {
        let attempt = OrphanedAttempt {
            name: name.clone(),
            token,
            kind,
        };
        let mut ended = self.0.lock();
        while ended.len() >= MAX_REMEMBERED
            || (ended.front()).is_some_and(|(at, _)| at.elapsed() >= REMEMBERED)
        {
            ended.pop_front();
        }
        ended.push_back((Instant::now(), attempt));
    }

    /// The remembered attempts for some of the locks.
    pub(crate) fn remembered(&self, concerned: impl Fn(&LockName) -> bool) -> Vec<OrphanedAttempt> {
        let ended = self.0.lock();
        let of_these = ended
            .iter()
            .filter(|(at, attempt)| at.elapsed() < REMEMBERED && concerned(&attempt.name));
        of_these.map(|(_, attempt)| attempt.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use crate::lock::Token;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_ends_are_remembered_for_a_while() {
        let departures = Departures::default();
        let name = |text: &str| LockName::new(text).unwrap();
        let place = OrphanKind::Departed(None, None);
        let add = |text| departures.add(&name(text), Token::random().hash(), place);
        let count = || departures.remembered(|_| true).len();
        add("a");
        advance(REMEMBERED / 2).await;
        add("b");
        assert_eq!(departures.remembered(|of| of.as_str() == "b").len(), 1);
        assert_eq!(count(), 2);
        advance(REMEMBERED / 2).await;
        assert_eq!(count(), 1);
        for _ in 0..=MAX_REMEMBERED {
            add("c");
        }
        assert_eq!(
            departures.remembered(|of| of.as_str() == "c").len(),
            MAX_REMEMBERED
        );
        assert_eq!(count(), MAX_REMEMBERED);
    }
}
