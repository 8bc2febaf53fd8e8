//! Clients that do what they should not, and operators.

use std::time::Duration;

use tokio::time::sleep;

use super::worker::{Held, Request, Worker};
use crate::history::{Ask, RecordedAnswer};

/// A TTL that is over soon.
const SHORT: u64 = 200;
/// Longer than a lease may be late to end.
const LATER: Duration = Duration::from_millis(3_500);

// === impl Worker ===

impl Worker {
    /// Lets a lease lapse, and comes back for it when its time is long over.
    pub(super) async fn let_it_lapse(&mut self, lock: &str) {
        let Some(held) = self.acquire(lock, 0, SHORT).await else {
            return;
        };
        sleep(LATER).await;
        if self.random.below(2) == 0 {
            self.renew(&held).await;
        }
        self.release(&held).await;
    }

    /// Releases or renews with a token that nobody was given.
    pub(super) async fn forge(&mut self, lock: &str) {
        let to = self.any_gateway();
        // The last character has only four bits of the token.
        let made_up: String = (0..42).map(|_| self.letter()).chain(['A']).collect();
        let renews = self.random.below(2) == 0;
        let forged = Request {
            token: made_up,
            ..self.request(lock, to, Ask::Forge { renews })
        };
        self.ask(&forged).await;
    }

    /// Breaks the lease of somebody who holds the lock.
    pub(super) async fn break_it(&mut self, lock: &str) {
        let to = self.any_gateway();
        let looked = self.ask(&self.request(lock, to, Ask::Inspect)).await;
        let Some((RecordedAnswer::Shown { mut holders, .. }, _)) = looked else {
            return;
        };
        let Some(chosen) = self
            .random
            .below(holders.len().max(1))
            .checked_rem(holders.len())
        else {
            return;
        };
        let holder = holders.swap_remove(chosen);
        let broken = Held {
            errand: holder.owner,
            lock: lock.to_owned(),
            fence: holder.fence,
            slot: holder.slot,
            token: String::new(),
            ttl_ms: 0,
        };
        let ask = Ask::Break {
            fence: holder.fence,
        };
        self.ask(&Request::about(&broken, to, ask)).await;
    }

    fn letter(&mut self) -> char {
        const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
        char::from(LETTERS[self.random.below(LETTERS.len())])
    }
}
