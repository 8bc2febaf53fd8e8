//! A collector that is reached over TLS.

use std::thread;

use tokio::time::Instant;

use crate::support::{
    Authority,
    gateway::{Gateway, Setup},
    program::latchgate,
};

use super::collector::Collector;

fn inspect(gateway: &Gateway) {
    let inspected = latchgate(&["inspect", "deploy", "--url", &gateway.url()]).read();
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
}

#[test]
fn one_of_a_private_authority_is_believed_if_the_authority_is_named() {
    let authority = Authority::new();
    let collector = Collector::certified(&authority.of_this_machine());
    let setup = Setup::default()
        .with("LATCHGATE_TRACE_ENDPOINT", &collector.endpoint)
        .with("LATCHGATE_TRACE_CA_FILE", &authority.file());
    let gateway = Gateway::start_with(setup);
    inspect(&gateway);
    collector.span("GET /locks/{name}");
}

#[test]
fn one_that_is_not_believed_is_sent_nothing_and_the_log_says_why() {
    let (authority, other) = (Authority::new(), Authority::new());
    let collector = Collector::certified(&authority.of_this_machine());
    let setup = Setup::default()
        .with("LATCHGATE_TRACE_ENDPOINT", &collector.endpoint)
        .with("LATCHGATE_TRACE_CA_FILE", &other.file());
    let gateway = Gateway::start_with(setup);
    inspect(&gateway);
    let said = "its certificate is not believed: ";
    let deadline = Instant::now() + std::time::Duration::from_mins(1);
    while !gateway.log().contains(said) {
        assert!(Instant::now() < deadline, "{}", gateway.log());
        thread::sleep(std::time::Duration::from_millis(5));
    }
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
            .read();
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let said = "trace.ca_file cannot be used: /nowhere.pem cannot be read";
        assert!(refused.err.contains(said), "{refused:?}");
    }
}
