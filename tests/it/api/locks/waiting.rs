//! Waiting for a lock: `POST /locks/{name}` with `wait_ms`.

use crate::api::prelude::*;

const WITH_KEY: &[(&str, &str)] = &[
    JSON[0],
    ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11"),
];
const REQUEST: &str = "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
    Content-Length: 18\r\n\r\n{\"wait_ms\": 20000}";

/// A service at which one caller waits, behind one other waiter.
async fn one_waits(
    headers: &'static [(&str, &str)],
) -> (Arc<Service>, tokio::task::JoinHandle<ApiResponse>) {
    let service = Arc::new(Service::start());
    service.script.acquire.ok(queued(1));
    let caller = Arc::clone(&service);
    #[expect(
        clippy::disallowed_methods,
        reason = "a caller is no task of the program"
    )]
    let answer = tokio::spawn(async move {
        let body = r#"{"wait_ms": 20000}"#;
        caller.ask("POST /locks/a", headers, body).await
    });
    is_queued(&service).await;
    (service, answer)
}

async fn is_queued(service: &Service) {
    let parking = &service.script.parking;
    until("the caller is queued", || !parking.is_empty()).await;
}

/// A connection on which a caller waits in the queue.
async fn waits_on_a_socket(service: &Service) -> TcpStream {
    let mut stream = service.connect().await;
    service.script.acquire.ok(queued(0));
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    is_queued(service).await;
    stream
}

fn left(service: &Service) -> Vec<Option<Duration>> {
    let asked = service.script.asked();
    let left = asked.iter().filter_map(|asked| match asked {
        StoreCall::Leave(keep_for) => Some(*keep_for),
        _ => None,
    });
    left.collect()
}

#[tokio::test]
async fn a_grant_within_the_wait_is_201_with_how_long_it_was() {
    let (service, answer) = one_waits(JSON).await;
    sleep(Duration::from_millis(30)).await;
    assert_eq!(service.script.tell(&News::Granted(held())), 1);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    let waited = answer["waited_ms"].as_u64().unwrap();
    assert!((30..60_000).contains(&waited), "{waited}");
    assert_eq!(answer["fencing_token"], 42);
    assert_eq!(service.script.given_back(), 0);
}

#[tokio::test]
async fn a_wait_that_runs_out_is_423_with_the_holder_and_the_queue() {
    let service = Service::start();
    service.script.acquire.ok(queued(1));
    let answer = service.acquire(r#"{"wait_ms": 40}"#).await;
    assert_eq!(answer.problem(), (423, "locked"));
    let body = answer.json();
    assert!(body["waited_ms"].as_u64().unwrap() >= 40);
    assert_eq!(body["waiters"], 3);
    assert_eq!(body["holders"][0]["fencing_token"], 42);
    answer.retry_after_ms();
}

#[tokio::test]
async fn a_lock_that_is_passing_on_has_no_holder_to_show() {
    let service = Service::start();
    service.script.acquire.ok(Acquisition::Held(Contention {
        holder: None,
        waiters: 7,
    }));
    let answer = service.acquire("").await.is_problem(423, "locked");
    assert_eq!(
        answer.redacted(),
        json!({
            "code": "locked", "detail": "The lock is passing to a waiter.",
            "holder_count": 0, "holders": [], "request_id": "[request_id]",
            "retry_after_ms": "[retry_after_ms]", "status": 423, "title": "The lock is held",
            "type": "/problems/locked", "waited_ms": 0, "waiters": 7,
        })
    );
}

#[tokio::test]
async fn a_full_queue_is_429_and_says_when_to_come_back() {
    let service = Service::start();
    service.script.acquire.ok(Acquisition::QueueFull);
    let answer = service.acquire(r#"{"wait_ms": 1000}"#).await;
    assert_eq!(answer.problem(), (429, "too-many-waiters"));
    let ms = answer.retry_after_ms();
    assert!((2_000..5_000).contains(&ms), "{ms}");
}

#[tokio::test]
async fn a_gateway_at_which_as_many_wait_as_may_does_not_ask_the_store() {
    let service = Service::configured(|it| it.limits.max_waiters = 0);
    let answer = service.acquire(r#"{"wait_ms": 1000}"#).await;
    assert_eq!(answer.problem(), (429, "too-many-waiters"));
    assert!(service.script.asked().is_empty());
    let stats = service.get("/stats").await.json();
    assert_eq!(stats["totals"]["acquires"]["refused"], 1, "{stats}");
    assert_eq!(
        service.acquire("").await.status,
        201,
        "without a wait it is no waiter"
    );
}

#[tokio::test]
async fn the_older_of_two_requests_with_one_key_is_409() {
    let (service, answer) = one_waits(WITH_KEY).await;
    assert_eq!(service.script.tell(&News::Replaced), 1);
    let answer = answer.await.unwrap();
    assert_eq!(answer.problem(), (409, "request-replaced"));
}

#[tokio::test]
async fn the_queue_is_told_how_long_and_how_many() {
    let service = Service::configured(|it| it.limits.max_waiters_per_name = 11);
    service.acquire(r#"{"wait_ms": 25000}"#).await;
    assert_eq!(service.script.asked().len(), 1);
    let wait = service.script.attempt().wait.unwrap();
    assert_eq!(wait.max_wait, Duration::from_secs(25));
    assert_eq!(wait.longest_queue, 11);
}

#[tokio::test]
async fn draining_answers_those_who_wait_and_keeps_the_place_of_those_with_a_key() {
    for (headers, keep_for) in [(JSON, None), (WITH_KEY, Some(Duration::from_secs(5)))] {
        let (service, answer) = one_waits(headers).await;
        service.lifecycle.drain();
        let answer = answer.await.unwrap();
        assert_eq!(answer.problem(), (503, "draining"));
        assert_eq!(left(&service), [keep_for]);
    }
}

#[tokio::test]
async fn a_caller_that_closes_or_resets_its_connection_leaves_the_queue() {
    for leave in [drop, reset] {
        let service = Service::start();
        leave(waits_on_a_socket(&service).await);
        until("it has left", || left(&service) == [None]).await;
        until("nobody is parked", || service.script.parking.is_empty()).await;
    }
}

/// The gateway does not read further bytes of an HTTP/1.1 connection before its request is answered, so it sees no end
/// of the connection.
#[tokio::test]
async fn a_caller_that_has_sent_more_behind_its_request_leaves_the_queue_too() {
    for behind in ["\r\n", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        for leave in [drop, reset] {
            let service = Service::start();
            service.script.acquire.ok(queued(1));
            let mut stream = service.connect().await;
            let request = REQUEST.replace("20000", "55000");
            let request = format!("{request}{behind}");
            stream.write_all(request.as_bytes()).await.unwrap();
            service.is_asked(1).await;
            notices(&service).await;
            leave(stream);
            // The gateway must notice the end long before the wait is over.
            let left = until("it has left", || left(&service) == [None]);
            let in_time = timeout(Duration::from_secs(30), left).await;
            assert!(in_time.is_ok(), "{behind:?}");
        }
    }
}

#[tokio::test]
async fn inspect_shows_the_queue_and_its_length() {
    let service = Service::start();
    let waiter = |owner: Option<&str>, ms| Waiter {
        sharing: None,
        owner: owner.map(|owner| Owner::new(owner).unwrap()),
        metadata: Metadata::new([("job".to_owned(), "4711".to_owned())].into()).unwrap(),
        waited: Duration::from_millis(ms),
    };
    let Contention { holder, .. } = contention(0);
    let inspection = Inspection {
        holder,
        queue: vec![waiter(Some("first"), 8_504), waiter(None, 20)],
        waiters: 1_000,
        granted_order: None,
    };
    service.script.inspect.ok(inspection);
    let body = service.get("/locks/a").await.json();
    assert_eq!(body["waiter_count"], 1_000);
    assert_eq!(
        body["waiters"],
        json!([
            {
                "limit": null, "metadata": {"job": "4711"}, "mode": "exclusive", "owner": "first",
                "position": 1, "waited_ms": 8_504,
            },
            {
                "limit": null, "metadata": {"job": "4711"}, "mode": "exclusive", "owner": null,
                "position": 2, "waited_ms": 20,
            },
        ])
    );
}
