//! Clients whose leases are long enough for the history, and who look at it.

use std::{net::SocketAddr, time::Duration};

use tokio::time::sleep;

use super::{
    exchange::answer,
    worker::{Request, Worker, send},
};
use crate::{
    history::{AFTERWARDS, Ask, Event, RecordedAnswer},
    journal::Journal,
    wire::{Reply, Wire},
};

/// How long a lease is held, in ms: longer than leases that are only counted, and how much longer it may be. Many leases
/// end about when half of their TTL is over: then the gateway asks the store about them, and records their beginning.
const HELD: (u64, usize) = (1_100, 700);
const TTL: u64 = 2_500;
/// The number of the first request after the run, larger than those of all processes of clients.
const FIRST: u64 = 1 << 60;

// === impl Worker ===

impl Worker {
    /// Holds a lock that no other client wants until its history records the lease, and releases the lease at any
    /// gateway. Looks at the history now and then.
    pub(super) async fn visit_for_long(&mut self, lock: &str) {
        let Some(held) = self.acquire(&[lock.to_owned()], 0, TTL).await else {
            return self.rest(50).await;
        };
        let (least, more) = HELD;
        sleep(Duration::from_millis(least)).await;
        if self.random.below(3) == 0 {
            self.renew(&held).await;
        }
        self.rest(more).await;
        self.release(&held).await;
        if self.random.below(3) == 0 {
            self.recall(lock).await;
        }
    }

    /// Asks for the history of a lock.
    pub(super) async fn recall(&mut self, lock: &str) {
        let to = self.any_gateway();
        self.ask(&self.request(lock, to, Ask::History)).await;
    }
}

/// Asks every gateway for the history of every lock, after the run.
pub(crate) async fn recall_all<'a>(
    gateways: &[SocketAddr],
    locks: impl Iterator<Item = &'a String> + Clone,
    journal: &Journal,
) {
    let mut ops = FIRST..;
    for (to, gateway) in gateways.iter().enumerate() {
        for (lock, op) in locks.clone().zip(&mut ops) {
            let request = Request {
                errand: AFTERWARDS.to_owned(),
                lock: lock.clone(),
                to,
                ask: Ask::History,
                token: String::new(),
            };
            journal.write(Event::Asks {
                op,
                errand: request.errand.clone(),
                lock: lock.clone(),
                to,
                ask: request.ask.clone(),
                group: None,
            });
            let answer = match ask(*gateway, &request).await {
                Ok(reply) => answer(&request.ask, &reply),
                Err(error) => RecordedAnswer::Wrong {
                    what: error.to_string(),
                },
            };
            journal.write(Event::Hears { op, answer });
        }
    }
}

async fn ask(gateway: SocketAddr, request: &Request) -> std::io::Result<Reply> {
    let mut wire = Wire::connect(gateway).await?;
    send(&mut wire, std::slice::from_ref(request)).await?;
    wire.reply().await
}
