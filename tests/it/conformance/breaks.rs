//! Clause 11: what is broken stays broken, and nothing else is.

use latchgate::{
    lock::{BreakTarget, FencingToken, ForeignMark, HeldLease},
    store::{
        Store as _, StoreError, Unavailability,
        contract::{Acquisition, Breaking, GiveBack, Holder, Loss, Release, Renewal},
    },
};

use super::{
    Fixture,
    attempts::{LONG, SHORT, attempt, granted, is_free, key, keyed, name, refused, released},
};
use crate::support::eventually;

pub(super) async fn end_whoever_holds_the_lock(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = granted(&store, &attempt("lock", LONG)).await;
    assert_eq!(broken(fixture, None).await.fence, first.fence);
    assert!(is_free(&store, "lock").await);
    let next = granted(&store, &attempt("lock", LONG)).await;
    assert!(next.fence > first.fence);
}

pub(super) async fn with_a_fence_end_the_lease_that_has_it(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = granted(&store, &attempt("lock", LONG)).await;
    granted(&store, &attempt("other", LONG)).await;
    assert_eq!(broken(fixture, Some(first.fence)).await.ttl, first.ttl);
    assert!(is_free(&store, "lock").await);
    assert!(!is_free(&store, "other").await);
}

pub(super) async fn with_another_fence_end_nothing(fixture: &dyn Fixture) {
    let store = fixture.store();
    let asked = attempt("lock", LONG);
    let held = granted(&store, &asked).await;
    for fence in [held.fence.get() - 1, held.fence.get() + 1] {
        let fence = FencingToken::new(fence).unwrap_or(FencingToken::MAX);
        let breaking = store
            .break_lock(&name("lock"), Some(fence.into()))
            .await
            .unwrap();
        match breaking {
            Breaking::HolderChanged(Holder::Lease(holder)) => {
                assert_eq!(holder.fence, held.fence);
            }
            other => panic!("{other:?}"),
        }
    }
    released(&store, &asked).await;
}

pub(super) async fn with_the_mark_of_a_foreign_client_end_no_lease(fixture: &dyn Fixture) {
    let store = fixture.store();
    let mark = ForeignMark::new(&"0".repeat(ForeignMark::DIGITS)).unwrap();
    let free = store.break_lock(&name("lock"), Some(mark.into())).await;
    assert_eq!(free.unwrap(), Breaking::NotHeld);
    let asked = attempt("lock", LONG);
    let held = granted(&store, &asked).await;
    match store.break_lock(&name("lock"), Some(mark.into())).await {
        Ok(Breaking::HolderChanged(Holder::Lease(holder))) => assert_eq!(holder.fence, held.fence),
        other => panic!("{other:?}"),
    }
    released(&store, &asked).await;
}

pub(super) async fn of_a_free_lock_say_that_it_is_free(fixture: &dyn Fixture) {
    let store = fixture.store();
    let held = granted(&store, &attempt("lock", SHORT)).await;
    eventually("the lease expires", async || {
        is_free(&store, "lock").await.then_some(())
    })
    .await;
    let lease = Some(held.fence.into());
    for (lock, meant) in [("lock", lease), ("lock", None), ("never", None)] {
        let breaking = store.break_lock(&name(lock), meant).await.unwrap();
        assert_eq!(breaking, Breaking::NotHeld);
    }
}

pub(super) async fn repeated_with_the_fence_end_no_other_lease(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = granted(&store, &attempt("lock", LONG)).await;
    broken(fixture, Some(first.fence)).await;
    let again = store
        .break_lock(&name("lock"), Some(first.fence.into()))
        .await;
    assert_eq!(again.unwrap(), Breaking::NotHeld);
    let next = attempt("lock", LONG);
    granted(&store, &next).await;
    let again = store
        .break_lock(&name("lock"), Some(first.fence.into()))
        .await;
    assert!(matches!(again, Ok(Breaking::HolderChanged(_))), "{again:?}");
    released(&store, &next).await;
}

pub(super) async fn are_told_to_the_token_of_the_lease(fixture: &dyn Fixture) {
    let asked = attempt("lock", LONG);
    granted(&fixture.store(), &asked).await;
    broken(fixture, None).await;
    for restarted in [false, true] {
        if restarted {
            fixture.restart().await;
        }
        for held in [false, true] {
            let store = fixture.store();
            let next = attempt("lock", LONG);
            if held {
                granted(&store, &next).await;
            }
            let lost = Loss::Broken { held };
            let renewal = store.renew(&asked.name, &asked.token, None).await;
            assert_eq!(renewal.unwrap(), Renewal::Lost(lost));
            let release = store.release(&asked.name, &asked.token).await;
            assert_eq!(release.unwrap(), Release::Lost(lost));
            if held {
                released(&store, &next).await;
            }
        }
    }
}

pub(super) async fn are_told_to_that_token_and_for_that_lock_alone(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second] = ["lock", "lock"].map(|lock| attempt(lock, LONG));
    granted(&store, &first).await;
    broken(fixture, None).await;
    granted(&store, &second).await;
    released(&store, &second).await;
    let renewal = store.renew(&second.name, &second.token, None).await;
    assert_eq!(renewal.unwrap(), Renewal::Lost(Loss::Free));
    let renewal = store.renew(&name("other"), &first.token, None).await;
    assert_eq!(renewal.unwrap(), Renewal::Lost(Loss::Free));
}

pub(super) async fn use_up_the_idempotency_key(fixture: &dyn Fixture) {
    let id = key();
    granted(&fixture.store(), &keyed("lock", LONG, id)).await;
    broken(fixture, None).await;
    for restarted in [false, true] {
        if restarted {
            fixture.restart().await;
        }
        let again = fixture.store().acquire(&keyed("lock", LONG, id)).await;
        assert_eq!(again.unwrap(), Acquisition::IdempotencyExpired);
    }
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(super) async fn outlast_a_late_copy_of_the_acquire(fixture: &dyn Fixture) {
    let plain = attempt("lock", LONG);
    for asked in [plain, keyed("lock", LONG, key())] {
        granted(&fixture.store(), &asked).await;
        broken(fixture, None).await;
        for restarted in [false, true] {
            if restarted {
                fixture.restart().await;
            }
            let late = fixture.store().acquire(&asked).await;
            let withdrawn = StoreError::from(Unavailability::Withdrawn);
            assert_eq!(late, Err(withdrawn));
        }
        assert!(is_free(&fixture.store(), "lock").await);
    }
}

pub(super) async fn leave_nothing_to_be_given_back(fixture: &dyn Fixture) {
    let store = fixture.store();
    let asked = attempt("lock", LONG);
    granted(&store, &asked).await;
    broken(fixture, None).await;
    let next = attempt("lock", LONG);
    granted(&store, &next).await;
    let outcome = store.give_back(&asked.name, &asked.token).await.unwrap();
    assert_eq!(outcome, GiveBack::NothingHeld);
    refused(&store, &attempt("lock", LONG)).await;
}

pub(super) async fn survive_a_restart(fixture: &dyn Fixture) {
    let held = granted(&fixture.store(), &attempt("lock", LONG)).await;
    broken(fixture, None).await;
    fixture.restart().await;
    assert!(is_free(&fixture.store(), "lock").await);
    let next = granted(&fixture.store(), &attempt("lock", LONG)).await;
    assert!(next.fence > held.fence);
}

/// Breaks `lock`, which must be held by a lease.
async fn broken(fixture: &dyn Fixture, fence: Option<FencingToken>) -> HeldLease {
    let stores = fixture.gateways();
    let store = stores.last().expect("there is one");
    let meant = fence.map(BreakTarget::Lease);
    match store.break_lock(&name("lock"), meant).await.unwrap() {
        Breaking::Broken(Holder::Lease(lease)) => lease,
        other => panic!("not broken: {other:?}"),
    }
}
