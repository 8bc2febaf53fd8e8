//! What is shown of a queue, and the limit of its length.

use crate::conformance::prelude::*;

pub(crate) async fn inspect_shows_who_waits_in_order_and_for_how_long(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let mut callers = Vec::new();
    for (waiters, owner) in (1..).zip(["ann", "bob", "cyn"]) {
        callers.push(gateways.queue(request("lock", owner), waiters).await);
        // A pause, so that the waits have different lengths.
        sleep(Duration::from_millis(20)).await;
    }
    let shown = gateways.shown("lock").await;
    let owners: Vec<_> = shown.queue.iter().map(|it| it.owner.clone()).collect();
    let expected = ["ann", "bob", "cyn"].map(|it| request("lock", it).terms.said.owner);
    assert_eq!(owners, expected);
    let waits = shown.queue.iter().map(|it| it.waited);
    assert!(waits.is_sorted_by(|before, after| before > after));
    assert!(shown.queue[2].waited >= Duration::from_millis(10));
    assert!(shown.queue[0].waited < Duration::from_secs(30));
    assert_eq!(shown.waiters, 3);
    let holder = gateways.holder("lock").await;
    assert_eq!(holder, lease.held.said.owner);
}

pub(crate) async fn a_list_shows_how_many_wait_for_each_lock(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    gateways.hold("lock").await;
    gateways.hold("other").await;
    let first = gateways.queue(request("lock", "first"), 1).await;
    let _second = gateways.queue(request("lock", "second"), 2).await;
    listed(&gateways, &[("lock", 2), ("other", 0)]).await;
    first.hang_up();
    listed(&gateways, &[("lock", 1), ("other", 0)]).await;
}

/// Waits until a list shows these locks with these numbers of waiters.
async fn listed(gateways: &Gateways, expected: &[(&str, u64)]) {
    let query = list_query(1_000, None);
    eventually(&format!("{expected:?} is listed"), async || {
        let page = gateways.any().list(&query, |_| true).await.unwrap();
        let locks = page.locks.iter();
        let mut shown: Vec<_> = locks
            .map(|lock| (lock.name.as_str(), lock.waiters))
            .collect();
        shown.sort_unstable();
        (shown == expected).then_some(())
    })
    .await;
}

pub(crate) async fn a_full_queue_takes_nobody_until_somebody_leaves(fixture: &dyn Fixture) {
    let limits = with(LimitsConfig::default(), |it| it.max_waiters_per_name = 2);
    let gateways = Gateways::with(fixture, &limits);
    gateways.hold("lock").await;
    let first = gateways.queue(request("lock", "first"), 1).await;
    let _second = gateways.queue(request("lock", "second"), 2).await;
    let error = gateways.ask(request("lock", "third")).refused().await;
    assert!(matches!(error, AcquireError::TooManyWaiters), "{error:?}");
    first.hang_up();
    gateways.queued("lock", 1).await;
    let _third = gateways.queue(request("lock", "third"), 2).await;
}

pub(crate) async fn an_attempt_is_told_how_many_are_before_it(fixture: &dyn Fixture) {
    let store = fixture.store();
    let holder = granted(&store, &attempt("lock", LONG)).await;
    for ahead in 0..3 {
        let attempt = patient(attempt("lock", LONG));
        let _place = store.park(&attempt);
        let place = store.must_queue(&attempt).await;
        assert_eq!(place.ahead, ahead);
        assert_eq!(place.contention.waiters, ahead + 1);
        assert!(place.contention.holder.is_some(), "{holder:?} holds it");
        // A repeated command changes nothing.
        assert_eq!(store.must_queue(&attempt).await.ahead, ahead);
    }
}
