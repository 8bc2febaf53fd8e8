//! Checks of fencing tokens of shared leases: each passes while its own lease lives.

use crate::conformance::prelude::*;

pub(crate) async fn pass_for_each_lease_and_fail_for_the_one_that_has_ended(fixture: &dyn Fixture) {
    let store = fixture.store();
    let asked = [0; 3].map(|_| one_of(3, "lock", LONG));
    let held = store.must_grant_each(&asked).await;
    for lease in &held {
        store.must_pass("lock", lease.fence).await;
    }
    released(&store, &asked[1]).await;
    assert!(store.must_be_stale("lock", held[1].fence).await);
    store.must_pass("lock", held[0].fence).await;
    store.must_pass("lock", held[2].fence).await;
    // The next lease has the slot of the lease that has ended, and another fencing token.
    let next = granted(&store, &one_of(3, "lock", LONG)).await;
    assert_eq!(next.mode, held[1].mode);
    store.must_pass("lock", next.fence).await;
    assert!(store.must_be_stale("lock", held[1].fence).await);
    let unused = FencingToken::new(next.fence.get() + 1).unwrap();
    assert!(!store.must_be_stale("lock", unused).await);
}

pub(crate) async fn last_as_long_as_the_lease_and_not_as_the_lock(fixture: &dyn Fixture) {
    let store = fixture.store();
    let short = granted(&store, &reader("lock", SHORT)).await;
    let long = granted(&store, &reader("lock", LONG)).await;
    assert!(store.must_pass("lock", long.fence).await > Duration::from_millis(SHORT));
    until_holders(&store, 1).await;
    assert!(store.must_be_stale("lock", short.fence).await);
    store.must_pass("lock", long.fence).await;
}

pub(crate) async fn find_one_lease_among_very_many(fixture: &dyn Fixture) {
    let store = fixture.store();
    let mut held = Vec::new();
    for _ in 0..150 {
        held.push(granted(&store, &reader("lock", LONG)).await.fence);
    }
    for fence in [held[0], held[75], held[149]] {
        store.must_pass("lock", fence).await;
    }
}
