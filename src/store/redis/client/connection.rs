//! One connection to a server, shared by many requests at once, and the task that sends and receives its bytes.
//!
//! A command is written whole into a buffer that the connection's driver sends, and nothing withdraws it: a caller
//! that goes away leaves no half command behind. Replies come in the order of the commands. Each reply goes to the
//! caller of its command, or is dropped if that caller has gone. A connection on which anything went wrong is
//! retired: no new command is sent on it, and it is closed when the last of its commands has ended.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};

use bb8_redis::redis::{ServerError, Value};
use bytes::BytesMut;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{Duration, Instant, Sleep, sleep_until, timeout_at},
};

use crate::{
    lifecycle::Worker,
    store::{Unavailability, Uncertainty},
};

use super::{
    failure::Failure,
    identity::{Run, RunId},
    resp::Replies,
    script::Command,
};

/// A handle to a connection. Cloning is cheap; dropping the last handle closes the connection.
#[derive(Clone)]
pub(crate) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    shared: Arc<ConnectionShared>,
    run: Run,
    /// The thread on which the driver of the connection runs.
    home: Option<Worker>,
}

/// What the handles of a connection share with its driver.
// No `Debug`: the unsent bytes may contain the password.
#[derive(Default)]
pub(crate) struct ConnectionShared {
    state: Mutex<RedisConnectionState>,
    /// Whether the connection is retired, closed, or has ended.
    broken: AtomicBool,
    /// Whether the gateway closed the connection: commands that are queued but not sent yet are dropped.
    closed: AtomicBool,
}

#[derive(Default)]
struct RedisConnectionState {
    /// Commands that the driver has not begun to send.
    unsent: Vec<u8>,
    /// The commands whose replies have not arrived, in the order in which the commands are sent.
    order: VecDeque<PendingReply>,
    slots: Vec<ReplySlot>,
    free: Vec<usize>,
    /// A time that is not later than the limit of any pending reply; the driver sets its timer to it.
    earliest: Option<Instant>,
    /// Waker of the driver's task. The first queued command takes it, so that many commands wake the driver once.
    driver: Option<Waker>,
    ended: bool,
}

#[derive(Debug)]
struct PendingReply {
    /// Index of the caller's entry in `slots`; `None` if the caller was told that the command timed out.
    slot: Option<usize>,
    limit: Instant,
}

/// State of one caller's wait for a reply.
#[derive(Debug)]
enum ReplySlot {
    Free,
    Waiting(Option<Waker>),
    Answered(Result<Value, Uncertainty>),
    /// The caller went away before the reply came.
    Left,
}

/// Future of the reply to a command. Dropping it does not withdraw the command.
struct ReplyFuture<'a> {
    shared: &'a ConnectionShared,
    slot: usize,
    taken: bool,
}

/// Maximum number of pending replies on one connection. It is many times the number of callers that may wait, so only
/// a server that is far behind gets no more commands.
const MOST_PENDING: usize = 16_384;

/// How long after a command's limit callers on other threads wait for the driver to report the time-out, before they
/// time out by themselves.
const DRIVER_IS_LATE: Duration = Duration::from_millis(50);

// === impl Connection ===

impl Connection {
    /// Creates a connection to this run of a server. Its driver is about to start on the current thread.
    pub(crate) fn new(shared: Arc<ConnectionShared>, run: Run) -> Self {
        Self(Arc::new(ConnectionInner {
            shared,
            run,
            home: Worker::current(),
        }))
    }

    /// Whether no new command may be sent on the connection.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.shared.broken.load(Ordering::Acquire)
    }

    /// Retires the connection: no new command is sent on it.
    pub(crate) fn retire(&self) {
        self.0.shared.retire();
    }

    /// Whether both are handles to the same connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How long the server at the other end has been running; `None` if the server was not asked, or does not say.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.0.run.age()
    }

    /// Which run of which server the connection leads to; `None` if the server was not asked, or does not say.
    pub(crate) fn run(&self) -> Option<&RunId> {
        self.0.run.id()
    }

    /// Waits for a reply. The driver ends commands that take too long. A caller on another thread than the driver
    /// checks the limit as well, because a driver on a stuck thread ends nothing.
    async fn within(&self, limit: Instant, reply: ReplyFuture<'_>) -> Result<Value, Uncertainty> {
        if Worker::current() == self.0.home {
            return reply.await;
        }
        let waited = timeout_at(limit + DRIVER_IS_LATE, reply).await;
        waited.unwrap_or(Err(Uncertainty::TimedOut))
    }

    /// Sends a command and waits for its reply, at most until `limit`.
    pub(crate) async fn send(&self, command: &Command, limit: Instant) -> Result<Value, Failure> {
        let shared = &*self.0.shared;
        let slot = shared.accept(1, |state| state.push(command, limit))?;
        let failure = match self.within(limit, ReplyFuture::new(shared, slot)).await {
            Ok(Value::ServerError(error)) => answered(&error),
            Ok(value) => return Ok(value),
            Err(unknown) => Failure::Unknown(unknown),
        };
        if let Failure::Unknown(_) | Failure::WrongNode(_) = failure {
            self.retire();
        }
        Err(failure)
    }

    /// Sends commands together, without another caller's command between them, and waits for all replies. Each reply
    /// may be an error.
    pub(crate) async fn send_all(
        &self,
        commands: &[Command],
        limit: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let shared = &*self.0.shared;
        let replies: Vec<_> = shared.accept(commands.len(), |state| {
            let slots = commands.iter().map(|command| state.push(command, limit));
            slots.map(|slot| ReplyFuture::new(shared, slot)).collect()
        })?;
        let mut values = Vec::with_capacity(replies.len());
        for reply in replies {
            let value = self
                .within(limit, reply)
                .await
                .inspect_err(|_| self.retire());
            values.push(value.map_err(Failure::Unknown)?);
        }
        Ok(values)
    }
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Converts an error reply of the server to a failure of the command.
pub(crate) fn answered(error: &ServerError) -> Failure {
    Failure::classify(error.code(), error.details().unwrap_or_default())
}

// === impl ConnectionShared ===

impl ConnectionShared {
    fn state(&self) -> MutexGuard<'_, RedisConnectionState> {
        self.state.lock()
    }

    /// Queues commands to be sent. If the connection has ended or too many replies are pending, none of them is sent.
    fn accept<T>(
        &self,
        count: usize,
        push: impl FnOnce(&mut RedisConnectionState) -> T,
    ) -> Result<T, Failure> {
        let mut state = self.state();
        if state.ended || self.is_closed() {
            let why = "the connection was lost before anything was sent".to_owned();
            return Err(Failure::Transient(Unavailability::Connect(why)));
        }
        if state.order.len() + count > MOST_PENDING {
            return Err(Failure::Transient(Unavailability::Overloaded));
        }
        let pushed = push(&mut state);
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(pushed)
    }

    /// Retires the connection: no new command is sent on it.
    fn retire(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Closes the connection: commands that its driver has not sent yet are not sent.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.broken.store(true, Ordering::Release);
        let driver = self.state().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the connection: nothing more is sent, and each waiting caller is told that no reply will come.
    fn end(&self, why: &str) {
        self.broken.store(true, Ordering::Release);
        let mut state = self.state();
        state.ended = true;
        state.unsent = Vec::new();
        state.earliest = None;
        let mut woken = Vec::new();
        while let Some(pending) = state.order.pop_front() {
            let lost = Uncertainty::ConnectionLost(why.to_owned());
            woken.extend(state.resolve(pending.slot, Err(lost)));
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

// === impl RedisConnectionState ===

impl RedisConnectionState {
    fn push(&mut self, command: &Command, limit: Instant) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ReplySlot::Free);
            self.slots.len() - 1
        });
        self.slots[slot] = ReplySlot::Waiting(None);
        command.write_to(&mut self.unsent);
        self.order.push_back(PendingReply {
            slot: Some(slot),
            limit,
        });
        if self.earliest.is_none_or(|earliest| limit < earliest) {
            self.earliest = Some(limit);
        }
        slot
    }

    /// Sets the waker of the driver's task, which the next queued command wakes.
    fn wake_with(&mut self, waker: &Waker) {
        match &mut self.driver {
            Some(driver) => driver.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Hands a reply to the caller of the oldest pending command. Returns the caller's waker, if the caller waits.
    fn answer(&mut self, value: Value) -> io::Result<Option<Waker>> {
        let pending = self.order.pop_front();
        let pending = pending
            .ok_or_else(|| io::Error::other("the server sends a reply without a command"))?;
        Ok(self.resolve(pending.slot, Ok(value)))
    }

    /// Ends the commands whose limit has passed, and collects the wakers of their callers.
    ///
    /// Returns whether any reply is overdue, even one whose caller has gone: then the connection may be dead.
    fn expire(&mut self, now: Instant, woken: &mut Vec<Waker>) -> bool {
        self.earliest = None;
        let mut is_overdue = false;
        for at in 0..self.order.len() {
            let PendingReply { slot, limit } = self.order[at];
            let unanswered =
                |&slot: &usize| matches!(self.slots[slot], ReplySlot::Waiting(_) | ReplySlot::Left);
            let Some(waiting) = slot.filter(unanswered) else {
                continue;
            };
            if limit <= now {
                // The reply may still come. Without a slot it is dropped, and cannot reach the caller of another
                // command.
                self.order[at].slot = None;
                is_overdue = true;
                woken.extend(self.resolve(Some(waiting), Err(Uncertainty::TimedOut)));
            } else if self.earliest.is_none_or(|earliest| limit < earliest) {
                self.earliest = Some(limit);
            }
        }
        is_overdue
    }

    fn resolve(&mut self, slot: Option<usize>, reply: Result<Value, Uncertainty>) -> Option<Waker> {
        let slot = slot?;
        match std::mem::replace(&mut self.slots[slot], ReplySlot::Answered(reply)) {
            ReplySlot::Waiting(waker) => waker,
            ReplySlot::Left => {
                self.slots[slot] = ReplySlot::Free;
                self.free.push(slot);
                None
            }
            ReplySlot::Free | ReplySlot::Answered(_) => unreachable!("a command is settled once"),
        }
    }
}

// === impl ReplyFuture ===

impl<'a> ReplyFuture<'a> {
    fn new(shared: &'a ConnectionShared, slot: usize) -> Self {
        Self {
            shared,
            slot,
            taken: false,
        }
    }
}

impl Future for ReplyFuture<'_> {
    type Output = Result<Value, Uncertainty>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.state();
        match std::mem::replace(&mut state.slots[self.slot], ReplySlot::Free) {
            ReplySlot::Answered(reply) => {
                state.free.push(self.slot);
                drop(state);
                self.taken = true;
                Poll::Ready(reply)
            }
            ReplySlot::Waiting(Some(waker)) if waker.will_wake(context.waker()) => {
                state.slots[self.slot] = ReplySlot::Waiting(Some(waker));
                Poll::Pending
            }
            ReplySlot::Waiting(_) | ReplySlot::Left | ReplySlot::Free => {
                state.slots[self.slot] = ReplySlot::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for ReplyFuture<'_> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.shared.state();
        let left = std::mem::replace(&mut state.slots[self.slot], ReplySlot::Left);
        if let ReplySlot::Answered(_) = left {
            state.slots[self.slot] = ReplySlot::Free;
            state.free.push(self.slot);
        }
    }
}

// === Driver ===
//
// Sends and receives the bytes of one connection, and ends commands that take too long.

/// The task that sends and receives the bytes of a connection. Dropping it ends the connection.
pub(crate) struct Driver<S> {
    shared: Arc<ConnectionShared>,
    stream: S,
    input: BytesMut,
    replies: Replies,
    /// The bytes that are being sent; the first `sent` of them have been.
    output: Vec<u8>,
    sent: usize,
    is_flushed: bool,
    /// One timer for all commands: set to the earliest limit, and set again when that limit has passed.
    alarm: Pin<Box<Sleep>>,
    is_set: bool,
    woken: Vec<Waker>,
}

/// Free space of the input buffer before each read, in bytes.
const READ: usize = 16 * 1_024;
/// Maximum capacity that an empty buffer keeps, in bytes. Only a full script or a page of a list needs more.
const MAX_KEPT_BUFFER_BYTES: usize = 64 * 1_024;

/// Error text of a connection that the gateway itself closed.
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

    /// Runs the driver until the connection ends.
    pub(crate) async fn run(mut self) {
        let ended = poll_fn(|context| match self.turn(context) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        });
        let error = ended.await;
        self.shared.end(&error.to_string());
    }

    /// Reads replies, sends queued commands, and ends commands whose limit has passed.
    fn turn(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.shared.is_closed() {
            return Err(closed());
        }
        self.read(context)?;
        match self.write(context) {
            Poll::Ready(sent) => sent?,
            // A command that cannot be sent yet must wake the driver too: its limit may be earlier than the timer.
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
            if self.input.is_empty() && self.input.capacity() > MAX_KEPT_BUFFER_BYTES {
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
            while let Some(reply) = self.replies.next(&mut self.input).map_err(|_| {
                io::Error::other("the server gives an answer that no Redis server gives")
            })? {
                self.woken.extend(state.answer(reply)?);
            }
            drop(state);
            self.woken.drain(..).for_each(Waker::wake);
        }
    }

    /// Sends all queued commands.
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
            self.output.shrink_to(MAX_KEPT_BUFFER_BYTES);
            self.sent = 0;
            let mut state = self.shared.state();
            std::mem::swap(&mut self.output, &mut state.unsent);
            if self.output.is_empty() {
                // Set under the same lock: a command that is queued between the check and this line would not wake
                // the driver.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Workers;

    #[test]
    fn an_overdue_reply_shows_a_dead_connection_although_its_caller_has_gone() {
        let (shared, limit) = (ConnectionShared::default(), Instant::now());
        let pushed = shared.accept(1, |state| state.push(&Command::new("PING"), limit));
        let slot = pushed.unwrap_or_else(|_| panic!("it is taken"));
        drop(ReplyFuture::new(&shared, slot));
        let mut woken = Vec::new();
        assert!(shared.state().expire(limit, &mut woken));
        // The time-out was reported once, and the slot is free again.
        assert!(!shared.state().expire(limit, &mut woken));
        assert_eq!(shared.state().free, [slot]);
    }

    #[tokio::test]
    async fn nobody_on_another_thread_waits_for_one_that_is_stuck() {
        let (workers, _running) = Workers::start(1).unwrap();
        let home = workers.all().next().unwrap();
        // The driver of this connection never runs, as if its thread were stuck.
        let connection = workers
            .carry_out(home, async {
                Connection::new(Arc::default(), Run::default())
            })
            .await
            .unwrap();
        let (ping, limit) = (
            Command::new("PING"),
            Instant::now() + Duration::from_millis(50),
        );
        let sent = timeout_at(
            limit + Duration::from_secs(5),
            connection.send(&ping, limit),
        );
        let timed_out = Failure::Unknown(Uncertainty::TimedOut);
        assert_eq!(sent.await.unwrap().unwrap_err(), timed_out);
        assert!(connection.is_broken());
    }

    #[test]
    fn a_connection_that_was_given_up_takes_nothing_more() {
        let shared = ConnectionShared::default();
        shared.close();
        let limit = Instant::now();
        let refused = shared.accept(1, |state| state.push(&Command::new("PING"), limit));
        assert!(matches!(refused, Err(Failure::Transient(_))));
        assert!(shared.state().unsent.is_empty());
    }
}
