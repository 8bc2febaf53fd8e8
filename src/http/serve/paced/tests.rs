//! How long a connection waits.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::config::HttpConfig;

use super::*;

const PATIENCE: Patience = Patience {
    idle: Duration::from_secs(75),
    head: Duration::from_secs(10),
};

fn paced() -> (Paced<DuplexStream>, DuplexStream, Arc<Pace>) {
    let (server, client) = duplex(64);
    let pace = Arc::new(Pace::new());
    let refusals = Arc::new(Refusals::new(&HttpConfig::default()));
    let paced = Paced::new(server, Arc::clone(&pace), PATIENCE, refusals);
    (paced, client, pace)
}

/// Reads until it fails, and says after how many seconds that was.
async fn patience_left(paced: &mut Paced<DuplexStream>) -> u64 {
    let began = Instant::now();
    loop {
        match paced.read_u8().await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                return began.elapsed().as_secs();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waits_longer_for_a_request_to_begin_than_for_it_to_come() {
    let (mut server, mut client, _) = paced();
    assert_eq!(patience_left(&mut server).await, 75);

    let (mut server, mut other, _) = paced();
    other.write_all(b"G").await.unwrap();
    assert_eq!(patience_left(&mut server).await, 10);
    client.write_all(b"G").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn does_not_start_anew_for_each_byte() {
    let (mut server, mut client, _) = paced();
    let dripping = async {
        loop {
            client.write_all(b"G").await.unwrap();
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = dripping => unreachable!("it drips for ever"),
        seconds = patience_left(&mut server) => assert_eq!(seconds, 10),
    }
}

/// The answer to a request leaves at once.
async fn answer(paced: &mut Paced<DuplexStream>, pace: &Pace) {
    pace.busy();
    pace.leaving();
    paced.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn never_runs_out_while_a_request_is_handled() {
    let (mut server, _client, pace) = paced();
    pace.busy();
    let hour = Duration::from_hours(1);
    assert!(tokio::time::timeout(hour, server.read_u8()).await.is_err());
    answer(&mut server, &pace).await;
    assert_eq!(patience_left(&mut server).await, 75);
}

#[tokio::test(start_paused = true)]
async fn begins_anew_after_each_answer() {
    let (mut server, mut client, pace) = paced();
    let minute = Duration::from_mins(1);
    for _ in 0..3 {
        assert!(
            tokio::time::timeout(minute, server.read_u8())
                .await
                .is_err()
        );
        client.write_all(b"G").await.unwrap();
        server.read_u8().await.unwrap();
        // Handled so fast that the stream was not read meanwhile.
        answer(&mut server, &pace).await;
    }
    assert_eq!(patience_left(&mut server).await, 75);
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_its_time_for_as_long_as_the_client_takes_some_of_it() {
    let (mut server, mut client, pace) = paced();
    pace.busy();
    pace.leaving();
    let reading = async {
        let began = Instant::now();
        for _ in 0..300 {
            sleep(Duration::from_secs(1)).await;
            client.read_u8().await.unwrap();
        }
        began.elapsed().as_secs()
    };
    let (written, seconds) = tokio::join!(server.write_all(&[0; 300]), reading);
    written.unwrap();
    assert_eq!(seconds, 300);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_an_answer_is_given_up() {
    let (mut server, _client, pace) = paced();
    pace.busy();
    pace.leaving();
    let began = Instant::now();
    let error = server.write_all(&[0; 300]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), 75);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_began_before_the_last_answer_had_left_has_no_longer_than_another() {
    for early in [true, false] {
        let (mut server, mut client, pace) = paced();
        pace.busy();
        // The body of the request that is handled.
        client.write_all(b"B").await.unwrap();
        server.read_u8().await.unwrap();
        pace.arrived();
        if early {
            client.write_all(b"G").await.unwrap();
            server.read_u8().await.unwrap();
        }
        pace.leaving();
        server.flush().await.unwrap();
        let patience = if early { 10 } else { 75 };
        assert_eq!(patience_left(&mut server).await, patience);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_too_slow_with_a_request_hears_so_and_who_sends_none_hears_nothing() {
    let (mut server, mut client, _) = paced();
    client.write_all(b"G").await.unwrap();
    patience_left(&mut server).await;
    let mut said = [0; 12];
    client.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 408");

    let (mut server, mut client, _) = paced();
    patience_left(&mut server).await;
    drop(server);
    let mut said = Vec::new();
    client.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"");
}

#[tokio::test]
async fn only_what_nobody_answered_is_said_otherwise() {
    let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n";
    for handled in [false, true] {
        let (server, mut client) = duplex(4096);
        let pace = Arc::new(Pace::new());
        if handled {
            pace.busy();
        }
        let refusals = Arc::new(Refusals::new(&HttpConfig::default()));
        let mut server = Paced::new(server, pace, PATIENCE, refusals);
        server.write_all(bare).await.unwrap();
        drop(server);
        let mut said = Vec::new();
        client.read_to_end(&mut said).await.unwrap();
        assert_eq!(said == bare, handled);
    }
}

/// A stream that takes bytes and does not get rid of them, as TLS does over a socket that is full.
struct Stuck(DuplexStream);

impl AsyncRead for Stuck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_encrypted_and_is_not_taken_is_not_waited_for_either() {
    let (server, _client) = duplex(64);
    let pace = Arc::new(Pace::new());
    let refusals = Arc::new(Refusals::new(&HttpConfig::default()));
    let mut paced = Paced::new(Stuck(server), Arc::clone(&pace), PATIENCE, refusals);
    pace.busy();
    pace.arrived();
    paced.write_all(b"an answer").await.unwrap();
    pace.leaving();
    let began = Instant::now();
    let error = paced.flush().await.unwrap_err();
    assert!(error.get_ref().unwrap().is::<Unread>());
    assert_eq!(began.elapsed(), PATIENCE.idle);
}
