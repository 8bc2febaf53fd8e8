//! Clients that hold a lock by a stream.

use std::{io, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    exchange,
    worker::{Request, Worker, send},
};
use crate::{
    history::{Ask, Event, RecordedAnswer},
    wire::Wire,
};

/// The TTL that the gateway renews.
const TTL: u64 = 5_000;
/// The longest wait for the lock.
const WAIT: u64 = 4_000;

// === impl Worker ===

impl Worker {
    /// Holds a lock for some time, and hangs up.
    pub(super) async fn hold(&mut self, lock: &str) {
        let wait_ms = [0, WAIT][self.random.below(2)];
        let ask = Ask::Hold {
            ttl_ms: TTL,
            wait_ms,
            mode: self.mode,
        };
        let to = self.any_gateway();
        let request = self.request(lock, to, ask);
        let Some(mut wire) = self.connect(to).await else {
            return;
        };
        let op = self.begin(&request);
        let stays = [50, 400, 1_200][self.random.below(3)];
        let until = Instant::now() + Duration::from_millis(wait_ms + 3_000);
        let granted = match timeout_at(until, first(&mut wire, &request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => RecordedAnswer::Unknown,
            Err(_) => return self.notes(Event::HangsUp { op, early: false }),
        };
        let holds = matches!(granted, RecordedAnswer::Granted { .. });
        self.hears(op, granted);
        if !holds {
            return;
        }
        let until = Instant::now() + Duration::from_millis(stays);
        loop {
            match timeout_at(until, wire.event()).await {
                Ok(Ok((name, data))) if name == "renewed" => {
                    if let Some(left_ms) = data["expires_in_ms"].as_u64() {
                        self.notes(Event::Keeps { op, left_ms });
                    }
                }
                // The client does not obey the release request.
                Ok(Ok((name, _))) if name == "release-requested" => {}
                // The last event of the stream, or its end without one.
                Ok(_) => return self.notes(Event::Ends { op }),
                Err(_) => {
                    // The client must not rely on the lease from before the end of the connection is sent.
                    self.notes(Event::HangsUp { op, early: false });
                    return drop(wire);
                }
            }
        }
    }
}

/// The meaning of the beginning of the stream.
async fn first(wire: &mut Wire, request: &Request) -> io::Result<RecordedAnswer> {
    send(wire, std::slice::from_ref(request)).await?;
    if let Some(reply) = wire.stream().await? {
        return Ok(exchange::answer(&request.ask, &reply));
    }
    loop {
        let (name, data) = wire.event().await?;
        if name != "queued" {
            return Ok(exchange::event(&request.ask, &name, &data));
        }
    }
}
