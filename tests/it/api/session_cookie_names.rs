//! Under which name the cookie of a session counts, where a browser brings several.

use http::Method;
use latchgate::config::Config;

use super::{
    key::Key,
    service::Service,
    session_cookies::{OURS, session, sign_in, start},
};

#[tokio::test]
async fn over_https_only_a_name_that_nobody_else_can_set_counts() {
    let (service, key) = start("");
    let cookie = session(&service, &key).await;
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
        let answer = service.ask(Method::GET, "/locks/a", &headers, "").await;
        assert_eq!(answer.status, status, "{headers:?}");
    }
    // Somebody else on the host has set one before ours.
    let both = format!("latchgate-session=lgs_AAAA; x=y; {cookie}");
    let answer = service
        .ask(Method::GET, "/locks/a", &[("cookie", &both), OURS], "")
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
    let mut config = Config::default();
    config.auth.max_refused_per_minute = 1;
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
        let shown = service.ask(Method::GET, "/session", &headers, "").await;
        assert_eq!(shown.json()["name"], "viewer", "{brought}");
    }
    // Also when that one is nobody's: whoever was here before is not somebody again.
    let brought = format!("{of_ops}; __Host-latchgate-session=lgs_AAAA");
    let headers = [("cookie", brought.as_str()), OURS];
    let shown = service.ask(Method::GET, "/session", &headers, "").await;
    assert_eq!(shown.json()["signed_in"], false);
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
        let answer = service.ask(Method::GET, "/locks/a", &headers, "").await;
        assert_eq!(answer.status, status, "{origin:?}");
    }
}
