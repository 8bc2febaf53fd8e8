//! A grant over TLS whose answer never left its connection is given back.

use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::support::{connect_with_little_room, eventually};

use super::{
    certified::Certified,
    h2_client::H2,
    one_piece::{block, frame_of, greeted},
    tls_client,
};

const ACQUIRE: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Its answer is longer than what fits into a connection that nobody reads.
const LONG: &str = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A stream may send as much as it likes, and so may all of them together.
const WIDE_STREAMS: &[u8] = &[0, 4, 0x7f, 0xff, 0xff, 0xff];
const WIDE_CONNECTION: &[u8] = &[0x7f, 0, 0, 0];

async fn plain_http(to: &Certified) -> TlsStream<TcpStream> {
    let stream = connect_with_little_room(to.gateway.address).await;
    tls_client::greet(&to.authority, stream, &[b"http/1.1"]).await
}

/// Waits until the lock is in this state.
async fn becomes(state: &str, h2: &H2) {
    eventually(state, || {
        let mut h2 = h2.clone();
        async move { (h2.inspect("a").await["state"] == state).then_some(()) }
    })
    .await;
}

/// Waits until the lock is held and the grant has been answered: the gateway has one worker, which comes to the
/// answer before it comes to requests that are sent later.
async fn granted(h2: &H2) {
    for _ in 0..3 {
        becomes("held", h2).await;
    }
}

/// Resets the connection without a word of TLS.
fn reset(stream: TlsStream<TcpStream>) {
    let (stream, _) = stream.into_inner();
    stream.set_zero_linger().unwrap();
    drop(stream);
}

#[tokio::test]
async fn over_http_1_it_is_given_back_when_its_caller_resets_behind_unread_answers() {
    let certified = Certified::start();
    let h2 = H2::connect(&certified).await;
    for unread in 1..=5 {
        let mut stream = plain_http(&certified).await;
        let requests = [LONG.repeat(unread).as_str(), ACQUIRE].concat();
        stream.write_all(requests.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        granted(&h2).await;
        reset(stream);
        becomes("free", &h2).await;
    }
}

#[tokio::test]
async fn over_http_2_it_is_given_back_when_its_caller_resets_behind_unread_answers() {
    let certified = Certified::start();
    let h2 = H2::connect(&certified).await;
    let mut stream = greeted(&certified).await;
    let head = |method, path| {
        block(&[
            (":method", method),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", path),
        ])
    };
    let mut bytes = [
        frame_of(0, 4, 0, WIDE_STREAMS),
        frame_of(0, 8, 0, WIDE_CONNECTION),
    ]
    .concat();
    for number in 0..8 {
        bytes.extend(frame_of(
            2 * number + 1,
            1,
            0x05,
            &head("GET", "/openapi.json"),
        ));
    }
    stream.write_all(&bytes).await.unwrap();
    stream.flush().await.unwrap();
    // What is read is less than one answer; the rest of all of them fills the connection.
    assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
    let acquire = frame_of(17, 1, 0x05, &head("POST", "/locks/a"));
    stream.write_all(&acquire).await.unwrap();
    stream.flush().await.unwrap();
    granted(&h2).await;
    reset(stream);
    becomes("free", &h2).await;
}

#[tokio::test]
async fn over_http_2_a_request_that_is_given_up_before_its_answer_leaves_no_lock() {
    let certified = Certified::start();
    let mut h2 = H2::connect(&certified).await;
    let (status, lease) = h2.acquire("a", "").await;
    assert_eq!(status, 201, "{lease}");
    let wait = r#"{"wait_ms": 50000}"#;
    let given_up = h2.send(Method::POST, "/locks/a", &[], wait).await.unwrap();
    eventually("it is queued", || {
        let mut h2 = h2.clone();
        async move { (h2.inspect("a").await["waiter_count"] == 1).then_some(()) }
    })
    .await;
    // The reset of the stream and the release come one after the other on one connection.
    drop(given_up);
    let with_token = [("lock-token", lease["token"].as_str().unwrap())];
    let released = h2.ask(Method::DELETE, "/locks/a", &with_token, "");
    assert_eq!(released.await.0, 204);
    becomes("free", &h2).await;
}

#[tokio::test]
async fn a_caller_that_reads_its_answer_and_then_resets_keeps_its_lease() {
    let certified = Certified::start();
    let h2 = H2::connect(&certified).await;
    let mut stream = plain_http(&certified).await;
    stream.write_all(ACQUIRE.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.trim_ascii_end().ends_with(b"}") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
    }
    assert!(answer.starts_with(b"HTTP/1.1 201 "));
    let open = certified.gateway.open_files();
    reset(stream);
    eventually("the gateway has closed the connection", || async {
        (certified.gateway.open_files() < open).then_some(())
    })
    .await;
    granted(&h2).await;
}
