//! Listening itself: the query, the head of the answer, the end, how many.

use axum::body::Body;
use http::Request;
use latchgate::config::Config;
use serde_json::json;

use crate::api::service::{ApiResponse, Service};

use super::{
    reader::Reader,
    site::{Site, acquire},
};

#[tokio::test]
async fn it_is_a_stream_that_nobody_on_the_way_may_keep() {
    let service = Service::start();
    let request = Request::get("/events").body(Body::empty()).unwrap();
    let answer = service.unread(request).await;
    assert_eq!(answer.status(), 200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(answer.headers()[name], value);
    }
    let reader = Reader::of(&service).await;
    let id = &reader.last_id;
    let greeting = format!(":\nretry: 2000\nid: {id}\n\n");
    assert_eq!(reader.raw, greeting, "so that proxies pass on the head");
    assert!(id.ends_with("-0"), "{id}");
}

#[tokio::test]
async fn an_event_is_written_like_this() {
    let service = Service::start();
    let mut reader = Reader::of(&service).await;
    service.acquire("{}").await;
    let mut event = reader.expect("acquired").await;
    assert_eq!(event["at"].take().as_str().unwrap().len(), 24);
    insta::assert_json_snapshot!(event, @r#"
    {
      "at": null,
      "expires_in_ms": 30000,
      "fencing_token": 42,
      "kind": "acquired",
      "mode": "exclusive",
      "name": "a",
      "owner": null,
      "slot": null,
      "waited_ms": 0
    }
    "#);
}

#[tokio::test]
async fn only_names_with_the_prefix_are_told() {
    let site = Site::embedded();
    let gateway = site.gateway();
    let mut reader = Reader::with(gateway, "?prefix=te%61m:", None).await;
    for name in ["team", "team2:a", "Team:a", "x-team:a", "team:a"] {
        acquire(gateway, name, &json!({})).await;
    }
    assert_eq!(reader.expect("acquired").await["name"], "team:a");
    drop(reader);
    let mut all = Reader::with(gateway, "?prefix=", None).await;
    acquire(gateway, "other", &json!({})).await;
    assert_eq!(all.expect("acquired").await["name"], "other");
}

#[tokio::test]
async fn a_query_that_is_not_understood_is_refused() {
    let service = Service::start();
    let wrong = |query: &str| {
        let target = format!("/events?{query}");
        let service = &service;
        async move { service.get(&target).await.errors() }
    };
    assert_eq!(
        wrong("prefx=a").await,
        ["query.prefx: is not known; the only parameter of this call is prefix"]
    );
    assert_eq!(
        wrong("prefix=a&prefix=b").await,
        ["query.prefix: is given more than once"]
    );
    assert_eq!(
        wrong("prefix=a*").await,
        ["query.prefix: has '*' in it; allowed are ASCII letters, digits and . _ : @ ~ -"]
    );
    assert_eq!(
        wrong("prefix=%ff").await,
        ["query.prefix: is not UTF-8 after percent-decoding"]
    );
    assert_eq!(
        wrong(&format!("prefix={}", "a".repeat(201))).await,
        ["query.prefix: has 201 bytes; a lock name has at most 200"]
    );
    let many = (0..100).map(|n| format!("p{n}=1")).collect::<Vec<_>>();
    assert_eq!(wrong(&many.join("&")).await.len(), 16);
}

#[tokio::test]
async fn it_needs_a_caller_that_takes_event_streams() {
    let html = [("accept", "text/html")];
    let answer = Service::start()
        .ask(http::Method::GET, "/events", &html, "")
        .await;
    assert_eq!(answer.problem(), (406, "not-acceptable".to_owned()));
}

#[tokio::test]
async fn one_too_many_is_refused_until_another_one_leaves() {
    let mut config = Config::default();
    config.limits.max_event_streams = 2;
    let service = Service::with(config);
    let (_one, two) = (Reader::of(&service).await, Reader::of(&service).await);
    let refused: ApiResponse = service.get("/events").await;
    assert_eq!(refused.problem(), (503, "overloaded".to_owned()));
    assert_eq!(refused.header("retry-after"), "5");
    drop(two);
    Reader::of(&service).await;
}

#[tokio::test]
async fn a_gateway_that_drains_ends_it_after_what_was_told() {
    let service = Service::start();
    let mut reader = Reader::of(&service).await;
    service.acquire("{}").await;
    reader.expect("acquired").await;
    service.lifecycle.drain();
    let end = reader.next().await.unwrap();
    assert_eq!((end.kind.as_str(), end.id.as_str()), ("end", ""));
    assert_eq!(end.data, json!({"kind": "end", "reason": "draining"}));
    reader.ends().await;
    let refused = service.get("/events").await;
    assert_eq!(refused.problem(), (503, "draining".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn something_comes_every_ten_seconds_and_says_where_to_read_on() {
    let service = Service::start();
    let mut reader = Reader::with(&service, "?prefix=b", None).await;
    service.acquire("{}").await;
    let begin = tokio::time::Instant::now();
    let first = reader.last_id.clone();
    while reader.last_id == first {
        // Nothing that anybody wants has happened.
        let next = tokio::time::timeout(std::time::Duration::from_secs(11), reader.next());
        assert!(next.await.is_err());
    }
    assert!(begin.elapsed() < std::time::Duration::from_secs(12));
    let id = reader.last_id.clone();
    assert!(id.ends_with("-1"), "{id}");
    assert!(
        reader.raw.ends_with(&format!("\n\n:\nid: {id}\n\n")),
        "{}",
        reader.raw
    );
}

#[tokio::test]
async fn whoever_listens_takes_no_room_from_those_who_ask() {
    let mut config = Config::default();
    config.http.max_concurrent_requests = 1;
    let service = Service::with(config);
    let mut reader = Reader::of(&service).await;
    assert_eq!(service.get("/openapi.json").await.status, 200);
    assert_eq!(service.acquire("{}").await.status, 201);
    reader.expect("acquired").await;
}
