//! How a gateway ends.

use std::{io::Write, net::TcpStream, thread, time::Duration};

use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{
    gateway::{Gateway, Setup},
    program::{Ran, latchgate},
};

fn on(url: &str, arguments: &[&str], token: &str) -> Ran {
    latchgate(arguments)
        .env("LATCHGATE_URL", url)
        .env("LATCHGATE_TOKEN", token)
        .read()
}

/// Waits until the gateway says that it drains.
fn drains(gateway: &Gateway) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !gateway.log().contains("draining") {
        assert!(Instant::now() < deadline, "{}", gateway.log());
        thread::sleep(Duration::from_millis(2));
    }
}

/// A request that is under way for as long as this connection lives: its body is yet to come.
fn request_under_way(gateway: &Gateway) -> TcpStream {
    let mut connection = TcpStream::connect(gateway.address).unwrap();
    let head = "POST /locks/slow HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{";
    connection.write_all(head.as_bytes()).unwrap();
    connection
}

#[test]
fn either_signal_ends_an_idle_gateway_long_before_its_grace() {
    for signal in [Signal::TERM, Signal::INT] {
        let setup = Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "600000");
        let mut gateway = Gateway::start_with(setup);
        gateway.signal(signal);
        assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    }
}

#[test]
fn while_it_drains_nothing_is_acquired_and_what_is_held_can_be_kept_and_given_back() {
    let mut gateway = Gateway::start();
    let url = gateway.url();
    let token = on(&url, &["acquire", "deploy"], "").out;
    let token = token.trim_end();
    // Else it might have nothing left to do before the commands below have begun.
    let under_way = request_under_way(&gateway);
    gateway.signal(Signal::TERM);
    drains(&gateway);
    let renewed = on(&url, &["renew", "deploy"], token);
    assert_eq!(renewed.code, Some(0), "{renewed:?}");
    let refused = on(&url, &["acquire", "other", "--json"], "");
    assert_eq!(refused.code, Some(104), "{refused:?}");
    assert!(refused.out.contains("\"code\":\"draining\""), "{refused:?}");
    let released = on(&url, &["release", "deploy"], token);
    assert_eq!(released.code, Some(0), "{released:?}");
    drop(under_way);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
}

#[test]
fn the_grace_ends_it_although_somebody_goes_on_renewing() {
    let setup = Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "1500");
    let mut gateway = Gateway::start_with(setup);
    let url = gateway.url();
    let token = on(&url, &["acquire", "deploy"], "").out;
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    let renewing =
        thread::spawn(
            move || {
                while on(&url, &["renew", "deploy"], token.trim_end()).code == Some(0) {}
            },
        );
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    assert!(begin.elapsed() >= Duration::from_millis(1_500));
    renewing.join().unwrap();
}

#[test]
fn a_request_that_outlasts_the_grace_is_cut_short() {
    let setup = Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "100");
    let mut gateway = Gateway::start_with(setup);
    let _under_way = request_under_way(&gateway);
    // It has been read when a later connection has been answered.
    on(&gateway.url(), &["inspect", "deploy"], "");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(112), "{}", gateway.log());
}

#[test]
fn a_second_signal_ends_it_at_once_with_a_code_of_its_own() {
    let mut gateway = Gateway::start();
    let _under_way = request_under_way(&gateway);
    gateway.signal(Signal::TERM);
    drains(&gateway);
    gateway.signal(Signal::INT);
    assert_eq!(gateway.wait().code(), Some(112), "{}", gateway.log());
}
