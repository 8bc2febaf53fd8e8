//! Clients that hang up: during their wait, and between the grant and the answer.

use std::time::Duration;

use tokio::time::timeout;

use super::worker::{Held, Request, Worker, send};
use crate::history::{Ask, Event};

/// Longer than any wait for a lock in a healthy run, so that a lease that is not released at once is noticed.
const TTL: u64 = 8_000;
/// A short TTL for leases whose answer may be on its way when the client hangs up: they end with their TTL.
const SHORT: u64 = 600;
/// How long the rest of an answer may take after its first byte.
const AT_ONCE: Duration = Duration::from_secs(8);

// === impl Worker ===

impl Worker {
    /// Hangs up while the request waits in the queue.
    pub(super) async fn hang_up_waiting(&mut self, locks: &[String]) {
        let ask = Ask::Acquire {
            ttl_ms: TTL,
            wait_ms: TTL,
            keyed: false,
            mode: self.mode,
            min_hold_ms: 0,
            reserve: None,
            order: self.order,
        };
        let to = self.any_gateway();
        let parts = self.requests(locks, to, &ask);
        if let Some(held) = self.send_and_hang_up(&parts).await {
            self.release(&held).await;
        }
    }

    /// Hangs up right after sending the request.
    pub(super) async fn hang_up_at_once(&mut self, locks: &[String]) {
        let ask = Ask::Acquire {
            ttl_ms: SHORT,
            wait_ms: 0,
            keyed: false,
            mode: self.mode,
            min_hold_ms: 0,
            reserve: None,
            order: self.order,
        };
        let to = self.any_gateway();
        let parts = self.requests(locks, to, &ask);
        let Some(mut wire) = self.connect(to).await else {
            return;
        };
        let ops = self.begin_all(&parts);
        // A gateway that does not accept the request does not get it.
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

    /// Hangs up after some time, with an orderly end or a reset, unless the answer comes first.
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
