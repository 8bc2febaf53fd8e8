//! Moves the bytes of one connection, and looks after the time-outs of its commands.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{Instant, Sleep, sleep_until},
};

use super::{
    connection::{ConnectionShared, UnsolicitedReply},
    resp::Replies,
};

/// The task of a connection. When it is dropped the connection has ended.
pub(crate) struct Driver<S> {
    shared: Arc<ConnectionShared>,
    stream: S,
    input: BytesMut,
    replies: Replies,
    /// What is being sent, and how much of it was.
    output: Vec<u8>,
    sent: usize,
    is_flushed: bool,
    /// One timer for all commands: set to the earliest limit, and anew when it has passed.
    alarm: Pin<Box<Sleep>>,
    is_set: bool,
    woken: Vec<Waker>,
}

/// How much is read at once.
const READ: usize = 16 * 1_024;
/// How large an empty buffer may stay that was needed once: for a script in full, a page of a list.
const KEPT: usize = 64 * 1_024;

/// Why a connection has ended that was given up here.
const CLOSED: &str = "the server is not used any more";

// === impl Driver ===

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(crate) fn new(shared: Arc<ConnectionShared>, stream: S) -> Self {
        Self {
            shared,
            stream,
            input: BytesMut::new(),
            replies: Replies::default(),
            output: Vec::new(),
            sent: 0,
            is_flushed: true,
            alarm: Box::pin(sleep_until(Instant::now())),
            is_set: false,
            woken: Vec::new(),
        }
    }

    /// Runs until the connection ends.
    pub(crate) async fn run(mut self) {
        let ended = poll_fn(|context| match self.turn(context) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        });
        let error = ended.await;
        self.shared.end(&error.to_string());
    }

    /// Reads what has come, sends what is to be sent, and tells those whose time is over.
    fn turn(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.shared.is_closed() {
            return Err(closed());
        }
        self.read(context)?;
        match self.write(context) {
            Poll::Ready(sent) => sent?,
            // A command with a shorter limit sets the timer anew, although it cannot be sent yet.
            Poll::Pending => self.shared.state().wake_with(context.waker()),
        }
        self.expire(context);
        if self.shared.is_closed() {
            return Err(closed());
        }
        Ok(())
    }

    fn read(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        loop {
            self.input.reserve(READ);
            if self.input.is_empty() && self.input.capacity() > KEPT {
                self.input = BytesMut::with_capacity(READ);
            }
            let read = pin!(self.stream.read_buf(&mut self.input)).poll(context);
            let Poll::Ready(read) = read else {
                return Ok(());
            };
            if read? == 0 {
                return Err(io::Error::other("the server closed the connection"));
            }
            let mut state = self.shared.state();
            while let Some(reply) = self
                .replies
                .next(&mut self.input)
                .map_err(|_| io::Error::other("it answers what no Redis would"))?
            {
                let waker = state
                    .answer(reply)
                    .map_err(|UnsolicitedReply| io::Error::other("it answers what nobody asked"))?;
                self.woken.extend(waker);
            }
            drop(state);
            self.woken.drain(..).for_each(Waker::wake);
        }
    }

    /// Sends all that there is.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.sent < self.output.len() {
                let rest = &self.output[self.sent..];
                let written = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.sent += written;
                self.is_flushed = false;
            }
            self.output.clear();
            self.output.shrink_to(KEPT);
            self.sent = 0;
            let mut state = self.shared.state();
            std::mem::swap(&mut self.output, &mut state.unsent);
            if self.output.is_empty() {
                // Under the same lock, so that whatever comes after this wakes the task.
                state.wake_with(context.waker());
                break;
            }
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn expire(&mut self, context: &mut Context<'_>) {
        loop {
            let Some(earliest) = self.shared.state().earliest else {
                return;
            };
            if !self.is_set || earliest < self.alarm.deadline() {
                self.alarm.as_mut().reset(earliest);
                self.is_set = true;
            }
            if self.alarm.as_mut().poll(context).is_pending() {
                return;
            }
            self.is_set = false;
            let now = Instant::now();
            let is_overdue = self.shared.state().expire(now, &mut self.woken);
            if is_overdue {
                self.shared.retire();
            }
            self.woken.drain(..).for_each(Waker::wake);
        }
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        self.woken.drain(..).for_each(Waker::wake);
        self.shared.end(CLOSED);
    }
}

fn closed() -> io::Error {
    io::Error::other(CLOSED)
}
