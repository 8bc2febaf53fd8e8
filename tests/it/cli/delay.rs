//! What a gateway does between the signal and its drain.

use std::{thread, time::Duration};

use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{
    gateway::{Gateway, Setup},
    program::{Ran, latchgate},
};

const DELAY: Duration = Duration::from_secs(3);

fn delaying() -> Gateway {
    let delay = DELAY.as_millis().to_string();
    let setup = Setup::default().with("LATCHGATE_SHUTDOWN_DELAY_MS", &delay);
    Gateway::start_with(setup.with("LATCHGATE_SHUTDOWN_GRACE_MS", "9000"))
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
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_ready(gateway) {
        assert!(Instant::now() < deadline, "{}", gateway.log());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn it_is_not_ready_at_once_and_serves_everything_until_the_delay_is_over() {
    let mut gateway = delaying();
    on(&gateway, &["acquire", "held", "--ttl", "700ms"]);
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    until_not_ready(&gateway);
    assert!(begin.elapsed() < DELAY, "the machine is too slow for this");
    let listen = gateway.address.to_string();
    // Who asks whether it is alive need not start it again.
    let alive = latchgate(&["healthcheck", "--listen", &listen]).read();
    assert_eq!(alive.code, Some(0), "{alive:?}");
    // A new connection for each; one of them waits for its turn.
    let waited = on(
        &gateway,
        &["acquire", "held", "--wait", "10s", "--ttl", "100ms"],
    );
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert!(!gateway.log().contains("draining"), "{}", gateway.log());
    assert!(begin.elapsed() < DELAY, "the machine is too slow for this");
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    let took = begin.elapsed();
    assert!(took >= DELAY, "{took:?}");
    let log = gateway.log();
    let (about, drains) = (
        log.find("about to stop").unwrap(),
        log.find("draining").unwrap(),
    );
    assert!(about < drains, "{log}");
}

#[test]
fn a_second_signal_ends_the_delay_too() {
    let mut gateway = delaying();
    let begin = Instant::now();
    gateway.signal(Signal::TERM);
    until_not_ready(&gateway);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(112), "{}", gateway.log());
    assert!(begin.elapsed() < DELAY, "{:?}", begin.elapsed());
}
