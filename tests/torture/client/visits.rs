//! Visits: a lock is taken, something is changed under it, and it is released.

use std::time::Duration;

use tokio::time::sleep;

use super::worker::{Held, Request, Worker};
use crate::history::{Ask, Mode, RecordedAnswer};

/// How long a visit takes in ms, beyond which a lease is renewed.
const STAY: usize = 25;
/// How long a lock is shared in ms where nobody else comes.
const LONG_STAY: usize = 1_500;
/// For how long one waits there in ms who wants it alone, and after what time it comes again.
const SHORT_WAIT: u64 = 300;
const NOBODY: Duration = Duration::from_millis(800);
/// The TTL of a visit: a client that is frozen for longer than this loses its lock.
const TTL: u64 = 2_500;
/// How long one waits for a lock. Longer than a few grants to nobody take.
const WAIT: u64 = 15_000;
/// Longer than a lease is kept for a caller that may ask again, and within the TTL.
const BEYOND_GRACE: Duration = Duration::from_millis(1_700);
/// The TTL of a lease that is left to expire.
const BRIEF: u64 = 700;

// === impl Worker ===

impl Worker {
    /// Waits for a lock, and visits it.
    pub(super) async fn visit(&mut self, lock: &str) {
        let wait_ms = [0, WAIT, WAIT, WAIT][self.random.below(4)];
        if let Some(held) = self.acquire(lock, wait_ms, TTL).await {
            self.stay(&held).await;
        }
    }

    /// Waits for a lock that everybody waits for, and leaves it to expire now and then: nobody comes and asks
    /// then, and those who wait are granted it all the same.
    pub(super) async fn visit_patiently(&mut self, lock: &str) {
        let Some(held) = self.acquire(lock, WAIT, BRIEF).await else {
            return;
        };
        self.rest(STAY).await;
        if self.random.below(3) == 0 {
            // It must not be itself who finds the lock free.
            sleep(Duration::from_millis(10 * BRIEF)).await;
        } else {
            self.release(&held).await;
        }
    }

    /// Shares a lock for long, or wants it alone and leaves the queue soon: nobody else comes to it for a while, and those
    /// behind are granted it all the same.
    pub(super) async fn visit_or_leave(&mut self, lock: &str) {
        let shares = self.mode.shares();
        let wait_ms = if shares { WAIT } else { SHORT_WAIT };
        if let Some(held) = self.acquire(lock, wait_ms, TTL).await {
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

    /// The same as a visit by one who does not wait for long.
    pub(super) async fn visit_impatiently(&mut self, lock: &str) {
        let wait_ms = 20 + u64::try_from(self.random.below(300)).expect("a short wait");
        if let Some(held) = self.acquire(lock, wait_ms, TTL).await {
            self.stay(&held).await;
        }
    }

    /// Takes a lock that nobody else wants, and releases it.
    pub(super) async fn visit_quickly(&mut self, lock: &str) {
        let Some(held) = self.acquire(lock, 0, TTL).await else {
            // It may be held by itself, without its knowledge.
            return self.rest(20).await;
        };
        if self.random.below(8) == 0 {
            self.renew(&held).await;
        }
        if self.random.below(16) == 0 {
            let to = self.any_gateway();
            self.ask(&Request::about(&held, to, Ask::Inspect)).await;
        }
        self.release(&held).await;
    }

    /// Asks under an idempotency key until there is an answer, hangs up in between, and asks again after it
    /// has released.
    pub(super) async fn visit_under_a_key(&mut self, lock: &str) {
        let mode = self.mode;
        let ask = |wait_ms| Ask::Acquire {
            ttl_ms: TTL,
            wait_ms,
            keyed: true,
            mode,
        };
        let mut hung_up = false;
        for _ in 0..4 {
            let to = self.any_gateway();
            let wait_ms = [0, 50, 400, 1_500][self.random.below(4)];
            let request = self.request(lock, to, ask(wait_ms));
            if self.random.below(3) == 0 {
                if let Some(held) = self.send_and_hang_up(&request).await {
                    return self.stay(&held).await;
                }
                hung_up = true;
                continue;
            }
            match self.ask(&request).await {
                Some((RecordedAnswer::Granted { fence, slot, .. }, token)) => {
                    let held = Held {
                        errand: request.errand.clone(),
                        lock: lock.to_owned(),
                        fence,
                        slot,
                        token,
                        ttl_ms: TTL,
                    };
                    if self.random.below(2) == 0 {
                        let to = self.any_gateway();
                        self.ask(&Request {
                            to,
                            ..request.clone()
                        })
                        .await;
                    }
                    if hung_up {
                        // What nobody heard of is given back after the grace; not this.
                        sleep(BEYOND_GRACE).await;
                    }
                    self.stay(&held).await;
                    let to = self.any_gateway();
                    self.ask(&Request { to, ..request }).await;
                    return;
                }
                Some((RecordedAnswer::Refused { .. }, _)) if self.random.below(2) == 0 => return,
                _ => {}
            }
        }
    }

    /// Acquires a lock.
    pub(super) async fn acquire(&mut self, lock: &str, wait_ms: u64, ttl_ms: u64) -> Option<Held> {
        let ask = Ask::Acquire {
            ttl_ms,
            wait_ms,
            keyed: false,
            mode: self.mode,
        };
        let to = self.any_gateway();
        let request = self.request(lock, to, ask);
        let (answer, token) = self.ask(&request).await?;
        let RecordedAnswer::Granted { fence, slot, .. } = answer else {
            return None;
        };
        Some(Held {
            errand: request.errand,
            lock: lock.to_owned(),
            fence,
            slot,
            token,
            ttl_ms,
        })
    }

    /// Changes what the lock protects, and releases it.
    async fn stay(&mut self, held: &Held) {
        if self.mode == (Mode::Shared { limit: None }) {
            // Nothing is there that those who share it may not change together.
            self.rest(STAY).await;
            if self.random.below(5) == 0 {
                self.renew(held).await;
            }
        } else {
            // The registers end with the run.
            drop(self.change(held).await);
        }
        self.release(held).await;
    }

    async fn change(&mut self, held: &Held) -> std::io::Result<()> {
        let Held {
            lock, fence, slot, ..
        } = held;
        let read = self.registry().await?.read(lock, *slot, *fence).await?;
        self.rest(STAY).await;
        if self.random.below(5) == 0 {
            self.renew(held).await;
        }
        self.registry()
            .await?
            .write(lock, *slot, *fence, read)
            .await
            .map(drop)
    }

    pub(super) async fn renew(&mut self, held: &Held) {
        let to = self.any_gateway();
        let ask = Ask::Renew {
            fence: held.fence,
            ttl_ms: held.ttl_ms,
        };
        self.ask(&Request::about(held, to, ask)).await;
    }

    /// Releases a lease; asks again where it is not known whether it was done.
    pub(super) async fn release(&mut self, held: &Held) {
        for _ in 0..3 {
            let to = self.any_gateway();
            let ask = Ask::Release { fence: held.fence };
            match self.ask(&Request::about(held, to, ask)).await {
                None | Some((RecordedAnswer::Unknown | RecordedAnswer::Refused { .. }, _)) => {
                    self.rest(50).await
                }
                Some(_) => return,
            }
        }
    }
}
