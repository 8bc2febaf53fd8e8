//! C01 to C09: a lease.

use std::time::Duration;

use latchgate_client::{
    AcquireRequest, ClientError, FencingToken, LeaseRenewer, LockName, LockState, Loss, Metadata,
    Mode, Owner,
};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{LONG, Rig, acquire, is_held, keep, millis, result, seconds, ttl, wait};

#[tokio::test]
async fn c01_a_free_lock_is_granted_and_released() {
    let rig = Rig::start();
    let client = rig.client();
    let lease = client.acquire(&rig.name, &ttl(seconds(30))).await.unwrap();
    assert_eq!((&lease.name, lease.mode), (&rig.name, Mode::Exclusive));
    assert!(lease.token.expose().len() >= 22 && lease.fence.get() > 0);
    assert!(lease.expires_in > seconds(25) && lease.expires_in <= seconds(30));
    client.release_lease(&lease).await.unwrap();
    assert_eq!(rig.look().await.state, LockState::Free);
    let next = client.acquire(&rig.name, &AcquireRequest::default()).await;
    assert!(next.unwrap().fence > lease.fence);

    // A name that is a path is one segment.
    let path = LockName::new(&format!("{}/acme/web", rig.name)).unwrap();
    let lease = client.acquire(&path, &ttl(LONG)).await.unwrap();
    assert_eq!(lease.name, path);
    client.renew(&path, &lease.token, None).await.unwrap();
    assert_eq!(client.inspect(&path).await.unwrap().state, LockState::Held);
    client.release_lease(&lease).await.unwrap();
    let log = rig.whole_log().await;
    let of_path = log.iter().filter(|it| it.path.contains("acme%2Fweb"));
    assert_eq!(of_path.count(), 4);
    assert!(log.iter().all(|it| !it.path.contains("acme/web")));
}

#[tokio::test]
async fn c02_a_lock_is_released_when_the_work_has_ended_or_failed_or_panicked() {
    let rig = Rig::start();
    let (client, request) = (rig.client(), AcquireRequest::default());
    let held = async |fence: FencingToken| rig.fences().await == [fence.get()];
    let done = client
        .with_lock(&rig.name, &request, async |lease| held(lease.fence).await)
        .await;
    assert!(done.unwrap());
    assert!(rig.is_free().await);

    let failed = client
        .with_lock(&rig.name, &request, async |_lease| Err::<(), _>("failed"))
        .await;
    assert_eq!(failed.unwrap(), Err("failed"));
    assert!(rig.is_free().await);

    let (panics, name) = (client.clone(), rig.name.clone());
    let panicked = tokio::runtime::Handle::current().spawn(async move {
        let work = async |_: &_| panic!("the panic of the work");
        panics.with_lock(&name, &request, work).await
    });
    assert!(panicked.await.unwrap_err().is_panic());
    client.finish_releases().await;
    assert!(rig.is_free().await);
}

#[tokio::test]
async fn c03_a_held_lock_says_who_holds_it() {
    let rig = Rig::start();
    let client = rig.client();
    let request = AcquireRequest {
        owner: Some(Owner::new("anna").unwrap()),
        ..AcquireRequest::default()
    };
    let lease = client.acquire(&rig.name, &request).await.unwrap();
    let refused = client.acquire(&rig.name, &AcquireRequest::default()).await;
    assert!(is_held(&refused), "{refused:?}");
    let error = refused.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!((problem.status, problem.code.as_str()), (423, "locked"));
    assert_eq!(problem.holder_count, Some(1));
    let holder = &problem.holders[0];
    assert_eq!(holder.owner.as_deref(), Some("anna"));
    assert_eq!(holder.fencing_token, Some(lease.fence.get()));
    let shown = format!("{error} {error:?} {}", problem.json());
    assert!(!shown.contains(&lease.token.expose()));
}

#[tokio::test]
async fn c04_inspect_shows_who_holds_the_lock() {
    let rig = Rig::start();
    let owner = |text: &str| Some(Owner::new(text).unwrap());
    let client = rig.client_with(|options| options.owner = owner("of the client"));
    assert!(rig.is_free().await);
    let entries = [("branch".to_owned(), "main".to_owned())];
    let request = AcquireRequest {
        metadata: Metadata::new(entries.into()).unwrap(),
        ..AcquireRequest::default()
    };
    let lease = client.acquire(&rig.name, &request).await.unwrap();
    let lock = client.inspect(&rig.name).await.unwrap();
    assert_eq!((lock.state, lock.holder_count), (LockState::Held, 1));
    let holder = &lock.holders[0];
    assert_eq!(holder.owner.as_deref(), Some("of the client"));
    assert_eq!(holder.metadata.as_ref().unwrap()["branch"], "main");
    assert_eq!(holder.fencing_token, Some(lease.fence.get()));
    client.release_lease(&lease).await.unwrap();
    let request = AcquireRequest {
        owner: owner("of the request"),
        ..request
    };
    client.acquire(&rig.name, &request).await.unwrap();
    let holder = &rig.look().await.holders[0];
    assert_eq!(holder.owner.as_deref(), Some("of the request"));
}

#[tokio::test]
async fn c05_renew_gives_the_lease_its_ttl_again_or_another_one() {
    let rig = Rig::start();
    let client = rig.client();
    let lease = client.acquire(&rig.name, &ttl(seconds(5))).await.unwrap();
    // Nobody renews what nobody keeps.
    sleep(millis(1_200)).await;
    assert!(rig.log("PUT").await.is_empty());
    let left = async || Duration::from_millis(rig.look().await.holders[0].expires_in_ms.unwrap());
    assert!(left().await < seconds(4));
    let renew = async |ttl| client.renew(&rig.name, &lease.token, ttl).await.unwrap();
    let renewed = renew(None).await;
    assert_eq!((renewed.fence, renewed.ttl), (lease.fence, seconds(5)));
    assert!(renewed.expires_in > seconds(4) && renewed.good_until() > lease.good_until());
    let longer = renew(Some(seconds(10))).await;
    assert!(longer.ttl == seconds(10) && longer.expires_in > seconds(9));
    let shorter = renew(Some(millis(1_500))).await;
    assert_eq!(
        (shorter.ttl, shorter.expires_in),
        (millis(1_500), millis(1_500))
    );
    // The gateway keeps the end of the lease.
    assert!(left().await > seconds(5));
    rig.until_free(LONG).await;
    assert!(Instant::now() >= longer.good_until());
    let lost = client.renew(&rig.name, &lease.token, None).await;
    assert!(matches!(lost, Err(ClientError::Lost(_))), "{lost:?}");
}

#[tokio::test]
async fn c06_a_lease_is_renewed_by_itself() {
    let rig = Rig::start();
    let client = rig.client();
    let kept = keep(&client, &rig.name, ttl(seconds(3))).await;
    let other = LockName::new("shorter").unwrap();
    let lease = client.acquire(&other, &ttl(seconds(6))).await.unwrap();
    let shorter = client.renew(&other, &lease.token, Some(seconds(3)));
    let shortened = LeaseRenewer::start(&client, shorter.await.unwrap())
        .await
        .unwrap();
    let lost = timeout(seconds(5), kept.renewer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    kept.renewer.check().unwrap();
    shortened.check().unwrap();
    assert_eq!(rig.fences().await, [kept.fence()]);
    // About one a second: no sooner than the gateway says.
    let renewals = rig.log("PUT").await;
    assert!((2..=30).contains(&renewals.len()), "{renewals:?}");
    let acquired_at = rig.log("POST").await[0].at_ms;
    assert!(renewals[0].at_ms - acquired_at < 3_000, "{renewals:?}");
}

#[tokio::test]
async fn c07_the_hold_limit_ends_a_lease() {
    let rig = Rig::start();
    let request = AcquireRequest {
        max_hold: Some(seconds(8)),
        ..ttl(seconds(6))
    };
    let kept = keep(&rig.client(), &rig.name, request).await;
    let next = acquire(&rig.at_b(), &rig.name, wait(LONG));
    let (loss, until) = kept.lost().await;
    assert!(matches!(loss, Loss::HoldLimit), "{loss}");
    kept.renewer.check().unwrap_err();
    let (next, granted_at) = result(next).await;
    assert!(next.fence > kept.lease.fence && until < granted_at);
}

#[tokio::test]
async fn c08_a_second_release_changes_nothing() {
    let rig = Rig::start();
    let client = rig.client();
    let kept = keep(&client, &rig.name, AcquireRequest::default()).await;
    kept.renewer.release(LONG).await.unwrap();
    let other = client.acquire(&rig.name, &AcquireRequest::default()).await;
    let other = other.unwrap().fence.get();
    kept.renewer.release(LONG).await.unwrap();
    assert_eq!(rig.log("DELETE").await.len(), 1);
    // Nor does it by hand, where the gateway remembers the first one.
    let again = client.release_lease(&kept.lease).await;
    assert!(
        matches!(again, Ok(()) | Err(ClientError::Lost(_))),
        "{again:?}"
    );
    assert_eq!(rig.fences().await, [other]);
    let renewed = client.renew(&rig.name, &kept.lease.token, None).await;
    assert!(matches!(renewed, Err(ClientError::Lost(_))), "{renewed:?}");
    let loss = kept.renewer.check().unwrap_err();
    assert!(matches!(loss, Loss::Released), "{loss}");
    assert_eq!(kept.renewer.until(), None);
}

/// Durations are `std::time::Duration`: none is negative, and no text is one. The same of a name is found by its type.
#[tokio::test]
async fn c09_durations_arrive_in_milliseconds() {
    let rig = Rig::start();
    let client = rig.client();
    let given = [
        (millis(500), 500),
        (seconds(30), 30_000),
        (Duration::from_mins(10), 600_000),
        (Duration::from_hours(2), 7_200_000),
        (Duration::from_hours(24), 86_400_000),
    ];
    for (duration, _) in given {
        let request = AcquireRequest {
            max_hold: Some(duration),
            ..ttl(duration)
        };
        let lease = client.acquire(&rig.name, &request).await.unwrap();
        // On a busy machine half a second is over by now.
        let _: Result<_, _> = client.release_lease(&lease).await;
    }
    let mut sent: Vec<_> = rig
        .log("POST")
        .await
        .into_iter()
        .map(|it| it.body)
        .collect();
    // Of a lease that ended before its answer was there, it is sent again.
    sent.dedup();
    let sent: Vec<_> = sent
        .iter()
        .map(|body| (body["ttl_ms"].as_u64(), body["max_hold_ms"].as_u64()))
        .collect();
    assert_eq!(sent, given.map(|(_, ms)| (Some(ms), Some(ms))));
    rig.forget_log().await;
    for bad in [
        "",
        "..",
        "a//b",
        "/a",
        "a/",
        "a/../b",
        "a/renew",
        "a,b",
        "a b",
        r"a\b",
        "a%2Fb",
        &"x".repeat(201),
    ] {
        LockName::new(bad).unwrap_err();
    }
    assert!(rig.whole_log().await.is_empty());
    // What is too long for any gateway is refused by it, in a field with a name.
    for too_long in [Duration::MAX, Duration::from_hours(25), Duration::ZERO] {
        let error = client.acquire(&rig.name, &ttl(too_long)).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused(_)), "{error}");
        assert_eq!(error.problem().unwrap().errors[0].field, "ttl_ms");
    }
}
