//! Who may hear what.

use std::time::Duration;

use http::Method;
use latchgate::{
    auth::{Gate, KeysFile},
    config::Config,
};
use tokio::time::timeout;

use crate::api::{
    key::Key,
    service::{JSON, Service},
};

use super::reader::Reader;

/// How long something that must come is waited for.
const TIMEOUT: Duration = Duration::from_secs(15);

fn replace(gate: &Gate, file: &str) {
    gate.replace(KeysFile::new("keys.toml").parse(file).unwrap());
}

async fn acquire(service: &Service, key: &Key, lock: &str) {
    let target = format!("/locks/{lock}");
    let answer = service.ask(Method::POST, &target, &[key.auth()], "").await;
    assert_eq!(answer.status, 201, "{}", answer.body);
}

async fn refused(service: &Service, headers: &[(&str, &str)]) -> (u16, String) {
    service
        .ask(Method::GET, "/events?prefix=team", headers, "")
        .await
        .problem()
}

#[tokio::test]
async fn a_key_hears_of_the_locks_that_it_may_view() {
    let (worker, viewer) = (Key::new(), Key::new());
    let file = worker.entry("worker", "acquire = ['*']")
        + &viewer.entry("viewer", "view = ['team:', 'public']");
    let service = Service::with_keys(&file);
    let mut reader = Reader::sending(&service, "", Some(viewer.auth())).await;
    for lock in ["team2:a", "team", "xteam:a", "team:a", "public"] {
        acquire(&service, &worker, lock).await;
    }
    assert_eq!(reader.expect("acquired").await["name"], "team:a");
    assert_eq!(reader.expect("acquired").await["name"], "public");
    assert!(!reader.raw.contains("team2"), "{}", reader.raw);
}

#[tokio::test]
async fn who_may_view_a_lock_hears_who_broke_it_and_who_asked_for_it() {
    let (worker, viewer, operator) = (Key::new(), Key::new(), Key::new());
    let file = worker.entry("worker", "acquire = ['*']")
        + &viewer.entry("viewer", "view = ['*']")
        + &operator.entry("ops", "break = ['*']");
    let service = Service::with_keys(&file);
    let mut reader = Reader::sending(&service, "", Some(viewer.auth())).await;
    acquire(&service, &worker, "a").await;
    reader.expect("acquired").await;
    for (grace, status, kind) in [(60_000, 202, "release-requested"), (0, 200, "broken")] {
        let body = format!(r#"{{"reason":"it hangs","grace_ms":{grace}}}"#);
        let headers = [operator.auth(), JSON[0]];
        let answer = service.ask(Method::POST, "/locks/a/break", &headers, body);
        assert_eq!(answer.await.status, status);
        let event = reader.expect(kind).await;
        assert_eq!(
            (&event["by"], &event["reason"]),
            (&"ops".into(), &"it hangs".into())
        );
    }
}

#[tokio::test]
async fn a_key_without_view_and_nobody_at_all_hears_nothing() {
    let worker = Key::new();
    let service = Service::with_keys(&worker.entry("worker", "acquire = ['*']\nbreak = ['*']"));
    let forbidden = refused(&service, &[worker.auth()]).await;
    assert_eq!(forbidden, (403, "forbidden".to_owned()));
    assert_eq!(
        refused(&service, &[]).await,
        (401, "unauthorized".to_owned())
    );
    let unknown = Key::new();
    let unknown = refused(&service, &[unknown.auth()]).await;
    assert_eq!(unknown, (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn a_key_that_may_see_less_hears_less_at_once() {
    let key = Key::new();
    let all = key.entry("ops", "acquire = ['*']\nview = ['*']");
    let (service, gate, _) = Service::with_gate(Config::default(), &all);
    let mut reader = Reader::sending(&service, "", Some(key.auth())).await;
    acquire(&service, &key, "a").await;
    reader.expect("acquired").await;
    replace(&gate, &key.entry("ops", "acquire = ['*']\nview = ['b']"));
    for lock in ["a", "b"] {
        acquire(&service, &key, lock).await;
    }
    assert_eq!(reader.expect("acquired").await["name"], "b");
}

#[tokio::test]
async fn a_page_is_told_that_its_key_may_do_something_else_by_now_and_no_other_caller_is() {
    let key = Key::new();
    let all = key.entry("ops", "acquire = ['*']\nview = ['*']\nbreak = ['*']");
    let less = key.entry("ops", "acquire = ['*']\nview = ['*']");
    let (service, gate, _) = Service::with_gate(Config::default(), &all);
    let body = serde_json::json!({ "key": key.key.expose() }).to_string();
    let signed_in = service.ask(Method::POST, "/session", JSON, body).await;
    let (cookie, _) = signed_in.header("set-cookie").split_once(';').unwrap();
    let mut page = Reader::sending(&service, "", Some(("cookie", cookie))).await;
    let mut caller = Reader::sending(&service, "", Some(key.auth())).await;
    for file in [&less, &all] {
        replace(&gate, file);
        // Heartbeats come all the time.
        let told = timeout(TIMEOUT, page.expect("session")).await.unwrap();
        assert_eq!(told, serde_json::json!({ "kind": "session" }));
    }
    // Also one that comes while nobody asks for more.
    acquire(&service, &key, "a").await;
    replace(&gate, &less);
    let heard = page.up_to(|heard| heard.kind == "session");
    let heard = timeout(TIMEOUT, heard).await.unwrap();
    assert!(heard.len() <= 2, "{heard:?}");
    caller.expect("acquired").await;
    assert!(!caller.raw.contains("session"), "{}", caller.raw);
}

#[tokio::test]
async fn a_key_that_is_gone_or_may_see_nothing_more_ends_the_stream() {
    for left in ["", "acquire = ['*']"] {
        let (key, other) = (Key::new(), Key::new());
        let all = key.entry("ops", "view = ['*']");
        let (service, gate, _) = Service::with_gate(Config::default(), &all);
        let mut reader = Reader::sending(&service, "", Some(key.auth())).await;
        let holder = if left.is_empty() { &other } else { &key };
        replace(&gate, &holder.entry("ops", "acquire = ['*']"));
        assert_eq!(reader.expect("end").await["reason"], "revoked");
        reader.ends().await;
    }
}

#[tokio::test]
async fn a_stream_counts_for_its_key_as_long_as_it_lasts() {
    let key = Key::new();
    let file = key.entry("ops", "view = ['*']\nmax_streams = 1");
    let service = Service::with_keys(&file);
    let reader = Reader::sending(&service, "", Some(key.auth())).await;
    let refused = refused(&service, &[key.auth()]).await;
    assert_eq!(refused.0, 429, "{refused:?}");
    drop(reader);
    Reader::sending(&service, "", Some(key.auth())).await;
}
