//! A stream over HTTP/2 whose end is seen only when what came before it has been taken up.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::ConnectionState;

/// A stream that keeps its end for the next turn of its connection.
///
/// h2 reads all that is there before it hands out the first request of it. If the end is there as well,
/// it hands out none, and a release that came in one piece with the end would be lost.
pub(super) struct TrailingEnd<S> {
    stream: S,
    state: Arc<ConnectionState>,
    /// In which turn the end was read.
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
            // Read again in the next turn: a stream that has ended ends again.
            self.ended_in = Some(poll_count);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrailingEnd<S> {
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
        bytes: &[IoSlice<'_>],
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
