//! Random histories of two locks, three gateways, their callers, operators who break locks, and somebody
//! who deletes them by hand.

mod losses;
mod streams;

use std::time::Duration;

use latchgate::store::Store;
use latchgate::{engine::AcquireError, lock::Lease, store::contract::Renewal};
use tokio::time::{Instant, sleep};

use self::streams::Stream;
use super::{
    super::rig::{eventually, name, ttl},
    gate::{GRACE, PendingAcquire, TestGateway, keep, leftovers, request, request_by},
};
use crate::support::{Random, RedisServer};

const LOCKS: [&str; 2] = ["left", "right"];
const STEPS: usize = 200;
/// How many may wait for each lock.
const CROWD: usize = 8;
/// What two machines' clocks and a busy scheduler make of an instant.
const MARGIN: Duration = Duration::from_millis(100);

struct History {
    server: RedisServer,
    gates: Vec<TestGateway>,
    random: Random,
    asked: usize,
    waiting: Vec<Waiting>,
    /// Their callers have gone, and may come back under their key.
    away: Vec<(Ticket, Instant)>,
    /// Streams that wait or hold, through which gateway.
    streams: Vec<(Ticket, usize, Stream)>,
    held: Vec<Held>,
    grants: Vec<Grant>,
    told: Vec<String>,
}

/// One who asked, in this order.
#[derive(Clone, Copy)]
struct Ticket {
    turn: usize,
    lock: usize,
    keyed: bool,
    /// Something happened that may cost a place in the queue.
    disturbed: bool,
}

struct Waiting {
    ticket: Ticket,
    gate: usize,
    asked: PendingAcquire,
}

struct Held {
    lock: usize,
    lease: Lease,
    until: Instant,
}

struct Grant {
    ticket: Ticket,
    fence: u64,
}

#[tokio::test]
async fn locks_exclude_fences_rise_and_queues_keep_their_order_in_random_histories() {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let mut gates = Vec::new();
    for _ in 0..3 {
        gates.push(TestGateway::on(&server).await);
    }
    let mut history = History {
        server,
        gates,
        random: Random::seeded(),
        asked: 0,
        waiting: Vec::new(),
        away: Vec::new(),
        streams: Vec::new(),
        held: Vec::new(),
        grants: Vec::new(),
        told: Vec::new(),
    };
    for _ in 0..STEPS {
        history.step().await;
        history.take_in();
    }
    history.end().await;
    history.judge_order();
}

impl History {
    async fn step(&mut self) {
        match self.random.below(24) {
            0..=6 => self.ask().await,
            7..=11 => self.release().await,
            12 => self.renew().await,
            13..=14 => self.hang_up(),
            15 => self.come_back().await,
            16 => {
                self.tell("cut the subscriptions".to_owned());
                for waiting in &mut self.waiting {
                    waiting.ticket.disturbed = true;
                }
                for (ticket, ..) in &mut self.streams {
                    ticket.disturbed = true;
                }
                self.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            }
            17 if self.random.below(4) == 0 => self.kill().await,
            18 if self.random.below(4) == 0 => self.restart().await,
            19..=20 => self.open_stream().await,
            21 => self.close_stream(),
            22 => self.break_lock().await,
            23 => self.delete().await,
            _ => sleep(Duration::from_millis(self.random.next() % 120)).await,
        }
    }

    async fn ask(&mut self) {
        let ticket = Ticket {
            turn: self.asked,
            lock: self.random.below(LOCKS.len()),
            keyed: self.random.below(3) == 0,
            disturbed: false,
        };
        let crowd = self.waiting.iter();
        if crowd
            .filter(|other| other.ticket.lock == ticket.lock)
            .count()
            < CROWD
        {
            self.asked += 1;
            self.send(ticket).await;
        }
    }

    /// Asks, and comes back when the place in the queue is certain.
    async fn send(&mut self, ticket: Ticket) {
        let (lock, gate) = (LOCKS[ticket.lock], self.random.below(self.gates.len()));
        let owner = format!("turn {}", ticket.turn);
        let mut asks = if ticket.keyed {
            super::gate::keyed(lock, &owner.replace(' ', "-"))
        } else {
            request(lock)
        };
        asks.owner = request_by(lock, &owner).owner;
        // A function of the turn: the same words whenever it is asked again.
        asks.ttl = ttl([300, 700, 2_500][ticket.turn % 3]);
        self.tell(format!("{owner} asks for {lock} through gateway {gate}"));
        let asked = self.gates[gate].ask(asks);
        self.waiting.push(Waiting {
            ticket,
            gate,
            asked,
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            let seen = self.gates[gate].look(lock).await;
            let mut queue = seen.queue.iter();
            let queued = queue.any(|seen| seen.owner.as_ref().is_some_and(|o| o.as_str() == owner));
            let waiting = self.waiting.len();
            self.take_in();
            if queued || self.waiting.len() < waiting {
                return;
            }
        }
        panic!("{owner} is neither queued nor answered; {}", self.so_far());
    }

    async fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let chosen = self.random.below(self.held.len());
        let held = self.held.swap_remove(chosen);
        let gate = self.random.below(self.gates.len());
        let fence = held.lease.held.fence;
        self.tell(format!("{fence} of {} is released", LOCKS[held.lock]));
        let token = held.lease.token.hash();
        let store = &self.gates[gate].store;
        store.release(&held.lease.name, &token).await.unwrap();
    }

    async fn renew(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let chosen = self.random.below(self.held.len());
        let gate = &self.gates[self.random.below(self.gates.len())];
        let held = &mut self.held[chosen];
        let (name, token) = (&held.lease.name, held.lease.token.hash());
        let sent = Instant::now();
        match gate.store.renew(name, &token, None).await.unwrap() {
            Renewal::Renewed(lease, _) => held.until = sent + lease.expires_in,
            Renewal::Adopted => panic!("it is no keeper"),
            Renewal::Lost(_) => {
                let early = held.until.saturating_duration_since(Instant::now());
                assert!(early < MARGIN, "lost {early:?} early; {}", self.so_far());
                self.held.swap_remove(chosen);
            }
        }
    }

    fn hang_up(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let chosen = self.random.below(self.waiting.len());
        let Waiting { ticket, .. } = self.waiting.swap_remove(chosen);
        self.tell(format!("turn {} hangs up", ticket.turn));
        if ticket.keyed {
            self.away.push((ticket, Instant::now()));
        }
    }

    async fn come_back(&mut self) {
        if self.away.is_empty() {
            return;
        }
        let chosen = self.random.below(self.away.len());
        let (mut ticket, since) = self.away.swap_remove(chosen);
        ticket.disturbed |= since.elapsed() > GRACE / 2;
        self.send(ticket).await;
    }

    /// Kills a gateway and starts another.
    async fn kill(&mut self) {
        let gate = self.random.below(self.gates.len());
        self.tell(format!("gateway {gate} is killed"));
        self.gates[gate].kill().await;
        self.gates[gate] = TestGateway::on(&self.server).await;
        self.waiting.retain(|waiting| waiting.gate != gate);
        self.streams.retain(|(_, through, _)| *through != gate);
    }

    /// Kills the server and starts it again with its data. What is under way may fail.
    async fn restart(&mut self) {
        self.tell("the server is started again".to_owned());
        for waiting in &mut self.waiting {
            waiting.ticket.disturbed = true;
        }
        for (ticket, ..) in &mut self.streams {
            ticket.disturbed = true;
        }
        self.server.kill();
        self.server.start_again().await;
        for gate in &self.gates {
            eventually("the gateway is back", async || {
                gate.store.inspect(&name(LOCKS[0])).await.ok()
            })
            .await;
        }
    }

    /// Takes in what was answered by now.
    fn take_in(&mut self) {
        self.follow_streams();
        let now = Instant::now();
        for waiting in std::mem::take(&mut self.waiting) {
            let mut waiting = waiting;
            match waiting.asked.answered() {
                None => self.waiting.push(waiting),
                Some((at, Ok(granted))) => {
                    let lease = keep(Ok(granted));
                    self.judge_grant(waiting.ticket, lease, at);
                }
                // Its lease, which its caller had gone from, has ended meanwhile.
                Some((_, Err(AcquireError::IdempotencyExpired))) if waiting.ticket.keyed => {}
                Some((_, Err(AcquireError::Store(error)))) if waiting.ticket.disturbed => {
                    self.tell(format!("turn {} has failed: {error}", waiting.ticket.turn));
                }
                Some((_, Err(error))) => panic!("{error:?}; {}", self.so_far()),
            }
        }
        self.held.retain(|held| held.until > now);
    }

    fn judge_grant(&mut self, ticket: Ticket, lease: Lease, at: Instant) {
        let fence = lease.held.fence.get();
        self.tell(format!("turn {} is granted with {fence}", ticket.turn));
        for other in self.held.iter().filter(|other| other.lock == ticket.lock) {
            let other_fence = other.lease.held.fence.get();
            let left = other.until.saturating_duration_since(at);
            assert!(
                left < MARGIN,
                "{other_fence} has {left:?}; {}",
                self.so_far()
            );
            assert!(fence > other_fence, "not above; {}", self.so_far());
        }
        self.held.push(Held {
            lock: ticket.lock,
            until: at + lease.held.expires_in,
            lease,
        });
        self.grants.push(Grant { ticket, fence });
    }

    /// Releases whatever is granted until nobody waits, and finds nothing left.
    async fn end(&mut self) {
        let start = Instant::now();
        while !self.waiting.is_empty() || !self.streams.is_empty() || !self.held.is_empty() {
            self.take_in();
            while !self.held.is_empty() {
                self.release().await;
            }
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(40), "stuck; {}", self.so_far());
            sleep(Duration::from_millis(5)).await;
        }
        for lock in LOCKS {
            // What a killed gateway has left, and what is kept for those who are away, ends soon.
            eventually("nothing is left but what nobody waits for", async || {
                let mut asks = request(lock);
                asks.wait = Duration::ZERO;
                let granted = self.gates[0].engine.acquire(asks).await.ok()?;
                self.gates[0].release(&keep(Ok(granted))).await;
                let left = leftovers(&self.server, lock).await;
                left.is_empty().then_some(())
            })
            .await;
        }
    }

    /// Nobody who waited all the time was passed.
    fn judge_order(&mut self) {
        self.grants.sort_by_key(|grant| grant.fence);
        for lock in 0..LOCKS.len() {
            let of_lock = self.grants.iter().filter(|grant| grant.ticket.lock == lock);
            let mut latest = 0;
            for Grant { ticket, fence } in of_lock {
                let passed = ticket.turn < latest && !ticket.disturbed;
                assert!(!passed, "{fence} was passed; {}", self.so_far());
                latest = latest.max(ticket.turn);
            }
        }
        let unique: std::collections::BTreeSet<_> =
            self.grants.iter().map(|grant| grant.fence).collect();
        assert_eq!(unique.len(), self.grants.len(), "{}", self.so_far());
    }

    fn tell(&mut self, what: String) {
        self.told.push(what);
    }

    fn so_far(&self) -> String {
        let repeat = self.random.how_to_repeat();
        format!("{repeat}:\n{}", self.told.join("\n"))
    }
}
