//! What a gateway does between the signal and its drain.

use std::{thread, time::Duration};

use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{
    gateway::{Gateway, Setup},
    program::{Ran, latchgate},
};

/// Longer than any machine takes for what a test does meanwhile.
const LONG: Duration = Duration::from_mins(5);
const SHORT: Duration = Duration::from_millis(1_500);

fn delaying(delay: Duration) -> Gateway {
    let ms = |time: Duration| time.as_millis().to_string();
    let setup = Setup::default().with("LATCHGATE_SHUTDOWN_DELAY_MS", &ms(delay));
    Gateway::start_with(setup.with("LATCHGATE_SHUTDOWN_GRACE_MS", &ms(2 * delay)))
}

fn on(gateway: &Gateway, arguments: &[&str]) -> Ran {
    let run = latchgate(arguments).env("LATCHGATE_URL", &gateway.url());
    run.read()
}

fn is_ready(gateway: &Gateway) -> bool {
    let listen = gateway.address.to_string();
    let asked = latchgate(&["healthcheck", "--ready", "--listen", &listen]).read();
    asked.code == Some(0)
}

fn until_not_ready(gateway: &Gateway) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while is_ready(gateway) {
        assert!(Instant::now() < deadline, "{}", gateway.log());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn it_is_not_ready_at_once_and_serves_everything_during_the_delay() {
    let gateway = delaying(LONG);
    on(&gateway, &["acquire", "held", "--ttl", "1500ms"]);
    gateway.signal(Signal::TERM);
    until_not_ready(&gateway);
    let listen = gateway.address.to_string();
    // Who asks whether it is alive need not start it again.
    let alive = latchgate(&["healthcheck", "--listen", &listen]).read();
    assert_eq!(alive.code, Some(0), "{alive:?}");
    // A new connection for each; one of them waits for its turn.
    let waited = on(
        &gateway,
        &["acquire", "held", "--wait", "50s", "--ttl", "100ms"],
    );
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert!(!gateway.log().contains("draining"), "{}", gateway.log());
}

#[test]
fn it_drains_when_the_delay_is_over() {
    let mut gateway = delaying(SHORT);
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    let took = begin.elapsed();
    assert!(took >= SHORT, "{took:?}");
    let log = gateway.log();
    let (about, drains) = (
        log.find("about to stop").unwrap(),
        log.find("draining").unwrap(),
    );
    assert!(about < drains, "{log}");
}

#[test]
fn a_second_signal_ends_the_delay_too() {
    let mut gateway = delaying(LONG);
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    until_not_ready(&gateway);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(112), "{}", gateway.log());
    assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
}
