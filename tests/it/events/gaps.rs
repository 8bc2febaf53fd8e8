//! Reading on where a stream was cut, and being told when that cannot be done.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::api::service::Service;

use super::{
    reader::{Reader, ReceivedEvent},
    site::{Site, acquire},
};

async fn after(service: &Service, query: &str, id: &str) -> Reader {
    Reader::with(service, query, Some(id)).await
}

/// The names of the events that come, up to this one.
async fn names(reader: &mut Reader, last: &str) -> Vec<String> {
    let heard = reader.up_to(|heard| heard.data["name"] == last).await;
    let name = |heard: &ReceivedEvent| heard.data["name"].as_str().unwrap().to_owned();
    heard.iter().map(name).collect()
}

#[tokio::test]
async fn what_happened_meanwhile_is_read_exactly_once() {
    let site = Site::embedded();
    let gateway = site.gateway();
    let mut reader = Reader::of(gateway).await;
    for name in ["a", "b", "c"] {
        acquire(gateway, name, &json!({})).await;
    }
    let heard = reader.up_to(|heard| heard.data["name"] == "b").await;
    drop(reader);
    acquire(gateway, "d", &json!({})).await;
    let mut again = after(gateway, "", &heard[1].id).await;
    acquire(gateway, "e", &json!({})).await;
    assert_eq!(names(&mut again, "e").await, ["c", "d", "e"]);
    // The same for one who has read nothing yet.
    let first = heard[0].id.rsplit_once('-').unwrap().0.to_owned() + "-0";
    let mut again = after(gateway, "", &first).await;
    assert_eq!(names(&mut again, "e").await, ["a", "b", "c", "d", "e"]);
    // And for one who has read everything.
    let mut again = after(gateway, "", &again.last_id).await;
    acquire(gateway, "f", &json!({})).await;
    assert_eq!(names(&mut again, "f").await, ["f"]);
}

#[tokio::test]
async fn an_id_that_this_gateway_did_not_give_is_answered_with_a_gap() {
    let site = Site::embedded();
    let gateway = site.gateway();
    let reader = Reader::of(gateway).await;
    let ours = reader.last_id.rsplit_once('-').unwrap().0;
    let future = format!("{ours}-7");
    let last = format!("{ours}-{}", u64::MAX);
    for id in ["0123456789abcdef-0", &future, &last, "x", "-", "-1", ours] {
        let mut reader = after(gateway, "?prefix=nothing", id).await;
        let gap = reader.expect("gap").await;
        assert_eq!(gap["reason"], "unknown-id", "{id}");
        assert_eq!(gap.get("name"), None);
    }
}

#[tokio::test]
async fn behind_a_gap_it_goes_on_and_the_gap_is_not_told_again() {
    let site = Site::embedded();
    let gateway = site.gateway();
    let mut reader = after(gateway, "", "x").await;
    let gap = reader.next().await.unwrap();
    acquire(gateway, "a", &json!({})).await;
    assert_eq!(reader.expect("acquired").await["name"], "a");
    let mut again = after(gateway, "", &gap.id).await;
    assert_eq!(again.expect("acquired").await["name"], "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_kept_any_more_is_a_gap_and_the_rest_is_read() {
    let service = Service::start();
    let mut reader = Reader::of(&service).await;
    let begin = reader.last_id.clone();
    for _ in 0..8_193 {
        service.acquire("{}").await;
        // It keeps up.
        reader.expect("acquired").await;
    }
    let mut again = after(&service, "", &begin).await;
    assert_eq!(again.expect("gap").await["reason"], "too-old");
    let first = again.next().await.unwrap();
    assert!(first.id.ends_with("-2"), "{first:?}");
    let heard = again.up_to(|heard| heard.id == reader.last_id).await;
    assert_eq!(heard.len(), 8_191);
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_a_minute_after_the_last_has_left_and_no_longer() {
    let service = Service::start();
    let reader = Reader::of(&service).await;
    let id = reader.last_id.clone();
    drop(reader);
    sleep(Duration::from_secs(50)).await;
    service.acquire("{}").await;
    let mut again = after(&service, "", &id).await;
    again.expect("acquired").await;
    let id = again.last_id.clone();
    drop(again);
    sleep(Duration::from_secs(70)).await;
    service.acquire("{}").await;
    let mut again = after(&service, "", &id).await;
    assert_eq!(again.expect("gap").await["reason"], "too-old");
}
