//! Breaks of a lock that somebody waits for, or holds by a stream.

use latchgate::telemetry::metrics::Metrics;
use std::time::Duration;

use latchgate::{
    config::LimitsConfig,
    engine::{AcquireRequest, BreakError, Engine, Hold, HoldEnd, HoldEvent, LossReason},
    lifecycle::Lifecycle,
    lock::{BreakTarget, FencingToken, Lease, Reason},
    store::{Store as _, contract::Holder},
};
use tokio::time::{Instant, timeout};

use super::{
    super::{
        Fixture,
        attempts::{LONG, attempt, granted, name, ttl},
    },
    Gateways, LATE, request,
};

pub(in super::super) async fn leases_pass_the_lock_to_the_first_who_waits(fixture: &dyn Fixture) {
    let gateways = Gateways::of(fixture);
    let mut holder = gateways.hold("lock").await;
    let mut waiting = Vec::new();
    for (before, owner) in ["ann", "bob", "cyn"].into_iter().enumerate() {
        let waiters = before as u64 + 1;
        waiting.push(gateways.queue(request("lock", owner), waiters).await);
    }
    for caller in waiting {
        broken(gateways.any(), Some(holder.held.fence)).await;
        let next = caller.granted().await;
        assert!(next.held.fence > holder.held.fence);
        // Nobody was passed over, and the one who was broken got nothing more.
        let shown = gateways.shown("lock").await;
        assert!(
            matches!(shown.holder, Some(Holder::Lease(lease)) if lease.fence == next.held.fence)
        );
        holder = next;
    }
    broken(gateways.any(), Some(holder.held.fence)).await;
    gateways.idle("lock").await;
}

pub(in super::super) async fn leases_end_the_stream_that_holds_them_at_once(fixture: &dyn Fixture) {
    let [here, there] = [0, 1].map(|turn| engine(fixture, turn));
    listening(fixture).await;
    for breaker in [&here, &there] {
        // Its renewals are far apart.
        let (mut hold, lease) = holds(&here, LONG).await;
        let at = Instant::now();
        broken(breaker, Some(lease.held.fence)).await;
        let end = end_of(&mut hold).await;
        assert!(matches!(end, HoldEnd::Lost(LossReason::Broken)), "{end:?}");
        // The word of the break, on a busy machine: the next renewal is two hundred seconds away.
        assert!(at.elapsed() < Duration::from_secs(20), "{:?}", at.elapsed());
    }
}

/// Waits until a word from each handle to the store reaches each.
pub(in super::super) async fn listening(fixture: &dyn Fixture) {
    let stores = fixture.gateways();
    for hearer in &stores {
        for teller in &stores {
            let mut listener = hearer.breaks().listen();
            let deadline = Instant::now() + LATE;
            loop {
                granted(teller, &attempt("word", LONG)).await;
                teller.break_lock(&name("word"), None).await.unwrap();
                let soon = Duration::from_millis(200);
                if timeout(soon, listener.recv()).await.is_ok() {
                    break;
                }
                assert!(Instant::now() < deadline, "no word gets through");
            }
        }
    }
}

async fn broken(engine: &Engine, fence: Option<FencingToken>) {
    let record = |outcome: Result<Holder, BreakError>| async move {
        assert!(outcome.is_ok(), "{outcome:?}");
    };
    let holder = engine
        .break_lock(
            name("lock"),
            fence.map(BreakTarget::Lease),
            Reason::new("it hangs").unwrap(),
            None,
            record,
        )
        .await
        .unwrap();
    assert!(matches!(holder, Holder::Lease(lease) if fence.is_none_or(|it| it == lease.fence)));
}

fn engine(fixture: &dyn Fixture, turn: usize) -> Engine {
    let stores = fixture.gateways();
    let store = stores[turn % stores.len()].clone();
    Engine::start(
        store,
        Lifecycle::new(),
        &LimitsConfig::default(),
        Metrics::default(),
    )
}

async fn holds(engine: &Engine, ms: u64) -> (Hold, Lease) {
    let request = AcquireRequest {
        ttl: ttl(ms),
        wait: Duration::ZERO,
        ..request("lock", "stream")
    };
    let mut hold = engine.hold(request).await.unwrap();
    match timeout(LATE, hold.next()).await {
        Ok(Some(HoldEvent::Granted(lease))) => (hold, lease),
        other => panic!("not granted: {other:?}"),
    }
}

async fn end_of(hold: &mut Hold) -> HoldEnd {
    loop {
        let event = timeout(LATE, hold.next()).await;
        match event.expect("it ends in time").expect("it ends in order") {
            HoldEvent::Ended(end) => return end,
            HoldEvent::Renewed(_)
            | HoldEvent::ReleaseRequested(_)
            | HoldEvent::Granted(_)
            | HoldEvent::Queued(_) => {}
        }
    }
}
