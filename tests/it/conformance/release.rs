//! Release: only the holder, and without harm when repeated.

use latchgate::store::{
    Store as _,
    contract::{Loss, Release},
};

use super::{
    Fixture,
    attempts::{LONG, attempt, granted, is_free, key, keyed, name, refused, released, token},
};

pub(super) async fn frees_the_lock_for_the_next(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = attempt("lock", LONG);
    granted(&store, &first).await;
    released(&store, &first).await;
    assert!(is_free(&store, "lock").await);
    granted(&store, &attempt("lock", LONG)).await;
}

pub(super) async fn needs_the_token_of_the_holder(fixture: &dyn Fixture) {
    let store = fixture.store();
    granted(&store, &attempt("lock", LONG)).await;
    let release = store.release(&name("lock"), &token()).await.unwrap();
    assert_eq!(release, Release::Lost(Loss::HeldByAnother));
    refused(&store, &attempt("lock", LONG)).await;
}

pub(super) async fn of_a_free_lock_says_that_it_is_free(fixture: &dyn Fixture) {
    let release = fixture.store().release(&name("lock"), &token()).await;
    assert_eq!(release.unwrap(), Release::Lost(Loss::Free));
}

pub(super) async fn of_a_lease_with_a_key_may_be_repeated(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = keyed("lock", LONG, key());
    granted(&store, &first).await;
    for _ in 0..3 {
        released(&store, &first).await;
    }
    granted(&store, &attempt("lock", LONG)).await;
    released(&store, &first).await;
    refused(&store, &attempt("lock", LONG)).await;
}

pub(super) async fn of_a_lease_with_a_key_may_be_repeated_after_a_restart(fixture: &dyn Fixture) {
    let first = keyed("lock", LONG, key());
    granted(&fixture.store(), &first).await;
    released(&fixture.store(), &first).await;
    fixture.restart().await;
    released(&fixture.store(), &first).await;
}

pub(super) async fn repeated_without_a_key_says_that_it_is_lost(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = attempt("lock", LONG);
    granted(&store, &first).await;
    released(&store, &first).await;
    let release = store.release(&first.name, &first.token).await.unwrap();
    assert_eq!(release, Release::Lost(Loss::Free));
}

pub(super) async fn repeated_does_not_end_the_lease_of_the_next(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = attempt("lock", LONG);
    granted(&store, &first).await;
    released(&store, &first).await;
    granted(&store, &attempt("lock", LONG)).await;
    let release = store.release(&first.name, &first.token).await.unwrap();
    assert_eq!(release, Release::Lost(Loss::HeldByAnother));
    refused(&store, &attempt("lock", LONG)).await;
}
