//! `POST /locks/{name}/break`.

use axum::body::Body;
use http::Method;
use latchgate::{
    lock::{BreakTarget, FencingToken, ForeignMark, Owner},
    store::{
        StoreError, Uncertainty,
        contract::{Breaking, Holder, Loss, Release, Renewal},
    },
};

use super::{
    scripted::{StoreCall, held},
    service::{ApiResponse, JSON, Service, WITH_TOKEN},
};

async fn break_lock(service: &Service, body: &str) -> ApiResponse {
    let (post, body) = (Method::POST, body.to_owned());
    service.ask(post, "/locks/a/break", JSON, body).await
}

fn answering(breaking: Result<Breaking, StoreError>) -> Service {
    let service = Service::start();
    let mut answers = service.script.break_lock.lock().unwrap();
    answers.push_back(breaking);
    drop(answers);
    service
}

#[tokio::test]
async fn answers_what_was_broken_as_it_was() {
    let mut lease = held();
    lease.owner = Some(Owner::new("ci").unwrap());
    let service = answering(Ok(Breaking::Broken(Holder::Lease(lease))));
    let broken = break_lock(&service, r#"{"reason":"hangs","fencing_token":42}"#).await;
    assert_eq!(broken.status, 200, "{}", broken.body);
    insta::assert_json_snapshot!(broken.json(), @r#"
    {
      "holder_count": 1,
      "holders": [
        {
          "acquired_at": "2026-11-20T12:00:00.000Z",
          "expires_at": "2026-11-20T12:00:30.000Z",
          "expires_in_ms": 30000,
          "fencing_token": 42,
          "foreign": false,
          "foreign_mark": null,
          "group": null,
          "hold_expires_in_ms": null,
          "metadata": {},
          "mode": "exclusive",
          "owner": "ci",
          "slot": null,
          "ttl_ms": 30000
        }
      ],
      "name": "a"
    }
    "#);
    let asked = service.script.asked().pop();
    let meant = FencingToken::new(42).unwrap();
    assert!(
        matches!(&asked, Some(StoreCall::Break(name, Some(asked)))
            if name.as_str() == "a" && *asked == BreakTarget::Lease(meant)),
        "{asked:?}"
    );
    break_lock(&service, r#"{"reason":"hangs"}"#).await;
    let asked = service.script.asked().pop();
    assert!(
        matches!(asked, Some(StoreCall::Break(_, None))),
        "{asked:?}"
    );
}

const MARK: &str = "0123456789abcdef0123456789abcdef01234567";

#[tokio::test]
async fn a_foreign_client_is_meant_by_its_mark() {
    let meant = ForeignMark::new(MARK).unwrap();
    let foreign = Holder::Foreign {
        expires_in: None,
        mark: Some(meant),
    };
    let service = answering(Ok(Breaking::Broken(foreign)));
    let body = format!(r#"{{"reason":"left behind","foreign_mark":"{MARK}"}}"#);
    let broken = break_lock(&service, &body).await;
    assert_eq!(broken.status, 200, "{}", broken.body);
    assert_eq!(broken.json()["holders"][0]["foreign_mark"], MARK);
    let asked = service.script.asked().pop();
    assert!(
        matches!(asked, Some(StoreCall::Break(_, Some(BreakTarget::Foreign(mark)))) if mark == meant),
        "{asked:?}"
    );
}

#[tokio::test]
async fn says_why_nothing_was_broken() {
    let foreign = Holder::Foreign {
        expires_in: None,
        mark: ForeignMark::new(MARK).ok(),
    };
    for (breaking, problem) in [
        (Ok(Breaking::NotHeld), (409, "not-held")),
        (
            Ok(Breaking::HolderChanged(Holder::Lease(held()))),
            (409, "holder-changed"),
        ),
        (
            Ok(Breaking::HolderChanged(foreign)),
            (409, "holder-changed"),
        ),
        (Err(Uncertainty::TimedOut.into()), (504, "outcome-unknown")),
    ] {
        let answer = break_lock(&answering(breaking), r#"{"reason":"x","fencing_token":1}"#).await;
        assert_eq!(answer.problem(), (problem.0, problem.1.to_owned()));
    }
}

#[tokio::test]
async fn wants_a_reason_and_nothing_else_that_it_does_not_know() {
    let service = Service::start();
    let missing = "reason: is missing or empty";
    for (body, errors) in [
        ("", &[missing][..]),
        ("{}", &[missing]),
        (
            r#"{"reason":"a\nb"}"#,
            &["reason: has the control character '\\n' in it"],
        ),
        (
            r#"{"reason":"x","fencing_token":0}"#,
            &["fencing_token: is 0; allowed are 1 to 9007199254740991"],
        ),
        (
            r#"{"reason":"x","fencing_token":"7"}"#,
            &["fencing_token: is a text; a number is expected, without quotes"],
        ),
        (
            r#"{"reason":"x","force":true}"#,
            &[
                "force: is not known; the fields of this body are reason, fencing_token, foreign_mark, all, grace_ms",
            ],
        ),
        (
            r#"{"reason":"x","foreign_mark":"0123"}"#,
            &[
                "foreign_mark: is not the mark of a foreign holder; one is 40 hexadecimal digits in \
               lower case",
            ],
        ),
        (
            r#"{"reason":"x","fencing_token":1,"foreign_mark":"0123456789abcdef0123456789abcdef01234567"}"#,
            &["foreign_mark: is of a foreign client, which has no fencing_token: send one of both"],
        ),
    ] {
        assert_eq!(break_lock(&service, body).await.errors(), errors, "{body}");
    }
    let long = format!(r#"{{"reason":"{}"}}"#, "ä".repeat(201));
    let errors = ["reason: has 201 characters; at most 200 are allowed"];
    assert_eq!(break_lock(&service, &long).await.errors(), errors);
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn is_told_to_whoever_had_the_lease() {
    for (held, detail) in [
        (
            true,
            "The lease of this token was broken by an operator; somebody else holds the lock.",
        ),
        (
            false,
            "The lease of this token was broken by an operator; nobody holds the lock.",
        ),
    ] {
        let service = Service::start();
        let loss = Loss::Broken { held };
        let renewal = Ok(Renewal::Lost(loss));
        service.script.renew.lock().unwrap().push_back(renewal);
        let release = Ok(Release::Lost(loss));
        service.script.release.lock().unwrap().push_back(release);
        for (method, target) in [
            (Method::PUT, "/locks/a/renew"),
            (Method::DELETE, "/locks/a"),
        ] {
            let answer = service.ask(method, target, WITH_TOKEN, Body::empty()).await;
            assert_eq!(answer.problem(), (410, "lease-lost".to_owned()));
            assert_eq!(answer.json()["detail"], detail);
            assert_eq!(answer.json()["held"], held);
        }
    }
}
