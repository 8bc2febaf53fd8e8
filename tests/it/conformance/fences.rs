//! Clause 2: each new grant of a name carries a greater fencing token.

use latchgate::{
    lock::FencingToken,
    store::{
        Store as _,
        contract::{GiveBack, Renewal},
    },
};

use super::{
    Fixture,
    attempts::{LONG, attempt, granted, is_free, key, keyed, released},
};
use crate::support::eventually;

pub(super) async fn rise_over_release(fixture: &dyn Fixture) {
    let store = fixture.store();
    let mut last = None;
    for _ in 0..20 {
        let attempt = attempt("lock", LONG);
        let fence = granted(&store, &attempt).await.fence;
        released(&store, &attempt).await;
        rises(&mut last, fence);
    }
}

pub(super) async fn rise_over_expiry(fixture: &dyn Fixture) {
    let store = fixture.store();
    let mut last = None;
    for _ in 0..3 {
        rises(
            &mut last,
            granted(&store, &attempt("lock", 100)).await.fence,
        );
        eventually("the lease expires", async || {
            is_free(&store, "lock").await.then_some(())
        })
        .await;
    }
}

pub(super) async fn rise_over_give_back(fixture: &dyn Fixture) {
    let store = fixture.store();
    let mut last = None;
    for _ in 0..3 {
        let attempt = attempt("lock", LONG);
        rises(&mut last, granted(&store, &attempt).await.fence);
        let outcome = store.give_back(&attempt.name, &attempt.token).await;
        assert_eq!(outcome.unwrap(), GiveBack::GivenBack);
    }
}

pub(super) async fn rise_over_restarts(fixture: &dyn Fixture) {
    let mut last = None;
    for _ in 0..4 {
        let attempt = attempt("lock", LONG);
        rises(&mut last, granted(&fixture.store(), &attempt).await.fence);
        released(&fixture.store(), &attempt).await;
        fixture.restart().await;
    }
}

pub(super) async fn are_the_same_for_the_same_lease(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = keyed("lock", LONG, key());
    let fence = granted(&store, &first).await.fence;
    assert_eq!(granted(&store, &first).await.fence, fence);
    let renewal = store.renew(&first.name, &first.token, None).await.unwrap();
    assert!(matches!(renewal, Renewal::Renewed(held, _) if held.fence == fence));
    fixture.restart().await;
    assert_eq!(granted(&fixture.store(), &first).await.fence, fence);
}

fn rises(last: &mut Option<FencingToken>, fence: FencingToken) {
    assert!(Some(fence) > *last, "{fence} after {last:?}");
    *last = Some(fence);
}
