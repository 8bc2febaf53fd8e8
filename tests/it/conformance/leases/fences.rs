//! Clause 2: each new grant of a name carries a greater fencing token.

use crate::conformance::prelude::*;

/// Grants a lock and ends the lease, several times; each fencing token must be greater than the one before.
async fn rise_over(
    fixture: &dyn Fixture,
    (turns, ttl_ms): (usize, u64),
    end: impl AsyncFn(&AnyStore, &Attempt),
) {
    let mut last = None;
    for _ in 0..turns {
        let (store, attempt) = (fixture.store(), attempt("lock", ttl_ms));
        let fence = Some(granted(&store, &attempt).await.fence);
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        end(&store, &attempt).await;
    }
}

pub(crate) async fn rise_over_release(fixture: &dyn Fixture) {
    rise_over(fixture, (20, LONG), async |store, held| {
        released(store, held).await;
    })
    .await;
}

pub(crate) async fn rise_over_expiry(fixture: &dyn Fixture) {
    rise_over(fixture, (3, 100), async |store, _| {
        store.until_free("lock").await;
    })
    .await;
}

pub(crate) async fn rise_over_give_back(fixture: &dyn Fixture) {
    let end = async |store: &AnyStore, held: &Attempt| {
        store.must_give_back(held, GiveBack::GivenBack).await;
    };
    rise_over(fixture, (3, LONG), end).await;
}

pub(crate) async fn rise_over_restarts(fixture: &dyn Fixture) {
    let end = async |store: &AnyStore, held: &Attempt| {
        released(store, held).await;
        fixture.restart().await;
    };
    rise_over(fixture, (4, LONG), end).await;
}

pub(crate) async fn are_the_same_for_the_same_lease(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = keyed("lock", LONG, key());
    let fence = granted(&store, &first).await.fence;
    assert_eq!(granted(&store, &first).await.fence, fence);
    assert_eq!(store.must_renew(&first, None).await.fence, fence);
    fixture.restart().await;
    assert_eq!(granted(&fixture.store(), &first).await.fence, fence);
}
