//! The socket of a connection, which obeys its silence limit.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{pace::Pace, silence_limit::SocketLimit};

/// A TCP stream with a [`SocketLimit`], which tells its [`Pace`] what the client takes: over TLS
/// nobody above it sees that.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    pace: Arc<Pace>,
    limit: SocketLimit,
    /// What the operating system was told last, in milliseconds.
    told: u32,
}

// === impl Socket ===

impl Socket {
    pub(super) fn new(stream: TcpStream, pace: Arc<Pace>, limit: SocketLimit) -> Self {
        let told = limit.as_millis();
        Self {
            stream,
            pace,
            limit,
            told,
        }
    }

    /// The first bytes, which are left to be read.
    pub(super) async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.peek(bytes).await
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.stream
    }

    fn took(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = written {
            self.pace.took();
        }
        written
    }

    fn obey(&mut self) {
        let ms = self.limit.as_millis();
        if ms != self.told {
            self.told = ms;
            tell(&self.stream, ms);
        }
    }
}

#[cfg(target_os = "linux")]
fn tell(stream: &TcpStream, ms: u32) {
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, ms) {
        tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
    }
}

/// Elsewhere a silent peer is found out by the operating system alone.
#[cfg(not(target_os = "linux"))]
fn tell(_: &TcpStream, _: u32) {}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.obey();
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.took(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.obey();
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.took(written)
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
#[cfg(target_os = "linux")]
mod tests {
    use std::time::Duration;

    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;

    fn user_timeout(socket: &Socket) -> u32 {
        rustix::net::sockopt::tcp_user_timeout(&socket.stream).unwrap()
    }

    #[tokio::test]
    async fn obeys_its_limit_with_the_next_write_and_forgets_it_when_it_is_lifted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let limit = SocketLimit::default();
        let mut socket = Socket::new(accepted.unwrap().0, Arc::new(Pace::new()), limit.clone());
        socket.write_all(b"a").await.unwrap();
        assert_eq!(user_timeout(&socket), 0);
        limit.set(Duration::from_millis(1_500));
        socket.write_all(b"b").await.unwrap();
        assert_eq!(user_timeout(&socket), 1_500);
        limit.lift();
        socket.write_all(b"c").await.unwrap();
        assert_eq!(user_timeout(&socket), 0);
    }
}
