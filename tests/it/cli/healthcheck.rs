//! `latchgate healthcheck`: what a container says of itself.

use std::net::TcpListener;

use rustix::process::Signal;

use crate::support::{
    fake_gateway::{FakeGateway, Reply},
    gateway::{Gateway, Setup},
    program::{Ran, latchgate},
};

/// Checks an address that a gateway has or should have.
fn check(listen: &str, arguments: &[&str]) -> Ran {
    let arguments = [&["healthcheck"], arguments].concat();
    latchgate(&arguments).env("LATCHGATE_LISTEN", listen).read()
}

/// Checks something that is no gateway.
fn check_fake(reply: Reply, arguments: &[&str]) -> Ran {
    let fake = FakeGateway::new([reply]);
    check(fake.url.strip_prefix("http://").unwrap(), arguments)
}

#[test]
fn a_gateway_that_answers_is_healthy_and_ready() {
    let gateway = Gateway::start();
    let listen = gateway.address.to_string();
    let healthy = check(&listen, &[]);
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    assert!(healthy.out.contains("\"status\":\"ok\""), "{healthy:?}");
    let ready = check(&listen, &["--ready"]);
    assert_eq!(ready.code, Some(0), "{ready:?}");
    assert!(ready.out.contains("\"status\":\"ready\""), "{ready:?}");
}

#[test]
fn it_finds_the_gateway_behind_a_prefix_and_on_an_address_that_stands_for_all() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let setup = Setup {
            listen: Some(listen),
            ..Setup::default()
                .with("LATCHGATE_INSECURE_NO_AUTH", "true")
                .with("LATCHGATE_HTTP_BASE_PATH", "/gate")
        };
        let gateway = Gateway::start_with(setup);
        let listen = listen.replace(":0", &format!(":{}", gateway.address.port()));
        // As in a container: the environment is the gateway's own.
        let checked = latchgate(&["healthcheck", "--listen", &listen])
            .env("LATCHGATE_INSECURE_NO_AUTH", "true")
            .env("LATCHGATE_HTTP_BASE_PATH", "/gate")
            .read();
        assert_eq!(checked.code, Some(0), "{listen}: {checked:?}");
    }
}

#[test]
fn it_reads_the_configuration_file_of_the_gateway() {
    let gateway = Gateway::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("latchgate.toml");
    std::fs::write(&file, format!("listen = \"{}\"", gateway.address)).unwrap();
    let checked = latchgate(&["healthcheck", "--config", file.to_str().unwrap()]).read();
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn where_nobody_listens_it_is_1_and_says_so() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let checked = check(&listen, &[]);
    assert_eq!((checked.code, checked.out.as_str()), (Some(1), ""));
    let said = format!("http://{listen}/healthz cannot be reached");
    assert!(checked.err.contains(&said), "{checked:?}");
}

#[test]
fn a_gateway_that_stands_still_is_1_within_the_time_given() {
    let gateway = Gateway::start();
    gateway.signal(Signal::STOP);
    let checked = check(&gateway.address.to_string(), &["--timeout", "300ms"]);
    gateway.signal(Signal::CONT);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(
        checked.err.contains("did not answer within 300ms"),
        "{checked:?}"
    );
}

#[test]
fn a_gateway_that_drains_is_healthy_and_not_ready() {
    let mut gateway =
        Gateway::start_with(Setup::default().with("LATCHGATE_SHUTDOWN_GRACE_MS", "600000"));
    let listen = gateway.address.to_string();
    // As long as its lease lives it drains.
    let acquired = latchgate(&["acquire", "deploy", "--url", &gateway.url()]).read();
    gateway.signal(Signal::TERM);
    let not_ready = loop {
        let ready = check(&listen, &["--ready"]);
        if ready.code != Some(0) {
            break ready;
        }
    };
    assert_eq!(not_ready.code, Some(1), "{not_ready:?}");
    assert!(not_ready.err.contains("answered with 503"), "{not_ready:?}");
    assert!(not_ready.err.trim_end().ends_with('}'), "{not_ready:?}");
    assert!(!not_ready.err.contains("\\u{"), "{not_ready:?}");
    assert!(not_ready.err.contains("draining"), "{not_ready:?}");
    assert_eq!(check(&listen, &[]).code, Some(0));
    let release = latchgate(&["release", "deploy", "--url", &gateway.url()]);
    release
        .env("LATCHGATE_TOKEN", acquired.out.trim_end())
        .read();
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn what_is_no_gateway_is_not_healthy() {
    let not_found = check_fake(Reply::Answer(404, "what?\u{1b}[2J".to_owned()), &[]);
    assert_eq!(not_found.code, Some(1), "{not_found:?}");
    assert!(not_found.err.contains("answered with 404"), "{not_found:?}");
    assert!(!not_found.err.contains('\u{1b}'), "{not_found:?}");
    let lost = check_fake(Reply::Lost, &[]);
    assert_eq!(lost.code, Some(1), "{lost:?}");
    let silent = check_fake(Reply::Silence, &["--timeout", "100ms"]);
    assert_eq!(silent.code, Some(1), "{silent:?}");
}

#[test]
fn it_asks_what_it_is_told_to() {
    for (arguments, line) in [
        (&[][..], "GET /healthz HTTP/1.1"),
        (&["--ready"], "GET /readyz HTTP/1.1"),
    ] {
        let fake = FakeGateway::new([Reply::Answer(200, "{}".to_owned())]);
        let listen = fake.url.strip_prefix("http://").unwrap();
        assert_eq!(check(listen, arguments).code, Some(0));
        let received = fake.received();
        assert_eq!(received[0].line, line);
        assert_eq!(received[0].header("host"), Some(listen));
    }
}

#[test]
fn a_port_that_only_the_gateway_knows_and_a_wrong_configuration_are_2() {
    let free = check("127.0.0.1:0", &[]);
    assert_eq!(free.code, Some(2), "{free:?}");
    assert!(free.err.contains("listen is port 0"), "{free:?}");
    assert_eq!(check("localhost", &[]).code, Some(2));
}
