//! What is given back, and what is not done twice, when something fails on the way.

use latchgate_client::{
    AcquireRequest, BreakTarget, ClientError, GroupNames, Lease, LeaseRenewer, LockName, Loss,
    Reason, WithLockError,
};
use serde_json::json;
use tokio::time::timeout;

use crate::rig::{LONG, Rig, keep, millis, seconds, ttl};

#[tokio::test]
async fn a_release_that_failed_can_be_repeated() {
    let rig = Rig::start();
    let kept = keep(&rig.client(), &rig.name, ttl(LONG * 5)).await;
    rig.fault("lose-request", 1_000, json!({ "method": "DELETE" }))
        .await;
    kept.renewer.release(millis(500)).await.unwrap_err();
    // Nobody may go on as if it were held.
    let checked = kept.renewer.check();
    assert!(matches!(checked, Err(Loss::Released)), "{checked:?}");
    let loss = timeout(LONG, kept.renewer.lost()).await.unwrap();
    assert!(matches!(loss, Loss::Released), "{loss}");
    assert_eq!(rig.fences().await, [kept.fence()]);
    rig.no_faults().await;
    kept.renewer.release(LONG).await.unwrap();
    assert!(rig.is_free().await);
    let sent = rig.log("DELETE").await.len();
    kept.renewer.release(LONG).await.unwrap();
    assert_eq!(rig.log("DELETE").await.len(), sent);
}

/// A lease that took long to come, so that it is renewed before it is kept.
async fn slow_lease(rig: &Rig) -> Lease {
    rig.fault("delay", 1, json!({ "method": "POST", "ms": 2_500 }))
        .await;
    let lease = rig.client().acquire(&rig.name, &ttl(seconds(20))).await;
    lease.unwrap()
}

#[tokio::test]
async fn a_lease_that_cannot_be_kept_is_given_back() {
    let rig = Rig::start();
    let client = rig.client();
    let lease = slow_lease(&rig).await;
    let forbidden = json!({ "method": "PUT", "status": 403, "code": "forbidden" });
    rig.fault("status", 1_000, forbidden).await;
    let error = LeaseRenewer::start(&client, lease).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    client.finish_releases().await;
    assert_eq!(rig.log("DELETE").await.len(), 1);
    assert!(rig.is_free().await);
}

#[tokio::test]
async fn a_lease_is_given_back_whose_keeping_has_not_begun_when_it_is_dropped() {
    let rig = Rig::start();
    let client = rig.client();
    let lease = slow_lease(&rig).await;
    rig.fault("hang", 1_000, json!({ "method": "PUT" })).await;
    let started = timeout(millis(100), LeaseRenewer::start(&client, lease)).await;
    assert!(started.is_err());
    client.finish_releases().await;
    assert_eq!(rig.log("DELETE").await.len(), 1);
    assert!(rig.is_free().await);
}

/// Does work under the lock during which an operator breaks it and another caller acquires it.
async fn work_without_the_lock(rig: &Rig, names: &[&LockName], min_hold: bool) -> WithLockError {
    let (client, operator, broken) = (rig.client(), rig.at_b(), rig.name.clone());
    let request = AcquireRequest {
        min_hold: min_hold.then(|| seconds(1)),
        ..ttl(LONG)
    };
    let work = async |_: &Lease| {
        let reason = Reason::new("gone").unwrap();
        let target = Some(BreakTarget::All);
        operator.break_lock(&broken, &reason, target).await.unwrap();
        operator.acquire(&broken, &ttl(millis(100))).await.unwrap();
    };
    let done = match names {
        [] => client.with_lock(&rig.name, &request, work).await,
        more => {
            let names = more.iter().copied().chain([&rig.name]).cloned();
            let names = GroupNames::new(names).unwrap();
            client.with_locks(&names, &request, work).await
        }
    };
    done.unwrap_err()
}

#[tokio::test]
async fn c37_a_lock_that_was_taken_away_is_never_success() {
    let rig = Rig::start();
    let second = LockName::new("second").unwrap();
    for (names, min_hold) in [(&[][..], false), (&[], true), (&[&second], false)] {
        let error = work_without_the_lock(&rig, names, min_hold).await;
        let WithLockError::Lost(Loss::Ended(problem)) = &error else {
            panic!("{error}");
        };
        assert_eq!(problem.code, "lease-lost");
        rig.until_free(LONG).await;
        let lose = json!({ "method": "DELETE" });
        rig.fault("lose-reply", 1, lose).await;
        let error = work_without_the_lock(&rig, names, min_hold).await;
        let unknown = matches!(error, WithLockError::OutcomeUnknown(_));
        assert!(unknown, "{error}");
        rig.until_free(LONG).await;
    }
}

#[tokio::test]
async fn what_may_have_been_granted_unheard_is_given_back() {
    let rig = Rig::start();
    let client = rig.client_with(|options| options.attempts = 1);
    rig.fault("lose-reply", 1, json!({ "method": "POST" }))
        .await;
    let done = client
        .with_lock(&rig.name, &ttl(LONG * 5), async |_| ())
        .await;
    done.unwrap_err();
    client.finish_releases().await;
    assert!(rig.is_free().await);
}

#[tokio::test]
async fn a_break_that_could_hit_the_next_holder_is_not_sent_twice() {
    let rig = Rig::start();
    let client = rig.client();
    let reason = Reason::new("gone").unwrap();
    for target in [None, Some(BreakTarget::All)] {
        let lease = client.acquire(&rig.name, &AcquireRequest::default()).await;
        let before = rig.log("POST").await.len();
        rig.fault("lose-reply", 1, json!({ "method": "POST" }))
            .await;
        let broken = client.break_lock(&rig.name, &reason, target).await;
        let unknown = matches!(broken, Err(ClientError::OutcomeUnknown { .. }));
        assert!(unknown, "{broken:?}");
        assert_eq!(rig.log("POST").await.len(), before + 1);
        assert!(rig.is_free().await);
        drop(lease);
    }
    // The next holder has another fencing token.
    let lease = client.acquire(&rig.name, &AcquireRequest::default()).await;
    let target = Some(lease.unwrap().fence.into());
    let before = rig.log("POST").await.len();
    rig.fault("lose-reply", 1, json!({ "method": "POST" }))
        .await;
    let broken = client.break_lock(&rig.name, &reason, target).await;
    let unknown = matches!(broken, Err(ClientError::OutcomeUnknown { .. }));
    assert!(unknown, "{broken:?}");
    assert_eq!(rig.log("POST").await.len(), before + 2);
}
