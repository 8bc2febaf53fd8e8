//! Random histories of many clients: acquire, hold by a stream, wait, hang up, come back, renew, release, breaks, and
//! leases that expire. An observer outside the gateways checks that no two clients hold a lock at once.

use latchgate::engine::{ReleaseError, RenewError};

use super::observer::{Observer, Visit};
use crate::conformance::prelude::*;

const CLIENTS: u64 = 14;
const LOCKS: [&str; 3] = ["a", "b", "c"];
/// The TTL of a lease that is left to expire. Its holder trusts the lease for half of this, so that answers may take
/// the other half to arrive.
const EXPIRES: u64 = 2_000;
/// Long enough for most clients to come back to their position. A lease that its client misses is held for this time.
const GRACE: u64 = 700;

struct Client {
    gateways: Arc<Gateways>,
    observer: Arc<Observer>,
    random: Random,
    number: u64,
    turn: u64,
    abandoned: Abandoned,
}

/// Requests with an idempotency key whose caller hung up once and was delivered no lease after that. The abandoned
/// request may be granted the lock later than all requests after it, and repeat a lease that no caller waits for. Such
/// a lease is not released (clause 8): a caller with the key may come back for it.
type Abandoned = HashMap<Owner, AcquireRequest>;

/// How often a lock must have been held before the clients stop.
fn visits() -> usize {
    if full() { 250 } else { 120 }
}

pub(crate) async fn of_many_clients_exclude_rise_keep_order_and_leave_no_orphan(
    fixture: &dyn Fixture,
) {
    let mut random = Random::seeded();
    let gateways = Arc::new(Gateways::with_grace(fixture, GRACE).seeded(&random));
    let observer = Arc::new(Observer::new(random.how_to_repeat()));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = Client {
            gateways: Arc::clone(&gateways),
            observer: Arc::clone(&observer),
            random: random.fork(),
            number,
            turn: 0,
            abandoned: Abandoned::new(),
        };
        clients.spawn(async move {
            while client.observer.visits() < visits() {
                client.take_a_turn().await;
            }
            client.abandoned
        });
    }
    let abandoned: Abandoned = clients.join_all().await.into_iter().flatten().collect();
    observer.check_order();
    for lock in LOCKS {
        let come_back = async |owner: &Owner| {
            if let Some(request) = abandoned.get(owner) {
                come_back(&gateways, request).await;
            }
        };
        gateways.idle_after(lock, come_back).await;
        let lease = gateways.hold(lock).await;
        gateways.release(lock, &lease.token).await;
    }
    gateways.parked(0).await;
}

/// Repeats a request with its key, and releases the lease if there is one.
async fn come_back(gateways: &Gateways, request: &AcquireRequest) {
    let request = with(request.clone(), |it| it.wait = Duration::ZERO);
    let name = request.name.clone();
    match gateways.any().acquire(request).await {
        Ok(granted) => {
            granted.delivery.delivered();
            let token = granted.lease.token.hash();
            match gateways.any().release(name, token, None).await {
                // On a busy machine a lease with a short TTL may end before its release.
                Ok(()) | Err(ReleaseError::Lost(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        // The lease was over by then.
        Err(AcquireError::Held { .. } | AcquireError::IdempotencyExpired) => {}
        Err(error) => panic!("{error:?}"),
    }
}

// === impl Client ===

impl Client {
    async fn take_a_turn(&mut self) {
        self.turn += 1;
        let lock = LOCKS[self.random.below(LOCKS.len())];
        let expires = self.random.below(80) == 0;
        let key = (self.random.below(4) == 0).then(new_key);
        let owner = format!("client {}, turn {}", self.number, self.turn);
        let request = with(request(lock, &owner), |it| {
            it.terms.set_ttl(ttl(if expires { EXPIRES } else { LONG }));
            it.idempotency_key = key;
        });
        if self.random.below(8) == 0 && !expires && request.idempotency_key.is_none() {
            return self.hold(lock, request).await;
        }
        let asked = Instant::now();
        // With a key, the client comes back after hang-ups and after waits that ran out, and reads the last answer: a
        // lease that was answered again with its key is not released for an absent caller.
        let tries = if request.idempotency_key.is_some() {
            4
        } else {
            1
        };
        let mut hung_up = false;
        for tried in 0..tries {
            let left = tries - 1 - tried;
            let wait = if left > 0 {
                [0, 30, 300][self.random.below(3)]
            } else {
                [0, 300, 8_000, 8_000][self.random.below(4)]
            };
            let asks = with(request.clone(), |it| it.wait = Duration::from_millis(wait));
            let may_hang_up = left > 0 || request.idempotency_key.is_none();
            let (queued, answer) = self.ask(asks, may_hang_up).await;
            match answer {
                Some(Ok(granted)) => {
                    let visit = Visit { asked, queued };
                    if self.visit(lock, granted, visit, expires).await {
                        return;
                    }
                    break;
                }
                None => hung_up = true,
                // Another client holds the lock, or this client came too late for a lease that it missed.
                Some(Err(AcquireError::Held { .. })) => {}
                // The request that the client abandoned reached the store later than this one.
                Some(Err(AcquireError::Replaced)) if tried > 0 => {}
                Some(Err(AcquireError::IdempotencyExpired)) => break,
                Some(Err(error)) => panic!("{error:?}, {}", self.observer.how_to_repeat()),
            }
        }
        if hung_up && request.idempotency_key.is_some() {
            let owner = request
                .terms
                .said
                .owner
                .clone()
                .expect("every request has one");
            self.abandoned.insert(owner, request);
        }
    }

    /// Sends a request, and learns whether it is queued; hangs up now and then. `None`: the client hung up.
    async fn ask(
        &mut self,
        request: AcquireRequest,
        may_hang_up: bool,
    ) -> (Option<Instant>, Option<Result<Granted, AcquireError>>) {
        let hangs_up = may_hang_up && self.random.below(4) == 0;
        let (lock, owner) = (
            request.name.as_str().to_owned(),
            request.terms.said.owner.clone(),
        );
        let caller = self.gateways.ask(request);
        let mut queued = None;
        for _ in 0..self.random.below(6) {
            sleep(Duration::from_millis(1)).await;
            if !caller.is_waiting() || queued.is_some() {
                break;
            }
            let shown = self.gateways.shown(&lock).await;
            if shown.queue.iter().any(|it| it.owner == owner) {
                queued = Some(Instant::now());
            }
        }
        if hangs_up {
            caller.hang_up();
            return (None, None);
        }
        (queued, Some(caller.answer().await))
    }

    /// Holds a lock by a stream, and hangs up at a random time.
    async fn hold(&mut self, lock: &str, request: AcquireRequest) {
        let asked = Instant::now();
        let request = with(request, |it| {
            it.wait = Duration::from_millis([0, 300, 8_000, 8_000][self.random.below(4)]);
        });
        let mut hold = match self.gateways.any().hold(request).await {
            Ok(hold) => hold,
            Err(AcquireError::Held { .. }) => return,
            Err(error) => panic!("{error:?}, {}", self.observer.how_to_repeat()),
        };
        let mut queued = None;
        let lease = loop {
            let event = timeout(LATE, hold.next()).await;
            match event.expect("something happens in time") {
                Some(HoldEvent::Queued(_)) if self.random.below(4) == 0 => return,
                Some(HoldEvent::Queued(_)) => queued = queued.or(Some(Instant::now())),
                Some(HoldEvent::Granted(lease)) => break lease,
                Some(HoldEvent::Ended(HoldEnd::Refused(AcquireError::Held { .. }))) => return,
                other => panic!("{other:?}, {}", self.observer.how_to_repeat()),
            }
        };
        let fence = lease.held.fence;
        let visit = Visit { asked, queued };
        self.observer.enter(lock, fence, visit, None);
        sleep(Duration::from_micros(self.random.next() % 3_000)).await;
        self.observer.leave(lock, fence);
        match self.random.below(3) {
            0 => drop(hold),
            1 => self.gateways.release(lock, &lease.token).await,
            _ => self.is_broken(lock, &lease).await,
        }
    }

    /// Breaks a lease, as an operator does.
    async fn is_broken(&self, lock: &str, lease: &Lease) {
        let (engine, reason) = (self.gateways.any(), Reason::new("at random").unwrap());
        let meant = Some(lease.held.fence.into());
        let broken = engine.break_lock(name(lock), meant, reason, None, |_| std::future::ready(()));
        broken.await.expect("it holds the lock");
        let (engine, own) = (self.gateways.any(), RenewalTtl::default());
        let renewal = engine.renew(name(lock), lease.token.clone(), own);
        let renewed = renewal.await;
        assert!(
            matches!(renewed, Err(RenewError::Lost(Loss::Broken { .. }))),
            "{renewed:?}, {}",
            self.observer.how_to_repeat()
        );
    }

    /// Visits the lock with a grant. Answers whether the lease was delivered.
    async fn visit(&mut self, lock: &str, granted: Granted, visit: Visit, expires: bool) -> bool {
        let Granted {
            lease, delivery, ..
        } = granted;
        if self.random.below(10) == 0 && !delivery.is_replay() {
            // The answer cannot be sent: the delivery is dropped.
            drop(delivery);
            return false;
        }
        delivery.delivered();
        let trusted = expires.then(|| Instant::now() + Duration::from_millis(EXPIRES / 2));
        self.observer.enter(lock, lease.held.fence, visit, trusted);
        if expires {
            return true;
        }
        if self.random.below(4) == 0 {
            let (engine, own) = (self.gateways.any(), RenewalTtl::default());
            let renewal = engine.renew(name(lock), lease.token.clone(), own);
            renewal.await.expect("it holds the lock");
        }
        sleep(Duration::from_micros(self.random.next() % 3_000)).await;
        self.observer.leave(lock, lease.held.fence);
        if self.random.below(8) == 0 {
            self.is_broken(lock, &lease).await;
        } else {
            self.gateways.release(lock, &lease.token).await;
        }
        true
    }
}
