//! No event shows a token, an idempotency key, or anything that was made of one.

use axum::body::Body;
use futures_util::StreamExt;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::json;

use super::site::{Site, acquire, hold, release, renew};

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
    // A listener here, so that there is something to be sent from here as well.
    let mut other = site.reader_at(1).await;
    for gateway in [here, there] {
        let key = [("idempotency-key", KEY)];
        let answer = gateway.ask(Method::POST, "/locks/keyed", &key, "").await;
        let lease = answer.json();
        secrets.push(lease["token"].as_str().unwrap().to_owned());
        renew(gateway, &lease).await;
        let body = json!({"ttl_ms": 300, "max_hold_ms": 400});
        let mut holding = hold(gateway, "held", &body).await;
        let mut granted = String::new();
        while !granted.contains("token\":\"") {
            let frame = holding.frame().await.unwrap().unwrap();
            granted.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
        let (_, token) = granted.split_once("token\":\"").unwrap();
        secrets.push(token[..43].to_owned());
        while holding.frame().await.is_some() {}
        let abandoned = Request::post("/locks/abandoned").body(Body::empty());
        drop(gateway.unread(abandoned.unwrap()).await);
        let short = acquire(gateway, "short", &json!({"ttl_ms": 100})).await;
        secrets.push(short["token"].as_str().unwrap().to_owned());
        reader
            .up_to(|heard| heard.brief() == "expired short -")
            .await;
    }
    let last = acquire(there, "last", &json!({})).await;
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
        .map(|token| {
            latchgate::lock::Token::parse(token)
                .unwrap()
                .hash()
                .to_string()
        })
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
