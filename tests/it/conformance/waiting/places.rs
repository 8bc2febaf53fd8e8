//! Positions that are kept for callers that repeat their request with the same idempotency key.

use tokio::sync::oneshot;

use super::{super::attempts, gateways::Caller};
use crate::conformance::prelude::*;

/// Long enough to repeat a request on a busy machine.
const GRACE: u64 = 10_000;

/// A held lock, and a waiter with an idempotency key, at gateways that keep its position for `grace` milliseconds.
async fn placed(
    fixture: &dyn Fixture,
    grace: u64,
    owner: &str,
) -> (Gateways, Lease, IdempotencyKey, Caller) {
    let gateways = Gateways::with_grace(fixture, grace);
    let (lease, key) = (gateways.hold("lock").await, new_key());
    let caller = gateways.queue(keyed(owner, &key), 1).await;
    (gateways, lease, key, caller)
}

pub(crate) async fn are_kept_for_whoever_asks_again(fixture: &dyn Fixture) {
    let (gateways, lease, key, first) = placed(fixture, GRACE, "polls").await;
    let second = gateways.queue(request("lock", "second"), 2).await;
    // The connection breaks, and then waits run out: the position is kept each time.
    first.hang_up();
    for _ in 0..3 {
        let short = with(keyed("polls", &key), |it| {
            it.wait = Duration::from_millis(100);
        });
        gateways.ask(short).held().await;
        assert_eq!(gateways.shown("lock").await.waiters, 2);
    }
    let first = gateways.ask(keyed("polls", &key));
    let lease = gateways.pass(&lease, first).await;
    assert!(second.is_waiting());
    gateways.pass(&lease, second).await;
}

pub(crate) async fn have_waited_since_they_were_first_taken(fixture: &dyn Fixture) {
    const PIECE: Duration = Duration::from_millis(600);
    // An attempt enters the queue a moment after its request has begun to wait, and its wait counts from then.
    const MOMENT: Duration = Duration::from_millis(300);
    let gateways = Gateways::with_grace(fixture, GRACE);
    let lease = gateways.hold("lock").await;
    let (key, began) = (new_key(), Instant::now());
    for pieces in 1..=2 {
        let short = with(keyed("polls", &key), |it| it.wait = PIECE);
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
        // An error means that the test no longer waits for this.
        let _ = queued.send(());
    });
    let told = timeout(LATE, told).await;
    told.expect("in time").expect("it waits");
    let granted = gateways.pass(&lease, last).await;
    let waited = granted.waited;
    assert!(waited + MOMENT >= PIECE * 2, "{waited:?}");
    assert!(waited <= began.elapsed(), "{waited:?}");
    // A request with another key begins another wait.
    let began = Instant::now();
    let next = gateways.queue(keyed("polls", &new_key()), 1).await;
    gateways.release("lock", &granted.token).await;
    let waited = next.granted().await.waited;
    assert!(waited <= began.elapsed(), "{waited:?}");
}

pub(crate) async fn belong_to_the_newest_request(fixture: &dyn Fixture) {
    let (gateways, lease, key, older) = placed(fixture, GRACE, "twice").await;
    let newer = gateways.ask(keyed("twice", &key));
    older.replaced().await;
    assert_eq!(gateways.shown("lock").await.waiters, 1);
    let lease = gateways.pass(&lease, newer).await;
    gateways.end(&lease).await;
}

pub(crate) async fn are_not_taken_over_in_other_words(fixture: &dyn Fixture) {
    let (gateways, lease, key, caller) = placed(fixture, GRACE, "one").await;
    let error = gateways.ask(keyed("another", &key)).refused().await;
    let expected = matches!(error, AcquireError::IdempotencyMismatch);
    assert!(expected, "{error:?}");
    assert!(caller.is_waiting());
    gateways.pass(&lease, caller).await;
}

pub(crate) async fn are_given_up_by_asking_without_waiting(fixture: &dyn Fixture) {
    // The grace is longer than the case may take: no waiter may have to wait for its end.
    let (gateways, lease, key, gone) = placed(fixture, LONG, "gives up").await;
    let next = gateways.queue(request("lock", "next"), 2).await;
    gateways.hang_up(gone, 1).await;
    for _ in 0..2 {
        let told = gateways.ask(not_waiting("gives up", &key)).held().await;
        assert_eq!(told.waiters, 1);
    }
    let lease = gateways.pass(&lease, next).await;
    // The key may be used again.
    let again = gateways.queue(keyed("gives up", &key), 1).await;
    gateways.release("lock", &lease.token).await;
    gateways.release("lock", &again.granted().await.token).await;
    gateways.idle("lock").await;
}

pub(crate) async fn that_are_given_up_supersede_whoever_waits_there(fixture: &dyn Fixture) {
    let (gateways, lease, key, waits) = placed(fixture, LONG, "waits").await;
    gateways.ask(not_waiting("waits", &key)).held().await;
    waits.replaced().await;
    assert_eq!(gateways.shown("lock").await.waiters, 0);
    gateways.end(&lease).await;
}

pub(crate) async fn are_not_given_up_in_other_words_or_without_the_key(fixture: &dyn Fixture) {
    let (gateways, lease, key, waits) = placed(fixture, GRACE, "waits").await;
    let error = gateways.ask(not_waiting("another", &key)).refused().await;
    let mismatch = matches!(error, AcquireError::IdempotencyMismatch);
    assert!(mismatch, "{error:?}");
    for looks in [at_once("waits"), not_waiting("waits", &new_key())] {
        gateways.ask(looks).held().await;
    }
    assert!(waits.is_waiting());
    gateways.pass(&lease, waits).await;
}

pub(crate) async fn are_granted_the_lock_and_answer_it_in_full(fixture: &dyn Fixture) {
    let (gateways, lease, key, gone) = placed(fixture, GRACE, "comes back").await;
    gateways.hang_up(gone, 0).await;
    gateways.release("lock", &lease.token).await;
    let found = gateways.holder("lock").await;
    assert_eq!(found, keyed("comes back", &key).terms.said.owner);
    gateways.ask(at_once("another")).held().await;

    let back = gateways.ask(keyed("comes back", &key));
    let back = back.answer().await.unwrap();
    assert!(back.delivery.is_replay());
    let lease = back.lease;
    assert!(lease.held.expires_in > Duration::from_millis(2 * GRACE));
    // A later request is answered the same lease again, as for any lease with a key.
    let again = gateways.ask(keyed("comes back", &key)).granted().await;
    assert_eq!(again.held.fence, lease.held.fence);
    assert_eq!(again.token.hash(), lease.token.hash());
    gateways.end(&lease).await;
}

pub(crate) async fn pass_on_if_nobody_asks_again(fixture: &dyn Fixture) {
    const SOON: u64 = 1_000;
    let (gateways, lease, key, gone) = placed(fixture, SOON, "gone").await;
    let next = gateways.queue(request("lock", "next"), 2).await;
    gateways.hang_up(gone, 1).await;
    let released = Instant::now();
    let lease = gateways.pass(&lease, next).await;
    assert!(released.elapsed() < Duration::from_millis(SOON) + Duration::from_secs(30));
    // The kept grant was never delivered, so its idempotency key may still be used.
    let back = gateways.queue(keyed("gone", &key), 1).await;
    gateways.release("lock", &lease.token).await;
    assert!(back.granted().await.held.fence > lease.held.fence);
}

pub(crate) async fn run_out(fixture: &dyn Fixture) {
    let (gateways, lease, _, gone) = placed(fixture, 300, "gone").await;
    let next = gateways.queue(request("lock", "next"), 2).await;
    gone.hang_up();
    // The caller does not come back, and the position is removed.
    let is_so = async || gateways.ask(at_once("looks")).held().await.waiters == 1;
    until("it is not kept for ever", is_so).await;
    let shown = gateways.shown("lock").await;
    assert_eq!((shown.queue.len(), shown.waiters), (1, 1));
    assert_eq!(
        shown.queue[0].owner,
        request("lock", "next").terms.said.owner
    );
    let lease = gateways.pass(&lease, next).await;
    assert_eq!(
        lease.held.said.owner,
        request("lock", "next").terms.said.owner
    );
    gateways.end(&lease).await;
}

pub(crate) async fn that_were_granted_answer_the_same_lease(fixture: &dyn Fixture) {
    let (gateways, lease, key, caller) = placed(fixture, GRACE, "waits").await;
    let lease = gateways.pass(&lease, caller).await;
    let again = gateways.ask(keyed("waits", &key)).answer().await.unwrap();
    assert!(again.delivery.is_replay());
    assert_eq!(again.lease.held.fence, lease.held.fence);
    assert_eq!(again.lease.token.hash(), lease.token.hash());
    gateways.release("lock", &lease.token).await;
    let error = gateways.ask(keyed("waits", &key)).refused().await;
    let expected = matches!(error, AcquireError::IdempotencyExpired);
    assert!(expected, "{error:?}");
}

pub(crate) async fn that_were_granted_pass_no_check_until_they_are_collected(
    fixture: &dyn Fixture,
) {
    let place = KeptPlace::start(fixture).await;
    place.is_granted().await;
    let fence = place.lease().await.expect("the place has the lock").fence;
    place.store.must_be_stale("lock", fence).await;
    let key = place.left.idempotency.clone().expect("it has a key");
    let again = attempts::keyed("lock", LONG, key.hash);
    let answer = place.store.acquire(&again).await.unwrap();
    assert!(matches!(answer, Acquisition::Collected(..)), "{answer:?}");
    place.store.must_pass("lock", fence).await;
}

/// Late copies of earlier commands arrive: the kept position is granted the lock all the same, and the caller that
/// comes back gets the grant.
pub(crate) async fn that_are_kept_or_granted_stay_so_when_a_copy_comes_late(fixture: &dyn Fixture) {
    let place = KeptPlace::start(fixture).await;
    place.acquire().await;
    place.is_granted().await;
    place.is_collected().await;
    for late in ["leave", "acquire", "confirm"] {
        let place = KeptPlace::start(fixture).await;
        place.is_granted().await;
        match late {
            "leave" => place.leave().await,
            "acquire" => place.acquire().await,
            _ => place.confirm().await,
        }
        place.is_collected().await;
    }
}

/// A held lock, and the kept position of an attempt that has left. Late copies of this attempt's commands may still
/// arrive, and their answers are not read.
struct KeptPlace {
    store: AnyStore,
    holder: Attempt,
    left: Attempt,
}

impl KeptPlace {
    async fn start(fixture: &dyn Fixture) -> Self {
        let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
        let left = patient(attempts::keyed("lock", LONG, key()));
        let parked = store.stand(&left).await;
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
        let grace = Some(Duration::from_millis(GRACE));
        self.store.must_leave(&self.left, grace).await;
    }

    async fn acquire(&self) {
        self.store.acquire(&self.left).await.unwrap();
    }

    async fn confirm(&self) {
        let lost = Confirmation::Lost;
        self.store.must_not_confirm(&self.left, lost).await;
    }

    /// Releases the lock, which must be granted to the kept position.
    async fn is_granted(&self) {
        released(&self.store, &self.holder).await;
        eventually("the place is granted the lock", async || self.lease().await).await;
    }

    /// Asserts that the grant lives no longer than the grace, and that the caller that comes back is the first to hear
    /// of it.
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
    with(request("lock", owner), |it| {
        it.idempotency_key = Some(key.clone());
        // Far longer than the grace.
        it.terms.set_ttl(ttl(30_000));
    })
}

fn not_waiting(owner: &str, key: &IdempotencyKey) -> AcquireRequest {
    with(keyed(owner, key), |it| it.wait = Duration::ZERO)
}

fn at_once(owner: &str) -> AcquireRequest {
    with(request("lock", owner), |it| it.wait = Duration::ZERO)
}
