//! Clients that hang up: while they wait, and between the grant and the answer.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    exchange,
    worker::{Held, Request, Worker, send},
};
use crate::history::{Ask, Event, RecordedAnswer};

/// Longer than anybody waits for a lock in a healthy run: what is not given back at once is in the way.
const TTL: u64 = 8_000;
/// The TTL of what may be under way when its client hangs up, and is then over with its TTL.
const SHORT: u64 = 600;
/// How long the rest of an answer may take that has begun to come.
const AT_ONCE: Duration = Duration::from_secs(8);

// === impl Worker ===

impl Worker {
    /// Hangs up while it waits in the queue.
    pub(super) async fn hang_up_waiting(&mut self, lock: &str) {
        let ask = Ask::Acquire {
            ttl_ms: TTL,
            wait_ms: TTL,
            keyed: false,
            mode: self.mode,
        };
        let to = self.any_gateway();
        let request = self.request(lock, to, ask);
        if let Some(held) = self.send_and_hang_up(&request).await {
            self.release(&held).await;
        }
    }

    /// Hangs up as soon as it has asked.
    pub(super) async fn hang_up_at_once(&mut self, lock: &str) {
        let ask = Ask::Acquire {
            ttl_ms: SHORT,
            wait_ms: 0,
            keyed: false,
            mode: self.mode,
        };
        let to = self.any_gateway();
        let request = self.request(lock, to, ask);
        let Some(mut wire) = self.connect(to).await else {
            return;
        };
        let op = self.begin(&request);
        // A gateway that does not take it does not get it.
        drop(send(&mut wire, &request).await);
        if self.random.below(2) == 0 {
            wire.reset();
        } else {
            drop(wire);
        }
        self.notes(Event::HangsUp { op, early: false });
    }

    /// Hangs up after a while, by an end or by a reset, unless there is an answer before.
    pub(super) async fn send_and_hang_up(&mut self, request: &Request) -> Option<Held> {
        let mut wire = self.connect(request.to).await?;
        let op = self.begin(request);
        drop(send(&mut wire, request).await);
        let ms = [0, 1, 3, 10, 60, 300][self.random.below(6)];
        if timeout(Duration::from_millis(ms), wire.readable())
            .await
            .is_ok()
        {
            let Ok(Ok(reply)) = timeout(AT_ONCE, wire.reply()).await else {
                self.hears(op, RecordedAnswer::Unknown);
                return None;
            };
            let answer = exchange::answer(&request.ask, &reply);
            self.hears(op, answer.clone());
            return Held::by(request, &answer, &reply);
        }
        if self.random.below(2) == 0 {
            wire.reset();
        } else {
            drop(wire);
        }
        self.notes(Event::HangsUp { op, early: true });
        None
    }
}
