//! A lease that the client renews, work under this lease, and how its loss is reported.

use std::{future, time::Duration};

use latchgate::{
    client::{
        AcquireRequest, Client, ClientError, ClientOptions, Lease, LeaseRenewer, LeaseState, Loss,
        ReleaseRequest, WithLockError,
    },
    lock::GroupNames,
};
use tokio::time::{Instant, sleep, timeout};

use super::answers::{
    TIMEOUT, TOKEN, client, client_of, keep, keep_two, lease_of_two, lease_with, name, stands,
};
use crate::support::fake_gateway::{FakeGateway, Reply};

/// So long that an answer does not by chance take a tenth of it, after which the client no longer trusts the answer.
const TTL: Duration = Duration::from_secs(6);

/// A lease of [`TTL`].
fn lease() -> Reply {
    lease_with(&[("ttl_ms", "6000"), ("expires_in_ms", "6000")])
}

/// The same lease in an answer that comes this long after the request.
fn late(after: Duration) -> Reply {
    let Reply::Answer(status, body) = lease() else {
        panic!("a lease is an answer");
    };
    Reply::Late(after, status, body)
}

fn away() -> Reply {
    Reply::problem(503, "store-unavailable", "")
}

fn done() -> Reply {
    Reply::Answer(204, String::new())
}

/// Waits until a gateway has got this many requests. The lease must live meanwhile.
async fn until_asked(gateway: &FakeGateway, times: usize, renewer: &LeaseRenewer) {
    let begin = Instant::now();
    while gateway.received().len() < times {
        sleep(Duration::from_millis(5)).await;
        assert!(renewer.until().is_some(), "it was lost");
        assert!(begin.elapsed() < TIMEOUT);
    }
}

/// The next release request that the renewer reports.
async fn heard(renewer: &LeaseRenewer) -> ReleaseRequest {
    let mut requests = renewer.requests();
    let heard = timeout(TIMEOUT, requests.wait_for(Option::is_some)).await;
    let heard = heard.expect("it is told").unwrap().clone().unwrap();
    // Also a receiver that is made after the renewal with the request is told.
    let mut late = renewer.requests();
    let told = timeout(TIMEOUT, late.changed()).await;
    told.expect("it is told late").unwrap();
    heard
}

#[tokio::test]
async fn a_lease_is_renewed_in_its_first_third_again_and_again() {
    let gateway = FakeGateway::new([lease()]);
    let begin = Instant::now();
    let renewer = keep(&gateway).await;
    until_asked(&gateway, 9, &renewer).await;
    // An acquire and eight renewals take longer than a lease lives.
    assert!(begin.elapsed() > TTL);
    let received = gateway.received();
    assert_eq!(received[1].line, "PUT /locks/deploy/renew HTTP/1.1");
    assert_eq!(received[1].header("lock-token"), Some(TOKEN));
}

#[tokio::test]
async fn a_lease_that_another_bearer_has_shortened_gets_its_ttl_back() {
    let shortened = lease_with(&[
        ("ttl_ms", "2000"),
        ("expires_in_ms", "2000"),
        ("renew_after_ms", "333"),
    ]);
    let gateway = FakeGateway::new([lease(), shortened, lease()]);
    let renewer = keep(&gateway).await;
    until_asked(&gateway, 4, &renewer).await;
    for renewal in &gateway.received()[1..4] {
        assert_eq!(renewal.body, r#"{"ttl_ms":6000}"#);
    }
}

#[tokio::test]
async fn a_ttl_that_is_not_allowed_any_more_costs_no_lease() {
    let too_long = Reply::problem(403, "limit-exceeded", "");
    let gateway = FakeGateway::new([lease(), too_long, lease()]);
    let renewer = keep(&gateway).await;
    let begin = Instant::now();
    while gateway.received().len() < 4 {
        sleep(Duration::from_millis(5)).await;
        let state = renewer.watch().borrow().clone();
        assert!(matches!(state, LeaseState::Kept { .. }), "{state:?}");
        assert!(begin.elapsed() < TIMEOUT);
    }
    let asked: Vec<_> = gateway.received()[1..]
        .iter()
        .map(|it| it.body.clone())
        .collect();
    assert_eq!(asked, [r#"{"ttl_ms":6000}"#, "{}", "{}"]);
}

#[tokio::test]
async fn a_loss_is_told_before_the_lease_is_over() {
    for failing in [away(), Reply::Silence, Reply::Lost] {
        let gateway = FakeGateway::new([lease(), failing.clone()]);
        let renewer = keep(&gateway).await;
        let until = renewer.until().expect("it is kept");
        let loss = renewer.lost().await;
        assert!(matches!(loss, Loss::Expired { .. }), "{failing:?}: {loss}");
        // A busy machine may wake the test later.
        assert!(Instant::now() < until + TTL, "{failing:?}");
        // The acquire, and more than one try to renew.
        assert!(gateway.received().len() > 2, "{failing:?}");
    }
}

#[tokio::test]
async fn a_renewal_counts_from_when_it_was_sent() {
    let gateway = FakeGateway::new([lease()]);
    let before = Instant::now();
    let renewer = keep(&gateway).await;
    let until = renewer.until().unwrap();
    // The client subtracts a margin for clocks that run at different speeds.
    assert!(until < before + TTL);
    assert!(until > before + TTL * 9 / 10);
}

#[tokio::test]
async fn a_gateway_that_says_that_the_lease_has_ended_is_believed_at_once() {
    let ended = Reply::problem(410, "lease-lost", r#","held":true"#);
    let gateway = FakeGateway::new([lease(), ended]);
    let begin = Instant::now();
    let loss = keep(&gateway).await.lost().await;
    let Loss::Ended(problem) = loss else {
        panic!("{loss}");
    };
    assert_eq!(problem.held, Some(true));
    // The lease is released; otherwise it would be renewed until its end.
    assert!(begin.elapsed() < TTL);
    assert_eq!(gateway.received().len(), 2);
}

#[tokio::test]
async fn a_failure_in_between_is_made_good() {
    let gateway = FakeGateway::new([lease(), away(), Reply::Lost, lease()]);
    let renewer = keep(&gateway).await;
    stands(&renewer, |state| matches!(state, LeaseState::AtRisk { .. })).await;
    stands(&renewer, |state| matches!(state, LeaseState::Kept { .. })).await;
}

#[tokio::test]
async fn a_silent_gateway_is_passed_over_while_there_is_time() {
    let silent = FakeGateway::new([lease(), Reply::Silence]);
    let answers = FakeGateway::new([lease()]);
    let client = client_of(&format!("{},{}", silent.url, answers.url));
    let renewer = keep_with(&client).await;
    until_asked(&answers, 1, &renewer).await;
    stands(&renewer, |state| matches!(state, LeaseState::Kept { .. })).await;
}

#[tokio::test]
async fn at_its_hold_limit_a_lease_is_not_renewed_and_ends() {
    // The renewal up to the hold limit is the only one, so it comes in time whatever this machine does.
    let numbers = [("ttl_ms", "60000"), ("hold_expires_in_ms", "3000")];
    let gateway = FakeGateway::new([lease_with(&numbers)]);
    let renewer = keep(&gateway).await;
    stands(&renewer, |state| {
        matches!(state, LeaseState::AtLimit { .. })
    })
    .await;
    let loss = renewer.lost().await;
    assert!(matches!(loss, Loss::HoldLimit), "{loss}");
    assert_eq!(gateway.received().len(), 1);
}

/// Acquires a lease with this client and starts renewing it.
async fn keep_with(client: &Client) -> LeaseRenewer {
    let lease = client.acquire(&name(), &AcquireRequest::default()).await;
    LeaseRenewer::start(client, lease.unwrap()).await.unwrap()
}

/// A client that waits longer for an answer than the others in these tests.
fn patient(gateway: &FakeGateway) -> Client {
    let url = gateway.url.clone();
    Client::new(ClientOptions {
        url,
        ..ClientOptions::default()
    })
    .unwrap()
}

#[tokio::test]
async fn a_lease_that_took_long_to_come_is_renewed_before_it_is_trusted() {
    let slow = TTL * 3 / 2;
    let gateway = FakeGateway::new([late(slow), lease()]);
    let begin = Instant::now();
    let renewer = keep_with(&patient(&gateway)).await;
    assert_eq!(gateway.received().len(), 2);
    assert!(renewer.until().unwrap() > begin + slow);
}

#[tokio::test]
async fn a_lease_that_was_over_when_it_came_is_not_kept() {
    let ended = Reply::problem(410, "lease-lost", r#","held":true"#);
    let gateway = FakeGateway::new([late(TTL), ended]);
    let client = patient(&gateway);
    let lease = client.acquire(&name(), &AcquireRequest::default()).await;
    let error = LeaseRenewer::start(&client, lease.unwrap()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ClientError::Lost(_)), "{error}");
}

#[tokio::test]
async fn a_release_ends_the_keeping_and_is_tried_until_it_is_answered() {
    let gateway = FakeGateway::new([lease(), away(), Reply::Lost, done()]);
    let renewer = keep(&gateway).await;
    renewer.release(Duration::from_mins(1)).await.unwrap();
    let received = gateway.received();
    assert_eq!(received.len(), 4);
    assert!(
        received[1..]
            .iter()
            .all(|request| request.line.starts_with("DELETE "))
    );
    sleep(TTL / 2).await;
    assert_eq!(gateway.received().len(), 4);
}

#[tokio::test]
async fn a_release_is_not_tried_for_longer_than_the_lease_lasts() {
    let gateway = FakeGateway::new([lease(), away()]);
    let renewer = keep(&gateway).await;
    let begin = Instant::now();
    let error = renewer.release(Duration::from_mins(1)).await.unwrap_err();
    // The last try may be under way when the lease ends.
    let unanswered = matches!(
        error,
        ClientError::Unavailable(_) | ClientError::OutcomeUnknown { .. }
    );
    assert!(unanswered, "{error}");
    // The release ends earlier than the minute that was given for it.
    assert!(begin.elapsed() <= 10 * TTL);
}

#[tokio::test]
async fn who_is_asked_for_the_lock_is_told_once_and_keeps_it_no_longer_than_that() {
    let request = r#"{"by":"ops","reason":"deploy","within_ms":2000}"#;
    let asked = lease_with(&[("release_requested", request)]);
    // The lease is not renewed in time from then on: the last reply repeats.
    let gateway = FakeGateway::new([lease(), asked, away()]);
    let renewer = keep(&gateway).await;
    assert_eq!(*renewer.requests().borrow(), None);
    let heard = heard(&renewer).await;
    let told = Instant::now();
    assert_eq!(
        (heard.by.as_deref(), heard.reason.as_str()),
        (Some("ops"), "deploy")
    );
    assert_eq!(heard.within_ms, 2_000);
    // The lease ends with the time of the request, and not with the later end for a gateway that has died.
    assert!(renewer.until().unwrap() <= told + heard.within());
    let loss = timeout(TIMEOUT, renewer.lost()).await.unwrap();
    assert!(matches!(loss, Loss::NotReleased), "{loss}");
}

#[tokio::test]
async fn of_several_locks_the_one_is_told_that_somebody_has_asked_for() {
    let asked = r#"{"results":[{"name":"a","code":null,"expires_in_ms":1500},{"name":"b","code":null,"expires_in_ms":1200,"release_requested":{"by":"ops","reason":"deploy","within_ms":1200}}],"renew_after_ms":400}"#;
    let gateway = FakeGateway::new([lease_of_two(1_500), Reply::Answer(200, asked.to_owned())]);
    let heard = heard(&keep_two(&gateway).await).await;
    assert_eq!(heard.name.as_deref(), Some("b"));
}

fn ended() -> Reply {
    Reply::problem(410, "lease-lost", "")
}

async fn with_lock<T>(
    gateway: &FakeGateway,
    work: impl AsyncFnOnce(&Lease) -> T,
) -> Result<T, WithLockError> {
    let (client, name) = (client(gateway), name());
    let request = AcquireRequest::default();
    let with = client.with_lock(&name, &request, work);
    timeout(TIMEOUT, with).await.expect("it comes to an end")
}

#[tokio::test]
async fn the_lock_is_released_when_the_work_is_done() {
    let gateway = FakeGateway::new([lease(), done()]);
    let fence = with_lock(&gateway, async |lease| lease.fence.get()).await;
    assert_eq!(fence.unwrap(), 42);
    let received = gateway.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[1].line, "DELETE /locks/deploy HTTP/1.1");
}

#[tokio::test]
async fn work_is_not_begun_without_the_lock() {
    let gateway = FakeGateway::new([Reply::problem(423, "locked", "")]);
    let done = with_lock(&gateway, async |_lease| panic!("nobody has the lock")).await;
    let error = done.unwrap_err();
    assert!(
        matches!(error, WithLockError::NotAcquired(ClientError::Held(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn work_is_dropped_when_the_lease_is_lost() {
    // The lease is renewed soon.
    let gateway = FakeGateway::new([lease_with(&[("renew_after_ms", "100")]), ended()]);
    let done = with_lock(&gateway, async |_lease| future::pending::<()>().await).await;
    let error = done.unwrap_err();
    assert!(
        matches!(error, WithLockError::Lost(Loss::Ended(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn work_that_outlived_its_lease_is_not_taken_for_done() {
    let gateway = FakeGateway::new([lease(), ended()]);
    let error = with_lock(&gateway, async |_lease| ()).await.unwrap_err();
    assert!(
        matches!(error, WithLockError::Lost(Loss::Ended(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn work_whose_lease_is_gone_after_an_unanswered_release_may_have_outlived_it() {
    let gateway = FakeGateway::new([lease(), Reply::Lost, ended()]);
    let error = with_lock(&gateway, async |_lease| ()).await.unwrap_err();
    assert!(
        matches!(error, WithLockError::OutcomeUnknown(_)),
        "{error:?}"
    );
    for replies in [
        vec![Reply::Lost, of_two(r#""lease-lost""#)],
        // The outcome of the lease of one lock was unknown to the gateway.
        vec![of_two(r#""outcome-unknown""#), ended()],
    ] {
        let replies = [vec![lease_of_two(6_000)], replies].concat();
        let gateway = FakeGateway::new(replies);
        let names = GroupNames::parse(["a", "b"]).unwrap();
        let request = AcquireRequest::default();
        let client = client(&gateway);
        let done = client.with_locks(&names, &request, async |_lease| ());
        let error = timeout(TIMEOUT, done).await.unwrap().unwrap_err();
        assert!(
            matches!(error, WithLockError::OutcomeUnknown(_)),
            "{error:?}"
        );
    }
}

/// The results of a release of the locks `a` and `b`, with this code for `b`.
fn of_two(code: &str) -> Reply {
    let results =
        format!(r#"{{"results":[{{"name":"a","code":null}},{{"name":"b","code":{code}}}]}}"#);
    Reply::Answer(200, results)
}

#[tokio::test]
async fn a_release_that_is_called_again_knows_of_the_one_without_an_answer() {
    let gateway = FakeGateway::new([lease(), Reply::Silence, ended()]);
    let renewer = keep(&gateway).await;
    renewer
        .release(Duration::from_millis(300))
        .await
        .unwrap_err();
    let error = renewer.release(TIMEOUT).await.unwrap_err();
    assert!(error.may_be_lost(), "{error}");
}

#[tokio::test]
async fn a_lease_that_cannot_be_kept_was_not_used() {
    let forbidden = || Reply::problem(403, "forbidden", "");
    for (min_hold, query) in [(Some(Duration::from_secs(1)), "?unused=true"), (None, "")] {
        let gateway = FakeGateway::new([late(TTL / 8), forbidden(), done()]);
        let request = AcquireRequest {
            min_hold,
            ..AcquireRequest::default()
        };
        let client = patient(&gateway);
        let name = name();
        let worked = client.with_lock(&name, &request, async |_lease| panic!("it is not kept"));
        worked.await.unwrap_err();
        client.finish_releases().await;
        let sent = &gateway.received()[2].line;
        assert_eq!(sent, &format!("DELETE /locks/deploy{query} HTTP/1.1"));
    }
}

#[tokio::test]
async fn a_release_that_is_not_answered_does_not_take_away_what_was_done() {
    let gateway = FakeGateway::new([lease(), away(), away(), done()]);
    assert_eq!(with_lock(&gateway, async |_lease| 7).await.unwrap(), 7);
    assert_eq!(gateway.received().len(), 4);
}

#[tokio::test]
async fn several_locks_are_held_as_one() {
    let gateway = FakeGateway::new([Reply::problem(423, "locked", "")]);
    let names = GroupNames::parse(["a", "b"]).unwrap();
    let request = AcquireRequest::default();
    let client = client(&gateway);
    let done = client.with_locks(&names, &request, async |_lease| ());
    let error = timeout(TIMEOUT, done).await.unwrap().unwrap_err();
    assert!(matches!(error, WithLockError::NotAcquired(_)), "{error:?}");
    assert_eq!(gateway.received()[0].line, "POST /locks HTTP/1.1");
}
