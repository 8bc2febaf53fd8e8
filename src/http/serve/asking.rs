//! A connection over HTTP/2 that is asked for signs of life while a request on it needs them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{outgoing::Outgoing, streams::Streams};

/// A stream that puts a ping between the frames that are written, when [`Streams`] wants to know
/// whether anybody hears them, and says what comes.
///
/// hyper has pings of its own, whose time is one for all connections and which end the connection. A
/// lock that is held by one request has a time of its own, and others on the connection bear more.
pub(super) struct Asking<S> {
    stream: S,
    streams: Arc<Streams>,
    outgoing: Outgoing,
    /// What is left of a ping.
    ping: &'static [u8],
}

/// A frame of eight bytes, a ping, without flags, of the connection.
const PING: &[u8; 17] = b"\0\0\x08\x06\0\0\0\0\0you here";

// === impl Asking ===

impl<S> Asking<S> {
    pub(super) fn new(stream: S, streams: Arc<Streams>) -> Self {
        Self {
            stream,
            streams,
            outgoing: Outgoing::default(),
            ping: &[],
        }
    }
}

impl<S: AsyncWrite + Unpin> Asking<S> {
    /// Writes what is left of a ping, if it may stand here.
    fn poll_ping(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.ping.is_empty() && self.outgoing.is_between_frames() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, self.ping))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.ping = &self.ping[written..],
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_before_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ping.is_empty() && self.streams.asks() {
            self.ping = PING;
        }
        self.poll_ping(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Asking<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.streams.heard();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Asking<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_before_write(cx))?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.outgoing.pass(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_before_write(cx))?;
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bytes))?;
        let mut left = written;
        for slice in bytes {
            let passed = left.min(slice.len());
            self.outgoing.pass(&slice[..passed]);
            left -= passed;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_ping(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// A frame of data.
    const DATA: &[u8] = b"\0\0\x03\0\0\0\0\0\x01abc";

    fn asking(room: usize) -> (Asking<DuplexStream>, DuplexStream, Arc<Streams>) {
        let (ours, theirs) = duplex(room);
        let streams = Streams::new();
        (Asking::new(ours, Arc::clone(&streams)), theirs, streams)
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_comes_only_between_frames_and_only_if_somebody_wants_to_know() {
        let (mut ours, mut theirs, streams) = asking(1_024);
        ours.write_all(DATA).await.unwrap();
        let request = streams.begin(None);
        streams.limit_silence(request.number, Duration::from_secs(3));
        ours.write_all(&DATA[..4]).await.unwrap();
        // It was wanted within the frame, comes after it, and is not repeated.
        ours.write_all(&DATA[4..]).await.unwrap();
        ours.flush().await.unwrap();
        ours.write_all(DATA).await.unwrap();
        drop(ours);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, [DATA, PING, DATA, DATA].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_that_does_not_fit_is_completed_before_anything_else() {
        let (mut ours, mut theirs, streams) = asking(5);
        let request = streams.begin(None);
        streams.limit_silence(request.number, Duration::from_secs(3));
        let sending = async {
            ours.write_all(DATA).await.unwrap();
            ours.shutdown().await.unwrap();
        };
        let mut sent = Vec::new();
        let ((), read) = tokio::join!(sending, theirs.read_to_end(&mut sent));
        read.unwrap();
        assert_eq!(sent, [PING, DATA].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_is_a_sign_of_life() {
        let (mut ours, mut theirs, streams) = asking(1_024);
        let request = streams.begin(None);
        let end = streams.take_begun();
        streams.limit_silence(request.number, Duration::from_secs(3));
        let over = streams.over(Duration::MAX / 4, Duration::MAX / 4);
        let asking = async {
            for _ in 0..5 {
                ours.write_all(DATA).await.unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
                theirs.write_all(b"pong").await.unwrap();
                ours.read_exact(&mut [0; 4]).await.unwrap();
            }
            assert!(
                tokio::time::timeout(Duration::ZERO, end.notified())
                    .await
                    .is_err()
            );
            ours.write_all(DATA).await.unwrap();
            end.notified().await;
        };
        tokio::select! {
            over = over => panic!("{over:?}"),
            () = asking => {}
        }
    }
}
