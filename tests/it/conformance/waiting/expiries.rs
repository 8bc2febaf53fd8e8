//! The end of a TTL hands the lock to the waiters.

use crate::conformance::prelude::*;

/// How soon after the end of a lease the next waiter is granted the lock, with fallbacks and a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The TTL of a lease until others have entered the queue and it is renewed; longer than this takes on any machine.
const QUEUED: u64 = 3_000;

fn until_queued() -> AcquireRequest {
    with(request("lock", "first holder"), |it| {
        it.terms.set_ttl(ttl(QUEUED));
    })
}

pub(crate) async fn of_a_lease_hands_the_lock_to_the_first(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding_as(fixture, until_queued()).await;
    let first = gateways.queue(request("lock", "first"), 1).await;
    let second = gateways.queue(request("lock", "second"), 2).await;
    let short = Instant::now();
    renewed(&gateways, &lease).await;
    let next = first.granted().await;
    assert!(next.held.fence > lease.held.fence);
    assert!(short.elapsed() >= Duration::from_millis(QUEUED));
    assert!(short.elapsed() < Duration::from_millis(QUEUED) + SOON);
    assert!(second.is_waiting());
    gateways.pass(&next, second).await;
}

pub(crate) async fn of_lease_after_lease_serves_all(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding_as(fixture, until_queued()).await;
    let brief = |owner| {
        with(request("lock", owner), |it| {
            it.terms.set_ttl(ttl(SHORT / 2));
        })
    };
    let callers = ["never releases"; 4].map(brief);
    let callers = gateways.queue_each(callers).await;
    let short = Instant::now();
    renewed(&gateways, &lease).await;
    let mut fence = lease.held.fence;
    for caller in callers {
        let lease = caller.granted().await;
        assert!(lease.held.fence > fence);
        fence = lease.held.fence;
    }
    assert!(short.elapsed() >= Duration::from_millis(QUEUED + 3 * SHORT / 2));
    gateways.idle("lock").await;
}

pub(crate) async fn does_not_come_while_the_lease_is_renewed(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding_as(fixture, until_queued()).await;
    let caller = gateways.queue(request("lock", "waits"), 1).await;
    let until = Instant::now() + Duration::from_millis(QUEUED + QUEUED / 2);
    while Instant::now() < until {
        sleep(Duration::from_millis(QUEUED / 30)).await;
        renewed(&gateways, &lease).await;
        assert!(caller.is_waiting());
    }
    gateways.pass(&lease, caller).await;
}

async fn renewed(gateways: &Gateways, lease: &Lease) {
    let engine = gateways.any();
    let renewal = engine.renew(name("lock"), lease.token.clone(), RenewalTtl::default());
    renewal.await.unwrap();
}
