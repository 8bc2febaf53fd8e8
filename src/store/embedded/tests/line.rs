//! Attempts that wait, for tests of the queue.

use std::time::Duration;

use tokio::time::timeout;

use super::rig::{Rig, attempt, keyed};
use crate::{
    lock::{HeldLease, IdempotencyHash},
    store::{
        Store,
        contract::{Acquisition, Attempt, Release, Waiting},
        parking::{News, Parked},
    },
};

/// Longer than any test takes.
pub(super) const LONG: u64 = 3_600_000;
/// How long an attempt of a test wants to wait.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(1);
/// Longer than anything takes that is to happen at once.
const LATE: Duration = Duration::from_secs(10);

/// An attempt that waits.
pub(super) fn waiting(lock: &str) -> Attempt {
    patient(attempt(lock, LONG))
}

/// An attempt under an idempotency key that waits.
pub(super) fn waiting_under(lock: &str, key: IdempotencyHash) -> Attempt {
    patient(keyed(lock, LONG, key))
}

/// Queues an attempt.
pub(super) async fn queued(rig: &Rig, attempt: &Attempt) -> Parked {
    let store = rig.store();
    let place = store.parking().park(attempt.name.clone(), attempt.token);
    match store.acquire(attempt).await {
        Ok(Acquisition::Queued(_)) => place,
        other => panic!("not queued: {other:?}"),
    }
}

/// Releases, and must have held the lock.
pub(super) async fn released(rig: &Rig, attempt: &Attempt) {
    let release = rig.store().release(&attempt.name, &attempt.token).await;
    assert_eq!(release, Ok(Release::Released));
}

/// Waits for the news that the attempt holds the lock.
pub(super) async fn told_of_its_grant(place: &mut Parked) -> HeldLease {
    match news(place).await {
        News::Granted(held) => held,
        other => panic!("not granted: {other:?}"),
    }
}

/// Waits for whatever the attempt is told.
pub(super) async fn news(place: &mut Parked) -> News {
    timeout(LATE, place.news()).await.expect("there are news")
}

/// The same attempt, which waits.
pub(super) fn patient(attempt: Attempt) -> Attempt {
    Attempt {
        wait: Some(Waiting {
            max_wait: MAX_WAIT,
            longest_queue: 10_000,
        }),
        ..attempt
    }
}
