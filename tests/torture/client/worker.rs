//! A worker: one client after the other, each with its own errand.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{
    exchange::{self, Exchange},
    process::Call,
};
use crate::{
    history::{Ask, Event, Mode, RecordedAnswer},
    journal::Journal,
    random::Random,
    resource::Registry,
    wire::{Reply, Wire},
};

/// Which locks a worker takes, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// With everything that clients do to each other.
    Rough,
    /// In an orderly way.
    Fair,
    /// One that everybody waits for, and asks nothing of.
    Patient,
    /// As fast as it can, its own.
    Quick,
    /// Those that are shared, with everything that clients do to each other.
    RoughSharing,
    /// The same in an orderly way.
    FairSharing,
    /// One of which everybody waits for a place, and asks nothing.
    PatientSharing,
    /// One that is held for long, and where those who want it alone do not wait for long.
    Leaving,
}

/// One client after the other.
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) number: usize,
    pub(super) room: Room,
    pub(super) random: Random,
    pub(super) turn: u64,
    /// With whom it wants the lock of this turn.
    pub(super) mode: Mode,
    journal: Journal,
    gateways: Vec<SocketAddr>,
    /// A connection to each gateway that is kept.
    wires: Vec<Option<Wire>>,
    resource: SocketAddr,
    registry: Option<Registry>,
    ops: Arc<AtomicU64>,
}

/// What a worker wants of a gateway.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) errand: String,
    pub(super) lock: String,
    pub(super) to: usize,
    pub(super) ask: Ask,
    pub(super) token: String,
}

/// A lease that a worker holds.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) errand: String,
    pub(super) lock: String,
    pub(super) fence: u64,
    /// The slot of the lease, whose resource is changed; without one it is that of the whole lock.
    pub(super) slot: Option<u64>,
    pub(super) token: String,
    pub(super) ttl_ms: u64,
}

/// How much longer than its wait a request may take.
const TIMEOUT: Duration = Duration::from_secs(8);
/// How long a worker leaves a gateway alone that it cannot reach, or that cannot do what it is asked.
const AWAY: Duration = Duration::from_millis(25);

// === impl Room ===

impl Room {
    /// Whether locks are shared there.
    pub(super) fn shares(self) -> bool {
        match self {
            Self::Rough | Self::Fair | Self::Patient | Self::Quick => false,
            Self::RoughSharing | Self::FairSharing | Self::PatientSharing | Self::Leaving => true,
        }
    }
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(
        call: &Call,
        number: usize,
        room: Room,
        journal: &Journal,
        ops: &Arc<AtomicU64>,
        random: Random,
    ) -> Self {
        Self {
            name: call.name.clone(),
            number,
            room,
            random,
            turn: 0,
            mode: Mode::Exclusive,
            journal: journal.clone(),
            gateways: call.gateways.clone(),
            wires: call.gateways.iter().map(|_| None).collect(),
            resource: call.resource,
            registry: None,
            ops: Arc::clone(ops),
        }
    }

    /// Takes turns until it is over.
    pub(super) async fn work(mut self, over: &AtomicBool) {
        while !over.load(Ordering::SeqCst) {
            self.turn += 1;
            self.take_a_turn().await;
        }
    }

    /// A new errand.
    pub(super) fn errand(&self) -> String {
        format!("{}.{}-{}", self.name, self.number, self.turn)
    }

    pub(super) fn any_gateway(&mut self) -> usize {
        self.random.below(self.gateways.len())
    }

    /// Asks, and answers what came of it, with the token if there was one; nothing if the gateway cannot be
    /// reached, and so was not asked.
    pub(super) async fn ask(&mut self, request: &Request) -> Option<(RecordedAnswer, String)> {
        let mut wire = match self.wires[request.to].take() {
            Some(wire) => wire,
            None => self.connect(request.to).await?,
        };
        let op = self.begin(request);
        let limit = TIMEOUT + wait(&request.ask);
        let exchanged = timeout(limit, exchange(&mut wire, request)).await;
        let Ok(Ok(reply)) = exchanged else {
            self.hears(op, RecordedAnswer::Unknown);
            return Some((RecordedAnswer::Unknown, String::new()));
        };
        let answer = exchange::answer(&request.ask, &reply);
        self.hears(op, answer.clone());
        if reply.goes_on {
            self.wires[request.to] = Some(wire);
        }
        if reply.status == 503 {
            // Who asks again at once keeps from its work whatever is to come back.
            sleep(AWAY).await;
        }
        let token = reply.body["token"].as_str().unwrap_or_default();
        Some((answer, token.to_owned()))
    }

    /// A connection of its own.
    pub(super) async fn connect(&self, to: usize) -> Option<Wire> {
        let wire = Wire::connect(self.gateways[to]).await.ok();
        if wire.is_none() {
            sleep(AWAY).await;
        }
        wire
    }

    /// Writes down that a request is about to be sent.
    pub(super) fn begin(&self, request: &Request) -> u64 {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        self.journal.write(Event::Asks {
            op,
            errand: request.errand.clone(),
            lock: request.lock.clone(),
            to: request.to,
            ask: request.ask.clone(),
        });
        op
    }

    pub(super) fn hears(&self, op: u64, answer: RecordedAnswer) {
        self.journal.write(Event::Hears { op, answer });
    }

    pub(super) fn notes(&self, event: Event) {
        self.journal.write(event);
    }

    /// The registers, connected to when they are needed.
    pub(super) async fn registry(&mut self) -> io::Result<&mut Registry> {
        if self.registry.is_none() {
            self.registry = Some(Registry::connect(self.resource, &self.name).await?);
        }
        Ok(self.registry.as_mut().expect("it was just connected"))
    }
}

// === impl Request ===

impl Request {
    /// Something about a lease that is held.
    pub(super) fn about(held: &Held, to: usize, ask: Ask) -> Self {
        Self {
            errand: held.errand.clone(),
            lock: held.lock.clone(),
            to,
            ask,
            token: held.token.clone(),
        }
    }
}

// === impl Held ===

impl Held {
    /// What an answer to a request has granted, if it has.
    pub(super) fn by(request: &Request, answer: &RecordedAnswer, reply: &Reply) -> Option<Self> {
        let RecordedAnswer::Granted { fence, slot, .. } = answer else {
            return None;
        };
        let (Ask::Acquire { ttl_ms, .. } | Ask::Hold { ttl_ms, .. }) = request.ask else {
            return None;
        };
        Some(Self {
            errand: request.errand.clone(),
            lock: request.lock.clone(),
            fence: *fence,
            slot: *slot,
            token: reply.body["token"].as_str().unwrap_or_default().to_owned(),
            ttl_ms,
        })
    }
}

/// Sends a request.
pub(super) async fn send(wire: &mut Wire, request: &Request) -> io::Result<()> {
    let Request {
        errand,
        lock,
        ask,
        token,
        ..
    } = request;
    let Exchange {
        line,
        headers,
        body,
    } = Exchange::of(ask, lock, errand, token);
    wire.send(&line, &headers, &body).await
}

async fn exchange(wire: &mut Wire, request: &Request) -> io::Result<Reply> {
    send(wire, request).await?;
    wire.reply().await
}

fn wait(ask: &Ask) -> Duration {
    match ask {
        Ask::Acquire { wait_ms, .. } | Ask::Hold { wait_ms, .. } => Duration::from_millis(*wait_ms),
        _ => Duration::ZERO,
    }
}
