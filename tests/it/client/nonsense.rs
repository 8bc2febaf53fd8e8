//! Answers with numbers that no gateway gives.

use std::time::Duration;

use latchgate::{
    client::{AcquireRequest, Client, ClientError, ClientOptions, LeaseRenewer, LeaseState},
    lock::GroupNames,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::fake_gateway::{FakeGateway, Reply};

use super::fixture::{TOKEN, acquire, client, name};

/// How long anything may take on a machine that does other things as well.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A lease of 3 s with some other numbers.
fn lease(numbers: &[(&str, &str)]) -> Reply {
    let mut body = serde_json::json!({
        "name": "deploy", "token": TOKEN, "fencing_token": 42,
        "ttl_ms": 3_000, "expires_in_ms": 3_000, "renew_after_ms": 1_000,
    });
    for (field, number) in numbers {
        body[field] = serde_json::from_str(number).unwrap();
    }
    Reply::Answer(201, body.to_string())
}

async fn keep(gateway: &FakeGateway) -> LeaseRenewer {
    let lease = acquire(gateway).await.unwrap();
    LeaseRenewer::start(&client(gateway), lease).await.unwrap()
}

#[tokio::test]
async fn an_answer_with_them_is_no_lease() {
    for numbers in [
        [("ttl_ms", "0")],
        [("ttl_ms", "-1")],
        [("ttl_ms", "1e3")],
        [("ttl_ms", "null")],
        [("ttl_ms", "18446744073709551615")],
        [("expires_in_ms", "-1")],
        [("expires_in_ms", "18446744073709551616")],
        [("expires_in_ms", "9007199254740992")],
        [("expires_in_ms", "1e300")],
        [("renew_after_ms", "0.5")],
        [("renew_after_ms", "9007199254740992")],
        [("hold_expires_in_ms", "-1")],
        [("hold_expires_in_ms", "9007199254740992")],
        [("waited_ms", "9007199254740992")],
        [("fencing_token", "0")],
        [("fencing_token", "-42")],
    ] {
        let gateway = FakeGateway::new([lease(&numbers)]);
        let error = acquire(&gateway).await.unwrap_err();
        let unknown = matches!(error, ClientError::OutcomeUnknown { .. });
        assert!(unknown, "{numbers:?}: {error}");
    }
}

#[tokio::test]
async fn no_lease_is_believed_to_last_longer_than_its_ttl() {
    let longer = lease(&[("expires_in_ms", "9007199254740991")]);
    let gateway = FakeGateway::new([longer]);
    let renewer = keep(&gateway).await;
    let until = renewer.until().unwrap();
    assert!(until < Instant::now() + Duration::from_secs(3));
}

#[tokio::test]
async fn a_gateway_that_wants_renewals_at_once_is_not_asked_without_end() {
    let begun = Instant::now();
    let gateway = FakeGateway::new([lease(&[("renew_after_ms", "0")])]);
    let _renewer = keep(&gateway).await;
    sleep(Duration::from_secs(1)).await;
    // A twentieth of what is left, and up to a tenth of that sooner.
    let most = begun.elapsed().as_millis() / 135 + 2;
    assert!(gateway.received().len() as u128 <= most);
}

#[tokio::test]
async fn a_gateway_that_wants_no_renewal_in_time_is_asked_in_time() {
    let gateway = FakeGateway::new([lease(&[("renew_after_ms", "9007199254740991")])]);
    let renewer = keep(&gateway).await;
    let lost = timeout(Duration::from_secs(5), renewer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

#[tokio::test]
async fn the_renewal_of_another_lease_is_not_believed() {
    let gateway = FakeGateway::new([lease(&[]), lease(&[("fencing_token", "43")])]);
    at_risk(&keep(&gateway).await).await;
}

#[tokio::test]
async fn of_several_locks_all_must_be_renewed() {
    let group = format!(
        r#"{{"leases":[{{"name":"a","fencing_token":1}},{{"name":"b","fencing_token":2}}],"token":"{TOKEN}","ttl_ms":3000,"expires_in_ms":3000,"renew_after_ms":1000}}"#
    );
    let a = r#"{"name":"a","code":null,"expires_in_ms":3000}"#;
    for others in [
        "",
        r#",{"name":"b","code":null}"#,
        r#",{"name":"c","code":null,"expires_in_ms":3000}"#,
        r#",{"name":"b","code":null,"expires_in_ms":9007199254740992}"#,
    ] {
        let renewed = format!(r#"{{"results":[{a}{others}],"renew_after_ms":1000}}"#);
        let gateway = FakeGateway::new([
            Reply::Answer(201, group.clone()),
            Reply::Answer(200, renewed),
        ]);
        let client = client(&gateway);
        let names = GroupNames::parse(["a", "b"]).unwrap();
        let request = AcquireRequest::default();
        let lease = client.acquire_all(&names, &request).await.unwrap();
        at_risk(&LeaseRenewer::start(&client, lease).await.unwrap()).await;
    }
}

async fn at_risk(renewer: &LeaseRenewer) {
    let mut state = renewer.watch();
    let at_risk = |state: &LeaseState| matches!(state, LeaseState::AtRisk { .. });
    let found = timeout(TIMEOUT, state.wait_for(at_risk)).await;
    found.expect("the renewal fails").unwrap();
}

#[tokio::test]
async fn a_pause_without_end_ends_before_the_call_does() {
    for (status, code) in [(503, "overloaded"), (429, "rate-limited")] {
        let never = r#","retry_after_ms":18446744073709551615"#;
        let busy = Reply::problem(status, code, never);
        let gateway = FakeGateway::new([busy, lease(&[])]);
        let client = Client::new(ClientOptions {
            url: gateway.url.clone(),
            deadline: Duration::from_secs(4),
            ..ClientOptions::default()
        });
        let request = AcquireRequest::default();
        client.unwrap().acquire(&name(), &request).await.unwrap();
        assert_eq!(gateway.received().len(), 2);
    }
}
