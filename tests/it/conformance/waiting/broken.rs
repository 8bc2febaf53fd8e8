//! Breaks of a lock that has waiters, or that a stream holds.

use latchgate::engine::BreakError;

use super::streams::{Gateway, end_of};
use crate::conformance::prelude::*;

pub(crate) async fn leases_pass_the_lock_to_the_first_who_waits(fixture: &dyn Fixture) {
    let (gateways, mut holder) = Gateways::holding(fixture).await;
    let waiting = ["ann", "bob", "cyn"].map(|owner| request("lock", owner));
    for caller in gateways.queue_each(waiting).await {
        broken(gateways.any(), Some(holder.held.fence)).await;
        let next = caller.granted().await;
        assert!(next.held.fence > holder.held.fence);
        // No waiter was skipped, and the broken holder was not granted the lock again.
        let shown = gateways.shown("lock").await;
        assert!(
            matches!(shown.holder, Some(Holder::Lease(lease)) if lease.fence == next.held.fence)
        );
        holder = next;
    }
    broken(gateways.any(), Some(holder.held.fence)).await;
    gateways.idle("lock").await;
}

pub(crate) async fn leases_end_the_stream_that_holds_them_at_once(fixture: &dyn Fixture) {
    let [here, there] = [0, 1].map(|turn| Gateway::on(fixture, turn));
    listening(fixture).await;
    for breaker in [&here, &there] {
        // The renewals of the stream are far apart.
        let (mut hold, lease) = here.holds(LONG).await;
        let at = Instant::now();
        broken(&breaker.engine, Some(lease.held.fence)).await;
        let end = end_of(&mut hold).await;
        assert!(matches!(end, HoldEnd::Lost(LossReason::Broken)), "{end:?}");
        // The message of the break arrives, also on a busy machine: the next renewal is two hundred seconds away.
        assert!(at.elapsed() < Duration::from_secs(20), "{:?}", at.elapsed());
    }
}

/// Waits until a message from each handle to the store reaches each handle.
pub(crate) async fn listening(fixture: &dyn Fixture) {
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
    let (lock, reason) = (name("lock"), Reason::new("it hangs").unwrap());
    let meant = fence.map(BreakTarget::Lease);
    let holder = engine.break_lock(lock, meant, reason, None, record).await;
    let holder = holder.unwrap();
    assert!(matches!(holder, Holder::Lease(lease) if fence.is_none_or(|it| it == lease.fence)));
}
