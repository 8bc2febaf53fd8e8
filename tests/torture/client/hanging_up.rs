//! Clients that hang up: while they wait, and between the grant and the answer.

use std::time::Duration;

use tokio::time::timeout;

use super::worker::{Held, Request, Worker, send};
use crate::history::{Ask, Event};

/// Longer than anybody waits for a lock in a healthy run: what is not given back at once is in the way.
const TTL: u64 = 8_000;
/// The TTL of what may be under way when its client hangs up, and is then over with its TTL.
const SHORT: u64 = 600;
/// How long the rest of an answer may take that has begun to come.
const AT_ONCE: Duration = Duration::from_secs(8);

// === impl Worker ===

impl Worker {
    /// Hangs up while it waits in the queue.
    pub(super) async fn hang_up_waiting(&mut self, locks: &[String]) {
        let ask = Ask::Acquire {
            ttl_ms: TTL,
            wait_ms: TTL,
            keyed: false,
            mode: self.mode,
        };
        let to = self.any_gateway();
        let parts = self.requests(locks, to, &ask);
        if let Some(held) = self.send_and_hang_up(&parts).await {
            self.release(&held).await;
        }
    }

    /// Hangs up as soon as it has asked.
    pub(super) async fn hang_up_at_once(&mut self, locks: &[String]) {
        let ask = Ask::Acquire {
            ttl_ms: SHORT,
            wait_ms: 0,
            keyed: false,
            mode: self.mode,
        };
        let to = self.any_gateway();
        let parts = self.requests(locks, to, &ask);
        let Some(mut wire) = self.connect(to).await else {
            return;
        };
        let ops = self.begin_all(&parts);
        // A gateway that does not take it does not get it.
        drop(send(&mut wire, &parts).await);
        if self.random.below(2) == 0 {
            wire.reset();
        } else {
            drop(wire);
        }
        for op in ops {
            self.notes(Event::HangsUp { op, early: false });
        }
    }

    /// Hangs up after a while, by an end or by a reset, unless there is an answer before.
    pub(super) async fn send_and_hang_up(&mut self, parts: &[Request]) -> Option<Vec<Held>> {
        let mut wire = self.connect(parts[0].to).await?;
        let ops = self.begin_all(parts);
        drop(send(&mut wire, parts).await);
        let ms = [0, 1, 3, 10, 60, 300][self.random.below(6)];
        if timeout(Duration::from_millis(ms), wire.readable())
            .await
            .is_ok()
        {
            let Ok(Ok(reply)) = timeout(AT_ONCE, wire.reply()).await else {
                self.hear_nothing(&ops);
                return None;
            };
            let answers = self.hear_all(&ops, parts, &reply);
            let token = reply.body["token"].as_str().unwrap_or_default();
            return Held::all(parts, &answers, token);
        }
        if self.random.below(2) == 0 {
            wire.reset();
        } else {
            drop(wire);
        }
        for op in ops {
            self.notes(Event::HangsUp { op, early: true });
        }
        None
    }
}
