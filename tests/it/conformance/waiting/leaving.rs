//! Clause 7: an attempt that has left does not delay the others.

use crate::conformance::prelude::*;

pub(crate) async fn one_whose_wait_runs_out_is_refused_and_passed_over(fixture: &dyn Fixture) {
    const WAIT: Duration = Duration::from_millis(300);
    let (gateways, lease) = Gateways::holding(fixture).await;
    let hasty = with(request("lock", "hasty"), |it| it.wait = WAIT);
    let hasty = gateways.ask(hasty);
    let patient = gateways.ask(request("lock", "patient"));
    let error = hasty.refused().await;
    let AcquireError::Held {
        contention, waited, ..
    } = error
    else {
        panic!("not held: {error:?}");
    };
    assert!(waited >= WAIT);
    assert!(contention.holder.is_some());
    gateways.queued("lock", 1).await;
    gateways.pass(&lease, patient).await;
}

pub(crate) async fn one_who_hangs_up_is_passed_over(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let gone = gateways.queue(request("lock", "gone"), 1).await;
    let stays = gateways.queue(request("lock", "stays"), 2).await;
    gone.hang_up();
    gateways.queued("lock", 1).await;
    gateways.pass(&lease, stays).await;
}

pub(crate) async fn the_last_to_leave_leaves_nothing_behind(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let gone = gateways.queue(request("lock", "gone"), 1).await;
    gone.hang_up();
    gateways.queued("lock", 0).await;
    gateways.end(&lease).await;
    gateways.hold("lock").await;
}

pub(crate) async fn a_hundred_who_are_gone_delay_nobody(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let gone = gateways.crowd(100, &request("lock", "gone")).await;
    let stays = gateways.queue(request("lock", "stays"), 101).await;
    for caller in gone {
        caller.hang_up();
    }
    // Released at once: the other attempts may still be leaving.
    let released = Instant::now();
    let lease = gateways.pass(&lease, stays).await;
    // If each of them had to be skipped, each could delay the others by seconds.
    assert!(released.elapsed() < Duration::from_secs(50));
    gateways.end(&lease).await;
}
