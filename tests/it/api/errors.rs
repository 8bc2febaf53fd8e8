//! The table from what a store says to what a caller is told, line by line.

use http::Method;
use latchgate::store::{StoreError, Unavailability, Uncertainty, contract::Acquisition};

use super::service::{Service, WITH_TOKEN};

fn store_errors() -> Vec<(StoreError, u16, &'static str)> {
    let text = || "s3cret.internal:6379".to_owned();
    let unavailable = StoreError::Unavailable;
    let unknown = StoreError::Indeterminate;
    vec![
        (
            unavailable(Unavailability::Connect(text())),
            503,
            "store-unavailable",
        ),
        (
            unavailable(Unavailability::Refused(text())),
            503,
            "store-unavailable",
        ),
        (
            unavailable(Unavailability::OutOfMemory),
            503,
            "store-unavailable",
        ),
        (
            unavailable(Unavailability::Misconfigured(text())),
            503,
            "store-unavailable",
        ),
        (
            unavailable(Unavailability::Clock(text())),
            503,
            "store-unavailable",
        ),
        (
            unavailable(Unavailability::Disk(text())),
            503,
            "store-unavailable",
        ),
        (
            unavailable(Unavailability::DiskFull(text())),
            503,
            "store-unavailable",
        ),
        (
            unavailable(Unavailability::Withdrawn),
            503,
            "store-unavailable",
        ),
        (unavailable(Unavailability::Overloaded), 503, "overloaded"),
        (unavailable(Unavailability::Closing), 503, "draining"),
        (unknown(Uncertainty::TimedOut), 504, "outcome-unknown"),
        (
            unknown(Uncertainty::ConnectionLost(text())),
            504,
            "outcome-unknown",
        ),
        (
            unknown(Uncertainty::UnexpectedReply(text())),
            504,
            "outcome-unknown",
        ),
        (unknown(Uncertainty::Disk(text())), 504, "outcome-unknown"),
        (
            StoreError::ForeignData {
                key: "lg:{a}:lock".to_owned(),
                found: "a list".into(),
            },
            500,
            "foreign-data",
        ),
        (StoreError::FenceExhausted, 503, "fence-exhausted"),
    ]
}

#[tokio::test]
async fn every_store_error_has_its_code_on_every_route_and_keeps_its_cause_to_itself() {
    for (error, status, code) in store_errors() {
        let service = Service::start();
        service
            .script
            .acquire
            .lock()
            .unwrap()
            .push_back(Err(error.clone()));
        service
            .script
            .renew
            .lock()
            .unwrap()
            .push_back(Err(error.clone()));
        service
            .script
            .release
            .lock()
            .unwrap()
            .push_back(Err(error.clone()));
        service
            .script
            .inspect
            .lock()
            .unwrap()
            .push_back(Err(error.clone()));
        service
            .script
            .list
            .lock()
            .unwrap()
            .push_back(Err(error.clone()));
        for (method, path) in [
            (Method::POST, "/locks/a"),
            (Method::PUT, "/locks/a/renew"),
            (Method::DELETE, "/locks/a"),
        ] {
            let answer = service.ask(method, path, WITH_TOKEN, "").await;
            assert_eq!(answer.problem(), (status, code.to_owned()), "{error}");
            assert!(!answer.body.contains("s3cret"), "{}", answer.body);
        }
        // What only reads leaves nothing in doubt.
        let (status, code) = match &error {
            StoreError::Indeterminate(_) => (503, "store-unavailable"),
            _ => (status, code),
        };
        for path in ["/locks/a", "/locks"] {
            let answer = service.get(path).await;
            assert_eq!(
                answer.problem(),
                (status, code.to_owned()),
                "{path} {error}"
            );
            assert!(!answer.body.contains("s3cret"), "{}", answer.body);
            assert_eq!(
                answer.body.contains("Nothing happened"),
                status == 503 && !answer.body.contains("2^53"),
                "{}",
                answer.body
            );
        }
    }
}

#[tokio::test]
async fn what_certainly_did_not_happen_says_so_and_what_may_have_does_not() {
    for (error, status, _) in store_errors() {
        let service = Service::start();
        service.script.acquire.lock().unwrap().push_back(Err(error));
        let body = service.acquire("").await.body;
        assert_eq!(
            body.contains("Nothing happened"),
            status == 503 && !body.contains("2^53")
        );
    }
}

#[tokio::test]
async fn foreign_data_is_named() {
    let service = Service::start();
    let error = StoreError::ForeignData {
        key: "lg:{a}:lock".to_owned(),
        found: "a list".into(),
    };
    service.script.inspect.lock().unwrap().push_back(Err(error));
    let answer = service.get("/locks/a").await;
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("\"lg:{a}:lock\"") && detail.contains("a list"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_key_that_was_used_before_is_409() {
    let service = Service::start();
    for (refused, code) in [
        (Acquisition::IdempotencyMismatch, "idempotency-mismatch"),
        (Acquisition::IdempotencyExpired, "idempotency-expired"),
    ] {
        service
            .script
            .acquire
            .lock()
            .unwrap()
            .push_back(Ok(refused));
        assert_eq!(service.acquire("").await.problem(), (409, code.to_owned()));
    }
}
