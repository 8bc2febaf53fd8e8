//! Clause 12: slots of leases that live together are distinct, and each is the smallest that is free.

use crate::conformance::prelude::*;

/// Acquires a lock, which must be granted. Answers the slot of the lease.
async fn slot(fixture: &dyn Fixture, wanted: &Attempt) -> Option<u16> {
    let held = granted(&fixture.store(), wanted).await;
    assert!(held.mode.is_shared(), "{held:?}");
    held.mode.slot()
}

pub(crate) async fn are_the_smallest_that_are_free(fixture: &dyn Fixture) {
    let store = fixture.store();
    let sharing: Vec<_> = (0..20).map(|_| one_of(20, "lock", LONG)).collect();
    for (number, one) in (0..).zip(&sharing) {
        assert_eq!(slot(fixture, one).await, Some(number));
    }
    refused(&store, &one_of(20, "lock", LONG)).await;
    // Slots in no order, also across the bytes of a bitmap.
    for freed in [16, 3, 7, 8] {
        released(&store, &sharing[freed]).await;
    }
    for expected in [3, 7, 8, 16] {
        let next = one_of(20, "lock", LONG);
        assert_eq!(slot(fixture, &next).await, Some(expected));
    }
    refused(&store, &one_of(20, "lock", LONG)).await;
}

pub(crate) async fn are_had_by_those_with_a_limit_alone(fixture: &dyn Fixture) {
    let store = fixture.store();
    assert_eq!(slot(fixture, &reader("lock", LONG)).await, None);
    let first = one_of(5, "lock", LONG);
    assert_eq!(slot(fixture, &first).await, Some(0));
    assert_eq!(slot(fixture, &reader("lock", LONG)).await, None);
    assert_eq!(slot(fixture, &one_of(9, "lock", LONG)).await, Some(1));
    let mut shown: Vec<_> = sharers(&store, "lock").await.leases;
    shown.sort_by_key(|lease| lease.fence);
    let modes: Vec<_> = shown.iter().map(|lease| lease.mode).collect();
    let expected = [None, Some(0), None, Some(1)];
    assert_eq!(modes, expected.map(|slot| Mode::Shared { slot }));
    released(&store, &first).await;
    assert_eq!(slot(fixture, &reader("lock", LONG)).await, None);
    assert_eq!(slot(fixture, &one_of(9, "lock", LONG)).await, Some(0));
}

pub(crate) async fn are_distinct_over_different_limits(fixture: &dyn Fixture) {
    let store = fixture.store();
    for (expected, limit) in (0..).zip([2, 2, 3, 7, 7, 6]) {
        let one = one_of(limit, "lock", LONG);
        assert_eq!(slot(fixture, &one).await, Some(expected));
        assert!(u64::from(expected) < limit);
    }
    refused(&store, &one_of(6, "lock", LONG)).await;
}

pub(crate) async fn are_free_again_after_the_expiry(fixture: &dyn Fixture) {
    let store = fixture.store();
    for ms in [LONG, 2 * SHORT, LONG] {
        granted(&store, &one_of(3, "lock", ms)).await;
    }
    until_holders(&store, 2).await;
    assert_eq!(slot(fixture, &one_of(3, "lock", LONG)).await, Some(1));
    refused(&store, &one_of(3, "lock", LONG)).await;
}

pub(crate) async fn are_free_again_after_a_break_and_a_give_back(fixture: &dyn Fixture) {
    let store = fixture.store();
    let sharing: Vec<_> = (0..4).map(|_| one_of(4, "lock", LONG)).collect();
    let mut fences = Vec::new();
    for one in &sharing {
        fences.push(granted(&store, one).await.fence);
    }
    let broken = Some(fences[0].into());
    store.break_lock(&sharing[0].name, broken).await.unwrap();
    let Attempt { name, token, .. } = &sharing[2];
    store.give_back(name, token, None).await.unwrap();
    for expected in [0, 2] {
        let next = one_of(4, "lock", LONG);
        assert_eq!(slot(fixture, &next).await, Some(expected));
    }
    refused(&store, &one_of(4, "lock", LONG)).await;
}

pub(crate) async fn stay_those_of_the_lease_while_it_lives(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second] = ["lock"; 2].map(|lock| under(key(), one_of(3, lock, LONG)));
    granted(&store, &first).await;
    assert_eq!(slot(fixture, &second).await, Some(1));
    released(&store, &first).await;
    // The lease keeps its slot with every command, and no other lease is given it.
    for turn in 0..3 {
        let store = fixture.store();
        let held = renewed(&store, &second, LONG).await;
        assert_eq!(held.mode.slot(), Some(1));
        assert_eq!(slot(fixture, &second).await, Some(1));
        let others = ["lock"; 2].map(|lock| one_of(3, lock, LONG));
        for (other, expected) in others.iter().zip([0, 2]) {
            assert_eq!(slot(fixture, other).await, Some(expected), "turn {turn}");
        }
        store.must_release_each(&others).await;
        fixture.restart().await;
    }
}

pub(crate) async fn begin_at_zero_when_nobody_holds_the_lock(fixture: &dyn Fixture) {
    let store = fixture.store();
    for _ in 0..3 {
        let sharing = ["lock"; 2].map(|lock| one_of(2, lock, LONG));
        for (one, expected) in sharing.iter().zip([0, 1]) {
            assert_eq!(slot(fixture, one).await, Some(expected));
        }
        store.must_release_each(&sharing).await;
    }
}

pub(crate) async fn of_many_who_come_and_go_are_never_had_twice(fixture: &dyn Fixture) {
    const LIMIT: u64 = 4;
    const TURNS: usize = 20;
    let mut random = Random::seeded();
    // The set belongs to no gateway: it shows what the holders themselves see.
    let taken: Arc<Mutex<HashSet<u16>>> = Arc::default();
    let mut clients = JoinSet::new();
    for store in fixture.gateways().into_iter().cycle().take(10) {
        let (taken, mut yields) = (Arc::clone(&taken), random.next() % 4);
        clients.spawn(async move {
            for _ in 0..TURNS {
                let wanted = one_of(LIMIT, "pool", LONG);
                let Acquisition::Granted(held) = store.acquire(&wanted).await.unwrap() else {
                    continue;
                };
                let slot = held.mode.slot().expect("it has a limit");
                assert!(u64::from(slot) < LIMIT, "{slot}");
                assert!(taken.lock().unwrap().insert(slot), "{slot} is had twice");
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
                yields = (yields + 1) % 4;
                taken.lock().unwrap().remove(&slot);
                released(&store, &wanted).await;
            }
        });
    }
    clients.join_all().await;
}
