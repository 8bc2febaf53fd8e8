//! Streams that hold a lock, at gateways that know nothing of each other.

use latchgate::telemetry::metrics::Metrics;
use std::time::Duration;

use latchgate::{
    auth::Authorization,
    config::LimitsConfig,
    engine::{AcquireRequest, Engine, Hold, HoldEnd, HoldEvent, LossReason},
    lifecycle::Lifecycle,
    lock::Lease,
};
use tokio::time::timeout;

use super::{
    super::{
        Fixture,
        attempts::{LONG, is_free, name, ttl},
    },
    Gateways, LATE, new_key, request,
};

/// A gateway for one stream.
struct Gateway {
    engine: Engine,
    lifecycle: Lifecycle,
}

pub(in super::super) async fn that_end_after_another_adopted_the_lease_release_nothing(
    fixture: &dyn Fixture,
) {
    let gateways = [0, 1, 0].map(|turn| Gateway::on(fixture, turn));
    let (older, lease) = gateways[0].holds(LONG).await;
    let newer = gateways[1].adopts(&lease).await;
    let newest = gateways[2].adopts(&lease).await;
    for (gateway, gone) in gateways.iter().zip([older, newer]) {
        drop(gone);
        gateway.lifecycle.quiet().await;
        assert!(!is_free(&fixture.store(), "lock").await);
    }
    drop(newest);
    gateways[2].lifecycle.quiet().await;
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(in super::super) async fn hear_with_their_next_renewal_that_another_adopted_the_lease(
    fixture: &dyn Fixture,
) {
    let [here, there] = [0, 1].map(|turn| Gateway::on(fixture, turn));
    let (mut older, lease) = here.holds(3_000).await;
    let mut newer = there.adopts(&lease).await;
    let end = end_of(&mut older).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Adopted)), "{end:?}");
    // And the newer one goes on with it.
    for _ in 0..2 {
        let event = next(&mut newer).await;
        assert!(matches!(event, HoldEvent::Renewed(_)), "{event:?}");
    }
}

pub(in super::super) async fn that_end_after_the_lease_was_answered_again_release_nothing(
    fixture: &dyn Fixture,
) {
    let [here, there] = [0, 1].map(|turn| Gateway::on(fixture, turn));
    let key = new_key();
    let keyed = || AcquireRequest {
        idempotency_key: Some(key.clone()),
        ..request("lock", "asks again")
    };
    let mut older = here.engine.hold(keyed()).await.unwrap();
    let lease = granted(&mut older).await;
    let mut newer = there.engine.hold(keyed()).await.unwrap();
    assert_eq!(granted(&mut newer).await.held.fence, lease.held.fence);
    drop(older);
    here.lifecycle.quiet().await;
    assert!(!is_free(&fixture.store(), "lock").await);
    drop(newer);
    there.lifecycle.quiet().await;
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(in super::super) async fn that_adopt_a_lease_together_leave_one_of_them(fixture: &dyn Fixture) {
    let [here, there] = [0, 1].map(|turn| Gateway::on(fixture, turn));
    let (first, lease) = here.holds(3_000).await;
    let adopt = |at: &Gateway| {
        let (engine, token) = (at.engine.clone(), lease.token.clone());
        async move {
            engine
                .adopt(name("lock"), token, Authorization::default())
                .await
                .unwrap()
        }
    };
    // Two at each gateway: they hear of each other before the store has said who came last.
    let (a, b, c, d) = tokio::join!(adopt(&here), adopt(&there), adopt(&here), adopt(&there));
    let mut going_on = Vec::new();
    for mut hold in [first, a, b, c, d] {
        match renewed_twice(&mut hold).await {
            None => going_on.push(hold),
            Some(end) => assert!(matches!(end, HoldEnd::Lost(LossReason::Adopted)), "{end:?}"),
        }
    }
    assert_eq!(going_on.len(), 1);
}

pub(in super::super) async fn that_wait_are_told_how_their_place_moves(fixture: &dyn Fixture) {
    let gateways = Gateways::of(fixture);
    let lease = gateways.hold("lock").await;
    let mut before = Vec::new();
    for (number, owner) in ["first", "second"].into_iter().enumerate() {
        let waiters = number as u64 + 1;
        before.push(gateways.queue(request("lock", owner), waiters).await);
    }
    let mut hold = gateways
        .any()
        .hold(request("lock", "stream"))
        .await
        .unwrap();
    assert_eq!(ahead(&mut hold).await, 2);
    let behind = gateways.queue(request("lock", "behind"), 4).await;
    let mut lease = lease;
    for (left, caller) in before.into_iter().enumerate() {
        gateways.release("lock", &lease.token).await;
        lease = caller.granted().await;
        assert_eq!(ahead(&mut hold).await, 1 - left as u64);
    }
    gateways.release("lock", &lease.token).await;
    granted(&mut hold).await;
    drop(hold);
    behind.granted().await;
}

async fn next(hold: &mut Hold) -> HoldEvent {
    let event = timeout(LATE, hold.next()).await;
    event
        .expect("something happens in time")
        .expect("it goes on")
}

async fn granted(hold: &mut Hold) -> Lease {
    match next(hold).await {
        HoldEvent::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

async fn ahead(hold: &mut Hold) -> u64 {
    match next(hold).await {
        HoldEvent::Queued(position) => position.ahead,
        other => panic!("not queued: {other:?}"),
    }
}

/// How it ended before it was renewed twice, if it did. By the second renewal everybody knows.
async fn renewed_twice(hold: &mut Hold) -> Option<HoldEnd> {
    let mut renewals = 0;
    while renewals < 2 {
        match next(hold).await {
            HoldEvent::Renewed(_) => renewals += 1,
            HoldEvent::Ended(end) => return Some(end),
            HoldEvent::Granted(_) | HoldEvent::Queued(_) | HoldEvent::ReleaseRequested(_) => {}
        }
    }
    None
}

async fn end_of(hold: &mut Hold) -> HoldEnd {
    loop {
        if let HoldEvent::Ended(end) = next(hold).await {
            return end;
        }
    }
}

// === impl Gateway ===

impl Gateway {
    /// On one of the handles to the store.
    fn on(fixture: &dyn Fixture, turn: usize) -> Self {
        let lifecycle = Lifecycle::new();
        let stores = fixture.gateways();
        let store = stores[turn % stores.len()].clone();
        let engine = Engine::start(
            store,
            lifecycle.clone(),
            &LimitsConfig::default(),
            Metrics::default(),
        );
        Self { engine, lifecycle }
    }

    async fn holds(&self, ms: u64) -> (Hold, Lease) {
        let request = AcquireRequest {
            ttl: ttl(ms),
            wait: Duration::ZERO,
            ..request("lock", "stream")
        };
        let mut hold = self.engine.hold(request).await.unwrap();
        let lease = granted(&mut hold).await;
        (hold, lease)
    }

    async fn adopts(&self, lease: &Lease) -> Hold {
        let token = lease.token.clone();
        let mut hold = self
            .engine
            .adopt(name("lock"), token, Authorization::default())
            .await
            .unwrap();
        assert_eq!(granted(&mut hold).await.held.fence, lease.held.fence);
        hold
    }
}
