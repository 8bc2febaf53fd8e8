//! What is refused of names, tokens, keys and the query.

use http::Method;

use crate::support::operations::{Operation, operations};

use super::service::{JSON, Service, TOKEN, WITH_TOKEN};

const OTHER: &str = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA";

#[tokio::test]
async fn a_name_is_decoded_once_and_then_checked() {
    let service = Service::start();
    for (path, expected) in [
        (
            "/locks/a%2Fb",
            "name: has '/' in it; allowed are ASCII letters, digits and . _ : @ ~ -",
        ),
        (
            "/locks/a%00",
            r"name: has '\0' in it; allowed are ASCII letters, digits and . _ : @ ~ -",
        ),
        (
            "/locks/a%2541",
            "name: has '%' in it; allowed are ASCII letters, digits and . _ : @ ~ -",
        ),
        (
            "/locks/%7Ba%7D",
            "name: has '{' in it; allowed are ASCII letters, digits and . _ : @ ~ -",
        ),
        (
            "/locks/%C3%A4",
            "name: has 'ä' in it; allowed are ASCII letters, digits and . _ : @ ~ -",
        ),
        ("/locks/%FF", "name: is not UTF-8 after percent-decoding"),
        (
            "/locks/.",
            "name: is \".\", which HTTP clients remove from a path",
        ),
        (
            "/locks/%2E%2e",
            "name: is \"..\", which HTTP clients remove from a path",
        ),
    ] {
        assert_eq!(service.get(path).await.errors(), [expected], "{path}");
    }
    let longest = "a".repeat(200);
    assert_eq!(service.get(&format!("/locks/{longest}")).await.status, 200);
    assert_eq!(
        service.get(&format!("/locks/{longest}a")).await.errors(),
        ["name: has 201 bytes; a lock name has at most 200"]
    );
}

#[tokio::test]
async fn an_encoded_name_is_the_same_lock() {
    let service = Service::start();
    let answer = service.get("/locks/deploy%3Aprod%40eu~1").await;
    assert_eq!(answer.json()["name"], "deploy:prod@eu~1");
}

#[tokio::test]
async fn a_query_is_refused_on_every_route_of_a_lock() {
    let service = Service::start();
    for operation in operations().into_iter().filter(Operation::names_lock) {
        let (method, path) = (operation.method.parse().unwrap(), operation.target("a"));
        let target = format!("{path}?ttl_ms=s3cret&x");
        let answer = service.ask(method, &target, WITH_TOKEN, "").await;
        let body = if operation.method == "GET" {
            ""
        } else {
            ", only fields of the JSON body"
        };
        let reason = format!("is not known; this call takes no query parameters{body}");
        assert_eq!(
            answer.errors(),
            [
                format!("query.ttl_ms: {reason}"),
                format!("query.x: {reason}")
            ]
        );
        assert!(!answer.body.contains("s3cret"));
    }
    assert!(service.script.asked().is_empty());
    assert_eq!(
        service.get("/locks/a?").await.status,
        200,
        "an empty query is none"
    );
}

#[tokio::test]
async fn a_token_is_needed_once_and_must_be_one() {
    let service = Service::start();
    let body = |token: &str| format!(r#"{{"token": "{token}"}}"#);
    for (headers, body, expected) in [
        (
            &[][..],
            String::new(),
            "Lock-Token: is missing; send the token in this header, or as `token` in the body",
        ),
        (
            &[("lock-token", "x")],
            String::new(),
            "Lock-Token: is not a token; a token is the 43 characters that acquire answered",
        ),
        (
            &[("lock-token", "")],
            String::new(),
            "Lock-Token: is not a token; a token is the 43 characters that acquire answered",
        ),
        (
            &[("lock-token", TOKEN), ("lock-token", TOKEN)],
            String::new(),
            "Lock-Token: is given more than once",
        ),
        (
            &[("lock-token", TOKEN), ("content-type", "application/json")],
            body(OTHER),
            "Lock-Token: is another token than the field `token` of the body",
        ),
        (
            JSON,
            body("s3cret"),
            "token: is not a token; a token is the 43 characters that acquire answered",
        ),
        (
            JSON,
            r#"{"token": 5}"#.to_owned(),
            "token: is 5; a text is expected",
        ),
    ] {
        for (method, path) in [
            (Method::PUT, "/locks/a/renew"),
            (Method::DELETE, "/locks/a"),
            (Method::POST, "/locks/a/release"),
        ] {
            let answer = service.ask(method, path, headers, body.clone()).await;
            assert_eq!(answer.errors(), [expected]);
            assert!(!answer.body.contains("s3cret"));
        }
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn the_same_token_in_both_places_is_fine() {
    let service = Service::start();
    let headers = [JSON, WITH_TOKEN].concat();
    let body = format!(r#"{{"token": "{TOKEN}"}}"#);
    let answer = service
        .ask(Method::DELETE, "/locks/a", &headers, body)
        .await;
    assert_eq!(answer.status, 204);
}

#[tokio::test]
async fn release_takes_no_other_field_than_the_token() {
    let service = Service::start();
    let headers = [JSON, WITH_TOKEN].concat();
    let answer = service
        .ask(Method::DELETE, "/locks/a", &headers, r#"{"ttl_ms": 1}"#)
        .await;
    assert_eq!(
        answer.errors(),
        ["ttl_ms: is not known; the fields of this body are token"]
    );
}

#[tokio::test]
async fn an_idempotency_key_is_given_once_and_must_be_long_enough() {
    let service = Service::start();
    let key = "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11";
    for (headers, expected) in [
        (
            &[("idempotency-key", "s3cret")][..],
            "Idempotency-Key: has 6 characters; 16 to 128 are allowed, a UUID is fine",
        ),
        (
            &[("idempotency-key", "s3cret with spaces in it")],
            "Idempotency-Key: has a character that is not visible ASCII",
        ),
        (
            &[("idempotency-key", "é-of-a-key-that-is-long-enough")],
            "Idempotency-Key: has a character that is not visible ASCII",
        ),
        (
            &[("idempotency-key", key), ("idempotency-key", key)],
            "Idempotency-Key: is given more than once",
        ),
    ] {
        let answer = service.ask(Method::POST, "/locks/a", headers, "").await;
        assert_eq!(answer.errors(), [expected]);
        assert!(!answer.body.contains("s3cret"));
    }
    assert!(service.script.asked().is_empty());
}
