//! Clause 6 for shared locks: both modes have one queue, and no attempt passes its head.

use std::sync::atomic::AtomicI64;

use crate::conformance::{prelude::*, waiting::gateways::all_granted};

fn at_once(request: AcquireRequest) -> AcquireRequest {
    with(request, |it| it.wait = Duration::ZERO)
}

/// Acquires without a wait, and must be refused.
async fn refused(gateways: &Gateways, request: AcquireRequest) -> Contention {
    gateways.ask(at_once(request)).held().await
}

/// The sharing terms of the first waiter, as a refusal tells them.
fn first(told: Contention) -> Option<Sharing> {
    let Some(Holder::Shared(sharers)) = told.holder else {
        panic!("not shared: {told:?}");
    };
    sharers.first.expect("there is a first waiter").sharing
}

async fn release(gateways: &Gateways, leases: &[Lease]) {
    for lease in leases {
        gateways.release("lock", &lease.token).await;
    }
}

pub(crate) async fn one_who_reads_does_not_pass_one_who_waits_to_be_alone(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let readers = ["r1", "r2"].map(|owner| sharing(None, owner));
    let readers = gateways.hold_each(readers).await;
    let writer = gateways.queue(request("lock", "writer"), 1).await;
    // These attempts could share the lock, but a waiter was there before them.
    refused(&gateways, sharing(None, "hasty")).await;
    let told = refused(&gateways, sharing(Some(9), "hasty")).await;
    assert_eq!(first(told), None, "the writer is alone");
    let reader = gateways.queue(sharing(None, "r3"), 2).await;
    release(&gateways, &readers[..1]).await;
    assert!(writer.is_waiting(), "it is not alone");
    assert!(reader.is_waiting());
    assert_eq!(gateways.owners().await, ["r2"]);
    release(&gateways, &readers[1..]).await;
    let alone = writer.granted().await;
    assert_eq!(gateways.owners().await, ["writer"]);
    assert!(reader.is_waiting());
    release(&gateways, &[alone]).await;
    release(&gateways, &[reader.granted().await]).await;
    gateways.idle("lock").await;
}

pub(crate) async fn one_with_a_larger_limit_does_not_pass_one_with_a_small_one(
    fixture: &dyn Fixture,
) {
    let gateways = Gateways::start(fixture);
    let holders = ["h1", "h2"].map(|owner| sharing(Some(2), owner));
    let holders = gateways.hold_each(holders).await;
    let small = gateways.queue(sharing(Some(1), "small"), 1).await;
    let told = refused(&gateways, sharing(Some(9), "hasty")).await;
    let brief = with(sharing(Some(9), "brief"), |it| {
        it.wait = Duration::from_millis(300);
    });
    for told in [told, gateways.ask(brief).held().await] {
        assert_eq!(
            first(told).and_then(|it| it.explicit_limit()),
            Limit::new(1).ok()
        );
    }
    let large = gateways.queue(sharing(Some(9), "large"), 2).await;
    release(&gateways, &holders[..1]).await;
    assert!(small.is_waiting());
    assert!(large.is_waiting());
    release(&gateways, &holders[1..]).await;
    let first = small.granted().await;
    // The limit of the first lease counts only at its own grant.
    let second = large.granted().await;
    assert!(second.held.fence > first.held.fence);
    assert_eq!(gateways.owners().await, ["large", "small"]);
    let slots = [&first, &second].map(|lease| lease.held.mode.slot());
    assert_eq!(slots, [Some(0), Some(1)]);
}

pub(crate) async fn those_who_read_and_stand_together_are_granted_together(fixture: &dyn Fixture) {
    let (gateways, writer) = Gateways::holding(fixture).await;
    let r1 = gateways.queue(sharing(None, "r1"), 1).await;
    let r2 = gateways.queue(sharing(Some(2), "r2"), 2).await;
    let r3 = gateways.queue(sharing(None, "r3"), 3).await;
    let next = gateways.queue(request("lock", "next"), 4).await;
    let r4 = gateways.queue(sharing(None, "r4"), 5).await;
    release(&gateways, &[writer]).await;
    let mut readers = all_granted([r1, r2, r3]).await;
    assert!(readers.is_sorted_by(|before, after| before.held.fence < after.held.fence));
    assert_eq!(gateways.owners().await, ["r1", "r2", "r3"]);
    assert_eq!(gateways.shown("lock").await.waiters, 2);
    assert!(next.is_waiting());
    // The release of the last shared lease hands the lock on.
    let last = readers.remove(1);
    release(&gateways, &readers).await;
    assert!(next.is_waiting());
    assert!(r4.is_waiting());
    release(&gateways, &[last]).await;
    let alone = next.granted().await;
    assert!(r4.is_waiting());
    release(&gateways, &[alone]).await;
    r4.granted().await;
    assert_eq!(gateways.owners().await, ["r4"]);
}

pub(crate) async fn of_those_who_stand_together_as_many_are_granted_as_may(fixture: &dyn Fixture) {
    let (gateways, writer) = Gateways::holding(fixture).await;
    let callers = ["0", "1", "2", "3", "4"].map(|owner| sharing(Some(3), owner));
    let mut callers = gateways.queue_each(callers).await;
    release(&gateways, &[writer]).await;
    let mut held = all_granted(callers.drain(..3)).await;
    let slots: Vec<_> = held.iter().map(|it| it.held.mode.slot()).collect();
    assert_eq!(slots, [Some(0), Some(1), Some(2)]);
    assert_eq!(gateways.shown("lock").await.waiters, 2);
    // Each release makes room for one waiter, which gets the free slot.
    for (caller, gone) in callers.into_iter().zip([1, 0]) {
        assert!(caller.is_waiting());
        let gone = held.remove(gone);
        let next = gateways.pass(&gone, caller).await;
        assert_eq!(next.held.mode, gone.held.mode);
        assert_eq!(gateways.owners().await.len(), 3);
        held.push(next);
    }
    release(&gateways, &held).await;
    gateways.idle("lock").await;
}

pub(crate) async fn one_who_waits_and_may_share_it_has_it_at_once(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let mut held = Vec::new();
    for limit in [None, Some(2), None, Some(4)] {
        held.push(gateways.ask(sharing(limit, "shares")).granted().await);
        assert_eq!(gateways.shown("lock").await.waiters, 0);
    }
    let waits = gateways.queue(sharing(Some(4), "one too many"), 1).await;
    release(&gateways, &held[..1]).await;
    waits.granted().await;
}

pub(crate) async fn a_hundred_who_stand_together_are_granted_together(fixture: &dyn Fixture) {
    /// More waiters than one run of the script may grant.
    const CROWD: u64 = 150;
    let (gateways, writer) = Gateways::holding(fixture).await;
    let readers = gateways.crowd(CROWD, &sharing(None, "reads")).await;
    let last = gateways.queue(request("lock", "last"), CROWD + 1).await;
    release(&gateways, &[writer]).await;
    let mut held = all_granted(readers).await;
    let shown = gateways.shown("lock").await;
    assert_eq!(shown.holder.map(|holder| holder.count()), Some(CROWD));
    assert_eq!(shown.waiters, 1);
    held.sort_by_key(|lease| lease.held.fence);
    held.dedup_by_key(|lease| lease.held.fence);
    assert_eq!(held.len() as u64, CROWD);
    assert!(last.is_waiting());
    release(&gateways, &held).await;
    last.granted().await;
}

pub(crate) async fn a_crowd_in_both_modes_is_served_and_never_too_many_at_once(
    fixture: &dyn Fixture,
) {
    const CALLERS: u64 = 90;
    /// Far more than the number of leases that may hold the lock together.
    const ALONE: i64 = 1_000;
    let gateways = Arc::new(Gateways::start(fixture));
    let holder = gateways.hold("lock").await;
    let (inside, served) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let (gateways, inside) = (Arc::clone(&gateways), Arc::clone(&inside));
        let served = Arc::clone(&served);
        callers.spawn(async move {
            let (request, adds, most) = match number % 4 {
                0 => (request("lock", "alone"), ALONE, 0),
                // A lease with the limit 3 is granted beside at most two others; leases without a limit or with a
                // larger one may follow.
                _ => (sharing(Some(3), "one of three"), 1, 2),
            };
            let lease = gateways.ask(request).granted().await;
            let before = inside.fetch_add(adds, Ordering::SeqCst);
            assert!((0..=most).contains(&before), "{before} are inside");
            served.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            inside.fetch_sub(adds, Ordering::SeqCst);
            gateways.release("lock", &lease.token).await;
        });
    }
    gateways.queued("lock", CALLERS).await;
    release(&gateways, &[holder]).await;
    callers.join_all().await;
    assert_eq!(served.load(Ordering::SeqCst) as u64, CALLERS);
    gateways.idle("lock").await;
}

pub(crate) async fn those_who_wait_are_shown_with_how_they_want_to_share_it(fixture: &dyn Fixture) {
    let (gateways, _held) = Gateways::holding_as(fixture, sharing(Some(1), "holds")).await;
    let _a = gateways.queue(sharing(Some(1), "a"), 1).await;
    let _b = gateways.queue(request("lock", "b"), 2).await;
    let _c = gateways.queue(sharing(None, "c"), 3).await;
    let shown = gateways.shown("lock").await;
    let sharing = shown.queue.iter().map(|it| it.sharing);
    let limits: Vec<_> = sharing.map(|it| it.map(|it| it.explicit_limit())).collect();
    let one = share(Some(1)).limit;
    assert_eq!(limits, [Some(Some(one)), None, Some(None)]);
    let owners: Vec<_> = shown.queue.into_iter().filter_map(|it| it.owner).collect();
    let owners: Vec<_> = owners.iter().map(Owner::as_str).collect();
    assert_eq!(owners, ["a", "b", "c"]);
}

pub(crate) async fn a_full_queue_takes_nobody_and_the_lock_is_shared_with_nobody_else(
    fixture: &dyn Fixture,
) {
    let limits = with(LimitsConfig::default(), |it| it.max_waiters_per_name = 2);
    let gateways = Gateways::with(fixture, &limits);
    let first = gateways.hold_as(sharing(None, "first")).await;
    let writer = gateways.queue(request("lock", "writer"), 1).await;
    let reader = gateways.queue(sharing(None, "reader"), 2).await;
    for one_more in [sharing(None, "third"), request("lock", "third")] {
        let error = gateways.ask(one_more).refused().await;
        assert!(matches!(error, AcquireError::TooManyWaiters), "{error:?}");
    }
    release(&gateways, &[first]).await;
    let alone = writer.granted().await;
    let _third = gateways.queue(sharing(None, "third"), 2).await;
    release(&gateways, &[alone]).await;
    reader.granted().await;
}

pub(crate) async fn an_attempt_is_told_how_many_are_before_it_and_who_share_the_lock(
    fixture: &dyn Fixture,
) {
    let store = fixture.store();
    for _ in 0..2 {
        granted(&store, &reader("lock", LONG)).await;
    }
    let mut places = Vec::new();
    let wanted = [
        attempt("lock", LONG),
        reader("lock", LONG),
        one_of(2, "lock", LONG),
    ];
    for (ahead, wanted) in (0..).zip(wanted.map(patient)) {
        places.push(store.parking().park(wanted.name.clone(), wanted.token));
        // A repeated command changes nothing.
        for _ in 0..2 {
            let place = store.must_queue(&wanted).await;
            let (told, contention) = (place.ahead, place.contention);
            assert_eq!((told, contention.waiters), (ahead, ahead + 1));
            // The store may leave out which leases share the lock.
            match contention.holder {
                Some(Holder::Shared(holders)) => assert_eq!(holders.count, 2),
                other => panic!("not shared: {other:?}"),
            }
        }
    }
}
