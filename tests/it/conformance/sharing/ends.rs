//! Each end of a shared lease, and each waiter that leaves the head of the queue, grants the next waiters.

use crate::conformance::prelude::*;

/// How long the holders of a lock are watched before the case concludes that they stay.
const A_WHILE: Duration = Duration::from_millis(200);
/// Long enough to repeat a request on a busy machine.
const GRACE: u64 = 10_000;

fn keyed(request: AcquireRequest, key: &IdempotencyKey) -> AcquireRequest {
    with(request, |it| {
        it.idempotency_key = Some(key.clone());
        // Far longer than the grace.
        it.terms.set_ttl(ttl(3 * GRACE));
    })
}

/// The TTL of a lease until others have entered the queue and it is renewed; longer than this takes on any machine.
const QUEUED: u64 = 3_000;

/// A request for a lease that ends soon after others have entered the queue ([`lasts`]).
fn brief(request: AcquireRequest) -> AcquireRequest {
    with(request, |it| it.terms.set_ttl(ttl(QUEUED)))
}

/// Renews a lease so that it ends `ms` milliseconds after the answered instant.
async fn lasts(gateways: &Gateways, lease: &Lease, ms: u64) -> Instant {
    let queued = Instant::now() + Duration::from_millis(QUEUED);
    let token = lease.token.clone();
    let (engine, ttl) = (gateways.any(), Some(ttl(QUEUED + ms)));
    engine.renew(name("lock"), token, ttl.into()).await.unwrap();
    queued
}

pub(crate) async fn one_who_leaves_the_head_lets_the_next_share_it_at_once(fixture: &dyn Fixture) {
    let (gateways, _held) = Gateways::holding_as(fixture, sharing(None, "holds")).await;
    let writer = gateways.queue(request("lock", "writer"), 1).await;
    let [r1, r2] = [
        gateways.queue(sharing(None, "r1"), 2).await,
        gateways.queue(sharing(Some(3), "r2"), 3).await,
    ];
    let next = gateways.queue(sharing(Some(3), "next"), 4).await;
    assert!(r1.is_waiting());
    writer.hang_up();
    r1.granted().await;
    r2.granted().await;
    assert_eq!(gateways.owners().await, ["holds", "r1", "r2"]);
    assert!(next.is_waiting());
}

pub(crate) async fn one_whose_wait_runs_out_lets_the_next_share_it_at_once(fixture: &dyn Fixture) {
    let (gateways, _held) = Gateways::holding_as(fixture, sharing(Some(2), "holds")).await;
    let hasty = with(request("lock", "hasty"), |it| {
        it.wait = Duration::from_millis(SHORT);
    });
    let hasty = gateways.ask(hasty);
    let next = gateways.ask(sharing(Some(2), "next"));
    hasty.held().await;
    next.granted().await;
    assert_eq!(gateways.owners().await, ["holds", "next"]);
}

pub(crate) async fn one_who_leaves_behind_the_head_lets_nobody_pass(fixture: &dyn Fixture) {
    let (gateways, held) = Gateways::holding_as(fixture, sharing(None, "holds")).await;
    let writer = gateways.queue(request("lock", "writer"), 1).await;
    let gone = gateways.queue(sharing(None, "gone"), 2).await;
    let reader = gateways.queue(sharing(None, "reader"), 3).await;
    gone.hang_up();
    gateways.queued("lock", 2).await;
    sleep(A_WHILE).await;
    assert!(writer.is_waiting() && reader.is_waiting());
    let alone = gateways.pass(&held, writer).await;
    assert_eq!(gateways.owners().await, ["writer"]);
    gateways.pass(&alone, reader).await;
}

pub(crate) async fn a_kept_place_holds_back_the_next_until_its_time_is_over(fixture: &dyn Fixture) {
    const KEPT: u64 = 2_000;
    let gateways = Gateways::with_grace(fixture, KEPT);
    let _held = gateways.hold_as(sharing(None, "holds")).await;
    let key = new_key();
    let writer = keyed(request("lock", "writer"), &key);
    let writer = gateways.queue(writer, 1).await;
    let reader = gateways.queue(sharing(None, "reader"), 2).await;
    let left = Instant::now();
    gateways.hang_up(writer, 1).await;
    reader.granted().await;
    let waited = left.elapsed();
    assert!(waited >= Duration::from_millis(KEPT), "{waited:?}");
    assert_eq!(gateways.owners().await, ["holds", "reader"]);
}

pub(crate) async fn a_place_that_is_given_up_lets_the_next_share_it_at_once(fixture: &dyn Fixture) {
    // The grace is longer than the case may take: no waiter may have to wait for its end.
    let gateways = Gateways::with_grace(fixture, LONG);
    let _held = gateways.hold_as(sharing(None, "holds")).await;
    for hangs_up in [true, false] {
        let key = new_key();
        let writer = keyed(request("lock", "writer"), &key);
        let waits = gateways.queue(writer.clone(), 1).await;
        let reader = gateways.queue(sharing(None, "reader"), 2).await;
        if hangs_up {
            gateways.hang_up(waits, 1).await;
        }
        let looks = with(writer, |it| it.wait = Duration::ZERO);
        gateways.ask(looks).held().await;
        let lease = reader.granted().await;
        assert_eq!(gateways.owners().await, ["holds", "reader"]);
        gateways.release("lock", &lease.token).await;
    }
}

/// Waits for the grant of a queued attempt, and confirms it.
async fn confirmed(store: &AnyStore, attempt: &Attempt, mut place: Parked) -> HeldLease {
    timeout(LATE, place.news()).await.expect("there are news");
    store.must_confirm(attempt).await
}

pub(crate) async fn a_head_that_leaves_or_is_given_back_lets_the_next_share_it_at_once(
    fixture: &dyn Fixture,
) {
    for leaves in [true, false] {
        let (store, held) = holding(fixture, one_of(2, "lock", LONG)).await;
        let writer = patient(attempt("lock", LONG));
        let _left = store.stand(&writer).await;
        let next = patient(one_of(2, "lock", LONG));
        let place = store.stand(&next).await;
        if leaves {
            store.must_leave(&writer, None).await;
        } else {
            store.must_give_back(&writer, GiveBack::NothingHeld).await;
        }
        let lease = confirmed(&store, &next, place).await;
        assert_eq!(lease.mode.slot(), Some(1));
        store.must_release_each([&held, &next]).await;
    }
}

pub(crate) async fn a_lease_that_is_given_back_makes_room_for_the_next(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second] = ["lock"; 2].map(|lock| one_of(2, lock, LONG));
    store.must_grant_each([&first, &second]).await;
    let next = patient(one_of(2, "lock", LONG));
    let place = store.stand(&next).await;
    store.must_give_back(&first, GiveBack::GivenBack).await;
    let held = confirmed(&store, &next, place).await;
    assert_eq!(held.mode.slot(), Some(0));
    renewed(&store, &second, LONG).await;
}

pub(crate) async fn a_grant_that_is_not_delivered_passes_on(fixture: &dyn Fixture) {
    let (gateways, _held) = Gateways::holding_as(fixture, sharing(Some(2), "holds")).await;
    let gone = gateways.hold_as(sharing(Some(2), "gone")).await;
    let unlucky = gateways.queue(sharing(Some(2), "unlucky"), 1).await;
    let next = gateways.queue(sharing(Some(2), "next"), 2).await;
    gateways.release("lock", &gone.token).await;
    // The answer cannot be sent: the delivery is dropped.
    drop(unlucky.answer().await.unwrap());
    let lease = next.granted().await;
    assert_eq!(lease.held.mode.slot(), Some(1));
    assert_eq!(gateways.owners().await, ["holds", "next"]);
}

pub(crate) async fn the_expiry_of_one_makes_room_for_one(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let held = [sharing(Some(2), "stays"), brief(sharing(Some(2), "ends"))];
    let [_stays, ends] = gateways.hold_each(held).await;
    let first = gateways.queue(sharing(Some(2), "first"), 1).await;
    let second = gateways.queue(sharing(Some(2), "second"), 2).await;
    let short = lasts(&gateways, &ends, SHORT).await;
    let next = first.granted().await;
    assert!(short.elapsed() >= Duration::from_millis(SHORT));
    assert_eq!(next.held.mode, ends.held.mode, "the slot that is free");
    sleep(A_WHILE).await;
    assert!(second.is_waiting(), "one place was free");
    assert_eq!(gateways.owners().await, ["first", "stays"]);
}

pub(crate) async fn a_small_limit_waits_for_as_many_expiries_as_it_takes(fixture: &dyn Fixture) {
    const SECOND: u64 = 3 * SHORT;
    let gateways = Gateways::start(fixture);
    let held = ["a", "b", "c"].map(|owner| brief(sharing(Some(3), owner)));
    let held = gateways.hold_each(held).await;
    let small = gateways.queue(sharing(Some(2), "small"), 1).await;
    let behind = gateways.queue(sharing(Some(9), "behind"), 2).await;
    lasts(&gateways, &held[0], LONG).await;
    let short = lasts(&gateways, &held[2], SECOND).await;
    lasts(&gateways, &held[1], SHORT).await;
    // After the first end the limit is still reached, and the third lease ends only after this.
    small.granted().await;
    let waited = short.elapsed();
    assert!(waited >= Duration::from_millis(SECOND), "{waited:?}");
    behind.granted().await;
    assert_eq!(gateways.owners().await, ["a", "behind", "small"]);
}

pub(crate) async fn one_who_wants_to_be_alone_waits_for_the_last_expiry(fixture: &dyn Fixture) {
    const LAST: u64 = 3 * SHORT;
    let gateways = Gateways::start(fixture);
    let held = ["a", "b", "c"].map(|owner| brief(sharing(None, owner)));
    let held = gateways.hold_each(held).await;
    let writer = gateways.queue(request("lock", "writer"), 1).await;
    let reader = gateways.queue(sharing(None, "reader"), 2).await;
    let short = lasts(&gateways, &held[0], LAST).await;
    lasts(&gateways, &held[2], SHORT).await;
    lasts(&gateways, &held[1], 2 * SHORT).await;
    let alone = writer.granted().await;
    let waited = short.elapsed();
    assert!(waited >= Duration::from_millis(LAST), "{waited:?}");
    assert!(reader.is_waiting());
    gateways.pass(&alone, reader).await;
}

pub(crate) async fn lease_after_lease_that_expires_serves_all(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let held = ["first"; 2].map(|owner| brief(sharing(Some(2), owner)));
    let held = gateways.hold_each(held).await;
    // Pairs of shared leases, and two exclusive leases between them.
    let callers = [true, true, false, false, true, true].map(|shares| {
        let never_releases = if shares {
            sharing(Some(2), "never releases")
        } else {
            request("lock", "never releases")
        };
        with(never_releases, |it| it.terms.set_ttl(ttl(SHORT / 2)))
    });
    let callers = gateways.queue_each(callers).await;
    let mut short = Instant::now();
    for lease in held.iter().rev() {
        short = lasts(&gateways, lease, SHORT).await;
    }
    let mut fence = held[1].held.fence;
    for caller in callers {
        let lease = caller.granted().await;
        assert!(lease.held.fence > fence);
        fence = lease.held.fence;
    }
    // The first two leases, a pair, and two exclusive leases end before the last pair begins.
    assert!(short.elapsed() >= Duration::from_millis(SHORT + 3 * SHORT / 2));
    gateways.idle("lock").await;
}

pub(crate) async fn a_place_is_not_free_while_the_lease_is_renewed(fixture: &dyn Fixture) {
    let (gateways, _long) = Gateways::holding_as(fixture, sharing(Some(2), "long")).await;
    let lease = gateways.hold_as(brief(sharing(Some(2), "renews"))).await;
    let caller = gateways.queue(sharing(Some(2), "waits"), 1).await;
    let until = Instant::now() + Duration::from_millis(QUEUED + QUEUED / 2);
    while Instant::now() < until {
        sleep(Duration::from_millis(QUEUED / 30)).await;
        lasts(&gateways, &lease, 0).await;
        assert!(caller.is_waiting());
    }
    gateways.pass(&lease, caller).await;
}

async fn broken(fixture: &dyn Fixture, target: BreakTarget) {
    fixture.last().must_break(&name("lock"), Some(target)).await;
}

pub(crate) async fn a_break_makes_room_for_as_many_as_it_ends(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let held = ["a", "b"].map(|owner| sharing(Some(2), owner));
    let held = gateways.hold_each(held).await;
    let waiting = ["c", "d", "e"].map(|owner| sharing(Some(2), owner));
    let mut waiting = gateways.queue_each(waiting).await.into_iter();
    let mut next = async || waiting.next().expect("there is one").granted().await;
    broken(fixture, fence(&held[0]).into()).await;
    let third = next().await;
    assert_eq!(third.held.mode, held[0].held.mode);
    assert_eq!(gateways.owners().await, ["b", "c"]);
    broken(fixture, BreakTarget::All).await;
    next().await;
    next().await;
    // The leases that were granted because of the break are not broken by it.
    assert_eq!(gateways.owners().await, ["d", "e"]);
}

pub(crate) async fn a_break_of_all_grants_one_who_waits_to_be_alone(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let _held = gateways
        .hold_each(["a", "b", "c"].map(|owner| sharing(None, owner)))
        .await;
    let writer = gateways.queue(request("lock", "writer"), 1).await;
    let reader = gateways.queue(sharing(None, "reader"), 2).await;
    broken(fixture, BreakTarget::All).await;
    let alone = writer.granted().await;
    assert!(reader.is_waiting());
    assert_eq!(gateways.owners().await, ["writer"]);
    broken(fixture, BreakTarget::All).await;
    assert!(reader.granted().await.held.fence > alone.held.fence);
}

fn fence(lease: &Lease) -> FencingToken {
    lease.held.fence
}

pub(crate) async fn a_kept_place_is_granted_beside_others_and_collected(fixture: &dyn Fixture) {
    let gateways = Gateways::with_grace(fixture, GRACE);
    let writer = gateways.hold("lock").await;
    let key = new_key();
    let comes_back = || keyed(sharing(Some(2), "comes back"), &key);
    let gone = gateways.queue(comes_back(), 1).await;
    let beside = gateways.queue(sharing(Some(2), "beside"), 2).await;
    let behind = gateways.queue(sharing(Some(2), "behind"), 3).await;
    gateways.hang_up(gone, 2).await;
    let second = gateways.pass(&writer, beside).await;
    // The kept position counts as one of the two leases, with the first slot.
    assert_eq!(second.held.mode.slot(), Some(1));
    assert_eq!(gateways.owners().await, ["beside", "comes back"]);
    assert!(behind.is_waiting());
    let back = gateways.ask(comes_back()).answer().await.unwrap();
    assert!(back.delivery.is_replay());
    assert_eq!(back.lease.held.mode.slot(), Some(0));
    assert!(back.lease.held.expires_in > Duration::from_millis(2 * GRACE));
    back.delivery.delivered();
    gateways.release("lock", &back.lease.token).await;
    behind.granted().await;
}

pub(crate) async fn a_kept_place_that_nobody_collects_passes_on(fixture: &dyn Fixture) {
    const SOON: u64 = 1_000;
    let gateways = Gateways::with_grace(fixture, SOON);
    let held = ["stays", "ends"].map(|owner| sharing(Some(2), owner));
    let [_stays, ends] = gateways.hold_each(held).await;
    let key = new_key();
    let again = || keyed(sharing(Some(2), "gone"), &key);
    let gone = gateways.queue(again(), 1).await;
    let next = gateways.queue(sharing(Some(2), "next"), 2).await;
    gateways.hang_up(gone, 1).await;
    let lease = gateways.pass(&ends, next).await;
    assert_eq!(gateways.owners().await, ["next", "stays"]);
    // The kept grant was never delivered, so its idempotency key may still be used.
    let back = gateways.queue(again(), 1).await;
    gateways.release("lock", &lease.token).await;
    assert!(back.granted().await.held.fence > lease.held.fence);
}
