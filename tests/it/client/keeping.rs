//! A lease that is kept, work under it, and how its loss is told.

use std::{future, time::Duration};

use latchgate::{
    client::{
        AcquireRequest, Client, ClientError, ClientOptions, LeaseRenewer, LeaseState, Loss,
        WithLockError,
    },
    lock::{GroupNames, LockName},
};
use tokio::time::{Instant, timeout};

use super::answers::{self, TOKEN, client, client_of, name};
use crate::support::fake_gateway::{FakeGateway, Reply};

/// So long that an answer which takes a tenth of it, and is not trusted then, does not come by chance.
const TTL: Duration = Duration::from_secs(6);

/// How long anything may take on a machine that does other things as well.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A lease of [`TTL`].
fn lease() -> Reply {
    lease_of(6_000, 6_000, "null")
}

fn lease_of(ttl_ms: u64, expires_in_ms: u64, hold_expires_in_ms: &str) -> Reply {
    let renew_after_ms = expires_in_ms / 6;
    Reply::Answer(
        201,
        format!(
            r#"{{"name":"deploy","token":"{TOKEN}","fencing_token":42,"ttl_ms":{ttl_ms},"expires_in_ms":{expires_in_ms},"renew_after_ms":{renew_after_ms},"hold_expires_in_ms":{hold_expires_in_ms}}}"#
        ),
    )
}

fn away() -> Reply {
    Reply::problem(503, "store-unavailable", "")
}

async fn keep(client: &Client) -> LeaseRenewer {
    let request = AcquireRequest::default();
    let lease = client.acquire(&name(), &request).await.unwrap();
    LeaseRenewer::start(client, lease).await.unwrap()
}

/// Waits until the lease stands so.
async fn stands(renewer: &LeaseRenewer, so: impl FnMut(&LeaseState) -> bool) {
    let mut state = renewer.watch();
    let found = timeout(TIMEOUT, state.wait_for(so)).await;
    found.expect("it comes to stand so").unwrap();
}

#[tokio::test]
async fn a_lease_is_renewed_in_its_first_third_again_and_again() {
    let gateway = FakeGateway::new([lease()]);
    let client = client_of(&gateway.url);
    let begin = Instant::now();
    let renewer = keep(&client).await;
    while gateway.received().len() < 9 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(renewer.until().is_some());
        assert!(begin.elapsed() < TIMEOUT);
    }
    // One acquire and eight renewals: longer than a lease lasts.
    assert!(begin.elapsed() > TTL);
    let received = gateway.received();
    assert_eq!(received[1].line, "PUT /locks/deploy/renew HTTP/1.1");
    assert_eq!(received[1].header("lock-token"), Some(TOKEN));
}

#[tokio::test]
async fn a_lease_that_another_bearer_has_shortened_gets_its_ttl_back() {
    let shortened = lease_of(2_000, 2_000, "null");
    let gateway = FakeGateway::new([lease(), shortened, lease()]);
    let client = client_of(&gateway.url);
    let renewer = keep(&client).await;
    while gateway.received().len() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(renewer.until().is_some());
    }
    for renewal in &gateway.received()[1..4] {
        assert_eq!(renewal.body, r#"{"ttl_ms":6000}"#);
    }
}

#[tokio::test]
async fn a_ttl_that_is_not_allowed_any_more_costs_no_lease() {
    let too_long = Reply::problem(403, "limit-exceeded", "");
    let gateway = FakeGateway::new([lease(), too_long, lease()]);
    let client = client_of(&gateway.url);
    let renewer = keep(&client).await;
    let begin = Instant::now();
    while gateway.received().len() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
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
        let client = client_of(&gateway.url);
        let renewer = keep(&client).await;
        let until = renewer.until().expect("it is kept");
        let loss = renewer.lost().await;
        assert!(matches!(loss, Loss::Expired { .. }), "{failing:?}: {loss}");
        // A machine that is busy may wake the test later.
        assert!(Instant::now() < until + TTL, "{failing:?}");
        // The lease, and more than one try to renew it.
        assert!(gateway.received().len() > 2, "{failing:?}");
    }
}

#[tokio::test]
async fn a_renewal_counts_from_when_it_was_sent() {
    let gateway = FakeGateway::new([lease()]);
    let client = client_of(&gateway.url);
    let before = Instant::now();
    let renewer = keep(&client).await;
    let until = renewer.until().unwrap();
    // A margin for clocks that do not run alike is off.
    assert!(until < before + TTL);
    assert!(until > before + TTL * 9 / 10);
}

#[tokio::test]
async fn a_gateway_that_says_that_the_lease_has_ended_is_believed_at_once() {
    let ended = Reply::problem(410, "lease-lost", r#","held":true"#);
    let gateway = FakeGateway::new([lease(), ended]);
    let client = client_of(&gateway.url);
    let begin = Instant::now();
    let loss = keep(&client).await.lost().await;
    let Loss::Ended(problem) = loss else {
        panic!("{loss}");
    };
    assert_eq!(problem.held, Some(true));
    // Else it would be kept until it is over.
    assert!(begin.elapsed() < TTL);
    assert_eq!(gateway.received().len(), 2);
}

#[tokio::test]
async fn a_failure_in_between_is_made_good() {
    let gateway = FakeGateway::new([lease(), away(), Reply::Lost, lease()]);
    let client = client_of(&gateway.url);
    let renewer = keep(&client).await;
    stands(&renewer, |state| matches!(state, LeaseState::AtRisk { .. })).await;
    stands(&renewer, |state| matches!(state, LeaseState::Kept { .. })).await;
}

#[tokio::test]
async fn a_silent_gateway_is_passed_over_while_there_is_time() {
    let silent = FakeGateway::new([lease(), Reply::Silence]);
    let answers = FakeGateway::new([lease()]);
    let client = client_of(&format!("{},{}", silent.url, answers.url));
    let renewer = keep(&client).await;
    while answers.received().is_empty() {
        assert!(renewer.until().is_some(), "it was lost");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stands(&renewer, |state| matches!(state, LeaseState::Kept { .. })).await;
}

#[tokio::test]
async fn at_its_hold_limit_a_lease_is_not_renewed_and_ends() {
    // Renewed once as far as it goes: whatever this machine does meanwhile, it came in time.
    let gateway = FakeGateway::new([lease_of(60_000, 3_000, "3000")]);
    let client = client_of(&gateway.url);
    let renewer = keep(&client).await;
    stands(&renewer, |state| {
        matches!(state, LeaseState::AtLimit { .. })
    })
    .await;
    let loss = renewer.lost().await;
    assert!(matches!(loss, Loss::HoldLimit), "{loss}");
    assert_eq!(gateway.received().len(), 1);
}

#[tokio::test]
async fn a_lease_that_took_long_to_come_is_renewed_before_it_is_trusted() {
    let Reply::Answer(status, body) = lease() else {
        panic!("a lease is an answer");
    };
    let slow = TTL * 3 / 2;
    let gateway = FakeGateway::new([Reply::Late(slow, status, body), lease()]);
    let options = ClientOptions {
        url: gateway.url.clone(),
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    let begin = Instant::now();
    let renewer = keep(&client).await;
    assert_eq!(gateway.received().len(), 2);
    assert!(renewer.until().unwrap() > begin + slow);
}

#[tokio::test]
async fn a_lease_that_was_over_when_it_came_is_not_kept() {
    let Reply::Answer(status, body) = lease() else {
        panic!("a lease is an answer");
    };
    let late = Reply::Late(TTL, status, body);
    let ended = Reply::problem(410, "lease-lost", r#","held":true"#);
    let gateway = FakeGateway::new([late, ended]);
    let client = Client::new(ClientOptions {
        url: gateway.url.clone(),
        ..ClientOptions::default()
    });
    let client = client.unwrap();
    let request = AcquireRequest::default();
    let lease = client.acquire(&name(), &request).await.unwrap();
    let error = LeaseRenewer::start(&client, lease).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost(_)), "{error}");
}

#[tokio::test]
async fn a_release_ends_the_keeping_and_is_tried_until_it_is_answered() {
    let done = Reply::Answer(204, String::new());
    let gateway = FakeGateway::new([lease(), away(), Reply::Lost, done]);
    let client = client_of(&gateway.url);
    let renewer = keep(&client).await;
    renewer.release(Duration::from_mins(1)).await.unwrap();
    let received = gateway.received();
    assert_eq!(received.len(), 4);
    assert!(
        received[1..]
            .iter()
            .all(|request| request.line.starts_with("DELETE "))
    );
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(gateway.received().len(), 4);
}

#[tokio::test]
async fn a_release_is_not_tried_for_longer_than_the_lease_lasts() {
    let gateway = FakeGateway::new([lease(), away()]);
    let client = client_of(&gateway.url);
    let renewer = keep(&client).await;
    let begin = Instant::now();
    let error = renewer.release(Duration::from_mins(1)).await.unwrap_err();
    // The last try may be under way when the time is over.
    let unanswered = matches!(
        error,
        ClientError::Unavailable(_) | ClientError::OutcomeUnknown { .. }
    );
    assert!(unanswered, "{error}");
    // Not the minute that it was given.
    assert!(begin.elapsed() <= 10 * TTL);
}

#[tokio::test]
async fn who_is_asked_for_the_lock_is_told_once_and_keeps_it_no_longer_than_that() {
    let asked = |ttl_ms: u64, within_ms: u64| {
        let (expires_in_ms, renew_after_ms) = (within_ms + 1_000, ttl_ms / 3);
        Reply::Answer(
            200,
            format!(
                r#"{{"name":"deploy","token":"{TOKEN}","fencing_token":42,"ttl_ms":{ttl_ms},"expires_in_ms":{expires_in_ms},"renew_after_ms":{renew_after_ms},"release_requested":{{"by":"ops","reason":"deploy","within_ms":{within_ms}}}}}"#
            ),
        )
    };
    // Nobody renews it in time from then on: each answer is the last.
    let gateway = FakeGateway::new([lease(), asked(3_000, 2_000), away()]);
    let client = client_of(&gateway.url);
    let renewer = keep(&client).await;
    let mut requests = renewer.requests();
    assert_eq!(*requests.borrow(), None);
    let heard = timeout(TIMEOUT, requests.wait_for(Option::is_some)).await;
    let heard = heard.expect("it is told").unwrap().clone().unwrap();
    let told = Instant::now();
    assert_eq!(
        (heard.by.as_deref(), heard.reason.as_str()),
        (Some("ops"), "deploy")
    );
    assert_eq!(heard.within_ms, 2_000);
    // Not as long as the lease would last if the gateway that asked had died.
    assert!(renewer.until().unwrap() <= told + heard.within());
    let loss = timeout(TIMEOUT, renewer.lost()).await.unwrap();
    assert!(matches!(loss, Loss::NotReleased), "{loss}");
}

#[tokio::test]
async fn of_several_locks_the_one_is_told_that_somebody_has_asked_for() {
    let lease = format!(
        r#"{{"leases":[{{"name":"a","fencing_token":1}},{{"name":"b","fencing_token":2}}],"token":"{TOKEN}","ttl_ms":1500,"expires_in_ms":1500,"renew_after_ms":500}}"#
    );
    let asked = r#"{"results":[{"name":"a","code":null,"expires_in_ms":1500},{"name":"b","code":null,"expires_in_ms":1200,"release_requested":{"by":"ops","reason":"deploy","within_ms":1200}}],"renew_after_ms":400}"#;
    let gateway = FakeGateway::new([
        Reply::Answer(201, lease),
        Reply::Answer(200, asked.to_owned()),
    ]);
    let client = client_of(&gateway.url);
    let names = ["a", "b"].map(|name| LockName::new(name).unwrap());
    let names = GroupNames::new(names).unwrap();
    let request = AcquireRequest::default();
    let lease = client.acquire_all(&names, &request).await.unwrap();
    let renewer = LeaseRenewer::start(&client, lease).await.unwrap();
    let mut requests = renewer.requests();
    let heard = timeout(TIMEOUT, requests.wait_for(Option::is_some)).await;
    let heard = heard.expect("it is told").unwrap().clone().unwrap();
    assert_eq!(heard.name.as_deref(), Some("b"));
}

fn ended() -> Reply {
    Reply::problem(410, "lease-lost", "")
}

async fn with_lock<T>(
    gateway: &FakeGateway,
    work: impl AsyncFnOnce(&latchgate::client::Lease) -> T,
) -> Result<T, WithLockError> {
    let (client, name) = (client(gateway), name());
    let request = AcquireRequest::default();
    let with = client.with_lock(&name, &request, work);
    timeout(TIMEOUT, with).await.expect("it comes to an end")
}

#[tokio::test]
async fn the_lock_is_released_when_the_work_is_done() {
    let gateway = FakeGateway::new([answers::lease(), Reply::Answer(204, String::new())]);
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
    // Soon over, so that it is renewed soon.
    let Reply::Answer(status, body) = answers::lease() else {
        panic!("a lease is an answer");
    };
    let soon = body.replace("\"renew_after_ms\":9666", "\"renew_after_ms\":100");
    let short = Reply::Answer(status, soon);
    let gateway = FakeGateway::new([short, ended()]);
    let done = with_lock(&gateway, async |_lease| future::pending::<()>().await).await;
    let error = done.unwrap_err();
    assert!(
        matches!(error, WithLockError::Lost(Loss::Ended(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn work_that_outlived_its_lease_is_not_taken_for_done() {
    let gateway = FakeGateway::new([answers::lease(), ended()]);
    let error = with_lock(&gateway, async |_lease| ()).await.unwrap_err();
    assert!(
        matches!(error, WithLockError::Lost(Loss::Ended(_))),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_release_that_is_not_answered_does_not_take_away_what_was_done() {
    let away = || Reply::problem(503, "store-unavailable", "");
    let gateway = FakeGateway::new([
        answers::lease(),
        away(),
        away(),
        Reply::Answer(204, String::new()),
    ]);
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
