//! Who is let in, and who may do what.

use std::time::Duration;

use axum::body::Body;
use http::Method;
use latchgate::{
    config::{Config, LogRequests},
    lock::{HeldLease, Metadata, Owner},
    store::contract::{Attempt, Holder, RenewalTtl},
};

use super::{
    key::Key,
    lines::Lines,
    listener::Listener,
    scripted::{StoreCall, held, held_by},
    service::{ApiResponse, JSON, Service, TOKEN},
};

/// Every call that needs a key, on a lock.
const CALLS: [(&str, &str, &str); 4] = [
    ("POST", "", "acquire"),
    ("POST", "/hold", "acquire"),
    ("PUT", "/renew", "acquire"),
    ("GET", "", "view"),
];

/// The next acquire finds that somebody holds the lock.
fn hold_by_another(service: &Service) {
    let holder = Holder::Lease(HeldLease {
        owner: Some(Owner::new("somebody").unwrap()),
        metadata: Metadata::new([("job".to_owned(), "1".to_owned())].into()).unwrap(),
        ..held()
    });
    service.script.acquires(held_by(holder));
}

fn last_attempt(service: &Service) -> Attempt {
    let attempts = service.script.asked().into_iter().rev();
    let mut attempts = attempts.filter_map(|asked| match asked {
        StoreCall::Acquire(attempt) => Some(*attempt),
        _ => None,
    });
    attempts.next().unwrap()
}

async fn call(
    service: &Service,
    (method, path, _): (&str, &str, &str),
    lock: &str,
    header: (&str, &str),
) -> ApiResponse {
    let target = format!("/locks/{lock}{path}");
    let mut request = http::Request::builder().method(method).uri(target);
    request = request.header(header.0, header.1);
    if path == "/renew" {
        request = request.header("lock-token", TOKEN);
    }
    let answer = service.unread(request.body(Body::empty()).unwrap()).await;
    let is_stream = path == "/hold" && answer.status() == 200;
    // A stream has no end.
    let answer = if is_stream {
        answer.map(|_| Body::empty())
    } else {
        answer
    };
    ApiResponse::read(answer).await
}

#[tokio::test]
async fn without_a_key_nothing_is_done_and_the_store_is_not_asked() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nview = ['*']"));
    for each in CALLS {
        let answer = call(&service, each, "a", ("x-none", "")).await;
        assert_eq!(answer.problem(), (401, "unauthorized".to_owned()));
        assert_eq!(
            answer.header("www-authenticate"),
            "Bearer realm=\"latchgate\""
        );
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn what_needs_no_key_works_without_one() {
    let service = Service::with_keys(&Key::new().entry("ci", ""));
    for target in [
        "/",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/docs",
        "/problems/locked",
    ] {
        assert_eq!(service.get(target).await.status, 200, "{target}");
    }
    let token = [("lock-token", TOKEN)];
    let released = service.ask(Method::DELETE, "/locks/a", &token, "").await;
    assert_eq!(released.status, 204);
    let released = service
        .ask(Method::POST, "/locks/a/release", &token, "")
        .await;
    assert_eq!(released.status, 204);
}

#[tokio::test]
async fn a_damaged_key_is_told_apart_and_an_unknown_one_is_not_explained() {
    let (ci, other) = (Key::new(), Key::new());
    let wrong = Key::new();
    // Its id is known, with the hash of another.
    let secret = format!("{}:sha256:{}", wrong.key.id(), ci.key.hash());
    let file = format!("[[key]]\nname = 'wrong'\nsecrets = ['{secret}']\nview = ['*']\n");
    let service = Service::with_keys(&(ci.entry("ci", "view = ['*']") + &file));
    let detail = async |header: &str| {
        let answer = call(&service, CALLS[3], "a", ("authorization", header)).await;
        assert_eq!(
            answer.problem(),
            (401, "unauthorized".to_owned()),
            "{header}"
        );
        let challenge = answer.header("www-authenticate");
        assert_eq!(
            challenge,
            "Bearer realm=\"latchgate\", error=\"invalid_token\""
        );
        answer.json()["detail"].as_str().unwrap().to_owned()
    };
    let whole = &ci.header;
    let damaged = detail(&whole[..whole.len() - 1]).await;
    assert!(damaged.contains("cut off or mistyped"), "{damaged}");
    let no_key = detail("Bearer s3cret").await;
    assert!(no_key.contains("begins with `lgk_`"), "{no_key}");
    assert_eq!(detail("Basic dXNlcjpwYXNz").await, no_key);
    let unknown = detail(&other.header).await;
    assert!(
        unknown.contains("not known, or it has expired"),
        "{unknown}"
    );
    assert_eq!(detail(&wrong.header).await, unknown);
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn an_expired_key_is_an_unknown_one() {
    let (old, other) = (Key::new(), Key::new());
    let file = old.entry("old", "view = ['*']\nexpires_at = 2026-11-20T12:00:05Z");
    let (service, _, clock) = Service::with_gate(Config::default(), &file);
    assert_eq!(call(&service, CALLS[3], "a", old.auth()).await.status, 200);
    clock.advance(Duration::from_secs(5));
    let expired = call(&service, CALLS[3], "a", old.auth()).await;
    let unknown = call(&service, CALLS[3], "a", other.auth()).await;
    assert_eq!(expired.problem(), (401, "unauthorized".to_owned()));
    assert_eq!(expired.redacted(), unknown.redacted());
}

#[tokio::test]
async fn the_scheme_may_be_written_in_any_case_and_only_one_header_counts() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "view = ['*']"));
    for scheme in ["bearer", "BEARER", "Bearer "] {
        let header = format!("{scheme} {}", key.key.expose());
        let answer = call(&service, CALLS[3], "a", ("authorization", &header)).await;
        assert_eq!(answer.status, 200, "{header}");
    }
    let twice = [key.auth(), key.auth()];
    let answer = service.ask(Method::GET, "/locks/a", &twice, "").await;
    assert_eq!(answer.errors(), ["Authorization: is given more than once"]);
    let answer = call(&service, CALLS[3], "a", ("authorization", "Bearer ä")).await;
    assert_eq!(
        answer.errors(),
        ["Authorization: has a character that is not visible ASCII"]
    );
}

#[tokio::test]
async fn every_call_asks_for_its_permission_on_the_name_of_the_lock() {
    let permissions = ["acquire", "view", "break", "metrics"];
    for permission in permissions {
        let key = Key::new();
        let lines = match permission {
            "metrics" => "metrics = true".to_owned(),
            _ => format!("{permission} = ['team:']"),
        };
        let service = Service::with_keys(&key.entry("ci", &lines));
        for each in CALLS {
            for (lock, inside) in [
                ("team:a", true),
                ("team:", true),
                ("team%3Aa", true),
                ("team2:a", false),
                ("team", false),
                ("TEAM:a", false),
                ("x:team:a", false),
                ("team%253Aa", false),
            ] {
                let answer = call(&service, each, lock, key.auth()).await;
                let allowed = inside && each.2 == permission;
                let expected = match (allowed, lock) {
                    // A percent sign is in no name.
                    (_, "team%253Aa") => 400,
                    (false, _) => 403,
                    (true, _) if each.0 == "POST" && each.1.is_empty() => 201,
                    (true, _) => 200,
                };
                assert_eq!(
                    answer.status.as_u16(),
                    expected,
                    "{permission} {each:?} {lock}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_is_the_same_whether_the_lock_exists_or_not_and_asks_no_store() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "view = ['mine:']\nacquire = ['mine:']"));
    hold_by_another(&service);
    for each in CALLS {
        let answer = call(&service, each, "theirs", key.auth()).await;
        assert_eq!(answer.problem(), (403, "forbidden".to_owned()));
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        let expected = format!(
            "The API key has no permission `{}` for the lock `theirs`.",
            each.2
        );
        assert_eq!(detail, expected);
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn only_who_may_view_a_lock_learns_who_holds_it() {
    let (sees, blind) = (Key::new(), Key::new());
    let file = sees.entry("sees", "acquire = ['*']\nview = ['*']")
        + &blind.entry("blind", "acquire = ['*']");
    let service = Service::with_keys(&file);
    for (key, owner) in [(&sees, "\"somebody\""), (&blind, "null")] {
        for path in ["", "/hold"] {
            hold_by_another(&service);
            let answer = call(&service, ("POST", path, ""), "a", key.auth()).await;
            assert_eq!(answer.problem(), (423, "locked".to_owned()));
            let holder = &answer.json()["holders"][0];
            assert_eq!(holder["owner"].to_string(), owner, "{holder}");
            assert_eq!(holder["metadata"] == serde_json::json!({}), owner == "null");
            assert!(holder["fencing_token"].is_u64() && holder["expires_in_ms"].is_u64());
        }
    }
}

#[tokio::test]
async fn a_ttl_above_the_cap_is_refused_and_the_default_stays_below_it() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_ttl_ms = 10_000"));
    let json = [key.auth(), JSON[0], ("lock-token", TOKEN)];
    for (method, path) in [("POST", ""), ("PUT", "/renew")] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let target = format!("/locks/a{path}");
        let asked = async |ttl: &str| {
            let body = format!(r#"{{"ttl_ms": {ttl}}}"#);
            service.ask(method.clone(), &target, &json, body).await
        };
        let answer = asked("10001").await;
        assert_eq!(answer.problem(), (403, "limit-exceeded".to_owned()));
        let detail = answer.json()["detail"].to_string();
        assert_eq!(
            detail,
            "\"`ttl_ms` is 10001 ms; the API key may ask for at most 10000 ms.\""
        );
        assert!(asked("10000").await.status.is_success());
    }
    // A hold limit above the cap and below the default of the gateway is all right.
    let body = r#"{"max_hold_ms": 15000}"#;
    let answer = service
        .ask(Method::POST, "/locks/a", &json[..2], body)
        .await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(last_attempt(&service).ttl.as_millis(), 10_000);
}

#[tokio::test]
async fn a_lease_of_a_longer_ttl_is_cut_to_the_cap_and_not_lost() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_ttl_ms = 10_000"));
    let json = [key.auth(), ("lock-token", TOKEN)];
    // It has a TTL of 30 s, as somebody else was granted it.
    let renewed = service.ask(Method::PUT, "/locks/a/renew", &json, "").await;
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    assert_eq!(renewed.json()["ttl_ms"], 10_000);
    let cut = |asked: &StoreCall| matches!(asked, StoreCall::Renew(_, RenewalTtl { max: Some(ttl), .. }) if ttl.as_millis() == 10_000);
    assert_eq!(
        service
            .script
            .asked()
            .iter()
            .filter(|asked| cut(asked))
            .count(),
        1
    );

    let headers = format!("Authorization: {}\r\nLock-Token: {TOKEN}\r\n", key.header);
    let mut adopted = Listener::hold(service.connect().await, &headers, "").await;
    assert_eq!(adopted.expect("granted").await["ttl_ms"], 10_000);
    assert_eq!(
        service
            .script
            .asked()
            .iter()
            .filter(|asked| cut(asked))
            .count(),
        2
    );
}

#[tokio::test]
async fn two_secrets_of_a_key_are_one_caller_and_two_keys_are_two() {
    let (old, new, other) = (Key::new(), Key::new(), Key::new());
    let secrets = format!("'{}', '{}'", old.secret(), new.secret());
    let file = format!("[[key]]\nname = 'ci'\nsecrets = [{secrets}]\nacquire = ['*']\n")
        + &other.entry("other", "acquire = ['*']");
    let service = Service::with_keys(&file);
    let mut hashes = Vec::new();
    for key in [&old, &new, &other] {
        let headers = [
            key.auth(),
            ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11"),
        ];
        assert_eq!(
            service
                .ask(Method::POST, "/locks/a", &headers, "")
                .await
                .status,
            201
        );
        hashes.push(last_attempt(&service).idempotency.unwrap().hash);
    }
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}

#[tokio::test]
async fn the_log_names_the_key_and_never_shows_it() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let (key, other) = (Key::new(), Key::new());
    let mut config = Config::default();
    config.log.requests = LogRequests::All;
    let (service, ..) = Service::with_gate(config, &key.entry("ci-runner", "view = ['a']"));
    call(&service, CALLS[3], "a", key.auth()).await;
    call(&service, CALLS[3], "b", key.auth()).await;
    call(&service, CALLS[3], "a", other.auth()).await;
    let cut = &key.header[..key.header.len() - 4];
    call(&service, CALLS[3], "a", ("authorization", cut)).await;
    // In places where it does not belong.
    let text = key.key.expose();
    let wrong = [("x-request-id", text), ("lock-token", text)];
    let answer = service.ask(Method::PUT, "/locks/a/renew", &wrong, "").await;
    assert_eq!(answer.status, 401);
    let target = format!("/locks/{text}?{text}={text}");
    let answer = service.ask(Method::GET, &target, &[key.auth()], "").await;
    assert_eq!(answer.status, 403);
    let log = lines.read();
    let named = log
        .lines()
        .filter(|line| line.contains("key=\"ci-runner\""))
        .count();
    assert_eq!(
        (named, log.matches("request method=").count()),
        (3, 6),
        "{log}"
    );
    for shown in [&key, &other] {
        let secret = &shown.key.expose()[15..40];
        let hash = shown.key.hash().to_string();
        assert!(!log.contains(secret) && !log.contains(&hash), "{log}");
    }
}
