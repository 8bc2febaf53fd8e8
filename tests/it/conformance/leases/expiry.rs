//! A lease ends when its TTL is over, and not earlier.

use crate::conformance::prelude::*;

pub(crate) async fn frees_the_lock(fixture: &dyn Fixture) {
    let store = fixture.store();
    granted(&store, &attempt("lock", 2 * SHORT)).await;
    refused(&store, &attempt("lock", SHORT)).await;
    store.until_free("lock").await;
    granted(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn ends_what_renew_and_release_may_do(fixture: &dyn Fixture) {
    let (store, first) = holding(fixture, attempt("lock", SHORT)).await;
    store.until_free("lock").await;
    store.must_have_lost(&first, Loss::Free).await;
    granted(&store, &attempt("lock", LONG)).await;
    store.must_not_release(&first, Loss::HeldByAnother).await;
}

pub(crate) async fn is_neither_earlier_nor_much_later_than_the_ttl(fixture: &dyn Fixture) {
    let store = fixture.store();
    let asked = Instant::now();
    granted(&store, &attempt("lock", SHORT)).await;
    let answered = Instant::now();
    let next = attempt("lock", LONG);
    let free = eventually("the next is granted", async || {
        match store.acquire(&next).await.unwrap() {
            Acquisition::Granted(_) => Some(Instant::now()),
            _ => None,
        }
    })
    .await;
    let ttl = Duration::from_millis(SHORT);
    assert!(free - asked >= ttl, "the lease ended early");
    // The promise is one second; a busy machine may take ten times that.
    let late = Duration::from_secs(10);
    assert!(free - answered < ttl + late, "the lease outlived its TTL");
}

pub(crate) async fn goes_on_through_a_restart(fixture: &dyn Fixture) {
    let asked = Instant::now();
    let asked_for = attempt("lock", 2_000);
    let before = granted(&fixture.store(), &asked_for).await;
    fixture.restart().await;
    let store = fixture.store();
    let after = store.inspect(&asked_for.name).await.unwrap().holder;
    if let Some(Holder::Lease(after)) = after {
        assert!(after.expires_in < before.expires_in, "the lease began anew");
    }
    refused(&store, &attempt("lock", LONG)).await;
    store.until_free("lock").await;
    let lasted = asked.elapsed();
    assert!(lasted >= before.expires_in, "the lease ended early");
    assert!(lasted < Duration::from_secs(20), "the lease does not end");
}
