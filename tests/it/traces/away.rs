//! A collector that is away, hangs or refuses costs spans and nothing else.

use std::{thread, time::Duration};

use rustix::process::Signal;
use tokio::time::Instant;

use super::collector::Collector;
use crate::support::{
    gateway::{Gateway, Setup},
    program::latchgate,
};

fn sending_to(endpoint: &str) -> Gateway {
    Gateway::start_with(Setup::default().with("LATCHGATE_TRACE_ENDPOINT", endpoint))
}

fn inspect(gateway: &Gateway) {
    let inspected = latchgate(&["inspect", "deploy", "--url", &gateway.url()]).read();
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
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
    // Nobody listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let mut gateway = sending_to(&endpoint);
    let warned = || gateway.log().matches("cannot be told of traces").count();
    inspect(&gateway);
    until("the warning", || warned() == 1);
    // Tried again after a second, and not said again.
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
    let gateway = sending_to(&collector.endpoint);
    inspect(&gateway);
    until("it was asked", || collector.asked() > 0);
    collector.answer(200);
    collector.span("GET /locks/{name}");
    until("the log says so", || {
        gateway.log().contains("is told of traces again")
    });
}

#[test]
fn what_one_refuses_is_not_sent_again() {
    let collector = Collector::answering(400);
    let gateway = sending_to(&collector.endpoint);
    inspect(&gateway);
    until("it was asked", || collector.asked() == 1);
    collector.answer(200);
    latchgate(&["list", "--url", &gateway.url()]).read();
    collector.span("GET /locks");
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.name != "GET /locks/{name}"));
}

#[test]
fn the_last_spans_are_sent_before_the_end() {
    let collector = Collector::start();
    let mut gateway = sending_to(&collector.endpoint);
    inspect(&gateway);
    // Before it has gathered any.
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
    let mut gateway = sending_to(&collector.endpoint);
    inspect(&gateway);
    until("it was asked", || collector.asked() > 0);
    gateway.signal(Signal::TERM);
    let begin = Instant::now();
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    // A second of quiet, two for the collector, and the rest for a machine that does other things.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}
