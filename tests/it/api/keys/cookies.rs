//! The session cookie: its attributes and name, the requests that it authorizes, and the places where its secret must
//! not appear.

use latchgate::{audit::Audit, config::AuditConfig};

use crate::api::prelude::*;

pub(super) const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");
const LISTED: (&str, &str) = ("origin", "https://ci.example.com");

pub(super) fn start(base_path: &str) -> (Service, Key) {
    let key = Key::new();
    let mut config = Config::default();
    config.http.allowed_origins = vec![LISTED.1.parse().unwrap()];
    base_path.clone_into(&mut config.http.base_path);
    let file = key.entry("ops", "acquire = ['*']\nview = ['*']\nbreak = ['*']");
    (Service::with_gate(config, &file).0, key)
}

/// Signs in with a key at a gateway below this path.
pub(super) async fn sign_in_with(
    service: &Service,
    path: &str,
    key: &str,
    headers: &[(&str, &str)],
) -> ApiResponse {
    let body = json!({ "key": key }).to_string();
    let headers = [JSON, headers].concat();
    let line = format!("POST {path}/session");
    service.ask(&line, &headers, body).await
}

async fn sign_in(
    service: &Service,
    path: &str,
    key: &Key,
    headers: &[(&str, &str)],
) -> ApiResponse {
    sign_in_with(service, path, key.key.expose(), headers).await
}

/// Signs in with a key. Answers the cookie as a browser sends it.
pub(super) async fn session(service: &Service, key: &Key) -> String {
    let answer = sign_in(service, "", key, &[]).await.is(200);
    let cookie = answer.header("set-cookie");
    cookie.split(';').next().unwrap().to_owned()
}

/// A gateway, a key, and the cookie of a session that signed in with this key.
async fn signed_in() -> (Service, Key, String) {
    let (service, key) = start("");
    let cookie = session(&service, &key).await;
    (service, key, cookie)
}

/// The attributes of the cookie, without its secret.
fn form(answer: &ApiResponse) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let cookie = answer.header("set-cookie");
    let (name, rest) = cookie.split_once('=').unwrap();
    let (secret, rest) = rest.split_once("; ").unwrap();
    assert!(secret.starts_with("lgs_") && secret.len() == 66, "{secret}");
    format!("{name}; {rest}")
}

#[tokio::test]
async fn no_script_reads_it_no_other_site_sends_it_and_https_keeps_it_to_itself() {
    let (service, key) = start("");
    let plain = "latchgate-session; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict";
    let secure =
        "__Host-latchgate-session; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure";
    for (headers, expected) in [
        (&[][..], plain),
        (&[("origin", "http://localhost"), OURS], plain),
        (&[("x-forwarded-proto", "http")], plain),
        (&[("origin", "https://localhost"), OURS], secure),
        (&[("x-forwarded-proto", "https")], secure),
        (&[("forwarded", "for=192.0.2.1;proto=https")], secure),
    ] {
        let answer = sign_in(&service, "", &key, headers).await;
        assert_eq!(form(&answer), expected, "{headers:?}");
    }
    let (service, key) = start("/gate");
    let below = [("x-forwarded-proto", "https")];
    let answer = sign_in(&service, "/gate", &key, &below).await;
    assert_eq!(
        form(&answer),
        "__Secure-latchgate-session; Path=/gate; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"
    );
}

/// Calls that change something, or keep a connection.
const CALLS: [&str; 5] = [
    "POST /locks/a",
    "POST /locks/a/hold",
    "PUT /locks/a/renew",
    "POST /locks/a/break",
    "GET /events",
];
const LOOKS: [&str; 3] = ["GET /locks/a", "GET /locks", "GET /stats"];

#[tokio::test]
async fn it_counts_for_our_own_pages_only_listed_ones_are_others() {
    let (service, key, cookie) = signed_in().await;
    let with = ("cookie", cookie.as_str());
    let site = |site| ("sec-fetch-site", site);
    for line in CALLS.into_iter().chain(LOOKS) {
        for foreign in [
            &[with, site("cross-site")][..],
            &[with, site("same-site")],
            &[with, LISTED],
            &[with, LISTED, site("same-site")],
            &[with, ("origin", "https://evil.example")],
            &[with, ("origin", "null"), site("same-origin")],
            &[with, ("origin", "http://localhost"), site("same-site")],
            &[with, ("origin", "http://localhost:7421")],
        ] {
            let answer = service.call(line, foreign).await;
            let refused = (403, "origin-refused");
            assert_eq!(answer.problem(), refused, "{line} {foreign:?}");
            assert!(
                !answer
                    .headers
                    .contains_key("access-control-allow-credentials")
            );
        }
    }
    assert!(service.script.asked().is_empty());
    // A page of a listed origin authorizes itself with an API key.
    let headers = [key.auth(), LISTED];
    let answer = service.call("POST /locks/a", &headers).await.is(201);
    assert_eq!(answer.header("access-control-allow-origin"), LISTED.1);
    assert!(
        !answer
            .headers
            .contains_key("access-control-allow-credentials")
    );
}

#[tokio::test]
async fn a_browser_that_says_nothing_must_show_that_a_script_of_ours_has_asked() {
    let (service, _, cookie) = signed_in().await;
    let with = ("cookie", cookie.as_str());
    let ask = async |method: Method, headers: &[(&str, &str)]| {
        service
            .call(&format!("{method} /locks/a"), headers)
            .await
            .status
    };
    assert_eq!(ask(Method::GET, &[with]).await, 200);
    assert_eq!(ask(Method::POST, &[with]).await, 403);
    let asked = service.script.asked().len();
    assert_eq!(
        ask(Method::POST, &[with, ("x-requested-with", "latchgate")]).await,
        201
    );
    assert_eq!(ask(Method::POST, &[with, OURS]).await, 201);
    let by_hand = ("sec-fetch-site", "none");
    assert_eq!(ask(Method::POST, &[with, by_hand]).await, 201);
    assert_eq!(
        ask(Method::POST, &[with, ("origin", "http://localhost")]).await,
        201
    );
    assert_eq!(service.script.asked().len(), asked + 4);
    // The header of our own pages is not among those that a listed origin may send.
    let preflight = [LISTED, ("access-control-request-method", "POST")];
    let answer = service.call("OPTIONS /locks/a", &preflight).await;
    let allowed = answer.header("access-control-allow-headers").to_lowercase();
    assert!(
        !allowed.is_empty() && !allowed.contains("x-requested-with"),
        "{allowed}"
    );
}

#[tokio::test]
async fn a_key_in_the_request_counts_before_the_cookie() {
    let (service, key, cookie) = signed_in().await;
    let stranger = Key::new();
    for (auth, status) in [(stranger.auth(), 401), (key.auth(), 200)] {
        let headers = [("cookie", cookie.as_str()), auth, OURS];
        service.call("GET /locks/a", &headers).await.is(status);
    }
    // A cookie that belongs to no session does not get in the way of an API key.
    let headers = [("cookie", "latchgate-session=lgs_AAAA"), key.auth(), LISTED];
    service.call("POST /locks/a", &headers).await.is(201);
}

#[tokio::test]
async fn a_release_needs_no_session_and_takes_one() {
    let (service, _, cookie) = signed_in().await;
    for cookie in [cookie.as_str(), "latchgate-session=lgs_AAAA", "a=b"] {
        let headers = [("cookie", cookie), OURS, ("lock-token", TOKEN)];
        let answer = service.call("DELETE /locks/a", &headers).await;
        assert_eq!(answer.status, 204, "{cookie}");
    }
}

#[tokio::test]
async fn nobody_is_signed_in_or_out_by_a_page_of_another_origin() {
    let (service, key, cookie) = signed_in().await;
    for foreign in [LISTED, ("sec-fetch-site", "same-site"), ("origin", "null")] {
        let answer = sign_in(&service, "", &key, &[foreign]).await;
        assert_eq!(answer.problem(), (403, "origin-refused"), "{foreign:?}");
        assert!(!answer.headers.contains_key("set-cookie"));
        let headers = [foreign, ("cookie", cookie.as_str())];
        let answer = service.call("DELETE /session", &headers).await;
        assert_eq!(answer.problem(), (403, "origin-refused"), "{foreign:?}");
    }
    // Media types that an HTML form can send.
    for media in ["text/plain", "application/x-www-form-urlencoded"] {
        let headers = [("content-type", media)];
        let body = json!({ "key": key.key.expose() }).to_string();
        let answer = service.ask("POST /session", &headers, body).await;
        assert_eq!(answer.status, 415, "{media}");
    }
}

#[tokio::test]
async fn signing_out_takes_away_every_cookie_that_was_brought() {
    let (service, _, cookie) = signed_in().await;
    let brought = format!("a=b; {cookie}; __Host-{cookie}; {cookie}");
    let headers = [("cookie", brought.as_str()), OURS];
    let answer = service.call("DELETE /session", &headers).await;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    let taken: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
    assert_eq!(
        taken,
        [
            "__Host-latchgate-session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure",
            "latchgate-session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict",
        ]
    );
    let nobody = service.call("DELETE /session", &[]).await.is(204);
    assert!(!nobody.headers.contains_key("set-cookie"));
}

/// A gateway for one key, with an audit log in this file.
fn audited(path: &Path, key: &Key) -> (Service, Audit) {
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    let audit = AuditConfig {
        path: path.to_str().unwrap().to_owned(),
    };
    let audit = Audit::open(&audit, clock.clone()).unwrap();
    let file = key.entry("ops", "acquire = ['*']\nview = ['*']\nmetrics = true");
    let ring = KeysFile::new("keys.toml").parse(&file).unwrap();
    let config = Config::default();
    let gate = Gate::guarded(ring, SessionSeal::random(), &config.auth, clock);
    (Service::with_audit(config, gate, audit.clone()), audit)
}

#[tokio::test]
async fn it_shows_in_no_log_no_metric_no_event_and_no_answer() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let (_directory, path) = log_file();
    let key = Key::new();
    let (service, _audit) = audited(&path, &key);

    let cookie = session(&service, &key).await;
    let secret = cookie.split_once('=').unwrap().1;
    let with = [("cookie", cookie.as_str()), ("x-request-id", secret), OURS];
    let mut seen = String::new();
    for (method, target) in [
        (Method::POST, "/locks/a".to_owned()),
        (Method::POST, format!("/locks/{secret}")),
        (Method::GET, format!("/dashboard/{secret}")),
        (Method::GET, format!("/session?{secret}=1")),
        (Method::GET, "/metrics".to_owned()),
        (Method::GET, "/session".to_owned()),
        (Method::DELETE, "/session".to_owned()),
    ] {
        let answer = service.call(&format!("{method} {target}"), &with).await;
        seen += answer.header("x-request-id");
        // A caller that puts the secret into the address gets the address back.
        if !target.contains(secret) {
            seen += &answer.body;
        }
    }
    let mut request = Request::get("/locks/x/y").body(Body::empty()).unwrap();
    let value = http::HeaderValue::from_str(&cookie).unwrap();
    request.headers_mut().insert("cookie", value);
    seen += &service.send(request).await.body;
    until("all is written", || {
        fs::read_to_string(&path).unwrap().contains("sign-out")
    })
    .await;
    seen += &fs::read_to_string(&path).unwrap();
    seen += &lines.read();
    assert!(seen.contains("route=\"/session\""), "{seen}");
    for secret in [secret, key.key.expose()] {
        assert!(!seen.contains(secret), "{seen}");
    }
}

#[tokio::test]
async fn who_signs_in_and_out_stands_in_the_audit_log() {
    let (_directory, path) = log_file();
    let key = Key::new();
    let (service, _audit) = audited(&path, &key);
    let answer = sign_in(&service, "", &key, &[("x-request-id", "in")]).await;
    let cookie = answer.header("set-cookie").split(';').next().unwrap();
    let wrong = sign_in(&service, "", &Key::new(), &[("x-request-id", "no")]).await;
    assert_eq!(wrong.status, 401);
    // The answer removes the cookie, also if the request has an API key.
    let headers = [("cookie", cookie), OURS, ("x-request-id", "out")];
    service.call("DELETE /session", &headers).await;
    let stranger = Key::new();
    let headers = [headers[0], OURS, ("x-request-id", "both"), stranger.auth()];
    service.call("DELETE /session", &headers).await;
    until("all are written", || audit_lines(&path).len() == 4).await;
    let mut written = audit_lines(&path);
    for line in &mut written {
        line.as_object_mut().unwrap().remove("at");
    }
    assert_eq!(
        written[0],
        json!({"event": "sign-in", "key": "ops", "request_id": "in"})
    );
    assert_eq!(written[1]["outcome"], "unauthorized");
    assert_eq!(written[1]["route"], "/session");
    assert_eq!(
        written[2],
        json!({"event": "sign-out", "key": "ops", "request_id": "out"})
    );
    assert_eq!(
        written[3],
        json!({"event": "sign-out", "key": "ops", "request_id": "both"})
    );
}

#[tokio::test]
async fn who_signs_out_over_and_over_is_a_number_in_the_next_line() {
    let (_directory, path) = log_file();
    let key = Key::new();
    let (service, audit) = audited(&path, &key);
    let cookie = session(&service, &key).await;
    let headers = [("cookie", cookie.as_str()), OURS];
    for _ in 0..100 {
        service.call("DELETE /session", &headers).await.is(204);
    }
    audit.stopped("TERM");
    audit.flush(Duration::from_mins(1)).await;
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written.matches("\"sign-out\"").count(), 60);
    let last = written.lines().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["event"], "stop");
    assert_eq!(last["sign_outs_left_out"], 40);
    assert_eq!(last["refusals_left_out"], Value::Null);
}

#[tokio::test]
async fn over_https_only_a_name_that_nobody_else_can_set_counts() {
    let (service, _, cookie) = signed_in().await;
    let prefixed = format!("__Host-{cookie}");
    let https = ("x-forwarded-proto", "https");
    for (cookie, proxy, status) in [
        (&cookie, None, 200),
        (&prefixed, None, 200),
        (&prefixed, Some(https), 200),
        (&cookie, Some(https), 401),
    ] {
        let headers = [Some(("cookie", cookie.as_str())), Some(OURS), proxy];
        let headers: Vec<_> = headers.into_iter().flatten().collect();
        let answer = service.call("GET /locks/a", &headers).await;
        assert_eq!(answer.status, status, "{headers:?}");
    }
    // Another program on this host has set a cookie with the same name first.
    let both = format!("latchgate-session=lgs_AAAA; x=y; {cookie}");
    let answer = service
        .call("GET /locks/a", &[("cookie", &both), OURS])
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn beside_a_name_that_nobody_else_can_set_one_that_anybody_can_set_counts_for_nothing() {
    let [ops, viewer] = [Key::new(), Key::new()];
    let file = [
        ops.entry("ops", "view = ['*']"),
        viewer.entry("viewer", "view = ['*']"),
    ];
    let config = with(Config::default(), |it| it.auth.max_refused_per_minute = 1);
    let (service, ..) = Service::with_gate(config, &file.concat());
    let of_ops = session(&service, &ops).await;
    let of_viewer = format!("__Host-{}", session(&service, &viewer).await);
    let junk = "latchgate-session=lgs_AAAA; latchgate-session=lgs_BBBB";
    for brought in [
        format!("{of_ops}; {of_viewer}"),
        format!("{junk}; {of_viewer}"),
        format!("{of_viewer}; {of_ops}"),
    ] {
        let headers = [("cookie", brought.as_str()), OURS];
        let shown = service.call("GET /session", &headers).await;
        assert_eq!(shown["name"], "viewer", "{brought}");
    }
    // If the `__Host-` cookie belongs to no session, the other cookie does not count either: the browser must not be
    // signed in again as its former user.
    let brought = format!("{of_ops}; __Host-latchgate-session=lgs_AAAA");
    let headers = [("cookie", brought.as_str()), OURS];
    let shown = service.call("GET /session", &headers).await;
    assert_eq!(shown["signed_in"], false);
}

#[tokio::test]
async fn signing_in_takes_away_the_session_of_the_other_name() {
    let (service, key) = start("");
    let [plain, prefixed] = ["latchgate-session", "__Host-latchgate-session"];
    let brought = format!("{plain}=a; {prefixed}=b; {plain}=c");
    let https = ("x-forwarded-proto", "https");
    for (https, kept, taken) in [
        (Some(https), prefixed, format!("{plain}=;")),
        (None, plain, format!("{prefixed}=;")),
    ] {
        let headers = [Some(("cookie", brought.as_str())), https];
        let headers: Vec<_> = headers.into_iter().flatten().collect();
        let answer = sign_in(&service, "", &key, &headers).await;
        let cookies = answer.headers.get_all("set-cookie").iter();
        let cookies: Vec<_> = cookies.map(|it| it.to_str().unwrap()).collect();
        let [first, second] = cookies[..] else {
            panic!("{cookies:?}");
        };
        assert!(first.starts_with(&format!("{kept}=lgs_")), "{first}");
        assert!(second.starts_with(&taken), "{second}");
        assert!(second.contains("; Max-Age=0;"), "{second}");
    }
}

#[tokio::test]
async fn where_a_proxy_says_https_a_page_that_came_over_http_is_another_one() {
    let (service, key) = start("");
    let prefixed = format!("__Host-{}", session(&service, &key).await);
    let https = ("x-forwarded-proto", "https");
    for (origin, status) in [("http://localhost", 403), ("https://localhost", 200)] {
        let origin = ("origin", origin);
        let answer = sign_in(&service, "", &key, &[https, origin]).await;
        assert_eq!(answer.status, status, "{origin:?}");
        let headers = [("cookie", prefixed.as_str()), https, origin];
        let answer = service.call("GET /locks/a", &headers).await;
        assert_eq!(answer.status, status, "{origin:?}");
    }
}

#[tokio::test]
async fn what_a_page_sends_for_one_who_was_signed_in_is_not_done_for_who_is_by_now() {
    let (ops, team) = (Key::new(), Key::new());
    let lines = "acquire = ['*']\nview = ['*']\nbreak = ['*']\nmetrics = true";
    let file = ops.entry("ops", lines) + &team.entry("team", lines);
    let (service, ..) = Service::with_gate(Config::default(), &file);
    let cookie = session(&service, &team).await;
    let asked_before = service.script.asked().len();
    for line in CALLS.into_iter().chain(LOOKS) {
        for named in ["ops", "tea", "team2", "Team", ""] {
            let with = [("cookie", cookie.as_str()), OURS, ("signed-in-as", named)];
            let answer = service.call(line, &with).await;
            let refused = (401, "unauthorized");
            assert_eq!(answer.problem(), refused, "{line} {named}");
            assert!(
                answer.body.contains("belongs to another API key"),
                "{}",
                answer.body
            );
        }
    }
    assert_eq!(service.script.asked().len(), asked_before);
    let both = format!("{}; {cookie}", session(&service, &ops).await);
    for (cookie, named) in [(&cookie, "team"), (&both, "team"), (&both, "ops")] {
        let with = [("cookie", cookie.as_str()), OURS, ("signed-in-as", named)];
        let answer = service.call("GET /locks/a", &with).await;
        assert_eq!(answer.status, 200, "{named}: {}", answer.body);
    }
}
