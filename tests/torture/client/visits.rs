//! Visits: a client acquires a lock or a group, changes the resource, and releases.

use std::time::Duration;

use tokio::time::sleep;

use super::worker::{Held, Request, Worker};
use crate::history::{Ask, Mode, RecordedAnswer};

/// The longest time of a visit in ms. Leases of longer visits are renewed.
const STAY: usize = 25;
/// How long a lock is shared, in ms, if no other client comes to it.
const LONG_STAY: usize = 1_500;
/// The wait of a client for an exclusive lease there, in ms, and the pause before its next one.
const SHORT_WAIT: u64 = 300;
const NOBODY: Duration = Duration::from_millis(800);
/// The TTL of a visit: a client that is frozen for longer loses its lock.
const TTL: u64 = 2_500;
/// The minimum hold of a visit after which the lock rests.
const MIN_HOLD: u64 = 600;
/// The wait for a lock, longer than a few provisional grants take.
const WAIT: u64 = 15_000;
/// Longer than the grace of a kept position, and within the TTL.
const BEYOND_GRACE: Duration = Duration::from_millis(1_700);
/// The TTL of a lease that is left to expire.
const BRIEF: u64 = 700;

// === impl Worker ===

impl Worker {
    /// Waits for locks, and visits them.
    pub(super) async fn visit(&mut self, locks: &[String]) {
        let wait_ms = [0, WAIT, WAIT, WAIT][self.random.below(4)];
        if let Some(held) = self.acquire(locks, wait_ms, TTL).await {
            self.stay(&held).await;
        }
    }

    /// Waits for a lock that clients do nothing else with, and leaves it to expire now and then: without any further
    /// request, the waiters must be granted it.
    pub(super) async fn visit_patiently(&mut self, lock: &str) {
        let Some(held) = self.acquire(&[lock.to_owned()], WAIT, BRIEF).await else {
            return;
        };
        self.rest(STAY).await;
        if self.random.below(3) == 0 {
            // Another request of this worker would find the lock free, so the worker pauses.
            sleep(Duration::from_millis(10 * BRIEF)).await;
        } else {
            self.release(&held).await;
        }
    }

    /// Waits for a lock, or a slot, that rests after each visit. Without any further request, the waiters must be granted it when the
    /// rest is over, and not before.
    pub(super) async fn visit_and_let_rest(&mut self, lock: &str) {
        self.min_hold_ms = MIN_HOLD;
        if let Some(held) = self.acquire(&[lock.to_owned()], WAIT, TTL).await {
            self.rest(STAY).await;
            self.release(&held).await;
        }
    }

    /// Shares a lock for long, or waits shortly for an exclusive lease and leaves the queue. Without any further
    /// request, the waiters behind must be granted the lock.
    pub(super) async fn visit_or_leave(&mut self, lock: &str) {
        let shares = self.mode.shares();
        let wait_ms = if shares { WAIT } else { SHORT_WAIT };
        if let Some(held) = self.acquire(&[lock.to_owned()], wait_ms, TTL).await {
            if shares {
                self.rest(LONG_STAY).await;
            }
            self.release(&held).await;
        }
        if shares {
            self.rest(STAY).await;
        } else {
            sleep(NOBODY).await;
        }
    }

    /// A visit with a short wait.
    pub(super) async fn visit_impatiently(&mut self, lock: &str) {
        let wait_ms = 20 + u64::try_from(self.random.below(300)).expect("a short wait");
        if let Some(held) = self.acquire(&[lock.to_owned()], wait_ms, TTL).await {
            self.stay(&held).await;
        }
    }

    /// Acquires and releases a lock that no other client wants.
    pub(super) async fn visit_quickly(&mut self, lock: &str) {
        let Some(held) = self.acquire(&[lock.to_owned()], 0, TTL).await else {
            // An earlier request of this client may hold the lock without its knowledge.
            return self.rest(20).await;
        };
        if self.random.below(8) == 0 {
            self.renew(&held).await;
        }
        if self.random.below(16) == 0 {
            let to = self.any_gateway();
            self.ask(&Request::about(&held[0], to, Ask::Inspect)).await;
        }
        self.release(&held).await;
    }

    /// Repeats a request with an idempotency key until there is an answer, with hang-ups in between, and repeats it
    /// again after the release.
    pub(super) async fn visit_under_a_key(&mut self, locks: &[String]) {
        let (mode, order) = (self.mode, self.order);
        let ask = |wait_ms| Ask::Acquire {
            ttl_ms: TTL,
            wait_ms,
            keyed: true,
            mode,
            min_hold_ms: 0,
            reserve: None,
            order,
        };
        let mut hung_up = false;
        for _ in 0..4 {
            let to = self.any_gateway();
            let wait_ms = [0, 50, 400, 1_500][self.random.below(4)];
            let parts = self.requests(locks, to, &ask(wait_ms));
            if self.random.below(3) == 0 {
                if let Some(held) = self.send_and_hang_up(&parts).await {
                    return self.stay(&held).await;
                }
                hung_up = true;
                continue;
            }
            let Some((answers, token)) = self.ask_all(&parts).await else {
                continue;
            };
            if let Some(held) = Held::all(&parts, &answers, &token) {
                if self.raise_order(&held[0]).await || self.random.below(2) == 0 {
                    self.ask_again(&parts).await;
                }
                if hung_up {
                    // An undelivered lease is released after the grace; this one must not be.
                    sleep(BEYOND_GRACE).await;
                }
                self.stay(&held).await;
                return self.ask_again(&parts).await;
            }
            let refused = matches!(
                answers[0],
                RecordedAnswer::Refused { .. } | RecordedAnswer::Outdated { .. }
            );
            if refused && self.random.below(2) == 0 {
                return;
            }
        }
    }

    /// Repeats a request at any gateway.
    pub(super) async fn ask_again(&mut self, parts: &[Request]) {
        let to = self.any_gateway();
        let parts = parts.iter().cloned();
        let parts: Vec<_> = parts.map(|part| Request { to, ..part }).collect();
        self.ask_all(&parts).await;
    }

    /// Acquires a lock, or several as a group.
    pub(super) async fn acquire(
        &mut self,
        locks: &[String],
        wait_ms: u64,
        ttl_ms: u64,
    ) -> Option<Vec<Held>> {
        let ask = Ask::Acquire {
            ttl_ms,
            wait_ms,
            keyed: false,
            mode: self.mode,
            min_hold_ms: self.min_hold_ms,
            reserve: None,
            order: self.order,
        };
        let to = self.any_gateway();
        let parts = self.requests(locks, to, &ask);
        let (answers, token) = self.ask_all(&parts).await?;
        Held::all(&parts, &answers, &token)
    }

    /// Changes the resources of the locks, and releases the locks. Checks a fencing token before or after the release
    /// now and then.
    pub(super) async fn stay(&mut self, held: &[Held]) {
        let checks = self.random.below(8);
        // The registers end with the run, so an error does not matter.
        drop(self.change(held).await);
        if checks == 0 {
            self.check(&held[0]).await;
        }
        self.release(held).await;
        if checks <= 1 {
            self.check(&held[0]).await;
        }
    }

    /// Checks the fencing token of a lease at any gateway.
    async fn check(&mut self, held: &Held) {
        let (to, fence) = (self.any_gateway(), held.fence);
        self.ask(&Request::about(held, to, Ask::Check { fence }))
            .await;
    }

    async fn change(&mut self, held: &[Held]) -> std::io::Result<()> {
        let mut changes = Vec::with_capacity(held.len());
        // Without a limit, the holders share a lock without a slot, so they have no resource to change.
        let changing = held.iter();
        for it in changing.filter(|it| it.mode != Mode::Shared { limit: None }) {
            let read = self.registry().await?;
            changes.push((it, read.read(&it.lock, it.slot, it.fence).await?));
        }
        self.rest(STAY).await;
        if self.random.below(5) == 0 {
            self.renew(held).await;
        }
        for (it, read) in changes {
            let registry = self.registry().await?;
            registry.write(&it.lock, it.slot, it.fence, read).await?;
        }
        Ok(())
    }

    /// Renews all leases with one request. Answers the result of each.
    pub(super) async fn renew(&mut self, held: &[Held]) -> Option<Vec<RecordedAnswer>> {
        let to = self.any_gateway();
        let parts = held.iter().map(|held| {
            let ask = Ask::Renew {
                fence: held.fence,
                ttl_ms: held.ttl_ms,
            };
            Request::about(held, to, ask)
        });
        let parts: Vec<_> = parts.collect();
        let (answers, _token) = self.ask_all(&parts).await?;
        Some(answers)
    }

    /// Releases all leases with one request, and repeats it for those with an unknown outcome.
    pub(super) async fn release(&mut self, held: &[Held]) {
        let mut left: Vec<&Held> = held.iter().collect();
        for _ in 0..3 {
            let to = self.any_gateway();
            let parts = left.iter().map(|held| {
                let ask = Ask::Release { fence: held.fence };
                Request::about(held, to, ask)
            });
            let parts: Vec<_> = parts.collect();
            if let Some((answers, _token)) = self.ask_all(&parts).await {
                let open = |answer: &RecordedAnswer| {
                    matches!(
                        answer,
                        RecordedAnswer::Unknown | RecordedAnswer::Refused { .. }
                    )
                };
                let answered = left.into_iter().zip(&answers);
                left = answered
                    .filter(|(_, answer)| open(answer))
                    .map(|(held, _)| held)
                    .collect();
            }
            if left.is_empty() {
                return;
            }
            self.rest(50).await;
        }
    }
}
