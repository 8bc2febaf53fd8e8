//! A lease whose release was requested is broken when the time is over, if it still lives.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant, advance, timeout};

use crate::{
    engine::{BreakError, ReleaseRecord},
    lifecycle::Lifecycle,
    lock::{BreakTarget, FencingToken, HeldLease, Mode, Reason, ReleaseRequest},
    store::contract::{Breaking, Holder, Requesting, SharedHolders},
};

use super::scripted_store::*;

const WITHIN: Duration = Duration::from_secs(30);
/// One millisecond less than the time for the release.
const JUST_BEFORE: Duration = Duration::from_millis(29999);

type Records = Arc<Mutex<Vec<ReleaseRecord>>>;

fn asked_for() -> ReleaseRequest {
    ReleaseRequest {
        by: Some("ops".into()),
        reason: Reason::new("deploy").unwrap(),
        within: WITHIN,
    }
}

fn lease(fence: u64) -> HeldLease {
    let mut lease = held();
    lease.fence = FencingToken::new(fence).unwrap();
    lease.request_release(&asked_for());
    lease
}

fn answering(requesting: Requesting) -> Arc<ScriptedStore> {
    let store = ScriptedStore::queueing();
    store.requestings.lock().push_back(Ok(requesting));
    store
}

/// Requests the release of the lock, and adds the records to `records`.
async fn request_of(
    store: &Arc<ScriptedStore>,
    records: &Records,
) -> (Result<Holder, BreakError>, Lifecycle) {
    let (engine, lifecycle) = engine(store);
    let kept = Arc::clone(records);
    let record = move |record| {
        let kept = Arc::clone(&kept);
        async move { kept.lock().push(record) }
    };
    let asked = engine.request_release(name(), None, asked_for(), None, record);
    (asked.await, lifecycle)
}

/// A store whose holder was asked to release the lock; the answer and the records are dropped.
async fn asked(holder: Holder) -> (Arc<ScriptedStore>, Lifecycle) {
    let store = answering(Requesting::Requested(holder));
    let (asked, lifecycle) = request_of(&store, &Records::default()).await;
    asked.unwrap();
    settle().await;
    (store, lifecycle)
}

/// The leases that the store was asked to break.
fn broken(store: &ScriptedStore) -> Vec<Option<BreakTarget>> {
    store.broken.lock().clone()
}

fn target(fence: u64) -> BreakTarget {
    FencingToken::new(fence).unwrap().into()
}

async fn pass(time: Duration) {
    advance(time).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_released_is_broken_when_the_time_is_over_and_not_before() {
    let leases = [7, 9].map(|fence| HeldLease {
        mode: Mode::Shared { slot: None },
        ..lease(fence)
    });
    let shared = Holder::Shared(SharedHolders {
        leases: leases.to_vec(),
        count: 2,
        resting: 0,
    });
    let store = answering(Requesting::Requested(shared.clone()));
    // The first lease was released after the request, so another lease holds the lock now.
    let second = Holder::Lease(lease(9));
    let answers = [Ok(Breaking::NotHeld), Ok(Breaking::Broken(second.clone()))];
    store.breakings.lock().extend(answers);
    let records = Records::default();
    let (asked, _lifecycle) = request_of(&store, &records).await;
    assert_eq!(asked.unwrap(), shared);
    let requested = [(None, asked_for())];
    assert_eq!(*store.requested.lock(), requested);
    assert!(matches!(
        records.lock().as_slice(),
        [ReleaseRecord::Requested(Ok(holder))] if *holder == shared
    ));
    settle().await;
    pass(JUST_BEFORE).await;
    assert_eq!(broken(&store), []);
    pass(Duration::from_millis(1)).await;
    assert_eq!(broken(&store), [Some(target(7)), Some(target(9))]);
    // The first lease was not broken, so no record names it.
    assert!(matches!(
        records.lock().as_slice(),
        [_, ReleaseRecord::Broken(holder)] if *holder == second
    ));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_recorded_and_nothing_is_broken_after_it() {
    let foreign = Holder::Foreign {
        expires_in: None,
        mark: None,
    };
    for answer in [
        Requesting::NotHeld,
        Requesting::HolderChanged(Holder::Lease(held())),
        Requesting::Foreign(foreign),
    ] {
        let store = answering(answer);
        let records = Records::default();
        let (asked, _lifecycle) = request_of(&store, &records).await;
        let recorded = records.lock().pop().expect("it is recorded");
        let expected = format!("{:?}", ReleaseRecord::Requested(asked));
        assert_eq!(format!("{recorded:?}"), expected);
        pass(2 * WITHIN).await;
        assert_eq!(broken(&store), []);
    }
}

#[tokio::test(start_paused = true)]
async fn is_carried_out_to_its_end_although_its_caller_hangs_up() {
    let store = answering(Requesting::Requested(Holder::Lease(lease(7)))).with_closed_gate();
    let records = Records::default();
    let soon = Duration::from_millis(10);
    let hung_up = timeout(soon, request_of(&store, &records)).await;
    assert!(hung_up.is_err(), "the store does not answer");
    store.open_gate();
    settle().await;
    assert_eq!(records.lock().len(), 1);
    pass(WITHIN).await;
    assert_eq!(broken(&store), [Some(target(7))]);
}

/// The store may decide late: the time that the holder was told counts from the store's answer.
#[tokio::test(start_paused = true)]
async fn the_time_counts_from_when_the_store_has_answered() {
    let store = answering(Requesting::Requested(Holder::Lease(lease(7)))).with_closed_gate();
    let records = Records::default();
    let late = async {
        pass(Duration::from_secs(5)).await;
        store.open_gate();
    };
    let ((asked, _lifecycle), ()) = tokio::join!(request_of(&store, &records), late);
    asked.unwrap();
    settle().await;
    let answered = Instant::now();
    pass(JUST_BEFORE).await;
    assert_eq!(broken(&store), []);
    pass(Duration::from_millis(1)).await;
    assert_eq!(broken(&store), [Some(target(7))]);
    assert_eq!(answered.elapsed(), WITHIN);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_stops_before_leaves_the_lease_to_the_store() {
    let (store, lifecycle) = asked(Holder::Lease(lease(7))).await;
    let began = Instant::now();
    lifecycle.stop(WITHIN).await.unwrap();
    assert!(began.elapsed() < WITHIN, "nothing waits for its end");
    pass(2 * WITHIN).await;
    assert_eq!(broken(&store), []);
}

#[tokio::test(start_paused = true)]
async fn those_who_share_a_lock_are_broken_together() {
    let leases: Vec<_> = (1..=9).map(lease).collect();
    let shared = Holder::Shared(SharedHolders {
        leases,
        count: 9,
        resting: 0,
    });
    let (store, _lifecycle) = asked(shared).await;
    // No break is answered, and yet all breaks are sent.
    store.gate.forget_permits(1_000);
    pass(WITHIN).await;
    assert_eq!(*store.breaks_asked.lock(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_asked_for_sooner_is_left_to_who_has_asked() {
    let mut sooner = lease(7);
    let request = sooner.release_requested.as_mut().unwrap();
    request.within = WITHIN / 2;
    let (store, _lifecycle) = asked(Holder::Lease(sooner)).await;
    pass(2 * WITHIN).await;
    assert_eq!(broken(&store), []);
}
