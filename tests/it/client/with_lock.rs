//! Work under a lock.

use std::{future, time::Duration};

use latchgate::client::{AcquireRequest, ClientError, Loss, WithLockError};
use latchgate::lock::GroupNames;
use tokio::time::timeout;

use crate::support::fake_gateway::{FakeGateway, Reply};

use super::fixture::{client, lease, name};

/// How long anything may take on a machine that does other things as well.
const TIMEOUT: Duration = Duration::from_mins(1);

fn ended() -> Reply {
    Reply::problem(410, "lease-lost", "")
}

async fn with_lock<T>(
    gateway: &FakeGateway,
    work: impl AsyncFnOnce(&latchgate::client::Lease) -> T,
) -> Result<T, WithLockError> {
    let (client, name) = (client(gateway), name());
    let request = AcquireRequest::default();
    let with = client.with_lock(&name, &request, work);
    timeout(TIMEOUT, with).await.expect("it comes to an end")
}

#[tokio::test]
async fn the_lock_is_released_when_the_work_is_done() {
    let gateway = FakeGateway::new([lease(), Reply::Answer(204, String::new())]);
    let fence = with_lock(&gateway, async |lease| lease.fence.get()).await;
    assert_eq!(fence.unwrap(), 42);
    let received = gateway.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[1].line, "DELETE /locks/deploy HTTP/1.1");
}

#[tokio::test]
async fn work_is_not_begun_without_the_lock() {
    let gateway = FakeGateway::new([Reply::problem(423, "locked", "")]);
    let done = with_lock(&gateway, async |_lease| panic!("nobody has the lock")).await;
    let error = done.unwrap_err();
    assert!(
        matches!(error, WithLockError::NotAcquired(ClientError::Held(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn work_is_dropped_when_the_lease_is_lost() {
    // Soon over, so that it is renewed soon.
    let Reply::Answer(status, body) = lease() else {
        panic!("a lease is an answer");
    };
    let soon = body.replace("\"renew_after_ms\":9666", "\"renew_after_ms\":100");
    let short = Reply::Answer(status, soon);
    let gateway = FakeGateway::new([short, ended()]);
    let done = with_lock(&gateway, async |_lease| future::pending::<()>().await).await;
    let error = done.unwrap_err();
    assert!(
        matches!(error, WithLockError::Lost(Loss::Ended(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn work_that_outlived_its_lease_is_not_taken_for_done() {
    let gateway = FakeGateway::new([lease(), ended()]);
    let error = with_lock(&gateway, async |_lease| ()).await.unwrap_err();
    assert!(
        matches!(error, WithLockError::Lost(Loss::Ended(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_release_that_is_not_answered_does_not_take_away_what_was_done() {
    let away = || Reply::problem(503, "store-unavailable", "");
    let gateway = FakeGateway::new([lease(), away(), away(), Reply::Answer(204, String::new())]);
    assert_eq!(with_lock(&gateway, async |_lease| 7).await.unwrap(), 7);
    assert_eq!(gateway.received().len(), 4);
}

#[tokio::test]
async fn several_locks_are_held_as_one() {
    let gateway = FakeGateway::new([Reply::problem(423, "locked", "")]);
    let names = GroupNames::parse(["a", "b"]).unwrap();
    let request = AcquireRequest::default();
    let client = client(&gateway);
    let done = client.with_locks(&names, &request, async |_lease| ());
    let error = timeout(TIMEOUT, done).await.unwrap().unwrap_err();
    assert!(matches!(error, WithLockError::NotAcquired(_)), "{error:?}");
    assert_eq!(gateway.received()[0].line, "POST /locks HTTP/1.1");
}
