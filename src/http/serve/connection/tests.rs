//! What becomes of a connection over HTTP/1.1 when the gateway is about to stop.

use axum::routing::get;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{Duration, Instant, sleep},
};

use super::{super::connections::Connections, *};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ALL: Duration = Duration::from_secs(10);

/// A client, and the service of its connection.
fn connected(lifecycle: &Lifecycle) -> (DuplexStream, impl Future<Output = ()> + use<>) {
    let (server, client) = duplex(4096);
    let protocol = Protocol::new(
        &HttpConfig::default(),
        None,
        1,
        Metrics::default(),
        lifecycle,
    );
    let opened = Opened {
        peer: None,
        silence_limit: SocketLimit::default(),
        lasting: protocol.lasting.clone(),
    };
    let seat = Connections::new(1).admit().unwrap();
    let router = Router::new().route("/", get(async || "hello"));
    let closed = lifecycle.closed();
    let serving = async move {
        let http1 = &protocol.http1;
        http1.serve(server, opened, router, &seat, closed).await;
    };
    (client, serving)
}

/// Reads one answer.
async fn answer(client: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "it is cut");
    }
    String::from_utf8(answer).unwrap().to_lowercase()
}

/// How long it takes until the other side has closed.
async fn closed(client: &mut DuplexStream) -> Duration {
    let began = Instant::now();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn once_it_is_withdrawn_every_answer_is_the_last_of_its_connection() {
    let lifecycle = Lifecycle::new();
    let (mut client, serving) = connected(&lifecycle);
    let asking = async {
        client.write_all(REQUEST).await.unwrap();
        let before = answer(&mut client).await;
        assert!(!before.contains("connection:"), "{before}");
        lifecycle.withdraw();
        // It is not closed before it is asked: what is under way then would not be heard.
        sleep(ALL).await;
        client.write_all(REQUEST).await.unwrap();
        let last = answer(&mut client).await;
        assert!(last.contains("\r\nconnection: close\r\n"), "{last}");
        closed(&mut client).await;
    };
    tokio::join!(serving, asking);
}

#[tokio::test(start_paused = true)]
async fn who_has_just_connected_to_a_gateway_that_closes_is_heard() {
    let lifecycle = Lifecycle::new();
    let (mut client, serving) = connected(&lifecycle);
    lifecycle.stop(ALL).await.unwrap();
    let asking = async {
        sleep(Duration::from_millis(200)).await;
        client.write_all(REQUEST).await.unwrap();
        let last = answer(&mut client).await;
        assert!(last.contains("\r\nconnection: close\r\n"), "{last}");
        closed(&mut client).await;
    };
    tokio::join!(serving, asking);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_waited_for_who_has_nothing_to_say() {
    let lifecycle = Lifecycle::new();
    let (mut client, serving) = connected(&lifecycle);
    lifecycle.stop(ALL).await.unwrap();
    let (took, ()) = tokio::join!(closed(&mut client), serving);
    assert_eq!(took, Duration::from_millis(250));

    let lifecycle = Lifecycle::new();
    let (mut client, serving) = connected(&lifecycle);
    let asking = async {
        client.write_all(REQUEST).await.unwrap();
        answer(&mut client).await;
        lifecycle.stop(ALL).await.unwrap();
        assert_eq!(closed(&mut client).await, Duration::ZERO);
    };
    tokio::join!(serving, asking);
}
