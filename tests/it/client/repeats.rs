//! Which requests the client repeats, and which error it reports if that does not help.

use std::{net::TcpListener, time::Duration};

use latchgate::{
    client::{AcquireRequest, Client, ClientError, ClientOptions},
    lock::{GroupNames, IdempotencyKey},
};
use tokio::time::Instant;

use super::answers::{TOKEN, acquire, client, client_of, lease, name, token};
use crate::support::fake_gateway::{FakeGateway, Reply};

fn expired() -> Reply {
    Reply::problem(409, "idempotency-expired", "")
}

fn keys(gateway: &FakeGateway) -> Vec<String> {
    let key = |request: &crate::support::fake_gateway::Received| {
        request.header("idempotency-key").unwrap().to_owned()
    };
    gateway.received().iter().map(key).collect()
}

#[tokio::test]
async fn an_acquire_whose_reply_was_lost_is_repeated_under_the_same_key() {
    for lost in [Reply::Lost, Reply::Torn, Reply::Silence] {
        let gateway = FakeGateway::new([lost.clone(), lease()]);
        let lease = acquire(&gateway).await.unwrap();
        assert_eq!(lease.token.expose(), TOKEN);
        let keys = keys(&gateway);
        assert_eq!(keys.len(), 2, "{lost:?}");
        assert_eq!(keys[0], keys[1], "{lost:?}");
    }
}

#[tokio::test]
async fn every_acquire_has_a_key_of_its_own() {
    let gateway = FakeGateway::new([lease()]);
    acquire(&gateway).await.unwrap();
    acquire(&gateway).await.unwrap();
    let keys = keys(&gateway);
    assert_ne!(keys[0], keys[1]);
    assert!(IdempotencyKey::new(&keys[0]).is_ok());
}

#[tokio::test]
async fn an_acquire_that_came_back_too_late_starts_again_under_a_new_key() {
    let gateway = FakeGateway::new([Reply::Lost, expired(), lease()]);
    acquire(&gateway).await.unwrap();
    let keys = keys(&gateway);
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2]);
}

#[tokio::test]
async fn a_key_of_the_callers_is_never_replaced() {
    let gateway = FakeGateway::new([Reply::Lost, expired()]);
    let request = AcquireRequest {
        idempotency_key: Some(IdempotencyKey::random()),
        ..AcquireRequest::default()
    };
    let error = client(&gateway).acquire(&name(), &request).await;
    assert_eq!(word(&error.unwrap_err()), "refused");
    assert_eq!(gateway.received().len(), 2);
}

/// A word for each result of a call.
fn word(error: &ClientError) -> &'static str {
    match error {
        ClientError::Held(_) => "held",
        ClientError::Outdated(_) => "outdated",
        ClientError::Lost(_) => "lost",
        ClientError::Unreachable { .. } => "unreachable",
        ClientError::Unavailable(_) => "unavailable",
        ClientError::OutcomeUnknown { .. } => "unknown",
        ClientError::Refused(_) => "refused",
        ClientError::WaitOver(_) | ClientError::Unexpected { .. } => "other",
    }
}

/// The result of an acquire and its number of requests, for each sequence of replies.
#[tokio::test]
async fn each_refusal_of_an_acquire_means_what_it_says() {
    let problem = |status, code| Reply::problem(status, code, "");
    let answer = |status, body: &str| Reply::Answer(status, body.to_owned());
    let away = || problem(503, "store-unavailable");
    for (replies, expected, copies) in [
        // A request that had no effect is repeated.
        (vec![away()], "unavailable", 3),
        (vec![problem(429, "rate-limited")], "unavailable", 3),
        (vec![problem(429, "too-many-leases")], "unavailable", 3),
        (vec![problem(429, "too-many-orders")], "unavailable", 3),
        (vec![answer(429, "<html>")], "unavailable", 3),
        // Fencing tokens that are used up do not come back, so the request is not repeated.
        (vec![problem(503, "fence-exhausted")], "unavailable", 1),
        // Without an answer the outcome is unknown.
        (vec![Reply::Lost], "unknown", 3),
        (vec![Reply::Silence], "unknown", 3),
        (vec![Reply::Torn], "unknown", 3),
        (vec![problem(504, "outcome-unknown")], "unknown", 3),
        (vec![answer(502, "<html>")], "unknown", 3),
        (vec![answer(200, "<html>")], "unknown", 3),
        // After a success without a lease, it is unknown whether there is a lease.
        (vec![answer(200, "[]")], "unknown", 1),
        (vec![answer(201, "{}")], "unknown", 1),
        // A later refusal does not tell whether an earlier request was carried out.
        (vec![Reply::Lost, away()], "unknown", 3),
        (
            vec![Reply::Lost, problem(429, "rate-limited")],
            "unknown",
            3,
        ),
        (
            vec![Reply::Lost, problem(503, "fence-exhausted")],
            "unknown",
            2,
        ),
        // A held lock is reported whatever became of an earlier request; without a wait it is not asked for again.
        (vec![problem(423, "locked")], "held", 1),
        (vec![Reply::Lost, problem(423, "locked")], "held", 2),
        // A request that was refused for good is not repeated.
        (vec![problem(400, "invalid-request")], "refused", 1),
        (vec![problem(401, "unauthorized")], "refused", 1),
        (vec![problem(409, "idempotency-mismatch")], "refused", 1),
        (vec![problem(409, "newer-waiter")], "refused", 1),
        (
            vec![Reply::Lost, problem(409, "newer-waiter")],
            "refused",
            2,
        ),
        (vec![problem(409, "outdated-order")], "outdated", 1),
        (
            vec![Reply::Lost, problem(409, "outdated-order")],
            "outdated",
            2,
        ),
        (vec![problem(409, "declared-differently")], "refused", 1),
        // A gateway compares a request with its declarations before it looks at the lock.
        (
            vec![Reply::Lost, problem(409, "declared-differently")],
            "unknown",
            2,
        ),
        (vec![problem(422, "unsupported-by-store")], "refused", 1),
        (vec![problem(500, "foreign-data")], "refused", 1),
    ] {
        let gateway = FakeGateway::new(replies.clone());
        let error = acquire(&gateway).await.unwrap_err();
        assert_eq!(word(&error), expected, "{replies:?}: {error}");
        assert_eq!(gateway.received().len(), copies, "{replies:?}");
    }
}

#[tokio::test]
async fn a_gateway_that_is_back_in_time_is_asked_again() {
    for away in [
        Reply::problem(503, "store-unavailable", ""),
        Reply::problem(429, "rate-limited", ""),
        Reply::problem(429, "too-many-leases", ""),
        Reply::Answer(429, "<html>".to_owned()),
    ] {
        let gateway = FakeGateway::new([away.clone(), away, lease()]);
        acquire(&gateway).await.unwrap();
    }
}

#[tokio::test]
async fn what_answers_a_release_otherwise_has_not_released_it() {
    let foreign = |body: &str| Reply::Answer(200, body.to_owned());
    let done = Reply::Answer(204, String::new());
    let gateway = FakeGateway::new([foreign("<html>"), foreign(r#"{"status":"ok"}"#), done]);
    client(&gateway).release(&name(), &token()).await.unwrap();
    assert_eq!(gateway.received().len(), 3);
}

#[tokio::test]
async fn a_release_and_a_renewal_whose_reply_was_lost_are_repeated() {
    let done = Reply::Answer(204, String::new());
    let gateway = FakeGateway::new([Reply::Lost, done]);
    client(&gateway).release(&name(), &token()).await.unwrap();
    assert_eq!(gateway.received().len(), 2);
    let gateway = FakeGateway::new([Reply::Lost, lease()]);
    let renewed = client(&gateway).renew(&name(), &token(), None).await;
    renewed.unwrap();
    assert_eq!(gateway.received().len(), 2);
}

#[tokio::test]
async fn a_lease_that_is_gone_after_an_unanswered_release_may_have_been_released() {
    let lost = Reply::problem(410, "lease-lost", r#","held":false"#);
    for (replies, expected) in [
        (vec![Reply::Lost, lost.clone()], "unknown"),
        (vec![lost], "lost"),
    ] {
        let gateway = FakeGateway::new(replies);
        let released = client(&gateway).release(&name(), &token()).await;
        assert_eq!(word(&released.unwrap_err()), expected);
    }
}

/// The results of a release of two locks.
fn released(a: &str, b: &str) -> Reply {
    let results = format!(r#"{{"results":[{{"name":"a","code":{a}}},{{"name":"b","code":{b}}}]}}"#);
    Reply::Answer(200, results)
}

async fn release_all(gateway: &FakeGateway) -> Result<(), ClientError> {
    let names = GroupNames::parse(["a", "b"]).unwrap();
    let released = client(gateway).release_all(&names, &token()).await?;
    released.check()
}

#[tokio::test]
async fn of_several_locks_those_that_the_store_could_not_release_are_released_again() {
    let done = || Reply::Answer(204, String::new());
    for code in [r#""store-unavailable""#, r#""outcome-unknown""#] {
        let gateway = FakeGateway::new([
            released("null", code),
            Reply::problem(503, "store-unavailable", ""),
            done(),
        ]);
        release_all(&gateway).await.unwrap();
        let lines = gateway.received();
        let lines: Vec<_> = lines.iter().map(|it| it.line.as_str()).collect();
        assert!(
            lines[0].starts_with("DELETE /locks?names=a,b "),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("DELETE /locks/b "), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }
    // If the outcome of the first request is unknown, it may have released the lease.
    for (code, expected) in [
        (r#""store-unavailable""#, "lost"),
        (r#""outcome-unknown""#, "unknown"),
    ] {
        let lost = Reply::problem(410, "lease-lost", r#","held":false"#);
        let gateway = FakeGateway::new([released("null", code), lost]);
        let error = release_all(&gateway).await.unwrap_err();
        assert_eq!(word(&error), expected, "{code}");
    }
    // A failure that cannot improve is not repeated.
    let gateway = FakeGateway::new([released("null", r#""foreign-data""#)]);
    release_all(&gateway).await.unwrap_err();
    assert_eq!(gateway.received().len(), 1);
}

#[tokio::test]
async fn of_several_locks_one_that_is_gone_after_an_unanswered_release_may_have_been_released() {
    let gateway = FakeGateway::new([Reply::Lost, released(r#""lease-lost""#, "null")]);
    let error = release_all(&gateway).await.unwrap_err();
    assert_eq!(word(&error), "unknown", "{error}");
    let gateway = FakeGateway::new([Reply::Lost, released("null", "null")]);
    release_all(&gateway).await.unwrap();
}

/// The result is the same however long the caller would wait.
#[tokio::test]
async fn where_nobody_listens_nothing_happened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for wait in [Duration::ZERO, AcquireRequest::FOR_EVER] {
        let request = AcquireRequest {
            wait,
            ..AcquireRequest::default()
        };
        let error = client_of(&url).acquire(&name(), &request).await;
        let error = error.unwrap_err();
        assert_eq!(word(&error), "unreachable", "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}

#[tokio::test]
async fn a_look_leaves_nothing_in_doubt() {
    for (reply, expected, said) in [
        (Reply::Lost, "unreachable", "no gateway at"),
        // Answers of an older gateway, and of a proxy whose gateway is away.
        (
            Reply::problem(504, "outcome-unknown", ""),
            "unavailable",
            "outcome-unknown",
        ),
        (
            Reply::Answer(502, "<html>".to_owned()),
            "unreachable",
            "a proxy answered with status 502",
        ),
    ] {
        let gateway = FakeGateway::new([reply]);
        let error = client(&gateway).inspect(&name()).await.unwrap_err();
        assert_eq!(word(&error), expected, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(gateway.received().len(), 3);
    }
}

#[tokio::test]
async fn no_call_outlasts_its_deadline() {
    let deadline = Duration::from_millis(700);
    for reply in [Reply::problem(503, "store-unavailable", ""), Reply::Silence] {
        let gateway = FakeGateway::new([reply]);
        let options = ClientOptions {
            url: gateway.url.clone(),
            deadline,
            attempts: u32::MAX,
            ..ClientOptions::default()
        };
        let client = Client::new(options).unwrap();
        let begin = Instant::now();
        client
            .acquire(&name(), &AcquireRequest::default())
            .await
            .unwrap_err();
        // A busy machine may add some delay, but not the ten seconds that one answer may take.
        assert!(begin.elapsed() < deadline * 10, "{:?}", begin.elapsed());
    }
}
