//! A connection that does not wait for its client for ever.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// How long a client may keep a connection waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Between two requests.
    pub(super) idle: Duration,
    /// From the first byte of a request to the end of its headers.
    pub(super) head: Duration,
}

/// What a connection is waiting for. Only its own task changes it.
///
/// The lower two bits are the phase; the others count the changes, so that two idle times are not
/// taken for one.
#[derive(Debug)]
pub(super) struct Pace {
    state: AtomicU64,
    /// Who read while the connection was busy, and would not notice that it has become idle: hyper
    /// does not read again before something comes.
    reader: AtomicWaker,
}

/// Nothing has come since the last answer.
const IDLE: u64 = 0;
/// A request has begun to come.
const HEAD: u64 = 1;
/// A request is being handled. Its body has a time-out of its own.
const BUSY: u64 = 2;
const PHASE: u64 = 3;

/// A stream whose reads fail when the client has kept the connection waiting for too long.
pub(super) struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
    patience: Patience,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set for, if for anything.
    set_for: Option<u64>,
}

// === impl Pace ===

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU64::new(IDLE),
            reader: AtomicWaker::new(),
        }
    }

    pub(super) fn busy(&self) {
        self.change(BUSY);
    }

    pub(super) fn idle(&self) {
        self.change(IDLE);
        self.reader.wake();
    }

    fn begun(&self) {
        // Bytes that come while a request is handled are its body, or a request after it.
        if self.get() & PHASE == IDLE {
            self.change(HEAD);
        }
    }

    fn change(&self, phase: u64) {
        let next = (self.get() | PHASE).wrapping_add(1) | phase;
        self.state.store(next, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }
}

// === impl Paced ===

impl<S> Paced<S> {
    pub(super) fn new(stream: S, pace: Arc<Pace>, patience: Patience) -> Self {
        Self {
            stream,
            pace,
            patience,
            timer: Box::pin(sleep(patience.idle)),
            set_for: None,
        }
    }

    /// Fails when the client has kept the connection waiting for too long.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let now = self.pace.get();
        let patience = match now & PHASE {
            IDLE => self.patience.idle,
            HEAD => self.patience.head,
            _ => {
                self.pace.reader.register(cx.waker());
                return Poll::Pending;
            }
        };
        if self.set_for != Some(now) {
            self.timer.as_mut().reset(Instant::now() + patience);
            self.set_for = Some(now);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client kept the connection waiting",
        ))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                if buf.filled().len() > before {
                    self.pace.begun();
                }
                Poll::Ready(read)
            }
            Poll::Pending => self.poll_patience(cx).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const PATIENCE: Patience = Patience {
        idle: Duration::from_secs(75),
        head: Duration::from_secs(10),
    };

    fn paced() -> (Paced<DuplexStream>, DuplexStream, Arc<Pace>) {
        let (server, client) = duplex(64);
        let pace = Arc::new(Pace::new());
        let paced = Paced::new(server, Arc::clone(&pace), PATIENCE);
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

    #[tokio::test(start_paused = true)]
    async fn never_runs_out_while_a_request_is_handled() {
        let (mut server, _client, pace) = paced();
        pace.busy();
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, server.read_u8()).await.is_err());
        pace.idle();
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
            pace.busy();
            pace.idle();
        }
        assert_eq!(patience_left(&mut server).await, 75);
    }
}
