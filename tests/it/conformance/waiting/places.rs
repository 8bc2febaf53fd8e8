//! Places that are kept for those who ask again under their idempotency key.

use std::time::Duration;

use latchgate::{
    engine::{AcquireError, AcquireRequest},
    lock::{HeldLease, IdempotencyKey},
    store::{
        AnyStore, Store,
        contract::{Acquisition, Attempt, Confirmation, Holder, Leaving, Waiting},
    },
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    super::{
        Fixture,
        attempts::{self, LONG, attempt, granted, released, ttl},
    },
    Gateways, LATE, new_key, request,
};
use crate::support::eventually;

/// Long enough to ask again on a busy machine.
const GRACE: u64 = 10_000;

pub(in super::super) async fn are_kept_for_whoever_asks_again(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let first = gateways.queue(keyed("polls", &key), 1).await;
    let second = gateways.queue(request("lock", "second"), 2).await;
    // The connection breaks, then a wait runs out: neither loses the place.
    first.hang_up();
    for _ in 0..3 {
        let short = AcquireRequest {
            wait: Duration::from_millis(100),
            ..keyed("polls", &key)
        };
        let error = gateways.ask(short).refused().await;
        assert!(matches!(error, AcquireError::Held { .. }), "{error:?}");
        assert_eq!(gateways.shown("lock").await.waiters, 2);
    }
    let first = gateways.ask(keyed("polls", &key));
    gateways.release("lock", &lease.token).await;
    let lease = first.granted().await;
    assert!(second.is_waiting());
    gateways.release("lock", &lease.token).await;
    second.granted().await;
}

pub(in super::super) async fn have_waited_since_they_were_first_taken(fixture: &dyn Fixture) {
    const PIECE: Duration = Duration::from_millis(600);
    // A place is taken a moment after its request has begun to wait.
    const MOMENT: Duration = Duration::from_millis(300);
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let (key, began) = (new_key(), Instant::now());
    for pieces in 1..=2 {
        let short = AcquireRequest {
            wait: PIECE,
            ..keyed("polls", &key)
        };
        match gateways.ask(short).refused().await {
            AcquireError::Held { waited, .. } => {
                assert!(waited + MOMENT >= PIECE * pieces, "{waited:?}");
                assert!(waited <= began.elapsed(), "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    let (queued, told) = oneshot::channel();
    let last = gateways.ask_telling(keyed("polls", &key), move || {
        // An error: nobody waits for it any more.
        let _ = queued.send(());
    });
    timeout(LATE, told)
        .await
        .expect("in time")
        .expect("it waits");
    gateways.release("lock", &lease.token).await;
    let granted = last.granted().await;
    let waited = granted.waited;
    assert!(waited + MOMENT >= PIECE * 2, "{waited:?}");
    assert!(waited <= began.elapsed(), "{waited:?}");
    // Another key begins another wait.
    let began = Instant::now();
    let next = gateways.queue(keyed("polls", &new_key()), 1).await;
    gateways.release("lock", &granted.token).await;
    let waited = next.granted().await.waited;
    assert!(waited <= began.elapsed(), "{waited:?}");
}

pub(in super::super) async fn belong_to_the_newest_request(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let older = gateways.queue(keyed("twice", &key), 1).await;
    let newer = gateways.ask(keyed("twice", &key));
    let error = older.refused().await;
    assert!(matches!(error, AcquireError::Superseded), "{error:?}");
    assert_eq!(gateways.shown("lock").await.waiters, 1);
    gateways.release("lock", &lease.token).await;
    let lease = newer.granted().await;
    gateways.release("lock", &lease.token).await;
    gateways.idle("lock").await;
}

pub(in super::super) async fn are_not_taken_over_in_other_words(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let caller = gateways.queue(keyed("one", &key), 1).await;
    let error = gateways.ask(keyed("another", &key)).refused().await;
    assert!(
        matches!(error, AcquireError::IdempotencyMismatch),
        "{error:?}"
    );
    assert!(caller.is_waiting());
    gateways.release("lock", &lease.token).await;
    caller.granted().await;
}

pub(in super::super) async fn are_given_up_by_asking_without_waiting(fixture: &dyn Fixture) {
    // Longer than the case may take: nobody may have to wait for it.
    let gateways = Gateways::with_grace(fixture, LONG);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let gone = gateways.queue(keyed("gives up", &key), 1).await;
    let next = gateways.queue(request("lock", "next"), 2).await;
    gone.hang_up();
    gateways.parked(1).await;
    for _ in 0..2 {
        let error = gateways.ask(not_waiting("gives up", &key)).refused().await;
        let AcquireError::Held { contention, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(contention.waiters, 1);
    }
    gateways.release("lock", &lease.token).await;
    let lease = next.granted().await;
    // The key is as good as new.
    let again = gateways.queue(keyed("gives up", &key), 1).await;
    gateways.release("lock", &lease.token).await;
    gateways.release("lock", &again.granted().await.token).await;
    gateways.idle("lock").await;
}

pub(in super::super) async fn that_are_given_up_supersede_whoever_waits_there(
    fixture: &dyn Fixture,
) {
    let gateways = Gateways::with_grace(fixture, LONG);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let waits = gateways.queue(keyed("waits", &key), 1).await;
    let error = gateways.ask(not_waiting("waits", &key)).refused().await;
    assert!(matches!(error, AcquireError::Held { .. }), "{error:?}");
    let error = waits.refused().await;
    assert!(matches!(error, AcquireError::Superseded), "{error:?}");
    assert_eq!(gateways.shown("lock").await.waiters, 0);
    gateways.release("lock", &lease.token).await;
    gateways.idle("lock").await;
}

pub(in super::super) async fn are_not_given_up_in_other_words_or_without_the_key(
    fixture: &dyn Fixture,
) {
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let waits = gateways.queue(keyed("waits", &key), 1).await;
    let error = gateways.ask(not_waiting("another", &key)).refused().await;
    let mismatch = matches!(error, AcquireError::IdempotencyMismatch);
    assert!(mismatch, "{error:?}");
    for looks in [at_once("waits"), not_waiting("waits", &new_key())] {
        let error = gateways.ask(looks).refused().await;
        assert!(matches!(error, AcquireError::Held { .. }), "{error:?}");
    }
    assert!(waits.is_waiting());
    gateways.release("lock", &lease.token).await;
    waits.granted().await;
}

pub(in super::super) async fn are_granted_the_lock_and_answer_it_in_full(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let gone = gateways.queue(keyed("comes back", &key), 1).await;
    gone.hang_up();
    gateways.parked(0).await;
    gateways.release("lock", &lease.token).await;
    assert_eq!(
        gateways.holder("lock").await,
        keyed("comes back", &key).owner
    );
    let error = gateways.ask(at_once("another")).refused().await;
    assert!(matches!(error, AcquireError::Held { .. }), "{error:?}");

    let back = gateways
        .ask(keyed("comes back", &key))
        .answer()
        .await
        .unwrap();
    assert!(back.delivery.is_replay());
    let lease = back.lease;
    assert!(lease.held.expires_in > Duration::from_millis(2 * GRACE));
    // Again and again, by now as any lease.
    let again = gateways.ask(keyed("comes back", &key)).granted().await;
    assert_eq!(again.held.fence, lease.held.fence);
    assert_eq!(again.token.hash(), lease.token.hash());
    gateways.release("lock", &lease.token).await;
    gateways.idle("lock").await;
}

pub(in super::super) async fn pass_on_if_nobody_asks_again(fixture: &dyn Fixture) {
    const SOON: u64 = 1_000;
    let gateways = Gateways::with_grace(fixture, SOON);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let gone = gateways.queue(keyed("gone", &key), 1).await;
    let next = gateways.queue(request("lock", "next"), 2).await;
    gone.hang_up();
    gateways.parked(1).await;
    let released = Instant::now();
    gateways.release("lock", &lease.token).await;
    let lease = next.granted().await;
    assert!(released.elapsed() < Duration::from_millis(SOON) + Duration::from_secs(30));
    // Nobody has heard of that grant, so its key may still be used.
    let back = gateways.queue(keyed("gone", &key), 1).await;
    gateways.release("lock", &lease.token).await;
    assert!(back.granted().await.held.fence > lease.held.fence);
}

pub(in super::super) async fn run_out(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, 300);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let gone = gateways.queue(keyed("gone", &key), 1).await;
    let next = gateways.queue(request("lock", "next"), 2).await;
    gone.hang_up();
    // Nobody asks for it, and yet it goes away.
    let deadline = Instant::now() + LATE;
    loop {
        let error = gateways.ask(at_once("looks")).refused().await;
        let AcquireError::Held { contention, .. } = error else {
            panic!("{error:?}");
        };
        if contention.waiters == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "it is kept for ever");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let shown = gateways.shown("lock").await;
    assert_eq!((shown.queue.len(), shown.waiters), (1, 1));
    assert_eq!(shown.queue[0].owner, request("lock", "next").owner);
    gateways.release("lock", &lease.token).await;
    let lease = next.granted().await;
    assert_eq!(lease.held.owner, request("lock", "next").owner);
    gateways.release("lock", &lease.token).await;
    gateways.idle("lock").await;
}

pub(in super::super) async fn that_were_granted_answer_the_same_lease(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let key = new_key();
    let caller = gateways.queue(keyed("waits", &key), 1).await;
    gateways.release("lock", &lease.token).await;
    let lease = caller.granted().await;
    let again = gateways.ask(keyed("waits", &key)).answer().await.unwrap();
    assert!(again.delivery.is_replay());
    assert_eq!(again.lease.held.fence, lease.held.fence);
    assert_eq!(again.lease.token.hash(), lease.token.hash());
    gateways.release("lock", &lease.token).await;
    let error = gateways.ask(keyed("waits", &key)).refused().await;
    assert!(
        matches!(error, AcquireError::IdempotencyExpired),
        "{error:?}"
    );
}

pub(in super::super) async fn that_were_granted_last_no_longer_for_a_late_leave(
    fixture: &dyn Fixture,
) {
    is_collected_despite(fixture, Arrives::AfterTheGrant, KeptPlace::leave).await;
}

pub(in super::super) async fn that_were_granted_last_no_longer_for_a_late_acquire(
    fixture: &dyn Fixture,
) {
    is_collected_despite(fixture, Arrives::AfterTheGrant, KeptPlace::acquire).await;
}

pub(in super::super) async fn that_were_granted_last_no_longer_for_a_late_confirmation(
    fixture: &dyn Fixture,
) {
    is_collected_despite(fixture, Arrives::AfterTheGrant, KeptPlace::confirm).await;
}

pub(in super::super) async fn that_are_kept_stay_so_when_an_acquire_comes_late(
    fixture: &dyn Fixture,
) {
    is_collected_despite(fixture, Arrives::BeforeTheGrant, KeptPlace::acquire).await;
}

/// When a late copy arrives.
#[derive(PartialEq, Eq)]
enum Arrives {
    BeforeTheGrant,
    AfterTheGrant,
}

/// Whatever copy arrives late, the kept place is granted the lock, and whoever comes back collects it.
async fn is_collected_despite(
    fixture: &dyn Fixture,
    arrives: Arrives,
    late_copy: impl AsyncFnOnce(&KeptPlace),
) {
    let place = KeptPlace::start(fixture).await;
    if arrives == Arrives::BeforeTheGrant {
        late_copy(&place).await;
        place.is_granted().await;
    } else {
        place.is_granted().await;
        late_copy(&place).await;
    }
    place.is_collected().await;
}

/// A lock that is held, and the place of an attempt that has left. Copies of what that one has asked for may
/// arrive yet, and nobody hears what they are answered.
struct KeptPlace {
    store: AnyStore,
    holder: Attempt,
    left: Attempt,
}

impl KeptPlace {
    async fn start(fixture: &dyn Fixture) -> Self {
        let store = fixture.store();
        let holder = attempt("lock", LONG);
        granted(&store, &holder).await;
        let waiting = Waiting {
            max_wait: Duration::from_secs(50),
            longest_queue: 100,
        };
        let left = Attempt {
            wait: Some(waiting),
            ..attempts::keyed("lock", LONG, attempts::key())
        };
        let parked = store.parking().park(left.name.clone(), left.token);
        let answer = store.acquire(&left).await.unwrap();
        assert!(matches!(answer, Acquisition::Queued(_)), "{answer:?}");
        let place = Self {
            store,
            holder,
            left,
        };
        place.leave().await;
        drop(parked);
        place
    }

    async fn leave(&self) {
        let Attempt { name, token, .. } = &self.left;
        let grace = Some(Duration::from_millis(GRACE));
        let answer = self.store.leave(name, token, grace).await.unwrap();
        assert!(matches!(answer, Leaving::Left(_)), "{answer:?}");
    }

    async fn acquire(&self) {
        self.store.acquire(&self.left).await.unwrap();
    }

    async fn confirm(&self) {
        let Attempt { name, token, .. } = &self.left;
        let answer = self.store.confirm(name, token).await.unwrap();
        assert_eq!(answer, Confirmation::Lost);
    }

    /// The lock is released, and passes to the place.
    async fn is_granted(&self) {
        released(&self.store, &self.holder).await;
        eventually("the place is granted the lock", async || self.lease().await).await;
    }

    /// The grant lasts no longer than the place was to be kept, and whoever comes back is the first to hear of it.
    async fn is_collected(&self) {
        let lease = self.lease().await.expect("the place has the lock");
        let grace = Duration::from_millis(GRACE);
        assert!(lease.expires_in <= grace, "{lease:?}");
        let key = self.left.idempotency.clone().expect("it has a key");
        let again = attempts::keyed("lock", LONG, key.hash);
        let answer = self.store.acquire(&again).await.unwrap();
        let Acquisition::Collected(held, salt, _) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!((held.fence, salt), (lease.fence, key.salt));
        assert!(held.expires_in > Duration::from_millis(LONG / 2));
        released(&self.store, &self.left).await;
    }

    async fn lease(&self) -> Option<HeldLease> {
        let shown = self.store.inspect(&self.left.name).await.unwrap();
        match shown.holder? {
            Holder::Lease(held) => Some(held),
            Holder::Shared(_) | Holder::Foreign { .. } => panic!("nobody is foreign"),
        }
    }
}

fn keyed(owner: &str, key: &IdempotencyKey) -> AcquireRequest {
    AcquireRequest {
        idempotency_key: Some(key.clone()),
        // Longer than the grace by far.
        ttl: ttl(30_000),
        ..request("lock", owner)
    }
}

fn not_waiting(owner: &str, key: &IdempotencyKey) -> AcquireRequest {
    AcquireRequest {
        wait: Duration::ZERO,
        ..keyed(owner, key)
    }
}

fn at_once(owner: &str) -> AcquireRequest {
    AcquireRequest {
        wait: Duration::ZERO,
        ..request("lock", owner)
    }
}
