//! What other APIs have too: `Prefer: wait`, `ETag`, `Link`, `RateLimit`, and a key that may be short.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use latchgate::{
    config::{Config, Millis},
    lock::{FencingToken, ForeignMark, LockName, Ttl},
    store::{
        contract::{Acquisition, HeldLock, Holder, Page},
        cursor::{Cursor, Scanned},
    },
};

use super::{
    key::Key,
    scripted::{StoreCall, contention, free, held, queued, shown},
    service::{ApiResponse, JSON, Service, TOKEN},
};

/// Asks for `a`, for which one other waits before, with these headers.
async fn wait(service: &Service, headers: &[(&str, &str)], body: &str) -> ApiResponse {
    ask(service, queued(1), headers, body).await
}

/// Asks for `a`, which is held, without a wait that counts.
async fn refused(service: &Service, prefer: &str, body: &str) {
    let held = Acquisition::Held(contention(1));
    let answer = ask(service, held, &[("prefer", prefer)], body).await;
    assert_eq!(answer.header("preference-applied"), "", "{prefer}");
    assert_eq!(waited(&answer), 0, "{prefer}");
}

async fn ask(
    service: &Service,
    store: Acquisition,
    headers: &[(&str, &str)],
    body: &str,
) -> ApiResponse {
    service.script.acquires(store);
    let headers = [JSON, headers].concat();
    let body = body.to_owned();
    service.ask(Method::POST, "/locks/a", &headers, body).await
}

fn waited(answer: &ApiResponse) -> u64 {
    assert_eq!(answer.problem(), (423, "locked".to_owned()));
    answer.json()["waited_ms"].as_u64().unwrap()
}

// === Prefer ===

#[tokio::test(start_paused = true)]
async fn a_wait_can_be_preferred_in_a_header_and_is_said_to_be_applied() {
    let service = Service::start();
    for prefer in ["wait=2", "respond-async, Wait=\"2\"; x=y"] {
        let answer = wait(&service, &[("prefer", prefer)], "").await;
        assert_eq!(answer.header("preference-applied"), "wait=2", "{prefer}");
        assert!((2_000..3_000).contains(&waited(&answer)), "{}", answer.body);
    }
    // Also where the lock is free, and where null stands for nothing.
    let headers = [JSON[0], ("prefer", "wait=7")];
    let granted = service
        .ask(Method::POST, "/locks/a", &headers, r#"{"wait_ms": null}"#)
        .await;
    assert_eq!(granted.status, 201);
    assert_eq!(granted.header("preference-applied"), "wait=7");
}

#[tokio::test(start_paused = true)]
async fn the_wait_in_the_body_counts_before_the_preferred_one() {
    let service = Service::start();
    let prefer = [("prefer", "wait=20")];
    let answer = wait(&service, &prefer, r#"{"wait_ms": 1500}"#).await;
    assert_eq!(answer.header("preference-applied"), "");
    assert!((1_500..2_500).contains(&waited(&answer)), "{}", answer.body);
    // 0 is a wait that is said.
    refused(&service, "wait=20", r#"{"wait_ms": 0}"#).await;
}

#[tokio::test(start_paused = true)]
async fn a_preferred_wait_is_cut_to_what_is_allowed_and_never_refused() {
    let mut config = Config::default();
    config.limits.max_wait_ms = Millis(1_900);
    let service = Service::with(config);
    let answer = wait(&service, &[("prefer", "wait=600")], "").await;
    assert_eq!(answer.header("preference-applied"), "wait=1");
    assert!((1_000..1_900).contains(&waited(&answer)), "{}", answer.body);
    for prefer in ["wait", "wait=", "wait=soon", "wait=-1", "handling=lenient"] {
        refused(&service, prefer, "").await;
    }
    let answer = wait(&Service::start(), &[("prefer", "wait=3600")], "").await;
    assert_eq!(answer.header("preference-applied"), "wait=55");
}

#[tokio::test(start_paused = true)]
async fn a_hold_can_prefer_to_wait_and_one_that_adopts_waits_for_nobody() {
    let service = Service::start();
    let hold = async |headers: &[(&str, &str)]| {
        let mut request = Request::post("/locks/a/hold").header("prefer", "wait=9");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = service.unread(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status(), 200);
        answer.headers().get("preference-applied").cloned()
    };
    assert_eq!(hold(&[]).await.unwrap(), "wait=9");
    assert_eq!(hold(&[("lock-token", TOKEN)]).await, None);
}

// === Idempotency key ===

#[tokio::test]
async fn a_key_from_16_characters_on_is_taken_and_a_short_one_is_warned_of() {
    let service = Service::start();
    let ask = async |key: &str, target: &str| {
        let request = Request::post(target).header("idempotency-key", key);
        let answer = service.unread(request.body(Body::empty()).unwrap()).await;
        let warning = answer.headers().get("latchgate-warning");
        let warning = warning.map(|it| it.to_str().unwrap().to_owned());
        (answer.status().as_u16(), warning)
    };
    for target in ["/locks/a", "/locks/a/hold"] {
        for (length, is_taken, is_warned) in [
            (10, false, false),
            (15, false, false),
            (16, true, true),
            (21, true, true),
            (22, true, false),
            (36, true, false),
        ] {
            let (status, warning) = ask(&"k".repeat(length), target).await;
            assert_eq!(status < 300, is_taken, "{target} {length}: {status}");
            assert_eq!(warning.is_some(), is_warned, "{target} {length}");
            if let Some(warning) = warning {
                assert!(warning.contains("22 characters"), "{warning}");
            }
        }
    }
    assert_eq!(ask("build-4711", "/locks/a").await.0, 400);
}

// === ETag of inspect ===

#[tokio::test]
async fn the_tag_of_a_lock_names_its_holder_and_nothing_that_changes_meanwhile() {
    let service = Service::start();
    let look = async |holder: Option<Holder>, headers: &[(&str, &str)]| {
        let inspection = holder.map_or_else(free, shown);
        service
            .script
            .inspect
            .lock()
            .unwrap()
            .push_back(Ok(inspection));
        service.ask(Method::GET, "/locks/a", headers, "").await
    };
    let mut renewed = held();
    renewed.expires_in = Duration::from_secs(3);
    renewed.ttl = Ttl::from_millis(90_000).unwrap();
    let mut next = held();
    next.fence = FencingToken::new(43).unwrap();
    let foreign = |mark: &str| Holder::Foreign {
        expires_in: None,
        mark: ForeignMark::new(mark).ok(),
    };
    let (mark, other) = ("0123456789abcdef0123456789abcdef01234567", "f".repeat(40));
    let states = [
        (Some(Holder::Lease(held())), "W/\"held-42\"".to_owned()),
        (Some(Holder::Lease(next)), "W/\"held-43\"".to_owned()),
        (Some(foreign(mark)), format!("W/\"foreign-{mark}\"")),
        (Some(foreign(&other)), format!("W/\"foreign-{other}\"")),
        (Some(foreign("")), "W/\"foreign\"".to_owned()),
        (None, "W/\"free\"".to_owned()),
    ];
    for (holder, tag) in &states {
        let shown = look(holder.clone(), &[]).await;
        assert_eq!((shown.status.as_u16(), shown.header("etag")), (200, &**tag));
        for (_, seen) in &states {
            let answer = look(holder.clone(), &[("if-none-match", seen.as_str())]).await;
            let expected = if seen == tag { 304 } else { 200 };
            assert_eq!(answer.status, expected, "{tag}, seen {seen}");
            assert_eq!(answer.body.is_empty(), seen == tag);
            assert_eq!(answer.header("etag"), tag);
            assert_eq!(answer.header("cache-control"), "no-store");
        }
    }
    for seen in ["*", "\"held-42\"", "W/\"x\", W/\"held-42\""] {
        let answer = look(
            Some(Holder::Lease(renewed.clone())),
            &[("if-none-match", seen)],
        )
        .await;
        assert_eq!(answer.status, 304, "{seen}");
    }
}

// === Link of lists ===

#[tokio::test]
async fn a_page_names_the_next_one_by_its_path_and_the_last_none() {
    let mut config = Config::default();
    config.http.base_path = "/gate".to_owned();
    let service = Service::with(config);
    let list = async |target: &str, next: Option<Cursor>| {
        let locks = vec![HeldLock {
            name: LockName::new("a").unwrap(),
            holder: Holder::Lease(held()),
            waiters: 0,
        }];
        let page = Page { locks, next };
        service.script.list.lock().unwrap().push_back(Ok(page));
        let answer = service.get(target).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer
    };
    let cursor = Cursor::Redis {
        node: 0,
        scanned: Scanned {
            run: 7,
            scan: 4_711,
            split: None,
        },
    };
    let query = "prefix=deploy%3A&owner=J%C3%BCrgen+%3E%22%26&limit=7";
    let first = list(&format!("/gate/locks?{query}"), Some(cursor)).await;
    let next = first.json()["next_cursor"].as_str().unwrap().to_owned();
    let link = first.header("link");
    let target = link.strip_prefix('<').unwrap();
    let target = target.strip_suffix(">; rel=\"next\"").unwrap();
    assert!(target.starts_with("/gate/locks?"), "{link}");
    assert!(target.contains(&format!("cursor={next}")), "{link}");
    // The cursor belongs to prefix and owner: with others it would be refused.
    let second = list(target, None).await;
    assert_eq!(second.header("link"), "");
    let Some(StoreCall::List(asked)) = service.script.asked().pop() else {
        panic!("not a list");
    };
    assert_eq!(asked.filter.prefix.as_str(), "deploy:");
    assert_eq!(
        asked.filter.owner.as_ref().unwrap().as_str(),
        "J\u{fc}rgen >\"&"
    );
    assert!(
        asked.cursor.is_some() && target.contains("limit=7"),
        "{link}"
    );
    let plain = list("/gate/locks", Some(cursor)).await;
    assert!(!plain.header("link").contains("owner="));
}

// === Rate limits ===

#[tokio::test(start_paused = true)]
async fn a_key_with_a_rate_is_told_of_it_before_it_is_refused() {
    let (key, other) = (Key::new(), Key::new());
    let all = "acquire = ['*']\nview = ['*']";
    let file = key.entry("ci", &format!("{all}\nrequests_per_second = 1\nburst = 3"))
        + &other.entry("other", &format!("{all}\nmax_leases = 5"));
    let service = Service::with_keys(&file);
    let ask = async |method: Method, path: &str, key: &Key| {
        let headers = [key.auth(), ("lock-token", TOKEN)];
        let request = Request::builder().method(method).uri(path);
        let request = headers
            .iter()
            .fold(request, |it, (name, value)| it.header(*name, *value));
        let answer = service.unread(request.body(Body::empty()).unwrap()).await;
        let text = |name: &str| {
            let value = answer.headers().get(name);
            value.map_or(String::new(), |it| it.to_str().unwrap().to_owned())
        };
        let limits = (text("ratelimit-policy"), text("ratelimit"));
        (answer.status().as_u16(), limits.0, limits.1)
    };
    let policy = "\"requests\";q=3;w=3".to_owned();
    for (path, method, status, left) in [
        ("/locks/a", Method::GET, 200, "\"requests\";r=2;t=1"),
        ("/locks/a", Method::POST, 201, "\"requests\";r=1;t=2"),
        // It is not counted, and what is left is told all the same.
        ("/locks/a/renew", Method::PUT, 200, "\"requests\";r=1;t=2"),
        ("/locks/a/hold", Method::POST, 200, "\"requests\";r=1;t=2"),
        ("/locks", Method::GET, 200, "\"requests\";r=0;t=3"),
        ("/locks/a", Method::GET, 429, "\"requests\";r=0;t=3"),
    ] {
        let answer = ask(method, path, &key).await;
        assert_eq!(answer, (status, policy.clone(), left.to_owned()), "{path}");
    }
    tokio::time::advance(Duration::from_secs(2)).await;
    let later = ask(Method::GET, "/locks/a", &key).await;
    assert_eq!(later, (200, policy, "\"requests\";r=1;t=2".to_owned()));
    for path in ["/locks/a", "/locks", "/healthz"] {
        let answer = ask(Method::GET, path, &other).await;
        assert_eq!(answer, (200, String::new(), String::new()), "{path}");
    }
}

// === Forms ===

#[tokio::test]
async fn what_curl_sends_with_d_is_taken_if_it_is_empty_and_else_told_what_to_type() {
    let service = Service::start();
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let empty = service.ask(Method::POST, "/locks/a", &form, "").await;
    assert_eq!(empty.status, 201, "{}", empty.body);
    for body in ["ttl_ms=5000", "{\"ttl_ms\": 5000}"] {
        let refused = service.ask(Method::POST, "/locks/a", &form, body).await;
        assert_eq!(
            refused.problem(),
            (415, "unsupported-media-type".to_owned())
        );
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        for typed in [
            "-d",
            "--json '{..}'",
            "-H 'Content-Type: application/json' -d '{..}'",
        ] {
            assert!(detail.contains(typed), "{typed}: {detail}");
        }
    }
}
