//! Clients that break the rules, and operators.

use std::time::Duration;

use tokio::time::sleep;

use super::worker::{Held, Request, Worker};
use crate::history::{Ask, Mode, RecordedAnswer};

/// A TTL that ends soon.
const SHORT: u64 = 200;
/// The time that a release request gives to the holder, in ms: the least time, and how much more it may be.
const GRACE: (u64, usize) = (200, 1_300);
/// Longer than the end of a lease may be late.
const LATER: Duration = Duration::from_millis(3_500);

// === impl Worker ===

impl Worker {
    /// Lets a lease expire, and uses it long after its end.
    pub(super) async fn let_it_lapse(&mut self, lock: &str) {
        let Some(held) = self.acquire(&[lock.to_owned()], 0, SHORT).await else {
            return;
        };
        sleep(LATER).await;
        if self.random.below(2) == 0 {
            self.renew(&held).await;
        }
        self.release(&held).await;
    }

    /// Releases or renews with a token that no lease has.
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

    /// Breaks a lease, at once or with a release request first.
    pub(super) async fn break_it(&mut self, lock: &str) {
        let grace_ms = match self.random.below(2) {
            0 => None,
            _ => Some(self.grace()),
        };
        self.break_after(lock, grace_ms).await;
    }

    /// The time that a release request gives to the holder.
    pub(super) fn grace(&mut self) -> u64 {
        let (least, more) = GRACE;
        least + u64::try_from(self.random.below(more)).expect("a short while")
    }

    /// Breaks a lease; with `grace_ms`, its holder gets this time to release it.
    pub(super) async fn break_after(&mut self, lock: &str, grace_ms: Option<u64>) {
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
            mode: Mode::default(),
            fence: holder.fence,
            slot: holder.slot,
            token: String::new(),
            ttl_ms: 0,
        };
        let ask = Ask::Break {
            fence: holder.fence,
            grace_ms,
        };
        self.ask(&Request::about(&broken, to, ask)).await;
    }

    fn letter(&mut self) -> char {
        const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
        char::from(LETTERS[self.random.below(LETTERS.len())])
    }
}
