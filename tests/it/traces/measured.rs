//! Traces beside metrics and TLS.

use std::{thread, time::Duration};

use tokio::time::Instant;

use super::collector::{Collector, attribute};
use crate::support::{
    Authority, RedisServer,
    gateway::{Gateway, Setup},
    program::latchgate,
    spawn,
};

/// What a gateway counts, as curl shows it.
fn scrape(gateway: &Gateway) -> String {
    let output = spawn::command("curl")
        .args(["--silent", "--show-error", "--max-time", "20"])
        .arg(gateway.url() + "/metrics")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_store_that_is_traced_is_measured_too_and_a_scrape_is_no_span() {
    let redis = RedisServer::start().await;
    let collector = Collector::start();
    let setup = Setup::default()
        .with("LATCHGATE_STORE", &redis.url().to_string())
        .with("LATCHGATE_TRACE_ENDPOINT", &collector.endpoint);
    let gateway = Gateway::start_with(setup);
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let text = scrape(&gateway);
        // What is looked up goes through the spans, too.
        if text.contains("\nlatchgate_store_channel 1\n") {
            break;
        }
        assert!(Instant::now() < deadline, "{text}");
        thread::sleep(Duration::from_millis(5));
    }
    let url = gateway.url();
    let ran = latchgate(&["acquire", "deploy"]).env("LATCHGATE_URL", &url);
    assert_eq!(ran.read().code, Some(0));
    let text = scrape(&gateway);
    let asked = "latchgate_store_duration_seconds_count{operation=\"acquire\"} 1";
    assert!(text.contains(asked), "{text}");
    // Of later requests than the scrapes.
    collector.span("acquire");
    collector.span("POST /locks/{name}");
    let spans = collector.spans();
    assert!(
        spans.iter().all(|span| !span.name.contains("/metrics")),
        "{spans:#?}"
    );
}

#[test]
fn a_span_says_that_a_request_came_over_tls() {
    let collector = Collector::start();
    let authority = Authority::new();
    let files = authority.of_this_machine();
    let setup = Setup::default()
        .with("LATCHGATE_TRACE_ENDPOINT", &collector.endpoint)
        .with("LATCHGATE_HTTP_TLS_CERT_FILE", &files.certificate())
        .with("LATCHGATE_HTTP_TLS_KEY_FILE", &files.key());
    let gateway = Gateway::start_with(setup);
    let ran = latchgate(&["acquire", "deploy"])
        .env("LATCHGATE_URL", &gateway.url())
        .env("LATCHGATE_CA_FILE", &authority.file())
        .read();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let server = collector.span("POST /locks/{name}");
    let scheme = attribute(&server.attributes, "url.scheme");
    assert_eq!(scheme.as_deref(), Some("https"));
}
