//! What comes in one piece with the end of a connection.

use std::time::Duration;

use h2::{client, server};
use http::{Method, Request};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::timeout,
};

use super::*;

/// A stream that is read, and breaks after it was written to so often.
struct Breaking<S> {
    stream: S,
    writes: u32,
}

impl<S: AsyncRead + Unpin> AsyncRead for Breaking<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Unpin> AsyncWrite for Breaking<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.writes == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.writes -= 1;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What a client sends that asks so often, gives up what it asked for, and closes its connection.
async fn bytes_of(requests: usize, gives_up: bool) -> Vec<u8> {
    let (ours, mut theirs) = duplex(1 << 20);
    let (mut sender, connection) = client::handshake(ours).await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..requests {
        let request = Request::builder()
            .method(Method::DELETE)
            .uri("https://localhost/locks/a")
            .body(())
            .unwrap();
        answers.push(sender.send_request(request, true).unwrap().0);
    }
    let mut connection = Box::pin(connection);
    // All is sent that can be, before anything is given up.
    let sent = timeout(Duration::ZERO, connection.as_mut()).await;
    assert!(sent.is_err());
    if gives_up {
        drop((sender, answers));
        timeout(Duration::from_secs(5), connection)
            .await
            .unwrap()
            .unwrap();
    } else {
        drop(connection);
    }
    let mut bytes = Vec::new();
    theirs.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// How many requests are taken up of those that came.
async fn taken_up<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> usize {
    let turns = Turns::default();
    let stream = LateEnd::new(stream, turns.clone());
    let serving = async {
        let mut connection = server::handshake(stream).await.unwrap();
        // Answers are kept, as they are that the store is asked for.
        let mut answers = Vec::new();
        while let Some(Ok((_request, answer))) = connection.accept().await {
            answers.push(answer);
        }
        answers.len()
    };
    let serving = std::pin::pin!(serving);
    timeout(Duration::from_secs(5), turns.run(serving))
        .await
        .expect("the connection has ended")
}

#[tokio::test]
async fn every_request_is_taken_up_that_came_with_the_end() {
    for gives_up in [false, true] {
        for requests in [1, 3] {
            let sent = bytes_of(requests, gives_up).await;
            let (ours, mut theirs) = duplex(1 << 20);
            theirs.write_all(&sent).await.unwrap();
            drop(theirs);
            assert_eq!(taken_up(ours).await, requests, "given up: {gives_up}");
        }
    }
}

#[tokio::test]
async fn every_request_is_taken_up_that_came_before_its_connection_broke() {
    let sent = bytes_of(3, true).await;
    // It breaks before the greeting of the gateway, and after it.
    for writes in [0, 1, 2] {
        let (stream, mut theirs) = duplex(1 << 20);
        theirs.write_all(&sent).await.unwrap();
        // The connection ends although nothing more can be read.
        assert_eq!(taken_up(Breaking { stream, writes }).await, 3);
        drop(theirs);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_only_after_the_connection_broke_is_taken_up_too() {
    let sent = bytes_of(3, true).await;
    // The greeting and the settings of the client, to which something is said.
    let settings = 24 + 9 + usize::from(sent[26]);
    for (first, writes) in [(0, 0), (settings, 0), (settings, 1), (settings, 2)] {
        let (stream, mut theirs) = duplex(1 << 20);
        let coming = async {
            theirs.write_all(&sent[..first]).await.unwrap();
            sleep(KNOWN_WITHIN / 2).await;
            theirs.write_all(&sent[first..]).await.unwrap();
        };
        let (taken, ()) = tokio::join!(taken_up(Breaking { stream, writes }), coming);
        assert_eq!(taken, 3, "{writes} writes, {first} bytes first");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_anything_came_ends() {
    let (stream, _theirs) = duplex(1 << 10);
    let turns = Turns::default();
    let breaking = Breaking { stream, writes: 0 };
    let serving = server::handshake(LateEnd::new(breaking, turns.clone()));
    let serving = std::pin::pin!(serving);
    let served: Result<server::Connection<_, bytes::Bytes>, _> =
        timeout(Duration::from_secs(5), turns.run(serving))
            .await
            .unwrap();
    assert!(served.is_err());
}

#[tokio::test]
async fn what_was_kept_comes_in_order_and_once() {
    let ping = b"\0\0\x08\x06\0\0\0\0\0you here";
    let data = b"\0\0\x03\0\0\0\0\0\x01abc";
    let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let sent = [&greeting[..], data, ping, ping, data, ping].concat();
    for piece in [1, 7, 64] {
        let (ours, mut theirs) = duplex(1 << 10);
        theirs.write_all(&sent).await.unwrap();
        drop(theirs);
        let turns = Turns::default();
        let mut stream = LateEnd::new(ours, turns.clone());
        let reading = async {
            let (mut read, mut some) = (Vec::new(), vec![0; piece]);
            loop {
                match stream.read(&mut some).await.unwrap() {
                    0 => return read,
                    more => read.extend_from_slice(&some[..more]),
                }
            }
        };
        let reading = std::pin::pin!(reading);
        assert_eq!(turns.run(reading).await, sent, "in pieces of {piece}");
    }
}
