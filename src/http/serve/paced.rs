//! A connection that does not wait for its client for ever.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::{
    framing::LengthLines,
    pace::{Pace, Phase, Stretch},
    refusal::Refusals,
};

/// How long a client may keep a connection waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Between two requests, and while it takes nothing of an answer.
    pub(super) idle: Duration,
    /// From the first byte of a request to the end of its headers.
    pub(super) head: Duration,
}

/// A stream that fails when the client has kept the connection waiting for too long, and on which
/// nobody is refused without a problem.
pub(super) struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
    patience: Patience,
    refusals: Arc<Refusals>,
    lengths: LengthLines,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set for, if for anything.
    set_for: Option<Stretch>,
    /// How much may still be read of a request that was answered before it had come whole.
    unread: Option<usize>,
}

/// The client takes nothing of what it is sent.
#[derive(Debug, thiserror::Error)]
#[error("the client takes nothing of what it is sent")]
pub(super) struct Unread;
/// How much of a request that nobody waited for is read, and for how long, before its connection is
/// closed: closed on unread bytes it would be reset, and the client, still sending, would hear of a
/// broken pipe instead of the answer.
const UNREAD: (usize, Duration) = (1 << 20, Duration::from_secs(1));

// === impl Paced ===

impl<S> Paced<S> {
    pub(super) fn new(
        stream: S,
        pace: Arc<Pace>,
        patience: Patience,
        refusals: Arc<Refusals>,
    ) -> Self {
        Self {
            stream,
            pace,
            patience,
            refusals,
            lengths: LengthLines::new(),
            timer: Box::pin(sleep(patience.idle)),
            set_for: None,
            unread: None,
        }
    }

    /// Says which phase it was in which the client has kept the connection waiting for too long.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<Phase> {
        let now = self.pace.stretch();
        let patience = match now.phase() {
            Phase::Idle | Phase::Leaving => self.patience.idle,
            Phase::Head => self.patience.head,
            Phase::Busy => return Poll::Pending,
        };
        if self.set_for != Some(now) {
            self.timer.as_mut().reset(Instant::now() + patience);
            self.set_for = Some(now);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(now.phase())
    }
}

impl<S: AsyncWrite + Unpin> Paced<S> {
    /// Writes with `write`, or with what is to be said instead of the `first` of its bytes.
    fn poll_paced_write(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        len: usize,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = match self.pace.phase() {
            // Every answer has left and nothing is handled, so this is hyper's own answer. It comes
            // in one piece, and it leaves in one: nothing is in front of it.
            Phase::Idle | Phase::Head => match self.refusals.instead_of(first) {
                Some(refusal) => Pin::new(&mut self.stream)
                    .poll_write(cx, &refusal)
                    .map_ok(|_| len),
                None => write(Pin::new(&mut self.stream), cx),
            },
            Phase::Busy | Phase::Leaving => write(Pin::new(&mut self.stream), cx),
        };
        match written {
            Poll::Ready(Ok(1..)) => self.pace.took(),
            // hyper may not read meanwhile, so it is here that the timer runs.
            Poll::Pending => return self.poll_patience(cx).map(|phase| Err(waited(phase))),
            Poll::Ready(_) => {}
        }
        written
    }
}

impl<S: AsyncRead + Unpin> Paced<S> {
    /// Reads what is left of a request, for nobody, until there is no more or it has been enough.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 4096];
        while let Some(left @ 1..) = self.unread {
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.unread = Some(left.saturating_sub(buf.filled().len()));
                }
                // The client has closed, or is gone.
                Poll::Ready(_) => self.unread = Some(0),
                Poll::Pending => return self.timer.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

fn waited(phase: Phase) -> io::Error {
    match phase {
        Phase::Leaving => io::Error::new(io::ErrorKind::TimedOut, Unread),
        Phase::Idle | Phase::Head | Phase::Busy => io::Error::new(
            io::ErrorKind::TimedOut,
            "the client kept the connection waiting",
        ),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                if buf.filled().len() > before {
                    let lines = self.lengths.count(&buf.filled()[before..]);
                    self.pace.lengths_came(lines);
                    self.pace.came();
                }
                Poll::Ready(read)
            }
            Poll::Pending => {
                let phase = ready!(self.poll_patience(cx));
                if phase == Phase::Head {
                    // There is room for it, because all answers have left. If there is not, the
                    // client does not read either.
                    let refusal = self.refusals.too_slow();
                    let _ = Pin::new(&mut self.stream).poll_write(cx, &refusal);
                }
                Poll::Ready(Err(waited(phase)))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_paced_write(cx, bytes, bytes.len(), |stream, cx| {
            stream.poll_write(cx, bytes)
        })
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bytes.first().map_or(&[][..], |slice| slice);
        let len = bytes.iter().map(|slice| slice.len()).sum();
        self.poll_paced_write(cx, first, len, |stream, cx| {
            stream.poll_write_vectored(cx, bytes)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx) else {
            // Over TLS what was written may not have left yet, and hyper may not read meanwhile.
            return self.poll_patience(cx).map(|phase| Err(waited(phase)));
        };
        if flushed.is_ok() && self.pace.left() {
            // hyper does not read again before something comes: the timer is to wake it.
            let _ = self.poll_patience(cx);
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unread.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            let (bytes, time) = UNREAD;
            self.timer.as_mut().reset(Instant::now() + time);
            self.unread = Some(if self.pace.is_cut_short() { bytes } else { 0 });
        }
        self.poll_rest(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests;
