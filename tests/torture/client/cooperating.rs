//! Clients that acquire several locks as a group, and clients that request the release of a lock.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    process::GROUPED,
    turns::REST,
    worker::{Held, Worker},
};
use crate::history::{Mode, RecordedAnswer};

/// The longest wait of a try for several locks, in ms, and its TTL. What a refused group held must be released long
/// before this TTL ends.
const TRY: usize = 100;
const TTL_OF_TRY: u64 = 6_000;
/// For a client that does not obey release requests: the pause between its renewals, how long it stays, and its TTL.
const RENEWS: Duration = Duration::from_millis(250);
const STAYS: Duration = Duration::from_secs(7);
const TTL: u64 = 2_500;
/// How long a client leaves the lock to others before it requests the release, in ms, and how long it then waits.
const LETS: usize = 800;
const WAIT: u64 = 15_000;

// === impl Worker ===

impl Worker {
    /// A turn of a client with groups and with single locks. Turns that keep locks for long are rare, so that all
    /// clients are served soon.
    pub(super) async fn take_a_turn_with_several(&mut self, shares: bool) {
        let locks = self.choose_several(shares);
        match self.random.below(100) {
            0..10 => self.look(&locks[0]).await,
            10..12 => self.break_it(&locks[0]).await,
            12..20 => self.hang_up_waiting(&locks).await,
            20..22 => self.hang_up_at_once(&locks).await,
            22..25 => self.visit_under_a_key(&locks).await,
            25..50 => self.try_for(&locks).await,
            50..62 => self.visit_and_part(&locks).await,
            _ => self.visit(&locks).await,
        }
        self.rest(REST).await;
    }

    /// Chooses one lock, or several as a group: in any order, and often locks that other clients want as well. Clients
    /// that share choose a shared mode now and then, or mixed modes.
    fn choose_several(&mut self, shares: bool) -> Vec<String> {
        // A part of a refused group is not told its slot, so there is no limit.
        self.mode = if shares && self.random.below(3) > 0 {
            Mode::Shared { limit: None }
        } else {
            Mode::Exclusive
        };
        self.mixes = shares && self.random.below(2) == 0;
        let mut names = GROUPED.to_vec();
        let count = [1, 2, 2, 3, 4][self.random.below(5)];
        let chosen = (0..count).map(|_| {
            let at = self.random.below(names.len());
            names.swap_remove(at).to_owned()
        });
        chosen.collect()
    }

    /// Tries to acquire several locks with a long TTL and a short wait.
    async fn try_for(&mut self, locks: &[String]) {
        let wait_ms = u64::try_from(self.random.below(TRY)).expect("a short wait");
        if let Some(held) = self.acquire(locks, wait_ms, TTL_OF_TRY).await {
            self.release(&held).await;
        }
    }

    /// Acquires a group, and releases its locks one by one.
    async fn visit_and_part(&mut self, locks: &[String]) {
        let Some(held) = self.acquire(locks, WAIT, TTL).await else {
            return;
        };
        for it in held {
            self.release(&[it]).await;
        }
    }

    /// Keeps a lock for as long as it can, or releases it when its release is requested.
    pub(super) async fn keep(&mut self, lock: &str) {
        let obeys = self.random.below(2) == 0;
        let Some(held) = self.acquire(&[lock.to_owned()], WAIT, TTL).await else {
            return;
        };
        let until = Instant::now() + STAYS;
        while Instant::now() < until {
            sleep(RENEWS).await;
            match self.renew(&held).await.as_deref() {
                Some([RecordedAnswer::Lost]) => return,
                Some([RecordedAnswer::Renewed { asked_for, .. }]) if *asked_for && obeys => break,
                _ => {}
            }
        }
        self.release(&held).await;
    }

    /// Requests the release of a lock, and waits for the lock.
    pub(super) async fn demand(&mut self, lock: &str) {
        self.rest(LETS).await;
        let grace_ms = self.grace();
        self.break_after(lock, Some(grace_ms)).await;
        if let Some(held) = self.acquire(&[lock.to_owned()], WAIT, TTL).await {
            self.keep_past(grace_ms, &held).await;
        }
    }

    /// Keeps the new lease for longer than the request gave to the holder before: the request must not count for the
    /// new lease.
    async fn keep_past(&mut self, grace_ms: u64, held: &[Held]) {
        let until = Instant::now() + Duration::from_millis(grace_ms) + RENEWS;
        while Instant::now() < until {
            sleep(RENEWS).await;
            self.renew(held).await;
        }
        self.release(held).await;
    }
}
