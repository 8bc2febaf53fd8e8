//! Connections that do not complete the TLS handshake, and HTTP/2 clients that break the rules.

use std::time::Duration;

use http::Method;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::fixture::{Certified, H2, head, read, tls_connect};
use crate::support::{eventually, until, words};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Reads until the connection is closed. Answers the bytes.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset closes the connection, too.
    let read = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
    drop(read.expect("the connection is closed"));
    rest
}

#[tokio::test]
async fn plain_http_is_told_to_speak_tls() {
    let certified = Certified::start();
    let mut stream = TcpStream::connect(certified.gateway.address).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let answer = String::from_utf8(rest(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with("use https:// and not http://"), "{answer}");
    let mut stream = TcpStream::connect(certified.gateway.address).await.unwrap();
    stream.write_all(b"\0\0\0 nonsense").await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn a_handshake_has_its_time_and_no_more() {
    let certified = Certified::set(&[
        ("LATCHGATE_HTTP_TLS_HANDSHAKE_TIMEOUT_MS", "300"),
        ("LATCHGATE_HTTP_IDLE_TIMEOUT_MS", "3600000"),
    ]);
    let began = Instant::now();
    let address = certified.gateway.address;
    let silent = TcpStream::connect(address).await.unwrap();
    let mut dripping = TcpStream::connect(address).await.unwrap();
    // The beginning of a message whose head states a large length.
    dripping.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    for mut stream in [silent, dripping] {
        assert_eq!(rest(&mut stream).await, b"");
    }
    assert!(began.elapsed() >= Duration::from_millis(300));
    // Sooner than the ten seconds of the default.
    assert!(began.elapsed() < Duration::from_secs(9));
}

#[tokio::test]
async fn those_who_do_not_finish_their_handshake_make_room_when_their_time_is_over() {
    let certified = Certified::set(&[
        ("LATCHGATE_HTTP_MAX_CONNECTIONS", "16"),
        ("LATCHGATE_HTTP_TLS_HANDSHAKE_TIMEOUT_MS", "1000"),
    ]);
    let address = certified.gateway.address;
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[22, 3, 1]).await.unwrap();
        stalled.push(stream);
    }
    let is_so = async || certified.curl(&[], "/healthz").status == 200;
    until("there is room", is_so).await;
}

#[tokio::test]
async fn an_idle_connection_ends_and_so_does_one_that_never_speaks_http() {
    let certified = Certified::set(&[("LATCHGATE_HTTP_IDLE_TIMEOUT_MS", "500")]);
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let address = certified.gateway.address;
        let mut stream = tls_connect(&certified.authority, address, &[protocol]).await;
        rest(&mut stream).await;
    }
}

#[test]
fn old_versions_of_tls_are_refused() {
    let certified = Certified::start();
    for (version, is_spoken) in [("1.3", true), ("1.2", true), ("1.1", false), ("1.0", false)] {
        // A version that the client itself refuses proves nothing, so the client must accept it.
        let arguments = format!("--tlsv{version} --tls-max {version} --ciphers DEFAULT@SECLEVEL=0");
        let asked = certified.curl(&words(&arguments).collect::<Vec<_>>(), "/healthz");
        assert_eq!(asked.status == 200, is_spoken, "{version}: {asked:?}");
        if !is_spoken {
            assert!(asked.err.contains("alert"), "{version}: {asked:?}");
        }
    }
}

#[tokio::test]
async fn a_gateway_that_stops_does_not_wait_for_handshakes() {
    let mut certified = Certified::start();
    let mut stalled = TcpStream::connect(certified.gateway.address).await.unwrap();
    stalled.write_all(&[22, 3, 1]).await.unwrap();
    let mut idle = H2::connect(&certified).await;
    idle.inspect("a").await;
    certified.gateway.signal(rustix::process::Signal::TERM);
    let ended = tokio::task::spawn_blocking(move || certified.gateway.wait());
    let began = Instant::now();
    assert_eq!(ended.await.unwrap().code(), Some(0));
    // The handshake may take ten seconds.
    assert!(began.elapsed() < Duration::from_secs(9));
    idle.ended().await;
}

/// In TLS 1.3 a client may have written a request before its certificate is refused.
#[tokio::test]
async fn who_shows_no_certificate_is_told_so_although_a_request_is_under_way() {
    let (certified, _callers) = Certified::asking("require");
    let address = certified.gateway.address;
    let mut stream = tls_connect(&certified.authority, address, &[b"http/1.1"]).await;
    // More than the gateway reads with the end of the handshake: the unread rest would reset the connection.
    let request = vec![b'x'; 256 * 1024];
    let writing = async {
        stream.write_all(&request).await?;
        stream.flush().await
    };
    // The refusal may come first.
    let written = timeout(TIMEOUT, writing).await;
    drop(written.expect("the gateway reads it"));
    let mut answer = Vec::new();
    let read = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
    let refused = read.expect("the connection is closed").unwrap_err();
    let expected = refused.to_string().contains("CertificateRequired");
    assert!(expected, "{refused}");
    let (mut tcp, _) = stream.into_inner();
    let read = timeout(TIMEOUT, tcp.read_to_end(&mut answer)).await;
    let read = read.expect("the connection is closed");
    read.expect("and not reset");
}

#[tokio::test]
async fn requests_that_are_reset_without_an_end_cost_a_holder_nothing() {
    let (certified, mut holder) = H2::start().await;
    let (_, lease) = holder.acquire("a", r#"{"ttl_ms": 10000}"#).await;
    let token = lease["token"].as_str().unwrap().to_owned();
    let mut attacker = H2::connect(&certified).await;
    let flooding = async {
        let began = Instant::now();
        let wait = r#"{"wait_ms": 50000}"#;
        // Until the gateway accepts no more requests, or for some time.
        while began.elapsed() < Duration::from_secs(5)
            && let Ok(answer) = attacker.send(Method::POST, "/locks/a", &[], wait).await
        {
            tokio::task::yield_now().await;
            drop(answer);
        }
    };
    let renewing = async {
        loop {
            let header = [("lock-token", token.as_str())];
            let (status, lease) = holder.ask(Method::PUT, "/locks/a/renew", &header, "").await;
            assert_eq!(status, 200, "{lease}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = flooding => {}
        () = renewing => {}
    }
    let header = [("lock-token", token.as_str())];
    let renewed = holder.ask(Method::PUT, "/locks/a/renew", &header, "").await;
    assert_eq!(renewed.0, 200);
    let shown = holder.inspect("a").await;
    assert_eq!(shown["holders"][0]["fencing_token"], lease["fencing_token"]);
}

#[tokio::test]
async fn as_many_requests_are_open_as_are_allowed_and_a_renewal_still_goes_through() {
    let certified = Certified::set(&[("LATCHGATE_HTTP_MAX_CONNECTIONS", "16")]);
    let mut h2 = H2::connect(&certified).await;
    let (_, lease) = h2.acquire("a", "").await;
    let mut waiting = Vec::new();
    for _ in 0..16 {
        waiting.push(h2.wait("a").await);
    }
    let refused = h2.send(Method::GET, "/locks/a", &[], "").await.unwrap();
    assert_eq!(head(refused).await.status(), 503);
    let header = [("lock-token", lease["token"].as_str().unwrap())];
    let renewed = h2.ask(Method::PUT, "/locks/a/renew", &header, "").await;
    assert_eq!(renewed.0, 200);
    let released = h2.ask(Method::DELETE, "/locks/a", &header, "").await;
    assert_eq!(released.0, 204);
    drop(waiting);
    eventually("there is room again", || {
        let mut h2 = h2.clone();
        async move {
            let answer = h2.send(Method::GET, "/locks/a", &[], "").await.unwrap();
            (head(answer).await.status() == 200).then_some(())
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_has_so_many_requests_and_no_more() {
    let certified = Certified::set(&[("LATCHGATE_HTTP_MAX_STREAMS", "16")]);
    let mut h2 = H2::connect(&certified).await;
    h2.acquire("a", "").await;
    let mut waiting = Vec::new();
    for _ in 0..16 {
        waiting.push(h2.wait("a").await);
    }
    // The request waits in the client until one of the other streams ends.
    let mut next = Box::pin(async {
        let next = h2.send(Method::GET, "/locks/a", &[], "").await;
        read(next.unwrap()).await
    });
    let early = timeout(Duration::from_millis(500), &mut next).await;
    assert!(early.is_err(), "{early:?}");
    waiting.pop();
    assert_eq!(next.await.0, 200);
}

#[tokio::test]
async fn headers_are_limited_as_over_http_1() {
    let (certified, mut h2) = H2::start().await;
    let long = "x".repeat(17 * 1024);
    let (status, problem) = h2.ask(Method::GET, "/locks/a", &[("x", &long)], "").await;
    let found = (status, &problem["code"]);
    assert_eq!(found, (431, &"headers-too-large".into()));
    let target = format!("/locks/{}", "a".repeat(5_000));
    let (status, problem) = h2.ask(Method::GET, &target, &[], "").await;
    assert_eq!((status, &problem["code"]), (414, &"uri-too-long".into()));
    // Headers above the limit end the request without a problem, or the connection.
    let huge = "x".repeat(128 * 1024);
    let answer = h2.send(Method::GET, "/locks/a", &[("x", &huge)], "").await;
    let status = async { answer?.await.map(|answer| answer.status().as_u16()) };
    let status = timeout(Duration::from_mins(1), status).await.unwrap();
    assert!(status.as_ref().is_ok_and(|&status| status == 431) || status.is_err());
    let mut other = H2::connect(&certified).await;
    assert_eq!(other.inspect("a").await["state"], "free");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let certified = Certified::set(&[("LATCHGATE_HTTP_BODY_TIMEOUT_MS", "300")]);
    let mut h2 = H2::connect(&certified).await;
    let answer = h2.begin(Method::POST, "/locks/a").await;
    let (status, problem) = read(answer.0).await;
    assert_eq!((status, &problem["code"]), (408, &"request-timeout".into()));
    assert_eq!(h2.inspect("a").await["state"], "free");
}

#[tokio::test]
async fn another_host_is_refused_over_either_version() {
    let certified = Certified::start();
    for version in ["--http1.1", "--http2"] {
        let asked = certified.curl(&[version, "-H", "Host: evil.example"], "/locks/a");
        assert_eq!(asked.status, 421, "{asked:?}");
    }
    let page = |origin: &str| {
        let origin = format!("Origin: {origin}");
        certified
            .curl(&["-X", "POST", "-H", &origin], "/locks/a")
            .status
    };
    let own = certified.gateway.url();
    assert_eq!(page(&own.replace("https://", "http://")), 403);
    assert_eq!(page(&own), 201);
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_told_so_in_a_problem_document() {
    let certified = Certified::set(&[("LATCHGATE_HTTP_MAX_CONNECTIONS", "16")]);
    let mut open = Vec::new();
    for _ in 0..16 {
        let address = certified.gateway.address;
        open.push(tls_connect(&certified.authority, address, &[b"http/1.1"]).await);
    }
    for protocol in ["--http1.1", "--http2"] {
        let refused = certified.curl(&[protocol, "-X", "POST"], "/locks/a");
        assert_eq!(refused.status, 503, "{protocol}");
        assert_eq!(refused.json()["code"], "overloaded", "{protocol}");
    }
    drop(open);
    let is_so = async || certified.curl(&[], "/locks/a").status == 200;
    until("there is room again", is_so).await;
}
