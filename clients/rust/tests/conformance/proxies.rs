//! C31 to C35: answers of proxies, answers that make no sense, and a thread that is busy.

use std::thread;

use latchgate_client::{Client, ClientError, Lease, LockName, Loss, Reason};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{LONG, Logged, Rig, acquire, keep, millis, result, seconds, ttl, wait};

fn pause(log: &[Logged]) -> u64 {
    assert_eq!(log[0].status, Some(429));
    log[1].at_ms - log[0].answered_at_ms.unwrap()
}

#[tokio::test]
async fn c31_too_many_requests_are_asked_again_whoever_answers() {
    for bare in [false, true] {
        let rig = Rig::start();
        let client = rig.client();
        let busy = |method: &str| {
            json!({
                "method": method, "status": 429, "code": "too-many-leases", "bare": bare, "retry_after": 1,
            })
        };
        rig.fault("status", 1, busy("POST")).await;
        let lease = client.acquire(&rig.name, &wait(seconds(20))).await.unwrap();
        rig.fault("status", 1, busy("PUT")).await;
        client.renew(&rig.name, &lease.token, None).await.unwrap();
        rig.fault("status", 1, busy("DELETE")).await;
        client.release_lease(&lease).await.unwrap();
        for method in ["POST", "PUT", "DELETE"] {
            let pause = pause(&rig.log(method).await);
            assert!((1_000..=10_000).contains(&pause), "{method}: {pause} ms");
        }
    }
}

/// A tenth of the TTL is all the time that the lease has.
#[tokio::test]
async fn c31_a_lease_waits_no_longer_than_it_can() {
    let rig = Rig::start();
    let kept = keep(&rig.client(), &rig.name, ttl(seconds(6))).await;
    let busy = json!({ "method": "PUT", "status": 429, "bare": true, "retry_after": 60 });
    rig.fault("status", 1, busy).await;
    let lost = timeout(seconds(8), kept.renewer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    let pause = pause(&rig.log("PUT").await);
    assert!((600..=4_000).contains(&pause), "{pause} ms");
}

#[tokio::test]
async fn c31_who_is_put_off_beyond_the_wait_asks_at_its_end() {
    let rig = Rig::start();
    let busy =
        json!({ "method": "POST", "status": 429, "code": "too-many-leases", "retry_after": 60 });
    rig.fault("status", 100, busy).await;
    let begun = Instant::now();
    let error = rig.client().acquire(&rig.name, &wait(seconds(2))).await;
    let Err(ClientError::Unavailable(problem)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(problem.code, "too-many-leases");
    let took = begun.elapsed();
    assert!((seconds(2)..=seconds(4)).contains(&took), "{took:?}");
    assert_eq!(rig.log("POST").await.len(), 2);
    let gone = json!({ "method": "POST", "status": 502, "bare": true });
    let rig = Rig::start();
    rig.fault("status", 100, gone).await;
    let begun = Instant::now();
    let error = rig.client().acquire(&rig.name, &wait(seconds(2))).await;
    assert!(
        matches!(error, Err(ClientError::OutcomeUnknown { .. })),
        "{error:?}"
    );
    let took = begun.elapsed();
    assert!((seconds(2)..=seconds(4)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn c32_an_answer_that_drips_is_given_up_in_time() {
    for from in ["head", "body"] {
        let rig = Rig::start();
        let client = rig.client_with(|options| options.request_timeout = seconds(2));
        let drip = |method: &str| json!({ "method": method, "ms": 100, "from": from });
        rig.fault("drip", 1, drip("POST")).await;
        let kept = keep(&client, &rig.name, ttl(seconds(6))).await;
        let log = rig.log("POST").await;
        assert_eq!(log[0].key, log[1].key);
        assert!(log[1].at_ms - log[0].at_ms < 6_000, "{log:?}");
        rig.fault("drip", 1, drip("PUT")).await;
        let lost = timeout(seconds(8), kept.renewer.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        assert_eq!(rig.fences().await, [kept.fence()]);
    }
}

#[tokio::test]
async fn c33_an_answer_without_end_is_not_read() {
    let rig = Rig::start();
    let flood = json!({ "method": "POST", "bytes": 200_000_000 });
    rig.fault("flood", 1, flood).await;
    rig.client().acquire(&rig.name, &ttl(LONG)).await.unwrap();
    let log = rig.log("POST").await;
    assert_eq!((log.len(), &log[0].key), (2, &log[1].key));
    assert!(log[0].sent.unwrap() < 100_000_000, "{log:?}");
}

async fn altered(
    rig: &Rig,
    client: &Client,
    field: &str,
    number: &Value,
) -> Result<Lease, ClientError> {
    let fields = json!({ "method": "POST", "fields": { field: number } });
    rig.fault("alter", 1, fields).await;
    let name = LockName::new(&format!("{}-{field}-{number}", rig.name).replace('+', "")).unwrap();
    let acquired = client.acquire(&name, &ttl(LONG)).await;
    let begun = Instant::now();
    while !client.inspect(&name).await.unwrap().holders.is_empty() {
        assert!(begun.elapsed() < seconds(2), "{name} is not given back");
        sleep(millis(20)).await;
    }
    acquired
}

#[tokio::test]
async fn c34_a_number_that_json_does_not_carry_is_none() {
    for number in [json!(1_u64 << 53), json!(1e300)] {
        let rig = Rig::start();
        let client = rig.client();
        for field in ["fencing_token", "ttl_ms", "expires_in_ms", "renew_after_ms"] {
            let acquired = altered(&rig, &client, field, &number).await;
            let unknown = matches!(acquired, Err(ClientError::OutcomeUnknown { .. }));
            assert!(unknown, "{field}: {acquired:?}");
        }
        let kept = keep(&client, &rig.name, ttl(seconds(3))).await;
        let fields = json!({ "method": "PUT", "fields": { "expires_in_ms": number } });
        rig.fault("alter", 100, fields).await;
        let (loss, _) = kept.lost().await;
        assert!(matches!(loss, Loss::Expired { .. }), "{loss}");
        assert!(rig.log("PUT").await.len() >= 2);
    }
}

#[tokio::test]
async fn c34_an_answer_about_another_lock_is_no_lease() {
    let rig = Rig::start();
    let client = rig.client();
    let other = async |method: &str| {
        let fields = json!({ "method": method, "fields": { "name": "other" } });
        rig.fault("alter", 1, fields).await;
    };
    let told = |error: &ClientError| assert!(error.to_string().contains("a proxy"), "{error}");
    other("POST").await;
    let error = client.acquire(&rig.name, &ttl(LONG)).await.unwrap_err();
    told(&error);
    assert!(
        matches!(error, ClientError::OutcomeUnknown { .. }),
        "{error:?}"
    );
    rig.until_free(seconds(2)).await;

    let lease = client.acquire(&rig.name, &ttl(LONG)).await.unwrap();
    other("PUT").await;
    let error = client.renew(&rig.name, &lease.token, None).await;
    told(&error.unwrap_err());
    other("GET").await;
    told(&client.inspect(&rig.name).await.unwrap_err());
    other("POST").await;
    let reason = Reason::new("it hangs").unwrap();
    let error = client
        .break_lock(&rig.name, &reason, None)
        .await
        .unwrap_err();
    told(&error);
    assert!(
        matches!(error, ClientError::OutcomeUnknown { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn c35_on_the_only_thread_check_tells_before_anything_else_has_run() {
    let rig = Rig::start();
    let kept = keep(&rig.client(), &rig.name, ttl(seconds(2))).await;
    let waiter = acquire(&rig.at_b(), &rig.name, wait(LONG));
    rig.until_waiters(1).await;
    thread::sleep(seconds(4));
    let checked = kept.renewer.check();
    assert!(matches!(checked, Err(Loss::Expired { .. })), "{checked:?}");
    kept.lost().await;
    let (next, _) = result(waiter).await;
    assert!(next.fence > kept.lease.fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c35_beside_other_threads_a_busy_one_starves_no_renewal() {
    let rig = Rig::start();
    let kept = keep(&rig.client(), &rig.name, ttl(seconds(2))).await;
    let waiter = acquire(&rig.at_b(), &rig.name, wait(LONG));
    rig.until_waiters(1).await;
    thread::sleep(seconds(4));
    kept.renewer.check().unwrap();
    assert_eq!(rig.fences().await, [kept.fence()]);
    kept.renewer.release(LONG).await.unwrap();
    let (next, _) = result(waiter).await;
    assert!(next.fence > kept.lease.fence);
}
