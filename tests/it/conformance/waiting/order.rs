//! Clause 6: attempts are granted a lock in the order in which they entered the queue.

use crate::conformance::prelude::*;

pub(crate) async fn those_who_wait_are_served_in_the_order_in_which_they_asked(
    fixture: &dyn Fixture,
) {
    const CALLERS: usize = 8;
    let (gateways, mut lease) = Gateways::holding(fixture).await;
    let callers = (0..CALLERS).map(|i| request("lock", &i.to_string()));
    let callers = gateways.queue_each(callers).await;
    for (i, caller) in callers.into_iter().enumerate() {
        assert!(caller.is_waiting());
        let next = gateways.pass(&lease, caller).await;
        assert_eq!(
            next.held.said.owner,
            request("lock", &i.to_string()).terms.said.owner
        );
        assert!(next.held.fence > lease.held.fence);
        let left = (CALLERS - 1 - i) as u64;
        assert_eq!(gateways.shown("lock").await.waiters, left);
        lease = next;
    }
    gateways.end(&lease).await;
}

pub(crate) async fn nobody_passes_those_who_wait(fixture: &dyn Fixture) {
    let (gateways, mut lease) = Gateways::holding(fixture).await;
    for turn in 0..30 {
        let caller = gateways.queue(request("lock", "waits"), 1).await;
        let barging = with(request("lock", "barges"), |it| it.wait = Duration::ZERO);
        let (barging, ()) = tokio::join!(
            gateways.any().acquire(barging),
            gateways.release("lock", &lease.token)
        );
        let error = barging.expect_err("it would pass somebody who waits");
        assert!(matches!(error, AcquireError::Held { .. }), "{error:?}");
        lease = caller.granted().await;
        assert_eq!(gateways.shown("lock").await.waiters, 0, "turn {turn}");
    }
}

pub(crate) async fn one_who_does_not_wait_never_queues(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let caller = gateways.queue(request("lock", "waits"), 1).await;
    let impatient = with(request("lock", "impatient"), |it| it.wait = Duration::ZERO);
    let error = gateways.any().acquire(impatient).await.unwrap_err();
    let AcquireError::Held {
        contention, waited, ..
    } = error
    else {
        panic!("not held: {error:?}");
    };
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(contention.waiters, 1);
    assert!(contention.holder.is_some());
    assert_eq!(gateways.shown("lock").await.waiters, 1);
    let lease = gateways.pass(&lease, caller).await;
    gateways.end(&lease).await;
}

pub(crate) async fn one_who_waits_for_a_free_lock_has_it_at_once(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let lease = gateways.ask(request("lock", "waits")).granted().await;
    gateways.end(&lease).await;
}

pub(crate) async fn the_queue_of_one_name_does_not_touch_another(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let [a, b] = [gateways.hold("a").await, gateways.hold("b").await];
    let for_a = gateways.queue(request("a", "for a"), 1).await;
    let for_b = gateways.queue(request("b", "for b"), 1).await;
    gateways.release("b", &b.token).await;
    let b = for_b.granted().await;
    assert!(for_a.is_waiting());
    assert_eq!(gateways.shown("a").await.waiters, 1);
    gateways.release("a", &a.token).await;
    let a = for_a.granted().await;
    gateways.release("a", &a.token).await;
    gateways.release("b", &b.token).await;
}
