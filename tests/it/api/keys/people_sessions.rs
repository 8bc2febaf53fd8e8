//! Sessions of people that have signed in at an issuer: their ends, and what they do not stand in for.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    exchange::NOW,
    people::{AUDIENCE, Browser, OURS, PEOPLE, Rig, sentence},
};
use crate::api::prelude::*;

const PROGRAMS: &str =
    "[[key]]\nname = 'ci'\nissuer = 'i'\nclaims = { tid = 't' }\nacquire = ['*']\n";

#[tokio::test]
async fn a_session_that_was_put_into_a_browser_is_replaced_and_each_sign_in_begins_a_new_one() {
    let rig = Rig::start(PEOPLE).await;
    let (mut ann, mut eve) = (Browser::default(), Browser::default());
    rig.sign_in(&mut eve, |claims| {
        claims["email"] = json!("eve@example.com");
    })
    .await
    .is(200);
    let fixed = eve.0["latchgate-session"].clone();
    ann.0.insert("latchgate-session".to_owned(), fixed.clone());
    rig.sign_in(&mut ann, |_| {}).await.is(200);
    let first = ann.0["latchgate-session"].clone();
    assert_ne!(first, fixed);
    assert_eq!(rig.name(&ann).await, "ann@example.com (ops)");
    rig.sign_in(&mut ann, |_| {}).await.is(200);
    assert_ne!(ann.0["latchgate-session"], first);
}

#[tokio::test]
async fn tokens_of_people_and_of_programs_do_not_stand_in_for_each_other() {
    let rig = Rig::start(&format!("{PEOPLE}{PROGRAMS}")).await;
    let mut ann = Browser::default();
    let attempt = rig.begin(&mut ann, "/dashboard").await;
    let exchange = async |aud: Value| {
        let mut claims = rig.ann(&attempt);
        claims["aud"] = aud;
        let body = json!({"id_token": rig.token(&claims)}).to_string();
        rig.service.ask("POST /session/token", JSON, body).await
    };
    assert_eq!(exchange(json!("page")).await.status, 401);
    assert_eq!(exchange(json!([AUDIENCE, "page"])).await.status, 401);
    let program = exchange(json!(AUDIENCE)).await.is(201);
    let key = program["key"].as_str().unwrap().to_owned();
    assert_eq!(program["name"], "ci");
    let answer = rig
        .sign_in(&mut ann, |claims| claims["aud"] = json!(AUDIENCE))
        .await;
    assert_eq!(sentence(&answer).0, 403);
    // Nor a cookie for a key, or a key for a cookie.
    rig.sign_in(&mut ann, |_| {}).await.is(200);
    let cookie = ann.0["latchgate-session"].clone();
    let as_key = |text: &str| format!("Bearer {text}");
    for text in [cookie.clone(), cookie.replace("lgs_", "lgx_")] {
        let header = as_key(&text);
        rig.service
            .call("GET /locks", &[("authorization", &header)])
            .await
            .is(401);
    }
    for text in [key.clone(), key.replace("lgx_", "lgs_")] {
        let browser = Browser(BTreeMap::from([("latchgate-session".to_owned(), text)]));
        rig.ask(&browser, "GET /locks", "").await.is(401);
    }
    rig.service
        .call("GET /session", &[("authorization", &as_key(&key))])
        .await
        .is(200);
}

#[tokio::test]
async fn a_session_ends_after_the_shorter_time_and_nothing_is_renewed_beyond_it() {
    let rig = Rig::start(&PEOPLE.replace("[[key]]", "[[key]]\nsession_ms = 60000")).await;
    let mut ann = Browser::default();
    rig.sign_in(&mut ann, |_| {}).await.is(200);
    let lease = rig
        .ask(&ann, "POST /locks/a", r#"{"ttl_ms": 3600000}"#)
        .await
        .is(201)
        .json();
    let token = lease["token"].as_str().unwrap().to_owned();
    let cookie = ann.header();
    let renew = async || {
        let headers = [
            ("cookie", cookie.as_str()),
            OURS,
            ("lock-token", token.as_str()),
        ];
        rig.service
            .call("PUT /locks/a/renew", &headers)
            .await
            .status
    };
    assert_eq!(renew().await, 200);
    rig.clock.advance(Duration::from_mins(1));
    assert_eq!(renew().await, 401);
    assert_eq!(rig.name(&ann).await, Value::Null);
    // A page that sends its old cookie makes no guess.
    for _ in 0..100 {
        assert_eq!(rig.ask(&ann, "GET /locks", "").await.status, 401);
    }
}

#[tokio::test]
async fn a_session_ends_at_once_when_it_is_revoked_or_its_key_has_other_rules() {
    let rig = Rig::start(PEOPLE).await;
    let mut ann = Browser::default();
    let later = "name = 'ops'\nsessions_after = 2026-11-20T12:01:00Z";
    for (from, to, back) in [
        ("name = 'ops'", "name = 'oops'", true),
        ("groups = 'ops'", "groups = 'admins'", true),
        ("client_id = 'page'", "client_id = 'new'", true),
        ("for = 'people'\n", "#\n", true),
        ("name = 'ops'", later, false),
    ] {
        rig.sign_in(&mut ann, |_| {}).await.is(200);
        let cookie = ann.header();
        let headers = [("cookie", cookie.as_str()), OURS];
        let mut events = rig.service.stream("GET /events", &headers, "").await;
        rig.change(from, to);
        assert_eq!(rig.name(&ann).await, Value::Null, "{to}");
        let ended = async { while events.frame().await.is_some() {} };
        timeout(Duration::from_secs(20), ended).await.unwrap();
        if back {
            rig.change(to, from);
        }
    }
    // Permissions change at once, and the session goes on.
    rig.clock.advance(Duration::from_mins(2));
    rig.sign_in(&mut ann, |claims| claims["iat"] = json!(NOW + 120))
        .await
        .is(200);
    rig.change("acquire = ['*']", "acquire = ['b']");
    assert_eq!(rig.ask(&ann, "POST /locks/a", "{}").await.status, 403);
    assert_eq!(rig.ask(&ann, "POST /locks/b", "{}").await.status, 201);
}

#[tokio::test]
async fn people_are_shown_by_the_claim_that_the_operator_has_chosen() {
    let keys = format!("shown_claim = 'preferred_username'\nkey_form = false\n{PEOPLE}");
    let rig = Rig::start(&keys).await;
    let mut ann = Browser::default();
    let offer = rig.ask(&ann, "GET /session", "").await.is(200);
    assert_eq!(offer["sign_in"]["key_form"], false);
    for (claim, shown) in [
        (json!("ann"), "ann (ops)"),
        (json!(" J\u{f6}rg\n\u{202e} "), "J?rg?? (ops)"),
        (json!(7), "248289761001 (ops)"),
        (json!(" "), "248289761001 (ops)"),
    ] {
        rig.sign_in(&mut ann, |claims| claims["preferred_username"] = claim)
            .await
            .is(200);
        assert_eq!(rig.name(&ann).await, shown);
        rig.ask(&ann, "GET /locks", "").await.is(200);
    }
    let sealed = URL_SAFE_NO_PAD
        .decode(&ann.0["latchgate-session"]["lgs_".len()..])
        .unwrap();
    assert!(!String::from_utf8_lossy(&sealed).contains("248289761001"));
}
