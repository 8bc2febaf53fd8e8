//! C10 to C13: waiting.

use latchgate_client::{AcquireRequest, ClientError, GroupNames, LockName};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{LONG, Rig, acquire, millis, result, seconds, wait};

#[tokio::test]
async fn c10_waiters_are_served_in_order() {
    let rig = Rig::start();
    let client = rig.client();
    let lease = client.acquire(&rig.name, &AcquireRequest::default()).await;
    let lease = lease.unwrap();
    let first = acquire(&client, &rig.name, wait(LONG));
    rig.until_waiters(1).await;
    let second = acquire(&client, &rig.name, wait(AcquireRequest::FOR_EVER));
    rig.until_waiters(2).await;
    let released_at = Instant::now();
    client.release_lease(&lease).await.unwrap();
    let (first, granted_at) = result(first).await;
    assert!(granted_at - released_at < seconds(10));
    assert!(first.waited > millis(0) && !second.is_finished());
    client.release_lease(&first).await.unwrap();
    assert!(result(second).await.0.fence > first.fence);
}

#[tokio::test]
async fn c11_a_wait_runs_out() {
    let rig = Rig::start();
    let at_b = rig.at_b();
    let held = at_b.acquire(&rig.name, &AcquireRequest::default()).await;
    let held = held.unwrap();
    let begun = Instant::now();
    let error = rig.client().acquire(&rig.name, &wait(seconds(1))).await;
    let took = begun.elapsed();
    assert!(took >= seconds(1) && took < seconds(21), "{took:?}");
    let Err(ClientError::WaitOver(problem)) = error else {
        panic!("{error:?}");
    };
    assert_eq!((problem.status, problem.code.as_str()), (423, "locked"));
    assert_eq!(problem.holders[0].fencing_token, Some(held.fence.get()));
    assert_eq!(rig.look().await.waiter_count, 0);
}

#[tokio::test]
async fn c12_the_place_is_kept_over_short_waits_and_a_restart() {
    let rig = Rig::start();
    let short = json!({ "LATCHGATE_LIMITS_MAX_WAIT_MS": "1000" });
    for which in ["a", "b"] {
        rig.restart(which, &short).await;
    }
    let (client, at_b) = (rig.client(), rig.at_b());
    let held = at_b.acquire(&rig.name, &AcquireRequest::default()).await;
    let asked_at = Instant::now();
    let first = acquire(&client, &rig.name, wait(LONG));
    rig.until_waiters(1).await;
    let second = acquire(&at_b, &rig.name, wait(LONG));
    rig.until_waiters(2).await;
    rig.turn_to("b").await;
    rig.restart("a", &short).await;
    sleep(seconds(4).saturating_sub(asked_at.elapsed())).await;
    at_b.release_lease(&held.unwrap()).await.unwrap();
    let (first, _) = result(first).await;
    assert!(!second.is_finished());
    let log = rig.log("POST").await;
    assert!(log.len() >= 4, "{log:?}");
    assert!(
        log.iter()
            .all(|it| it.key.is_some() && it.key == log[0].key)
    );
    client.release_lease(&first).await.unwrap();
    assert!(result(second).await.0.fence > first.fence);
}

#[tokio::test]
async fn c13_a_wait_that_is_given_up_gives_up_its_place() {
    let rig = Rig::start();
    let client = rig.client();
    let held = client.acquire(&rig.name, &AcquireRequest::default()).await;
    let mut acquiring = client.acquiring(rig.name.clone(), wait(LONG));
    tokio::select! {
        lease = acquiring.finish() => panic!("{lease:?}"),
        () = rig.until_waiters(1) => {}
    }
    acquiring.withdraw().await;
    assert_eq!(rig.look().await.waiter_count, 0);

    // What is granted while it gives up is given back.
    let mut acquiring = client.acquiring(rig.name.clone(), wait(LONG));
    tokio::select! {
        lease = acquiring.finish() => panic!("{lease:?}"),
        () = rig.until_waiters(1) => {}
    }
    client.release_lease(&held.unwrap()).await.unwrap();
    acquiring.withdraw().await;
    rig.until_free(seconds(20)).await;
}

#[tokio::test]
async fn c13_a_wait_that_is_dropped_gives_up_its_place() {
    let rig = Rig::start();
    let client = rig.client();
    let held = client.acquire(&rig.name, &AcquireRequest::default()).await;
    let (name, request) = (&rig.name, wait(LONG));
    let all = GroupNames::new([name.clone(), LockName::new("other").unwrap()]).unwrap();
    tokio::select! {
        lease = client.acquire(name, &request) => panic!("{lease:?}"),
        lease = client.acquire_all(&all, &request) => panic!("{lease:?}"),
        done = client.with_lock(name, &request, async |_| ()) => panic!("{done:?}"),
        () = rig.until_waiters(3) => {}
    }
    let finished = timeout(LONG, client.finish_releases()).await;
    finished.expect("it comes to an end");
    assert_eq!(rig.look().await.waiter_count, 0);
    client.release_lease(&held.unwrap()).await.unwrap();
    assert!(rig.is_free().await);
}
