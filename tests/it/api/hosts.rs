//! For which hosts the gateway answers, asked over a socket as an attacker would.

use latchgate::config::Config;

use super::{
    key::Key,
    service::Service,
    socket::{answer, send},
};

/// The status and the code of the answer to a request with this line and these headers.
async fn ask(service: &Service, line: &str, headers: &[&str]) -> (u16, String) {
    let mut stream = service.connect().await;
    let headers: Vec<_> = headers.iter().map(|it| format!("{it}\r\n")).collect();
    let headers = headers.concat();
    send(&mut stream, &format!("{line}\r\n{headers}\r\n")).await;
    let answer = answer(&mut stream).await;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let code = answer.split("\"code\":\"").nth(1);
    let code = code.map_or("", |rest| rest.split('"').next().unwrap());
    (status, code.to_owned())
}

const ACQUIRE: &str = "POST /locks/a HTTP/1.1";
const INSPECT: &str = "GET /locks/a HTTP/1.1";

#[tokio::test]
async fn without_keys_a_name_that_was_bound_to_loopback_reaches_nothing() {
    let service = Service::start();
    for host in [
        "evil.example",
        "evil.example:7420",
        "EVIL.example.",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "a.localhost",
        "0.0.0.0:7420",
        "192.0.2.1",
        "[2001:db8::1]:7420",
        "127.1",
        "2130706433",
    ] {
        let header = format!("Host: {host}");
        for line in [
            ACQUIRE,
            INSPECT,
            "GET / HTTP/1.1",
            "GET /docs HTTP/1.1",
            "GET /x HTTP/1.1",
        ] {
            let refused = ask(&service, line, &[&header]).await;
            assert_eq!(refused, (421, "wrong-host".to_owned()), "{host} {line}");
        }
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn loopback_is_answered_for_however_it_is_written_and_whatever_forwards_its_port() {
    let service = Service::start();
    for host in [
        "localhost",
        "LocalHost:7420",
        "localhost.:1",
        "127.0.0.1:8080",
        "127.8.8.8",
        "[::1]",
        "[0:0:0:0:0:0:0:1]:7420",
        "[::ffff:127.0.0.1]",
    ] {
        let header = format!("hOsT: {host}");
        assert_eq!(ask(&service, INSPECT, &[&header]).await.0, 200, "{host}");
    }
}

#[tokio::test]
async fn a_request_that_names_no_host_or_two_is_refused_before_anything_happens() {
    let service = Service::start();
    let invalid = (400, "invalid-request".to_owned());
    for headers in [
        &[][..],
        &["Host: localhost", "Host: localhost"],
        &["Host: localhost", "Host: evil.example"],
        &["Host:"],
        &["Host: user@localhost"],
        &["Host: localhost:port"],
        &["Host: localhost:99999"],
        &["Host: localhost evil.example"],
        &["Host: localhost, evil.example"],
        &["Host: ::1"],
        &["Host: http://localhost"],
        &["Host: localhost/"],
    ] {
        for line in [ACQUIRE, INSPECT] {
            let refused = ask(&service, line, headers).await;
            assert_eq!(refused, invalid, "{headers:?}");
        }
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn the_host_of_the_target_counts_and_may_not_contradict_the_header() {
    let service = Service::start();
    let absolute = |host: &str| format!("POST http://{host}/locks/a HTTP/1.1");
    let evil = absolute("evil.example");
    assert_eq!(ask(&service, &evil, &["Host: localhost"]).await.0, 400);
    assert_eq!(ask(&service, &evil, &["Host: evil.example"]).await.0, 421);
    assert_eq!(ask(&service, &evil, &[]).await.0, 421);
    let ours = absolute("localhost:7420");
    assert_eq!(ask(&service, &ours, &["Host: evil.example"]).await.0, 400);
    assert!(service.script.asked().is_empty());
    assert_eq!(ask(&service, &ours, &["Host: localhost:7420"]).await.0, 201);
}

#[tokio::test]
async fn a_request_of_http_1_0_without_a_host_is_refused_as_one_of_http_1_1_is() {
    let service = Service::start();
    let line = "POST /locks/a HTTP/1.0";
    assert_eq!(
        ask(&service, line, &[]).await,
        (400, "invalid-request".to_owned())
    );
    assert!(service.script.asked().is_empty());
    assert_eq!(ask(&service, line, &["Host: localhost"]).await.0, 201);
}

#[tokio::test]
async fn probes_are_answered_whatever_they_call_the_gateway() {
    let service = Service::start();
    for path in ["/healthz", "/readyz"] {
        let line = format!("GET {path} HTTP/1.1");
        assert_eq!(ask(&service, &line, &["Host: 10.1.2.3:7420"]).await.0, 200);
        let line = format!("GET {path} HTTP/1.0");
        assert_eq!(ask(&service, &line, &[]).await.0, 200);
    }
}

#[tokio::test]
async fn a_host_that_is_listed_is_answered_for() {
    let mut config = Config::default();
    config.http.allowed_hosts = vec!["Locks.example.com".parse().unwrap()];
    let service = Service::with(config);
    for host in ["locks.example.com", "LOCKS.EXAMPLE.COM.:8080", "localhost"] {
        let header = format!("Host: {host}");
        assert_eq!(ask(&service, INSPECT, &[&header]).await.0, 200, "{host}");
    }
    let header = "Host: a.locks.example.com";
    assert_eq!(ask(&service, INSPECT, &[header]).await.0, 421);
}

#[tokio::test]
async fn with_keys_any_host_is_answered_for_but_only_one_per_request() {
    let service = Service::with_keys(&Key::new().entry("ci", "view = ['*']"));
    let host = "Host: locks.example.com";
    assert_eq!(
        ask(&service, INSPECT, &[host]).await,
        (401, "unauthorized".to_owned())
    );
    assert_eq!(ask(&service, INSPECT, &[host, host]).await.0, 400);
}
