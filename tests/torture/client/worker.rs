//! A worker: it acts as one client after the other, each with its own errand.

use std::{
    io,
    net::SocketAddr,
    slice,
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

/// The kind of a worker: which locks it uses, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Contended locks, with everything that clients may do.
    Rough,
    /// Contended locks, with orderly visits only.
    Fair,
    /// The lock that clients only acquire, with a wait.
    Patient,
    /// The lock that rests after each visit.
    Resting,
    /// Locks that are reserved until a time.
    Reserving,
    /// Locks that are acquired with an order.
    Ordering,
    /// A lock of its own, for so long that the history records each lease.
    Recorded,
    /// Locks of its own, as fast as it can.
    Quick,
    /// Shared locks, with everything that clients may do.
    RoughSharing,
    /// Shared locks, with orderly visits only.
    FairSharing,
    /// The pool that clients only acquire, with a wait.
    PatientSharing,
    /// The pool whose slots rest after each visit.
    RestingSharing,
    /// A lock that is shared for long, with waiters for exclusive leases that soon leave.
    Leaving,
    /// A lock that is kept for as long as possible, and whose release is requested.
    Requesting,
    /// Groups of locks, and each of these locks alone.
    Groups,
    /// Groups of locks in shared, exclusive or mixed modes, and each of these locks alone.
    SharingGroups,
}

/// A worker, which acts as one client after the other.
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) number: usize,
    pub(super) room: Room,
    pub(super) random: Random,
    pub(super) turn: u64,
    /// The mode of this turn.
    pub(super) mode: Mode,
    /// The minimum hold of this turn.
    pub(super) min_hold_ms: u64,
    /// The order of this turn.
    pub(super) order: Option<u64>,
    /// Whether every second lock of a group of this turn is asked for in the other mode.
    pub(super) mixes: bool,
    journal: Journal,
    gateways: Vec<SocketAddr>,
    /// The open connections, one for each gateway.
    wires: Vec<Option<Wire>>,
    resource: SocketAddr,
    registry: Option<Registry>,
    ops: Arc<AtomicU64>,
}

/// A request of a worker to a gateway.
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
    pub(super) mode: Mode,
    pub(super) fence: u64,
    /// The slot of the lease, whose resource the worker changes; without a slot, the resource is that of the whole
    /// lock.
    pub(super) slot: Option<u64>,
    pub(super) token: String,
    pub(super) ttl_ms: u64,
}

/// How much longer than its wait a request may take.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The pause of a worker after a gateway that it cannot reach, or that cannot serve its request.
const AWAY: Duration = Duration::from_millis(25);

// === impl Room ===

impl Room {
    /// Whether the locks of this room are shared, rest, are reserved or have an order, which a quorum does not support.
    pub(super) fn shares(self) -> bool {
        match self {
            Self::Rough
            | Self::Fair
            | Self::Patient
            | Self::Quick
            | Self::Requesting
            | Self::Recorded
            | Self::Groups => false,
            Self::RoughSharing
            | Self::FairSharing
            | Self::PatientSharing
            | Self::RestingSharing
            | Self::Resting
            | Self::Reserving
            | Self::Ordering
            | Self::Leaving
            | Self::SharingGroups => true,
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
            min_hold_ms: 0,
            order: None,
            mixes: false,
            journal: journal.clone(),
            gateways: call.gateways.clone(),
            wires: call.gateways.iter().map(|_| None).collect(),
            resource: call.resource,
            registry: None,
            ops: Arc::clone(ops),
        }
    }

    /// Takes turns until the run is over.
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

    /// Sends a request. Answers its result, with the token if there was one; nothing if the gateway could not be
    /// reached, so that the request was not sent.
    pub(super) async fn ask(&mut self, request: &Request) -> Option<(RecordedAnswer, String)> {
        let (answers, token) = self.ask_all(slice::from_ref(request)).await?;
        Some((answers.into_iter().next()?, token))
    }

    /// Sends a group request to one gateway. Answers the result of each part.
    pub(super) async fn ask_all(
        &mut self,
        parts: &[Request],
    ) -> Option<(Vec<RecordedAnswer>, String)> {
        let Request { to, ask, .. } = &parts[0];
        let mut wire = match self.wires[*to].take() {
            Some(wire) => wire,
            None => self.connect(*to).await?,
        };
        let ops = self.begin_all(parts);
        let exchanged = timeout(TIMEOUT + wait(ask), exchange(&mut wire, parts)).await;
        let Ok(Ok(reply)) = exchanged else {
            return Some((self.hear_nothing(&ops), String::new()));
        };
        let answers = self.hear_all(&ops, parts, &reply);
        if reply.goes_on {
            self.wires[*to] = Some(wire);
        }
        if reply.status == 503 {
            // Clients that repeat requests without a pause would delay the recovery of the gateway.
            sleep(AWAY).await;
        }
        let token = reply.body["token"].as_str().unwrap_or_default();
        Some((answers, token.to_owned()))
    }

    /// Opens a new connection to a gateway.
    pub(super) async fn connect(&self, to: usize) -> Option<Wire> {
        let wire = Wire::connect(self.gateways[to]).await.ok();
        if wire.is_none() {
            sleep(AWAY).await;
        }
        wire
    }

    /// Records that a request is about to be sent. Answers its number.
    pub(super) fn begin(&self, request: &Request) -> u64 {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        self.begin_as(op, request, None);
        op
    }

    /// Records that a group request is about to be sent. Answers the numbers of its parts.
    pub(super) fn begin_all(&self, parts: &[Request]) -> Vec<u64> {
        let count = parts.len() as u64;
        let first = self.ops.fetch_add(count, Ordering::Relaxed);
        let acquires = matches!(parts[0].ask, Ask::Acquire { .. });
        let group = (acquires && count > 1).then_some(first);
        let ops: Vec<_> = (first..first + count).collect();
        for (op, part) in ops.iter().zip(parts) {
            self.begin_as(*op, part, group);
        }
        ops
    }

    fn begin_as(&self, op: u64, request: &Request, group: Option<u64>) {
        self.journal.write(Event::Asks {
            op,
            errand: request.errand.clone(),
            lock: request.lock.clone(),
            to: request.to,
            ask: request.ask.clone(),
            group,
        });
    }

    /// Records the meaning of an answer for each lock, and answers it.
    pub(super) fn hear_all(
        &self,
        ops: &[u64],
        parts: &[Request],
        reply: &Reply,
    ) -> Vec<RecordedAnswer> {
        let answers = exchange::answers(parts, reply);
        for (op, answer) in ops.iter().zip(&answers) {
            self.hears(*op, answer.clone());
        }
        answers
    }

    /// Records that there was no answer.
    pub(super) fn hear_nothing(&self, ops: &[u64]) -> Vec<RecordedAnswer> {
        for op in ops {
            self.hears(*op, RecordedAnswer::Unknown);
        }
        vec![RecordedAnswer::Unknown; ops.len()]
    }

    pub(super) fn hears(&self, op: u64, answer: RecordedAnswer) {
        self.journal.write(Event::Hears { op, answer });
    }

    pub(super) fn notes(&self, event: Event) {
        self.journal.write(event);
    }

    /// The connection to the registers, opened when it is first needed.
    pub(super) async fn registry(&mut self) -> io::Result<&mut Registry> {
        if self.registry.is_none() {
            self.registry = Some(Registry::connect(self.resource, &self.name).await?);
        }
        Ok(self.registry.as_mut().expect("it was just connected"))
    }
}

// === impl Request ===

impl Request {
    /// A request about a lease of this worker.
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
    /// The lease that an answer has granted, if there is one.
    pub(super) fn by(request: &Request, answer: &RecordedAnswer, token: &str) -> Option<Self> {
        let RecordedAnswer::Granted { fence, slot, .. } = answer else {
            return None;
        };
        let (Ask::Acquire { ttl_ms, mode, .. } | Ask::Hold { ttl_ms, mode, .. }) = request.ask
        else {
            return None;
        };
        Some(Self {
            errand: request.errand.clone(),
            lock: request.lock.clone(),
            mode,
            fence: *fence,
            slot: *slot,
            token: token.to_owned(),
            ttl_ms,
        })
    }

    /// The leases that the answers to a group request have granted; none if the group was refused.
    pub(super) fn all(
        parts: &[Request],
        answers: &[RecordedAnswer],
        token: &str,
    ) -> Option<Vec<Self>> {
        let held = parts.iter().zip(answers);
        held.map(|(part, answer)| Self::by(part, answer, token))
            .collect()
    }
}

/// Sends a request for one lock or for a group.
pub(super) async fn send(wire: &mut Wire, parts: &[Request]) -> io::Result<()> {
    let Exchange {
        line,
        headers,
        body,
    } = Exchange::from_requests(parts);
    wire.send(&line, &headers, &body).await
}

async fn exchange(wire: &mut Wire, parts: &[Request]) -> io::Result<Reply> {
    send(wire, parts).await?;
    wire.reply().await
}

fn wait(ask: &Ask) -> Duration {
    match ask {
        Ask::Acquire { wait_ms, .. } | Ask::Hold { wait_ms, .. } => Duration::from_millis(*wait_ms),
        _ => Duration::ZERO,
    }
}
