//! A store with a simulated disk and a manual clock, and attempts for its locks.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    clock::ManualClock,
    config::OrderLimits,
    lock::{
        HeldLease, HoldLimit, IdempotencyHash, Limit, LockName, MinHold, Mode, Order, OrderNumber,
        Reason, Salt, Sharing, Terms, Token, Ttl,
    },
    store::{
        Store, StoreError,
        contract::{
            Acquisition, Attempt, Health, Holder, Idempotency, Inspection, Release, Renewal,
            Waiting,
        },
        embedded::{
            EmbeddedStore, OpenError,
            log::{Directory, Volume},
        },
        parking::{News, Parked},
    },
};

use super::disk::{Disk, Fault};

/// A TTL that is longer than any test takes.
pub(super) const LONG: u64 = 3_600_000;
/// How long an attempt of a test waits in the queue.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(1);
/// How long a test waits for an event that should happen at once.
const LATE: Duration = Duration::from_secs(10);

/// A store with a simulated disk and a manual clock.
pub(super) struct Rig {
    pub(super) clock: Arc<ManualClock>,
    pub(super) disk: Disk,
    pub(super) orders: OrderLimits,
    store: Option<EmbeddedStore>,
    directory: TempDir,
}

// === impl Rig ===

impl Rig {
    pub(super) fn start() -> Self {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let mut rig = Self::new(Arc::new(ManualClock::at(wall)));
        rig.open().unwrap();
        rig
    }

    /// Opens a store with the same clock on an empty disk with this log file.
    pub(super) fn restored(&self, log: &[u8]) -> Result<Self, OpenError> {
        let mut rig = Self::new(Arc::clone(&self.clock));
        rig.disk.draft(log).unwrap();
        rig.disk.put_in_place(1).unwrap();
        rig.open()?;
        Ok(rig)
    }

    fn new(clock: Arc<ManualClock>) -> Self {
        Self {
            clock,
            disk: Disk::default(),
            orders: OrderLimits::default(),
            store: None,
            directory: TempDir::new().unwrap(),
        }
    }

    pub(super) fn open(&mut self) -> Result<(), OpenError> {
        let directory = Directory::take(self.directory.path())?;
        let disk = Box::new(self.disk.clone());
        let clock = Arc::clone(&self.clock);
        self.store = Some(EmbeddedStore::start(directory, disk, clock, self.orders)?);
        Ok(())
    }

    pub(super) async fn close(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().await;
        }
    }

    pub(super) async fn restart(&mut self) {
        self.close().await;
        self.open().unwrap();
    }

    /// Kills the process and starts it again in the same boot: everything it wrote can be read, synced or not.
    pub(super) async fn kill(&mut self) {
        self.kill_on(Fault::None).await;
    }

    /// Kills the process and starts it again on a disk with this fault.
    pub(super) async fn kill_on(&mut self, fault: Fault) {
        self.disk.fail(Fault::Dead);
        self.close().await;
        self.disk.fail(fault);
        self.open().unwrap();
    }

    /// Stops the machine between two instructions and starts it again, in another boot.
    pub(super) async fn lose_power(&mut self) {
        // The disk drops everything that the store still writes.
        self.disk.fail(Fault::Dead);
        self.close().await;
        self.disk.lose_power();
        self.clock.reboot();
        self.open().unwrap();
    }

    pub(super) fn store(&self) -> &EmbeddedStore {
        self.store.as_ref().expect("the store is open")
    }

    pub(super) async fn granted(&self, attempt: &Attempt) -> HeldLease {
        match self.store().acquire(attempt).await {
            Ok(Acquisition::Granted(held)) => held,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Acquires this many locks, named `held:0` and so on.
    pub(super) async fn hold(&self, count: usize) -> Vec<Attempt> {
        let held: Vec<_> = (0..count)
            .map(|number| attempt(&format!("held:{number}"), LONG))
            .collect();
        for lease in &held {
            self.granted(lease).await;
        }
        held
    }

    /// Renews a lease, which must live.
    pub(super) async fn renewed(&self, attempt: &Attempt) -> HeldLease {
        // A renewal that does not change the end of the lease would not be written.
        self.clock.advance(Duration::from_millis(1));
        let renewal = self.store().renew(&attempt.name, &attempt.token, None);
        match renewal.await {
            Ok(Renewal::Renewed(held, _)) => held,
            other => panic!("{}: not renewed: {other:?}", attempt.name),
        }
    }

    /// Releases a lease, which must live.
    pub(super) async fn released(&self, attempt: &Attempt) {
        let release = self.store().release(&attempt.name, &attempt.token).await;
        assert!(
            matches!(release, Ok(Release::Released(_))),
            "{}: {release:?}",
            attempt.name
        );
    }

    /// Queues an attempt, and returns its entry in the list of waiters.
    pub(super) async fn queued(&self, attempt: &Attempt) -> Parked {
        let store = self.store();
        let place = store.parking().park(attempt.name.clone(), attempt.token);
        match store.acquire(attempt).await {
            Ok(Acquisition::Queued(_)) => place,
            other => panic!("not queued: {other:?}"),
        }
    }

    pub(super) async fn health(&self) -> Health {
        self.store().check().await.remove(0).health
    }

    pub(super) async fn shown(&self, lock: &str) -> Inspection {
        self.store().inspect(&name(lock)).await.unwrap()
    }

    pub(super) async fn is_free(&self, lock: &str) -> bool {
        self.shown(lock).await.holder.is_none()
    }

    /// The remaining time of the lease of a lock.
    pub(super) async fn left(&self, lock: &str) -> Duration {
        match self.shown(lock).await.holder {
            Some(Holder::Lease(held)) => held.expires_in,
            other => panic!("not held: {other:?}"),
        }
    }

    /// How many rows of leases and tombstones the store has.
    pub(super) fn remembered(&self) -> u64 {
        self.store().state.read().len()
    }

    /// Waits until the store can write again.
    pub(super) async fn writes_again(&self) -> HeldLease {
        let probe = attempt("probe", 60_000);
        until("the store recovers", async || {
            match self.store().acquire(&probe).await {
                Ok(Acquisition::Granted(_)) => true,
                Err(StoreError::Unavailable(_)) => false,
                other => panic!("the probe is free, and a failed disk is not written: {other:?}"),
            }
        })
        .await;
        let held = self.granted(&probe).await;
        self.released(&probe).await;
        held
    }
}

/// Waits until the condition is true; `what` names the condition if it does not become true in time.
pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + LATE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for the news that the attempt holds the lock.
pub(super) async fn told_of_its_grant(place: &mut Parked) -> HeldLease {
    match news(place).await {
        News::Granted(held) => held,
        other => panic!("not granted: {other:?}"),
    }
}

/// Waits for the news of the attempt in the queue.
pub(super) async fn news(place: &mut Parked) -> News {
    timeout(LATE, place.news()).await.expect("there are news")
}

/// Asserts that an exclusive lease is the only one, and that no two leases of a lock have the same slot.
pub(super) fn assert_distinct_slots(leases: &[HeldLease]) {
    if leases.iter().any(|lease| lease.mode == Mode::Exclusive) {
        assert_eq!(leases.len(), 1, "{leases:?}");
    }
    let mut slots: Vec<_> = leases.iter().filter_map(|it| it.mode.slot()).collect();
    slots.sort_unstable();
    assert!(slots.is_sorted_by(|one, next| one < next), "{slots:?}");
}

/// A pseudo-random generator with a seed.
pub(super) struct Random(pub(super) u64);

// === impl Random ===

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

pub(super) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub(super) fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

pub(super) fn key() -> IdempotencyHash {
    IdempotencyHash::from_bytes(*Token::random().hash().as_bytes())
}

/// The sharing of attempts with a limit, or without one.
pub(super) fn share(limit: Option<u64>) -> Sharing {
    Sharing {
        limit: Limit::new(limit.unwrap_or(1_000)).unwrap(),
        has_slot: limit.is_some(),
    }
}

/// The attempt with a change.
pub(super) fn with(mut attempt: Attempt, change: impl FnOnce(&mut Terms)) -> Attempt {
    change(&mut attempt.terms);
    attempt
}

/// An attempt to share the lock with a limit.
pub(super) fn one_of(limit: u64, lock: &str, ms: u64) -> Attempt {
    with(attempt(lock, ms), |it| {
        it.sharing = Some(share(Some(limit)));
    })
}

/// An attempt to share the lock without a limit.
pub(super) fn reader(lock: &str, ms: u64) -> Attempt {
    with(attempt(lock, ms), |it| it.sharing = Some(share(None)))
}

pub(super) fn attempt(lock: &str, ms: u64) -> Attempt {
    Attempt {
        name: name(lock),
        token: Token::random().hash(),
        terms: Terms::lasting(ttl(ms)),
        idempotency: None,
        wait: None,
    }
}

pub(super) fn keyed(lock: &str, ms: u64, hash: IdempotencyHash) -> Attempt {
    let mut keyed = with(attempt(lock, ms), |it| it.explicit.ttl = Some(ttl(ms)));
    keyed.idempotency = Some(Idempotency {
        hash,
        fingerprint: keyed.terms.fingerprint(),
        salt: Salt::random(),
    });
    keyed
}

pub(super) fn limited(lock: &str, ms: u64, limit_ms: u64) -> Attempt {
    let limit = HoldLimit::from_millis(limit_ms, ttl(ms)).unwrap();
    with(attempt(lock, ms), |it| it.set_hold_limit(limit))
}

/// The attempt with a minimum hold.
pub(super) fn cooling(ms: u64, attempt: Attempt) -> Attempt {
    with(attempt, |it| {
        it.min_hold = MinHold::from_millis(ms, it.ttl()).ok();
    })
}

/// The order of a request.
#[expect(clippy::unnecessary_wraps, reason = "a request may have no order")]
pub(super) fn order(number: u64, by: Option<&str>, rollback: Option<&str>) -> Option<Box<Order>> {
    Some(Box::new(Order {
        number: OrderNumber::new(number).unwrap(),
        by: by.map(Into::into),
        rollback: rollback.map(|why| Reason::new(why).unwrap()),
    }))
}

/// The attempt with an order.
pub(super) fn ordered(number: u64, attempt: Attempt) -> Attempt {
    with(attempt, |it| it.said.order = order(number, None, None))
}

/// The same attempt as one that waits in the queue.
pub(super) fn patient(attempt: Attempt) -> Attempt {
    Attempt {
        wait: Some(Waiting {
            max_wait: MAX_WAIT,
            longest_queue: 10_000,
            supersedes: None,
        }),
        ..attempt
    }
}

/// An attempt that waits in the queue.
pub(super) fn waiting(lock: &str) -> Attempt {
    patient(attempt(lock, LONG))
}

/// An attempt under an idempotency key that waits in the queue.
pub(super) fn waiting_under(lock: &str, key: IdempotencyHash) -> Attempt {
    patient(keyed(lock, LONG, key))
}
