//! Clause 15: a lock, exclusive or shared, rests until the minimum hold of a released lease is over.

use std::convert::Infallible;

use latchgate::{engine::GroupRequest, lock::GroupNames, store::contract::SHOWN_HOLDERS};

use super::super::waiting::streams::{Gateway, granted as granted_by};
use crate::conformance::prelude::*;

/// The minimum hold in the cases that wait for its end: longer than a case needs to release its lease.
const REST: u64 = 5_000;

/// The attempt with a minimum hold.
fn cooling(ms: u64, attempt: Attempt) -> Attempt {
    let min_hold = MinHold::from_millis(ms, attempt.terms.ttl()).unwrap();
    with(attempt, |it| it.terms.min_hold = Some(min_hold))
}

/// A request of this owner with a minimum hold.
fn cooling_request(ms: u64, request: AcquireRequest) -> AcquireRequest {
    let min_hold = MinHold::from_millis(ms, request.terms.ttl()).unwrap();
    with(request, |it| it.terms.min_hold = Some(min_hold))
}

/// The rests of a lock, which no lease holds.
async fn rests(store: &AnyStore, lock: &str) -> Vec<HeldLease> {
    let holder = store.inspect(&name(lock)).await.unwrap().holder;
    let holder = holder.unwrap_or_else(|| panic!("{lock} does not rest"));
    assert!(holder.is_resting(), "{holder:?}");
    holder.leases().to_vec()
}

/// Releases a lease, and returns the rest that it leaves.
async fn rested(store: &AnyStore, lease: &Attempt) -> HeldLease {
    released(store, lease).await;
    let [rest] = &rests(store, lease.name.as_str()).await[..] else {
        panic!("one rests");
    };
    rest.clone()
}

pub(crate) async fn keep_the_lock_until_the_minimum_hold_is_over(fixture: &dyn Fixture) {
    let store = fixture.store();
    let began = Instant::now();
    let first = owned("ann", cooling(REST, attempt("lock", LONG)));
    let lease = granted(&store, &first).await;
    assert!(!lease.is_resting);
    let rest = rested(&store, &first).await;
    assert_eq!((rest.fence, rest.said.owner), (lease.fence, None));
    store.must_be_stale("lock", lease.fence).await;
    assert!(rest.expires_in <= Duration::from_millis(REST));
    // The token is dead, and a repeated release does no harm.
    store.must_have_lost(&first, Loss::HeldByAnother).await;
    let refused = store.must_refuse(&attempt("lock", LONG)).await;
    assert!(refused.holder.is_some_and(|holder| holder.is_resting()));
    let next = store.until_granted(&attempt("lock", LONG)).await;
    assert!(began.elapsed() >= Duration::from_millis(REST));
    assert!(next.fence > lease.fence);
}

pub(crate) async fn do_not_come_after_the_minimum_hold(fixture: &dyn Fixture) {
    let (store, lease) = holding(fixture, cooling(SHORT / 2, attempt("lock", LONG))).await;
    renewed(&store, &lease, SHORT).await;
    sleep(Duration::from_millis(SHORT / 2 + 50)).await;
    released(&store, &lease).await;
    assert!(is_free(&store, "lock").await);
}

pub(crate) async fn are_not_left_by_what_was_not_delivered(fixture: &dyn Fixture) {
    let store = fixture.store();
    for way in 0..4 {
        let lease = store.must_hold(cooling(LONG, attempt("lock", LONG))).await;
        let recipient = RecipientId::of_attempt(&lease.token);
        let (lock, token) = (&lease.name, &lease.token);
        match way {
            0 => store.must_give_back(&lease, GiveBack::GivenBack).await,
            1 => {
                let given_back = store.give_back(lock, token, Some(recipient)).await;
                assert_eq!(given_back, Ok(GiveBack::GivenBack));
            }
            _ => {
                let unused = [Releaser::Undelivered(recipient), Releaser::Unused][way - 2];
                let release = store.release_as(unused, lock, token, true).await;
                assert!(matches!(release, Ok(Release::Released(_))));
            }
        }
        assert!(is_free(&store, "lock").await, "{way}");
    }
    let lease = store.must_hold(cooling(LONG, attempt("lock", LONG))).await;
    let recipient = Releaser::Recipient(RecipientId::of_attempt(&lease.token));
    let release = store
        .release_as(recipient, &lease.name, &lease.token, true)
        .await;
    assert!(matches!(release, Ok(Release::Released(_))));
    rests(&store, "lock").await;
}

pub(crate) async fn are_not_left_by_a_lease_that_was_asked_for(fixture: &dyn Fixture) {
    let (store, lease) = holding(fixture, cooling(LONG, attempt("lock", LONG))).await;
    let request = ReleaseRequest {
        by: None,
        reason: Reason::new("it is needed").unwrap(),
        within: Duration::from_mins(1),
    };
    let asked = store.request_release(&lease.name, None, &request).await;
    assert!(matches!(asked, Ok(Requesting::Requested(_))), "{asked:?}");
    released(&store, &lease).await;
    assert!(is_free(&store, "lock").await);
}

pub(crate) async fn are_ended_by_a_break(fixture: &dyn Fixture) {
    let store = fixture.store();
    for named in [true, false] {
        let lease = store.must_hold(cooling(LONG, attempt("lock", LONG))).await;
        let rest = rested(&store, &lease).await;
        let target = named.then_some(BreakTarget::Lease(rest.fence));
        let broken = store.must_break(&lease.name, target).await;
        assert!(broken.is_resting());
        assert!(is_free(&store, "lock").await);
        store.must_not_release(&lease, Loss::Free).await;
    }
}

pub(crate) async fn survive_a_restart(fixture: &dyn Fixture) {
    let (store, lease) = holding(fixture, cooling(LONG, attempt("lock", LONG))).await;
    let rest = rested(&store, &lease).await;
    let store = fixture.restart_if(true).await;
    let [after] = &rests(&store, "lock").await[..] else {
        panic!("one rests");
    };
    assert_eq!(after.fence, rest.fence);
    assert!(after.expires_in <= rest.expires_in);
    refused(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn keep_the_idempotency_key_used(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = cooling(REST, keyed("lock", LONG, key()));
    granted(&store, &first).await;
    rested(&store, &first).await;
    released(&store, &first).await;
    store.must_expire(&first).await;
    let idempotency = first.idempotency.clone();
    let again = with(cooling(REST, attempt("lock", LONG)), |it| {
        it.idempotency = idempotency;
    });
    store.must_expire(&again).await;
    store.until_free("lock").await;
    store.must_expire(&again).await;
    released(&store, &first).await;
}

pub(crate) async fn of_a_slot_count_for_limits_and_writers(fixture: &dyn Fixture) {
    let store = fixture.store();
    let began = Instant::now();
    let first = cooling(REST, one_of(2, "lock", LONG));
    assert_eq!(granted(&store, &first).await.mode.slot(), Some(0));
    assert_eq!(rested(&store, &first).await.mode.slot(), Some(0));
    let second = one_of(2, "lock", LONG);
    assert_eq!(granted(&store, &second).await.mode.slot(), Some(1));
    refused(&store, &one_of(2, "lock", LONG)).await;
    refused(&store, &attempt("lock", LONG)).await;
    // One holds the lock, and one rests.
    let shown = sharers(&store, "lock").await;
    let resting = shown.leases.iter().filter(|lease| lease.is_resting);
    assert_eq!((shown.count, resting.count()), (2, 1));
    // Readers may share a lock of which a slot rests.
    let reader = store.must_hold(reader("lock", LONG)).await;
    store.must_release_each([&second, &reader]).await;
    assert_eq!(rests(&store, "lock").await.len(), 1);
    let next = store.until_granted(&attempt("lock", LONG)).await;
    assert!(began.elapsed() >= Duration::from_millis(REST), "{next:?}");
}

pub(crate) async fn that_are_many_hide_no_holder(fixture: &dyn Fixture) {
    let store = fixture.store();
    let places = SHOWN_HOLDERS as u64 + 10;
    for _ in 0..places - 3 {
        let attempt = cooling(LONG / 2, one_of(places, "lock", LONG));
        let lease = store.must_hold(attempt).await;
        released(&store, &lease).await;
    }
    for _ in 0..2 {
        store.must_hold(one_of(places, "lock", LONG)).await;
    }
    let shown = sharers(&store, "lock").await;
    assert_eq!((shown.count, shown.resting), (109, 107));
    assert_eq!(shown.leases.len(), SHOWN_HOLDERS);
    let resting: Vec<_> = shown.leases.iter().map(|lease| lease.is_resting).collect();
    assert_eq!(
        resting,
        [vec![false; 2], vec![true; SHOWN_HOLDERS - 2]].concat()
    );
}

pub(crate) async fn are_not_counted_as_holders_however_many_there_are(fixture: &dyn Fixture) {
    let store = fixture.store();
    let places = SHOWN_HOLDERS as u64 + 10;
    let holder = || owned("ann", one_of(places, "lock", LONG));
    for _ in 0..4 {
        let lease = store.must_hold(cooling(LONG / 2, holder())).await;
        released(&store, &lease).await;
    }
    for _ in 0..SHOWN_HOLDERS + 3 {
        store.must_hold(holder()).await;
    }
    let refused = store.must_refuse(&attempt("lock", LONG)).await;
    let mut views = vec![refused.holder.unwrap()];
    views.push(store.inspect(&name("lock")).await.unwrap().holder.unwrap());
    let all = list_query(10, None);
    let anns = with(list_query(10, None), |it| {
        it.filter.owner = Some(Owner::new("ann").unwrap());
    });
    for query in [all, anns] {
        let page = store.list(&query).await.unwrap();
        views.extend(page.locks.into_iter().map(|lock| lock.holder));
    }
    assert_eq!(views.len(), 4);
    for view in views {
        assert_eq!((view.count(), view.holders()), (107, 103), "{view:?}");
        assert_eq!(view.leases().len(), SHOWN_HOLDERS);
        assert!(view.leases().iter().all(|lease| !lease.is_resting));
    }
    let broken = store
        .must_break(&name("lock"), Some(BreakTarget::All))
        .await;
    assert_eq!((broken.count(), broken.holders()), (107, 103));
}

pub(crate) async fn of_slots_are_n_per_period(fixture: &dyn Fixture) {
    let store = fixture.store();
    let began = Instant::now();
    for _ in 0..3 {
        let lease = store
            .must_hold(cooling(REST, one_of(3, "lock", LONG)))
            .await;
        released(&store, &lease).await;
    }
    refused(&store, &one_of(3, "lock", LONG)).await;
    let rests = rests(&store, "lock").await;
    let fence = rests[1].fence;
    store.must_break(&name("lock"), Some(fence.into())).await;
    let slot = granted(&store, &one_of(3, "lock", LONG)).await.mode.slot();
    assert_eq!(slot, rests[1].mode.slot());
    refused(&store, &one_of(3, "lock", LONG)).await;
    store.until_granted(&one_of(3, "lock", LONG)).await;
    assert!(began.elapsed() >= Duration::from_millis(REST));
}

pub(crate) async fn are_on_a_list(fixture: &dyn Fixture) {
    let (store, lease) = holding(fixture, cooling(LONG, attempt("lock", LONG))).await;
    let rest = rested(&store, &lease).await;
    let page = store.list(&list_query(10, None)).await.unwrap();
    let [lock] = &page.locks[..] else {
        panic!("{page:?}");
    };
    let [shown] = lock.holder.leases() else {
        panic!("{lock:?}");
    };
    assert_eq!((shown.is_resting, shown.fence), (true, rest.fence));
}

/// How soon after the end of a rest the next waiter is granted the lock, with fallbacks and a busy machine.
const SOON: Duration = Duration::from_secs(30);

pub(crate) async fn hand_the_lock_to_the_first_who_waits_when_they_end(fixture: &dyn Fixture) {
    // The end of a longer rest is noticed by the rounds, and not by a message.
    for ms in [REST, 5_500] {
        let began = Instant::now();
        let asked = cooling_request(ms, request("lock", "first holder"));
        let (gateways, lease) = Gateways::holding_as(fixture, asked).await;
        let callers = ["first", "second"].map(|owner| request("lock", owner));
        let [first, second] = <[_; 2]>::try_from(gateways.queue_each(callers).await)
            .unwrap_or_else(|_| panic!("two wait"));
        gateways.release("lock", &lease.token).await;
        let next = first.granted().await;
        assert!(next.held.fence > lease.held.fence);
        assert!(began.elapsed() >= Duration::from_millis(ms));
        assert!(began.elapsed() < Duration::from_millis(ms) + SOON);
        assert!(second.is_waiting());
        let last = gateways.pass(&next, second).await;
        gateways.end(&last).await;
    }
}

pub(crate) async fn of_slots_serve_those_who_wait_in_order(fixture: &dyn Fixture) {
    let began = Instant::now();
    let gateways = Gateways::start(fixture);
    let turn = |owner| cooling_request(REST, sharing(Some(2), owner));
    for owner in ["one", "two"] {
        let lease = gateways.hold_as(turn(owner)).await;
        gateways.release("lock", &lease.token).await;
    }
    let callers = gateways.queue_each([turn("three"), turn("four")]).await;
    let mut fence = None;
    for caller in callers {
        let lease = caller.granted().await;
        assert!(began.elapsed() >= Duration::from_millis(REST));
        assert!(fence < Some(lease.held.fence));
        fence = Some(lease.held.fence);
        gateways.release("lock", &lease.token).await;
    }
    gateways.idle("lock").await;
    assert!(began.elapsed() >= Duration::from_millis(2 * REST));
}

pub(crate) async fn are_left_by_a_stream_whose_grant_was_read(fixture: &dyn Fixture) {
    let gateway = Gateway::on(fixture, 0);
    let store = fixture.store();
    for is_read in [false, true] {
        let asked = cooling_request(LONG, request("lock", "stream"));
        let asked = with(asked, |it| it.wait = Duration::ZERO);
        let mut hold = gateway.engine.hold(asked).await.unwrap();
        if is_read {
            granted_by(&mut hold).await;
        }
        drop(hold);
        gateway.lifecycle.quiet().await;
        if is_read {
            rests(&store, "lock").await;
        } else {
            store.until_free("lock").await;
        }
    }
}

pub(crate) async fn are_left_by_a_group_and_not_by_parts_that_are_given_back(
    fixture: &dyn Fixture,
) {
    let store = fixture.store();
    let Gateway { engine, .. } = Gateway::on(fixture, 0);
    let other = store.must_hold(attempt("y", LONG)).await;
    let part = |lock: &LockName| {
        let asked = cooling_request(LONG, request(lock.as_str(), "group"));
        Ok::<_, Infallible>(with(asked, |it| it.wait = Duration::ZERO))
    };
    let asked = || GroupRequest::new(GroupNames::parse(["x", "y"]).unwrap(), part).unwrap();
    engine.acquire_group(asked(), || {}).await.unwrap_err();
    store.until_free("x").await;
    released(&store, &other).await;
    let held = engine.acquire_group(asked(), || {}).await.unwrap();
    for lock in ["x", "y"] {
        engine.release(name(lock), held.hash, None).await.unwrap();
        rests(&store, lock).await;
    }
    held.delivery.delivered();
}
