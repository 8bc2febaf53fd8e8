//! A wait that takes more than one request.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use latchgate::{
    client::{AcquireRequest, Client, ClientError, ClientOptions, Lease, WaitStatus},
    lock::{GroupNames, IdempotencyKey, Owner},
};
use tokio::time::Instant;

use super::answers::{TOKEN, client, lease, name};
use crate::support::fake_gateway::{FakeGateway, Received, Reply};

const FOR_EVER: Duration = AcquireRequest::FOR_EVER;

fn locked() -> Reply {
    let more = r#","waiters":3,"holders":[{"owner":"ci","fencing_token":41,"expires_in_ms":9000}]"#;
    Reply::problem(423, "locked", more)
}

fn draining() -> Reply {
    Reply::problem(503, "draining", "")
}

/// A request that waits without a limit.
fn for_ever() -> AcquireRequest {
    AcquireRequest {
        wait: FOR_EVER,
        ..AcquireRequest::default()
    }
}

fn for_ever_by(owner: &str) -> AcquireRequest {
    AcquireRequest {
        owner: Some(Owner::new(owner).unwrap()),
        ..for_ever()
    }
}

async fn wait(gateway: &FakeGateway, wait: Duration) -> Result<Lease, ClientError> {
    let request = AcquireRequest {
        wait,
        ..AcquireRequest::default()
    };
    client(gateway).acquire(&name(), &request).await
}

fn key(request: &Received) -> &str {
    request.header("idempotency-key").unwrap()
}

#[tokio::test]
async fn every_request_of_a_wait_has_the_same_key() {
    let gateway = FakeGateway::new([locked(), Reply::Lost, draining(), locked(), lease()]);
    wait(&gateway, FOR_EVER).await.unwrap();
    let received = gateway.received();
    assert_eq!(received.len(), 5);
    for request in &received {
        assert_eq!(key(request), key(&received[0]));
        assert!(request.body.contains(r#""wait_ms":20000"#), "{request:?}");
    }
}

#[tokio::test]
async fn a_request_for_several_locks_waits_as_long_as_it_may() {
    let more = r#","errors":[{"field":"wait_ms","reason":"is 55000; allowed are 0 to 30000"}]"#;
    let refused = Reply::problem(400, "invalid-request", more);
    // A group keeps its position for one request only.
    let gateway = FakeGateway::new([locked(), refused, Reply::problem(403, "forbidden", "")]);
    let names = GroupNames::parse(["a", "b"]).unwrap();
    let outcome = client(&gateway).acquire_all(&names, &for_ever()).await;
    outcome.unwrap_err();
    let received = gateway.received();
    for (request, wait) in received.iter().zip([55_000, 55_000, 27_500]) {
        let wait = format!(r#""wait_ms":{wait}"#);
        assert!(request.body.contains(&wait), "{request:?}");
    }
    assert!(received.len() >= 3);
}

#[tokio::test]
async fn the_last_request_of_a_wait_gives_up_the_place() {
    let gateway = FakeGateway::new([locked()]);
    let begin = Instant::now();
    let error = wait(&gateway, Duration::from_millis(300))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::WaitOver(_)), "{error}");
    assert!(error.to_string().contains("held by ci"), "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let received = gateway.received();
    let (last, others) = received.split_last().unwrap();
    assert!(!last.body.contains("wait_ms"), "{last:?}");
    assert!(
        others
            .iter()
            .all(|request| request.body.contains("wait_ms"))
    );
    // The client pauses between its requests, although the gateway answers at once.
    assert!(received.len() < 8, "{}", received.len());
}

#[tokio::test]
async fn a_wait_outlasts_more_failures_than_a_call_would() {
    let replies = (0..6).map(|_| draining()).chain([lease()]);
    let gateway = FakeGateway::new(replies);
    wait(&gateway, FOR_EVER).await.unwrap();
    assert_eq!(gateway.received().len(), 7);
}

#[tokio::test]
async fn a_gateway_that_allows_shorter_waits_is_asked_for_those() {
    let more = r#","errors":[{"field":"wait_ms","reason":"is 20000; allowed are 0 to 5000"}]"#;
    let refused = || Reply::problem(400, "invalid-request", more);
    let gateway = FakeGateway::new([refused(), refused(), lease()]);
    wait(&gateway, FOR_EVER).await.unwrap();
    assert!(gateway.received()[2].body.contains(r#""wait_ms":5000"#));
}

#[tokio::test]
async fn another_refusal_ends_the_wait() {
    let more = r#","errors":[{"field":"ttl_ms","reason":"is 1"}]"#;
    let gateway = FakeGateway::new([Reply::problem(400, "invalid-request", more)]);
    let error = wait(&gateway, FOR_EVER).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    assert_eq!(gateway.received().len(), 1);
}

#[tokio::test]
async fn a_queue_that_is_full_is_tried_again_after_the_time_it_asks_for() {
    let full = Reply::problem(429, "too-many-waiters", r#","retry_after_ms":300"#);
    let gateway = FakeGateway::new([full, lease()]);
    let begin = Instant::now();
    wait(&gateway, FOR_EVER).await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_lease_that_ended_unheard_during_a_wait_is_asked_for_under_a_new_key() {
    let expired = || Reply::problem(409, "idempotency-expired", "");
    let gateway = FakeGateway::new([locked(), expired(), lease()]);
    wait(&gateway, FOR_EVER).await.unwrap();
    let received = gateway.received();
    assert_eq!(key(&received[0]), key(&received[1]));
    assert_ne!(key(&received[1]), key(&received[2]));
}

#[tokio::test]
async fn a_copy_that_arrives_late_does_not_end_the_wait() {
    let superseded = || Reply::problem(409, "request-replaced", "");
    let gateway = FakeGateway::new([Reply::Lost, superseded(), superseded(), lease()]);
    wait(&gateway, FOR_EVER).await.unwrap();
    let received = gateway.received();
    assert_eq!(key(&received[0]), key(&received[3]));
    // An acquire without a wait is not refused either: its lease has passed to the repeated request.
    let gateway = FakeGateway::new([Reply::Lost, superseded(), lease()]);
    let request = AcquireRequest::default();
    client(&gateway).acquire(&name(), &request).await.unwrap();
    assert_eq!(gateway.received().len(), 3);
    // With an idempotency key of the caller, the newer request may be from another process.
    let gateway = FakeGateway::new([superseded()]);
    let request = AcquireRequest {
        idempotency_key: Some(IdempotencyKey::random()),
        ..for_ever()
    };
    let error = client(&gateway).acquire(&name(), &request).await;
    let error = error.unwrap_err();
    assert_eq!(error.problem().unwrap().code, "request-replaced");
    assert_eq!(gateway.received().len(), 1);
}

#[tokio::test]
async fn a_wait_goes_on_at_the_next_address() {
    let (drains, takes) = (
        FakeGateway::new([locked(), draining()]),
        FakeGateway::new([lease()]),
    );
    let options = ClientOptions {
        url: format!("{},{}", drains.url, takes.url),
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    client.acquire(&name(), &for_ever()).await.unwrap();
    let (first, second) = (drains.received(), takes.received());
    assert_eq!((first.len(), second.len()), (2, 1));
    assert_eq!(key(&first[0]), key(&second[0]));
    // The client keeps using this gateway.
    client
        .renew(&name(), &super::answers::token(), None)
        .await
        .unwrap();
    assert_eq!(takes.received().len(), 2);
}

#[tokio::test]
async fn whoever_watches_is_told_of_holder_and_trouble() {
    let gateway = FakeGateway::new([locked(), draining(), lease()]);
    let request = AcquireRequest {
        owner: Owner::new("me").ok(),
        ..for_ever()
    };
    let told: Arc<Mutex<Vec<WaitStatus>>> = Arc::default();
    let tell = Arc::clone(&told);
    let mut watcher = move |waiting: &WaitStatus| tell.lock().unwrap().push(waiting.clone());
    let mut acquiring = client(&gateway).acquiring(name(), request);
    acquiring.finish_watched(&mut watcher).await.unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told[0].waiters, Some(3));
    assert_eq!(
        told[0].holder.as_ref().unwrap().owner.as_deref(),
        Some("ci")
    );
    assert!(told[1].trouble.is_some());
    assert_eq!(told[1].waiters, Some(3));
}

#[tokio::test]
async fn of_several_locks_the_one_is_looked_at_that_is_known_to_be_in_the_way() {
    let held =
        r#"{"status":423,"code":"locked","name":"b","waiters":1,"holders":[{"owner":"bob"}]}"#;
    let lock = r#"{"name":"b","state":"held","holders":[{"owner":"bob"}],"holder_count":1,"waiters":[],"waiter_count":2}"#;
    let first = r#"{"name":"a","state":"held","holders":[{"owner":"ci","waiting":true,"waits_for":{"name":"b","since_ms":900,"holders":[]}}],"holder_count":1,"waiters":[],"waiter_count":0}"#;
    let gateway = FakeGateway::new([
        Reply::Late(Duration::from_millis(100), 423, held.to_owned()),
        Reply::Silence,
        Reply::Answer(200, first.to_owned()),
        Reply::Answer(200, lock.to_owned()),
    ]);
    let names = GroupNames::parse(["a", "b"]).unwrap();
    let (sender, mut news) = tokio::sync::mpsc::channel(8);
    let mut watcher = |waiting: &WaitStatus| {
        let name = waiting.name.as_ref().map(ToString::to_string);
        let have: Vec<_> = waiting.have.iter().map(ToString::to_string).collect();
        sender.try_send((name, have, waiting.waiters)).unwrap();
    };
    let mut acquiring = client(&gateway).acquiring_all(names, for_ever_by("ci"));
    let seldom = Duration::from_mins(1);
    let told = tokio::select! {
        _ = acquiring.finish_watched_every(Some(seldom), &mut watcher) => panic!("nobody answers"),
        told = async { [news.recv().await.unwrap(), news.recv().await.unwrap()] } => told,
    };
    let b = Some("b".to_owned());
    let a = vec!["a".to_owned()];
    assert_eq!(told, [(b.clone(), Vec::new(), Some(1)), (b, a, Some(2))]);
    let requests = gateway.received();
    let lines = requests.iter().map(|it| it.line.as_str());
    let lines: Vec<_> = lines
        .map(|line| line.trim_end_matches(" HTTP/1.1"))
        .collect();
    assert_eq!(
        lines,
        ["POST /locks", "POST /locks", "GET /locks/a", "GET /locks/b"]
    );
}

#[tokio::test]
async fn of_several_locks_what_the_request_has_is_told_before_its_first_answer() {
    let first = |holder: &str, waiters: &str| {
        let lock = format!(
            r#"{{"name":"a","state":"held","holders":[{holder}],"holder_count":1,"waiters":[{waiters}],"waiter_count":1}}"#
        );
        Reply::Answer(200, lock)
    };
    let queued = r#"{"position":1,"owner":"ci","mode":"exclusive","limit":null,"waited_ms":1000}"#;
    let hidden =
        r#"{"owner":"ci","waiting":true,"waits_for":{"name":null,"since_ms":900,"holders":[]}}"#;
    for (answer, name, have, hidden) in [
        // The request waits for the first lock, which another group keeps.
        (first(hidden, queued), Some("a"), vec![], false),
        (first(hidden, ""), None, vec!["a"], true),
    ] {
        let gateway = FakeGateway::new([Reply::Silence, answer]);
        let names = GroupNames::parse(["a", "b"]).unwrap();
        let (sender, mut news) = tokio::sync::mpsc::channel(8);
        let mut watcher = |waiting: &WaitStatus| sender.try_send(waiting.clone()).unwrap();
        let mut acquiring = client(&gateway).acquiring_all(names, for_ever_by("ci"));
        let seldom = Duration::from_mins(1);
        let told = tokio::select! {
            _ = acquiring.finish_watched_every(Some(seldom), &mut watcher) => panic!("nobody answers"),
            told = news.recv() => told.unwrap(),
        };
        assert_eq!(told.name.as_ref().map(ToString::to_string).as_deref(), name);
        let had: Vec<_> = told.have.iter().map(ToString::to_string).collect();
        assert!(had == have && told.may_not_view == hidden, "{told:?}");
    }
}

#[tokio::test]
async fn a_queue_that_may_not_be_looked_at_is_left_alone() {
    for (refusal, hidden) in [
        (Reply::problem(403, "forbidden", ""), true),
        (Reply::problem(429, "rate-limited", ""), false),
    ] {
        let gateway = FakeGateway::new([Reply::Silence, refusal]);
        let mut told = Vec::new();
        let mut watcher = |waiting: &WaitStatus| told.push(waiting.may_not_view);
        let client = Client::new(ClientOptions {
            url: gateway.url.clone(),
            ..ClientOptions::default()
        });
        let mut acquiring = client.unwrap().acquiring(name(), for_ever());
        let often = Duration::from_millis(10);
        tokio::select! {
            _ = acquiring.finish_watched_every(Some(often), &mut watcher) => panic!("nobody answers"),
            () = tokio::time::sleep(often * 100) => {}
        }
        assert_eq!(told, [hidden]);
        assert_eq!(gateway.received().len(), 2, "an acquire and a look");
    }
}

/// Waits for the lock without getting an answer, and gives up.
async fn give_up(gateway: &FakeGateway, idempotency_key: Option<IdempotencyKey>) {
    let request = AcquireRequest {
        idempotency_key,
        ..for_ever()
    };
    give_up_with(gateway, request).await;
}

async fn give_up_with(gateway: &FakeGateway, request: AcquireRequest) {
    let mut acquiring = client(gateway).acquiring(name(), request);
    let has_arrived = async {
        while gateway.received().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = acquiring.finish() => panic!("nobody answers"),
        () = has_arrived => {}
    }
    acquiring.withdraw().await;
}

/// The lease is also released if an earlier copy of the request arrives late and takes the position of the withdrawal.
#[tokio::test]
async fn giving_up_releases_what_was_granted_unheard() {
    for late_copies in [0, 2] {
        let late = (0..late_copies).map(|_| Reply::problem(409, "request-replaced", ""));
        let done = Reply::Answer(204, String::new());
        let replies = [Reply::Silence].into_iter().chain(late);
        let gateway = FakeGateway::new(replies.chain([lease(), done]));
        give_up(&gateway, None).await;
        let received = gateway.received();
        let [first, withdrawals @ .., released] = received.as_slice() else {
            panic!("{received:?}");
        };
        assert_eq!(withdrawals.len(), 1 + late_copies);
        for withdrawal in withdrawals {
            assert_eq!(key(withdrawal), key(first));
            assert!(!withdrawal.body.contains("wait_ms"));
        }
        assert_eq!(released.line, "DELETE /locks/deploy HTTP/1.1");
        assert_eq!(released.header("lock-token"), Some(TOKEN));
    }
}

/// A lock must not rest for a caller that never used it.
#[tokio::test]
async fn giving_up_releases_a_minimum_hold_as_unused() {
    let done = Reply::Answer(204, String::new());
    let gateway = FakeGateway::new([Reply::Silence, lease(), done]);
    let request = AcquireRequest {
        min_hold: Some(Duration::from_mins(10)),
        ..for_ever()
    };
    give_up_with(&gateway, request).await;
    let received = gateway.received();
    let line = &received.last().unwrap().line;
    assert_eq!(line, "DELETE /locks/deploy?unused=true HTTP/1.1");
    // The gateway raises the TTL that it gives by default to the minimum hold.
    assert!(!received[0].body.contains("ttl_ms"), "{}", received[0].body);
}

#[tokio::test]
async fn giving_up_leaves_a_callers_key_to_its_caller() {
    let gateway = FakeGateway::new([Reply::Silence]);
    give_up(&gateway, Some(IdempotencyKey::random())).await;
    assert_eq!(gateway.received().len(), 1);
}
