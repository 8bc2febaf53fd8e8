//! Which events a key may read, and that no event contains a secret.

use super::fixture::{self, Reader, Site, hold, release, renew};
use crate::api::prelude::*;

/// How long a test waits for an event that must come.
const TIMEOUT: Duration = Duration::from_secs(15);

async fn acquire(service: &Service, key: &Key, lock: &str) {
    let target = format!("/locks/{lock}");
    let answer = service.call(&format!("POST {target}"), &[key.auth()]).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
}

async fn refused(service: &Service, headers: &[(&str, &str)]) -> (u16, &'static str) {
    service
        .call("GET /events?prefix=team", headers)
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
        let answer = service.ask("POST /locks/a/break", &headers, body);
        assert_eq!(answer.await.status, status);
        let event = reader.expect(kind).await;
        assert_eq!(fields(&event, ["by", "reason"]), json!(["ops", "it hangs"]));
    }
}

#[tokio::test]
async fn a_key_without_view_and_nobody_at_all_hears_nothing() {
    let worker = Key::new();
    let service = Service::with_keys(&worker.entry("worker", "acquire = ['*']\nbreak = ['*']"));
    let forbidden = refused(&service, &[worker.auth()]).await;
    assert_eq!(forbidden, (403, "forbidden"));
    assert_eq!(refused(&service, &[]).await, (401, "unauthorized"));
    let unknown = Key::new();
    let unknown = refused(&service, &[unknown.auth()]).await;
    assert_eq!(unknown, (401, "unauthorized"));
}

#[tokio::test]
async fn a_key_that_may_see_less_hears_less_at_once() {
    let key = Key::new();
    let all = key.entry("ops", "acquire = ['*']\nview = ['*']");
    let (service, gate, _) = Service::with_gate(Config::default(), &all);
    let mut reader = Reader::sending(&service, "", Some(key.auth())).await;
    acquire(&service, &key, "a").await;
    reader.expect("acquired").await;
    replaces(&gate, &key.entry("ops", "acquire = ['*']\nview = ['b']"));
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
    let signed_in = service.ask("POST /session", JSON, body).await;
    let (cookie, _) = signed_in.header("set-cookie").split_once(';').unwrap();
    let mut page = Reader::sending(&service, "", Some(("cookie", cookie))).await;
    let mut caller = Reader::sending(&service, "", Some(key.auth())).await;
    for file in [&less, &all] {
        replaces(&gate, file);
        // Heartbeats keep coming meanwhile.
        let told = timeout(TIMEOUT, page.expect("session")).await.unwrap();
        assert_eq!(told, serde_json::json!({ "kind": "session" }));
    }
    // The stream also tells a change of the session that happens while the stream is not read.
    acquire(&service, &key, "a").await;
    replaces(&gate, &less);
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
        replaces(&gate, &holder.entry("ops", "acquire = ['*']"));
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

const KEY: &str = "plantedplantedplanted-5f0c2f5e";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_in_no_event_and_in_no_message_between_gateways() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let (here, there) = (&site.gateways[0], &site.gateways[1]);
    let server = site.server.as_ref().unwrap();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let client = bb8_redis::redis::Client::open(url).unwrap();
    let mut messages = client.get_async_pubsub().await.unwrap();
    messages
        .subscribe(&["lg:events", "lg:gw:all"])
        .await
        .unwrap();

    let mut secrets = vec![KEY.to_owned()];
    // With a reader here, this gateway has events to send as well.
    let mut other = site.reader_at(1).await;
    for gateway in [here, there] {
        let key = [("idempotency-key", KEY)];
        let answer = gateway.call("POST /locks/keyed", &key).await;
        let lease = answer.json();
        secrets.push(lease["token"].as_str().unwrap().to_owned());
        renew(gateway, &lease).await;
        let body = json!({"ttl_ms": 300, "max_hold_ms": 400});
        let mut holding = hold(gateway, "held", &body).await;
        let granted = read_until(&mut holding, "token\":\"").await;
        let (_, token) = granted.split_once("token\":\"").unwrap();
        secrets.push(token[..43].to_owned());
        while holding.frame().await.is_some() {}
        drop(gateway.open("POST /locks/abandoned", &[], "").await);
        let short = fixture::acquire(gateway, "short", &json!({"ttl_ms": 100})).await;
        secrets.push(short["token"].as_str().unwrap().to_owned());
        reader
            .up_to(|heard| heard.brief() == "expired short -")
            .await;
    }
    let last = fixture::acquire(there, "last", &json!({})).await;
    release(here, &last).await;
    secrets.push(last["token"].as_str().unwrap().to_owned());
    for reader in [&mut reader, &mut other] {
        reader
            .up_to(|heard| heard.brief() == "released last -")
            .await;
    }
    let mut sent = String::new();
    let mut messages = messages.into_on_message();
    while !sent.contains("\"released\",\"at_ms\"") || !sent.contains("\"name\":\"last\"") {
        let message = messages.next().await.unwrap();
        sent.push_str(&message.get_payload::<String>().unwrap());
    }
    let hashes: Vec<_> = secrets[1..]
        .iter()
        .map(|token| Token::parse(token).unwrap().hash().to_string())
        .collect();
    for secret in secrets.iter().chain(&hashes) {
        for (what, text) in [
            ("events", &reader.raw),
            ("events", &other.raw),
            ("messages", &sent),
        ] {
            assert!(
                !text.contains(secret.as_str()),
                "{what}: {secret} in {text}"
            );
        }
    }
}
