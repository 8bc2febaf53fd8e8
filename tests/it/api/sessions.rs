//! A key is shown once, and a cookie does what it does until one of both ends.

use std::{path::Path, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use latchgate::{
    auth::{Gate, KeysFile},
    clock::ManualClock,
    config::{Config, Millis},
};

use super::{
    key::Key,
    scripted::{free, queued},
    service::{ApiResponse, JSON, Service},
};

/// How long a session lasts if nothing is said.
const TWELVE_HOURS: Duration = Duration::from_hours(12);
/// What a browser says of the requests of our own pages.
const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");

async fn sign_in(service: &Service, key: &str) -> ApiResponse {
    let body = serde_json::json!({ "key": key }).to_string();
    service.ask(Method::POST, "/session", JSON, body).await
}

/// The cookie of somebody who has signed in, as a browser sends it.
async fn session(service: &Service, key: &Key) -> String {
    let answer = sign_in(service, key.key.expose()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let cookie = answer.header("set-cookie");
    cookie.split(';').next().unwrap().to_owned()
}

/// The status of a look at a lock with this cookie.
async fn looks(service: &Service, cookie: &str) -> u16 {
    let headers = [("cookie", cookie), OURS];
    let answer = service.ask(Method::GET, "/locks/a", &headers, "").await;
    answer.status.as_u16()
}

fn replace(gate: &Gate, file: &str) {
    gate.replace(KeysFile::new("keys.toml").parse(file).unwrap());
}

fn all(key: &Key) -> String {
    key.entry("ops", "acquire = ['*']\nview = ['*']")
}

fn service(file: &str) -> (Service, Gate, Arc<ManualClock>) {
    Service::with_gate(Config::default(), file)
}

#[tokio::test]
async fn who_has_signed_in_may_do_what_the_key_may() {
    let key = Key::new();
    let lines = "acquire = ['deploy:']\nview = ['*']\nmax_ttl_ms = 60000\nmetrics = true";
    let (service, ..) = service(&key.entry("ops", lines));
    let answer = sign_in(&service, &format!(" {}\n", key.key.expose())).await;
    assert_eq!(answer.header("cache-control"), "no-store");
    let told = answer.json();
    insta::assert_json_snapshot!(told, @r#"
    {
      "authentication": true,
      "expires_at": "2026-11-21T00:00:00.000Z",
      "expires_in_ms": 43200000,
      "max_ttl_ms": 60000,
      "name": "ops",
      "permissions": {
        "acquire": [
          "deploy:"
        ],
        "break": [],
        "metrics": true,
        "view": [
          "*"
        ]
      },
      "signed_in": true
    }
    "#);
    let cookie = session(&service, &key).await;
    let with = [("cookie", cookie.as_str()), OURS];
    let ask = async |method, target: &str| service.ask(method, target, &with, "").await;
    assert_eq!(ask(Method::GET, "/session").await.json(), told);
    assert_eq!(ask(Method::GET, "/metrics").await.status, 200);
    assert_eq!(ask(Method::POST, "/locks/deploy:a").await.status, 201);
    let refused = ask(Method::POST, "/locks/a").await;
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    let refused = ask(Method::POST, "/locks/a/break").await;
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn a_key_is_looked_at_as_in_any_request() {
    let key = Key::new();
    let (service, ..) = service(&key.entry("ops", "view = ['*']\nrequests_per_second = 2"));
    let text = key.key.expose();
    for (shown, says) in [
        (&text[..63], "cut off"),
        ("hunter2", "begins with `lgk_`"),
        (Key::new().key.expose(), "not known"),
    ] {
        let answer = sign_in(&service, shown).await;
        assert_eq!(
            answer.problem(),
            (401, "unauthorized".to_owned()),
            "{shown}"
        );
        assert!(answer.body.contains(says), "{}", answer.body);
        assert!(answer.header("www-authenticate").starts_with("Bearer "));
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    for (body, says) in [
        ("", "key: is needed: the API key"),
        (r#"{"key": "  "}"#, "key: is needed: the API key"),
        (
            r#"{"key": "lgk_", "name": "x"}"#,
            "name: is not known; the fields of this body are key",
        ),
    ] {
        let answer = service.ask(Method::POST, "/session", JSON, body).await;
        assert_eq!(answer.errors(), [says], "{body}");
    }
    for _ in 0..2 {
        assert_eq!(sign_in(&service, text).await.status, 200);
    }
    let limited = sign_in(&service, text).await;
    assert_eq!(limited.problem(), (429, "rate-limited".to_owned()));
}

#[tokio::test]
async fn who_shows_wrong_keys_too_often_is_held_up() {
    let key = Key::new();
    let mut config = Config::default();
    config.auth.max_refused_per_minute = 2;
    let (service, ..) = Service::with_gate(config, &all(&key));
    for status in [401, 401, 429] {
        let answer = sign_in(&service, Key::new().key.expose()).await;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    assert_eq!(sign_in(&service, key.key.expose()).await.status, 200);
}

#[tokio::test]
async fn a_cookie_that_was_changed_or_cut_is_nobodys_and_is_counted_as_a_guess() {
    let key = Key::new();
    let mut config = Config::default();
    config.auth.max_refused_per_minute = 4;
    let (service, ..) = Service::with_gate(config, &all(&key));
    let cookie = session(&service, &key).await;
    let (most, last) = cookie.split_at(cookie.len() - 1);
    let changed = format!("{most}{}", if last == "A" { "B" } else { "A" });
    for wrong in [
        most,
        &changed,
        "latchgate-session=",
        "latchgate-session=lgs_AAAA",
    ] {
        assert_eq!(looks(&service, wrong).await, 401, "{wrong}");
    }
    assert_eq!(looks(&service, most).await, 429);
    assert_eq!(looks(&service, &cookie).await, 200);
    // Whoever asks who they are is told: nobody.
    let headers = [("cookie", changed.as_str()), OURS];
    let shown = service.ask(Method::GET, "/session", &headers, "").await;
    assert_eq!(shown.status, 200);
    assert_eq!(shown.json()["signed_in"], false);
    assert_eq!(shown.json()["permissions"]["view"], serde_json::json!([]));
}

#[tokio::test]
async fn a_session_ends_by_the_clock_and_is_no_guess_then() {
    let key = Key::new();
    let mut config = Config::default();
    config.auth.max_refused_per_minute = 1;
    let (service, _, clock) = Service::with_gate(config, &all(&key));
    let cookie = session(&service, &key).await;
    let moment = Duration::from_millis(1);
    clock.advance(TWELVE_HOURS.checked_sub(moment).unwrap());
    assert_eq!(looks(&service, &cookie).await, 200);
    clock.advance(moment);
    for _ in 0..3 {
        assert_eq!(looks(&service, &cookie).await, 401);
    }
}

#[tokio::test]
async fn a_session_lasts_as_long_as_is_configured_and_no_longer_than_its_key() {
    let key = Key::new();
    let mut config = Config::default();
    config.auth.session_ttl_ms = Millis(3_600_000);
    let expiring = key.entry("ops", "view = ['*']\nexpires_at = 2026-11-20T12:10:00Z");
    let (service, _, clock) = Service::with_gate(config, &expiring);
    let answer = sign_in(&service, key.key.expose()).await;
    assert_eq!(answer.json()["expires_in_ms"], 600_000);
    assert!(answer.header("set-cookie").contains("; Max-Age=3600;"));
    let cookie = session(&service, &key).await;
    clock.advance(Duration::from_mins(10));
    assert_eq!(looks(&service, &cookie).await, 401);
}

#[tokio::test]
async fn without_the_secret_that_was_shown_a_session_is_over_at_once() {
    let [old, new] = [Key::new(), Key::new()];
    let with =
        |secrets: &str| format!("[[key]]\nname = 'ops'\nsecrets = [{secrets}]\nview = ['*']\n");
    let quoted = |key: &Key| format!("'{}'", key.secret());
    let both = format!("{}, {}", quoted(&old), quoted(&new));
    let (service, gate, _) = service(&with(&both));
    let [of_old, of_new] = [session(&service, &old).await, session(&service, &new).await];
    assert_eq!(looks(&service, &of_old).await, 200);
    replace(&gate, &with(&quoted(&new)));
    assert_eq!(looks(&service, &of_old).await, 401);
    assert_eq!(looks(&service, &of_new).await, 200);
    // What is permitted is what the file says now.
    replace(&gate, &new.entry("ops", "view = ['b']"));
    assert_eq!(looks(&service, &of_new).await, 403);
    replace(&gate, &Key::new().entry("other", "view = ['*']"));
    assert_eq!(looks(&service, &of_new).await, 401);
}

#[tokio::test]
async fn gateways_with_one_secret_know_each_others_sessions_and_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let key = Key::new();
    let gateway = |file: &str, secret: &str| {
        let mut config = Config::default();
        if !file.is_empty() {
            let path = directory.path().join(file);
            std::fs::write(&path, secret).unwrap();
            config.auth.session_secret_file = Path::to_str(&path).unwrap().to_owned();
        }
        Service::with_gate(config, &all(&key)).0
    };
    let secret = "0123456789abcdef0123456789abcdef";
    let [one, other] = [
        gateway("one", secret),
        gateway("two", &format!("{secret}\n")),
    ];
    let cookie = session(&one, &key).await;
    assert_eq!(looks(&other, &cookie).await, 200);
    let [stranger, alone] = [gateway("three", &secret.replace('0', "1")), gateway("", "")];
    assert_eq!(looks(&stranger, &cookie).await, 401);
    assert_eq!(looks(&alone, &cookie).await, 401);
}

async fn read_until(stream: &mut Body, what: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(what) {
        let frame = tokio::time::timeout(Duration::from_mins(1), stream.frame()).await;
        let Ok(Some(Ok(frame))) = frame else {
            panic!("no {what}: {seen}");
        };
        seen += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
    }
    seen
}

fn events(cookie: &str) -> Request<Body> {
    let request = Request::get("/events").header("cookie", cookie);
    request.header(OURS.0, OURS.1).body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_ends_with_its_session() {
    let key = Key::new();
    let (service, gate, clock) = service(&all(&key));
    let cookie = session(&service, &key).await;
    let mut stream = service.stream(events(&cookie)).await;
    read_until(&mut stream, "\n\n").await;
    clock.advance(TWELVE_HOURS);
    let last = read_until(&mut stream, "event: end").await;
    assert!(last.contains("revoked"), "{last}");

    let cookie = session(&service, &key).await;
    let mut stream = service.stream(events(&cookie)).await;
    read_until(&mut stream, "\n\n").await;
    replace(&gate, &Key::new().entry("other", "view = ['*']"));
    let last = read_until(&mut stream, "event: end").await;
    assert!(last.contains("revoked"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_with_a_session_waits_no_longer_than_it_lasts() {
    let key = Key::new();
    let mut config = Config::default();
    config.auth.session_ttl_ms = Millis(60_000);
    let (service, _, clock) = Service::with_gate(config, &all(&key));
    let cookie = session(&service, &key).await;
    // Thirty seconds of it are left, and time stands still for the clock that ends it.
    clock.advance(Duration::from_secs(30));
    service.script.acquires(queued(0));
    let request = Request::post("/locks/a")
        .header("cookie", cookie)
        .header(OURS.0, OURS.1)
        .header(JSON[0].0, JSON[0].1)
        .body(Body::from(r#"{"wait_ms": 50000}"#))
        .unwrap();
    let ending = async {
        tokio::time::sleep(Duration::from_secs(29)).await;
        clock.advance(Duration::from_secs(30));
    };
    let began = tokio::time::Instant::now();
    let (answer, ()) = tokio::join!(service.send(request), ending);
    assert_eq!(answer.problem(), (401, "unauthorized".to_owned()));
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn without_keys_everybody_is_known_and_there_is_no_cookie() {
    let service = Service::start();
    let shown = service.get("/session").await;
    insta::assert_json_snapshot!(shown.json(), @r#"
    {
      "authentication": false,
      "expires_at": null,
      "expires_in_ms": null,
      "max_ttl_ms": null,
      "name": null,
      "permissions": {
        "acquire": [
          "*"
        ],
        "break": [
          "*"
        ],
        "metrics": true,
        "view": [
          "*"
        ]
      },
      "signed_in": false
    }
    "#);
    let answer = sign_in(&service, Key::new().key.expose()).await;
    assert_eq!((answer.status.as_u16(), answer.json()), (200, shown.json()));
    assert!(!answer.headers.contains_key("set-cookie"));
    let out = service.ask(Method::DELETE, "/session", &[], "").await;
    assert_eq!(out.status, 204);
}

#[tokio::test]
async fn who_is_known_by_a_key_in_the_request_is_told_so_too() {
    let key = Key::new();
    let (service, ..) = service(&all(&key));
    service.script.inspect.lock().unwrap().push_back(Ok(free()));
    let shown = service
        .ask(Method::GET, "/session", &[key.auth()], "")
        .await;
    let told = shown.json();
    assert_eq!(
        (&told["name"], &told["signed_in"]),
        (&"ops".into(), &true.into())
    );
    assert_eq!(told["expires_in_ms"], serde_json::Value::Null);
    let stranger = Key::new();
    let refused = service
        .ask(Method::GET, "/session", &[stranger.auth()], "")
        .await;
    assert_eq!(refused.problem(), (401, "unauthorized".to_owned()));
    assert_eq!(service.get("/session").await.json()["signed_in"], false);
}

#[tokio::test]
async fn who_signs_out_is_let_go_also_when_others_have_used_the_key_up() {
    let key = Key::new();
    let (service, ..) = service(&key.entry("ops", "view = ['*']\nrequests_per_second = 2"));
    let cookie = session(&service, &key).await;
    assert_eq!(looks(&service, &cookie).await, 200);
    assert_eq!(looks(&service, &cookie).await, 429);
    let stranger = Key::new();
    for headers in [
        &[("cookie", cookie.as_str()), OURS][..],
        &[("cookie", cookie.as_str()), OURS, stranger.auth()],
    ] {
        let answer = service.ask(Method::DELETE, "/session", headers, "").await;
        assert_eq!(answer.status, 204, "{}", answer.body);
        assert!(answer.header("set-cookie").contains("Max-Age=0"));
    }
}
