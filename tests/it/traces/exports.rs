//! The export of spans: sampling, forwarding, encryption, and a collector that is away.

use std::{thread, time::Duration};

use rustix::process::Signal;
use tokio::time::Instant;

use super::collector::{Collector, attribute};
use crate::support::{
    Authority, RedisServer,
    fake_gateway::{FakeGateway, Reply},
    gateway::{Gateway, Setup},
    program::{latchgate, typed},
    spawn,
};

/// The metrics of a gateway, as curl gets them.
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
    // The lookups of the metrics create spans, too.
    until("messages arrive", || {
        scrape(&gateway).contains("\nlatchgate_store_channel 1\n")
    });
    let url = gateway.url();
    let ran = typed("acquire deploy").env("LATCHGATE_URL", &url);
    assert_eq!(ran.read().code, Some(0));
    let text = scrape(&gateway);
    let asked = "latchgate_store_duration_seconds_count{operation=\"acquire\"} 1";
    assert!(text.contains(asked), "{text}");
    // These spans belong to later requests than the scrapes.
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
    let setup = collector
        .setup()
        .with("LATCHGATE_HTTP_TLS_CERT_FILE", &files.certificate())
        .with("LATCHGATE_HTTP_TLS_KEY_FILE", &files.key());
    let gateway = Gateway::start_with(setup);
    gateway
        .typed("acquire deploy")
        .env("LATCHGATE_CA_FILE", &authority.file())
        .ends(0);
    let server = collector.span("POST /locks/{name}");
    let scheme = attribute(&server.attributes, "url.scheme");
    assert_eq!(scheme.as_deref(), Some("https"));
}

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_command_sends_the_trace_of_its_environment() {
    for (parent, state, sent) in [
        (PARENT, "a=1", Some(PARENT)),
        (PARENT, "", Some(PARENT)),
        ("nonsense", "a=1", None),
        ("", "a=1", None),
    ] {
        let gateway = FakeGateway::new([Reply::problem(404, "not-found", "")]);
        typed(&format!("inspect a --url {}", gateway.url))
            .env("TRACEPARENT", parent)
            .env("TRACESTATE", state)
            .read();
        let received = &gateway.received()[0];
        assert_eq!(received.header("traceparent"), sent, "{parent}");
        let state = Some(state).filter(|state| sent.is_some() && !state.is_empty());
        assert_eq!(received.header("tracestate"), state, "{parent}");
    }
}

#[test]
fn run_gives_it_to_its_command() {
    let gateway = Gateway::start();
    let script = "echo $TRACEPARENT $TRACESTATE";
    let ran = gateway
        .typed(&format!("run deploy -- sh -c '{script}'"))
        .env("TRACEPARENT", PARENT)
        .env("TRACESTATE", "a=1")
        .read();
    assert_eq!(ran.out, format!("{PARENT} a=1\n"), "{ran:?}");
}

fn inspect(gateway: &Gateway) {
    gateway.typed("inspect deploy").ends(0);
}

#[test]
fn one_of_a_private_authority_is_believed_if_the_authority_is_named() {
    let authority = Authority::new();
    let collector = Collector::certified(&authority.of_this_machine());
    let setup = collector
        .setup()
        .with("LATCHGATE_TRACE_CA_FILE", &authority.file());
    let gateway = Gateway::start_with(setup);
    inspect(&gateway);
    collector.span("GET /locks/{name}");
}

#[test]
fn one_that_is_not_believed_is_sent_nothing_and_the_log_says_why() {
    let (authority, other) = (Authority::new(), Authority::new());
    let collector = Collector::certified(&authority.of_this_machine());
    let setup = collector
        .setup()
        .with("LATCHGATE_TRACE_CA_FILE", &other.file());
    let gateway = Gateway::start_with(setup);
    inspect(&gateway);
    let said = "its certificate is not trusted: ";
    until(said, || gateway.log().contains(said));
    assert_eq!(collector.asked(), 0);
}

#[test]
fn a_file_that_cannot_be_used_stops_the_start_and_the_check() {
    for command in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["config", "check"],
    ] {
        let refused = latchgate(command)
            .env("LATCHGATE_TRACE_ENDPOINT", "https://127.0.0.1:1")
            .env("LATCHGATE_TRACE_CA_FILE", "/nowhere.pem")
            .ends(2);
        let said = "trace.ca_file cannot be used: /nowhere.pem cannot be read";
        refused.says(said);
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "not yet: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_that_is_not_there_is_a_warning_and_the_gateway_ends_in_time() {
    // The port of a closed listener accepts no connection.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let setup = Setup::default().with("LATCHGATE_TRACE_ENDPOINT", &endpoint);
    let mut gateway = Gateway::start_with(setup);
    let warned = || {
        gateway
            .log()
            .matches("traces cannot be sent to the collector")
            .count()
    };
    inspect(&gateway);
    until("the warning", || warned() == 1);
    // The export is repeated after a second, and not logged again.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(2_500) {
        inspect(&gateway);
    }
    assert_eq!(warned(), 1, "{}", gateway.log());
    gateway.signal(Signal::TERM);
    let begin = Instant::now();
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_one_could_not_take_for_a_while_it_gets_later() {
    let collector = Collector::answering(503);
    let gateway = collector.gateway();
    inspect(&gateway);
    until("it was asked", || collector.asked() > 0);
    collector.answer(200);
    collector.span("GET /locks/{name}");
    until("the log says so", || {
        gateway
            .log()
            .contains("traces are sent to the collector again")
    });
}

#[test]
fn what_one_refuses_is_not_sent_again() {
    let collector = Collector::answering(400);
    let gateway = collector.gateway();
    inspect(&gateway);
    until("it was asked", || collector.asked() == 1);
    collector.answer(200);
    gateway.typed("list").read();
    collector.span("GET /locks");
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.name != "GET /locks/{name}"));
}

#[test]
fn the_last_spans_are_sent_before_the_end() {
    let collector = Collector::start();
    let mut gateway = collector.gateway();
    inspect(&gateway);
    // The gateway has not exported any span yet.
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    let names: Vec<_> = collector
        .spans()
        .into_iter()
        .map(|span| span.name)
        .collect();
    assert!(names.contains(&"GET /locks/{name}".to_owned()), "{names:?}");
}

#[test]
fn one_that_hangs_does_not_hold_up_the_end() {
    let collector = Collector::answering(0);
    let mut gateway = collector.gateway();
    inspect(&gateway);
    until("it was asked", || collector.asked() > 0);
    gateway.signal(Signal::TERM);
    let begin = Instant::now();
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    // A second of quiet, two for the collector, and the rest for a busy machine.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}
