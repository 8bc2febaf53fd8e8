//! The gateways of a case, and callers that wait at them.

use latchgate::telemetry::metrics::Metrics;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use latchgate::{
    auth::Authorization,
    config::{LimitsConfig, Millis},
    engine::{AcquireError, AcquireRequest, Engine, ExplicitTerms, Granted},
    lifecycle::Lifecycle,
    lock::{CallerId, IdempotencyKey, Lease, Metadata, Owner, Token},
    store::{
        AnyStore, Store,
        contract::{Holder, Inspection},
    },
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::super::{
    Fixture,
    attempts::{LONG, name, share, ttl},
};
use crate::support::{Random, eventually};

/// Longer than anything takes that is to happen at once, on a machine that does other things as well.
pub(super) const LATE: Duration = Duration::from_mins(1);
/// The wait of a caller that gets the lock before it is over.
const PATIENT: Duration = Duration::from_secs(50);

/// An engine over each handle to the store.
pub(super) struct Gateways {
    engines: Vec<Engine>,
    stores: Vec<AnyStore>,
    next: AtomicUsize,
    /// How to repeat what is done at random, if anything is.
    how_to_repeat: String,
}

/// A caller that waits for the answer to its acquire.
pub(super) struct Caller(JoinHandle<Result<Granted, AcquireError>>);

/// A request of this owner that waits to share the lock, with as many as the limit says.
pub(super) fn sharing(limit: Option<u64>, owner: &str) -> AcquireRequest {
    AcquireRequest {
        sharing: Some(share(limit)),
        ..request("lock", owner)
    }
}

/// A request of this owner that waits for long.
pub(super) fn request(lock: &str, owner: &str) -> AcquireRequest {
    AcquireRequest {
        sharing: None,
        name: name(lock),
        ttl: ttl(LONG),
        hold_limit: None,
        explicit: ExplicitTerms::default(),
        wait: PATIENT,
        owner: Some(Owner::new(owner).unwrap()),
        metadata: Metadata::default(),
        caller: CallerId::ANONYMOUS,
        authorization: Authorization::default(),
        idempotency_key: None,
    }
}

// === impl Gateways ===

impl Gateways {
    pub(super) fn of(fixture: &dyn Fixture) -> Self {
        Self::with(fixture, &LimitsConfig::default())
    }

    /// Gateways that keep a place for so long.
    pub(super) fn with_grace(fixture: &dyn Fixture, ms: u64) -> Self {
        let limits = LimitsConfig {
            reconnect_grace_ms: Millis(ms),
            ..LimitsConfig::default()
        };
        Self::with(fixture, &limits)
    }

    pub(super) fn with(fixture: &dyn Fixture, limits: &LimitsConfig) -> Self {
        let stores = fixture.gateways();
        let engines = stores.iter().map(|store| {
            Engine::start(store.clone(), Lifecycle::new(), limits, Metrics::default())
        });
        Self {
            engines: engines.collect(),
            stores,
            next: AtomicUsize::new(0),
            how_to_repeat: String::new(),
        }
    }

    /// The same for what is done at random: what fails here says how to repeat it.
    pub(super) fn seeded(self, random: &Random) -> Self {
        Self {
            how_to_repeat: random.how_to_repeat(),
            ..self
        }
    }

    /// One gateway after the other.
    pub(super) fn any(&self) -> &Engine {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.engines[turn % self.engines.len()]
    }

    /// Acquires without waiting, and must be granted the lock.
    pub(super) async fn hold(&self, lock: &str) -> Lease {
        self.hold_as(request(lock, "first holder")).await
    }

    /// The same for this request.
    pub(super) async fn hold_as(&self, request: AcquireRequest) -> Lease {
        let request = AcquireRequest {
            wait: Duration::ZERO,
            ..request
        };
        let granted = self.any().acquire(request).await.unwrap();
        granted.delivery.delivered();
        granted.lease
    }

    /// Starts an acquire at one gateway after the other.
    pub(super) fn ask(&self, request: AcquireRequest) -> Caller {
        self.ask_telling(request, || {})
    }

    /// The same, and says when it is known to wait.
    pub(super) fn ask_telling(
        &self,
        request: AcquireRequest,
        queued: impl FnOnce() + Send + 'static,
    ) -> Caller {
        let engine = self.any().clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "the caller of a test is no task of the program"
        )]
        Caller(tokio::spawn(async move {
            engine.acquire_with_queued_hook(request, queued).await
        }))
    }

    /// Starts an acquire and waits until it stands in the queue as the last of so many.
    pub(super) async fn queue(&self, request: AcquireRequest, waiters: u64) -> Caller {
        let lock = request.name.as_str().to_owned();
        let caller = self.ask(request);
        self.queued(&lock, waiters).await;
        caller
    }

    /// Waits until so many are queued.
    pub(super) async fn queued(&self, lock: &str, waiters: u64) {
        eventually(&format!("{waiters} are queued for {lock}"), async || {
            (self.shown(lock).await.waiters == waiters).then_some(())
        })
        .await;
    }

    /// Waits until so many attempts are parked at all gateways together: the others have left.
    pub(super) async fn parked(&self, attempts: usize) {
        eventually(&format!("{attempts} attempts are parked"), async || {
            let parked = self.stores.iter().map(|store| store.parking().len());
            (parked.sum::<usize>() == attempts).then_some(())
        })
        .await;
    }

    /// Waits until nobody holds the lock and nobody is queued for it.
    pub(super) async fn idle(&self, lock: &str) {
        self.idle_after(lock, async |_owner| {}).await;
    }

    /// The same. Until then `see_to` is given the owner of the lease that holds the lock, again and again.
    pub(super) async fn idle_after(&self, lock: &str, see_to: impl AsyncFn(&Owner)) {
        let deadline = Instant::now() + LATE;
        loop {
            let shown = self.shown(lock).await;
            if shown.holder.is_none() && shown.waiters == 0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{lock} is held or waited for still: {shown:?} {}",
                self.how_to_repeat
            );
            if let Some(Holder::Lease(held)) = &shown.holder
                && let Some(owner) = &held.owner
            {
                see_to(owner).await;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn shown(&self, lock: &str) -> Inspection {
        self.any().inspect(&name(lock)).await.unwrap()
    }

    /// The owner of the lease that holds the lock.
    pub(super) async fn holder(&self, lock: &str) -> Option<Owner> {
        match self.shown(lock).await.holder {
            Some(Holder::Lease(held)) => held.owner,
            Some(Holder::Shared(_) | Holder::Foreign { .. }) => {
                panic!("{lock} is held by a foreign client")
            }
            None => None,
        }
    }

    /// The owners of the leases that hold `lock`, in the order of the alphabet.
    pub(super) async fn owners(&self) -> Vec<String> {
        let holder = self.shown("lock").await.holder;
        let leases = holder.as_ref().map_or(&[][..], Holder::leases);
        let owners = leases.iter().filter_map(|lease| lease.owner.as_ref());
        let mut owners: Vec<_> = owners.map(|owner| owner.as_str().to_owned()).collect();
        owners.sort_unstable();
        owners
    }

    pub(super) async fn release(&self, lock: &str, token: &Token) {
        self.any().release(name(lock), token.hash()).await.unwrap();
    }
}

// === impl Caller ===

impl Caller {
    /// Waits for the lock, and takes it.
    pub(super) async fn granted(self) -> Lease {
        let granted = self.answer().await.unwrap();
        granted.delivery.delivered();
        granted.lease
    }

    /// Waits for a refusal.
    pub(super) async fn refused(self) -> AcquireError {
        self.answer().await.unwrap_err()
    }

    pub(super) async fn answer(self) -> Result<Granted, AcquireError> {
        timeout(LATE, self.0)
            .await
            .expect("an answer comes in time")
            .unwrap()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }

    /// The connection breaks: nobody waits for the answer any more.
    pub(super) fn hang_up(self) {
        self.0.abort();
    }
}

/// A new idempotency key.
pub(super) fn new_key() -> IdempotencyKey {
    let bytes: [u8; 16] = *super::super::attempts::token()
        .as_bytes()
        .first_chunk()
        .expect("a hash is longer");
    IdempotencyKey::new(&format!("{:032x}", u128::from_be_bytes(bytes))).unwrap()
}
