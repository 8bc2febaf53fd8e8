//! C14 to C17: sharing, groups, and being asked for the lock.

use std::collections::BTreeMap;

use latchgate_client::{
    AcquireMode, AcquireRequest, GroupNames, LeaseRenewer, Limit, LockName, Loss, Mode, Reason,
};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{LONG, Rig, acquire, is_held, keep, millis, result, seconds, ttl, wait};

fn shared(limit: Option<u64>) -> AcquireRequest {
    AcquireRequest {
        mode: AcquireMode::Shared {
            limit: limit.map(|limit| Limit::new(limit).unwrap()),
        },
        ..AcquireRequest::default()
    }
}

#[tokio::test]
async fn c14_shared_leases_are_held_beside_each_other() {
    let rig = Rig::start();
    let client = rig.client();
    let one = client.acquire(&rig.name, &shared(None)).await.unwrap();
    let other = client.acquire(&rig.name, &shared(None)).await.unwrap();
    assert!(one.mode.as_str() == "shared" && other.mode.as_str() == "shared");
    assert_ne!(one.token.expose(), other.token.expose());
    let alone = client.acquire(&rig.name, &AcquireRequest::default()).await;
    assert!(is_held(&alone), "{alone:?}");
    assert_eq!(alone.unwrap_err().problem().unwrap().holder_count, Some(2));
    let writer = acquire(&client, &rig.name, wait(LONG));
    rig.until_waiters(1).await;
    client.release_lease(&one).await.unwrap();
    sleep(millis(200)).await;
    assert!(!writer.is_finished());
    client.release_lease(&other).await.unwrap();
    assert_eq!(result(writer).await.0.mode, Mode::Exclusive);
}

#[tokio::test]
async fn c15_each_of_two_has_a_slot() {
    let rig = Rig::start();
    let (client, request) = (rig.client(), shared(Some(2)));
    let first = client.acquire(&rig.name, &request).await.unwrap();
    let second = client.acquire(&rig.name, &request).await.unwrap();
    assert_eq!((first.mode.slot(), second.mode.slot()), (Some(0), Some(1)));
    let third = client.acquire(&rig.name, &request).await;
    assert!(is_held(&third), "{third:?}");
    client.release_lease(&first).await.unwrap();
    let next = client.acquire(&rig.name, &request).await.unwrap();
    assert_eq!(next.mode.slot(), Some(0));
}

#[tokio::test]
async fn c16_a_group_is_one_lease() {
    let rig = Rig::start();
    let client = rig.client();
    let names = [1, 2].map(|number| LockName::new(&format!("{}-{number}", rig.name)).unwrap());
    let group = GroupNames::new(names.clone()).unwrap();
    let lease = client.acquire_all(&group, &ttl(seconds(3))).await.unwrap();
    let found: Vec<_> = lease.parts.iter().map(|part| part.name.clone()).collect();
    assert_eq!(found, names);
    assert_eq!(lease.fence, lease.parts[0].fence);
    assert!(lease.parts.iter().all(|part| part.fence.get() > 0));
    let renewer = LeaseRenewer::start(&client, lease.clone()).await.unwrap();
    let lost = timeout(seconds(5), renewer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    let results = client.renew_all(&group, &lease.token, Some(seconds(60)));
    results.await.unwrap().check().unwrap();
    renewer.release(LONG).await.unwrap();
    for name in &names {
        let lock = client.inspect(name).await.unwrap();
        assert_eq!(lock.holder_count, 0);
    }
    let other = client.acquire(&names[1], &AcquireRequest::default()).await;
    let refused = client.acquire_all(&group, &AcquireRequest::default()).await;
    assert!(is_held(&refused), "{refused:?}");
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.name.as_deref(), Some(names[1].as_str()));
    let lock = client.inspect(&names[0]).await.unwrap();
    assert_eq!(lock.holder_count, 0);
    client.release_lease(&other.unwrap()).await.unwrap();
    let pool = LockName::new(&format!("{}-pool", rig.name)).unwrap();
    let request = AcquireRequest::default();
    let in_pool = |number| {
        let own = LockName::new(&format!("{}-own-{number}", rig.name)).unwrap();
        let two = shared(Some(2)).mode;
        BTreeMap::from([(own, AcquireMode::Exclusive), (pool.clone(), two)])
    };
    for slot in 0..2 {
        let lease = client.acquire_all(in_pool(slot), &request).await.unwrap();
        let modes: Vec<_> = lease.parts.iter().map(|part| part.mode).collect();
        assert_eq!(modes, [Mode::Exclusive, Mode::Shared { slot: Some(slot) }]);
    }
    let third = client.acquire_all(in_pool(2), &request).await;
    let problem = third.as_ref().unwrap_err().problem().unwrap();
    assert_eq!(problem.name.as_deref(), Some(pool.as_str()));
    assert!(is_held(&third), "{third:?}");
    let alone = client.acquire(&pool, &request).await;
    assert!(is_held(&alone), "{alone:?}");
}

#[tokio::test]
async fn c17_whoever_is_asked_for_the_lock_is_told_and_loses_it_in_the_end() {
    let rig = Rig::start();
    let client = rig.client();
    let kept = keep(&client, &rig.name, ttl(seconds(4))).await;
    let mut requests = kept.renewer.requests();
    assert_eq!(*requests.borrow(), None);
    let reason = Reason::new("a newer one is ready").unwrap();
    let target = Some(kept.lease.fence.into());
    let (asked_at, grace) = (Instant::now(), seconds(12));
    let asked = client.request_release(&rig.name, &reason, target, grace);
    asked.await.unwrap();
    let heard = timeout(LONG, requests.wait_for(Option::is_some)).await;
    let heard = heard.expect("it is told").unwrap().clone().unwrap();
    assert_eq!(heard.reason, "a newer one is ready");
    assert!(heard.within() > millis(0) && heard.within() <= grace);
    // It is renewed until then, although its TTL is shorter.
    sleep(seconds(5).saturating_sub(asked_at.elapsed())).await;
    let checked = kept.renewer.check();
    assert!(
        checked.is_ok() || asked_at.elapsed() > seconds(11),
        "{checked:?}"
    );
    let (loss, until) = kept.lost().await;
    assert!(matches!(loss, Loss::NotReleased), "{loss}");
    // Not before the time that it was given. The gateway breaks the lease then, a second before the lease itself ends: the
    // holder may hear of either first.
    assert!(asked_at.elapsed() > seconds(11) && until < asked_at + grace * 10);
    rig.until_free(LONG).await;
}

#[tokio::test]
async fn c17_what_is_left_of_a_long_lease_counts_and_not_its_ttl() {
    let rig = Rig::start();
    let client = rig.client();
    let lease = client.acquire(&rig.name, &ttl(seconds(3_600))).await;
    let lease = lease.unwrap();
    let reason = Reason::new("a newer one is ready").unwrap();
    let asked_at = Instant::now();
    let asked = client.request_release(&rig.name, &reason, Some(lease.fence.into()), seconds(6));
    asked.await.unwrap();
    let told = client.renew(&rig.name, &lease.token, None).await.unwrap();
    let renewer = LeaseRenewer::start(&client, told).await.unwrap();
    let loss = timeout(LONG, renewer.lost()).await.expect("it ends");
    assert!(matches!(loss, Loss::NotReleased), "{loss}");
    assert!(asked_at.elapsed() > seconds(4));
}
