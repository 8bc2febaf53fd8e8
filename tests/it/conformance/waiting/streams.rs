//! Streams that hold a lock, at gateways without connection to each other.

use crate::conformance::prelude::*;

/// A gateway for one stream.
pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) lifecycle: Lifecycle,
}

pub(crate) async fn that_end_after_another_adopted_the_lease_release_nothing(
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

pub(crate) async fn hear_with_their_next_renewal_that_another_adopted_the_lease(
    fixture: &dyn Fixture,
) {
    let [here, there] = [0, 1].map(|turn| Gateway::on(fixture, turn));
    let (mut older, lease) = here.holds(3_000).await;
    let mut newer = there.adopts(&lease).await;
    let end = end_of(&mut older).await;
    assert!(matches!(end, HoldEnd::Lost(LossReason::Adopted)), "{end:?}");
    // The newer stream goes on with the lease.
    for _ in 0..2 {
        let event = next(&mut newer).await;
        assert!(matches!(event, HoldEvent::Renewed(_)), "{event:?}");
    }
}

pub(crate) async fn that_end_after_the_lease_was_answered_again_release_nothing(
    fixture: &dyn Fixture,
) {
    let [here, there] = [0, 1].map(|turn| Gateway::on(fixture, turn));
    let key = new_key();
    let keyed = || {
        with(request("lock", "asks again"), |it| {
            it.idempotency_key = Some(key.clone());
        })
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

pub(crate) async fn that_adopt_a_lease_together_leave_one_of_them(fixture: &dyn Fixture) {
    let [here, there] = [0, 1].map(|turn| Gateway::on(fixture, turn));
    let (first, lease) = here.holds(3_000).await;
    let adopt = |at: &Gateway| at.asks_to_adopt(&lease);
    // Two streams at each gateway adopt the lease at once: they hear of each other before the store has said which came
    // last.
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

pub(crate) async fn that_wait_are_told_how_their_place_moves(fixture: &dyn Fixture) {
    let (gateways, mut lease) = Gateways::holding(fixture).await;
    let before = ["first", "second"].map(|owner| request("lock", owner));
    let before = gateways.queue_each(before).await;
    let stream = request("lock", "stream");
    let mut hold = gateways.any().hold(stream).await.unwrap();
    assert_eq!(ahead(&mut hold).await, 2);
    let behind = gateways.queue(request("lock", "behind"), 4).await;
    for (left, caller) in before.into_iter().enumerate() {
        lease = gateways.pass(&lease, caller).await;
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

pub(crate) async fn granted(hold: &mut Hold) -> Lease {
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

/// How the stream ended if it did so before its second renewal. By the second renewal every stream knows the last
/// adopter.
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

pub(super) async fn end_of(hold: &mut Hold) -> HoldEnd {
    loop {
        if let HoldEvent::Ended(end) = next(hold).await {
            return end;
        }
    }
}

// === impl Gateway ===

impl Gateway {
    /// A gateway on one of the handles to the store.
    pub(crate) fn on(fixture: &dyn Fixture, turn: usize) -> Self {
        let lifecycle = Lifecycle::new();
        let stores = fixture.gateways();
        let store = stores[turn % stores.len()].clone();
        let engine = Engine::start(
            store,
            lifecycle.clone(),
            &LimitsConfig::default(),
            &HistoryConfig::default(),
            Metrics::default(),
        );
        Self { engine, lifecycle }
    }

    pub(super) async fn holds(&self, ms: u64) -> (Hold, Lease) {
        let request = with(request("lock", "stream"), |it| {
            it.terms.set_ttl(ttl(ms));
            it.wait = Duration::ZERO;
        });
        let mut hold = self.engine.hold(request).await.unwrap();
        let lease = granted(&mut hold).await;
        (hold, lease)
    }

    fn asks_to_adopt(&self, lease: &Lease) -> impl Future<Output = Hold> + use<> {
        let (engine, token) = (self.engine.clone(), lease.token.clone());
        async move {
            let adopted = engine.adopt(name("lock"), token, Authorization::default());
            adopted.await.unwrap()
        }
    }

    async fn adopts(&self, lease: &Lease) -> Hold {
        let mut hold = self.asks_to_adopt(lease).await;
        assert_eq!(granted(&mut hold).await.held.fence, lease.held.fence);
        hold
    }
}
