//! Clients whose requests have an order: mostly the time, now and then an older or a later one, or none.

use super::{
    process::ORDERED,
    turns::REST,
    worker::{Held, Request, Worker},
};
use crate::{history::Ask, journal};

/// How far an order may differ from the time in µs: of requests that others may overtake in the queue, and of others.
const NEARLY: usize = 60_000;
const FAR: usize = 1_500_000;
const TTL: u64 = 2_500;
/// Longer than a lease may stay of whose grant its client was not told.
const WAIT: u64 = 15_000;
/// The TTL of a client that hangs up. If its answer was written in the same instant, its lease keeps the lock so long
/// without being seen: less than a hand-off may take.
const UNSEEN: u64 = 4_000;

// === impl Worker ===

impl Worker {
    /// A turn of a client with locks that remember the highest order for which they were granted.
    pub(super) async fn take_a_turn_with_orders(&mut self) {
        let lock = [ORDERED[self.random.below(ORDERED.len())].to_owned()];
        self.order = self.choose_order();
        match self.random.below(100) {
            0..15 => self.hang_up_and_go_back().await,
            15..25 => self.hang_up_waiting(&lock).await,
            25..30 => self.hang_up_at_once(&lock).await,
            30..35 => self.look(&lock[0]).await,
            35..37 => self.break_it(&lock[0]).await,
            37..42 => self.visit_under_a_key(&lock).await,
            42..47 => {
                let own = format!("{}:{}:{}", ORDERED[1], self.name, self.number);
                self.visit_under_a_key(&[own]).await;
            }
            47..60 => self.visit_impatiently(&lock[0]).await,
            _ => self.visit(&lock).await,
        }
        self.rest(REST).await;
    }

    /// The time in µs, hardly ever the same for two requests; somewhat earlier or later now and then, or nothing.
    fn choose_order(&mut self) -> Option<u64> {
        let now = journal::now() / 1_000;
        let mut below = |most| u64::try_from(self.random.below(most)).expect("a short time");
        match below(10) {
            0..3 => None,
            3 | 4 => Some(now.saturating_sub(below(NEARLY))),
            5 => Some(now.saturating_sub(below(FAR))),
            6 => Some(now + below(NEARLY)),
            _ => Some(now),
        }
    }

    /// Hangs up on a request for a lock of its own, and asks with a lower order while it holds the lock without one: the
    /// higher order must not count, unless this client was told of the first grant.
    async fn hang_up_and_go_back(&mut self) {
        let lock = [format!("{}:{}:{}", ORDERED[0], self.name, self.number)];
        let now = journal::now() / 1_000;
        let ask = Ask::Acquire {
            ttl_ms: UNSEEN,
            wait_ms: UNSEEN,
            keyed: false,
            mode: self.mode,
            min_hold_ms: 0,
            reserve: None,
            order: Some(now + FAR as u64),
        };
        let to = self.any_gateway();
        let parts = self.requests(&lock, to, &ask);
        if let Some(held) = self.send_and_hang_up(&parts).await {
            self.release(&held).await;
        }
        // Each of these requests is an errand of its own.
        (self.turn, self.order) = (self.turn + 1, None);
        let Some(held) = self.acquire(&lock, WAIT, TTL).await else {
            return;
        };
        (self.turn, self.order) = (self.turn + 1, Some(now));
        if let Some(both) = self.acquire(&lock, 0, TTL).await {
            self.release(&both).await;
        }
        self.release(&held).await;
    }

    /// If a lease has an order, sets the order of its lock somewhat higher. Answers whether it has one.
    pub(super) async fn raise_order(&mut self, held: &Held) -> bool {
        let Some(from) = self.order else { return false };
        let more = u64::try_from(self.random.below(NEARLY)).expect("a short time");
        let (to, fence) = (self.any_gateway(), held.fence);
        let ask = Ask::RaiseOrder {
            fence,
            from,
            to: from + more,
        };
        self.ask(&Request::about(held, to, ask)).await;
        true
    }
}
