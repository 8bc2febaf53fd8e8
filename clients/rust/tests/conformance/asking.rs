//! C28 and C29: who asks.

use std::{collections::HashSet, time::Duration};

use latchgate_client::{
    AcquireRequest, ApiKey, Client, ClientError, IdempotencyKey, LeaseRenewer, LockName, Problem,
};
use serde_json::json;

use crate::rig::{LONG, Rig, random_text, result, seconds, ttl, wait};

/// Everything that is shown of an error.
fn shown(error: &ClientError) -> String {
    let problem = error.problem().map(Problem::json).unwrap_or_default();
    format!("{error} {error:?} {error:#?} {problem}")
}

#[tokio::test]
async fn c28_the_key_is_sent_and_no_secret_is_shown() {
    let rig = Rig::start();
    let key = format!("lgk_test_{}", random_text());
    let client = rig.client_with(|options| {
        options.key = Some(ApiKey::new(&key).unwrap());
        options.attempts = 1;
    });
    let of_caller = format!("of-the-caller-{}", random_text());
    let request = AcquireRequest {
        idempotency_key: Some(IdempotencyKey::new(&of_caller).unwrap()),
        ..ttl(LONG)
    };
    let acquiring = client.acquiring(rig.name.clone(), request.clone());
    let mut all = vec![format!("{client:?} {request:?} {acquiring:?}")];
    let lease = client.acquire(&rig.name, &request).await.unwrap();
    client.renew(&rig.name, &lease.token, None).await.unwrap();
    client.inspect(&rig.name).await.unwrap();
    let renewer = LeaseRenewer::start(&client, lease.clone()).await.unwrap();
    all.push(format!("{lease:?} {renewer:?} {:?}", lease.token));
    let failing = [
        (403, "forbidden"),
        (503, "store-unavailable"),
        (504, "outcome-unknown"),
    ];
    for (status, code) in failing {
        rig.fault("status", 100, json!({ "status": status, "code": code }))
            .await;
        let kept = client.renew(&rig.name, &lease.token, None).await;
        all.push(shown(&kept.unwrap_err()));
        all.push(shown(
            &client.acquire(&rig.name, &request).await.unwrap_err(),
        ));
        all.push(shown(&client.inspect(&rig.name).await.unwrap_err()));
        all.push(shown(&client.release_lease(&lease).await.unwrap_err()));
        rig.no_faults().await;
    }
    rig.fault("lose-reply", 100, json!({})).await;
    all.push(shown(&renewer.release(seconds(1)).await.unwrap_err()));
    rig.no_faults().await;
    for bad in [format!("{key}\n"), format!("ä{key}")] {
        let error = ApiKey::new(&bad).unwrap_err();
        all.push(format!("{error} {error:?}"));
        let error = IdempotencyKey::new(&bad).unwrap_err();
        all.push(format!("{error} {error:?}"));
    }
    let log = rig.whole_log().await;
    let keys: HashSet<_> = log.iter().filter_map(|it| it.key.clone()).collect();
    assert!(keys.contains(&of_caller));
    let all = all.join("\n");
    for secret in keys.iter().chain([&key, &lease.token.expose()]) {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    let bearer = format!("Bearer {key}");
    let keyless = log
        .iter()
        .find(|it| it.authorization.as_deref() != Some(&bearer));
    assert!(keyless.is_none(), "{keyless:?}");
}

#[tokio::test]
async fn c29_each_acquire_has_a_key_of_its_own_unless_one_is_given() {
    let rig = Rig::start();
    let client = rig.client();
    for number in [1, 2] {
        let name = LockName::new(&format!("{}-{number}", rig.name)).unwrap();
        acquire(&client, &name, None).await;
    }
    let log = rig.log("POST").await;
    let keys: HashSet<_> = log.iter().filter_map(|it| it.key.clone()).collect();
    assert!(keys.len() == 2 && keys.iter().all(|key| key.len() >= 22));
    rig.forget_log().await;
    let mine = format!("{}{}", random_text(), random_text());
    let one = acquire(&client, &rig.name, Some(&mine)).await;
    let other = acquire(&client, &rig.name, Some(&mine)).await;
    assert_eq!(one, other);
    let log = rig.log("POST").await;
    assert!(log.len() == 2 && log.iter().all(|it| it.key.as_ref() == Some(&mine)));
    IdempotencyKey::new("too-short").unwrap_err();
}

#[tokio::test]
async fn c29_the_place_of_a_wait_that_ran_out_is_kept() {
    the_place_is_kept(seconds(1)).await;
}

#[tokio::test]
async fn c29_the_place_of_a_wait_that_is_over_at_once_is_kept() {
    the_place_is_kept(Duration::from_millis(1)).await;
}

async fn the_place_is_kept(short: Duration) {
    let rig = Rig::start();
    // The place is kept until the other waiter has come, however slow the machine is.
    let patient = json!({ "LATCHGATE_LIMITS_RECONNECT_GRACE_MS": "60000" });
    rig.restart("a", &patient).await;
    let (client, other) = (rig.client(), rig.at_b());
    let held = other.acquire(&rig.name, &ttl(LONG)).await.unwrap();
    let key = IdempotencyKey::new(&format!("turn-{}", random_text())).unwrap();
    let turn = |wait| AcquireRequest {
        idempotency_key: Some(key.clone()),
        wait,
        ..ttl(LONG)
    };
    let first_call = client.acquire(&rig.name, &turn(short)).await;
    assert!(
        matches!(first_call, Err(ClientError::WaitOver(_))),
        "{first_call:?}"
    );
    let later = crate::rig::acquire(&other, &rig.name, wait(LONG));
    rig.until_waiters(2).await;
    let again = crate::rig::acquire(&client, &rig.name, turn(LONG));
    other.release_lease(&held).await.unwrap();
    let first = result(again).await.0;
    client.release_lease(&first).await.unwrap();
    let second = result(later).await.0;
    assert!(first.fence < second.fence);
}

/// The token and the fencing token of a lease that is acquired under this key.
async fn acquire(client: &Client, name: &LockName, key: Option<&str>) -> (String, u64) {
    let request = AcquireRequest {
        idempotency_key: key.map(|key| IdempotencyKey::new(key).unwrap()),
        ..ttl(LONG)
    };
    let lease = client.acquire(name, &request).await.unwrap();
    (lease.token.expose(), lease.fence.get())
}
