//! Which callers are admitted, and which permissions they need to acquire, view, list, break and back up.

use latchgate::lock::Metadata;

use crate::api::prelude::*;

/// Calls that need an API key: method, path behind the lock, and permission.
const CALLS: [(&str, &str, &str); 6] = [
    ("POST", "", "acquire"),
    ("POST", "/hold", "acquire"),
    ("PUT", "/renew", "acquire"),
    ("GET", "", "view"),
    ("GET", "/history", "view"),
    ("GET", "/check", "check"),
];

async fn call(
    service: &Service,
    (method, path, _): (&str, &str, &str),
    lock: &str,
    header: (&str, &str),
) -> ApiResponse {
    let line = format!("{method} /locks/{lock}{path}");
    let proof = match path {
        "/renew" => Some(WITH_TOKEN[0]),
        "/check" => Some(("fencing-token", "7")),
        _ => None,
    };
    let headers: Vec<_> = [header].into_iter().chain(proof).collect();
    if path == "/hold" {
        let answer = service.open(&line, &headers, "").await;
        // A stream has no end, so its body is not read.
        let is_stream = answer.status() == 200;
        let answer = answer.map(|body| if is_stream { Body::empty() } else { body });
        return ApiResponse::read(answer).await;
    }
    service.call(&line, &headers).await
}

/// Inspects `a`.
async fn look(service: &Service, header: (&str, &str)) -> ApiResponse {
    service.call("GET /locks/a", &[header]).await
}

/// A lease of another owner.
fn somebodys() -> HeldLease {
    HeldLease {
        said: Said {
            owner: Some(Owner::new("somebody").unwrap()),
            metadata: Metadata::new([("job".to_owned(), "1".to_owned())].into()).unwrap(),
            group: None,
            order: None,
        },
        ..held()
    }
}

/// Two leases that share a lock.
fn sharing() -> SharedHolders {
    let mut holders = sharers(2, 2);
    for lease in &mut holders.leases {
        lease.said = somebodys().said;
    }
    holders
}

#[tokio::test]
async fn without_a_key_nothing_is_done_and_the_store_is_not_asked() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nview = ['*']"));
    for each in CALLS {
        let answer = call(&service, each, "a", ("x-none", "")).await;
        assert_eq!(answer.problem(), (401, "unauthorized"));
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
    for target in words("/ /healthz /readyz /openapi.json /docs /problems/locked") {
        assert_eq!(service.get(target).await.status, 200, "{target}");
    }
    let token = [("lock-token", TOKEN)];
    service.call("DELETE /locks/a", &token).await.is(204);
    service.call("POST /locks/a/release", &token).await.is(204);
}

#[tokio::test]
async fn a_damaged_key_is_told_apart_and_an_unknown_one_is_not_explained() {
    let (ci, other) = (Key::new(), Key::new());
    let wrong = Key::new();
    // A known key id with the hash of another key.
    let secret = format!("{}:sha256:{}", wrong.key.id(), ci.key.hash());
    let file = format!("[[key]]\nname = 'wrong'\nsecrets = ['{secret}']\nview = ['*']\n");
    let service = Service::with_keys(&(ci.entry("ci", "view = ['*']") + &file));
    let detail = async |header: &str| {
        let answer = look(&service, ("authorization", header)).await;
        assert_eq!(answer.problem(), (401, "unauthorized"), "{header}");
        let challenge = answer.header("www-authenticate");
        assert_eq!(
            challenge,
            "Bearer realm=\"latchgate\", error=\"invalid_token\""
        );
        answer["detail"].as_str().unwrap().to_owned()
    };
    let whole = &ci.header;
    let damaged = detail(&whole[..whole.len() - 1]).await;
    assert!(damaged.contains("cut off or mistyped"), "{damaged}");
    let no_key = detail("Bearer s3cret").await;
    assert!(no_key.contains("begins with `lgk_`"), "{no_key}");
    assert_eq!(detail("Basic dXNlcjpwYXNz").await, no_key);
    let unknown = detail(&other.header).await;
    assert_has(&unknown, "not known, or it has expired");
    assert_eq!(detail(&wrong.header).await, unknown);
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn an_expired_key_is_an_unknown_one() {
    let (old, other) = (Key::new(), Key::new());
    let file = old.entry("old", "view = ['*']\nexpires_at = 2026-11-20T12:00:05Z");
    let (service, _, clock) = Service::with_gate(Config::default(), &file);
    assert_eq!(look(&service, old.auth()).await.status, 200);
    clock.advance(Duration::from_secs(5));
    let expired = look(&service, old.auth()).await;
    let unknown = look(&service, other.auth()).await;
    assert_eq!(expired.problem(), (401, "unauthorized"));
    assert_eq!(expired.redacted(), unknown.redacted());
}

#[tokio::test]
async fn the_scheme_may_be_written_in_any_case_and_only_one_header_counts() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "view = ['*']"));
    for scheme in ["bearer", "BEARER", "Bearer "] {
        let header = format!("{scheme} {}", key.key.expose());
        let answer = look(&service, ("authorization", &header)).await;
        assert_eq!(answer.status, 200, "{header}");
    }
    let twice = [key.auth(), key.auth()];
    let answer = service.call("GET /locks/a", &twice).await;
    assert_eq!(answer.errors(), ["Authorization: is given more than once"]);
    let answer = look(&service, ("authorization", "Bearer ä")).await;
    assert_eq!(
        answer.errors(),
        ["Authorization: has a character that is not visible ASCII"]
    );
}

#[tokio::test]
async fn every_call_asks_for_its_permission_on_the_name_of_the_lock() {
    let permissions = ["acquire", "view", "break", "reserve", "check", "metrics"];
    for permission in permissions {
        let key = Key::new();
        let lines = match permission {
            "metrics" => "metrics = true".to_owned(),
            _ => format!("{permission} = ['team:', 'ci/']"),
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
                ("ci%2Fa", true),
                ("ci%2fa%2Fb", true),
                ("ci", false),
                ("cinema", false),
                ("cinema%2fa", false),
                ("team%2Fci%2Fa", false),
                ("x%2F..%2Fci%2Fa", false),
                ("ci%2F..%2Fa", true),
                ("ci%2Frenew", true),
                ("ci%252Fa", false),
            ] {
                let answer = call(&service, each, lock, key.auth()).await;
                let allowed = inside && each.2 == permission;
                let expected = match (allowed, lock) {
                    // No lock name contains a percent sign, the segment `..` or an operation as its last segment.
                    (
                        _,
                        "team%253Aa" | "ci%252Fa" | "ci%2Frenew" | "x%2F..%2Fci%2Fa"
                        | "ci%2F..%2Fa",
                    ) => 400,
                    (false, _) => 403,
                    (true, _) if each.1 == "/check" => 204,
                    (true, _) if each.0 == "POST" && each.1.is_empty() => 201,
                    (true, _) => 200,
                };
                assert_eq!(answer.status, expected, "{permission} {each:?} {lock}");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_is_the_same_whether_the_lock_exists_or_not_and_asks_no_store() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "view = ['mine:']\nacquire = ['mine:']"));
    service
        .script
        .acquire
        .ok(held_by(Holder::Lease(somebodys())));
    for each in CALLS {
        let answer = call(&service, each, "theirs", key.auth()).await;
        assert_eq!(answer.problem(), (403, "forbidden"));
        let detail = answer["detail"].as_str().unwrap().to_owned();
        let expected = format!(
            "The API key has no permission `{}` for the lock `theirs`.",
            each.2
        );
        assert_eq!(detail, expected);
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn only_who_may_view_a_lock_learns_who_holds_or_shares_it() {
    let (sees, blind) = (Key::new(), Key::new());
    let file = sees.entry("sees", "acquire = ['*']\nview = ['*']")
        + &blind.entry("blind", "acquire = ['*']");
    let service = Service::with_keys(&file);
    for (key, owner) in [(&sees, Some("somebody")), (&blind, None)] {
        for (path, holder) in [
            ("", Holder::Lease(somebodys())),
            ("/hold", Holder::Lease(somebodys())),
            ("", Holder::Shared(sharing())),
        ] {
            service.script.acquire.ok(held_by(holder));
            let answer = call(&service, ("POST", path, ""), "a", key.auth()).await;
            assert_eq!(answer.problem(), (423, "locked"));
            for holder in answer["holders"].as_array().unwrap() {
                assert_eq!(holder["owner"].as_str(), owner, "{holder}");
                let jobs = holder["metadata"].as_object().unwrap().len();
                assert_eq!(jobs, usize::from(owner.is_some()));
                assert!(holder["fencing_token"].is_u64() && holder["expires_in_ms"].is_u64());
            }
        }
    }
}

#[tokio::test]
async fn a_ttl_above_the_cap_is_refused_and_the_default_stays_below_it() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_ttl_ms = 10_000"));
    let json = [key.auth(), JSON[0], ("lock-token", TOKEN)];
    for line in ["POST /locks/a", "PUT /locks/a/renew"] {
        let asked = async |ttl: &str| {
            let body = format!(r#"{{"ttl_ms": {ttl}}}"#);
            service.ask(line, &json, body).await
        };
        let answer = asked("10001").await.is_problem(403, "limit-exceeded");
        let detail = answer["detail"].to_string();
        assert_eq!(
            detail,
            "\"`ttl_ms` is 10001 ms; the API key may ask for at most 10000 ms.\""
        );
        assert!(asked("10000").await.status < 300);
    }
    // A `max_hold_ms` above the cap of the key's TTL and below the gateway's default is accepted.
    let body = r#"{"max_hold_ms": 15000}"#;
    service.ask("POST /locks/a", &json[..2], body).await.is(201);
    assert_eq!(service.script.attempt().terms.ttl().as_millis(), 10_000);
}

#[tokio::test]
async fn a_lease_of_a_longer_ttl_is_cut_to_the_cap_and_not_lost() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_ttl_ms = 10_000"));
    let json = [key.auth(), ("lock-token", TOKEN)];
    // The lease has a TTL of 30 s, from the grant to another key.
    let renewed = service.call("PUT /locks/a/renew", &json).await.is(200);
    assert_eq!(renewed["ttl_ms"], 10_000);
    let cut = |asked: &StoreCall| matches!(asked, StoreCall::Renew(_, RenewalTtl { max: Some(ttl), .. }) if ttl.as_millis() == 10_000);
    assert_eq!(service.script.count(cut), 1);

    let headers = format!("Authorization: {}\r\nLock-Token: {TOKEN}\r\n", key.header);
    let mut adopted = Listener::hold(service.connect().await, &headers, "").await;
    assert_eq!(adopted.expect("granted").await["ttl_ms"], 10_000);
    assert_eq!(service.script.count(cut), 2);
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
        assert_eq!(service.call("POST /locks/a", &headers).await.status, 201);
        hashes.push(service.script.attempt().idempotency.unwrap().hash);
    }
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}

#[tokio::test]
async fn the_log_names_the_key_and_never_shows_it() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let (key, other) = (Key::new(), Key::new());
    let config = with(Config::default(), |it| it.log.requests = LogRequests::All);
    let (service, ..) = Service::with_gate(config, &key.entry("ci-runner", "view = ['a']"));
    look(&service, key.auth()).await;
    call(&service, CALLS[3], "b", key.auth()).await;
    look(&service, other.auth()).await;
    let cut = &key.header[..key.header.len() - 4];
    look(&service, ("authorization", cut)).await;
    // The key is sent in places where no key belongs.
    let text = key.key.expose();
    let wrong = [("x-request-id", text), ("lock-token", text)];
    service.call("PUT /locks/a/renew", &wrong).await.is(401);
    let target = format!("/locks/{text}?{text}={text}");
    let answer = service.call(&format!("GET {target}"), &[key.auth()]).await;
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

const REASON: &str = r#"{"reason":"hangs"}"#;

#[tokio::test]
async fn who_may_not_break_or_list_is_refused_before_the_store_is_asked() {
    let key = Key::new();
    let lines = "acquire = ['x:']\nview = ['team:']\nbreak = ['team:']";
    let service = Service::with_keys(&key.entry("ci", lines));
    let headers = [key.auth(), JSON[0]];
    let nobody = service.ask("POST /locks/team:a/break", JSON, REASON).await;
    nobody.is_problem(401, "unauthorized");
    assert_eq!(service.get("/locks").await.problem(), (401, "unauthorized"));
    for name in ["team2:a", "team", "tea"] {
        let line = format!("POST /locks/{name}/break");
        let refused = service.ask(&line, &headers, REASON).await;
        assert_eq!(refused.problem(), (403, "forbidden"), "{name}");
    }
    let list = async |query: &str| service.call(&format!("GET /locks{query}"), &headers).await;
    // The key must be allowed to view every name with the prefix: otherwise pages and cursors would reveal other names.
    let others = words("?prefix=tea ?prefix=team ?prefix=team2: ?owner=alice");
    for query in others.chain([""]) {
        assert_eq!(list(query).await.problem(), (403, "forbidden"), "{query}");
    }
    assert!(service.script.asked().is_empty());
    for query in ["?prefix=team:", "?prefix=team:a", "?prefix=team:a/"] {
        list(query).await.is(200);
    }
}

#[tokio::test]
async fn a_break_tells_the_holder_only_to_those_who_may_view_it() {
    for (view, owner) in [("", None), ("view = ['a']", Some("somebody"))] {
        let key = Key::new();
        let service = Service::with_keys(&key.entry("ci", &format!("break = ['*']\n{view}")));
        for holder in [Holder::Lease(somebodys()), Holder::Shared(sharing())] {
            service.script.break_lock.ok(Breaking::Broken(holder));
            let headers = [key.auth(), JSON[0]];
            let answer = service.ask("POST /locks/a/break", &headers, REASON).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            for holder in answer["holders"].as_array().unwrap() {
                assert_eq!(holder["owner"].as_str(), owner);
                let jobs = holder["metadata"].as_object().unwrap().len();
                assert_eq!(jobs, usize::from(owner.is_some()));
                assert!(holder["fencing_token"].as_u64() >= Some(42));
            }
        }
    }
}

#[tokio::test]
async fn a_token_that_holds_nothing_does_not_tell_a_stranger_whether_the_lock_is_held() {
    let service = Service::with_keys(&Key::new().entry("ci", ""));
    let mut told = Vec::new();
    for loss in [Loss::HeldByAnother, Loss::Free] {
        service.script.release.ok(Release::Lost(loss));
        let token = [("lock-token", TOKEN)];
        let mut answer = service.call("DELETE /locks/a", &token).await.json();
        assert_eq!(answer["code"], "lease-lost");
        answer.as_object_mut().unwrap().remove("request_id");
        told.push(answer);
    }
    assert_eq!(told[0], told[1]);
    assert!(told[0].get("held").is_none(), "{}", told[0]);
}

#[tokio::test]
async fn it_takes_every_permission_on_every_lock() {
    let all = Key::new();
    let refused = [
        "view = ['*']\nmetrics = true",
        "break = ['*']\nacquire = ['*']",
        "view = ['*']\nbreak = ['team:']",
        "view = ['team:']\nbreak = ['*']",
    ]
    .map(|permissions| (Key::new(), permissions));
    let mut file = all.entry("all", "view = ['*']\nbreak = ['*']");
    for (number, (key, permissions)) in refused.iter().enumerate() {
        file += &key.entry(&format!("some{number}"), permissions);
    }
    let (service, ..) = Service::with_gate(Config::default(), &file);
    for (key, permissions) in &refused {
        let answer = service.call("GET /backup", &[key.auth()]).await;
        assert_eq!(answer.status, 403, "{permissions}: {}", answer.body);
        assert_eq!(answer["code"], "forbidden");
    }
    service.get("/backup").await.is(401);
    // The scripted store is not an embedded store, so it has no backup.
    let answer = service.call("GET /backup", &[all.auth()]).await.is(409);
    assert_eq!(answer["code"], "wrong-store");
}
