//! Which bodies, names, tokens, keys and queries are refused, and with which errors.

use crate::api::prelude::*;

#[tokio::test]
async fn every_field_that_is_wrong_is_named_with_what_is_expected() {
    let service = Service::start();
    let cases = r#"
        {"ttl_ms": -0} => ttl_ms: is -0.0; a whole number from 100 to 86400000 is expected
        {"ttl_ms": -1} => ttl_ms: is -1; a whole number from 100 to 86400000 is expected
        {"ttl_ms": 99} => ttl_ms: is 99 ms; allowed are 100 to 86400000 ms
        {"ttl_ms": 86400001} => ttl_ms: is 86400001 ms; allowed are 100 to 86400000 ms
        {"ttl_ms": 18446744073709551615}
            => ttl_ms: is 18446744073709551615 ms; allowed are 100 to 86400000 ms
        {"ttl_ms": 18446744073709551616}
            => ttl_ms: is 1.8446744073709552e19; a whole number from 100 to 86400000 is expected
        {"ttl_ms": 30000.50} => ttl_ms: is 30000.5; a whole number from 100 to 86400000 is expected
        {"ttl_ms": 3e-4} => ttl_ms: is 0.0003; a whole number from 100 to 86400000 is expected
        {"ttl_ms": "30000"} => ttl_ms: is a text; a number is expected, without quotes
        {"ttl_ms": true}
            => ttl_ms: is true or false; a whole number from 100 to 86400000 is expected
        {"ttl_ms": [30000]} => ttl_ms: is a list; a whole number from 100 to 86400000 is expected
        {"wait_ms": 55001} => wait_ms: is 55001 ms; allowed are 0 to 55000 ms
        {"max_hold_ms": 29999} => max_hold_ms: is 29999 ms, less than the TTL of 30000 ms
        {"max_hold_ms": 604800001} => max_hold_ms: is 604800001 ms; allowed are 100 to 604800000 ms
        {"ttl_ms": 1000, "min_hold_ms": 1001}
            => min_hold_ms: is 1001 ms; allowed are 1 to 1000 ms, the TTL of the lease
        {"min_hold_ms": 86400001} => min_hold_ms: is 86400001 ms; allowed are 0 to 86400000 ms
        {"owner": ""} => owner: is missing or empty
        {"owner": 7} => owner: is 7; a text is expected
        {"owner": "a\nb"} => owner: has the control character '\n' in it
        {"metadata": []} => metadata: is a list; an object of texts is expected
        {"metadata": {"a": {"b": "c"}}} => metadata.a: is an object; a text is expected
        {"metadata": {"a": null}} => metadata.a: is null; a text is expected
        {"metadata": {"": "b"}} => metadata: has an entry with an empty name
        {"ttl": 30000}
            => ttl: is not known; the fields of this body are ttl_ms, wait_ms, max_hold_ms, min_hold_ms, mode, limit, owner, metadata, order, rollback, waiting_since_ms, supersedes, reserve
    "#;
    for (body, expected) in rows(cases) {
        assert_eq!(service.acquire(&body).await.errors(), [expected], "{body}");
    }
    assert!(service.script.asked().is_empty(), "no lock was asked for");
}

#[tokio::test]
async fn a_body_that_is_no_object_is_named_as_such() {
    let service = Service::start();
    let cases = r#"
        [] => is a list; a JSON object is expected
        null => is null; a JSON object is expected
        7 => is 7; a JSON object is expected
        "" => is a text; a JSON object is expected
        MARK{} => begins with a byte order mark; leave it out
        {} {} => is not JSON: trailing characters at line 1 column 4
        {"ttl_ms": 1 => is not JSON: EOF while parsing an object at line 1 column 12
        ttl_ms=1 => is not JSON: expected ident at line 1 column 2
        BLANK => is not JSON: EOF while parsing a value at line 1 column 1
    "#;
    for (body, expected) in rows(&cases.replace("MARK", "\u{feff}")) {
        let errors = service.acquire(&body.replace("BLANK", " ")).await.errors();
        assert_eq!(errors, [format!("body: {expected}")], "{body}");
    }
}

#[tokio::test]
async fn a_repeated_key_is_refused_at_any_depth() {
    let service = Service::start();
    for body in [
        r#"{"ttl_ms": 1000, "ttl_ms": 2000}"#,
        r#"{"ttl_ms": 1000, "\u0074tl_ms": 2000}"#,
        r#"{"metadata": {"a": "1", "a": "2"}}"#,
        r#"{"x": [{"a": 1, "a": 2}]}"#,
    ] {
        let errors = service.acquire(body).await.errors();
        assert!(
            errors[0].starts_with("body: is ambiguous: the key ")
                && errors[0].contains("is repeated"),
            "{body}: {errors:?}"
        );
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn everything_that_is_wrong_is_said_at_once() {
    let service = Service::start();
    let body = r#"{"ttl": 1, "ttl_ms": "x", "owner": "", "metadata": {"a": 1, "b": 2}}"#;
    let errors = service.acquire(body).await.errors();
    let fields = errors.iter().map(|error| error.split(':').next().unwrap());
    assert_eq!(
        fields.collect::<Vec<_>>(),
        ["ttl_ms", "owner", "metadata.a", "metadata.b", "ttl"]
    );
}

#[tokio::test]
async fn an_answer_names_no_more_errors_than_a_person_reads() {
    let service = Service::start();
    let fields = (0..500).map(|i| format!("\"x{i}\": 1")).collect::<Vec<_>>();
    let errors = service
        .acquire(&format!("{{{}}}", fields.join(",")))
        .await
        .errors();
    assert_eq!(errors.len(), 16);
}

#[tokio::test]
async fn a_body_nested_deeper_than_anything_sensible_is_refused() {
    let service = Service::start();
    let body = format!(
        "{{\"metadata\": {}{}}}",
        "[".repeat(2_000),
        "]".repeat(2_000)
    );
    let errors = service.acquire(&body).await.errors();
    assert!(errors[0].contains("recursion limit"), "{errors:?}");
}

#[tokio::test]
async fn a_secret_in_the_wrong_place_is_not_repeated() {
    let service = Service::start();
    let answer = service
        .acquire(r#"{"ttl_ms": "s3cret", "metadata": "s3cret"}"#)
        .await;
    assert_eq!(answer.errors().len(), 2);
    assert!(!answer.body.contains("s3cret"), "{}", answer.body);
}

#[tokio::test]
async fn the_limits_are_the_configured_ones() {
    let mut config = Config::default();
    config.limits.min_ttl_ms = Millis(1_000);
    config.limits.max_ttl_ms = Millis(60_000);
    config.limits.max_hold_limit_ms = Millis(90_000);
    let service = Service::with(config);
    assert_eq!(
        service
            .acquire(r#"{"ttl_ms": 999, "max_hold_ms": 90001}"#)
            .await
            .errors(),
        [
            "ttl_ms: is 999 ms; allowed are 1000 to 60000 ms",
            "max_hold_ms: is 90001 ms; allowed are 100 to 90000 ms",
        ]
    );
    let headers = [JSON, WITH_TOKEN].concat();
    let body = r#"{"ttl_ms": 60001}"#;
    let renewed = service.ask("PUT /locks/a/renew", &headers, body).await;
    assert_eq!(
        renewed.errors(),
        ["ttl_ms: is 60001 ms; allowed are 1000 to 60000 ms"]
    );
}

#[tokio::test]
async fn a_body_of_another_type_is_415_and_says_how_to_send_it() {
    let service = Service::start();
    for headers in [
        &[][..],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "text/plain;charset=UTF-8")],
        &[
            ("content-type", "application/json"),
            ("content-type", "text/plain"),
        ],
        &[
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
        ],
    ] {
        let answer = service.ask("POST /locks/a", headers, "{}").await;
        assert_eq!(
            answer.problem(),
            (415, "unsupported-media-type"),
            "{headers:?}"
        );
        let detail = answer["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.contains("--json") || detail.contains("Content-Encoding"),
            "{detail}"
        );
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_whole_number_may_be_written_with_a_fraction_or_an_exponent() {
    let service = Service::start();
    for ttl in words("30000.0 30000.000 3e4 3E4 3e+4 30000e0 300000e-1") {
        let lease = service
            .acquire(&format!("{{\"ttl_ms\": {ttl}, \"wait_ms\": 0.0}}"))
            .await;
        assert_eq!(lease.status, 201, "{ttl}: {}", lease.body);
        assert_eq!(lease["ttl_ms"], 30_000, "{ttl}");
    }
}

const OTHER: &str = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA";

const SLASH: &str =
    "begins or ends with a slash or has two in a row; proxies remove such a slash from a path";
const OPERATION: &str =
    "the path of an operation on a lock: if a proxy decodes %2F, the request reaches another lock";

#[tokio::test]
async fn a_name_is_decoded_once_and_then_checked() {
    let service = Service::start();
    let cases = r#"
        /locks/a%00 => name: has '\0' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        /locks/a%2541 => name: has '%' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        /locks/a%252Fb => name: has '%' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        /locks/a%5Cb => name: has '\\' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        /locks/%7Ba%7D => name: has '{' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        /locks/%C3%A4 => name: has 'ä' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        /locks/%FF => name: is not UTF-8 after percent-decoding
        /locks/. => name: has the segment ".", which HTTP clients and proxies remove from a path
        /locks/%2E%2e => name: has the segment "..", which HTTP clients and proxies remove from a path
        /locks/a%2f..%2Fb => name: has the segment "..", which HTTP clients and proxies remove from a path
        /locks/%2Fa => name: SLASH
        /locks/a%2f => name: SLASH
        /locks/a%2F%2Fb => name: SLASH
        /locks/a%2Frenew => name: ends in "/renew", OPERATION
        /locks/a%2Fb%2fhold => name: ends in "/hold", OPERATION
    "#;
    for (path, expected) in rows(cases) {
        let expected = expected
            .replace("SLASH", SLASH)
            .replace("OPERATION", OPERATION);
        assert_eq!(service.get(&path).await.errors(), [expected], "{path}");
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
    assert_eq!(answer["name"], "deploy:prod@eu~1");
    for path in ["acme%2Fweb", "acme%2fweb", "%61cme%2F%77eb"] {
        let answer = service.get(&format!("/locks/{path}")).await.is(200);
        assert_eq!(answer["name"], "acme/web", "{path}");
    }
    let granted = service.call("POST /locks/acme%2fweb", &[]).await.is(201);
    assert_eq!(granted["name"], "acme/web");
    assert_eq!(granted.header("location"), "/locks/acme%2Fweb");
}

#[tokio::test]
async fn a_name_that_is_a_path_is_one_segment_on_every_route() {
    let service = Service::start();
    for operation in operations().into_iter().filter(Operation::names_lock) {
        let line = operation.line("acme%2Fweb");
        let answer = service.peek(&line, WITH_TOKEN).await;
        assert!(![404, 405].contains(&answer.status), "{line}");
        // If a proxy decodes the name, the request reaches no operation at all.
        let line = operation.line("acme/web");
        let answer = service.call(&line, WITH_TOKEN).await;
        let answer = answer.is_problem(404, "not-found");
        assert_has(&answer.body, "write its / as %2F");
    }
}

#[tokio::test]
async fn no_name_is_the_path_of_another_lock_if_a_proxy_decodes_it() {
    let service = Service::start();
    for operation in operations().into_iter().filter(Operation::names_lock) {
        let target = operation.target("a");
        let Some(word) = target.strip_prefix("/locks/a/") else {
            continue;
        };
        assert!(
            LockName::OPERATIONS.contains(&word),
            "add {word:?} to LockName::OPERATIONS"
        );
        let answer = service.get(&format!("/locks/a%2F{word}")).await;
        let expected = format!("name: ends in \"/{word}\", {OPERATION}");
        assert_eq!(answer.errors(), [expected]);
    }
}

#[tokio::test]
async fn a_query_is_refused_on_every_route_of_a_lock() {
    let service = Service::start();
    // A check and a release have a query.
    let has_query = |it: &Operation| it.takes("for_ms") || it.takes("unused");
    let without_query = |it: &Operation| it.names_lock() && !has_query(it);
    for operation in operations().into_iter().filter(without_query) {
        let line = format!("{}?ttl_ms=s3cret&x", operation.line("a"));
        let answer = service.call(&line, WITH_TOKEN).await;
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
    let none = "is not a token; a token is the 43 characters that acquire answered";
    let another = format!(r#"{{"token": "{OTHER}"}}"#);
    for (headers, body, field, reason) in [
        (
            &[][..],
            "",
            "Lock-Token",
            "is missing; send the token in this header, or as `token` in the body",
        ),
        (&[("lock-token", "x")], "", "Lock-Token", none),
        (&[("lock-token", "")], "", "Lock-Token", none),
        (
            &[WITH_TOKEN[0], WITH_TOKEN[0]],
            "",
            "Lock-Token",
            "is given more than once",
        ),
        (
            &[WITH_TOKEN[0], JSON[0]],
            &another,
            "Lock-Token",
            "is another token than the field `token` of the body",
        ),
        (JSON, r#"{"token": "s3cret"}"#, "token", none),
        (JSON, r#"{"token": 5}"#, "token", "is 5; a text is expected"),
    ] {
        for line in [
            "PUT /locks/a/renew",
            "DELETE /locks/a",
            "POST /locks/a/release",
        ] {
            let answer = service.ask(line, headers, body.to_owned()).await;
            assert_eq!(answer.errors(), [format!("{field}: {reason}")]);
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
    service.ask("DELETE /locks/a", &headers, body).await.is(204);
}

#[tokio::test]
async fn release_takes_no_other_field_than_the_token() {
    let service = Service::start();
    let headers = [JSON, WITH_TOKEN].concat();
    let answer = service
        .ask("DELETE /locks/a", &headers, r#"{"ttl_ms": 1}"#)
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
        let answer = service.call("POST /locks/a", headers).await;
        assert_eq!(answer.errors(), [expected]);
        assert!(!answer.body.contains("s3cret"));
    }
    assert!(service.script.asked().is_empty());
}
