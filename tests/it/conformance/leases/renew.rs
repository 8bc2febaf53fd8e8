//! Renew: a renewal keeps a living lease, and has no other effect.

use tokio::time::sleep_until;

use crate::conformance::prelude::*;

/// A store counts in milliseconds, on its own clock.
const GRAIN: Duration = Duration::from_millis(20);
/// A TTL that is long enough to renew the lease in time on any machine.
const FIRST: u64 = 1_500;

pub(crate) async fn makes_a_lease_outlast_its_first_ttl(fixture: &dyn Fixture) {
    let (store, first) = holding(fixture, attempt("lock", FIRST)).await;
    let over = Instant::now() + Duration::from_millis(FIRST);
    renewed(fixture, &first, Some(LONG)).await;
    sleep_until(over).await;
    refused(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn needs_the_token_of_the_holder(fixture: &dyn Fixture) {
    let (store, stranger) = (fixture.store(), attempt("lock", LONG));
    store.must_lose(&stranger, Loss::Free).await;
    granted(&store, &attempt("lock", LONG)).await;
    store.must_lose(&stranger, Loss::HeldByAnother).await;
}

pub(crate) async fn never_resurrects_an_ended_lease(fixture: &dyn Fixture) {
    let (store, gone) = holding(fixture, attempt("released", LONG)).await;
    released(&store, &gone).await;
    let over = store.must_hold(attempt("expired", SHORT)).await;
    store.until_free("expired").await;
    for ended in [gone, over] {
        let long = Some(ttl(LONG));
        let renewal = store.renew(&ended.name, &ended.token, long).await.unwrap();
        assert_eq!(renewal, Renewal::Lost(Loss::Free));
        assert!(is_free(&store, ended.name.as_str()).await);
    }
}

pub(crate) async fn stops_at_the_hold_limit(fixture: &dyn Fixture) {
    let store = fixture.store();
    let limit = Duration::from_millis(2_500);
    let asked = Instant::now();
    let first = limited("lock", 2_000, 2_500);
    let held = granted(&store, &first).await;
    // The lease cannot live longer than this, whatever the exact instant of its grant.
    let end = Instant::now() + limit;
    let left = held.hold_expires_in.expect("a hold limit was asked for");
    assert!(left <= limit && left + Duration::from_secs(2) > limit);
    let held = renewed(fixture, &first, Some(LONG)).await;
    let left = held.hold_expires_in.expect("the hold limit stays");
    assert_eq!(held.expires_in, left);
    assert_eq!(held.ttl, ttl(LONG));
    let loss = eventually("the hold limit is reached", async || {
        let before = Instant::now();
        match store.renew(&first.name, &first.token, None).await {
            Ok(Renewal::Renewed(held, _)) => {
                assert!(before + held.expires_in <= end + GRAIN);
                None
            }
            Ok(Renewal::Lost(loss)) => Some(loss),
            // The lease ended before the answer came.
            Err(StoreError::Indeterminate(_)) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(loss, Loss::Free);
    assert!(asked.elapsed() >= limit, "the lease ended before its limit");
    granted(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn takes_a_given_ttl_for_the_leases_own(fixture: &dyn Fixture) {
    let (_, first) = holding(fixture, attempt("lock", LONG)).await;
    for (given, own) in [(Some(30_000), 30_000), (None, 30_000), (Some(LONG), LONG)] {
        let held = renewed(fixture, &first, given).await;
        assert_eq!(held.ttl, ttl(own));
        // A renewal with a shorter TTL does not shorten the time left.
        assert!(held.expires_in <= ttl(LONG).duration());
        assert!(held.expires_in + Duration::from_secs(9) > ttl(LONG).duration());
    }
}

pub(crate) async fn gives_no_more_than_the_longest_ttl_of_its_caller(fixture: &dyn Fixture) {
    let (store, first) = holding(fixture, attempt("lock", 30_000)).await;
    let bounded = |asked| RenewalTtl {
        asked,
        max: Some(ttl(5_000)),
    };
    for (turn, terms) in [
        (0, bounded(None)),
        (1, bounded(Some(ttl(20_000)))),
        (2, bounded(None)),
    ] {
        let renewal = store.renew_as(Renewer::Bearer, &first.name, &first.token, terms);
        let Ok(Renewal::Renewed(held, _)) = renewal.await else {
            panic!("turn {turn} does not renew the lease");
        };
        assert_eq!(held.ttl, ttl(5_000), "{turn}");
        // The time left has neither grown nor shrunk.
        assert!(held.expires_in <= ttl(30_000).duration(), "{held:?}");
        assert!(held.expires_in > ttl(20_000).duration(), "{held:?}");
    }
}

pub(crate) async fn keeps_the_fence_and_everything_else(fixture: &dyn Fixture) {
    let first = limited("lock", LONG, 2 * LONG);
    let asked = Instant::now();
    let before = granted(&fixture.store(), &first).await;
    let after = renewed(fixture, &first, None).await;
    // A command counts its times from when it was sent, the store from when it was carried out.
    let since = asked.elapsed();
    assert_eq!(after.fence, before.fence);
    assert_eq!(after.said.owner, before.said.owner);
    assert!(after.held_for + since >= before.held_for);
    assert!(after.hold_expires_in <= before.hold_expires_in.map(|left| left + since));
}

pub(crate) async fn may_be_repeated(fixture: &dyn Fixture) {
    let first = attempt("lock", LONG);
    let held = granted(&fixture.store(), &first).await;
    for _ in 0..3 {
        let again = renewed(fixture, &first, Some(LONG)).await;
        assert_eq!(again.fence, held.fence);
    }
}

pub(crate) async fn survives_a_restart(fixture: &dyn Fixture) {
    let (_, first) = holding(fixture, attempt("lock", FIRST)).await;
    let over = Instant::now() + Duration::from_millis(FIRST);
    renewed(fixture, &first, Some(LONG)).await;
    fixture.restart().await;
    sleep_until(over).await;
    refused(&fixture.store(), &attempt("lock", LONG)).await;
    assert_eq!(renewed(fixture, &first, None).await.ttl, ttl(LONG));
}

async fn renewed(fixture: &dyn Fixture, attempt: &Attempt, ms: Option<u64>) -> HeldLease {
    fixture.store().must_renew(attempt, ms.map(ttl)).await
}
