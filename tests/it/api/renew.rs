//! `PUT /locks/{name}/renew`.

use http::Method;
use latchgate::store::contract::{Loss, Renewal, RenewalTtl};

use super::{
    scripted::StoreCall,
    service::{JSON, Service, TOKEN, WITH_TOKEN},
};

#[tokio::test]
async fn a_renewed_lease_is_answered_with_its_token() {
    let service = Service::start();
    let answer = service
        .ask(Method::PUT, "/locks/a/renew", WITH_TOKEN, "")
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["token"], TOKEN);
    insta::assert_json_snapshot!(answer.redacted(), @r#"
    {
      "acquired_at": "2026-11-20T11:59:50.000Z",
      "expires_at": "2026-11-20T12:00:30.000Z",
      "expires_in_ms": 30000,
      "fencing_token": 42,
      "hold_expires_in_ms": null,
      "metadata": {},
      "mode": "exclusive",
      "name": "a",
      "owner": null,
      "renew_after_ms": 10000,
      "slot": null,
      "token": "[token]",
      "ttl_ms": 30000,
      "waited_ms": 0
    }
    "#);
    let asked = service.script.asked();
    assert!(
        matches!(
            asked.as_slice(),
            [StoreCall::Renew(_, RenewalTtl { asked: None, .. })]
        ),
        "{asked:?}"
    );
}

#[tokio::test]
async fn token_and_ttl_may_come_in_the_body() {
    let service = Service::start();
    let body = format!(r#"{{"token": "{TOKEN}", "ttl_ms": 5000}}"#);
    let answer = service.ask(Method::PUT, "/locks/a/renew", JSON, body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["ttl_ms"], 5_000);
    let asked = service.script.asked();
    let [
        StoreCall::Renew(
            token,
            RenewalTtl {
                asked: Some(ttl), ..
            },
        ),
    ] = asked.as_slice()
    else {
        panic!("one renewal with a TTL: {asked:?}");
    };
    assert_eq!(*token, latchgate::lock::Token::parse(TOKEN).unwrap().hash());
    assert_eq!(ttl.as_millis(), 5_000);
}

#[tokio::test]
async fn a_token_that_does_not_hold_the_lock_is_410_and_says_whether_somebody_does() {
    let service = Service::start();
    for (loss, held) in [(Loss::HeldByAnother, true), (Loss::Free, false)] {
        service
            .script
            .renew
            .lock()
            .unwrap()
            .push_back(Ok(Renewal::Lost(loss)));
        let answer = service
            .ask(Method::PUT, "/locks/a/renew", WITH_TOKEN, "")
            .await;
        assert_eq!(answer.problem(), (410, "lease-lost".to_owned()));
        assert_eq!(answer.json()["held"], held);
    }
}

#[tokio::test]
async fn a_draining_gateway_renews() {
    let service = Service::start();
    service.lifecycle.drain();
    let answer = service
        .ask(Method::PUT, "/locks/a/renew", WITH_TOKEN, "")
        .await;
    assert_eq!(answer.status, 200);
}
