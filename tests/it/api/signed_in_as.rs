//! A page says who it takes to be signed in: a browser has one session for all its pages.

use http::Method;
use latchgate::config::Config;

use super::{
    key::Key,
    service::Service,
    session_cookies::{CALLS, OURS, session},
};

#[tokio::test]
async fn what_a_page_sends_for_one_who_was_signed_in_is_not_done_for_who_is_by_now() {
    let (ops, team) = (Key::new(), Key::new());
    let lines = "acquire = ['*']\nview = ['*']\nbreak = ['*']\nmetrics = true";
    let file = ops.entry("ops", lines) + &team.entry("team", lines);
    let (service, ..) = Service::with_gate(Config::default(), &file);
    let cookie = session(&service, &team).await;
    let asked_before = service.script.asked().len();
    let looks = [
        (Method::GET, "/locks/a"),
        (Method::GET, "/locks"),
        (Method::GET, "/stats"),
    ];
    for (method, target) in CALLS.into_iter().chain(looks) {
        for named in ["ops", "tea", "team2", "Team", ""] {
            let with = [("cookie", cookie.as_str()), OURS, ("signed-in-as", named)];
            let answer = service.ask(method.clone(), target, &with, "").await;
            let refused = (401, "unauthorized".to_owned());
            assert_eq!(answer.problem(), refused, "{method} {target} {named}");
            assert!(answer.body.contains("Somebody else"), "{}", answer.body);
        }
    }
    assert_eq!(service.script.asked().len(), asked_before);
    let both = format!("{}; {cookie}", session(&service, &ops).await);
    for (cookie, named) in [(&cookie, "team"), (&both, "team"), (&both, "ops")] {
        let with = [("cookie", cookie.as_str()), OURS, ("signed-in-as", named)];
        let answer = service.ask(Method::GET, "/locks/a", &with, "").await;
        assert_eq!(answer.status, 200, "{named}: {}", answer.body);
    }
}
