//! Streams in random histories, seen from outside: what has happened to them, and when.

use latchgate::{
    engine::{AcquireError, AcquireRequest, HoldEvent},
    lock::Lease,
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    super::{
        super::rig::ttl,
        gate::{TestGateway, request_by},
    },
    CROWD, History, LOCKS, Ticket,
};

/// A stream that waits for a lock, or holds it; hangs up when dropped.
pub(super) struct Stream {
    events: mpsc::Receiver<(Instant, HoldEvent)>,
    /// What it holds.
    pub(super) lease: Option<Lease>,
}

/// More events than come between two looks.
const UNSEEN: usize = 1_000;

// === impl Stream ===

impl Stream {
    /// Comes back when it holds the lock or stands in the queue.
    pub(super) async fn open(
        gate: &TestGateway,
        request: AcquireRequest,
    ) -> Result<Self, AcquireError> {
        let mut hold = gate.engine.hold(request).await?;
        let (seen, events) = mpsc::channel(UNSEEN);
        gate.lifecycle.spawn(async move {
            loop {
                tokio::select! {
                    event = hold.next() => match event {
                        Some(event) => drop(seen.try_send((Instant::now(), event))),
                        None => return,
                    },
                    () = seen.closed() => return,
                }
            }
        });
        Ok(Self {
            events,
            lease: None,
        })
    }

    /// The next thing that has happened by now.
    pub(super) fn happened(&mut self) -> Option<(Instant, HoldEvent)> {
        self.events.try_recv().ok()
    }
}

// === impl History ===

impl History {
    /// Asks for a lock by a stream.
    pub(super) async fn open_stream(&mut self) {
        let ticket = Ticket {
            turn: self.asked,
            lock: self.random.below(LOCKS.len()),
            keyed: false,
            disturbed: false,
        };
        if self.streams.len() >= CROWD {
            return;
        }
        self.asked += 1;
        let (lock, gate) = (LOCKS[ticket.lock], self.random.below(self.gates.len()));
        let owner = format!("turn {}", ticket.turn);
        self.tell(format!("{owner} opens a stream for {lock} through {gate}"));
        let mut asks = request_by(lock, &owner);
        asks.ttl = ttl([700, 2_500][ticket.turn % 2]);
        match Stream::open(&self.gates[gate], asks).await {
            Ok(stream) => self.streams.push((ticket, gate, stream)),
            Err(error) => panic!("{error:?}; {}", self.so_far()),
        }
    }

    /// Whoever listens to a stream hangs up.
    pub(super) fn close_stream(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        let chosen = self.random.below(self.streams.len());
        let (ticket, _, stream) = self.streams.swap_remove(chosen);
        self.tell(format!("the stream of turn {} is closed", ticket.turn));
        self.forget(stream.lease.as_ref());
    }

    fn forget(&mut self, lease: Option<&Lease>) {
        let fence = lease.map(|lease| lease.held.fence);
        self.held
            .retain(|held| Some(held.lease.held.fence) != fence);
    }

    /// Takes in what has happened to the streams by now.
    pub(super) fn follow_streams(&mut self) {
        for (ticket, gate, mut stream) in std::mem::take(&mut self.streams) {
            let mut over = false;
            while let Some((at, event)) = stream.happened() {
                match event {
                    HoldEvent::Queued(_) | HoldEvent::ReleaseRequested(_) => {}
                    HoldEvent::Granted(lease) => {
                        stream.lease = Some(lease.clone());
                        self.judge_grant(ticket, lease, at);
                    }
                    HoldEvent::Renewed(renewed) => {
                        let fence = renewed.fence;
                        let mut held = self.held.iter_mut();
                        if let Some(held) = held.find(|held| held.lease.held.fence == fence) {
                            held.until = at + renewed.expires_in;
                        }
                    }
                    HoldEvent::Ended(end) => {
                        self.tell(format!("the stream of turn {} ends: {end:?}", ticket.turn));
                        let fair = stream.lease.is_some() || ticket.disturbed;
                        assert!(fair, "{}", self.so_far());
                        self.forget(stream.lease.as_ref());
                        over = true;
                    }
                }
            }
            if !over {
                self.streams.push((ticket, gate, stream));
            }
        }
    }
}
