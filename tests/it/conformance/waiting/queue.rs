//! What is told of a queue, and how long it may be.

use latchgate::store::contract::QueuePosition;

use crate::conformance::prelude::*;

pub(crate) async fn inspect_shows_who_waits_in_order_and_for_how_long(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let mut callers = Vec::new();
    for (i, owner) in ["ann", "bob", "cyn"].into_iter().enumerate() {
        let caller = gateways.queue(request("lock", owner), i as u64 + 1).await;
        callers.push(caller);
        // So that their waits can be told apart.
        sleep(Duration::from_millis(20)).await;
    }
    let shown = gateways.shown("lock").await;
    let owners: Vec<_> = shown.queue.iter().map(|it| it.owner.clone()).collect();
    assert_eq!(
        owners,
        ["ann", "bob", "cyn"].map(|it| request("lock", it).owner)
    );
    assert!(
        shown
            .queue
            .is_sorted_by(|before, after| before.waited > after.waited)
    );
    assert!(shown.queue[2].waited >= Duration::from_millis(10));
    assert!(shown.queue[0].waited < Duration::from_secs(30));
    assert_eq!(shown.waiters, 3);
    let holder = gateways.holder("lock").await;
    assert_eq!(holder, lease.held.owner);
}

pub(crate) async fn a_list_shows_how_many_wait_for_each_lock(fixture: &dyn Fixture) {
    let gateways = Gateways::of(fixture);
    gateways.hold("lock").await;
    gateways.hold("other").await;
    let first = gateways.queue(request("lock", "first"), 1).await;
    let _second = gateways.queue(request("lock", "second"), 2).await;
    listed(&gateways, &[("lock", 2), ("other", 0)]).await;
    first.hang_up();
    listed(&gateways, &[("lock", 1), ("other", 0)]).await;
}

/// Waits until a list shows these locks with so many who wait.
async fn listed(gateways: &Gateways, expected: &[(&str, u64)]) {
    let query = ListQuery {
        filter: ListFilter::default(),
        limit: 1_000,
        cursor: None,
    };
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
        let place = match store.acquire(&attempt).await.unwrap() {
            Acquisition::Queued(place) => place,
            other => panic!("not queued: {other:?}"),
        };
        assert_eq!(place.ahead, ahead);
        assert_eq!(place.contention.waiters, ahead + 1);
        assert!(place.contention.holder.is_some(), "{holder:?} holds it");
        // A copy of the command changes nothing.
        let again = store.acquire(&attempt).await.unwrap();
        let Acquisition::Queued(QueuePosition { ahead: again, .. }) = again else {
            panic!("not queued: {again:?}");
        };
        assert_eq!(again, ahead);
    }
}
