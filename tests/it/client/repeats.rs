//! What is sent again, and what is known when that did not help.

use std::{net::TcpListener, time::Duration};

use latchgate::{
    client::{AcquireRequest, Client, ClientError, ClientOptions},
    lock::{GroupNames, IdempotencyKey, LockName},
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
    let error = client(&gateway)
        .acquire(&name(), &request)
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    assert_eq!(gateway.received().len(), 2);
}

#[tokio::test]
async fn what_did_not_happen_is_tried_again() {
    for away in [
        Reply::problem(503, "store-unavailable", ""),
        Reply::problem(429, "rate-limited", ""),
        Reply::problem(429, "too-many-leases", ""),
        Reply::Answer(429, "<html>".to_owned()),
    ] {
        let gateway = FakeGateway::new([away.clone(), away.clone(), lease()]);
        acquire(&gateway).await.unwrap();
        let gateway = FakeGateway::new([away]);
        let error = acquire(&gateway).await.unwrap_err();
        assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
        assert_eq!(gateway.received().len(), 3);
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
async fn no_fencing_token_comes_back_by_asking_again() {
    let gateway = FakeGateway::new([Reply::problem(503, "fence-exhausted", "")]);
    let error = acquire(&gateway).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    assert_eq!(gateway.received().len(), 1);
}

#[tokio::test]
async fn without_an_answer_the_outcome_is_unknown() {
    let unknown = || Reply::problem(504, "outcome-unknown", "");
    let proxy = |status| Reply::Answer(status, "<html>".to_owned());
    for reply in [
        Reply::Lost,
        Reply::Silence,
        Reply::Torn,
        unknown(),
        proxy(502),
        proxy(200),
    ] {
        let gateway = FakeGateway::new([reply.clone()]);
        let error = acquire(&gateway).await.unwrap_err();
        assert!(
            matches!(error, ClientError::OutcomeUnknown { .. }),
            "{reply:?}: {error}"
        );
        assert_eq!(gateway.received().len(), 3, "{reply:?}");
    }
}

#[tokio::test]
async fn a_later_refusal_does_not_settle_what_became_of_an_earlier_copy() {
    for later in [
        Reply::problem(503, "store-unavailable", ""),
        Reply::problem(429, "rate-limited", ""),
        Reply::problem(503, "fence-exhausted", ""),
    ] {
        let gateway = FakeGateway::new([Reply::Lost, later.clone()]);
        let error = acquire(&gateway).await.unwrap_err();
        assert!(
            matches!(error, ClientError::OutcomeUnknown { .. }),
            "{later:?}: {error}"
        );
    }
}

#[tokio::test]
async fn a_lock_that_is_held_is_held_whatever_became_of_an_earlier_copy() {
    let gateway = FakeGateway::new([Reply::Lost, Reply::problem(423, "locked", "")]);
    let error = acquire(&gateway).await.unwrap_err();
    assert!(matches!(error, ClientError::Held(_)), "{error}");
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_is_repeated() {
    let done = Reply::Answer(204, String::new());
    let gateway = FakeGateway::new([Reply::Lost, done]);
    client(&gateway).release(&name(), &token()).await.unwrap();
    assert_eq!(gateway.received().len(), 2);
}

#[tokio::test]
async fn a_lease_that_is_gone_after_an_unanswered_release_may_have_been_released() {
    let lost = || Reply::problem(410, "lease-lost", r#","held":false"#);
    let gateway = FakeGateway::new([Reply::Lost, lost()]);
    let error = client(&gateway)
        .release(&name(), &token())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ClientError::OutcomeUnknown { .. }),
        "{error}"
    );
    let gateway = FakeGateway::new([lost()]);
    let error = client(&gateway)
        .release(&name(), &token())
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Lost(_)), "{error}");
}

/// What came of the release of two locks.
fn released(a: &str, b: &str) -> Reply {
    let results = format!(r#"{{"results":[{{"name":"a","code":{a}}},{{"name":"b","code":{b}}}]}}"#);
    Reply::Answer(200, results)
}

async fn release_all(gateway: &FakeGateway) -> Result<(), ClientError> {
    let names = ["a", "b"].map(|name| LockName::new(name).unwrap());
    let names = GroupNames::new(names).unwrap();
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
    let lost = || Reply::problem(410, "lease-lost", r#","held":false"#);
    let gateway = FakeGateway::new([released("null", r#""store-unavailable""#), lost()]);
    let error = release_all(&gateway).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost(_)), "{error}");
    // The first copy may have been carried out.
    let gateway = FakeGateway::new([released("null", r#""outcome-unknown""#), lost()]);
    let error = release_all(&gateway).await.unwrap_err();
    assert!(
        matches!(error, ClientError::OutcomeUnknown { .. }),
        "{error}"
    );
    // What no repetition mends is not repeated.
    let gateway = FakeGateway::new([released("null", r#""foreign-data""#)]);
    release_all(&gateway).await.unwrap_err();
    assert_eq!(gateway.received().len(), 1);
}

#[tokio::test]
async fn of_several_locks_one_that_is_gone_after_an_unanswered_release_may_have_been_released() {
    let gateway = FakeGateway::new([Reply::Lost, released(r#""lease-lost""#, "null")]);
    let error = release_all(&gateway).await.unwrap_err();
    assert!(
        matches!(error, ClientError::OutcomeUnknown { .. }),
        "{error}"
    );
    let gateway = FakeGateway::new([Reply::Lost, released("null", "null")]);
    release_all(&gateway).await.unwrap();
}

#[tokio::test]
async fn a_renew_whose_reply_was_lost_is_repeated() {
    let gateway = FakeGateway::new([Reply::Lost, lease()]);
    client(&gateway)
        .renew(&name(), &token(), None)
        .await
        .unwrap();
    assert_eq!(gateway.received().len(), 2);
}

#[tokio::test]
async fn where_nobody_listens_nothing_happened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = client_of(&url);
    let error = client
        .acquire(&name(), &AcquireRequest::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_look_leaves_nothing_in_doubt() {
    let gateway = FakeGateway::new([Reply::Lost]);
    let error = client(&gateway).inspect(&name()).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert_eq!(gateway.received().len(), 3);
    // A gateway of an earlier version, and a proxy that has lost its own.
    let gateway = FakeGateway::new([Reply::problem(504, "outcome-unknown", "")]);
    let error = client(&gateway).inspect(&name()).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    let gateway = FakeGateway::new([Reply::Answer(502, "<html>".to_owned())]);
    let error = client(&gateway).inspect(&name()).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("a proxy answered with status 502")
    );
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
        // A machine that does other things as well may be late, but not by the ten seconds that one
        // answer may take.
        assert!(begin.elapsed() < deadline * 10, "{:?}", begin.elapsed());
    }
}
