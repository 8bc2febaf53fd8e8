//! Release: only the holder can release, and a repeated release does no harm.

use crate::conformance::prelude::*;

pub(crate) async fn frees_the_lock_for_the_next(fixture: &dyn Fixture) {
    let (store, first) = holding(fixture, attempt("lock", LONG)).await;
    released(&store, &first).await;
    assert!(is_free(&store, "lock").await);
    // A repeated release is answered that the lease is lost, and ends no other lease.
    store.must_not_release(&first, Loss::Free).await;
    granted(&store, &attempt("lock", LONG)).await;
    store.must_not_release(&first, Loss::HeldByAnother).await;
    refused(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn needs_the_token_of_the_holder(fixture: &dyn Fixture) {
    let store = fixture.store();
    let stranger = attempt("lock", LONG);
    store.must_not_release(&stranger, Loss::Free).await;
    granted(&store, &attempt("lock", LONG)).await;
    store.must_not_release(&stranger, Loss::HeldByAnother).await;
    refused(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn of_a_lease_with_a_key_may_be_repeated(fixture: &dyn Fixture) {
    let (store, first) = holding(fixture, keyed("lock", LONG, key())).await;
    for _ in 0..3 {
        released(&store, &first).await;
    }
    granted(&store, &attempt("lock", LONG)).await;
    released(&store, &first).await;
    refused(&store, &attempt("lock", LONG)).await;
    fixture.restart().await;
    released(&fixture.store(), &first).await;
}
