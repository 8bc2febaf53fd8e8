//! Clause 14: a check of a fencing token passes while its lease holds the lock, and for no other number.

use crate::conformance::prelude::*;

pub(crate) async fn pass_for_the_lease_that_holds_the_lock_and_no_other_number(
    fixture: &dyn Fixture,
) {
    let store = fixture.store();
    let first = attempt("lock", LONG);
    let stale = granted(&store, &first).await.fence;
    released(&store, &first).await;
    let held = granted(&store, &attempt("lock", LONG)).await;
    let left = store.must_pass("lock", held.fence).await;
    assert!(left <= ttl(LONG).duration(), "{left:?}");
    // A quorum takes off a hundredth, because clocks drift apart.
    assert!(left > ttl(LONG).duration() * 9 / 10, "{left:?}");
    assert!(store.must_be_stale("lock", stale).await);
    let fence = |number| FencingToken::new(number).unwrap();
    assert!(store.must_be_stale("lock", fence(1)).await);
    let later = fence(held.fence.get() + 1);
    assert!(!store.must_be_stale("lock", later).await);
    assert!(!store.must_be_stale("lock", FencingToken::MAX).await);
    assert!(!store.must_be_stale("another", held.fence).await);
}

pub(crate) async fn fail_after_the_end_of_the_lease_however_it_ended(fixture: &dyn Fixture) {
    let store = fixture.store();
    let lock = name("lock");
    for end in ["release", "break", "give back", "expiry"] {
        let ttl = if end == "expiry" { SHORT } else { LONG };
        let asked = attempt("lock", ttl);
        let fence = granted(&store, &asked).await.fence;
        match end {
            "release" => released(&store, &asked).await,
            "break" => drop(store.must_break(&lock, Some(fence.into())).await),
            "give back" => store.must_give_back(&asked, GiveBack::GivenBack).await,
            _ => store.until_free("lock").await,
        }
        assert!(!store.must_be_stale("lock", fence).await, "{end}");
        let next = attempt("lock", LONG);
        granted(&store, &next).await;
        assert!(store.must_be_stale("lock", fence).await, "{end}");
        released(&store, &next).await;
    }
}

pub(crate) async fn tell_how_much_of_the_lease_is_left(fixture: &dyn Fixture) {
    let (store, asked) = holding(fixture, attempt("lock", 20_000)).await;
    let fence = store.must_be_held(&asked.name).await.fence;
    let before = store.must_pass("lock", fence).await;
    let second = Duration::from_secs(1);
    let is_shorter = async || store.must_pass("lock", fence).await + second / 2 <= before;
    until("the lease gets shorter", is_shorter).await;
    store.must_renew(&asked, Some(ttl(LONG))).await;
    assert!(store.must_pass("lock", fence).await > before * 2);
    // A release request makes the lease end sooner.
    let request = ReleaseRequest {
        by: None,
        reason: Reason::new("please").unwrap(),
        within: 10 * second,
    };
    let requesting = store.request_release(&asked.name, None, &request).await;
    assert!(
        matches!(requesting, Ok(Requesting::Requested(_))),
        "{requesting:?}"
    );
    assert!(store.must_pass("lock", fence).await <= request.within + 2 * second);
}

pub(crate) async fn pass_through_every_gateway_and_after_a_restart(fixture: &dyn Fixture) {
    let held = granted(&fixture.store(), &attempt("lock", LONG)).await;
    for store in fixture.gateways() {
        store.must_pass("lock", held.fence).await;
    }
    fixture.restart().await;
    for store in fixture.gateways() {
        store.must_pass("lock", held.fence).await;
    }
}

pub(crate) async fn pass_for_a_lease_that_was_handed_over(fixture: &dyn Fixture) {
    let (gateways, mut lease) = Gateways::holding(fixture).await;
    for turn in 0..6 {
        let owner = format!("waiter {turn}");
        let next = gateways.queue(request("lock", &owner), 1).await;
        let before = lease.held.fence;
        lease = gateways.pass(&lease, next).await;
        let store = fixture.store();
        store.must_pass("lock", lease.held.fence).await;
        assert!(store.must_be_stale("lock", before).await);
    }
}

pub(crate) async fn of_a_closed_store_fail(fixture: &dyn Fixture) {
    let store = fixture.store();
    store.close().await;
    let fence = FencingToken::new(7).unwrap();
    assert_unavailable(store.check_fence(&fence_query("lock", fence)).await);
}
