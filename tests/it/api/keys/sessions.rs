//! Sessions: a browser sends its key once, and gets a cookie with the permissions of the key until key or session ends.

use super::cookies::{OURS, session, sign_in_with};
use crate::api::prelude::*;

/// How long a session lasts by default.
const TWELVE_HOURS: Duration = Duration::from_hours(12);

async fn sign_in(service: &Service, key: &str) -> ApiResponse {
    sign_in_with(service, "", key, &[]).await
}

/// Inspects a lock with this cookie. Answers the status.
async fn looks(service: &Service, cookie: &str) -> u16 {
    let headers = [("cookie", cookie), OURS];
    let answer = service.call("GET /locks/a", &headers).await;
    answer.status
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
    assert_eq!(
        told,
        json!({
            "authentication": true, "caller": "ops", "expires_at": "2026-11-21T00:00:00.000Z",
            "expires_in_ms": 43_200_000, "max_ttl_ms": 60_000, "name": "ops",
            "permissions": {
                "acquire": ["deploy:"], "break": [], "check": [], "metrics": true, "reserve": [], "order": [], "view": ["*"],
            },
            "sign_in": null, "sign_out": null, "signed_in": true,
        })
    );
    let cookie = session(&service, &key).await;
    let with = [("cookie", cookie.as_str()), OURS];
    let ask = async |method, target: &str| service.call(&format!("{method} {target}"), &with).await;
    assert_eq!(ask(Method::GET, "/session").await.json(), told);
    assert_eq!(ask(Method::GET, "/metrics").await.status, 200);
    assert_eq!(ask(Method::POST, "/locks/deploy:a").await.status, 201);
    let refused = ask(Method::POST, "/locks/a").await;
    assert_eq!(refused.problem(), (403, "forbidden"));
    let refused = ask(Method::POST, "/locks/a/break").await;
    assert_eq!(refused.problem(), (403, "forbidden"));
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
        assert_eq!(answer.problem(), (401, "unauthorized"), "{shown}");
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
        let answer = service.ask("POST /session", JSON, body).await;
        assert_eq!(answer.errors(), [says], "{body}");
    }
    for _ in 0..2 {
        assert_eq!(sign_in(&service, text).await.status, 200);
    }
    let limited = sign_in(&service, text).await;
    assert_eq!(limited.problem(), (429, "rate-limited"));
}

#[tokio::test]
async fn who_shows_wrong_keys_too_often_is_held_up() {
    let key = Key::new();
    let config = with(Config::default(), |it| it.auth.max_refused_per_minute = 2);
    let (service, ..) = Service::with_gate(config, &all(&key));
    for status in [401, 401, 429] {
        sign_in(&service, Key::new().key.expose()).await.is(status);
    }
    assert_eq!(sign_in(&service, key.key.expose()).await.status, 200);
}

#[tokio::test]
async fn a_cookie_that_was_changed_or_cut_is_nobodys_and_is_counted_as_a_guess() {
    let key = Key::new();
    let config = with(Config::default(), |it| it.auth.max_refused_per_minute = 4);
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
    // A request for the session with such a cookie is answered that nobody is signed in.
    let headers = [("cookie", changed.as_str()), OURS];
    let shown = service.call("GET /session", &headers).await.is(200);
    assert_eq!(shown["signed_in"], false);
    assert_eq!(shown["permissions"]["view"], json!([]));
}

#[tokio::test]
async fn a_session_ends_by_the_clock_and_is_no_guess_then() {
    let key = Key::new();
    let config = with(Config::default(), |it| it.auth.max_refused_per_minute = 1);
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
    let config = with(Config::default(), |it| {
        it.auth.session_ttl_ms = Millis(3_600_000);
    });
    let expiring = key.entry("ops", "view = ['*']\nexpires_at = 2026-11-20T12:10:00Z");
    let (service, _, clock) = Service::with_gate(config, &expiring);
    let answer = sign_in(&service, key.key.expose()).await;
    assert_eq!(answer["expires_in_ms"], 600_000);
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
    replaces(&gate, &with(&quoted(&new)));
    assert_eq!(looks(&service, &of_old).await, 401);
    assert_eq!(looks(&service, &of_new).await, 200);
    // The permissions are always those of the current keys file.
    replaces(&gate, &new.entry("ops", "view = ['b']"));
    assert_eq!(looks(&service, &of_new).await, 403);
    replaces(&gate, &Key::new().entry("other", "view = ['*']"));
    assert_eq!(looks(&service, &of_new).await, 401);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_ends_with_its_session() {
    let key = Key::new();
    let (service, gate, clock) = service(&all(&key));
    for by_time in [true, false] {
        let cookie = session(&service, &key).await;
        let headers = [("cookie", cookie.as_str()), OURS];
        let mut stream = service.stream("GET /events", &headers, "").await;
        read_until(&mut stream, "\n\n").await;
        if by_time {
            clock.advance(TWELVE_HOURS);
        } else {
            replaces(&gate, &Key::new().entry("other", "view = ['*']"));
        }
        let last = read_until(&mut stream, "event: end").await;
        assert!(last.contains("revoked"), "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_with_a_session_waits_no_longer_than_it_lasts() {
    let key = Key::new();
    let config = with(Config::default(), |it| {
        it.auth.session_ttl_ms = Millis(60_000);
    });
    let (service, _, clock) = Service::with_gate(config, &all(&key));
    let cookie = session(&service, &key).await;
    // The session lives for thirty seconds more. Its clock moves only when the test moves it.
    clock.advance(Duration::from_secs(30));
    service.script.acquire.ok(queued(0));
    let headers = [("cookie", cookie.as_str()), OURS, JSON[0]];
    let request = request("POST /locks/a", &headers, r#"{"wait_ms": 50000}"#);
    let ending = async {
        sleep(Duration::from_secs(29)).await;
        clock.advance(Duration::from_secs(30));
    };
    let began = Instant::now();
    let (answer, ()) = tokio::join!(service.send(request), ending);
    assert_eq!(answer.problem(), (401, "unauthorized"));
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn without_keys_everybody_is_known_and_there_is_no_cookie() {
    let service = Service::start();
    let shown = service.get("/session").await;
    assert_eq!(
        shown.json(),
        json!({
            "authentication": false, "caller": null, "expires_at": null, "expires_in_ms": null,
            "max_ttl_ms": null, "name": null,
            "permissions": {
                "acquire": ["*"], "break": ["*"], "check": ["*"], "metrics": true, "reserve": ["*"], "order": ["*"], "view": ["*"],
            },
            "sign_in": null, "sign_out": null, "signed_in": false,
        })
    );
    let answer = sign_in(&service, Key::new().key.expose()).await;
    assert_eq!((answer.status, answer.json()), (200, shown.json()));
    assert!(!answer.headers.contains_key("set-cookie"));
    service.call("DELETE /session", &[]).await.is(204);
}

#[tokio::test]
async fn who_is_known_by_a_key_in_the_request_is_told_so_too() {
    let key = Key::new();
    let (service, ..) = service(&all(&key));
    service.script.inspect.ok(free());
    let shown = service.call("GET /session", &[key.auth()]).await;
    let told = shown.json();
    assert_eq!(fields(&told, ["name", "signed_in"]), json!(["ops", true]));
    assert_eq!(told["expires_in_ms"], Value::Null);
    let stranger = Key::new();
    let refused = service.call("GET /session", &[stranger.auth()]).await;
    assert_eq!(refused.problem(), (401, "unauthorized"));
    assert_eq!(service.get("/session").await["signed_in"], false);
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
        let answer = service.call("DELETE /session", headers).await.is(204);
        assert!(answer.header("set-cookie").contains("Max-Age=0"));
    }
}
