//! Clause 17: a lock never goes back to a lower order than the highest for which it was granted.

use latchgate::{
    lock::{Order, OrderNumber},
    store::contract::{GrantedOrder, OrderChange, OrderSetting, Superseding},
};

use crate::conformance::prelude::*;

/// Longer than any news take on a busy machine, and shorter than a wait: no news come only because a wait is over.
const SOON: Duration = Duration::from_secs(30);
/// How long a position is kept: longer than any case takes.
const GRACE: Option<Duration> = Some(Duration::from_mins(1));

/// The attempt with an order.
fn ordered(number: u64, attempt: Attempt) -> Attempt {
    with(attempt, |it| it.terms.said.order = order(number, None))
}

#[expect(clippy::unnecessary_wraps, reason = "a request may have no order")]
fn order(number: u64, rollback: Option<&str>) -> Option<Box<Order>> {
    Some(Box::new(Order {
        number: OrderNumber::new(number).unwrap(),
        by: Some("ci".into()),
        rollback: rollback.map(|why| Reason::new(why).unwrap()),
    }))
}

/// A new attempt with an order.
fn run(number: u64) -> Attempt {
    ordered(number, attempt("lock", LONG))
}

/// A new attempt with an order that waits.
fn waits(number: u64) -> Attempt {
    patient(run(number))
}

/// A new attempt with an order and an idempotency key that waits.
fn keyed_run(number: u64, key: IdempotencyHash) -> Attempt {
    under(key, waits(number))
}

/// A new attempt for the lock of `earlier`, with its key and terms.
fn again(earlier: &Attempt) -> Attempt {
    with(earlier.clone(), |it| it.token = token())
}

/// The attempt with a key of `supersedes`.
fn newest(waited_before_ms: u64, attempt: Attempt) -> Attempt {
    let superseding = Superseding {
        hash: SupersedeHash::from_bytes([7; 16]),
        waited_before: Duration::from_millis(waited_before_ms),
    };
    with(attempt, |it| {
        it.wait.as_mut().expect("it waits").supersedes = Some(superseding);
    })
}

/// Acquires and releases the lock with an order.
async fn deployed(store: &AnyStore, number: u64) -> Attempt {
    let deploy = run(number);
    granted(store, &deploy).await;
    released(store, &deploy).await;
    deploy
}

/// Acquires the lock, which must be refused because of its order.
async fn outdated(store: &AnyStore, attempt: &Attempt) -> GrantedOrder {
    match store.acquire(attempt).await {
        Ok(Acquisition::OutdatedOrder(granted)) => granted,
        other => panic!("it is not outdated: {other:?}"),
    }
}

async fn is_newer_waiter(store: &AnyStore, attempt: &Attempt) {
    let answer = store.acquire(attempt).await;
    assert_eq!(answer, Ok(Acquisition::NewerWaiter));
}

/// What the lock remembers.
async fn remembers(store: &AnyStore) -> Option<GrantedOrder> {
    store.inspect(&name("lock")).await.unwrap().granted_order
}

/// The order that the lock remembers.
async fn highest(store: &AnyStore) -> Option<u64> {
    remembers(store).await.map(|order| order.number.get())
}

async fn waiters(store: &AnyStore) -> u64 {
    store.inspect(&name("lock")).await.unwrap().waiters
}

async fn change(store: &AnyStore, seen: Option<u64>, new: Option<u64>) -> OrderSetting {
    let number = |number: Option<u64>| number.map(|it| OrderNumber::new(it).unwrap());
    let (seen, new) = (number(seen), number(new));
    let change = OrderChange { seen, new };
    store.set_order(&name("lock"), change).await.unwrap()
}

async fn set(store: &AnyStore, seen: Option<u64>, new: Option<u64>) {
    assert_eq!(change(store, seen, new).await, OrderSetting::Set);
}

/// An attempt that waits in the queue, at a gateway.
struct Waiter {
    store: AnyStore,
    asked: Attempt,
    place: Parked,
}

impl Waiter {
    async fn stands(store: &AnyStore, asked: Attempt) -> Self {
        let place = store.stand(&asked).await;
        let store = store.clone();
        Self {
            store,
            asked,
            place,
        }
    }

    /// Waits for the answer, as a gateway does: asks again if the store has forgotten the position.
    async fn answer(&mut self) -> Acquisition {
        let news = timeout(SOON, self.place.news()).await;
        match news.expect("there are news in time") {
            News::Granted(_) | News::GrantedProvisionally => {
                Acquisition::Granted(self.store.must_confirm(&self.asked).await)
            }
            News::NewerWaiter => Acquisition::NewerWaiter,
            News::Forgotten => {
                self.place.rearm();
                self.store.acquire(&self.asked).await.unwrap()
            }
            other @ News::Replaced => panic!("{other:?}"),
        }
    }

    async fn granted(mut self) -> Attempt {
        match self.answer().await {
            Acquisition::Granted(_) => self.asked,
            other => panic!("it is not granted: {other:?}"),
        }
    }

    async fn outdated(mut self) {
        match self.answer().await {
            Acquisition::OutdatedOrder(_) => {}
            other => panic!("it is not outdated: {other:?}"),
        }
    }

    async fn must_be_removed_by_a_newer(mut self) {
        assert_eq!(self.answer().await, Acquisition::NewerWaiter);
    }

    /// Leaves, and its position is kept.
    async fn leaves(self) -> Attempt {
        self.store.must_leave(&self.asked, GRACE).await;
        self.asked
    }
}

/// The lock, held with order 1, and these waiters in turn at each gateway.
async fn queue<const N: usize>(
    fixture: &dyn Fixture,
    waiters: [Attempt; N],
) -> (AnyStore, Attempt, [Waiter; N]) {
    let (store, holder) = holding(fixture, run(1)).await;
    let gateways = fixture.gateways();
    let mut standing = Vec::new();
    for (at, asked) in waiters.into_iter().enumerate() {
        // The first waits at the gateway that does not release the lock.
        let gateway = &gateways[(at + 1) % gateways.len()];
        standing.push(Waiter::stands(gateway, asked).await);
    }
    let standing = standing.try_into().ok().expect("as many as were given");
    (store, holder, standing)
}

pub(crate) async fn of_a_lower_number_is_refused_and_told_of_the_grant(fixture: &dyn Fixture) {
    let began = Instant::now();
    let (store, holder) = holding(fixture, owned("run 7", run(7))).await;
    for restarted in [false, true] {
        for is_held in [true, false] {
            if !is_held && !restarted {
                released(&store, &holder).await;
            }
            fixture.restart_if(restarted).await;
            for store in fixture.gateways() {
                for late in [run(6), waits(0), keyed_run(6, key()), waits(6)] {
                    let _place = store.park(&late);
                    let told = outdated(&store, &late).await;
                    assert_eq!(told.number.get(), 7);
                    let grant = told.grant.expect("it was granted");
                    assert_eq!(grant.by.as_deref(), Some("ci"));
                    assert_eq!(grant.owner, holder.terms.said.owner);
                    assert!(grant.ago <= began.elapsed(), "{grant:?}");
                    let shown = remembers(&store).await.and_then(|it| it.grant);
                    let shown = shown.expect("it is shown");
                    assert_eq!((shown.by, shown.owner), (grant.by, grant.owner));
                    assert!((grant.ago..=began.elapsed()).contains(&shown.ago));
                    assert_eq!(waiters(&store).await, 0);
                }
            }
        }
    }
    let store = fixture.store();
    assert!(is_free(&store, "lock").await);
    // Another lock remembers nothing.
    granted(&store, &ordered(1, attempt("another", LONG))).await;
}

pub(crate) async fn of_the_same_or_a_higher_number_passes(fixture: &dyn Fixture) {
    let store = fixture.store();
    for number in [0, 7, 7, 8, OrderNumber::MAX.get()] {
        let lease = granted(&fixture.last(), &run(number)).await;
        assert_eq!(lease.said.order, order(number, None));
        assert_eq!(highest(&store).await, Some(number));
        let broken = store.must_break(&name("lock"), None).await;
        assert_eq!(broken.leases()[0].said.order, order(number, None));
    }
    outdated(&store, &run(OrderNumber::MAX.get() - 1)).await;
}

pub(crate) async fn is_compared_with_nothing_if_there_is_none(fixture: &dyn Fixture) {
    let store = fixture.store();
    let (first, second) = (attempt("lock", LONG), attempt("lock", LONG));
    granted(&store, &first).await;
    released(&store, &first).await;
    assert_eq!(remembers(&store).await, None);
    deployed(&store, 7).await;
    let before = highest(&store).await;
    granted(&store, &second).await;
    assert_eq!(highest(&store).await, before);
    let waiter = Waiter::stands(&fixture.last(), patient(attempt("lock", LONG))).await;
    released(&store, &second).await;
    released(&store, &waiter.granted().await).await;
    assert_eq!(highest(&store).await, before);
}

pub(crate) async fn of_a_rollback_is_neither_compared_nor_remembered(fixture: &dyn Fixture) {
    let store = fixture.store();
    let rollback = |number| {
        with(attempt("lock", LONG), |it| {
            it.terms.said.order = order(number, Some("7 is broken"));
        })
    };
    let first = rollback(9);
    granted(&store, &first).await;
    assert_eq!(remembers(&store).await, None);
    released(&store, &first).await;
    let newest = deployed(&store, 7).await;
    let back = rollback(6);
    let lease = granted(&store, &back).await;
    assert_eq!(lease.said.order, order(6, Some("7 is broken")));
    assert_eq!(highest(&store).await, Some(7));
    let waiting = Waiter::stands(&fixture.last(), patient(rollback(5))).await;
    outdated(&store, &waits(6)).await;
    let next = Waiter::stands(&store, waits(8)).await;
    released(&store, &back).await;
    released(&store, &waiting.granted().await).await;
    next.granted().await;
    assert_eq!(highest(&store).await, Some(8));
    // The lease of the grant has ended, so nothing is taken back.
    let release = store.release_as(Releaser::Unused, &newest.name, &newest.token, true);
    assert!(matches!(release.await, Ok(Release::Lost(_))));
    assert_eq!(highest(&store).await, Some(8));
}

pub(crate) async fn is_not_compared_for_an_attempt_that_has_its_lease(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, run(7)).await;
    set(&store, Some(7), Some(99)).await;
    granted(&fixture.last(), &holder).await;
    released(&store, &holder).await;
    set(&store, Some(99), None).await;
    let first = keyed_run(7, key());
    granted(&store, &first).await;
    set(&store, Some(7), Some(99)).await;
    let answer = fixture.last().acquire(&again(&first)).await;
    assert!(
        matches!(answer, Ok(Acquisition::Replayed(..))),
        "{answer:?}"
    );
    // A repetition remembers nothing either.
    assert_eq!(highest(&store).await, Some(99));
    released(&store, &first).await;
    let answer = store.acquire(&again(&first)).await;
    assert_eq!(answer, Ok(Acquisition::IdempotencyExpired));
}

pub(crate) async fn that_becomes_outdated_in_the_queue_leaves_it_and_the_next_is_granted(
    fixture: &dyn Fixture,
) {
    let (store, holder, [nine, three, four, ten, five]) =
        queue(fixture, [9, 3, 4, 10, 5].map(waits)).await;
    released(&store, &holder).await;
    let nine = nine.granted().await;
    assert_eq!(highest(&store).await, Some(9));
    assert_eq!(waiters(&store).await, 4);
    released(&store, &nine).await;
    three.outdated().await;
    four.outdated().await;
    let ten = ten.granted().await;
    assert_eq!(highest(&store).await, Some(10));
    released(&store, &ten).await;
    five.outdated().await;
    assert_eq!(waiters(&store).await, 0);
    assert!(is_free(&store, "lock").await);
}

pub(crate) async fn of_all_waiters_outdated_leaves_the_lock_free(fixture: &dyn Fixture) {
    let (store, holder, [nine, three, four]) = queue(fixture, [9, 3, 4].map(waits)).await;
    released(&store, &holder).await;
    let nine = nine.granted().await;
    released(&store, &nine).await;
    three.outdated().await;
    four.outdated().await;
    assert!(is_free(&store, "lock").await);
    deployed(&store, 9).await;
}

/// More waiters are outdated than one script of Redis removes.
pub(crate) async fn of_a_crowd_outdated_delays_nobody(fixture: &dyn Fixture) {
    let (store, holder, [nine]) = queue(fixture, [waits(9)]).await;
    let gateways = fixture.gateways();
    let mut crowd = Vec::new();
    for at in 0..90 {
        let asked = with(waits(3), |it| {
            it.wait.as_mut().expect("it waits").longest_queue = 1_000;
        });
        crowd.push(Waiter::stands(&gateways[at % gateways.len()], asked).await);
    }
    let last = Waiter::stands(&store, waits(9)).await;
    released(&store, &holder).await;
    released(&store, &nine.granted().await).await;
    last.granted().await;
    for waiter in crowd {
        waiter.outdated().await;
    }
}

pub(crate) async fn of_a_lease_that_was_not_used_is_taken_back(fixture: &dyn Fixture) {
    let store = fixture.store();
    for before in [None, Some(7)] {
        for way in ["unused", "undelivered", "given back", "unanswered"] {
            if let Some(number) = before {
                deployed(&store, number).await;
            }
            let asked = run(9);
            granted(&fixture.last(), &asked).await;
            assert_eq!(highest(&store).await, Some(9));
            let Attempt { name, token, .. } = &asked;
            let recipient = RecipientId::of_attempt(token);
            let releaser = match way {
                "unused" => Some(Releaser::Unused),
                "undelivered" => Some(Releaser::Undelivered(recipient)),
                _ => None,
            };
            if let Some(releaser) = releaser {
                let release = store.release_as(releaser, name, token, true).await;
                assert!(matches!(release, Ok(Release::Released(_))), "{release:?}");
            } else {
                let unanswered = (way == "unanswered").then_some(recipient);
                let outcome = store.give_back(name, token, unanswered).await;
                assert_eq!(outcome, Ok(GiveBack::GivenBack));
            }
            let left = before.map(|number| GrantedOrder {
                number: OrderNumber::new(number).unwrap(),
                grant: None,
            });
            assert_eq!(remembers(&store).await, left, "{way}");
            deployed(&store, 8).await;
            set(&store, Some(8), None).await;
        }
    }
    // What is not remembered of this lease any more stays.
    let asked = run(9);
    granted(&store, &asked).await;
    set(&store, Some(9), Some(5)).await;
    let release = store.release_as(Releaser::Unused, &asked.name, &asked.token, true);
    assert!(matches!(release.await, Ok(Release::Released(_))));
    assert_eq!(highest(&store).await, Some(5));
}

pub(crate) async fn that_is_taken_back_lets_the_next_waiter_pass(fixture: &dyn Fixture) {
    for unused in [true, false] {
        let (store, holder, [nine, three]) = queue(fixture, [9, 3].map(waits)).await;
        released(&store, &holder).await;
        let nine = nine.granted().await;
        assert_eq!(highest(&store).await, Some(9));
        if unused {
            let release = store.release_as(Releaser::Unused, &nine.name, &nine.token, true);
            assert!(matches!(release.await, Ok(Release::Released(_))));
        } else {
            store.must_give_back(&nine, GiveBack::GivenBack).await;
        }
        let three = three.granted().await;
        assert_eq!(highest(&store).await, Some(3));
        released(&store, &three).await;
        set(&store, Some(3), None).await;
    }
}

pub(crate) async fn is_set_if_it_is_the_one_that_was_seen(fixture: &dyn Fixture) {
    let store = fixture.store();
    set(&fixture.last(), None, Some(5)).await;
    assert_eq!(highest(&store).await, Some(5));
    outdated(&store, &run(4)).await;
    deployed(&store, 6).await;
    let seen = remembers(&store).await.expect("it was granted");
    for (seen_before, new) in [(Some(5), None), (None, Some(7)), (Some(7), Some(8))] {
        let OrderSetting::Changed(Some(told)) = change(&store, seen_before, new).await else {
            panic!("it has changed")
        };
        assert_eq!(told.number, seen.number);
        let (told, seen) = (told.grant.expect("a grant"), seen.grant.as_ref());
        assert_eq!(Some(&told.owner), seen.map(|it| &it.owner));
    }
    for (seen, new) in [(Some(6), Some(2)), (Some(2), Some(9)), (Some(9), None)] {
        // A repetition does no harm.
        set(&fixture.store(), seen, new).await;
        set(&fixture.last(), seen, new).await;
        let left = new.map(|number| GrantedOrder {
            number: OrderNumber::new(number).unwrap(),
            grant: None,
        });
        let store = fixture.restart_if(true).await;
        assert_eq!(remembers(&store).await, left);
    }
    let store = fixture.store();
    let changed = change(&store, Some(9), Some(8)).await;
    assert_eq!(changed, OrderSetting::Changed(None));
    deployed(&store, 1).await;
}

pub(crate) async fn decides_which_of_two_waiters_stays(fixture: &dyn Fixture) {
    let (store, _holder, [five]) = queue(fixture, [newest(0, waits(5))]).await;
    // A lower one leaves, whenever it came, and however long it has waited.
    for waited_before in [0, 5_000] {
        is_newer_waiter(&store, &newest(waited_before, waits(4))).await;
    }
    assert_eq!(waiters(&store).await, 1);
    // Of two with the same order, or if one has none, the one that came later stays.
    let same = Waiter::stands(&store, newest(0, waits(5))).await;
    five.must_be_removed_by_a_newer().await;
    let none = newest(0, patient(attempt("lock", LONG)));
    let none = Waiter::stands(&store, none).await;
    same.must_be_removed_by_a_newer().await;
    let two = Waiter::stands(&store, newest(0, waits(2))).await;
    none.must_be_removed_by_a_newer().await;
    // A higher one stays, even if it has waited for longer.
    let seven = Waiter::stands(&fixture.last(), newest(5_000, waits(7))).await;
    two.must_be_removed_by_a_newer().await;
    // A kept position counts.
    let kept = newest(0, keyed_run(8, key()));
    let kept = Waiter::stands(&store, kept).await;
    seven.must_be_removed_by_a_newer().await;
    let kept = kept.leaves().await;
    is_newer_waiter(&store, &newest(0, waits(7))).await;
    let kept = Waiter::stands(&store, again(&kept)).await;
    assert_eq!(waiters(&store).await, 1);
    drop(kept);
}

pub(crate) async fn leaves_it_to_the_arrival_which_of_two_waiters_stays(fixture: &dyn Fixture) {
    const AGES: u64 = 60_000;
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    let one = |waited_before| newest(waited_before, patient(attempt("lock", LONG)));
    let mut first = Waiter::stands(&fixture.last(), one(AGES)).await;
    // This one has waited for longer, so the other is the newer.
    is_newer_waiter(&store, &one(2 * AGES)).await;
    let second = Waiter::stands(&store, one(AGES / 2)).await;
    assert_eq!(first.answer().await, Acquisition::NewerWaiter);
    is_newer_waiter(&store, &one(AGES)).await;
    let third = Waiter::stands(&fixture.last(), one(0)).await;
    second.must_be_removed_by_a_newer().await;
    is_newer_waiter(&store, &one(AGES)).await;
    // A refused attempt has taken nobody out.
    released(&store, &holder).await;
    let third = third.granted().await;
    // A position that was taken over has arrived when it was first taken.
    let first = newest(0, patient(keyed("lock", LONG, key())));
    let first = Waiter::stands(&store, first).await.leaves().await;
    sleep(Duration::from_secs(1)).await;
    let back = Waiter::stands(&fixture.last(), again(&first)).await;
    let second = Waiter::stands(&store, one(500)).await;
    back.must_be_removed_by_a_newer().await;
    released(&store, &third).await;
    second.granted().await;
}

pub(crate) async fn that_is_outdated_keeps_nobody_from_sharing_the_lock(fixture: &dyn Fixture) {
    let (store, reads) = holding(fixture, reader("lock", LONG)).await;
    let last = fixture.last();
    let writer = Waiter::stands(&last, waits(5)).await;
    let behind = Waiter::stands(&store, patient(reader("lock", LONG))).await;
    set(&store, None, Some(9)).await;
    behind.granted().await;
    writer.outdated().await;
    assert_eq!(holders(&store, "lock").await, 2);
    // The same if the waiter asks again, and is refused.
    let writer = Waiter::stands(&last, waits(9)).await;
    let behind = Waiter::stands(&store, patient(reader("lock", LONG))).await;
    set(&store, Some(9), Some(10)).await;
    outdated(&last, &writer.asked).await;
    behind.granted().await;
    assert_eq!(waiters(&store).await, 0);
    released(&store, &reads).await;
}

pub(crate) async fn of_a_kept_position_counts_when_its_grant_is_collected(fixture: &dyn Fixture) {
    let (store, holder, [five]) = queue(fixture, [keyed_run(5, key())]).await;
    let left = five.leaves().await;
    released(&store, &holder).await;
    until("the position is granted the lock", async || {
        store.must_be_held(&name("lock")).await.said.order == left.terms.said.order
    })
    .await;
    assert_eq!(highest(&store).await, Some(1));
    let back = again(&left);
    let answer = fixture.last().acquire(&back).await;
    assert!(
        matches!(answer, Ok(Acquisition::Collected(..))),
        "{answer:?}"
    );
    assert_eq!(highest(&store).await, Some(5));
    // The recipient of the lease was told of it, so its release leaves the order.
    released(&store, &left).await;
    assert_eq!(highest(&store).await, Some(5));
}

pub(crate) async fn of_a_kept_position_is_compared_when_its_grant_is_collected(
    fixture: &dyn Fixture,
) {
    let (store, holder, [five]) = queue(fixture, [keyed_run(5, key())]).await;
    let left = five.leaves().await;
    let next = Waiter::stands(&store, waits(6)).await;
    released(&store, &holder).await;
    set(&store, Some(1), Some(6)).await;
    let back = again(&left);
    outdated(&fixture.last(), &back).await;
    let next = next.granted().await;
    assert_eq!(waiters(&store).await, 0);
    released(&store, &next).await;
    // The key is not used up, and its order is too low.
    outdated(&store, &back).await;
}

pub(crate) async fn of_a_kept_position_that_is_outdated_passes_the_lock_on(fixture: &dyn Fixture) {
    let (store, holder, [nine, five, ten]) =
        queue(fixture, [waits(9), keyed_run(5, key()), waits(10)]).await;
    let left = five.leaves().await;
    released(&store, &holder).await;
    released(&store, &nine.granted().await).await;
    ten.granted().await;
    outdated(&store, &again(&left)).await;
    assert_eq!(waiters(&store).await, 0);
}

pub(crate) async fn that_is_outdated_gives_up_its_own_position_only(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    let last = fixture.last();
    let hash = key();
    let twelve = Waiter::stands(&last, keyed_run(12, hash)).await;
    let five = Waiter::stands(&last, waits(5)).await;
    let kept = Waiter::stands(&store, keyed_run(6, key())).await;
    let kept = kept.leaves().await;
    let lives = Waiter::stands(&last, keyed_run(7, key())).await;
    let asked = lives.asked.clone();
    set(&store, None, Some(9)).await;
    // An attempt that asks again, one that comes back to its kept position, and one that takes over from another.
    for (left, late) in [
        (3, five.asked.clone()),
        (2, again(&kept)),
        (1, again(&asked)),
    ] {
        outdated(&store, &late).await;
        assert_eq!(waiters(&store).await, left);
    }
    lives.outdated().await;
    // The key of another request that still waits was used for other words.
    outdated(&store, &keyed_run(8, hash)).await;
    assert_eq!(waiters(&store).await, 1);
    released(&store, &holder).await;
    twelve.granted().await;
    assert_eq!(highest(&store).await, Some(12));
}
