//! What the end of a lease does for those who wait.

use std::time::Duration;

use latchgate::{engine::AcquireRequest, lock::Lease, store::contract::RenewalTtl};
use tokio::time::{Instant, sleep};

use super::{
    super::{
        Fixture,
        attempts::{SHORT, name, ttl},
    },
    Gateways, request,
};

/// How soon after the end of a lease the next is granted: fallbacks included, and a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A lease that lasts until others have queued and it is renewed. No machine is so busy that these take as long.
const QUEUED: u64 = 3_000;

fn until_queued() -> AcquireRequest {
    AcquireRequest {
        ttl: ttl(QUEUED),
        ..request("lock", "first holder")
    }
}

pub(in super::super) async fn of_a_lease_hands_the_lock_to_the_first(fixture: &dyn Fixture) {
    let gateways = Gateways::of(fixture);
    let lease = gateways.hold_as(until_queued()).await;
    let first = gateways.queue(request("lock", "first"), 1).await;
    let second = gateways.queue(request("lock", "second"), 2).await;
    let short = Instant::now();
    renewed(&gateways, &lease).await;
    let next = first.granted().await;
    assert!(next.held.fence > lease.held.fence);
    assert!(short.elapsed() >= Duration::from_millis(QUEUED));
    assert!(short.elapsed() < Duration::from_millis(QUEUED) + SOON);
    assert!(second.is_waiting());
    gateways.release("lock", &next.token).await;
    second.granted().await;
}

pub(in super::super) async fn of_lease_after_lease_serves_all(fixture: &dyn Fixture) {
    let gateways = Gateways::of(fixture);
    let lease = gateways.hold_as(until_queued()).await;
    let mut callers = Vec::new();
    for i in 0..4 {
        let request = AcquireRequest {
            ttl: ttl(SHORT / 2),
            ..request("lock", "never releases")
        };
        callers.push(gateways.queue(request, i + 1).await);
    }
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

pub(in super::super) async fn does_not_come_while_the_lease_is_renewed(fixture: &dyn Fixture) {
    let gateways = Gateways::of(fixture);
    let lease = gateways.hold_as(until_queued()).await;
    let caller = gateways.queue(request("lock", "waits"), 1).await;
    let until = Instant::now() + Duration::from_millis(QUEUED + QUEUED / 2);
    while Instant::now() < until {
        sleep(Duration::from_millis(QUEUED / 30)).await;
        renewed(&gateways, &lease).await;
        assert!(caller.is_waiting());
    }
    gateways.release("lock", &lease.token).await;
    caller.granted().await;
}

async fn renewed(gateways: &Gateways, lease: &Lease) {
    let engine = gateways.any();
    let renewal = engine.renew(name("lock"), lease.token.clone(), RenewalTtl::default());
    renewal.await.unwrap();
}
