//! Clause 1: between a grant and its end, no other token is granted the lock.

use crate::conformance::prelude::*;

pub(crate) async fn one_of_many_concurrent_attempts_is_granted(fixture: &dyn Fixture) {
    let mut attempts = JoinSet::new();
    for _ in 0..64 {
        let store = fixture.store();
        attempts.spawn(async move {
            let outcome = store.acquire(&attempt("contended", LONG)).await.unwrap();
            matches!(outcome, Acquisition::Granted(_))
        });
    }
    let grants = attempts.join_all().await;
    assert_eq!(grants.into_iter().filter(|granted| *granted).count(), 1);
}

pub(crate) async fn a_held_lock_shows_its_holder_to_others(fixture: &dyn Fixture) {
    let store = fixture.store();
    let held = granted(&store, &attempt("held", LONG)).await;
    let told = store.must_refuse(&attempt("held", LONG)).await;
    let Contention {
        holder: Some(Holder::Lease(holder)),
        waiters: 0,
    } = told
    else {
        panic!("not held by a lease: {told:?}");
    };
    assert_eq!((holder.fence, holder.ttl), (held.fence, held.ttl));
    // Each answer leaves out the time that it took, so a later answer may show slightly more.
    assert!(holder.expires_in <= held.ttl.duration());
}

pub(crate) async fn names_do_not_exclude_each_other(fixture: &dyn Fixture) {
    let store = fixture.store();
    for lock in ["a", "A", "a:b", "a:b:c", "b"] {
        granted(&store, &attempt(lock, LONG)).await;
    }
    refused(&store, &attempt("a:b", LONG)).await;
}

pub(crate) async fn nobody_is_inside_together(fixture: &dyn Fixture) {
    const TURNS: usize = 40;
    let inside = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let (store, inside, turns) = (fixture.store(), Arc::clone(&inside), Arc::clone(&turns));
        clients.spawn(async move {
            while turns.load(Ordering::SeqCst) < TURNS {
                let attempt = attempt("critical", LONG);
                if let Acquisition::Granted(_) = store.acquire(&attempt).await.unwrap() {
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    tokio::task::yield_now().await;
                    turns.fetch_add(1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    released(&store, &attempt).await;
                }
            }
        });
    }
    clients.join_all().await;
}

pub(crate) async fn a_lease_survives_a_restart_and_still_excludes(fixture: &dyn Fixture) {
    let (_, holder) = holding(fixture, attempt("kept", LONG)).await;
    fixture.restart().await;
    let store = fixture.store();
    refused(&store, &attempt("kept", LONG)).await;
    released(&store, &holder).await;
    fixture.restart().await;
    assert!(is_free(&fixture.store(), "kept").await);
}
