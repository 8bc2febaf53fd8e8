//! Clause 1 for shared locks: which leases may hold a lock together.

use std::sync::atomic::AtomicI64;

use crate::conformance::prelude::*;

pub(crate) async fn those_who_share_a_lock_hold_it_together(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let mut fences = Vec::new();
    for (before, store) in stores.iter().cycle().take(4).enumerate() {
        let held = granted(store, &reader("lock", LONG)).await;
        assert_eq!(held.mode, Mode::Shared { slot: None });
        assert_eq!(holders(store, "lock").await, before as u64 + 1);
        fences.push(held.fence);
    }
    let mut shown: Vec<_> = sharers(&fixture.store(), "lock").await.leases;
    shown.sort_by_key(|lease| lease.fence);
    assert_eq!(fences, shown.iter().map(|it| it.fence).collect::<Vec<_>>());
}

pub(crate) async fn one_who_wants_to_be_alone_is_refused_until_the_last_has_gone(
    fixture: &dyn Fixture,
) {
    let store = fixture.store();
    let sharing = [reader("lock", LONG), one_of(3, "lock", LONG)];
    store.must_grant_each(&sharing).await;
    for (gone, one) in sharing.iter().enumerate() {
        for store in fixture.gateways() {
            let told = store.must_refuse(&attempt("lock", LONG)).await;
            let (Some(Holder::Shared(holders)), 0) = (&told.holder, told.waiters) else {
                panic!("not held by those who share it: {told:?}");
            };
            assert_eq!(holders.count, (sharing.len() - gone) as u64);
            assert_eq!(holders.leases.len(), sharing.len() - gone);
        }
        released(&store, one).await;
    }
    let alone = granted(&store, &attempt("lock", LONG)).await;
    assert_eq!(alone.mode, Mode::Exclusive);
}

pub(crate) async fn nobody_shares_with_one_who_is_alone(fixture: &dyn Fixture) {
    let store = fixture.store();
    let alone = attempt("lock", LONG);
    let held = granted(&store, &alone).await;
    for wanted in [reader("lock", LONG), one_of(9, "lock", LONG)] {
        match store.must_refuse(&wanted).await.holder {
            Some(Holder::Lease(lease)) => {
                assert_eq!((lease.fence, lease.mode), (held.fence, Mode::Exclusive));
            }
            other => panic!("not held by one alone: {other:?}"),
        }
    }
    released(&store, &alone).await;
    granted(&store, &reader("lock", LONG)).await;
}

pub(crate) async fn as_many_as_the_limit_says_hold_it_together(fixture: &dyn Fixture) {
    for limit in [1, 2, 5] {
        let lock = format!("lock:{limit}");
        let store = fixture.store();
        let mut sharing: Vec<_> = (0..limit).map(|_| one_of(limit, &lock, LONG)).collect();
        store.must_grant_each(&sharing).await;
        let next = one_of(limit, &lock, LONG);
        for store in fixture.gateways() {
            refused(&store, &next).await;
        }
        let gone = sharing.remove(sharing.len() / 2);
        released(&store, &gone).await;
        granted(&store, &next).await;
        refused(&store, &one_of(limit, &lock, LONG)).await;
    }
}

pub(crate) async fn a_limit_binds_at_its_own_grant_only(fixture: &dyn Fixture) {
    let store = fixture.store();
    for limit in [3, 3, 3] {
        granted(&store, &one_of(limit, "lock", LONG)).await;
    }
    refused(&store, &one_of(3, "lock", LONG)).await;
    // Attempts with a larger limit are granted, and so is one without a limit.
    granted(&store, &one_of(5, "lock", LONG)).await;
    granted(&store, &reader("lock", LONG)).await;
    refused(&store, &one_of(5, "lock", LONG)).await;
    granted(&store, &one_of(6, "lock", LONG)).await;
    assert_eq!(holders(&store, "lock").await, 6);
}

pub(crate) async fn those_without_a_limit_count_for_those_with_one(fixture: &dyn Fixture) {
    let (store, first) = holding(fixture, reader("lock", LONG)).await;
    refused(&store, &one_of(1, "lock", LONG)).await;
    granted(&store, &one_of(2, "lock", LONG)).await;
    released(&store, &first).await;
    granted(&store, &one_of(2, "lock", LONG)).await;
}

pub(crate) async fn of_many_concurrent_attempts_as_many_are_granted_as_the_limit_says(
    fixture: &dyn Fixture,
) {
    const LIMIT: u64 = 7;
    let stores = fixture.gateways();
    let mut attempts = JoinSet::new();
    for store in stores.iter().cycle().take(64) {
        let store = store.clone();
        attempts.spawn(async move {
            let outcome = store.acquire(&one_of(LIMIT, "contended", LONG)).await;
            match outcome.unwrap() {
                Acquisition::Granted(held) => held.mode.slot(),
                Acquisition::Held(_) => None,
                other => panic!("neither granted nor held: {other:?}"),
            }
        });
    }
    let mut slots: Vec<_> = attempts.join_all().await.into_iter().flatten().collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6]);
}

/// The number of leases that share the lock, counted by the holders themselves without the store; negative while an
/// exclusive lease holds it.
#[derive(Default)]
struct Inside(AtomicI64);

/// Far less than the number of leases that may hold the lock together.
const ALONE: i64 = -1_000;

pub(crate) async fn nobody_is_inside_beside_one_who_is_alone(fixture: &dyn Fixture) {
    const TURNS: usize = 120;
    let inside = Arc::new(Inside::default());
    let turns = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for (number, store) in fixture.gateways().into_iter().cycle().take(9).enumerate() {
        let (inside, turns) = (Arc::clone(&inside), Arc::clone(&turns));
        clients.spawn(async move {
            while turns.fetch_add(1, Ordering::SeqCst) < TURNS {
                visit(&store, number, &inside).await;
            }
        });
    }
    clients.join_all().await;
    assert!(is_free(&fixture.store(), "critical").await);
}

async fn visit(store: &AnyStore, number: usize, Inside(inside): &Inside) {
    let (wanted, adds, most) = match number % 3 {
        0 => (attempt("critical", LONG), ALONE, 0),
        // Others may be granted the lock between the grant of this lease and its count.
        1 => (one_of(2, "critical", LONG), 1, 8),
        _ => (reader("critical", LONG), 1, 8),
    };
    if let Acquisition::Granted(_) = store.acquire(&wanted).await.unwrap() {
        let before = inside.fetch_add(adds, Ordering::SeqCst);
        assert!((0..=most).contains(&before), "{wanted:?} beside {before}");
        tokio::task::yield_now().await;
        inside.fetch_sub(adds, Ordering::SeqCst);
        released(store, &wanted).await;
    }
}

pub(crate) async fn fences_rise_over_both_modes(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    let mut last = None;
    for (turn, store) in stores.iter().cycle().take(12).enumerate() {
        let alone = attempt("lock", LONG);
        let sharing = [reader("lock", LONG), one_of(3, "lock", LONG)];
        for one in sharing.iter().chain([&alone]) {
            if one.terms.sharing.is_none() {
                store.must_release_each(&sharing).await;
            }
            let fence = granted(store, one).await.fence;
            assert!(Some(fence) > last, "turn {turn}: {fence} after {last:?}");
            last = Some(fence);
        }
        released(store, &alone).await;
    }
}

pub(crate) async fn the_expiry_of_one_frees_one_place(fixture: &dyn Fixture) {
    let store = fixture.store();
    granted(&store, &one_of(2, "lock", 2 * SHORT)).await;
    granted(&store, &one_of(2, "lock", LONG)).await;
    let next = one_of(2, "lock", LONG);
    refused(&store, &next).await;
    eventually("the next is granted", async || {
        match store.acquire(&next).await.unwrap() {
            Acquisition::Granted(_) => Some(()),
            Acquisition::Held(_) => None,
            other => panic!("neither granted nor held: {other:?}"),
        }
    })
    .await;
    refused(&store, &one_of(2, "lock", LONG)).await;
    refused(&store, &attempt("lock", LONG)).await;
    assert_eq!(holders(&store, "lock").await, 2);
}

pub(crate) async fn the_expiry_of_all_frees_the_lock(fixture: &dyn Fixture) {
    let store = fixture.store();
    for ms in [SHORT / 2, SHORT, SHORT / 4] {
        granted(&store, &reader("lock", ms)).await;
    }
    store.until_free("lock").await;
    granted(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn nothing_of_those_who_shared_it_comes_back(fixture: &dyn Fixture) {
    let store = fixture.store();
    for _ in 0..3 {
        // Leases end by a release, by expiry and by a break.
        let released_one = store.must_hold(one_of(5, "lock", LONG)).await;
        granted(&store, &one_of(5, "lock", SHORT / 2)).await;
        released(&store, &released_one).await;
        store.until_free("lock").await;
        let broken = granted(&store, &one_of(5, "lock", LONG)).await;
        assert_eq!(broken.mode.slot(), Some(0));
        let target = Some(broken.fence.into());
        let alone = attempt("lock", LONG);
        store.break_lock(&alone.name, target).await.unwrap();
        granted(&store, &alone).await;
        released(&store, &alone).await;
        let last = one_of(5, "lock", LONG);
        let held = granted(&store, &last).await;
        assert_eq!(held.mode.slot(), Some(0));
        assert_eq!(holders(&store, "lock").await, 1);
        released(&store, &last).await;
    }
}

pub(crate) async fn a_name_that_is_shared_does_not_touch_another(fixture: &dyn Fixture) {
    let store = fixture.store();
    for lock in ["a", "b"] {
        granted(&store, &one_of(1, lock, LONG)).await;
        refused(&store, &one_of(1, lock, LONG)).await;
    }
    granted(&store, &attempt("a:b", LONG)).await;
}
