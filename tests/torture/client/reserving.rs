//! Clients that reserve a lock until a time of the wall clock.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::{
    process::RESERVED,
    turns::REST,
    worker::{Held, Worker},
};
use crate::{
    history::{Ask, RecordedAnswer, Reserve},
    journal,
};

/// How far ahead a reservation ends, in ms: the least time, and how much more it may be.
const AHEAD: (u64, usize) = (1_000, 3_500);
/// The longest wait for a reservation, in ms. No gateway lets a request wait for longer than until its reservation ends.
const WAIT: u64 = 15_000;
/// How long a client keeps its reservation before it releases it, in ms.
const KEEPS: usize = 900;
/// The pause between two renewals of a client that stays until its reservation is over, and for how long it stays.
const RENEWS: Duration = Duration::from_millis(400);
const STAYS: Duration = Duration::from_secs(6);

// === impl Worker ===

impl Worker {
    /// A turn of a client with locks that some reserve, and that others want without a reservation.
    pub(super) async fn take_a_turn_with_reservations(&mut self) {
        let lock = RESERVED[self.random.below(RESERVED.len())].to_owned();
        match self.random.below(100) {
            0..10 => self.look(&lock).await,
            10..13 => self.break_it(&lock).await,
            13..50 => self.reserve(lock).await,
            _ => self.visit(&[lock]).await,
        }
        self.rest(REST).await;
    }

    /// Reserves a lock, and releases it early, leaves it to its end, or renews it until then. Repeats the request under
    /// its idempotency key now and then.
    async fn reserve(&mut self, lock: String) {
        let (least, more) = AHEAD;
        let ahead = least + u64::try_from(self.random.below(more)).expect("a short while");
        let ask = Ask::Acquire {
            ttl_ms: 0,
            wait_ms: [0, WAIT, WAIT][self.random.below(3)],
            keyed: self.random.below(3) == 0,
            mode: self.mode,
            min_hold_ms: 0,
            reserve: Some(Reserve::ahead(ahead)),
            order: None,
        };
        let to = self.any_gateway();
        let parts = self.requests(&[lock], to, &ask);
        let Some((answers, token)) = self.ask_all(&parts).await else {
            return;
        };
        let Some(held) = Held::all(&parts, &answers, &token) else {
            return;
        };
        if matches!(ask, Ask::Acquire { keyed: true, .. }) {
            self.ask_again(&parts).await;
        }
        match self.random.below(4) {
            0 => {}
            1 => self.stay_until_its_end(&held).await,
            _ => {
                self.rest(KEEPS).await;
                self.release(&held).await;
            }
        }
    }

    /// Renews a reservation, which does not move its end, until it is lost.
    async fn stay_until_its_end(&mut self, held: &[Held]) {
        let until = Instant::now() + STAYS;
        while Instant::now() < until {
            sleep(RENEWS).await;
            if let Some([RecordedAnswer::Lost]) = self.renew(held).await.as_deref() {
                return;
            }
        }
    }
}

// === impl Reserve ===

impl Reserve {
    /// The end of a reservation so many milliseconds ahead.
    fn ahead(ms: u64) -> Self {
        let (now, wall) = (journal::now(), SystemTime::UNIX_EPOCH.elapsed());
        let wall = wall.expect("it is later than 1970") + Duration::from_millis(ms);
        // The wall time is cut to whole milliseconds, and so is the time of the history.
        let cut = u64::from(wall.subsec_nanos()) % 1_000_000;
        Self {
            until: now + ms * 1_000_000 - cut,
            wall_ms: u64::try_from(wall.as_millis()).expect("it is earlier than the year 500,000"),
        }
    }

    /// The end by the wall clock, as gateways write it.
    pub(super) fn text(&self) -> String {
        let end = SystemTime::UNIX_EPOCH + Duration::from_millis(self.wall_ms);
        humantime::format_rfc3339_millis(end).to_string()
    }
}
