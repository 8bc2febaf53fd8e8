//! Clause 11: a broken lease stays broken, and no other lease is broken.

use crate::conformance::prelude::*;

pub(crate) async fn end_whoever_holds_the_lock(fixture: &dyn Fixture) {
    let first = granted(&fixture.store(), &attempt("lock", LONG)).await;
    assert_eq!(broken(fixture, None).await.fence, first.fence);
    for restarted in [false, true] {
        let store = &fixture.restart_if(restarted).await;
        assert!(is_free(store, "lock").await);
        let next = attempt("lock", LONG);
        assert!(granted(store, &next).await.fence > first.fence);
        released(store, &next).await;
    }
}

pub(crate) async fn with_a_fence_end_the_lease_that_has_it(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = granted(&store, &attempt("lock", LONG)).await;
    granted(&store, &attempt("other", LONG)).await;
    assert_eq!(broken(fixture, Some(first.fence)).await.ttl, first.ttl);
    assert!(is_free(&store, "lock").await);
    assert!(!is_free(&store, "other").await);
}

pub(crate) async fn with_another_target_end_nothing(fixture: &dyn Fixture) {
    let (store, asked) = (fixture.store(), attempt("lock", LONG));
    let mark = ForeignMark::new(&"0".repeat(ForeignMark::DIGITS)).unwrap();
    let free = store.break_lock(&asked.name, Some(mark.into())).await;
    assert_eq!(free.unwrap(), Breaking::NotHeld);
    let held = granted(&store, &asked).await;
    let [below, above] = [held.fence.get() - 1, held.fence.get() + 1]
        .map(|fence| FencingToken::new(fence).unwrap_or(FencingToken::MAX));
    for target in [below.into(), above.into(), mark.into()] {
        match store.break_lock(&asked.name, Some(target)).await {
            Ok(Breaking::HolderChanged(Holder::Lease(it))) => assert_eq!(it.fence, held.fence),
            other => panic!("{target:?}: {other:?}"),
        }
    }
    released(&store, &asked).await;
}

pub(crate) async fn of_a_free_lock_say_that_it_is_free(fixture: &dyn Fixture) {
    let store = fixture.store();
    let held = granted(&store, &attempt("lock", SHORT)).await;
    store.until_free("lock").await;
    let lease = Some(held.fence.into());
    for (lock, meant) in [("lock", lease), ("lock", None), ("never", None)] {
        let breaking = store.break_lock(&name(lock), meant).await.unwrap();
        assert_eq!(breaking, Breaking::NotHeld);
    }
}

pub(crate) async fn repeated_with_the_fence_end_no_other_lease(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = granted(&store, &attempt("lock", LONG)).await;
    let (next, target) = (attempt("lock", LONG), Some(first.fence.into()));
    broken(fixture, Some(first.fence)).await;
    let again = store.break_lock(&next.name, target).await;
    assert_eq!(again.unwrap(), Breaking::NotHeld);
    granted(&store, &next).await;
    let again = store.break_lock(&next.name, target).await;
    assert!(matches!(again, Ok(Breaking::HolderChanged(_))), "{again:?}");
    released(&store, &next).await;
}

pub(crate) async fn are_told_to_the_token_of_the_lease(fixture: &dyn Fixture) {
    let (_, asked) = holding(fixture, attempt("lock", LONG)).await;
    broken(fixture, None).await;
    for restarted in [false, true] {
        let store = &fixture.restart_if(restarted).await;
        for held in [false, true] {
            let next = attempt("lock", LONG);
            if held {
                granted(store, &next).await;
            }
            let lost = Loss::Broken { held };
            store.must_have_lost(&asked, lost).await;
            if held {
                released(store, &next).await;
            }
        }
    }
}

pub(crate) async fn are_told_to_that_token_and_for_that_lock_alone(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second] = ["lock", "lock"].map(|lock| attempt(lock, LONG));
    granted(&store, &first).await;
    broken(fixture, None).await;
    granted(&store, &second).await;
    released(&store, &second).await;
    store.must_lose(&second, Loss::Free).await;
    let renewal = store.renew(&name("other"), &first.token, None).await;
    assert_eq!(renewal.unwrap(), Renewal::Lost(Loss::Free));
}

pub(crate) async fn use_up_the_key_and_outlast_a_late_copy(fixture: &dyn Fixture) {
    let id = key();
    for asked in [attempt("lock", LONG), keyed("lock", LONG, id)] {
        granted(&fixture.store(), &asked).await;
        broken(fixture, None).await;
        for restarted in [false, true] {
            let store = &fixture.restart_if(restarted).await;
            store.must_withdraw(&asked).await;
            if asked.idempotency.is_some() {
                store.must_expire(&keyed("lock", LONG, id)).await;
            }
            assert!(is_free(store, "lock").await);
        }
    }
}

pub(crate) async fn leave_nothing_to_be_given_back(fixture: &dyn Fixture) {
    let (store, asked) = holding(fixture, attempt("lock", LONG)).await;
    broken(fixture, None).await;
    store.must_grant(&attempt("lock", LONG)).await;
    store.must_give_back(&asked, GiveBack::NothingHeld).await;
    refused(&store, &attempt("lock", LONG)).await;
}

/// Breaks `lock`, which a lease must hold. Answers the lease.
async fn broken(fixture: &dyn Fixture, fence: Option<FencingToken>) -> HeldLease {
    let meant = fence.map(BreakTarget::Lease);
    match fixture.last().must_break(&name("lock"), meant).await {
        Holder::Lease(lease) => lease,
        other => panic!("not broken: {other:?}"),
    }
}
