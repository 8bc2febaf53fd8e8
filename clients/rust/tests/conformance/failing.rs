//! C22 to C27: when something fails.

use std::collections::HashSet;

use latchgate_client::{AcquireRequest, ClientError};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::rig::{LONG, Logged, Rig, client, seconds, ttl, wait};

fn keys(log: &[Logged]) -> HashSet<&str> {
    log.iter().map(|it| it.key.as_deref().unwrap()).collect()
}

#[tokio::test]
async fn c22_an_acquire_with_an_unknown_outcome_is_repeated_with_the_same_key() {
    let rig = Rig::start();
    rig.fault("unknown", 3, json!({ "method": "POST" })).await;
    let lease = rig.client().acquire(&rig.name, &ttl(LONG)).await.unwrap();
    let log = rig.log("POST").await;
    assert_eq!((log.len(), keys(&log).len()), (4, 1));
    assert!(log.iter().all(|it| it.body == log[0].body));
    assert_eq!(rig.fences().await, [lease.fence.get()]);
}

#[tokio::test]
async fn c23_what_was_not_answered_is_repeated() {
    let rig = Rig::start();
    let client = rig.client();
    rig.fault("lose-reply", 1, json!({ "method": "POST" }))
        .await;
    let lease = client.acquire(&rig.name, &ttl(LONG)).await.unwrap();
    let log = rig.log("POST").await;
    assert_eq!((log.len(), keys(&log).len()), (2, 1));
    assert_eq!(rig.fences().await, [lease.fence.get()]);
    rig.fault("lose-reply", 1, json!({ "method": "PUT" })).await;
    client.renew(&rig.name, &lease.token, None).await.unwrap();
    assert_eq!(rig.log("PUT").await.len(), 2);
    rig.fault("lose-reply", 1, json!({ "method": "DELETE" }))
        .await;
    client.release_lease(&lease).await.unwrap();
    assert_eq!(rig.log("DELETE").await.len(), 2);
    assert!(rig.is_free().await);
}

#[tokio::test]
async fn c24_retry_after_is_honoured() {
    let answers = [(503, "overloaded"), (429, "rate-limited")];
    let places = ["header", "body"];
    for ((status, code), place) in answers
        .into_iter()
        .flat_map(|it| places.map(|place| (it, place)))
    {
        let rig = Rig::start();
        let client = rig.client();
        let busy = json!({ "method": "POST", "status": status, "code": code, "retry_after": 1, "retry_after_in": place });
        rig.fault("status", 1, busy).await;
        let lease = client.acquire(&rig.name, &ttl(LONG)).await.unwrap();
        let log = rig.log("POST").await;
        assert_eq!((log.len(), keys(&log).len()), (2, 1));
        assert_eq!(log[0].status, Some(status));
        let pause = log[1].at_ms - log[0].answered_at_ms.unwrap();
        assert!((1_000..=30_000).contains(&pause), "{pause} ms");
        // Every call honours it, not the acquire alone.
        let busy = json!({ "method": "DELETE", "status": status, "code": code, "retry_after": 1 });
        rig.fault("status", 1, busy).await;
        client.release_lease(&lease).await.unwrap();
        let log = rig.log("DELETE").await;
        let pause = log[1].at_ms - log[0].answered_at_ms.unwrap();
        assert!((1_000..=30_000).contains(&pause), "{pause} ms");
    }
}

#[tokio::test]
async fn c24_a_pause_that_no_gateway_means_is_bounded() {
    let rig = Rig::start();
    let client = rig.client_with(|options| options.deadline = seconds(4));
    let answer = json!({ "method": "POST", "status": 503, "code": "overloaded", "retry_after": u64::MAX, "retry_after_in": "header" });
    rig.fault("status", 1, answer).await;
    client.acquire(&rig.name, &ttl(LONG)).await.unwrap();
    assert_eq!(rig.log("POST").await.len(), 2);
}

#[tokio::test]
async fn c25_a_refusal_is_not_asked_twice() {
    let rig = Rig::start();
    let forbidden = json!({ "status": 403, "code": "forbidden" });
    rig.fault("status", 5, forbidden).await;
    let error = rig.client().acquire(&rig.name, &wait(LONG)).await;
    let Err(ClientError::Refused(problem)) = error else {
        panic!("{error:?}");
    };
    assert_eq!((problem.status, problem.code.as_str()), (403, "forbidden"));
    assert!(problem.detail.is_some() && problem.json().contains(r#""status": 403"#));
    assert_eq!(rig.log("POST").await.len(), 1);
    // But one that has not come as a whole is.
    let rig = Rig::start();
    let half = json!({ "method": "POST", "status": 408, "code": "request-timeout" });
    rig.fault("status", 1, half).await;
    rig.client().acquire(&rig.name, &ttl(LONG)).await.unwrap();
    assert_eq!(rig.log("POST").await.len(), 2);
}

#[tokio::test]
async fn c25_a_refusal_says_nothing_about_an_earlier_copy() {
    for bare in [false, true] {
        let rig = Rig::start();
        let client = rig.client();
        let lease = client.acquire(&rig.name, &ttl(LONG)).await.unwrap();
        rig.fault("lose-request", 1, json!({ "method": "DELETE" }))
            .await;
        rig.fault("lose-request", 1, json!({ "method": "POST" }))
            .await;
        let forbidden = json!({ "status": 403, "code": "forbidden", "bare": bare });
        rig.fault("status", 100, forbidden).await;
        let released = client.release_lease(&lease).await;
        assert!(
            matches!(released, Err(ClientError::OutcomeUnknown { .. })),
            "{released:?}"
        );
        let acquired = client.acquire(&rig.name, &wait(LONG)).await;
        assert!(
            matches!(acquired, Err(ClientError::OutcomeUnknown { .. })),
            "{acquired:?}"
        );
    }
}

#[tokio::test]
async fn c26_a_connection_that_is_closed_is_followed_by_another() {
    let rig = Rig::start();
    rig.fault("lose-request", 3, json!({ "method": "POST" }))
        .await;
    rig.client().acquire(&rig.name, &ttl(LONG)).await.unwrap();
    let log = rig.log("POST").await;
    assert_eq!((log.len(), keys(&log).len()), (4, 1));
    let pauses: HashSet<_> = log.windows(2).map(|it| it[1].at_ms - it[0].at_ms).collect();
    assert!(pauses.len() > 1, "{pauses:?}");
}

#[tokio::test]
async fn c26_where_nobody_listens_that_is_said_soon() {
    let rig = Rig::start();
    let client = client(&rig.urls().nobody);
    for request in [AcquireRequest::default(), wait(seconds(1)), wait(LONG)] {
        let begun = Instant::now();
        let error = client.acquire(&rig.name, &request).await.unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        assert!(begun.elapsed() < seconds(12), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn c27_a_request_that_hangs_is_given_up_and_repeated() {
    let rig = Rig::start();
    let client = rig.client();
    rig.fault("hang", 1, json!({ "method": "POST" })).await;
    let begun = Instant::now();
    let waits = wait(seconds(30));
    let lease = client.acquire(&rig.name, &waits).await.unwrap();
    assert!(begun.elapsed() < seconds(30), "{:?}", begun.elapsed());
    let log = rig.log("POST").await;
    assert_eq!((log.len(), keys(&log).len()), (2, 1));
    client.release_lease(&lease).await.unwrap();

    // The same if it has arrived, and without a wait.
    let hasty = rig.client_with(|options| options.request_timeout = seconds(2));
    rig.forget_log().await;
    rig.fault("hang-reply", 1, json!({ "method": "POST" }))
        .await;
    let lease = hasty.acquire(&rig.name, &ttl(LONG)).await.unwrap();
    let log = rig.log("POST").await;
    assert!(log.len() >= 2 && keys(&log).len() == 1, "{log:?}");
    assert_eq!(rig.fences().await, [lease.fence.get()]);
}

/// A machine that takes no connection costs the time for connecting, not that for an answer.
#[tokio::test]
async fn connecting_has_a_time_limit_of_its_own() {
    // Its queue of connections is full: nobody accepts any.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let mut connections = Vec::new();
    while let Ok(connection) = std::net::TcpStream::connect_timeout(&address, seconds(1)) {
        connections.push(connection);
    }
    let rig = Rig::start();
    let client = rig.client_with(|options| {
        options.url = format!("http://{address},{}", options.url);
        options.connect_timeout = seconds(1);
        options.request_timeout = LONG * 10;
        options.deadline = LONG * 10;
    });
    // The kernel itself gives up after half a minute at the earliest.
    let acquired = timeout(seconds(20), client.acquire(&rig.name, &wait(LONG * 5))).await;
    acquired.expect("it goes on at the next address").unwrap();
}
