//! A connection over HTTP/2 whose end is told only when what came before it has been taken up.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::incoming::Incoming;

/// A stream that keeps its end, and what may be the end of HTTP/2 on it, for the next turn.
///
/// h2 reads all that is there before it gives out the first request of it. If the end is there as well,
/// it gives out none: a release that came in one piece with the end of its connection would never have
/// been sent, for all that anybody learns of it. Until hyper has nothing to do, it has taken up every
/// request that came before.
///
/// One thing remains: of a client that takes none of its answers, and whose connection breaks, nothing
/// is read any more.
pub(super) struct LateEnd<S> {
    stream: S,
    turns: Turns,
    incoming: Incoming,
    /// What came behind a frame after which the connection may end.
    kept: BytesMut,
    /// The end that was read.
    end: Option<io::Result<()>>,
    /// In which turn no more is read.
    pauses_in: Option<u64>,
    /// Whether anything came.
    has_begun: bool,
    /// Whether the end that was read has been told.
    is_over: bool,
    broken: Option<Broken>,
}

/// Nothing can be written any more. What came before that is still to be read.
struct Broken {
    error: io::Error,
    /// Until when the end is waited for that is to be read behind it.
    patience: Pin<Box<Sleep>>,
}

/// How long it may take until the runtime knows of what has come before a connection broke. That is moments;
/// and where nothing is read any more, nobody else tells that it broke.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// How often a connection was run until it had nothing to do.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<AtomicU64>);

// === impl Turns ===

impl Turns {
    /// Runs a connection, one turn each time.
    pub(super) fn run<C: Future>(
        &self,
        mut connection: Pin<&mut C>,
    ) -> impl Future<Output = C::Output> {
        poll_fn(move |cx| {
            self.0.fetch_add(1, Ordering::Relaxed);
            connection.as_mut().poll(cx)
        })
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl LateEnd ===

impl<S> LateEnd<S> {
    /// `turns` run the connection that reads this.
    pub(super) fn new(stream: S, turns: Turns) -> Self {
        Self {
            stream,
            turns,
            incoming: Incoming::default(),
            kept: BytesMut::new(),
            end: None,
            pauses_in: None,
            has_begun: false,
            is_over: false,
            broken: None,
        }
    }

    /// No more is read in this turn, and the next one comes at once.
    fn pause(&mut self, cx: &Context<'_>) {
        self.pauses_in = Some(self.turns.now());
        cx.waker().wake_by_ref();
    }

    /// Writes, unless that has failed before. h2 reads nothing before it has written its greeting, so that
    /// counts as written anyway.
    fn poll_writing<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: T,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>>
    where
        S: Unpin,
    {
        if self.broken.is_none() {
            match ready!(write(Pin::new(&mut self.stream), cx)) {
                Ok(done) => return Poll::Ready(Ok(done)),
                Err(error) => self.broken = Some(Broken::new(error)),
            }
        }
        if !self.has_begun && !self.is_over {
            return Poll::Ready(Ok(written));
        }
        let broken = self.broken.as_mut().expect("it has failed");
        if !self.is_over {
            ready!(broken.patience.as_mut().poll(cx));
        }
        Poll::Ready(Err(broken.told()))
    }
}

// === impl Broken ===

impl Broken {
    fn new(error: io::Error) -> Self {
        Self {
            error,
            patience: Box::pin(sleep(KNOWN_WITHIN)),
        }
    }

    /// Tells why, and keeps an error of the same kind.
    fn told(&mut self) -> io::Error {
        let again = self.error.kind().into();
        mem::replace(&mut self.error, again)
    }
}

impl<S: AsyncRead + Unpin> LateEnd<S> {
    /// Reads what was kept, or what there is.
    fn poll_more(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(end) = self.end.take() {
            self.is_over = true;
            return Poll::Ready(end);
        }
        if self.kept.is_empty() {
            let read = Pin::new(&mut self.stream).poll_read(cx, buf);
            if let Some(broken) = &mut self.broken
                && read.is_pending()
            {
                ready!(broken.patience.as_mut().poll(cx));
                return Poll::Ready(Err(broken.told()));
            }
            return read;
        }
        let fits = self.kept.len().min(buf.remaining());
        buf.put_slice(&self.kept[..fits]);
        self.kept.advance(fits);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LateEnd<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        let paused = me.pauses_in.take();
        if paused == Some(me.turns.now()) {
            me.pause(cx);
            return Poll::Pending;
        }
        let told = me.end.is_some();
        let before = buf.filled().len();
        let read = ready!(me.poll_more(cx, buf));
        let came = buf.filled().len() - before;
        if came == 0 || read.is_err() {
            if told {
                return Poll::Ready(read);
            }
            me.end = Some(read);
            me.pause(cx);
            return Poll::Pending;
        }
        me.has_begun = true;
        if let Some(passed) = me.incoming.pass(&buf.filled()[before..]) {
            // In front of what has been kept already.
            let mut behind = BytesMut::from(&buf.filled()[before + passed..]);
            behind.unsplit(mem::take(&mut me.kept));
            me.kept = behind;
            buf.set_filled(before + passed);
            me.pause(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LateEnd<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, bytes.len(), |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = bytes.iter().map(|bytes| bytes.len()).sum();
        self.poll_writing(cx, all, |stream, cx| stream.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writing(cx, (), AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writing(cx, (), AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests;
