//! `PUT /locks/{name}/renew`, `DELETE /locks/{name}` and `POST /locks/{name}/release`; and the remaining time of a
//! lease in answers and events of a gateway that stood still before.

use crate::api::prelude::*;

#[tokio::test]
async fn a_renewed_lease_is_answered_with_its_token() {
    let service = Service::start();
    let answer = service.call(RENEW, WITH_TOKEN).await.is(200);
    assert_eq!(answer["token"], TOKEN);
    let since = json!({"acquired_at": "2026-11-20T11:59:50.000Z"});
    assert_eq!(answer.redacted(), lease_view(since));
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
    let answer = service.ask("PUT /locks/a/renew", JSON, body).await.is(200);
    assert_eq!(answer["ttl_ms"], 5_000);
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
    assert_eq!(*token, Token::parse(TOKEN).unwrap().hash());
    assert_eq!(ttl.as_millis(), 5_000);
}

const RENEW: &str = "PUT /locks/a/renew";
const BOTH: [&str; 2] = ["DELETE /locks/a", "POST /locks/a/release"];

#[tokio::test]
async fn a_release_is_204_by_either_route_with_the_token_in_either_place() {
    let service = Service::start();
    let body = format!(r#"{{"token": "{TOKEN}"}}"#);
    for line in BOTH {
        for (headers, body) in [(WITH_TOKEN, ""), (JSON, body.as_str())] {
            let answer = service.ask(line, headers, body.to_owned()).await;
            assert_eq!((answer.status, answer.body.as_str()), (204, ""));
        }
    }
    let token = Token::parse(TOKEN).unwrap().hash();
    let asked = service.script.asked();
    assert_eq!(asked.len(), 4);
    for asked in asked {
        assert!(matches!(asked, StoreCall::Release(hash) if hash == token));
    }
}

#[tokio::test]
async fn a_token_that_does_not_hold_the_lock_is_410() {
    let service = Service::start();
    for (loss, held) in [(Loss::HeldByAnother, true), (Loss::Free, false)] {
        for line in [RENEW, BOTH[0], BOTH[1]] {
            service.script.renew.ok(Renewal::Lost(loss));
            service.script.release.ok(Release::Lost(loss));
            let answer = service.call(line, WITH_TOKEN).await;
            assert_eq!(answer.problem(), (410, "lease-lost"), "{line}");
            assert_eq!(answer["held"], held);
            service.script.renew.clear();
            service.script.release.clear();
        }
    }
}

#[tokio::test]
async fn a_draining_gateway_grants_and_adopts_nothing_and_renews_and_releases() {
    let service = Service::start();
    service.lifecycle.drain();
    for (line, headers) in [
        ("POST /locks/a", &[][..]),
        ("POST /locks/a/hold", &[]),
        ("POST /locks/a/hold", WITH_TOKEN),
    ] {
        let answer = service.call(line, headers).await;
        assert_eq!(answer.problem(), (503, "draining"));
    }
    assert!(service.script.asked().is_empty());
    for (line, status) in [(RENEW, 200), (BOTH[0], 204), (BOTH[1], 204)] {
        assert_eq!(service.call(line, WITH_TOKEN).await.status, status);
    }
}

#[tokio::test]
async fn it_answers_whoever_accepts_nothing_it_could_answer() {
    let service = Service::start();
    let headers = &[("lock-token", TOKEN), ("accept", "text/html")];
    let answer = service.call("DELETE /locks/a", headers).await;
    assert_eq!(
        answer.status, 204,
        "204 has no body that could be of the wrong type"
    );
}

/// How long ago the store answered.
const AGO: Duration = Duration::from_secs(10);

/// A lease of 30 s that the store answered [`AGO`].
fn from_before() -> HeldLease {
    HeldLease {
        as_of: Instant::now().checked_sub(AGO).unwrap(),
        ..held()
    }
}

/// Asserts that the remaining time is at most two thirds of the TTL, and not zero on a busy machine.
#[track_caller]
fn is_told_now(told: &Value) {
    let left = told["expires_in_ms"].as_u64();
    assert!(
        left.is_some_and(|left| (1..=20_000).contains(&left)),
        "{told}"
    );
}

#[tokio::test]
async fn a_grant_and_a_renewal_are_answered_as_they_are_then() {
    let service = Service::start();
    service
        .script
        .acquire
        .ok(Acquisition::Granted(from_before()));
    let answer = service.call("POST /locks/a", JSON).await.is(201);
    let lease = answer.json();
    is_told_now(&lease);
    let renew_after = lease["renew_after_ms"].as_u64().unwrap();
    assert_eq!(renew_after, lease["expires_in_ms"].as_u64().unwrap() / 3);
    let renewed = Ok(Renewal::Renewed(from_before(), Duration::ZERO));
    service.script.renew.push(renewed);
    let path = "/locks/a/renew";
    let answer = service.call(&format!("PUT {path}"), WITH_TOKEN).await;
    assert_eq!(answer.status, 200);
    is_told_now(&answer.json());
}

#[tokio::test]
async fn a_holder_is_shown_as_it_is_then() {
    let service = Service::start();
    let holder = || Holder::Lease(from_before());
    service.script.acquire.ok(held_by(holder()));
    let answer = service.call("POST /locks/a", JSON).await.is(423);
    is_told_now(&answer["holders"][0]);
    let inspection = Ok(shown(holder()));
    service.script.inspect.push(inspection);
    let answer = service.get("/locks/a").await;
    is_told_now(&answer["holders"][0]);
}

#[tokio::test]
async fn a_stream_tells_its_events_as_they_are_then() {
    let service = Service::start();
    // An adoption renews the lease, so its event is checked as well.
    let short = HeldLease {
        ttl: Ttl::from_millis(300).unwrap(),
        ..from_before()
    };
    let renewals = (0..2).map(|_| Ok(Renewal::Renewed(short.clone(), Duration::ZERO)));
    service.script.renew.extend(renewals);
    let header = format!("Lock-Token: {TOKEN}\r\n");
    let mut listener = Listener::hold(service.connect().await, &header, "").await;
    is_told_now(&listener.expect("granted").await);
    is_told_now(&listener.expect("renewed").await);
}
