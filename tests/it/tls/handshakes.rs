//! Connections that do not come to TLS.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::support::{Authority, gateway::Setup};

use super::{certified::Certified, tls_client};

const TIMEOUT: Duration = Duration::from_mins(1);

async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset is a way of closing, too.
    let read = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
    drop(read.expect("the connection is closed"));
    rest
}

#[tokio::test]
async fn plain_http_is_told_to_speak_tls() {
    let certified = Certified::start();
    let mut stream = TcpStream::connect(certified.gateway.address).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
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
    let certified = Certified::start_with(|_| {
        Setup::default()
            .with("LATCHGATE_HTTP_TLS_HANDSHAKE_TIMEOUT_MS", "300")
            .with("LATCHGATE_HTTP_IDLE_TIMEOUT_MS", "3600000")
    });
    let began = Instant::now();
    let address = certified.gateway.address;
    let silent = TcpStream::connect(address).await.unwrap();
    let mut dripping = TcpStream::connect(address).await.unwrap();
    // The beginning of a message that is said to be long.
    dripping.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    for mut stream in [silent, dripping] {
        assert_eq!(rest(&mut stream).await, b"");
    }
    assert!(began.elapsed() >= Duration::from_millis(300));
    // Not the ten seconds that it has if nothing is said.
    assert!(began.elapsed() < Duration::from_secs(9));
}

#[tokio::test]
async fn those_who_do_not_finish_their_handshake_make_room_when_their_time_is_over() {
    let certified = Certified::start_with(|_| {
        Setup::default()
            .with("LATCHGATE_HTTP_MAX_CONNECTIONS", "16")
            .with("LATCHGATE_HTTP_TLS_HANDSHAKE_TIMEOUT_MS", "1000")
    });
    let address = certified.gateway.address;
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[22, 3, 1]).await.unwrap();
        stalled.push(stream);
    }
    crate::support::eventually("there is room", async || {
        (certified.curl(&[], "/healthz").status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_ends_and_so_does_one_that_never_speaks_http() {
    let certified =
        Certified::start_with(|_| Setup::default().with("LATCHGATE_HTTP_IDLE_TIMEOUT_MS", "500"));
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let address = certified.gateway.address;
        let mut stream = tls_client::connect(&certified.authority, address, &[protocol]).await;
        let mut rest = Vec::new();
        let read = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
        drop(read.expect("the connection is closed"));
    }
}

#[test]
fn old_versions_of_tls_are_refused() {
    let certified = Certified::start();
    for (version, is_spoken) in [
        ("--tlsv1.3", true),
        ("--tlsv1.2", true),
        ("--tlsv1.1", false),
        ("--tlsv1.0", false),
    ] {
        let most = version.trim_start_matches("--tlsv");
        // What the client itself would refuse to speak says nothing.
        let arguments = [
            version,
            "--tls-max",
            most,
            "--ciphers",
            "DEFAULT@SECLEVEL=0",
        ];
        let asked = certified.curl(&arguments, "/healthz");
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
    let mut idle = super::h2_client::H2::connect(&certified).await;
    idle.inspect("a").await;
    certified.gateway.signal(rustix::process::Signal::TERM);
    let ended = tokio::task::spawn_blocking(move || certified.gateway.wait());
    let began = Instant::now();
    assert_eq!(ended.await.unwrap().code(), Some(0));
    // Ten seconds are what a handshake may take.
    assert!(began.elapsed() < Duration::from_secs(9));
    idle.ended().await;
}

/// In TLS 1.3 a client may have written a request by the time its certificate is refused.
#[tokio::test]
async fn who_shows_no_certificate_is_told_so_although_a_request_is_under_way() {
    let callers = Authority::new();
    let file = callers.file();
    let certified = Certified::start_with(|_| {
        Setup::default()
            .with("LATCHGATE_HTTP_TLS_CLIENT_CA_FILE", &file)
            .with("LATCHGATE_HTTP_TLS_CLIENT_AUTH", "require")
    });
    let address = certified.gateway.address;
    let mut stream = tls_client::connect(&certified.authority, address, &[b"http/1.1"]).await;
    // More than the gateway reads with the end of the handshake: what it leaves unread would reset the connection.
    let request = vec![b'x'; 256 * 1024];
    let writing = async {
        stream.write_all(&request).await?;
        stream.flush().await
    };
    // The refusal may come first.
    drop(
        timeout(TIMEOUT, writing)
            .await
            .expect("the gateway reads it"),
    );
    let mut answer = Vec::new();
    let read = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
    let refused = read.expect("the connection is closed").unwrap_err();
    assert!(
        refused.to_string().contains("CertificateRequired"),
        "{refused}"
    );
    let (mut tcp, _) = stream.into_inner();
    let read = timeout(TIMEOUT, tcp.read_to_end(&mut answer)).await;
    read.expect("the connection is closed")
        .expect("and not reset");
}
