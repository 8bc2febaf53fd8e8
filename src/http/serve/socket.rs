//! The socket of a connection, which applies the limits of its state, and a stream for HTTP/2 that reports
//! its end late.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf, Ready},
    net::TcpStream,
    time::timeout,
};

use super::connection::ConnectionState;

/// A TCP stream that tells its [`ConnectionState`] when bytes arrive and leave. If a grant is to be written and
/// its caller has hung up, the write fails, and hyper drops the connection. The kernel breaks the connection
/// when sent bytes stay unacknowledged, or the other end takes nothing, for as long as the state says.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    state: Arc<ConnectionState>,
    /// The limit for unacknowledged data (`TCP_USER_TIMEOUT`) that the kernel was told last, in milliseconds.
    applied_ms: u32,
}

/// How long sending the refusal of a connection may take.
const REFUSED_WITHIN: Duration = Duration::from_millis(500);

/// Sends one answer to a client and closes the connection.
pub(super) async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) {
    let telling = async {
        if stream.write_all(answer.as_bytes()).await.is_ok() {
            close(&mut stream).await;
        }
    };
    // A client that is gone, or takes too long, does not need the answer.
    drop(timeout(REFUSED_WITHIN, telling).await);
}

/// Closes a connection so that the client can read the last bytes that were written. If a connection is
/// closed on unread bytes, it is reset, and the last bytes may be lost.
pub(super) async fn close(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let closing = async {
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    drop(timeout(REFUSED_WITHIN, closing).await);
}

// === impl Socket ===

impl Socket {
    pub(super) fn new(stream: TcpStream, state: Arc<ConnectionState>) -> Self {
        let applied_ms = state.user_timeout_ms();
        set_user_timeout(&stream, applied_ms);
        Self {
            stream,
            state,
            applied_ms,
        }
    }

    fn on_written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = written {
            self.state.on_bytes_written();
        }
        written
    }

    /// Fails if the caller has hung up, and a grant is about to be written or a look is due.
    fn look_for_caller(&self) -> io::Result<()> {
        let is_gone = self.state.take_due_look() && has_hung_up(&self.stream)
            || self.state.has_unwritten_grants() && is_end_reported(&self.stream);
        if is_gone {
            let why = "the caller hung up before its answer was written";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        }
        Ok(())
    }

    fn apply_user_timeout(&mut self) {
        let ms = self.state.user_timeout_ms();
        if ms != self.applied_ms {
            self.applied_ms = ms;
            set_user_timeout(&self.stream, ms);
        }
    }
}

/// Whether the event loop has reported that the other end has closed its side or reset the connection. This costs
/// no system call.
fn is_end_reported(stream: &TcpStream) -> bool {
    // With `WRITABLE` in the interest the future is ready at once, because nearly every stream can be written.
    let interest = Interest::READABLE | Interest::WRITABLE;
    let known = stream.ready(interest).now_or_never();
    let is_end = |ready: Ready| ready.is_read_closed() || ready.is_write_closed();
    known.is_some_and(|known| known.map_or(true, is_end))
}

/// Asks the kernel whether the other end has closed its side or reset the connection. Bytes that it sent before may
/// still be unread.
#[cfg(target_os = "linux")]
fn has_hung_up(stream: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
    // An error of `poll` says nothing about the connection. A connection that has failed reports its own error to
    // hyper.
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// On systems other than Linux, only the event loop reports the end of a connection.
#[cfg(not(target_os = "linux"))]
fn has_hung_up(_: &TcpStream) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn set_user_timeout(stream: &TcpStream, ms: u32) {
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, ms) {
        tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
    }
}

/// On systems other than Linux, only the operating system's own limit ends a connection with a silent peer.
#[cfg(not(target_os = "linux"))]
fn set_user_timeout(_: &TcpStream, _: u32) {}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.state.on_read(read.is_pending());
        if buf.filled().len() > before {
            self.state.on_bytes_received();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.apply_user_timeout();
        self.look_for_caller()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.on_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.apply_user_timeout();
        self.look_for_caller()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.on_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look_for_caller()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A stream that reports its end only in the next poll of its connection.
///
/// h2 reads all bytes that are there before it returns the first request among them. If the end is there as
/// well, h2 returns no request, and a release that arrived in one piece with the end would be lost.
pub(super) struct TrailingEnd<S> {
    stream: S,
    state: Arc<ConnectionState>,
    /// The number of the poll in which the end of the stream was read; `None` before the end.
    ended_in: Option<u64>,
}

// === impl TrailingEnd ===

impl<S> TrailingEnd<S> {
    pub(super) fn new(stream: S, state: Arc<ConnectionState>) -> Self {
        Self {
            stream,
            state,
            ended_in: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrailingEnd<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let poll_count = self.state.poll_count();
        if self.ended_in != Some(poll_count) {
            let before = buf.filled().len();
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
            let is_end = read.is_err() || buf.filled().len() == before;
            if !is_end || self.ended_in.is_some() {
                return Poll::Ready(read);
            }
            // In the next poll the stream is read again: a stream that has ended reports its end again.
            self.ended_in = Some(poll_count);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Writes one buffer at a time: h2 then copies a small body behind its head, so that both still leave in one
/// write.
impl<S: AsyncWrite + Unpin> AsyncWrite for TrailingEnd<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use tokio::net::TcpListener;

    use crate::http::serve::connection::Connection;

    use super::*;

    fn user_timeout(socket: &Socket) -> u32 {
        rustix::net::sockopt::tcp_user_timeout(&socket.stream).unwrap()
    }

    #[tokio::test]
    async fn obeys_its_limit_with_the_next_write_and_that_of_every_answer_when_it_is_lifted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let state = ConnectionState::of_test();
        state.read_heads();
        let mut socket = Socket::new(accepted.unwrap().0, Arc::clone(&state));
        assert_eq!(user_timeout(&socket), 75_000);
        let mut request = http::Request::new(());
        state.begin_request().attach_to(&mut request);
        let handlers = Connection::from_extensions(request.extensions());
        handlers.set_user_timeout(Some(Duration::from_millis(1_500)));
        socket.write_all(b"b").await.unwrap();
        assert_eq!(user_timeout(&socket), 1_500);
        handlers.set_user_timeout(None);
        socket.write_all(b"c").await.unwrap();
        assert_eq!(user_timeout(&socket), 75_000);
    }
}
