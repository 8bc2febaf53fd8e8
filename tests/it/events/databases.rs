//! Gateways on two databases of one Redis: nothing of one is told in the other.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{
    reader::Reader,
    site::{Site, acquire, post, release, renew},
};

/// How long the subscriber is waited for, and its messages.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_in_one_database_is_not_told_in_another() {
    let mut site = Site::redis(1).await;
    site.join_database(1);
    site.join_database(1);
    // Somebody listens in both.
    let mut first = Reader::of(site.gateway()).await;
    let mut second = Reader::of(&site.gateways[1]).await;
    let there = [&site.gateways[1], &site.gateways[2]];
    let deadline = Instant::now() + SOON;
    let heard_there = loop {
        let lease = acquire(there[1], "there", &json!({})).await;
        release(there[1], &lease).await;
        let expected = second.up_to(|heard| heard.data["name"] == "there");
        if let Ok(heard) = timeout(Duration::from_millis(300), expected).await {
            break heard;
        }
        assert!(Instant::now() < deadline, "nothing was heard of its own");
    };
    let lease = acquire(there[0], "there", &json!({"ttl_ms": 60_000})).await;
    renew(there[1], &lease).await;
    let broken = post(
        there[1],
        "/locks/there/break",
        &json!({"reason": "why not"}),
    )
    .await;
    assert_eq!(broken.status, 200, "{}", broken.body);
    for _ in 0..20 {
        let lease = acquire(site.gateway(), "here", &json!({})).await;
        release(site.gateway(), &lease).await;
    }
    acquire(there[0], "last", &json!({})).await;
    acquire(site.gateway(), "last", &json!({})).await;
    for (reader, other) in [(&mut first, "there"), (&mut second, "here")] {
        let heard = reader.up_to(|heard| heard.data["name"] == "last").await;
        assert!(
            heard.iter().all(|heard| heard.data["name"] != other),
            "{heard:?}"
        );
    }
    assert!(
        heard_there
            .iter()
            .all(|heard| heard.data["name"] == "there")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_all_gateways_stay_in_their_database() {
    let mut site = Site::redis(1).await;
    site.join_database(1);
    let server = site.server.as_ref().unwrap();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let client = bb8_redis::redis::Client::open(url).unwrap();
    let mut heard = client.get_async_pubsub().await.unwrap();
    let channels = ["lg:events", "lg:gw:all", "lg:events:1", "lg:gw:all:1"];
    heard.subscribe(&channels).await.unwrap();
    let mut heard = heard.into_on_message();
    let there = &site.gateways[1];
    let _reader = Reader::of(there).await;
    // Its end is told to all, by a script: nobody waits through a gateway that lives.
    let lease = acquire(there, "secret-name", &json!({"ttl_ms": 60_000})).await;
    let broken = post(
        there,
        "/locks/secret-name/break",
        &json!({"reason": "why not"}),
    )
    .await;
    assert_eq!(broken.status, 200, "{}", broken.body);
    drop(lease);
    let mut seen = Vec::new();
    loop {
        let message = timeout(SOON, heard.next()).await;
        let message = message.expect("it is told").unwrap();
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        let message = (message.get_channel_name().to_owned(), text);
        let is_it = message.1.starts_with("broken ") && message.1.ends_with(" secret-name");
        seen.push(message);
        if is_it {
            break;
        }
    }
    for (channel, text) in seen {
        assert!(
            channel.ends_with(":1") || !text.contains("secret-name"),
            "{channel}: {text}"
        );
    }
}
